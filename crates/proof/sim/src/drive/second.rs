//! Nameless files, copies, seeks and access control lists, as the kernel asks for them.

use super::{Driver, Open, SETID};
use skep_client::{CreateHow, OpenHow, Seek, XattrHow};
use skep_model::{At, Handle, Op, Outcome, Path, acl_value};
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{Attr, Errno, Kind, Mode, SetAttr};
use skep_wire::meta::OpenMode;

/// Numbers of values that the kernel itself looks at: a list of no entries, another version, a torn one.
const EMPTY: u8 = 5;
const OTHER_VERSION: u8 = 9;
const TORN: u8 = 10;

fn acl_name(default: bool) -> &'static [u8] {
    if default { b"system.posix_acl_default" } else { b"system.posix_acl_access" }
}

impl Driver<'_> {
    pub(super) async fn open_temp(
        &mut self,
        path: Path,
        handle: Handle,
        mode: Mode,
        exclusive: bool,
    ) -> Result<(), Errno> {
        if self.opens.contains_key(&handle) {
            return Err(Errno::EMFILE);
        }
        let dir = self.follow(path).await?;
        if dir.kind != Kind::Dir {
            return Err(Errno::ENOTDIR);
        }
        let create = CreateHow { mode, umask: 0, uid: 0, gid: 0, exclusive, policy: None };
        let how = OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };
        let opened = self.lane.create_temp(dir.ino, create, how).await?;
        let (client, ino) = (opened.handle, opened.attr.ino);
        let (read, write, append, linkable) = (true, true, false, !exclusive);
        self.opens.insert(handle, Open { handle: client, ino, dir: false, read, write, append, linkable });
        Ok(())
    }

    pub(super) async fn link_handle(&mut self, handle: Handle, to: Path) -> Result<(), Errno> {
        let open = self.handle(handle)?;
        let (dir, name) = self.parent_of(to).await?;
        match self.lane.lookup(dir, name).await {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) if open.dir => return Err(Errno::EPERM),
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        // The kernel knows which files without a name may get one.
        let nameless = self.lane.getattr(open.ino).await?.nlink == 0;
        if nameless && !open.linkable {
            return Err(Errno::ENOENT);
        }
        self.lane.link(open.ino, dir, name).await?;
        if let Some(open) = self.opens.get_mut(&handle) {
            open.linkable = false;
        }
        Ok(())
    }

    pub(super) async fn copy(
        &self,
        (from, mut from_offset): (Handle, u64),
        (to, mut offset): (Handle, u64),
        len: u32,
        kill: bool,
    ) -> Result<usize, Errno> {
        let (source, copy) = (self.handle(from)?, self.handle(to)?);
        if source.dir || copy.dir {
            return Err(Errno::EISDIR);
        }
        if !source.read || !copy.write || copy.append {
            return Err(Errno::EBADF);
        }
        let has = self.lane.getattr(source.ino).await?.size.saturating_sub(from_offset);
        if offset >= FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let len = has.min(len.into()).min(FILE_SIZE_MAX - offset);
        if source.ino == copy.ino && len > 0 && offset.abs_diff(from_offset) < len {
            return Err(Errno::EINVAL);
        }
        if len > 0 && kill && self.lane.getattr(copy.ino).await?.mode & SETID != 0 {
            let set = SetAttr { kill_suidgid: true, ..SetAttr::default() };
            self.lane.setattr(copy.ino, set).await?;
        }
        let mut done = 0;
        while done < len {
            let part = self.lane.copy((source.handle, from_offset), (copy.handle, offset), len - done).await;
            match part {
                Ok(0) => break,
                Ok(part) => {
                    (from_offset, offset, done) = (from_offset + part, offset + part, done + part);
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done as usize)
    }

    pub(super) async fn seek(&self, handle: Handle, offset: u64, hole: bool) -> Outcome {
        let sought = match self.handle(handle) {
            Ok(open) if open.dir => Err(Errno::EISDIR),
            Ok(open) => {
                let what = if hole { Seek::Hole } else { Seek::Data };
                self.lane.seek(open.handle, offset, what).await
            }
            Err(errno) => Err(errno),
        };
        sought.map_or_else(Outcome::Failed, Outcome::Offset)
    }

    pub(super) async fn acl(&self, op: &Op) -> Outcome {
        match *op {
            Op::SetAcl { at, default, value } => self.set_acl(at, default, value).await.into(),
            Op::RemoveAcl { at, default } => self.set_acl(at, default, EMPTY).await.into(),
            Op::GetAcl { at, default } => match self.at(at).await {
                Ok(Attr { kind: Kind::Symlink, .. }) => Outcome::Failed(Errno::EOPNOTSUPP),
                Ok(attr) => self.lane.getxattr(attr.ino, acl_name(default)).await.into(),
                Err(errno) => Outcome::Failed(errno),
            },
            _ => Outcome::Failed(Errno::ENOSYS),
        }
    }

    async fn set_acl(&self, at: At, default: bool, value: u8) -> Result<(), Errno> {
        if let At::Handle(handle) = at {
            self.handle(handle)?;
        }
        let attr = self.at(at).await;
        match value {
            OTHER_VERSION => return attr.and(Err(Errno::EOPNOTSUPP)),
            TORN => return attr.and(Err(Errno::EINVAL)),
            _ => {}
        }
        let attr = attr?;
        if attr.kind == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if default && attr.kind != Kind::Dir {
            return if value == EMPTY { Ok(()) } else { Err(Errno::EACCES) };
        }
        if value == EMPTY {
            return match self.lane.removexattr(attr.ino, acl_name(default)).await {
                Err(Errno::ENODATA) => Ok(()),
                done => done,
            };
        }
        let how = XattrHow { create: false, replace: false, kill_sgid: false };
        self.lane.setxattr(attr.ino, acl_name(default), &acl_value(value), how).await
    }
}

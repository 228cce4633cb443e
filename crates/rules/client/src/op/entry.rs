//! lookup, mkdir, mknod, symlink, link, readlink.

use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use alloc::boxed::Box;
use skep_types::codec::Bytes;
use skep_types::limits::SYMLINK_MAX;
use skep_types::{Attr, Errno, Ino, Kind, Mode, Name};
use skep_wire::meta::{
    AttrReply, Create, EntryReply, Link, List, Lookup, MakeNode, MakeSymlink, OpenReply, ReadLink,
};
use skep_wire::{Message, Refusal};

/// A directory or special file to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewNode {
    pub kind: Kind,
    /// Permission bits as the program asked.
    pub mode: Mode,
    /// Bits to take off them, unless the directory has a default ACL.
    pub umask: Mode,
    pub uid: u32,
    /// Group, unless the directory is setgid.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
}

pub(crate) fn name(bytes: &[u8]) -> Result<Name, Refusal> {
    Name::new(bytes).map_err(|error| Errno::from(error).into())
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Finds a name. `.` and `..` are asked for by an NFS export. The attributes of a file that another mount holds are as that has
    /// told them, of one that has told owner and mode: the kernel asks for those of now when a program wants them.
    pub async fn lookup(&self, parent: Ino, bytes: &[u8]) -> Result<Attr, Errno> {
        let asked = self.asked();
        let attr = self.errno(self.find_as(parent, bytes, true).await)?;
        self.answered(&attr, asked).await?;
        Ok(attr)
    }

    /// A name, with attributes of now.
    pub(crate) async fn find(&self, parent: Ino, bytes: &[u8]) -> Result<Attr, Refusal> {
        self.find_as(parent, bytes, false).await
    }

    async fn find_as(&self, parent: Ino, bytes: &[u8], as_told: bool) -> Result<Attr, Refusal> {
        match bytes {
            b"." => self.fresh_attr(parent).await,
            b".." => {
                let list = List { dir: parent, after: 0, max: 1, with_attr: false, as_told: None };
                let reply = self.ask(parent.shard(), &list).await?;
                self.fresh_attr(reply.parent).await
            }
            _ => {
                let message = Lookup { parent, name: name(bytes)?, as_told: as_told.then_some(true) };
                if let Some(known) = self.known_entry(parent, bytes) {
                    return known.ok_or_else(|| Errno::ENOENT.into());
                }
                if let Some(held) = self.shared.with(|s| s.held_under(parent, bytes, self.port.boot())) {
                    self.tell_untold(held).await;
                }
                let (reply, told) = self.settle_told(self.asking(parent.shard(), &message)).await;
                let reply = reply.and_then(|reply| reply.read::<EntryReply>());
                match &reply {
                    Ok(entry) => self.learn_entry(parent, bytes, Some(entry), told.as_deref()),
                    Err(refusal) if refusal.status.as_errno() == Some(Errno::ENOENT) => {
                        self.learn_entry(parent, bytes, None, told.as_deref());
                    }
                    Err(_) => {}
                }
                let reply = reply?;
                let is_told = reply.attr.as_ref().is_some_and(|attr| attr.flags & Attr::AS_TOLD != 0);
                if is_told && self.shared.with(|s| s.has_open(reply.ino)) {
                    return Box::pin(self.find(parent, bytes)).await;
                }
                let attr = self.entry(reply).await?;
                self.shared.with(|s| s.ghosts.seen(parent, bytes, &attr));
                Ok(attr)
            }
        }
    }

    /// The attributes of an entry, from its inode's shard when that is another one.
    async fn entry(&self, reply: EntryReply) -> Result<Attr, Refusal> {
        match reply.attr {
            Some(attr) => self.shown(attr, reply.live).await,
            None => {
                let AttrReply { attr, live } = self.ask_attr(reply.ino).await?;
                self.shown(attr, live).await
            }
        }
    }

    /// Makes a directory, special file or (without opening it) regular file.
    pub async fn make_node(&self, parent: Ino, bytes: &[u8], new: NewNode) -> Result<Attr, Errno> {
        self.errno(self.node(parent, bytes, new).await)
    }

    async fn node(&self, parent: Ino, bytes: &[u8], new: NewNode) -> Result<Attr, Refusal> {
        let NewNode { kind, mode, umask, uid, gid, rdev } = new;
        let name = name(bytes)?;
        match kind {
            Kind::File => {
                let message = Create {
                    parent,
                    name,
                    mode,
                    umask,
                    uid,
                    gid,
                    exclusive: true,
                    truncate: false,
                    open: None,
                    open_seq: 0,
                    policy: None,
                };
                let job = self.changing(parent, &message).naming(parent, bytes);
                let (reply, told) = self.settle_told(job).await;
                let reply = reply?;
                let open: OpenReply = reply.read()?;
                self.also_changed(open.attr.ino, &reply);
                self.made_name(parent, bytes, Some((open.attr.ino, open.attr.kind)), told.as_deref());
                self.made_file(parent, bytes, open.attr.ino, told.as_deref());
                Ok(open.attr)
            }
            Kind::Symlink => Err(Errno::EINVAL.into()),
            _ => {
                let message = MakeNode { parent, name, kind, mode, umask, uid, gid, rdev };
                let entry = self.make_entry(parent, bytes, &message).await?;
                let attr = self.entry(entry).await?;
                self.shared.with(|s| s.ghosts.seen(parent, bytes, &attr));
                Ok(attr)
            }
        }
    }

    /// A name of something new. (What is on another shard is in the log of that one.)
    async fn make_entry<M: Message<Reply = EntryReply>>(
        &self,
        parent: Ino,
        bytes: &[u8],
        message: &M,
    ) -> Result<EntryReply, Refusal> {
        let job = self.changing(parent, message).naming(parent, bytes);
        let (reply, told) = self.settle_told(job).await;
        let reply = reply?;
        let entry: EntryReply = reply.read()?;
        self.made_name(parent, bytes, Some((entry.ino, entry.kind)), told.as_deref());
        self.made_dir(entry.attr.as_ref(), told.as_deref());
        if entry.ino.shard() == parent.shard() {
            self.also_changed(entry.ino, &reply);
        }
        Ok(entry)
    }

    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        parent: Ino,
        bytes: &[u8],
        target: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<Attr, Errno> {
        let result = async {
            if target.is_empty() {
                return Err(Errno::ENOENT.into());
            }
            if target.len() > SYMLINK_MAX {
                return Err(Errno::ENAMETOOLONG.into());
            }
            let message =
                MakeSymlink { parent, name: name(bytes)?, target: Bytes(target.to_vec()), uid, gid };
            self.entry(self.make_entry(parent, bytes, &message).await?).await
        };
        self.errno(result.await)
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, ino: Ino) -> Result<alloc::vec::Vec<u8>, Errno> {
        self.errno(self.ask(ino.shard(), &ReadLink { ino }).await).map(|reply| reply.data.0)
    }

    /// Makes a hard link.
    pub async fn link(&self, ino: Ino, parent: Ino, bytes: &[u8]) -> Result<Attr, Errno> {
        let result = async {
            if ino.shard() != parent.shard() {
                return Err(self.too_far("link", ino.shard(), parent.shard()));
            }
            self.tell_first(ino).await?;
            let message = Link { ino, parent, name: name(bytes)? };
            let job = self.changing(ino, &message).and_of(parent).naming(parent, bytes);
            let (reply, told) = self.settle_told(job).await;
            let reply: EntryReply = reply?.read()?;
            self.made_name(parent, bytes, Some((reply.ino, reply.kind)), told.as_deref());
            match reply.attr {
                Some(attr) => {
                    self.shared.with(|s| s.inodes.merge_own(attr.clone()));
                    self.shown(attr, reply.live).await
                }
                None => self.fresh_attr(ino).await,
            }
        };
        let attr = self.errno(result.await)?;
        self.before_told(&attr).await?;
        Ok(attr)
    }
}

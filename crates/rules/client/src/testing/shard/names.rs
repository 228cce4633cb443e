//! Names of the fake shard, and what of them leases cover.

use super::{Reply, Shard, Targets, Touched};
use alloc::vec::Vec;
use skep_types::{Attr, Errno, Ino, Kind, Name, Timestamp};
use skep_wire::meta::{EntryReply, MetaRequest, RemoveDir, Rename, Unlink};
use skep_wire::{Empty, Refusal};

impl Shard {
    /// What of a directory a change touches. All names are in the root.
    pub(super) fn touches(&self, request: &MetaRequest) -> Vec<Touched> {
        let name = |parent: Ino, name: &Name| {
            let entry = self.names.get(name).copied().filter(|ino| !self.is_dir(*ino));
            Vec::from([(parent, Some(name.clone()), entry)])
        };
        let entry = |ino: Ino| match self.is_dir(ino) {
            true => Vec::from([(ino, None, None)]),
            false => Vec::from([(Ino::ROOT, None, Some(ino))]),
        };
        match request {
            MetaRequest::Create(m) if !self.names.contains_key(&m.name) => name(m.parent, &m.name),
            MetaRequest::Create(m) => entry(self.names[&m.name]),
            MetaRequest::MakeNode(m) if !self.names.contains_key(&m.name) => name(m.parent, &m.name),
            MetaRequest::Unlink(m) if self.names.contains_key(&m.name) => name(m.parent, &m.name),
            MetaRequest::RemoveDir(m) if self.names.contains_key(&m.name) => {
                let gone = self.names[&m.name];
                name(m.parent, &m.name).into_iter().chain(entry(gone)).collect()
            }
            MetaRequest::Rename(m) if self.names.contains_key(&m.name) => {
                let both = name(m.parent, &m.name).into_iter().chain(name(m.to_parent, &m.to_name));
                let gone = self.names.get(&m.to_name).filter(|ino| self.is_dir(**ino));
                both.chain(gone.into_iter().flat_map(|ino| entry(*ino))).collect()
            }
            MetaRequest::ChangeAttr(m) => entry(m.ino),
            MetaRequest::Open(m) if m.mode.writes() => entry(m.ino),
            MetaRequest::WriteInline(m) => entry(m.ino),
            MetaRequest::Commit(m) => entry(m.ino),
            MetaRequest::Tell(m) => entry(m.ino),
            _ => Vec::new(),
        }
    }

    fn is_dir(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|file| file.attr.kind == Kind::Dir)
    }

    /// Leases that the answer gives.
    pub(super) fn grants(&mut self, request: &MetaRequest) {
        let mut give = |ino: Ino| {
            let is_dir = self.files.get(&ino).is_some_and(|file| file.attr.kind == Kind::Dir);
            is_dir && self.leases.grant(ino)
        };
        let _ = match request {
            MetaRequest::Lookup(m) => {
                let found = self.names.get(&m.name).copied();
                give(m.parent) | found.is_some_and(&mut give)
            }
            MetaRequest::GetAttr(m) => give(m.ino),
            MetaRequest::List(m) => give(m.dir),
            MetaRequest::Create(m) => give(m.parent),
            MetaRequest::MakeNode(m) => give(m.parent),
            MetaRequest::Unlink(m) => give(m.parent),
            MetaRequest::RemoveDir(m) => give(m.parent),
            MetaRequest::Rename(m) => give(m.parent),
            MetaRequest::ChangeAttr(m) => give(m.ino),
            _ => false,
        };
    }

    /// A name of the directory was made or removed.
    pub(super) fn changed(&mut self, dir: Ino) {
        let (index, on) = (self.index, self.leases.on);
        if let Some(dir) = self.files.get_mut(&dir).filter(|_| on) {
            dir.attr.change += 1;
            dir.attr.mtime = Timestamp { secs: index as i64, nanos: 0 };
            self.touched.push(dir.attr.clone());
        }
    }

    /// Who made a file may know it, also while it has it open.
    pub(super) fn made(&mut self, ino: Ino) {
        let attr = self.files.get(&ino).filter(|_| self.leases.on).map(|file| file.attr.clone());
        self.touched.extend(attr.map(|attr| Attr { flags: attr.flags | Attr::COVERED, ..attr }));
    }

    /// Attributes of an entry of the root, as its lease covers them.
    pub(super) fn shown(&self, ino: Ino) -> Option<Attr> {
        let mut attr = self.files.get(&ino)?.attr.clone();
        if self.leases.on && attr.kind == Kind::File && !self.written.contains(&ino) {
            attr.flags |= Attr::COVERED;
        }
        Some(attr)
    }

    pub(super) fn with_names(&mut self, request: &MetaRequest, targets: &mut Targets) -> Reply {
        match request {
            MetaRequest::Lookup(m) => {
                let ino = *self.names.get(&m.name).ok_or(Refusal::from(Errno::ENOENT))?;
                let attr = self.shown(ino);
                let kind = attr.as_ref().map_or(Kind::File, |attr| attr.kind);
                Ok(self.stamped(&EntryReply { ino, kind, attr, live: None }))
            }
            MetaRequest::MakeNode(m) if m.kind == Kind::Dir => {
                if self.names.contains_key(&m.name) {
                    return Err(Errno::EEXIST.into());
                }
                self.serial += 1;
                let ino = Ino::new(self.id, 100 + self.serial);
                self.new_dir(ino);
                self.names.insert(m.name.clone(), ino);
                self.changed(m.parent);
                self.leases.grant(ino);
                let attr = self.shown(ino);
                Ok(self.stamped(&EntryReply { ino, kind: Kind::Dir, attr, live: None }))
            }
            MetaRequest::Unlink(Unlink { parent, name })
            | MetaRequest::RemoveDir(RemoveDir { parent, name }) => {
                let Some(gone) = self.names.remove(name) else { return Err(Errno::ENOENT.into()) };
                self.goes(gone);
                self.changed(*parent);
                Ok(self.stamped(&Empty {}))
            }
            MetaRequest::Rename(m) => self.rename(m),
            _ => self.change_content(request, targets),
        }
    }

    /// Over anything of the same kind.
    fn rename(&mut self, m: &Rename) -> Reply {
        let moved = *self.names.get(&m.name).ok_or(Refusal::from(Errno::ENOENT))?;
        if m.exchange && !self.names.contains_key(&m.to_name) {
            return Err(Errno::ENOENT.into());
        }
        if m.name == m.to_name {
            return Ok(self.stamped(&Empty {}));
        }
        let gone = self.names.get(&m.to_name).copied().filter(|_| !m.exchange);
        if gone.is_some_and(|gone| self.is_dir(gone) != self.is_dir(moved)) {
            return Err(Errno::EISDIR.into());
        }
        let other = self.names.insert(m.to_name.clone(), moved);
        match other.filter(|_| m.exchange) {
            Some(other) => drop(self.names.insert(m.name.clone(), other)),
            None => drop(self.names.remove(&m.name)),
        }
        if let Some(gone) = gone.filter(|gone| *gone != moved) {
            self.goes(gone);
        }
        self.changed(m.parent);
        Ok(self.stamped(&Empty {}))
    }

    /// It has lost its name.
    fn goes(&mut self, gone: Ino) {
        let attr = self.files.get(&gone).filter(|_| self.leases.on).map(|file| file.attr.clone());
        self.touched.extend(attr.map(|attr| Attr { nlink: 0, ..attr }));
        if self.is_dir(gone) {
            self.files.remove(&gone);
        }
    }
}

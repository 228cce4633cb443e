//! Random histories of namespace operations: the server answers as the oracle does, error by
//! error, attribute by attribute, time by time.

use crate::testing::*;
use crate::*;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use skep_model::{Access, Call, Fs, Handle, RenameHow, Rng, XattrHow};
use skep_types::codec::Bytes;
use skep_types::*;
use skep_wire::Status;
use skep_wire::meta::*;

struct Pair {
    bed: Bed,
    fs: Fs,
    rng: Rng,
    /// Everything ever made, dead or alive.
    inos: Vec<Ino>,
    open: BTreeMap<Ino, u64>,
    step: u64,
}

fn as_errno<T>(result: Result<T, Status>) -> Result<T, Errno> {
    result.map_err(|status| status.as_errno().unwrap_or_else(|| panic!("{status} is for no program")))
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut bed = Bed::new();
        let at = bed.attr(Ino::ROOT).unwrap().btime;
        let fs = Fs::new(0o755, 0, 0, at);
        Self { bed, fs, rng: Rng::new(seed), inos: alloc::vec![Ino::ROOT], open: BTreeMap::new(), step: 0 }
    }

    fn any(&mut self) -> Ino {
        let at = self.rng.below(self.inos.len() as u64);
        self.inos[at as usize]
    }

    /// Mostly a directory that exists.
    fn dir(&mut self) -> Ino {
        for _ in 0..8 {
            let ino = self.any();
            if self.fs.getattr(ino).is_ok_and(|attr| attr.kind == Kind::Dir && attr.nlink > 0) {
                return ino;
            }
        }
        self.any()
    }

    fn name(&mut self) -> Name {
        name(&format!("{}", self.rng.below(5)))
    }

    /// What the next step will be told.
    fn at(&self) -> Timestamp {
        let mut bed_time = self.bed.now;
        bed_time.0 += 1;
        Timestamp {
            secs: 1_000_000 + (bed_time.0 / 1_000) as i64,
            nanos: (bed_time.0 % 1_000) as u32 * 1_000_000,
        }
    }

    /// The server goes first, for the number it chooses.
    fn new_inode(
        &mut self,
        made: Result<Ino, Status>,
        at: Timestamp,
        model: impl FnOnce(&mut Fs, Call) -> Result<Ino, Errno>,
    ) {
        let ino = made.unwrap_or(Ino(1 << 40 | self.step));
        let expected = model(&mut self.fs, Call { now: at, ino, uid: 7, gid: 8 });
        assert_eq!(as_errno(made), expected);
        self.inos.extend(made.ok());
    }

    fn make(&mut self) {
        let (parent, text, at) = (self.dir(), self.name(), self.at());
        match self.rng.below(4) {
            0 => {
                let wish = MakeNode { name: text.clone(), ..node(parent, "x", Kind::Dir) };
                let made = self.bed.call(ME, wish).map(|reply| reply.ino);
                self.new_inode(made, at, |fs, call| fs.mkdir(parent, &text, 0o755, call));
            }
            1 => {
                let wish = MakeNode { name: text.clone(), ..node(parent, "x", Kind::BlockDev) };
                let made = self.bed.call(ME, wish).map(|reply| reply.ino);
                self.new_inode(made, at, |fs, call| fs.mknod(parent, &text, Kind::BlockDev, 0o755, 5, call));
            }
            2 => {
                let target = Bytes(b"to".to_vec());
                let wish = MakeSymlink { parent, name: text.clone(), target, uid: 7, gid: 8 };
                let made = self.bed.call(ME, wish).map(|reply| reply.ino);
                self.new_inode(made, at, |fs, call| fs.symlink(parent, &text, b"to", call));
            }
            _ => {
                let wish = Create { name: text.clone(), exclusive: true, ..create(parent, "x") };
                let made = self.bed.call(ME, wish).map(|reply| reply.attr.ino);
                self.new_inode(made, at, |fs, call| fs.create(parent, &text, 0o644, call));
            }
        }
    }

    fn names(&mut self) {
        let (dir, text, at) = (self.dir(), self.name(), self.at());
        let (to, other) = (self.dir(), self.name());
        match self.rng.below(6) {
            0 => {
                let got = self.bed.call(ME, Unlink { parent: dir, name: text.clone() }).map(|_| ());
                assert_eq!(as_errno(got), self.fs.unlink(dir, &text, at));
            }
            1 => {
                let got = self.bed.call(ME, RemoveDir { parent: dir, name: text.clone() }).map(|_| ());
                assert_eq!(as_errno(got), self.fs.rmdir(dir, &text, at));
            }
            2 => {
                let ino = self.any();
                if self.fs.getattr(ino).is_err() {
                    return; // The kernel would not get this far.
                }
                let got = self.bed.call(ME, Link { ino, parent: dir, name: text.clone() }).map(|_| ());
                assert_eq!(as_errno(got), self.fs.link(ino, dir, &text, at));
            }
            how => {
                let how = [RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange][how as usize - 3];
                let wish = Rename {
                    parent: dir,
                    name: text.clone(),
                    to_parent: to,
                    to_name: other.clone(),
                    no_replace: how == RenameHow::NoReplace,
                    exchange: how == RenameHow::Exchange,
                };
                let got = self.bed.call(ME, wish).map(|_| ());
                assert_eq!(as_errno(got), self.fs.rename((dir, &text), (to, &other), how, at));
            }
        }
    }

    fn attributes(&mut self) {
        let (ino, at) = (self.any(), self.at());
        if self.fs.getattr(ino).is_err() {
            return;
        }
        let set = match self.rng.below(5) {
            0 => SetAttr { mode: Some(self.rng.below(0o10000) as u32), ..SetAttr::default() },
            1 => SetAttr { uid: Some(self.rng.below(3) as u32), ..SetAttr::default() },
            2 => SetAttr { gid: Some(3), kill_suidgid: self.rng.percent(50), ..SetAttr::default() },
            3 => SetAttr {
                atime: Some(SetTime::Now),
                mtime: Some(SetTime::At(Timestamp::default())),
                ..SetAttr::default()
            },
            _ => SetAttr {
                size: Some(self.rng.below(100)),
                kill_suidgid: self.rng.percent(50),
                ..SetAttr::default()
            },
        };
        let got = self.bed.call(ME, ChangeAttr { ino, set: set.clone() }).map(|_| ());
        assert_eq!(as_errno(got), self.fs.setattr(ino, &set, at), "{set:?}");
    }

    fn content(&mut self) {
        let (ino, at) = (self.any(), self.at());
        if self.fs.getattr(ino).is_err() {
            return;
        }
        match self.rng.below(3) {
            0 => {
                let (offset, data) =
                    (self.rng.below(90), alloc::vec![self.step as u8; 1 + self.rng.below(9) as usize]);
                if self.fs.getattr(ino).unwrap().kind == Kind::File {
                    let wish = WriteInline {
                        append: false,
                        ino,
                        offset,
                        data: Bytes(data.clone()),
                        kill_suidgid: true,
                        within: None,
                    };
                    let got = self.bed.call(ME, wish).map(|_| data.len());
                    assert_eq!(as_errno(got), self.fs.write(ino, offset, &data, true, at));
                    let mut read = self
                        .bed
                        .call(
                            ME,
                            ReadInline { ino, short: alloc::vec::Vec::new(), trims: Default::default() },
                        )
                        .unwrap()
                        .inline
                        .unwrap()
                        .0;
                    read.resize(self.fs.getattr(ino).unwrap().size as usize, 0);
                    assert_eq!(read, self.fs.read(ino, 0, 1_000).unwrap());
                }
            }
            1 => {
                let (text, value) = (b"user.x", alloc::vec![1; self.rng.below(9) as usize]);
                let how = self.rng.pick(&[XattrHow::Set, XattrHow::Create, XattrHow::Replace]);
                let wish = SetXattr {
                    kill_sgid: false,
                    ino,
                    name: Bytes(text.to_vec()),
                    value: Bytes(value.clone()),
                    create: how == XattrHow::Create,
                    replace: how == XattrHow::Replace,
                };
                let got = self.bed.call(ME, wish).map(|_| ());
                assert_eq!(as_errno(got), self.fs.setxattr(ino, text, &value, how, at));
            }
            _ => {
                let got = self.bed.call(ME, RemoveXattr { ino, name: Bytes(b"user.x".to_vec()) }).map(|_| ());
                assert_eq!(as_errno(got), self.fs.removexattr(ino, b"user.x", at));
            }
        }
    }

    fn opens(&mut self) {
        let ino = self.any();
        let handle = Handle(ino.0 as u32);
        if self.open.remove(&ino).is_some() {
            self.bed.close(ME, ino, self.step);
            self.fs.close(handle).unwrap();
        } else if self.fs.getattr(ino).is_ok() {
            self.bed.open(ME, ino, OpenMode::Read, self.step).unwrap();
            self.fs.open(handle, ino, Access { read: true, ..Access::default() }).unwrap();
            self.open.insert(ino, self.step);
        }
    }

    fn compare(&mut self) {
        for ino in self.inos.clone() {
            match (self.bed.attr(ino), self.fs.getattr(ino)) {
                (Ok(ours), Ok(theirs)) => {
                    let times = |attr: &Attr| (attr.atime, attr.mtime, attr.ctime, attr.btime);
                    assert_eq!(times(&ours), times(&theirs), "times of {ours:?}");
                    let rest =
                        |attr: &Attr| (attr.kind, attr.mode, attr.nlink, attr.uid, attr.gid, attr.rdev);
                    assert_eq!(rest(&ours), rest(&theirs), "attributes of {ino:?}");
                    if ours.kind != Kind::Dir {
                        assert_eq!(ours.size, theirs.size);
                    } else if ours.nlink > 0 {
                        let list = List { dir: ino, after: 0, max: 1_000, with_attr: false, as_told: None };
                        let list = self.bed.call(ME, list).unwrap();
                        let names: BTreeMap<Name, Kind> =
                            list.entries.into_iter().map(|entry| (entry.name, entry.kind)).collect();
                        assert_eq!(names, self.fs.readdir(ino).unwrap());
                        assert_eq!(list.parent, self.fs.parent(ino).unwrap());
                    }
                }
                (ours, theirs) => {
                    assert_eq!(ours.is_ok(), theirs.is_ok(), "{ino:?}: {ours:?}, expected {theirs:?}");
                }
            }
        }
    }
}

/// Goal: over 60 histories of 400 steps, every answer and every attribute is the oracle's.
#[test]
fn the_server_answers_as_the_oracle() {
    for seed in 0..60 {
        let mut pair = Pair::new(seed);
        for step in 1..=400 {
            pair.step = step;
            match pair.rng.below(10) {
                0..=2 => pair.make(),
                3..=5 => pair.names(),
                6 => pair.attributes(),
                7 => pair.content(),
                _ => pair.opens(),
            }
            if step % 20 == 0 {
                pair.compare();
                pair.bed.check();
            }
        }
    }
}

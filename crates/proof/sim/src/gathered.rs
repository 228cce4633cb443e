//! Files of a book that its mount holds. What is done to one stands in no record before its mount tells it: so two things that
//! hold of all else do not hold of it. What was acknowledged goes with the mount, or with its session; and a power cut that
//! takes the record of the Tell takes steps that came long before it, and not those that came in between; one that comes before
//! the Tell takes none of them, though it may take steps in between.
//!
//! What is excused is exactly that: of a file of which something waited to be told when its last step ended, that its mount
//! does not hold any more, and of which no record of a Tell is left, mode and owner are those that records say, and content is
//! that or any of what was written since. All else is compared as ever; and where the mount lives on, the next fsync of the
//! file must fail.

use crate::book::Book;
use crate::drive::Open;
use crate::hub::Hub;
use crate::port::SharedRef;
use crate::program::Actor;
use skep_client::state::Inode;
use skep_model::{At, Fill, Fs, Handle, NAMES, Op, OpenHow as OpenFlags, Path};
use skep_types::{Ino, SetAttr, SetTime, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Of a hundred steps of who holds a file so many are with that.
const HELD: u64 = 60;
/// Bytes of such a write at most, and where it begins.
const SMALL: u32 = 300;

/// A write of this file stayed with its mount: which moment that is.
pub fn stays_how(shared: &SharedRef, ino: Ino) -> &'static str {
    match shared.borrow().inodes.get(ino).is_some_and(Inode::run_has_gaps) {
        true => "a run with a gap stayed with the mount",
        false => "a write stayed with the mount",
    }
}

/// Is something of what was written with the mount, and nowhere else?
pub fn has_run(inode: &Inode) -> bool {
    inode.has_run()
}

/// What is lost of such a file.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    /// So many records that told of it are left.
    tells: usize,
    /// A power cut took one for good. What was told later is not lost with it, so owner and mode may be as before or since.
    pub in_vain: bool,
}

/// A file that is held, or was.
#[derive(Debug)]
pub struct Gathered {
    /// On the server.
    server: Ino,
    /// The oracle after steps behind which nothing of the file waited to be told, by their number, with how many records had told
    /// of it.
    told: Vec<(u64, usize, Fs)>,
    /// After the last step behind which none of its content was with the mount only.
    put: u64,
    /// Something waited to be told when the last step ended behind which it was held.
    has_news: bool,
    /// And something of its content was with the mount only.
    has_run: bool,
    /// What so many records told does not tell that.
    before_news: usize,
    /// So many there had been then.
    tells: usize,
    /// So many had been taken by power cuts when its hold began: one may be told and taken between two steps.
    taken: usize,
}

impl Gathered {
    /// What records say of it, of those of steps before `step`, and of those left that told of it; and behind which step
    /// nothing of its content was with the mount only.
    pub fn as_recorded(&self, step: u64, loss: Loss) -> Option<(u64, &Fs)> {
        let is_left = |(number, told, _): &&(u64, usize, Fs)| *number < step && *told <= loss.tells;
        let (number, _, fs) = self.told.iter().rfind(is_left)?;
        Some((if self.has_run { self.put.min(*number) } else { *number }, fs))
    }
}

/// The file in `state` is as in `told`.
pub fn take_back(state: &mut Fs, ino: Ino, told: &Fs) -> bool {
    let (Ok(stat), Ok(_)) = (told.stat(ino), state.stat(ino)) else { return false };
    state.take_content(ino, told);
    let owner = SetAttr { uid: Some(stat.uid), gid: Some(stat.gid), ..SetAttr::default() };
    let mode = SetAttr { mode: Some(stat.mode), ..SetAttr::default() };
    [owner, mode].iter().all(|set| state.setattr(ino, set, Timestamp::default()).is_ok())
}

impl Actor {
    /// Something with a file that is held, now and then: by chance alone few of them are changed before they are closed.
    pub(crate) fn with_held(&self) -> Option<Op> {
        let (book, hub, shared) = (self.book.borrow(), &mut *self.hub.borrow_mut(), self.shared.borrow());
        if !hub.lending.holds || !hub.rng.percent(HELD) {
            return None;
        }
        let is_held = |open: &Open| shared.inodes.get(open.ino).is_some_and(|inode| inode.hold.is_some());
        let held: Vec<Handle> =
            book.opens.iter().filter(|(_, open)| is_held(open)).map(|(handle, _)| *handle).collect();
        let drawn = hub.rng.below(1 << 20) as u32;
        if held.is_empty() {
            let handle = (0..4).map(Handle).find(|handle| !book.opens.contains_key(handle))?;
            let path = Path::new(&[(drawn % 16) as u8 % NAMES.len() as u8]);
            let how = OpenFlags {
                read: true,
                write: true,
                append: false,
                truncate: false,
                create: true,
                exclusive: true,
            };
            return Some(Op::Open { path, handle, how, mode: 0o644, kill: false });
        }
        let handle = hub.rng.pick(&held);
        let at = At::Handle(handle);
        Some(match drawn % 10 {
            0..=3 => Op::Chmod { at, mode: 0o400 + drawn / 16 % 0o400 },
            4 => Op::Chown { at, uid: Some(drawn / 16 % 3), gid: Some(drawn / 64 % 3) },
            5 => Op::Utimens { at, atime: Some(SetTime::Now), mtime: None },
            6..=8 => {
                let fill = Fill { tag: drawn, len: 1 + drawn / 16 % SMALL };
                Op::Write { handle, offset: u64::from(drawn / 64 % SMALL), fill, kill: false }
            }
            _ => Op::Fsync { handle },
        })
    }

    /// A step has ended as it must: which files of the book are held now, and of which something waits to be told.
    pub(crate) fn note_held(&self, op: &Op) {
        let (book, hub) = (&mut *self.book.borrow_mut(), &mut *self.hub.borrow_mut());
        if !hub.lending.holds {
            return;
        }
        let shared = self.shared.borrow();
        let held = |ino: Ino| shared.inodes.get(ino).filter(|inode| inode.hold.is_some());
        let Book { gathered, fs, opens, number, .. } = &mut *book;
        if let Op::Open { handle, .. } = op
            && let (Ok((ino, _)), Some(open)) = (fs.handle(*handle), opens.get(handle))
            && held(open.ino).is_some()
        {
            let (told, tells) = (Vec::new(), hub.tells.count(open.ino));
            let (has_news, has_run, before_news) = (false, false, tells);
            let (server, put, taken) = (open.ino, *number, hub.tells.taken(open.ino));
            let new = Gathered { server, told, put, has_news, has_run, before_news, tells, taken };
            gathered.entry(ino).or_insert(new);
        }
        drop(shared);
        self.note_news(book, hub);
    }

    /// The same, between two steps: a file may be told there, and have news again before the next one ends.
    pub(crate) fn note_told(&self) {
        let (book, hub) = (&mut *self.book.borrow_mut(), &mut *self.hub.borrow_mut());
        if hub.lending.holds {
            self.note_news(book, hub);
        }
    }

    fn note_news(&self, book: &mut Book, hub: &mut Hub) {
        let shared = self.shared.borrow();
        let held = |ino: Ino| shared.inodes.get(ino).filter(|inode| inode.hold.is_some());
        let Book { gathered, fs, number, .. } = book;
        gathered.retain(|_, file| match held(file.server) {
            Some(inode) => {
                (file.has_news, file.has_run) = (inode.has_changes(), has_run(inode));
                file.tells = hub.tells.count(file.server);
                file.before_news =
                    hub.tells.before_news(file.server, inode.is_being_told() || inode.is_ending());
                if !file.has_news {
                    file.told.push((*number, file.tells, fs.clone()));
                }
                if !file.has_run && inode.held_content().is_none() {
                    file.put = *number;
                }
                true
            }
            // What was told of it is there, or a power cut has just taken it.
            None => {
                let is_told = hub.tells.count(file.server) > 0 || hub.tells.is_taken(file.server, file.taken);
                file.has_news || file.has_run || is_told
            }
        });
    }

    /// Files of which something is lost that was acknowledged, and not told; or told, and a power cut took that.
    pub(crate) fn never_told(&self) -> BTreeMap<Ino, Loss> {
        let (book, hub, shared) = (self.book.borrow(), self.hub.borrow(), self.shared.borrow());
        let is_held = |ino: Ino| shared.inodes.get(ino).is_some_and(|inode| inode.hold.is_some());
        let lost = book.gathered.iter().filter_map(|(ino, file)| {
            let tells = hub.tells.count(file.server);
            let is_untold = tells <= file.before_news && !is_held(file.server);
            let in_vain = tells < file.tells || hub.tells.is_taken(file.server, file.taken);
            let is_lost = in_vain || is_untold && (file.has_news || file.has_run);
            is_lost.then_some((*ino, Loss { tells, in_vain }))
        });
        lost.collect()
    }

    /// Files of which something was acknowledged before a power cut, and told behind it, or is still to be: that is kept, though
    /// steps before it are lost that had records.
    pub(crate) fn told_since(&self) -> BTreeSet<Ino> {
        let (book, hub, shared) = (self.book.borrow(), self.hub.borrow(), self.shared.borrow());
        let is_held = |ino: Ino| shared.inodes.get(ino).is_some_and(|inode| inode.hold.is_some());
        let is_told = |file: &Gathered| hub.tells.since_cut(file.server, file.before_news);
        let kept = book
            .gathered
            .iter()
            .filter(|(_, file)| (file.has_news || file.has_run) && (is_held(file.server) || is_told(file)));
        kept.map(|(ino, _)| *ino).collect()
    }

    /// The records that told of this file of the book.
    pub(crate) fn told_at(&self, book: &Book, ino: Ino) -> Vec<crate::hub::Place> {
        let file = book.gathered.get(&ino);
        file.map(|file| self.hub.borrow().tells.places(file.server).collect()).unwrap_or_default()
    }
}

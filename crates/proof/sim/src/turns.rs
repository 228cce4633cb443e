//! What lanes do to the files that all write, cut, extend and give times to: one lane at a time, while the others keep
//! the file open and what they believe of it. Whoever looks sees exactly what was acknowledged.

use crate::drive::{SimLane, read};
use crate::hub::{HubRef, LaneId};
use crate::ledger::Ledger;
use crate::program::{Actor, Failed, session_of};
use skep_client::{Allocate, CreateHow, OpenHow, WriteHow};
use skep_types::limits::CHUNK_MIN;
use skep_types::{ClientId, Errno, Ino, Policy, PoolId, SetAttr, SetTime, Timestamp};
use skep_wire::meta::OpenMode;

pub const FILES: usize = 2;
/// The place of the handle of another file, that several change at once.
pub const CONTESTED: usize = FILES;
/// Handles that a lane may keep.
pub const HELD: usize = FILES + 1;
/// Ends and lengths: in the metadata, in a chunk, over several.
const SIZES: [usize; 8] = [0, 100, 900, 3_000, 9_000, 40_000, 90_000, 200_000];
/// Read and write.
pub const BOTH: OpenHow =
    OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };

/// A handle that a lane keeps from one turn to the next.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    ino: Ino,
    handle: u64,
    client: ClientId,
}

/// One turn.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Write(usize, usize),
    Append(usize),
    Cut(usize),
    CutByOpen,
    Allocate(Allocate, usize, usize),
    Give(Timestamp),
    Own(u32),
    Flush,
    Fsync,
    Close,
    Stat,
    Read,
}

impl Actor {
    /// A turn with one of the files, unless another lane has it.
    pub(crate) async fn take_a_turn(&self) -> Result<(), Failed> {
        self.wait_while_dead().await;
        let file = {
            let hub = &mut *self.hub.borrow_mut();
            hub.at_step.insert(self.id, 0);
            let file = hub.rng.below(FILES as u64) as usize;
            let Some(ledger) = hub.fields.ledgers.get_mut(file) else { return Ok(()) };
            if ledger.turn.is_some() {
                return Ok(());
            }
            ledger.turn = Some(self.id);
            file
        };
        let result = self.use_ledger(file).await;
        if let Some(ledger) = self.hub.borrow_mut().fields.ledgers.get_mut(file) {
            ledger.turn = None;
        }
        result
    }

    async fn use_ledger(&self, file: usize) -> Result<(), Failed> {
        let (gone, ino) = {
            let hub = self.hub.borrow();
            let ledger = &hub.fields.ledgers[file];
            (ledger.spoilt || ledger.cuts != hub.cuts.len(), ledger.ino)
        };
        if gone {
            self.renew_ledger(file).await;
            return Ok(());
        }
        let Some(client) = session_of(&self.shared) else { return Ok(()) };
        let deed = self.draw_deed(file);
        let Some(handle) = self.kept(file, ino, client).await else { return Ok(()) };
        let before = self.hub.borrow().lowest_from();
        self.say(format_args!("{} does {deed:?} with file {file} of all", self.id));
        let done = self.do_deed(file, (ino, handle), deed).await;
        let lowest = self.hub.borrow().lowest_since(before);
        self.say(format_args!("{} is told {:?} of {deed:?}", self.id, done.as_ref().err()));
        let hub = &mut *self.hub.borrow_mut();
        let same = session_of(&self.shared) == Some(client) && hub.fields.living.contains(&client);
        let highest = hub.highest();
        let ledger = &mut hub.fields.ledgers[file];
        if ledger.cuts != hub.cuts.len() || !same {
            // What was lost with the power, or with the session, is not known here.
            ledger.spoilt = true;
            return Ok(());
        }
        let verdict = match done {
            Ok(told) => judge(ledger, client, deed, told, (lowest, highest)),
            Err(Errno::EINTR | Errno::EIO | Errno::ENOTCONN | Errno::ESTALE | Errno::ENOENT) => {
                ledger.spoilt |= !matches!(deed, Deed::Stat | Deed::Own(_) | Deed::Read);
                Ok(())
            }
            Err(errno) => Err(format!("gives {errno}")),
        };
        match verdict {
            Ok(()) => {
                hub.coverage.hit("a file of all was used");
                Ok(())
            }
            Err(what) => {
                hub.fail(format!("{}: file {file} of all, {deed:?}: {what}", self.id));
                Err(Failed)
            }
        }
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.hub.borrow_mut().say(what);
    }

    /// The lane's handle; opened when it has none.
    pub(crate) async fn kept(&self, file: usize, ino: Ino, client: ClientId) -> Option<u64> {
        let known = self.kept.borrow()[file];
        match known {
            Some(kept) if (kept.ino, kept.client) == (ino, client) => return Some(kept.handle),
            Some(kept) => self.lane.release(kept.handle).await,
            None => {}
        }
        self.kept.borrow_mut()[file] = None;
        let handle = self.lane.open(ino, BOTH).await.ok()?.handle;
        self.kept.borrow_mut()[file] = Some(Kept { ino, handle, client });
        Some(handle)
    }

    /// Gives all handles back.
    pub(crate) async fn close_ledgers(&self) {
        for file in 0..HELD {
            let kept = self.kept.borrow_mut()[file].take();
            if let Some(kept) = kept {
                let _ = self.lane.flush(kept.handle, 0).await;
                self.lane.release(kept.handle).await;
            }
        }
    }

    /// Another file takes the place of one of which something is unknown.
    pub(crate) async fn renew_ledger(&self, file: usize) {
        let (name, before, cuts) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.fields.ledgers_made += 1;
            (format!("all{}", hub.fields.ledgers_made), hub.lowest_from(), hub.cuts.len())
        };
        let policy = Policy { chunk_size: CHUNK_MIN, targets: 3, inline_limit: Some(1_000), pool: PoolId(0) };
        let policy = (file == 1).then_some(policy);
        let create = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy };
        let made = self.lane.create(Ino::ROOT, name.as_bytes(), create, BOTH).await;
        let Ok(opened) = made else { return };
        self.lane.release(opened.handle).await;
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("file {file} of all is {name}, inode {}", opened.attr.ino.0));
        let turn = hub.fields.ledgers.get(file).and_then(|ledger| ledger.turn);
        let lowest = hub.lowest_since(before);
        let mut ledger = Ledger::new(opened.attr.ino, cuts, lowest);
        ledger.turn = turn;
        match hub.fields.ledgers.get_mut(file) {
            Some(place) => *place = ledger,
            None => hub.fields.ledgers.push(ledger),
        }
    }

    fn draw_deed(&self, file: usize) -> Deed {
        let hub = &mut *self.hub.borrow_mut();
        let size = hub.fields.ledgers[file].bytes.len();
        let rng = &mut hub.rng;
        let (one, two) = (rng.pick(&SIZES), rng.pick(&SIZES));
        let offset = rng.below(size as u64 + 1) as usize;
        match rng.below(100) {
            0..=17 => Deed::Write(offset.min(200_000), one.max(1)),
            18..=21 => Deed::Write(two, one.max(1)),
            22..=28 => Deed::Append(one.max(1)),
            29..=39 => Deed::Cut(one),
            40..=44 => Deed::Cut(offset),
            45..=47 => Deed::CutByOpen,
            48..=59 => {
                let what = rng.pick(&[
                    Allocate::Extend,
                    Allocate::Extend,
                    Allocate::Zero,
                    Allocate::KeepSize,
                    Allocate::Punch,
                    Allocate::ZeroKeepSize,
                ]);
                Deed::Allocate(what, offset.min(200_000), one.max(1))
            }
            60..=67 => Deed::Give(Timestamp { secs: 1_000_000_000 + rng.below(1 << 31) as i64, nanos: 7 }),
            68..=74 => Deed::Flush,
            75..=77 => Deed::Fsync,
            78..=83 => Deed::Close,
            84..=86 => Deed::Own(rng.below(3) as u32),
            87..=91 => Deed::Stat,
            _ => Deed::Read,
        }
    }

    async fn do_deed(&self, file: usize, (ino, handle): (Ino, u64), deed: Deed) -> Result<Told, Errno> {
        let lane = &self.lane;
        let set = |set| async move { lane.setattr(ino, set).await.map(Told::Attr) };
        match deed {
            Deed::Write(offset, len) => {
                let data = self.data(len);
                let n = lane.write(handle, offset as u64, &data, WriteHow::default()).await?;
                Ok(Told::Written(data, n))
            }
            Deed::Append(len) => {
                let data = self.data(len);
                let how = WriteHow { append: true, ..WriteHow::default() };
                let n = lane.write(handle, 0, &data, how).await?;
                Ok(Told::Written(data, n))
            }
            Deed::Cut(size) => set(SetAttr { size: Some(size as u64), ..SetAttr::default() }).await,
            Deed::CutByOpen => {
                let opened = lane.open(ino, OpenHow { truncate: true, ..BOTH }).await?;
                lane.release(opened.handle).await;
                Ok(Told::Done)
            }
            Deed::Allocate(what, offset, len) => {
                lane.fallocate(handle, what, offset as u64, len as u64).await.map(|()| Told::Done)
            }
            Deed::Give(time) => set(SetAttr { mtime: Some(SetTime::At(time)), ..SetAttr::default() }).await,
            Deed::Own(uid) => set(SetAttr { uid: Some(uid), ..SetAttr::default() }).await,
            Deed::Flush => lane.flush(handle, 0).await.map(|()| Told::Done),
            Deed::Fsync => lane.fsync(handle).await.map(|()| Told::Done),
            Deed::Close => {
                let flushed = lane.flush(handle, 0).await;
                self.kept.borrow_mut()[file] = None;
                lane.release(handle).await;
                flushed.map(|()| Told::Done)
            }
            Deed::Stat => lane.getattr(ino).await.map(Told::Attr),
            Deed::Read => read_whole(lane, ino).await.map(Told::Content),
        }
    }

    /// Bytes that are not zero, and differ from turn to turn.
    fn data(&self, len: usize) -> Vec<u8> {
        let first = 1 + self.hub.borrow_mut().rng.below(250) as u8;
        (0..len).map(|at| first.wrapping_add((at / 512) as u8).max(1)).collect()
    }
}

/// What came of a turn.
#[derive(Debug)]
enum Told {
    Done,
    Attr(skep_types::Attr),
    Written(Vec<u8>, usize),
    Content(Vec<u8>),
}

/// Takes the turn into the ledger, or compares what was seen with it.
fn judge(
    ledger: &mut Ledger,
    client: ClientId,
    deed: Deed,
    told: Told,
    (lowest, highest): (Timestamp, Timestamp),
) -> Result<(), String> {
    match (deed, told) {
        (Deed::Write(offset, _), Told::Written(data, n)) => {
            ledger.wrote(client, offset, &data[..n], lowest);
        }
        (Deed::Append(_), Told::Written(data, n)) => {
            if n != data.len() {
                return Err(format!("{n} of {} bytes were appended", data.len()));
            }
            let end = ledger.bytes.len();
            ledger.wrote(client, end, &data, lowest);
        }
        (Deed::Cut(size), Told::Attr(attr)) => {
            ledger.resized(size, lowest);
            return ledger.check(client, &attr, highest);
        }
        (Deed::CutByOpen, _) => ledger.resized(0, lowest),
        (Deed::Allocate(what, offset, len), _) => {
            let end = offset + len;
            let (extends, clears) = match what {
                Allocate::Extend => (true, false),
                Allocate::Zero => (true, true),
                Allocate::KeepSize => (false, false),
                Allocate::Punch | Allocate::ZeroKeepSize => (false, true),
            };
            ledger.allocated(if clears { offset..end } else { 0..0 }, lowest);
            if extends {
                ledger.grew(end, lowest);
            }
        }
        (Deed::Give(time), Told::Attr(attr)) => {
            ledger.given(client, time);
            return ledger.check(client, &attr, highest);
        }
        (Deed::Flush | Deed::Fsync | Deed::Close, _) => ledger.committed(client),
        (Deed::Stat | Deed::Own(_), Told::Attr(attr)) => return ledger.check(client, &attr, highest),
        (Deed::Read, Told::Content(bytes)) => return compare(&bytes, &ledger.bytes),
        (_, told) => return Err(format!("answered by {told:?}")),
    }
    Ok(())
}

fn compare(got: &[u8], expected: &[u8]) -> Result<(), String> {
    if got == expected {
        return Ok(());
    }
    let first = got.iter().zip(expected).position(|(got, expected)| got != expected);
    let at = first.unwrap_or(got.len().min(expected.len()));
    Err(format!("{} bytes are read, {} are there; they differ from {at} on", got.len(), expected.len()))
}

/// The file as who opens it now finds it.
pub async fn read_whole(lane: &SimLane, ino: Ino) -> Result<Vec<u8>, Errno> {
    let opened = lane.open(ino, OpenHow { mode: OpenMode::Read, ..BOTH }).await?;
    let got = read(lane, opened.handle, 0, 1 << 20).await;
    lane.release(opened.handle).await;
    got
}

/// At the end: a client sees all files of which everything is known.
pub async fn check_ledgers(hub: &HubRef, lane: &SimLane, id: LaneId) {
    for file in 0..FILES {
        let (ino, cuts) = {
            let hub = hub.borrow();
            let Some(ledger) = hub.fields.ledgers.get(file).filter(|ledger| !ledger.spoilt) else { continue };
            (ledger.ino, ledger.cuts)
        };
        if hub.borrow().cuts.len() != cuts {
            continue;
        }
        let seen = read_whole(lane, ino).await;
        let hub = &mut *hub.borrow_mut();
        match seen {
            Ok(bytes) => {
                hub.coverage.hit("a file of all was whole at the end");
                if let Err(what) = compare(&bytes, &hub.fields.ledgers[file].bytes) {
                    hub.fail(format!("{id}: file {file} of all, at the end: {what}"));
                }
            }
            Err(errno) => hub.fail(format!("{id} cannot read file {file} of all: {errno}")),
        }
    }
}

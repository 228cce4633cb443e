//! What careful programs do: they rename a new file to its place, then open the directory and sync it; or they set the mode of
//! a file by its path, then open the file and sync it; or they write through a descriptor that syncs each change. metad loses
//! its power in between, perhaps with the change, and their client hears of that before they open: a sync that is good tells
//! the truth all the same.

use crate::drive::read;
use crate::program::{Actor, Failed, session_of};
use skep_client::{Allocate, CreateHow, NewNode, OpenHow, Port, RenameHow, WriteHow};
use skep_types::{Errno, Ino, Kind, SetAttr};
use skep_wire::meta::OpenMode;

/// Longest time from a change to the cut, in milliseconds: metad syncs its log often.
const SOON_MS: u64 = 5;
/// Longest time from there to the sync: the client has heard of the new life of metad, or has not.
const HEARD_MS: u64 = 3_000;
/// How often in such a deed metad loses its power, of a hundred.
const CUT_SHARE: u64 = 60;
/// Modes that are set.
const MODES: u64 = 0o700;
const BOTH: OpenHow =
    OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };

impl Actor {
    /// One such deed, in the directory of this client.
    pub(crate) async fn be_careful(&self) -> Result<(), Failed> {
        self.hub.borrow_mut().at_step.insert(self.id, 0);
        let known = self.hub.borrow().careful.get(&self.id.life).copied();
        let Some(dir) = (match known {
            Some(dir) => Some(dir),
            None => self.make_careful_place().await,
        }) else {
            return Ok(());
        };
        let (number, through, by_path, is_dir) = {
            let hub = &mut *self.hub.borrow_mut();
            (hub.kept.next_number(), hub.rng.percent(25), hub.rng.percent(50), hub.rng.percent(30))
        };
        if through {
            return self.write_through(dir, &format!("through{number:x}")).await;
        }
        let kind = if by_path && is_dir { Kind::Dir } else { Kind::File };
        let name = format!("new{number:x}");
        let new = NewNode { kind, mode: 0o4, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let Ok(made) = self.lane.make_node(dir, name.as_bytes(), new).await else { return Ok(()) };
        match by_path {
            true => self.set_mode_by_path(dir, made.ino, kind, number % MODES).await,
            false => self.put_in_place(dir, name.as_bytes(), made.ino).await,
        }
    }

    async fn put_in_place(&self, dir: Ino, name: &[u8], ino: Ino) -> Result<(), Failed> {
        // Of each lane another: whoever of several that changed a directory is told first, the others are, too.
        let place = format!("place{}", self.id.lane);
        let place = place.as_bytes();
        if self.lane.rename(dir, name, dir, place, RenameHow::default()).await.is_err() {
            return Ok(());
        }
        self.time_passes().await;
        if !self.judge_careful(&format!("rename of inode {ino}"), self.sync_dir(dir).await)? {
            return Ok(());
        }
        match self.lane.lookup(dir, place).await {
            Ok(found) if found.ino == ino => Ok(()),
            Err(Errno::EIO | Errno::EINTR | Errno::ENOTCONN) => Ok(()),
            found => {
                let found = found.map(|attr| attr.ino);
                self.fail(format!(
                    "inode {ino} was put in its place, the directory synced: there is {found:?}"
                ))
            }
        }
    }

    async fn set_mode_by_path(&self, dir: Ino, ino: Ino, kind: Kind, mode: u64) -> Result<(), Failed> {
        let mode = mode as u32;
        // Its name is to stay, most times; else it goes with a directory that is not there.
        let keeps = self.hub.borrow_mut().rng.percent(80);
        if keeps && self.sync_dir(dir).await.is_err() {
            return Ok(());
        }
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        if self.lane.setattr(ino, set).await.is_err() {
            return Ok(());
        }
        self.time_passes().await;
        let what = format!("mode {mode:o} of inode {ino}");
        let (cuts, session) = (self.hub.borrow().cuts.len(), session_of(&self.shared));
        let Ok(synced) = self.sync_by_path(ino, kind).await else { return Ok(()) };
        if !self.judge_careful(&what, synced)? {
            let again = self.sync_by_path(ino, kind).await;
            let steady = self.hub.borrow().cuts.len() == cuts && session_of(&self.shared) == session;
            return match again {
                Ok(Err(Errno::EIO)) if steady && synced == Err(Errno::EIO) => {
                    self.fail(format!("the loss of the {what} is told twice"))
                }
                _ => Ok(()),
            };
        }
        match self.lane.getattr(ino).await {
            Ok(found) if found.mode != mode => {
                self.fail(format!("mode {mode:o} of inode {ino} was synced: it is {:o}", found.mode))
            }
            Ok(_) | Err(Errno::EIO | Errno::EINTR | Errno::ENOTCONN) => Ok(()),
            Err(errno) => self.fail(format!("{what} was synced: {errno}")),
        }
    }

    /// Writes, and perhaps gives the space back, through a descriptor that syncs each change, while metad loses its power.
    async fn write_through(&self, dir: Ino, name: &str) -> Result<(), Failed> {
        let (len, punches) = {
            let hub = &mut *self.hub.borrow_mut();
            (hub.rng.pick(&[100, 3_000, 20_000]), hub.rng.percent(50))
        };
        let how = OpenHow { sync: true, ..BOTH };
        let create = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy: None };
        let Ok(opened) = self.lane.create(dir, name.as_bytes(), create, how).await else { return Ok(()) };
        let (ino, handle) = (opened.attr.ino, opened.handle);
        let result = async {
            self.sync_dir(dir).await?;
            if !punches {
                self.lose_power_soon();
            }
            let written = self.lane.write(handle, 0, &vec![1; len], WriteHow::default()).await?;
            if punches && written == len {
                self.lose_power_soon();
                self.lane.fallocate(handle, Allocate::Punch, 0, len as u64).await?;
            }
            Ok(written == len)
        };
        let changed = result.await;
        let what = format!("change of inode {ino} by a descriptor that syncs");
        let promised = self.judge_careful(&what, changed.map(drop))? && changed == Ok(true);
        self.lane.release(handle).await;
        self.time_passes().await;
        if promised {
            let found = async {
                let opened = self.lane.open(ino, BOTH).await?;
                let found = read(&self.lane, opened.handle, 0, len).await;
                self.lane.release(opened.handle).await;
                found
            };
            let byte = u8::from(!punches);
            match found.await {
                Ok(found) if found.len() == len && found.iter().all(|found| *found == byte) => {}
                Err(Errno::EIO | Errno::EINTR | Errno::ENOTCONN) => {}
                found => {
                    let found = found.map(|found| found.len());
                    return self
                        .fail(format!("{len} bytes {byte} are the synced {what}: there is {found:?}"));
                }
            }
        }
        let _ = self.lane.unlink(dir, name.as_bytes()).await;
        Ok(())
    }

    fn lose_power_soon(&self) -> bool {
        let hub = &mut *self.hub.borrow_mut();
        let cut = !hub.calm && hub.rng.percent(CUT_SHARE);
        if cut {
            hub.provoked = Some(hub.now + hub.rng.below(SOON_MS));
        }
        cut
    }

    /// Was it promised?
    fn judge_careful(&self, what: &str, synced: Result<(), Errno>) -> Result<bool, Failed> {
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} is told {synced:?} of the sync of the {what}", self.id));
        match synced {
            Ok(()) => hub.coverage.hit("a careful program's change was synced"),
            Err(Errno::EIO) if hub.cuts.is_empty() && !hub.was_evicted(self.id.life) => {
                hub.fail(format!("{}: sync of the {what} gives EIO, but nothing was lost", self.id));
                return Err(Failed);
            }
            Err(_) => hub.coverage.hit("a careful program was told of a loss"),
        }
        Ok(synced.is_ok())
    }

    /// metad may lose its power, and the client hears of it, or does not yet.
    async fn time_passes(&self) {
        let longest = if self.lose_power_soon() { HEARD_MS } else { SOON_MS };
        let wait = self.hub.borrow_mut().rng.below(longest);
        self.lane.port().pause(wait).await;
        let _ = self.lane.lookup(Ino::ROOT, b"elsewhere").await;
    }

    /// Err: it cannot be opened.
    async fn sync_by_path(&self, ino: Ino, kind: Kind) -> Result<Result<(), Errno>, Errno> {
        if kind == Kind::Dir {
            return Ok(self.sync_dir(ino).await);
        }
        let opened = self.lane.open(ino, BOTH).await?;
        let synced = self.lane.fsync(opened.handle).await;
        self.lane.release(opened.handle).await;
        Ok(synced)
    }

    async fn sync_dir(&self, dir: Ino) -> Result<(), Errno> {
        let handle = self.lane.opendir(dir)?;
        let synced = self.lane.fsyncdir(handle).await;
        self.lane.releasedir(handle);
        synced
    }

    /// A durable directory for this client's lanes.
    async fn make_careful_place(&self) -> Option<Ino> {
        let number = self.hub.borrow_mut().kept.next_number();
        let name = format!("careful{number:x}");
        let new = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let made = self.lane.make_node(Ino::ROOT, name.as_bytes(), new).await.ok()?;
        self.sync_dir(Ino::ROOT).await.ok()?;
        let there = self.lane.lookup(Ino::ROOT, name.as_bytes()).await.ok()?;
        if there.ino != made.ino {
            return None;
        }
        self.hub.borrow_mut().careful.insert(self.id.life, made.ino);
        Some(made.ino)
    }
}

//! What careful programs do: they rename a new file to its place, then open the directory and sync it; or they set the mode of
//! a file by its path, then open the file and sync it. metad loses its power in between, perhaps with the change, and their
//! client hears of that before they open: a sync that is good tells the truth all the same.

use crate::program::{Actor, Failed};
use skep_client::{NewNode, OpenHow, Port, RenameHow};
use skep_types::{Errno, Ino, Kind, SetAttr};
use skep_wire::meta::OpenMode;

/// The name that each new file gets.
const PLACE: &[u8] = b"place";
/// Longest time from a change to the cut, in milliseconds: metad syncs its log often.
const SOON_MS: u64 = 5;
/// Longest time from there to the sync: the client has heard of the new life of metad, or has not.
const HEARD_MS: u64 = 3_000;
/// How often in such a deed metad loses its power, of a hundred.
const CUT_SHARE: u64 = 60;
/// Modes that are set.
const MODES: u64 = 0o700;

impl Actor {
    /// One such deed, in a directory of the lane's own.
    pub(crate) async fn be_careful(&self) -> Result<(), Failed> {
        self.hub.borrow_mut().at_step.insert(self.id, 0);
        let known = self.hub.borrow().careful.get(&self.id).copied();
        let Some(dir) = (match known {
            Some(dir) => Some(dir),
            None => self.make_own_place().await,
        }) else {
            return Ok(());
        };
        let (number, by_path) = {
            let hub = &mut *self.hub.borrow_mut();
            (hub.kept.next_number(), hub.rng.percent(50))
        };
        let name = format!("new{number:x}");
        let new = NewNode { kind: Kind::File, mode: 0o4, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let Ok(made) = self.lane.make_node(dir, name.as_bytes(), new).await else { return Ok(()) };
        match by_path {
            true => self.set_mode_by_path(dir, made.ino, number % MODES).await,
            false => self.put_in_place(dir, name.as_bytes(), made.ino).await,
        }
    }

    async fn put_in_place(&self, dir: Ino, name: &[u8], ino: Ino) -> Result<(), Failed> {
        if self.lane.rename(dir, name, dir, PLACE, RenameHow::default()).await.is_err() {
            return Ok(());
        }
        self.time_passes().await;
        if !self.judge_careful(&format!("rename of inode {ino}"), self.sync_dir(dir).await)? {
            return Ok(());
        }
        match self.lane.lookup(dir, PLACE).await {
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

    async fn set_mode_by_path(&self, dir: Ino, ino: Ino, mode: u64) -> Result<(), Failed> {
        // Its name is to stay.
        if self.sync_dir(dir).await.is_err() {
            return Ok(());
        }
        let mode = mode as u32;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        if self.lane.setattr(ino, set).await.is_err() {
            return Ok(());
        }
        self.time_passes().await;
        let how = OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };
        let Ok(opened) = self.lane.open(ino, how).await else { return Ok(()) };
        let synced = self.lane.fsync(opened.handle).await;
        self.lane.release(opened.handle).await;
        if !self.judge_careful(&format!("mode {mode:o} of inode {ino}"), synced)? {
            return Ok(());
        }
        match self.lane.getattr(ino).await {
            Ok(found) if found.mode != mode => {
                self.fail(format!("mode {mode:o} of inode {ino} was synced: it is {:o}", found.mode))
            }
            _ => Ok(()),
        }
    }

    /// Was it promised?
    fn judge_careful(&self, what: &str, synced: Result<(), Errno>) -> Result<bool, Failed> {
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} is told {synced:?} of the sync of the {what}", self.id));
        match synced {
            Ok(()) => hub.coverage.hit("a careful program's change was synced"),
            Err(Errno::EIO) if hub.cuts.is_empty() && !hub.evicted.contains(&self.id.life) => {
                hub.fail(format!("{}: sync of the {what} gives EIO, but nothing was lost", self.id));
                return Err(Failed);
            }
            Err(_) => hub.coverage.hit("a careful program was told of a loss"),
        }
        Ok(synced.is_ok())
    }

    /// metad may lose its power, and the client hears of it, or does not yet.
    async fn time_passes(&self) {
        let wait = {
            let hub = &mut *self.hub.borrow_mut();
            let cut = !hub.calm && hub.rng.percent(CUT_SHARE);
            if cut {
                hub.provoked = Some(hub.now + hub.rng.below(SOON_MS));
            }
            hub.rng.below(if cut { HEARD_MS } else { SOON_MS })
        };
        self.lane.port().pause(wait).await;
        let _ = self.lane.lookup(Ino::ROOT, b"elsewhere").await;
    }

    async fn sync_dir(&self, dir: Ino) -> Result<(), Errno> {
        let handle = self.lane.opendir(dir)?;
        let synced = self.lane.fsyncdir(handle).await;
        self.lane.releasedir(handle);
        synced
    }

    /// A durable directory that nobody else uses: who is told of a loss there is who made the change.
    async fn make_own_place(&self) -> Option<Ino> {
        let number = self.hub.borrow_mut().kept.next_number();
        let name = format!("careful{number:x}");
        let new = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let made = self.lane.make_node(Ino::ROOT, name.as_bytes(), new).await.ok()?;
        self.sync_dir(Ino::ROOT).await.ok()?;
        let there = self.lane.lookup(Ino::ROOT, name.as_bytes()).await.ok()?;
        if there.ino != made.ino {
            return None;
        }
        self.hub.borrow_mut().careful.insert(self.id, made.ino);
        Some(made.ino)
    }
}

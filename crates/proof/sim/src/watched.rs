//! Other lanes keep files open that are written in pieces (`pieces.rs`), most of them since before their writers opened them, and
//! look at them through that handle, write to them, and append. Such a handle asks targets, and no shard: who has a file to
//! himself beside one keeps from it what he was answered for.
//!
//! Where a file ends is what was so when it was opened, at least: only bytes are judged.

use crate::drive::read;
use crate::hub::{Hub, LaneId};
use crate::moments::Moment;
use crate::pieced::{Pieced, State};
use crate::pieces::About;
use crate::program::{Actor, Failed, session_of};
use crate::turns::BOTH;
use skep_client::{OpenHow, Port};
use skep_types::{ClientId, Ino};
use skep_wire::meta::OpenMode;
use std::collections::BTreeMap;

/// Of a hundred times that a lane meets a closed file so many open it, and keep it open; and in seeds about that.
const OPENS: u64 = 10;
const OFTEN: u64 = 40;
/// Of a hundred who do so so many may write. Where seeds are about that fewer: who knows of another writer holds nothing.
const WRITES: u64 = 30;
const SELDOM: u64 = 8;
/// Looks in a row at most, and the longest pause in front of each, in milliseconds.
const LOOKS: u64 = 14;
const PAUSE_MS: u64 = 60;
/// What stayed with a mount is looked at for so long, in milliseconds, where seeds are about that.
pub const EYED_MS: u64 = 800;
/// Of a hundred times that a lane meets such a file it closes it so often, writes to it if it may, does something else, or looks.
const CLOSES: u64 = 6;
const CHANGES: u64 = 25;
const OTHERWISE: u64 = 10;
/// Of a hundred of those writes so many are followed by what a close tells.
const FLUSHES: u64 = 50;

/// Where they are about looks, of a hundred times that others come so many only look, so often in a row at most, with pauses up to
/// so long in front of each, in milliseconds.
const ONLY_LOOKS: u64 = 97;
const STATS: u64 = 6;
const STAT_MS: u64 = 300;

/// A file that a lane keeps open.
#[derive(Debug, Clone, Copy)]
struct Watch {
    ino: Ino,
    handle: u64,
    client: ClientId,
    writes: bool,
    /// So many writers it had had before.
    writers: u32,
}

/// All that lanes keep open.
#[derive(Debug, Default)]
pub struct Watches(BTreeMap<(LaneId, usize), Watch>);

impl Watches {
    /// A mount is gone.
    pub fn client_gone(&mut self, life: u32) {
        self.0.retain(|(lane, _), _| lane.life != life);
    }
}

impl Actor {
    /// Something with a file through a handle that is kept. `false`: nothing of that.
    pub(crate) async fn watches(&self, about: About) -> Result<bool, Failed> {
        let known = self.hub.borrow().watches.0.get(&(self.id, about.at)).copied();
        let Some(watch) = known.filter(|watch| (watch.ino, watch.client) == (about.ino, about.client)) else {
            self.ends_watch(about.at).await;
            return Ok(self.begins_watch(about).await);
        };
        let drawn = self.hub.borrow_mut().rng.below(100);
        if drawn < CLOSES {
            self.ends_watch(about.at).await;
        } else if drawn < CLOSES + OTHERWISE {
            return Ok(false);
        } else if watch.writes && drawn < CLOSES + OTHERWISE + CHANGES {
            self.write_piece(about, watch.handle).await?;
            self.note_early(about, watch, "a file was written through a handle from before its writer's");
            if self.hub.borrow_mut().rng.percent(FLUSHES) {
                let _ = self.lane.flush(watch.handle, 0).await;
            }
        } else {
            let looks = 1 + self.hub.borrow_mut().rng.below(LOOKS);
            for _ in 0..looks {
                let pause = self.hub.borrow_mut().rng.below(PAUSE_MS);
                self.lane.port().pause(pause).await;
                self.looks_through_watch(about, watch).await?;
            }
        }
        Ok(true)
    }

    /// Nothing but its attributes, again and again. `false`: nothing of that.
    pub(crate) async fn only_looks(&self, about: About) -> Result<bool, Failed> {
        let drawn = self.with_pieced(about, |file, hub| {
            // One that is closed is to be taken up.
            let only = hub.is_about(Moment::LookedAt) && !file.closed && hub.rng.percent(ONLY_LOOKS);
            if only { 1 + hub.rng.below(STATS) } else { 0 }
        });
        let looks = drawn.unwrap_or(0);
        for _ in 0..looks {
            let pause = self.hub.borrow_mut().rng.below(STAT_MS);
            self.lane.port().pause(pause).await;
            self.stat_pieced(about).await?;
        }
        Ok(looks > 0)
    }

    /// Gives back all.
    pub(crate) async fn close_watched(&self) {
        let kept = self.hub.borrow().watches.0.keys().filter(|(lane, _)| *lane == self.id).count();
        for _ in 0..kept {
            let at = self.hub.borrow().watches.0.keys().find(|(lane, _)| *lane == self.id).map(|(_, at)| *at);
            if let Some(at) = at {
                self.ends_watch(at).await;
            }
        }
    }

    async fn ends_watch(&self, at: usize) {
        let watch = self.hub.borrow_mut().watches.0.remove(&(self.id, at));
        if let Some(watch) = watch {
            let _ = self.lane.flush(watch.handle, 0).await;
            self.lane.release(watch.handle).await;
        }
    }

    /// Opens a file that nobody writes, and keeps it open.
    async fn begins_watch(&self, about: About) -> bool {
        let drawn = self.with_pieced(about, |file, hub| {
            let often = if hub.is_about(Moment::Beside) { OFTEN } else { OPENS };
            let begins = file.may_be_taken_up() && hub.rng.percent(often);
            let writes = if hub.is_about(Moment::Beside) { SELDOM } else { WRITES };
            begins.then(|| (hub.rng.percent(writes), file.writers))
        });
        let Some((writes, writers)) = drawn.flatten() else { return false };
        let mode = if writes { OpenMode::ReadWrite } else { OpenMode::Read };
        let Ok(opened) = self.lane.open(about.ino, OpenHow { mode, ..BOTH }).await else { return true };
        // Of one whose content came with the answer that is shown as long as it is open.
        if opened.inline || session_of(&self.shared) != Some(about.client) {
            self.lane.release(opened.handle).await;
            return true;
        }
        let watch = Watch { ino: about.ino, handle: opened.handle, client: about.client, writes, writers };
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} keeps inode {} open, writes {writes}", self.id, about.ino.0));
        hub.watches.0.insert((self.id, about.at), watch);
        true
    }

    /// The bytes of it, as the handle shows them.
    async fn looks_through_watch(&self, about: About, watch: Watch) -> Result<(), Failed> {
        if self.with_pieced(about, |file, _| file.look_begins(self.id)).is_none() {
            return Ok(());
        }
        let found = read(&self.lane, watch.handle, 0, 1 << 20).await;
        self.note_early(about, watch, "a file was read through a handle from before its writer's");
        let length = found.as_ref().map(Vec::len);
        self.judge_look(about, &format!("sees {length:?} through its handle"), |states| match &found {
            Ok(found) => check_inside(states, found),
            Err(_) => Ok(()),
        })
    }

    /// If another mount writes it that opened it later.
    fn note_early(&self, about: About, watch: Watch, marker: &'static str) {
        self.with_pieced(about, |file: &mut Pieced, hub: &mut Hub| {
            if !file.closed && file.life != self.id.life && file.writers > watch.writers {
                hub.coverage.hit(marker);
            }
        });
    }
}

/// Is each of these bytes that of some state, as far as all of them reach?
fn check_inside(states: &[State], found: &[u8]) -> Result<(), String> {
    let least = states.iter().map(|state| state.bytes.len()).min().unwrap_or(0).min(found.len());
    let is_wrong = |at: &usize| !states.iter().any(|state| state.bytes[*at] == found[*at]);
    match (0..least).find(is_wrong) {
        None => Ok(()),
        Some(at) => Err(format!(
            "byte {at} of {least} is {:#04x} through a handle that was kept, which it is in none of {} states",
            found[at],
            states.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// Goal: bytes are those of some state, each for itself; where a state ends nothing is said.
    #[test]
    fn bytes_are_those_of_a_state() {
        let state = |bytes: &[u8]| State { bytes: Rc::new(bytes.to_vec()), mode: 0o644 };
        let states = [state(&[1, 1, 1, 1]), state(&[2, 2, 1])];
        for found in [&[1, 1, 1, 1][..], &[1, 2, 1, 9], &[2, 1], &[]] {
            assert!(check_inside(&states, found).is_ok(), "{found:?}");
        }
        assert!(check_inside(&states, &[2, 2, 2]).is_err() && check_inside(&states, &[0]).is_err());
        assert!(check_inside(&states[..1], &[1, 1, 1, 0]).is_err());
    }
}

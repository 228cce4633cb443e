//! What lanes do to one file at once: they write, cut and lengthen it together, and read it meanwhile ([`Contest`]).

use crate::contest::{Contest, Deed, letter};
use crate::drive::{SimLane, read};
use crate::hub::{HubRef, LaneId};
use crate::program::{Actor, Failed, session_of};
use crate::turns::{BOTH, CONTESTED, read_whole};
use skep_client::{Allocate, CreateHow, OpenHow, Port, WriteHow};
use skep_types::limits::CHUNK_MIN;
use skep_types::{ClientId, Errno, Ino, Policy, PoolId, SetAttr};
use skep_wire::meta::OpenMode;

/// Looks at one file before another one takes its place: it has grown out of the metadata by then.
const LOOKS_MAX: u32 = 8;
/// Who wants to change the file waits so long for others, in milliseconds.
const MEETS_MS: u64 = 60;
/// Of a hundred who come, so many only read.
const GLANCES: u64 = 25;
/// Of a hundred of these so many do so again and again, by a handle that they keep, ...
const FOLLOWS: u64 = 60;
/// ... at most so often in a row, with pauses up to so long, in milliseconds.
const LOOKS_ON: u64 = 12;
const LOOK_PAUSE_MS: u64 = 20;
/// Of a hundred changes, so many are synced.
const SYNCED: u64 = 25;
/// Offsets and lengths: in the metadata, in a chunk, over several.
const SIZES: [usize; 7] = [0, 100, 900, 3_000, 9_000, 40_000, 90_000];

/// What a lane does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Renew,
    Look,
    Glance,
    Change,
}

impl Actor {
    /// A change of the file, or a look at it.
    pub(crate) async fn contend(&self) -> Result<(), Failed> {
        self.wait_while_dead().await;
        self.hub.borrow_mut().at_step.insert(self.id, 0);
        let mut part = self.part();
        if matches!(part, Part::Glance | Part::Change) {
            self.gather().await;
            part = self.part();
        }
        let Some(client) = session_of(&self.shared).filter(|_| part != Part::Nothing) else { return Ok(()) };
        self.busy(true);
        let result = match part {
            Part::Nothing => Ok(()),
            Part::Renew => {
                self.renew_contest().await;
                Ok(())
            }
            Part::Look => self.look_at_contest(client).await,
            Part::Glance => self.glance(client).await,
            Part::Change => self.change(client).await,
        };
        self.busy(false);
        result
    }

    fn part(&self) -> Part {
        let hub = &mut *self.hub.borrow_mut();
        let Some(contest) = &hub.fields.contest else { return Part::Nothing };
        let is_over = contest.spoilt || contest.cuts != hub.cuts.len() || contest.looks >= LOOKS_MAX;
        let is_idle = contest.busy.is_empty();
        match (is_over, contest.is_full()) {
            (true, _) if is_idle => Part::Renew,
            (false, true) if is_idle => Part::Look,
            (true, _) | (_, true) => Part::Nothing,
            (false, false) if hub.rng.percent(GLANCES) => Part::Glance,
            (false, false) => Part::Change,
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Contest) -> R) -> Option<R> {
        self.hub.borrow_mut().fields.contest.as_mut().map(f)
    }

    fn busy(&self, is: bool) {
        let id = self.id;
        self.with(|contest| if is { contest.busy.insert(id) } else { contest.busy.remove(&id) });
    }

    /// Those who come within some time begin together.
    async fn gather(&self) {
        let now = self.hub.borrow().now;
        let wait = self.with(|contest| {
            if contest.gate <= now {
                contest.gate = now + MEETS_MS;
            }
            contest.gate - now
        });
        self.lane.port().pause(wait.unwrap_or(1)).await;
    }

    async fn change(&self, client: ClientId) -> Result<(), Failed> {
        let Some(ino) = self.with(|contest| contest.ino) else { return Ok(()) };
        let Some(handle) = self.kept(CONTESTED, ino, client).await else { return Ok(()) };
        let deed = self.draw_change();
        // Others may have filled it while this lane opened the file.
        let begun = self.with(|contest| (!contest.is_full()).then(|| contest.begins(deed)));
        let Some((number, tag)) = begun.flatten() else { return Ok(()) };
        self.hub.borrow_mut().say(format_args!("{} does {deed:?} ({tag}) in the contest", self.id));
        let done = self.carry_out_change(ino, handle, deed, tag).await;
        self.hub.borrow_mut().say(format_args!("{} is told {done:?} of {deed:?} ({tag})", self.id));
        match done {
            Ok(()) if self.still(client) => {
                if self.with(|contest| contest.ends(number)) == Some(true) {
                    self.hub.borrow_mut().coverage.hit("changes of one file met");
                }
                Ok(())
            }
            Ok(()) => self.spoil(),
            Err(errno) => self.excused(Some(deed), errno),
        }
    }

    /// What this lane was told counts: its session lives, and no power was lost.
    fn still(&self, client: ClientId) -> bool {
        let hub = self.hub.borrow();
        let same = session_of(&self.shared) == Some(client) && hub.fields.living.contains(&client);
        same && hub.fields.contest.as_ref().is_some_and(|contest| contest.cuts == hub.cuts.len())
    }

    fn spoil(&self) -> Result<(), Failed> {
        self.with(|contest| contest.spoilt = true);
        Ok(())
    }

    fn excused(&self, deed: Option<Deed>, errno: Errno) -> Result<(), Failed> {
        let is_disturbed = {
            let hub = self.hub.borrow();
            let cut = hub.fields.contest.as_ref().is_none_or(|contest| contest.cuts != hub.cuts.len());
            cut || hub.was_evicted(self.id.life)
        };
        match errno {
            Errno::EINTR => self.spoil(),
            // A hole stays on its target: filling it is refused when that is full (see promises.md).
            Errno::ENOSPC if matches!(deed, Some(Deed::Grow(_) | Deed::Zero(..))) => self.spoil(),
            Errno::EIO | Errno::ENOTCONN | Errno::ESTALE | Errno::ENOENT if is_disturbed => self.spoil(),
            errno => self.fail(format!("the file of a contest gives {errno}")),
        }
    }

    fn draw_change(&self) -> Deed {
        let hub = &mut *self.hub.borrow_mut();
        let size = hub.fields.contest.as_ref().map_or(0, Contest::size_max);
        let rng = &mut hub.rng;
        let (one, two, len) = (rng.pick(&SIZES), rng.pick(&SIZES), rng.pick(&SIZES).max(1));
        // Mostly at the end or within the file, where others are.
        let at = match rng.below(10) {
            0..=3 => size,
            4..=7 => rng.below(size as u64 + 1) as usize,
            _ => two,
        };
        let at = at.min(2 * SIZES[SIZES.len() - 1]);
        match rng.below(20) {
            0..=9 => Deed::Write(at, len),
            10..=13 => Deed::Cut(if rng.percent(50) { at } else { one }),
            14..=15 => Deed::Grow(at + len),
            16..=17 => Deed::Zero(at, len),
            _ => Deed::Punch(at, len),
        }
    }

    async fn carry_out_change(&self, ino: Ino, handle: u64, deed: Deed, tag: u8) -> Result<(), Errno> {
        let lane = &self.lane;
        let allocate = |what, at: usize, len: usize| async move {
            lane.fallocate(handle, what, at as u64, len as u64).await
        };
        match deed {
            Deed::Write(at, len) => {
                let data: Vec<u8> = (at..at + len).map(|at| letter(tag, at)).collect();
                let n = lane.write(handle, at as u64, &data, WriteHow::default()).await?;
                if n < len {
                    return Err(Errno::EINTR);
                }
            }
            Deed::Cut(size) => {
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                lane.setattr(ino, set).await?;
            }
            Deed::Grow(end) => allocate(Allocate::Extend, 0, end).await?,
            Deed::Zero(at, len) => allocate(Allocate::Zero, at, len).await?,
            Deed::Punch(at, len) => allocate(Allocate::Punch, at, len).await?,
        }
        // As a close does: now it is there for everybody.
        lane.flush(handle, 0).await?;
        let syncs = self.hub.borrow_mut().rng.percent(SYNCED);
        if syncs { lane.fsync(handle).await } else { Ok(()) }
    }

    /// Everything was answered.
    async fn look_at_contest(&self, client: ClientId) -> Result<(), Failed> {
        let Some(ino) = self.with(|contest| contest.ino) else { return Ok(()) };
        match read_whole(&self.lane, ino).await {
            Ok(_) if !self.still(client) => self.spoil(),
            Ok(seen) => match self.with(|contest| contest.looked(seen)) {
                Some(Err(what)) => self.fail(format!("the file of a contest has {what}")),
                _ => Ok(()),
            },
            Err(errno) => self.excused(None, errno),
        }
    }

    /// While others change it.
    async fn glance(&self, client: ClientId) -> Result<(), Failed> {
        if self.hub.borrow_mut().rng.percent(FOLLOWS) {
            return self.follow_contest(client).await;
        }
        let Some((ino, since)) = self.with(|contest| (contest.ino, contest.moment())) else { return Ok(()) };
        match read_whole(&self.lane, ino).await {
            Ok(seen) if self.still(client) => match self.with(|contest| contest.glanced(since, &seen)) {
                Some(Err(what)) => self.fail(format!("seen in the file of a contest: {what}")),
                _ => {
                    self.hub.borrow_mut().coverage.hit("a file was read beside changes");
                    Ok(())
                }
            },
            Ok(_) => Ok(()),
            Err(errno) => self.excused(None, errno),
        }
    }

    /// The same again and again by a handle that is kept: as far as its mount knows that the file reaches, it asks no shard.
    async fn follow_contest(&self, client: ClientId) -> Result<(), Failed> {
        let Some(ino) = self.with(|contest| contest.ino) else { return Ok(()) };
        let Ok(opened) = self.lane.open(ino, OpenHow { mode: OpenMode::Read, ..BOTH }).await else {
            return Ok(());
        };
        // Content that came with the answer is shown as long as it is open.
        let result = if opened.inline { Ok(()) } else { self.follow_by(opened.handle, client).await };
        self.lane.release(opened.handle).await;
        result
    }

    async fn follow_by(&self, handle: u64, client: ClientId) -> Result<(), Failed> {
        let looks = 1 + self.hub.borrow_mut().rng.below(LOOKS_ON);
        for _ in 0..looks {
            let (pause, size) = {
                let hub = &mut *self.hub.borrow_mut();
                let size = hub.fields.contest.as_ref().map_or(0, Contest::size_max);
                (hub.rng.below(LOOK_PAUSE_MS), size)
            };
            self.lane.port().pause(pause).await;
            let (from, len) = {
                let rng = &mut self.hub.borrow_mut().rng;
                (rng.below(size as u64 + 1) as usize, rng.pick(&SIZES).max(1))
            };
            let Some(since) = self.with(Contest::moment) else { return Ok(()) };
            match read(&self.lane, handle, from as u64, len).await {
                Ok(seen) if self.still(client) => {
                    match self.with(|contest| contest.shows(since, from, &seen)) {
                        Some(Err(what)) => {
                            return self
                                .fail(format!("seen in the file of a contest, by a kept handle: {what}"));
                        }
                        _ => self.hub.borrow_mut().coverage.hit("a file was followed beside changes"),
                    }
                }
                Ok(_) => return Ok(()),
                Err(errno) => return self.excused(None, errno),
            }
        }
        Ok(())
    }

    /// Another file takes the place of one of which something is unknown.
    pub(crate) async fn renew_contest(&self) {
        let (name, cuts) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.fields.contests_made += 1;
            (format!("contest{}", hub.fields.contests_made), hub.cuts.len())
        };
        let striped = self.hub.borrow_mut().rng.percent(50);
        let policy = Policy { chunk_size: CHUNK_MIN, targets: 3, inline_limit: Some(1_000), pool: PoolId(0) };
        let policy = striped.then_some(policy);
        let create = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy };
        let made = self.lane.create(Ino::ROOT, name.as_bytes(), create, BOTH).await;
        let Ok(opened) = made else { return };
        self.lane.release(opened.handle).await;
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("the contest goes on in {name}, inode {}", opened.attr.ino.0));
        hub.fields.contest = Some(Contest::new(opened.attr.ino, cuts));
    }
}

/// At the end: a client sees what some order of the last changes leaves.
pub async fn check_contest(hub: &HubRef, lane: &SimLane, id: LaneId) {
    let ino = {
        let hub = hub.borrow();
        let known = |contest: &&Contest| !contest.spoilt && contest.cuts == hub.cuts.len();
        let Some(contest) = hub.fields.contest.as_ref().filter(known) else { return };
        contest.ino
    };
    let seen = read_whole(lane, ino).await;
    let hub = &mut *hub.borrow_mut();
    let Some(contest) = hub.fields.contest.as_mut() else { return };
    match seen.map(|seen| contest.looked(seen)) {
        Ok(Ok(())) => hub.coverage.hit("a contest was decided at the end"),
        Ok(Err(what)) => hub.fail(format!("{id}: at the end the file of a contest has {what}")),
        Err(errno) => hub.fail(format!("{id} cannot read the file of a contest: {errno}")),
    }
}

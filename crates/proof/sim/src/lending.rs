//! Leases: which mounts wish for them, for how long they hold, within which limits, and what befalls who hears of recalls.
//! Of the seeds that have none nothing is drawn here, so they go as they would without this.

use crate::Canary;
use crate::drive::SimLane;
use crate::hub::{Hub, HubRef, LaneId, METADS_MAX};
use crate::moments::{Moment, NEVER_BUSY, SLOW};
use crate::port::SharedRef;
use crate::world::HEARERS;
use skep_client::Port;
use skep_model::Rng;
use skep_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// Tells this drawing from all others of a seed.
const SALT: u64 = 0x4c45_4e44;
/// How long leases hold, in milliseconds.
const TERMS: [u64; 6] = [200, 1_000, 2_500, 4_000, 4_000, 4_000];
/// Of a hundred seeds with leases so many have servers that give none.
const NONE: u64 = 5;
/// Of a hundred lives of a server so many have another setting.
const OTHER_SETTING: u64 = 20;
/// Of a hundred mounts so many wish for leases.
const WISH: u64 = 85;
/// And so many where new files are held.
const WISH_HELD: u64 = 50;
/// And of those so many let their kernels answer.
const TELL: u64 = 80;
/// Of a hundred seeds with leases so many have mounts that hold new files, and of their mounts so many do.
const HOLD: u64 = 50;
const HOLDS: u64 = 85;
/// Of a hundred such seeds so many are about histories.
const GATHER: u64 = 50;
/// Of a hundred deeds in such seeds so many are with files that are written in pieces; and in seeds about that.
const PIECES: [u64; 4] = [0, 0, 10, 40];
const MANY_PIECES: u64 = 85;
/// Small writes wait for one another up to multiples of so many bytes.
const RUNS: [u64; 5] = [0, 8 << 10, 24 << 10, 100 << 10, 1 << 20];
/// How long a question may wait where only locks are waited for, in milliseconds: less than a call may take.
const EVENTS_MS: u64 = 400;
/// Pause before the next question where one failed.
const AGAIN_MS: u64 = 30;
/// Of a hundred times that something befalls who hears recalls, in seeds that are about the last answer, it is that.
const LAST_ANSWER: u64 = 80;
/// Connections of a mount to a server that its programs share, with the canary of who confirms by one of them.
const POOL: usize = 1;
/// What is late is taken in within so many milliseconds.
const HEARD_MS: u64 = 8;
/// Who has nothing to ask looks this often whether there is something, while its mount has leases and while it has none; and
/// when the bell is rung.
const LOOK_MS: u64 = 100;
const IDLE_LOOK_MS: u64 = 5_000;

/// What a seed is like.
#[derive(Debug, Default)]
pub struct Lending {
    /// Mounts may wish.
    pub on: bool,
    /// For how long leases hold, as it is set in most lives of servers; 0: none are given.
    ms: u64,
    /// The most that any life of a server had.
    pub most_ms: u64,
    per_client: Option<usize>,
    holders: Option<usize>,
    count: Option<usize>,
    busy_at: Option<u64>,
    cache: Option<usize>,
    recalls_kept: Option<usize>,
    own_changes: Option<usize>,
    /// Mounts may hold new files.
    pub holds: bool,
    /// The seed is about what lanes do to such files in directories of their own.
    pub gathers: bool,
    /// Of a hundred deeds so many are with files that are written in pieces.
    pub pieces: u64,
    /// Small writes of such files wait for one another, up to a multiple of so many bytes; 0: they do not.
    run: u64,
    files_held: Option<usize>,
    files_held_per_client: Option<usize>,
    /// Mounts whose answers to who hears recalls come only then.
    late: BTreeMap<u32, u64>,
    /// Mounts whose confirmations are lost until then.
    mute: BTreeMap<u32, u64>,
    /// Mounts whose questions for recalls are lost until then.
    unheard: BTreeMap<u32, u64>,
    /// Mounts in which who hears recalls does not run until then.
    deaf: BTreeMap<u32, (u64, u64)>,
    /// The rare moment that the seed is about.
    pub moment: Option<Moment>,
    /// Names that lanes are about to change, and the one that is worth a look.
    pub doing: BTreeMap<LaneId, &'static [u8]>,
    pub eyed: Option<&'static [u8]>,
    /// Who hears recalls is to look.
    rung: BTreeSet<LaneId>,
    /// Nobody looks at anything any more, and nothing is renewed.
    pub over: bool,
    /// Programs do nothing but look until then.
    rest: u64,
    /// Nor do they look.
    deep: bool,
    slow: u64,
    interrupted: u64,
}

impl Lending {
    /// Half of the seeds have leases; of those that look for a bug on purpose all whose bug is about them, and no others.
    pub fn draw(seed: u64, canary: Option<Canary>, always: bool, pieces: bool) -> Self {
        let mut rng = Rng::new(Rng::new(seed ^ SALT).next_u64());
        let on = rng.percent(50);
        let on = canary.map_or(on || always, Canary::is_of_leases);
        let ms = if rng.percent(NONE) && canary.is_none() { 0 } else { rng.pick(&TERMS) };
        let most_ms = ms.max(rng.pick(&TERMS));
        let busy_at = rng.pick(&[None, None, Some(4), Some(3)]);
        let slow = rng.pick(&[1, 1, 3]);
        let interrupted = rng.pick(&[20, 60, 200]);
        let (per_client, holders) =
            (rng.pick(&[None, None, Some(3), Some(12)]), rng.pick(&[None, None, None, Some(2)]));
        let count = rng.pick(&[None, None, None, Some(12)]);
        let cache = rng.pick(&[None, None, Some(4 << 10), Some(24 << 10)]);
        let recalls_kept = rng.pick(&[None, None, Some(2)]);
        let own_changes = rng.pick(&[None, None, Some(3)]);
        // Of those that look for a bug on purpose all whose bug is about them, and no others.
        let holds = canary.map_or(rng.percent(HOLD), Canary::is_of_holds) && on;
        let drawn = Self {
            on,
            ms,
            most_ms,
            per_client,
            holders,
            count,
            busy_at,
            cache,
            recalls_kept,
            own_changes,
            slow,
            interrupted,
            holds,
            files_held: rng.pick(&[None, None, None, Some(2)]),
            files_held_per_client: rng.pick(&[None, None, Some(1), Some(3)]),
            gathers: rng.percent(GATHER) && holds && canary.is_none(),
            pieces: if holds { rng.pick(&PIECES) } else { 0 },
            run: rng.pick(&RUNS),
            ..Self::default()
        };
        let moment = if pieces { Some(Moment::of_pieces(seed)) } else { Moment::draw(seed, canary) };
        match moment.filter(|_| on) {
            Some(moment) => Self { holds: holds || moment.is_of_holds(), ..Self::about(seed, moment) },
            None => drawn,
        }
    }

    /// What is busy is not lent, and what is small is soon full: some moments are met only where little happens.
    fn about(seed: u64, moment: Moment) -> Self {
        let ms = moment.term(seed);
        Self {
            on: true,
            ms,
            most_ms: ms,
            busy_at: Some(NEVER_BUSY),
            slow: if moment.is_of_pieces() { 1 } else { SLOW },
            pieces: if moment.is_of_pieces() { MANY_PIECES } else { 0 },
            run: Rng::new(Rng::new(seed ^ SALT ^ 1).next_u64()).pick(&RUNS).max(RUNS[1]),
            moment: Some(moment),
            ..Self::default()
        }
    }

    /// Programs make pauses that are longer by so much.
    pub fn slowness(&self) -> u64 {
        if self.on { self.slow } else { 1 }
    }

    /// Does nobody look, either?
    pub fn sleeps(&self, now: u64) -> bool {
        self.deep && self.rests(now)
    }

    /// Of a thousand deeds among all others so many are given up.
    pub fn interrupted(&self) -> u64 {
        if self.on { self.interrupted } else { 0 }
    }

    /// Do programs only look?
    pub fn rests(&self, now: u64) -> bool {
        now < self.rest
    }

    /// For how long a server lends in a life that begins.
    pub fn setting(&self, rng: &mut Rng) -> u64 {
        if !self.on {
            return skep_meta::limit::LEASE_MS_MAX;
        }
        if self.ms > 0 && rng.percent(OTHER_SETTING) {
            let fits: Vec<u64> = TERMS.into_iter().filter(|ms| *ms <= self.most_ms).collect();
            return rng.pick(&fits);
        }
        self.ms
    }

    /// Puts limits of a server as this seed has them.
    pub fn limit_server(&self, limits: &mut skep_meta::limit::Limits) {
        if !self.on {
            return;
        }
        limits.leases = self.count.unwrap_or(limits.leases);
        limits.leases_per_client = self.per_client.unwrap_or(limits.leases_per_client);
        limits.lease_holders = self.holders.unwrap_or(limits.lease_holders);
        limits.busy_at = self.busy_at.unwrap_or(limits.busy_at);
        limits.lease_ms = self.most_ms;
        limits.files_held = self.files_held.unwrap_or(limits.files_held);
        limits.files_held_per_client = self.files_held_per_client.unwrap_or(limits.files_held_per_client);
    }

    /// Those of a mount that begins; whether it wishes is drawn.
    pub fn limit_mount(&self, limits: &mut skep_client::Limits, rng: &mut Rng) {
        if !self.on {
            return;
        }
        // Where all look by leases of the directory nobody holds what is made in it.
        let is_apart = self.gathers || self.pieces >= MANY_PIECES;
        limits.leases = rng.percent(if self.holds && !is_apart { WISH_HELD } else { WISH });
        limits.validity = rng.percent(TELL);
        limits.checks = limits.tells();
        limits.holds = self.holds && limits.leases && rng.percent(HOLDS);
        limits.gathers = limits.holds && self.run > 0;
        limits.gather_run = self.run.max(1);
        limits.cache_bytes = self.cache.unwrap_or(limits.cache_bytes);
        limits.recalls_kept = self.recalls_kept.unwrap_or(limits.recalls_kept);
        limits.own_changes_kept = self.own_changes.unwrap_or(limits.own_changes_kept);
    }

    /// May some mount show for so long after a power cut what that took? (In true time: clocks differ.)
    pub fn shows_lost_ms(&self) -> u64 {
        if self.on { self.most_ms + self.most_ms / 50 + 1 } else { 0 }
    }

    /// What who hears recalls is told in this life comes not before then.
    pub fn late_until(&self, life: u32, now: u64) -> Option<u64> {
        self.late.get(&life).copied().filter(|until| now < *until)
    }

    /// Are confirmations of this life lost?
    pub fn is_mute(&self, life: u32, now: u64) -> bool {
        self.mute.get(&life).is_some_and(|until| now < *until)
    }

    /// Does nothing arrive of what who hears recalls asks in this life?
    pub fn is_unheard(&self, life: u32, now: u64) -> bool {
        self.unheard.get(&life).is_some_and(|until| now < *until)
    }

    /// Does nobody hear recalls in this life?
    pub fn is_deaf(&self, life: u32, now: u64) -> bool {
        self.deaf.get(&life).is_some_and(|(from, until)| *from <= now && now < *until)
    }

    /// All is calm.
    pub fn heal(&mut self) {
        self.late.clear();
        self.mute.clear();
        self.deaf.clear();
        self.unheard.clear();
        self.rest = 0;
    }
}

impl Hub {
    /// Is the next deed of a lane with files that are written in pieces?
    pub fn writes_pieces(&mut self) -> bool {
        self.lending.pieces > 0 && self.rng.percent(self.lending.pieces)
    }

    /// Rings for those who hear recalls in this life: there may be something to ask for.
    pub fn ring(&mut self, life: u32) {
        if !self.lending.on {
            return;
        }
        let hearers = (0..METADS_MAX).map(|at| LaneId { life, lane: (HEARERS + at) as u32 });
        let due = self.now + 1;
        for lane in hearers {
            self.lending.rung.insert(lane);
            self.timers.push((due, lane));
        }
    }

    /// What a mount is told now comes late, and it hears nothing else for longer than leases hold; nor does anybody look.
    fn last_answer(&mut self, life: u32, calm_at: u64) {
        let term = self.lending.most_ms;
        let late = self.now + term / 2 + self.rng.below(term / 2);
        let until = (late + term + term / 4).min(calm_at);
        self.coverage.hit("the last answer that a mount heard came late");
        self.say(format_args!("what life {life} is told comes at {late}, and nothing else until {until}"));
        (self.lending.rest, self.lending.deep) = (until, true);
        self.lending.late.insert(life, late);
        self.lending.unheard.insert(life, until);
    }

    /// Recalls come late to a mount, or are not heard there, or not confirmed: for less and for more than leases hold. `true`:
    /// who hears them is to be woken then.
    pub fn disturb_recalls(&mut self, life: u32, calm_at: u64) -> Option<u64> {
        if self.is_about(Moment::LastAnswer) && self.rng.percent(LAST_ANSWER) {
            self.last_answer(life, calm_at);
            return None;
        }
        let most = 3 * self.lending.most_ms.max(200);
        let until = (self.now + 20 + self.rng.below(most)).min(calm_at);
        // What befalls them may befall a mount of which nothing else is heard.
        if self.rng.percent(50) {
            self.coverage.hit("programs only looked for a while");
            self.say(format_args!("programs do nothing but look until {until}"));
            self.lending.rest = until;
            self.lending.deep = self.rng.percent(50);
        }
        match self.rng.below(4) {
            0 => {
                self.coverage.hit("recalls came late to a mount");
                self.say(format_args!("what life {life} is told by events comes not before {until}"));
                if self.rng.percent(50) {
                    self.lending.late.insert(life, until);
                    return None;
                }
                // The last answer comes just in time, and nobody asks again.
                let late = self.now + 20 + self.rng.below(self.lending.most_ms);
                self.lending.late.insert(life, late.min(until));
                self.lending.deaf.insert(life, (late + HEARD_MS, until));
                Some(until)
            }
            1 => {
                self.coverage.hit("confirmations of a mount were lost");
                self.say(format_args!("confirmations of life {life} are lost until {until}"));
                self.lending.mute.insert(life, until);
                None
            }
            2 => {
                self.say(format_args!("an administrator ends the session of life {life}"));
                self.evicts = self.sessions.get(&life).copied();
                None
            }
            _ => {
                self.coverage.hit("who hears recalls stood still");
                self.say(format_args!("who hears recalls in life {life} stands still until {until}"));
                self.lending.deaf.insert(life, (self.now, until));
                Some(until)
            }
        }
    }
}

/// The canary: who confirms waits until its mount has a connection to the server that no program waits on.
pub async fn connection_of_pool(hub: &HubRef, lane: LaneId, node: NodeId) {
    let is_full = || hub.borrow().pooled.get(&(lane.life, node)).is_some_and(|requests| *requests >= POOL);
    while is_full() {
        let due = {
            let hub = &mut *hub.borrow_mut();
            let due = hub.now + 5;
            hub.timers.push((due, lane));
            due
        };
        poll_fn(|_| if hub.borrow().now >= due { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// Hears what one server tells, for ever: what became of waiting locks, terms that begin, and what shards take back. It does
/// nothing else. It begins when the bell was rung, or at its next look, as the thread of a mount does.
pub async fn hear_events(hub: HubRef, lane: Rc<SimLane>, shared: SharedRef, node: NodeId, id: LaneId) {
    let asks = || !hub.borrow().lending.over && shared.borrow().nodes_to_hear().contains(&node);
    loop {
        while asks() {
            if let Err(errno) = lane.hear(node, EVENTS_MS).await {
                hub.borrow_mut().say(format_args!("{id} hears nothing of node {node}: {errno}"));
                lane.port().pause(AGAIN_MS).await;
            }
        }
        let is_idle = shared.borrow().leases.nodes().is_empty();
        let due = {
            let hub = &mut *hub.borrow_mut();
            let due = hub.now + if is_idle { IDLE_LOOK_MS } else { LOOK_MS };
            hub.timers.push((due, id));
            due
        };
        let is_rung = || hub.borrow_mut().lending.rung.remove(&id);
        poll_fn(|_| if is_rung() || hub.borrow().now >= due { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

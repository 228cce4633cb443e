//! Leases: which mounts wish for them, for how long they hold, within which limits, and what befalls who hears of recalls.
//! Of the seeds that have none nothing is drawn here, so they go as they would without this.

use crate::Canary;
use crate::drive::SimLane;
use crate::hub::{Hub, HubRef, LaneId};
use crate::port::SharedRef;
use skep_client::Port;
use skep_model::Rng;
use skep_types::NodeId;
use std::collections::BTreeMap;
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
/// How long a question may wait where only locks are waited for, in milliseconds: less than a call may take.
const EVENTS_MS: u64 = 400;
/// Pause before the next question where one failed.
const AGAIN_MS: u64 = 30;
/// Connections of a mount to a server that its programs share, with the canary of who confirms by one of them.
const POOL: usize = 1;
/// What is late is taken in within so many milliseconds.
const HEARD_MS: u64 = 8;
/// Who has nothing to ask looks this often, and when its mount has something new.
const LOOK_MS: u64 = 200;

/// What a seed is like.
#[derive(Debug)]
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
    /// Mounts whose answers to who hears recalls come only then.
    late: BTreeMap<u32, u64>,
    /// Mounts whose confirmations are lost until then.
    mute: BTreeMap<u32, u64>,
    /// Mounts in which who hears recalls does not run until then.
    deaf: BTreeMap<u32, (u64, u64)>,
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
    pub fn draw(seed: u64, canary: Option<Canary>, always: bool) -> Self {
        let mut rng = Rng::new(Rng::new(seed ^ SALT).next_u64());
        let on = rng.percent(50);
        let on = canary.map_or(on || always, Canary::is_of_leases);
        let ms = if rng.percent(NONE) && canary.is_none() { 0 } else { rng.pick(&TERMS) };
        let most_ms = ms.max(rng.pick(&TERMS));
        // What is busy is not lent: some bugs are met where little happens.
        let is_calm = matches!(canary, Some(Canary::GivenUpCreate | Canary::KeepsLeaseOverTerm));
        let busy_at = rng.pick(&[None, None, Some(4), Some(2)]).filter(|_| !is_calm);
        let slow = rng.pick(if is_calm { &[3] } else { &[1, 1, 3] });
        let interrupted = rng.pick(if is_calm { &[200] } else { &[20, 60, 200] });
        Self {
            on,
            ms,
            most_ms,
            per_client: rng.pick(&[None, None, Some(3), Some(12)]),
            holders: rng.pick(&[None, None, None, Some(2)]),
            count: rng.pick(&[None, None, None, Some(12)]),
            busy_at,
            cache: rng.pick(&[None, None, Some(4 << 10), Some(24 << 10)]),
            recalls_kept: rng.pick(&[None, None, Some(2)]),
            own_changes: rng.pick(&[None, None, Some(3)]),
            late: BTreeMap::new(),
            mute: BTreeMap::new(),
            deaf: BTreeMap::new(),
            over: false,
            rest: 0,
            deep: false,
            slow,
            interrupted,
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
    }

    /// Those of a mount that begins; whether it wishes is drawn.
    pub fn limit_mount(&self, limits: &mut skep_client::Limits, rng: &mut Rng) {
        if !self.on {
            return;
        }
        limits.leases = rng.percent(WISH);
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

    /// Does nobody hear recalls in this life?
    pub fn is_deaf(&self, life: u32, now: u64) -> bool {
        self.deaf.get(&life).is_some_and(|(from, until)| *from <= now && now < *until)
    }

    /// All is calm.
    pub fn heal(&mut self) {
        self.late.clear();
        self.mute.clear();
        self.deaf.clear();
        self.rest = 0;
    }
}

impl Hub {
    /// Recalls come late to a mount, or are not heard there, or not confirmed: for less and for more than leases hold. `true`:
    /// who hears them is to be woken then.
    pub fn disturb_recalls(&mut self, life: u32, calm_at: u64) -> Option<u64> {
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
/// nothing else.
pub async fn hear_events(hub: HubRef, lane: Rc<SimLane>, shared: SharedRef, node: NodeId, id: LaneId) {
    loop {
        let asks = || !hub.borrow().lending.over && shared.borrow().nodes_to_hear().contains(&node);
        if asks() {
            if let Err(errno) = lane.hear(node, EVENTS_MS).await {
                hub.borrow_mut().say(format_args!("{id} hears nothing of node {node}: {errno}"));
                lane.port().pause(AGAIN_MS).await;
            }
            continue;
        }
        let due = {
            let hub = &mut *hub.borrow_mut();
            let due = hub.now + LOOK_MS;
            hub.timers.push((due, id));
            due
        };
        poll_fn(|_| if asks() || hub.borrow().now >= due { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

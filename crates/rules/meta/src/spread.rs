//! Which targets get the chunks of a file: the plan of extents, and the pools that they are taken from.

mod choosers;
#[cfg(test)]
mod tests;

use crate::limit::{FULL_MS, POOL_WAIT_MS, POOLS_ASKED_MAX, PROGRESSIVE_TARGETS_MAX, ROOM_AGAIN};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use choosers::{Candidate, Pick};
use skep_types::{
    CapacityClass, Code, Consistency, Errno, Extent, Floors, Generation, Ino, Layout, Millis, NodeId, Policy,
    PoolId, Reachability, Stripe, TargetId,
};
use skep_wire::mgmt::{MapReply, TargetEntry};
use skep_wire::{Refusal, Status};

/// How targets are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chooser {
    /// Weighted by free space, spread over failure domains and nodes.
    Balanced,
    /// The targets in the order of their numbers as a ring, cut into as many parts as there are wanted, one of each.
    Randomized,
    /// Those that follow the last one used, in the order of their numbers.
    RoundRobin,
    /// The same, shuffled.
    RandomRobin,
    /// One of each failure domain in turn, any of its targets.
    RandomInterNode,
}

/// The pool of whoever has no wish.
const DEFAULT_POOL: PoolId = PoolId(1);

/// Targets of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    /// So many, if there are.
    Exactly(usize),
    /// All that have space enough, up to a limit.
    All,
}

/// Extents of a progressive layout: end, targets.
const PROGRESSION: [(u64, Width); 3] =
    [(16 << 20, Width::Exactly(1)), (1 << 30, Width::Exactly(4)), (u64::MAX, Width::All)];

/// A storage pool as the map has it.
#[derive(Debug, Clone, Default)]
struct Pool {
    alias: String,
    /// In the order of their numbers.
    usable: Vec<Candidate>,
    /// Targets that would do, were their daemons heard.
    silent: usize,
    known: usize,
}

/// The targets of the cluster, and a stream of choices that a seed determines.
#[derive(Debug, Clone)]
pub struct Spread {
    chooser: Chooser,
    reserve: u64,
    chunk_size: u32,
    stripe_targets: u32,
    pick: Pick,
    pools: BTreeMap<PoolId, Pool>,
    known: usize,
    /// Pools that were asked for and are not in the map, with the first time.
    missing: BTreeMap<PoolId, Millis>,
    /// One of them was asked for just now.
    wants_map: bool,
    now: Millis,
    /// Targets that clients called full.
    full: BTreeMap<TargetId, Full>,
}

/// A target that a client called full.
#[derive(Debug, Clone, Copy)]
struct Full {
    since: Millis,
    /// The lowest figure of its free space since then: the first may be of before.
    least: u64,
}

/// What a new extent continues.
#[derive(Debug, Clone, Copy)]
pub struct Continue<'a> {
    pub ino: Ino,
    /// Its layout generation.
    pub generation: Generation,
    /// Number of the first of them.
    pub number: u16,
    /// First byte that is not covered.
    pub from: u64,
    /// The layout must reach this.
    pub to: u64,
    /// A layout whose targets are as good as any, where it has the same extents.
    pub like: Option<&'a Layout>,
}

impl Spread {
    /// Knows no target yet.
    pub fn new(config: &crate::Config) -> Self {
        let mut seed = [0; 8];
        seed.copy_from_slice(&config.seed[..8]);
        Self {
            chooser: config.chooser,
            reserve: config.target_reserve,
            chunk_size: config.chunk_size,
            stripe_targets: config.stripe_targets,
            pick: Pick::new(u64::from_le_bytes(seed)),
            pools: BTreeMap::new(),
            known: 0,
            missing: BTreeMap::new(),
            wants_map: false,
            now: Millis(0),
            full: BTreeMap::new(),
        }
    }

    /// Takes over pools, states and free space from the map.
    pub fn update(&mut self, map: &MapReply) {
        self.known = map.targets.len();
        self.pools = map
            .pools
            .iter()
            .map(|entry| (entry.pool, Pool { alias: entry.alias.clone(), ..Pool::default() }))
            .collect();
        self.pools.entry(DEFAULT_POOL).or_default();
        let domains = domains(map);
        let mut targets: Vec<&TargetEntry> = map.targets.iter().collect();
        targets.sort_by_key(|target| target.target);
        let reached: BTreeMap<NodeId, Reachability> =
            map.nodes.iter().map(|node| (node.node, node.reachability)).collect();
        for (id, pool) in &mut self.pools {
            let own = targets.iter().filter(|target| target.pool == *id);
            pool.known = own.clone().count();
            let fit = own.filter(|target| {
                target.consistency == Consistency::Good && target.capacity.bytes_free > self.reserve
            });
            let on = |wanted: Reachability| {
                let is = |target: &TargetEntry| reached.get(&target.node).map(|node| target.reached(*node));
                let heard = fit.clone().filter(|target| is(target) == Some(wanted));
                heard.map(|target| candidate(target, &domains)).collect::<Vec<_>>()
            };
            let online = on(Reachability::Online);
            // A restarted mgmtd has heard nobody yet: that is no reason to refuse.
            // Who is heard less than others would do, should those say that they are full.
            let seldom = if online.is_empty() { 0 } else { on(Reachability::ProbablyOffline).len() };
            pool.silent = on(Reachability::Offline).len() + seldom;
            pool.usable = if online.is_empty() { on(Reachability::ProbablyOffline) } else { online };
        }
        self.hear_of_room(map);
        let pools = &self.pools;
        self.missing.retain(|pool, _| !pools.contains_key(pool));
    }

    /// A target is not full any more when its free space has grown since it was called so.
    fn hear_of_room(&mut self, map: &MapReply) {
        for target in &map.targets {
            let free = target.capacity.bytes_free;
            if let Some(full) = self.full.get_mut(&target.target) {
                if free >= full.least.saturating_add(ROOM_AGAIN) {
                    self.full.remove(&target.target);
                } else {
                    full.least = full.least.min(free);
                }
            }
        }
    }

    /// May a layout wish name this pool? One that is not in the map may be very new: the asker comes again,
    /// the second time after a while the answer is final.
    pub fn check_pool(&mut self, now: Millis, pool: PoolId) -> Result<(), Refusal> {
        if pool == PoolId(0) || self.pools.contains_key(&pool) || self.known == 0 {
            return Ok(());
        }
        if self.missing.len() >= POOLS_ASKED_MAX {
            self.missing.pop_first();
        }
        let since = *self.missing.entry(pool).or_insert(now);
        if now.since(since) < POOL_WAIT_MS {
            self.wants_map = true;
            let text = format!("storage pool {pool} is not known to the metadata server yet; try again");
            return Err(Refusal::with(Status::BUSY, text));
        }
        let text = format!("there is no storage pool {pool} (see `skep pool list`)");
        Err(Refusal::with(Status::errno(Errno::EINVAL), text))
    }

    /// Was a pool asked for that a newer map may have?
    pub fn take_wants_map(&mut self) -> bool {
        core::mem::take(&mut self.wants_map)
    }

    /// The extents of a whole file: end and stripes of each.
    fn plan(&self, policy: &Policy) -> Vec<(u64, Width)> {
        match if policy.targets == 0 { self.stripe_targets } else { policy.targets } {
            0 => PROGRESSION.to_vec(),
            wanted => alloc::vec![(u64::MAX, Width::Exactly(wanted as usize))],
        }
    }

    /// Extents from `at.from` until `at.to` is covered.
    pub fn extents(&mut self, policy: Option<Policy>, at: Continue<'_>) -> Result<Vec<Extent>, Refusal> {
        let policy = policy.unwrap_or_default();
        let chunk_size = if policy.chunk_size == 0 { self.chunk_size } else { policy.chunk_size };
        let mut extents: Vec<Extent> = Vec::new();
        let mut number = at.number;
        let mut start = at.from;
        for (end, width) in self.plan(&policy) {
            if end > start && start < at.to {
                let (origin, generation, code) = (at.ino, at.generation, Code::Copies);
                let same = |extent: &&Extent| {
                    (extent.start, extent.end, extent.chunk_size) == (start, end, chunk_size)
                };
                let like = at.like.and_then(|layout| layout.extents.iter().find(same));
                let stripes = match like.filter(|extent| self.fits(policy.pool, width, &extent.stripes)) {
                    Some(extent) => extent.stripes.clone(),
                    None => Stripe::each(&self.choose(policy.pool, width)?),
                };
                let floors = Floors::default();
                let cuts = Vec::new();
                let extent = Extent {
                    number,
                    start,
                    end,
                    origin,
                    generation,
                    code,
                    chunk_size,
                    stripes,
                    floors,
                    cuts,
                };
                extents.push(extent);
                number += 1;
                start = end;
            }
        }
        Ok(extents)
    }

    /// How many stripes each extent of a file was to have, each on targets of its own; 0 = as many as there are.
    pub fn asked(&self, policy: Option<Policy>, layout: &Layout) -> Vec<u32> {
        let plan = self.plan(&policy.unwrap_or_default());
        let asked = |extent: &Extent| match plan.iter().find(|(end, _)| *end >= extent.end) {
            Some((_, Width::Exactly(count))) => *count as u32,
            _ => 0,
        };
        layout.extents.iter().map(asked).collect()
    }

    /// See [`Pick::turns`].
    pub fn turns(&self) -> BTreeMap<PoolId, TargetId> {
        self.pick.turns()
    }

    /// See [`Pick::turn_back`].
    pub fn turn_back(&mut self, turns: BTreeMap<PoolId, TargetId>) {
        self.pick.turn_back(turns);
    }

    /// The time.
    pub fn set_now(&mut self, now: Millis) {
        self.now = now;
    }

    /// A client could not write to this target, for it is full.
    pub fn note_full(&mut self, target: TargetId) {
        let since = self.now;
        let mut candidates = self.pools.values().flat_map(|pool| &pool.usable);
        let Some(known) = candidates.find(|candidate| candidate.target == target) else { return };
        let least = known.free;
        self.full.retain(|_, full| since.since(full.since) < FULL_MS);
        self.full.insert(target, Full { since, least });
    }

    fn is_called_full(&self, target: TargetId) -> bool {
        self.full.get(&target).is_some_and(|full| self.now.since(full.since) < FULL_MS)
    }

    /// Stripes of what comes behind an extent that is closed.
    pub fn successors(
        &mut self,
        policy: Option<Policy>,
        extent: &Extent,
        full: Option<TargetId>,
        room: u64,
    ) -> Result<Vec<Stripe>, Refusal> {
        let policy = policy.unwrap_or_default();
        let plan = self.plan(&policy);
        let width = plan.iter().find(|(end, _)| *end >= extent.end).map_or(Width::All, |(_, width)| *width);
        let chosen = self.choose_roomy(policy.pool, width, room).map_err(|refusal| match full {
            Some(full) => Refusal::with(refusal.status, format!("target {full} is full; {}", refusal.detail)),
            None => refusal,
        })?;
        Ok(Stripe::each(&chosen))
    }

    fn pool(&self, pool: PoolId) -> (PoolId, Option<&Pool>) {
        let id = if pool == PoolId(0) { DEFAULT_POOL } else { pool };
        (id, self.pools.get(&id))
    }

    /// Would these stripes do as well as chosen ones?
    fn fits(&self, pool: PoolId, width: Width, stripes: &[Stripe]) -> bool {
        let Some(pool) = self.pool(pool).1 else { return false };
        let usable = |target: &TargetId| {
            pool.usable.iter().any(|candidate| candidate.target == *target) && !self.is_called_full(*target)
        };
        let count = match width {
            Width::Exactly(count) => count.min(pool.usable.len()),
            Width::All => stripes.len(),
        };
        let mut targets = stripes.iter().flat_map(Stripe::targets);
        stripes.len() >= count && !stripes.is_empty() && targets.all(usable)
    }

    /// Different targets of a pool; at least one, or ENOSPC; BUSY when some would do but are silent,
    /// or when the map is so young that it names none.
    fn choose(&mut self, pool: PoolId, width: Width) -> Result<Vec<TargetId>, Refusal> {
        self.choose_roomy(pool, width, 0)
    }

    /// Those with so much room above the reserve.
    fn choose_roomy(&mut self, pool: PoolId, width: Width, room: u64) -> Result<Vec<TargetId>, Refusal> {
        let (id, found) = self.pool(pool);
        let candidates = match found {
            Some(pool) if !pool.usable.is_empty() => pool.usable.clone(),
            pool => return Err(self.nothing(id, pool)),
        };
        let has_room = |candidate: &Candidate| {
            candidate.free.saturating_sub(self.reserve) >= room && !self.is_called_full(candidate.target)
        };
        let candidates: Vec<Candidate> = candidates.into_iter().filter(has_room).collect();
        if candidates.is_empty() {
            return Err(self.nothing(id, self.pool(pool).1));
        }
        let (enough, most) = match width {
            Width::Exactly(count) => (count, count),
            Width::All => (1, PROGRESSIVE_TARGETS_MAX),
        };
        self.pick.begin();
        let mut chosen = Vec::new();
        for class in [CapacityClass::Normal, CapacityClass::Low, CapacityClass::Emergency] {
            // A fuller class only helps out where the emptier ones have not enough.
            if chosen.len() < enough {
                let of_class = candidates.iter().filter(|candidate| candidate.class == class);
                let of_class: Vec<Candidate> = of_class.copied().collect();
                let wanted = most - chosen.len();
                chosen.extend(self.pick.choose(self.chooser, id, &of_class, wanted));
            }
        }
        Ok(chosen)
    }

    /// Why a pool gives no target.
    fn nothing(&self, id: PoolId, pool: Option<&Pool>) -> Refusal {
        let full = |text: String| Refusal::with(Status::errno(Errno::ENOSPC), text);
        if self.known == 0 {
            let text = "no target has registered yet: start skep storaged (see `skep target list`)";
            return Refusal::with(Status::BUSY, text);
        }
        let Some(pool) = pool else {
            return full(format!(
                "storage pool {id}, which the directory asks for, does not exist (see `skep pool list`)"
            ));
        };
        let name = match pool.alias.as_str() {
            "" => format!("storage pool {id}"),
            alias => format!("storage pool {id} ({alias})"),
        };
        if pool.silent > 0 {
            let text = format!(
                "{} targets of {name} have room, but their daemons are silent (see `skep health`)",
                pool.silent
            );
            return Refusal::with(Status::BUSY, text);
        }
        if pool.known == 0 {
            return full(format!("{name} has no targets; assign some with `skep pool assign`"));
        }
        full(format!(
            "none of the {} targets of {name} takes new data: each is full, bad or offline (see `skep target \
             list`); other pools are not used instead",
            pool.known
        ))
    }
}

/// A number for what fails together with each node: its domain, without one the node itself.
fn domains(map: &MapReply) -> BTreeMap<NodeId, u32> {
    let mut names: BTreeMap<(&str, NodeId), u32> = BTreeMap::new();
    let mut domains = BTreeMap::new();
    for node in &map.nodes {
        let name = if node.domain.is_empty() { ("", node.node) } else { (node.domain.as_str(), NodeId(0)) };
        let next = names.len() as u32;
        domains.insert(node.node, *names.entry(name).or_insert(next));
    }
    domains
}

fn candidate(target: &TargetEntry, domains: &BTreeMap<NodeId, u32>) -> Candidate {
    Candidate {
        target: target.target,
        node: target.node,
        domain: domains.get(&target.node).copied().unwrap_or(u32::MAX),
        free: target.capacity.bytes_free,
        class: target.class,
    }
}

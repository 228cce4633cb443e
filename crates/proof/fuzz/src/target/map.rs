//! What mgmtd tells of the cluster map, one after the other, to somebody who keeps it: whole maps and differences.

use skep_types::codec::{Draw, Example};
use skep_types::{Decode, Encode, MapVersion};
use skep_wire::mgmt::{ClusterView, Gone, MapReply};

use super::Target;

/// The length that stands before each.
const LENGTH: usize = 2;

pub fn target() -> Target {
    let whole = MapReply { version: MapVersion(1), base: MapVersion(0), ..MapReply::example(Draw::FULL) };
    let whole = MapReply { gone: Gone::default(), ..whole };
    let next = |told: MapReply| MapReply { version: MapVersion(2), base: MapVersion(1), ..told };
    let same = next(MapReply { gone: Gone::default(), ..whole.clone() });
    let gone = Gone {
        nodes: whole.nodes.iter().map(|entry| entry.node).collect(),
        targets: whole.targets.iter().map(|entry| entry.target).collect(),
        shards: whole.shards.iter().map(|entry| entry.shard).collect(),
        pools: whole.pools.iter().map(|entry| entry.pool).collect(),
    };
    let none = next(MapReply { gone: gone.clone(), ..MapReply::default() });
    let back = MapReply { gone, ..same.clone() };
    let seeds = [vec![&whole], vec![&whole, &same], vec![&whole, &none], vec![&whole, &back], vec![&same]];
    let seeds = seeds.iter().map(|told| told.iter().flat_map(|reply| framed(reply)).collect());
    Target { name: "map", seeds: seeds.collect(), fixed: 0, one_in: 1, read: Box::new(read) }
}

fn framed(reply: &MapReply) -> Vec<u8> {
    let bytes = reply.to_bytes();
    [&(bytes.len() as u16).to_le_bytes()[..], &bytes].concat()
}

fn read(mut input: &[u8]) -> Result<(), String> {
    let mut view = ClusterView::default();
    while let Some((length, rest)) = input.split_first_chunk::<LENGTH>() {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
        input = rest;
        let Ok(told) = MapReply::from_bytes(bytes) else { continue };
        take(&mut view, &told)?;
        // Once more as the difference to what is held by now: most that were changed at random are to something else.
        if let Some(version) = view.version().0.checked_add(1) {
            let told = MapReply { version: MapVersion(version), base: view.version(), ..told };
            take(&mut view, &told)?;
        }
    }
    Ok(())
}

fn take(view: &mut ClusterView, told: &MapReply) -> Result<(), String> {
    let before = view.clone();
    let is_newer = told.version > before.version();
    let fits = told.is_whole() || told.base == before.version();
    match view.take(told.clone()) {
        Ok(true) if is_newer && fits => holds(&before, told, view),
        Ok(false) if !is_newer && *view == before => Ok(()),
        Err(_) if is_newer && !fits && *view == before => Ok(()),
        other => Err(format!("{other:?} of {:?} to {:?}", told.version, told.base)),
    }
}

/// The map is whole, and has of each kind what was told, and of what was held what is neither told nor gone.
fn holds(before: &ClusterView, told: &MapReply, view: &ClusterView) -> Result<(), String> {
    let (held, map) = (before.map(), view.map());
    if !map.is_whole() || map.gone != Gone::default() || map.version != told.version {
        return Err(format!("what is held is a difference, or of another version: {map:?}"));
    }
    let held = if told.is_whole() { &MapReply::default() } else { held };
    list(&held.nodes, &told.nodes, &told.gone.nodes, &map.nodes, |entry| entry.node)?;
    list(&held.targets, &told.targets, &told.gone.targets, &map.targets, |entry| entry.target)?;
    list(&held.shards, &told.shards, &told.gone.shards, &map.shards, |entry| entry.shard)?;
    list(&held.pools, &told.pools, &told.gone.pools, &map.pools, |entry| entry.pool)
}

fn list<T: PartialEq + std::fmt::Debug, K: Ord>(
    held: &[T],
    told: &[T],
    gone: &[K],
    now: &[T],
    key: impl Fn(&T) -> K,
) -> Result<(), String> {
    if !now.is_sorted_by(|a, b| key(a) < key(b)) {
        return Err(format!("not in order, or twice: {now:?}"));
    }
    // Told twice, the last one counts.
    let last = |id: &K| told.iter().rev().find(|entry| key(entry) == *id);
    let kept = |id: &K| held.iter().find(|entry| key(entry) == *id && !gone.contains(id));
    let is_right = |entry: &T| last(&key(entry)).or_else(|| kept(&key(entry))) == Some(entry);
    let is_there = |entry: &T| now.binary_search_by_key(&key(entry), &key).is_ok();
    let stays = |entry: &&T| !gone.contains(&key(entry));
    if now.iter().all(is_right) && told.iter().chain(held.iter().filter(stays)).all(is_there) {
        return Ok(());
    }
    Err(format!("{held:?} with {told:?} came to {now:?}"))
}

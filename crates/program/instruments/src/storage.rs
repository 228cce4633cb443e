//! The daemon reads and writes its own targets, without network: what BeeGFS calls StorageBench.
//!
//! Everything lies in `bench/` beside `chunks/` of a target, where nothing else looks: no list, no scrub, no count
//! of files. Each measurement has a directory of its own there, a set. A daemon that starts removes what it finds.

mod area;
mod order;
mod place;
mod run;

use super::jobs::Control;
use super::question::{Findings, SetFound, StorageTest};
use super::service::BenchTarget;
use area::Area;
use skep_types::limits::PAYLOAD_MAX;

/// Most threads of one target.
pub const THREADS_MAX: u32 = 256;
/// Most threads of a measurement.
const ALL_THREADS_MAX: usize = 1_024;
/// Most files of one target.
const OBJECTS_MAX: u32 = 4_096;
/// Largest request to a plain file; through the daemon's code it is the largest payload.
const RAW_BLOCK_MAX: u64 = 64 << 20;
/// Requests past the page cache must be multiples of it.
const DIRECT_ALIGN: u64 = 4_096;
/// Memory of all threads' blocks together. (Small ones that are written come from a pool of one to two mebibytes a
/// thread.)
const BUFFERS_MAX: u64 = 1 << 30;
/// Most bytes of one thread.
const SIZE_MAX: u64 = 1 << 40;
/// Longest time.
const SECONDS_MAX: f64 = 3_600.0;
/// Longest name of a set.
const SET_MAX: usize = 64;

/// Those of `all` that are wanted; all when none is named.
fn chosen<'a>(all: &'a [BenchTarget], wanted: &[u32]) -> Result<Vec<&'a BenchTarget>, String> {
    if all.is_empty() {
        return Err("this service has no targets".to_owned());
    }
    if wanted.is_empty() {
        return Ok(all.iter().collect());
    }
    let find = |number: &u32| {
        all.iter().find(|one| one.target.0 == *number).ok_or_else(|| {
            let has: Vec<String> = all.iter().map(|one| one.target.to_string()).collect();
            format!("target {number} is not served here; served are {}", has.join(", "))
        })
    };
    wanted.iter().map(find).collect()
}

/// The name of a set is that of a directory, whoever asks.
fn is_set(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.starts_with('.') && (1..=SET_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// Refuses what cannot be measured, with the limit.
fn check(test: &StorageTest, targets: usize) -> Result<(), String> {
    let most = match test.path {
        super::question::Path::Raw => RAW_BLOCK_MAX,
        super::question::Path::Target => PAYLOAD_MAX as u64,
    };
    let refused = |text: String| Err(text);
    match () {
        () if !is_set(&test.set) => {
            refused(format!("a set has a name of 1 to {SET_MAX} letters, digits, - or _"))
        }
        () if !(1..=THREADS_MAX).contains(&test.threads) => {
            refused(format!("1 to {THREADS_MAX} threads a target"))
        }
        () if test.threads as usize * targets > ALL_THREADS_MAX => {
            refused(format!("{targets} targets with {} threads: {ALL_THREADS_MAX} at most", test.threads))
        }
        () if test.objects > OBJECTS_MAX => refused(format!("{OBJECTS_MAX} files a target at most")),
        () if !(1..=most).contains(&test.block) => refused(format!("a block of 1 to {most} bytes")),
        () if test.block * u64::from(test.threads) * targets as u64 > BUFFERS_MAX => refused(format!(
            "a block of {} for each thread: {BUFFERS_MAX} bytes together at most",
            test.block
        )),
        () if !(test.block..=SIZE_MAX).contains(&test.size) => {
            refused(format!("a size of one block ({}) to {SIZE_MAX} bytes a thread", test.block))
        }
        () if !(0.0..=SECONDS_MAX).contains(&test.seconds) => refused(format!("0 to {SECONDS_MAX} seconds")),
        () if test.direct && test.path == super::question::Path::Target => {
            refused("chunk files go through the page cache: direct is for raw files".to_owned())
        }
        () if test.direct && !test.block.is_multiple_of(DIRECT_ALIGN) => {
            refused(format!("direct needs a block that is a multiple of {DIRECT_ALIGN}"))
        }
        () => Ok(()),
    }
}

pub fn measure(all: &[BenchTarget], test: &StorageTest, control: &Control) -> Result<Findings, String> {
    let targets = chosen(all, &test.targets)?;
    check(test, targets.len())?;
    let full = area::full(&targets, test)?;
    if !full.is_empty() {
        return Ok(Findings::Storage(run::refused(&targets, &full)));
    }
    run::run(&targets, test, control).map(Findings::Storage)
}

/// Removes what measurements left on these targets: these sets, or all of them.
pub fn cleanup(all: &[BenchTarget], wanted: &[u32], sets: &[String]) -> Result<Findings, String> {
    if let Some(wrong) = sets.iter().find(|set| !is_set(set)) {
        return Err(format!("{wrong:?} is no name of a set: see `skep bench storage cleanup --list`"));
    }
    let mut removed = 0;
    for target in chosen(all, wanted)? {
        let area = Area::of(target);
        removed += match sets {
            [] => area.remove()?,
            _ => sets.iter().try_fold(0, |sum, set| area.remove_set(set).map(|files| sum + files))?,
        };
    }
    Ok(Findings::Cleanup { removed })
}

/// Which sets there are.
pub fn sets(all: &[BenchTarget], used: impl Fn(&str) -> bool) -> Vec<SetFound> {
    let of = |target: &BenchTarget| {
        let found = |(set, files, bytes): (String, u64, u64)| {
            let used = used(&set);
            SetFound { target: target.target.0, set, files, bytes, used }
        };
        Area::of(target).sets().into_iter().map(found).collect::<Vec<_>>()
    };
    all.iter().flat_map(of).collect()
}

/// A daemon starts: what a measurement of an earlier life left on a target goes.
pub fn clear_leftovers(target: &BenchTarget) {
    match Area::of(target).remove() {
        Ok(0) => {}
        Ok(files) => info!("target {}: removed {files} files of a measurement", target.target),
        Err(e) => warning!("target {}: files of a measurement stay: {e}", target.target),
    }
}

#[cfg(test)]
mod tests;

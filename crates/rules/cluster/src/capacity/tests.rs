//! Classes as pure functions of limits and reports.

use super::*;
use CapacityClass::{Emergency, Low, Normal};
use alloc::vec;

const GIB: u64 = 1 << 30;

fn space(total: u64, free: u64) -> Capacity {
    Capacity { bytes: total, bytes_free: free, inodes: 0, inodes_free: 0 }
}

fn member(was: CapacityClass, capacity: Capacity) -> Member {
    Member { was, capacity, counts: true }
}

fn limits(low: u64, emergency: u64) -> CapacityLimits {
    let bytes = SpaceLimits { low: Some(low), emergency: Some(emergency), ..SpaceLimits::default() };
    CapacityLimits { bytes, ..CapacityLimits::default() }
}

/// Goal: the defaults are those of the documentation on large disks, and shares of the disk on small ones.
#[test]
fn defaults_fit_large_and_small_disks() {
    let class = |total: u64, free: u64| first_class(&CapacityLimits::default(), &space(total, free));
    let large = 100 << 40;
    assert_eq!((class(large, BYTES_LOW), class(large, BYTES_LOW - 1)), (Normal, Low));
    assert_eq!((class(large, BYTES_EMERGENCY), class(large, BYTES_EMERGENCY - 1)), (Low, Emergency));
    assert_eq!((class(100 * GIB, 10 * GIB), class(100 * GIB, 10 * GIB - 1)), (Normal, Low));
    assert_eq!((class(100 * GIB, 2 * GIB), class(100 * GIB, 2 * GIB - 1)), (Low, Emergency));
    let inodes = |free| Capacity { inodes: 1 << 40, inodes_free: free, ..space(large, large) };
    let class = |free| first_class(&CapacityLimits::default(), &inodes(free));
    assert_eq!((class(INODES_LOW), class(INODES_LOW - 1)), (Normal, Low));
    assert_eq!(class(INODES_EMERGENCY - 1), Emergency);
}

/// Goal: a target at a limit does not flutter: it leaves at the limit and returns an eighth above it.
#[test]
fn classes_return_late() {
    let limits = limits(800, 80);
    let step = |was, free| classes(&limits, &[member(was, space(10_000, free))])[0];
    assert_eq!((step(Normal, 800), step(Normal, 799)), (Normal, Low));
    assert_eq!((step(Low, 800), step(Low, 899), step(Low, 900)), (Low, Low, Normal));
    assert_eq!((step(Low, 80), step(Low, 79)), (Low, Emergency));
    assert_eq!((step(Emergency, 89), step(Emergency, 90)), (Emergency, Low));
    assert_eq!(step(Emergency, 900), Normal, "emptied at once");
    // Whatever the free space does, at one place the class settles: no two answers alternate.
    for free in 0..2_000 {
        for was in [Normal, Low, Emergency] {
            let first = step(was, free);
            assert_eq!(step(first, free), first, "{free} from {}", was.as_str());
        }
    }
}

/// Goal: with dynamic limits the fuller ones of very different targets become low; equal ones do not;
/// without they never do. One that cannot be reached is not compared with.
#[test]
fn dynamic_limits_follow_the_spread() {
    let set = CapacityLimits { dynamic: true, ..limits(100, 10) };
    let of = |limits: &CapacityLimits, was: [CapacityClass; 3], free: [u64; 3], counts: [bool; 3]| {
        let members: Vec<_> =
            (0..3).map(|n| Member { counts: counts[n], ..member(was[n], space(10_000, free[n])) }).collect();
        classes(limits, &members)
    };
    let (all, normal) = ([true; 3], [Normal; 3]);
    assert_eq!(of(&set, normal, [150, 160, 400], all), vec![Low, Low, Normal]);
    assert_eq!(of(&set, normal, [150, 160, 240], all), vec![Normal; 3], "they differ by less than 100");
    assert_eq!(of(&set, normal, [150, 160, 400], [true, true, false]), vec![Normal; 3]);
    assert_eq!(of(&limits(100, 10), normal, [150, 160, 400], all), vec![Normal; 3]);
    assert_eq!(of(&set, [Low; 3], [15, 16, 90], all), vec![Emergency, Emergency, Low]);
    // On and off with a gap between, so that one at the threshold does not flutter.
    let low = [Low, Low, Normal];
    assert_eq!(of(&set, low, [150, 160, 245], all), vec![Low, Low, Normal], "by 95: still");
    assert_eq!(of(&set, low, [150, 160, 235], all), vec![Normal; 3], "by 85: no more");
}

/// Goal: the thresholds and raised limits that are set replace the derived ones.
#[test]
fn dynamic_limits_can_be_set() {
    let bytes = SpaceLimits {
        low: Some(100),
        emergency: Some(10),
        normal_spread: Some(1_000),
        low_dynamic: Some(500),
        ..SpaceLimits::default()
    };
    let set = CapacityLimits { bytes, dynamic: true, ..CapacityLimits::default() };
    let of = |free: [u64; 2]| classes(&set, &free.map(|free| member(Normal, space(10_000, free))));
    assert_eq!(of([400, 1_400]), vec![Normal, Normal]);
    assert_eq!(of([400, 1_401]), vec![Low, Normal]);
    assert_eq!(of([500, 1_501]), vec![Normal, Normal]);
}

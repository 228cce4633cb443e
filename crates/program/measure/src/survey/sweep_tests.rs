use super::setting::{MIB, TARGETS};
use super::*;
use skep_bench::job::Work;

/// Goal: places become settings, and a file system without targets has no striping.
#[test]
fn settings() {
    let with = axes(8, &TRANSFERS, 3);
    assert_eq!(with[TARGETS].values, [1.0, 2.0, 3.0]);
    let setting = Setting::at(&with, &vec![3, 6, 1, 4, 2]);
    let wanted = Setting { processes: 8, transfer: 64 * MIB, direct: true, striping: Some((4 * MIB, 3)) };
    assert_eq!(setting, wanted);
    let without = axes(8, &TRANSFERS, 0);
    assert_eq!(without.len(), 3);
    assert_eq!(Setting::at(&without, &vec![0, 0, 0]).striping, None);
}

/// Goal: whatever the setting, all processes together move the same bytes, in two whole transfers each at least; what
/// does not fit is not tried, and that is said.
#[test]
fn the_same_work_everywhere() {
    for (wanted, processes, largest) in [
        (None, 8, 64 * MIB),
        (None, 13, 64 * MIB),
        (Some(256 * MIB), 8, 16 * MIB),
        (Some(100_000_000), 16, 2 * MIB),
        (Some(1), 16, MIB),
        (Some(64 * MIB), 1, 32 * MIB),
    ] {
        let amount = Amount::of(wanted, processes);
        assert_eq!(amount.transfers.last(), Some(&largest), "{wanted:?} {processes}");
        assert!(wanted.is_none_or(|wanted| amount.size >= wanted), "{amount:?}");
        assert_eq!(amount.describe().contains("do not fit"), largest < 64 * MIB);
        for place in 0..processes.ilog2() as usize + 1 {
            for (transfer, _) in amount.transfers.iter().enumerate() {
                let setting = Setting::at(&axes(processes, &amount.transfers, 0), &vec![place, transfer, 0]);
                let Work::Io(io) = setting.job("/x", amount.size, false).work else { panic!("not io") };
                assert_eq!(io.block * setting.processes, amount.size, "{setting:?}");
                assert!(io.block % io.transfer == 0 && io.block >= 2 * io.transfer, "{setting:?}");
            }
        }
    }
}

/// Goal: the searches of large presets reach transfers of 64 MiB with any number of processes; the small one moves as little
/// as it says, and so stops at 16 MiB.
#[test]
fn searches_of_presets() {
    use super::super::preset::Preset;
    for (name, processes, largest) in [
        (PresetName::Small, None, 16 * MIB),
        (PresetName::Medium, None, 64 * MIB),
        (PresetName::Medium, Some(3), 64 * MIB),
        (PresetName::Large, None, 64 * MIB),
        (PresetName::Large, Some(4_096), 64 * MIB),
    ] {
        let preset = Preset::of(name, processes, 1);
        let searched = preset.search.unwrap();
        let amount = searched.amount(preset.processes);
        assert_eq!(amount.transfers.last(), Some(&largest), "{name:?} {processes:?}");
        assert!(amount.size >= searched.size, "{amount:?}");
    }
    assert_eq!(Preset::of(PresetName::Quick, None, 1).search, None);
}

/// Goal: a setting that cannot be measured costs itself only: the search goes on, finds the best of the others, and says
/// what failed; it is not tried again. When too many fail it ends with what it has, and only nothing at all is a failure.
#[test]
fn what_fails_is_left_out() {
    let height = |setting: Setting| 1_000.0 * setting.processes as f64 - (setting.transfer / MIB) as f64;
    for (budget, dir) in [
        (Budget::from(200), "climb"),
        (Budget { measurements: 200, until: until(Some(Duration::from_secs(60))) }, "in turn"),
    ] {
        let search = |broken: &dyn Fn(Setting, usize) -> bool| {
            let mut tried = Vec::new();
            let searched = over(
                axes(8, &TRANSFERS[..3], 0),
                budget,
                |_| {},
                |setting| {
                    tried.push(setting);
                    if broken(setting, tried.len()) {
                        Err(Failure::new("no room"))
                    } else {
                        Ok(height(setting))
                    }
                },
            );
            (searched, tried)
        };
        let (searched, tried) = search(&|setting, _| setting.direct);
        let searched = searched.unwrap();
        let best = Setting::at(&searched.axes, &searched.found.best);
        assert_eq!((best.processes, best.transfer, best.direct), (8, MIB, false), "{dir}");
        let said = searched.failures().unwrap();
        assert!(said.contains("O_DIRECT") && said.ends_with("no room"), "{dir}: {said}");
        assert_eq!(tried.iter().filter(|setting| setting.direct).count(), searched.failed.len());
        let samples = || searched.found.samples.values().flatten();
        assert!(samples().all(|rate| *rate > 0.0) && samples().count() == searched.found.measured, "{dir}");
        assert!(!searched.curves("write", "c").is_empty());
        // From the third measurement on everything fails.
        let (searched, tried) = search(&|_, number| number > 2);
        let searched = searched.unwrap();
        assert_eq!((tried.len(), searched.found.measured), (2 + FAILURES_MOST, 2), "{dir}");
        assert!(searched.found.unfinished && searched.found.samples.contains_key(&searched.found.best));
        assert!(searched.failures().unwrap().contains("no other was tried"));
        // A place that was measured well before it failed once is the best all the same.
        let (searched, tried) = search(&|_, number| number == 10);
        let searched = searched.unwrap();
        let best = Setting::at(&searched.axes, &searched.found.best);
        assert_eq!((best.processes, best.transfer, best.direct), (8, MIB, false), "{dir}: {tried:?}");
        let (searched, tried) = search(&|_, _| true);
        assert_eq!((searched.err(), tried.len()), (Some(Failure::new("no room")), FAILURES_MOST), "{dir}");
    }
}

/// Goal: the curves of a search go through its best place, along each axis with two places at least.
#[test]
fn slices() {
    let samples = [(vec![1, 0, 0], 10.0), (vec![2, 0, 0], 12.0), (vec![2, 1, 0], 11.0), (vec![0, 3, 1], 1.0)];
    let found = Found {
        best: vec![2, 0, 0],
        samples: samples.into_iter().map(|(place, v)| (place, vec![v, v])).collect(),
        measured: 8,
        unfinished: false,
    };
    let searched = Searched { axes: axes(4, &TRANSFERS, 0), found, lines: Vec::new(), failed: Vec::new() };
    let curves = searched.curves("write", "c");
    let shown: Vec<(&str, usize)> = curves.iter().map(|c| (c.id.as_str(), c.points.len())).collect();
    assert_eq!(shown, [("sweep.processes", 2), ("sweep.transfer", 2)]);
    // On which line: it is no other's.
    assert_eq!(curves[0].title, "write over processes, with transfers of 1m, buffered");
    assert_eq!(curves[1].title, "write over transfer size (bytes), with 4 processes, buffered");
}

/// Goal: a short search looks at every axis, chunk size and targets of a file too, and each has its curve; the best of
/// all axes is found where they do not depend on each other.
#[test]
fn every_axis_has_its_turn() {
    let axes = axes(8, &TRANSFERS[..5], 4);
    let top = [3, 2, 1, 3, 1];
    let height = |place: &At| {
        let far: usize = place.iter().zip(&top).map(|(at, top)| at.abs_diff(*top)).sum();
        1_000.0 * 0.7_f64.powi(far as i32)
    };
    let start = vec![1, 0, 0, 2, 2];
    let search = |measurements| {
        let budget = Budget { measurements, until: until(Some(Duration::from_secs(60))) };
        in_turn(&axes, &start, budget, |place| Ok::<_, ()>(height(place))).unwrap()
    };
    let (found, lines) = search(200);
    assert_eq!((found.best.as_slice(), found.unfinished), (top.as_slice(), false));
    let searched = Searched { axes: axes.clone(), found, lines, failed: Vec::new() };
    let ids: Vec<String> = searched.curves("both", "c").into_iter().map(|curve| curve.id).collect();
    assert_eq!(ids, ["sweep.processes", "sweep.transfer", "sweep.past", "sweep.chunk", "sweep.targets"]);
    // A budget that ends early has been at every axis all the same.
    let (found, lines) = search(20);
    assert!(found.unfinished && found.measured <= 20 && lines.len() == axes.len(), "{found:?}");
    let looked = |axis: usize| found.samples.keys().any(|place| place[axis] != lines[axis][axis]);
    assert!((0..axes.len()).all(looked), "{found:?}");
}

/// Goal: a search that is cut off tells the best place by the middle of its samples, not by the luckiest one.
#[test]
fn the_best_so_far() {
    let axes = axes(8, &TRANSFERS[..3], 0);
    let mut seen = BTreeMap::new();
    assert!(best_so_far(&axes, &seen).contains("before its first measurement"));
    seen.insert(vec![1, 0, 0], vec![100.0, 100.0, 900.0]);
    seen.insert(vec![2, 1, 1], vec![210.0, 190.0]);
    let said = best_so_far(&axes, &seen);
    assert!(
        said.starts_with("best so far: 4 processes, transfers of 2m, O_DIRECT (200 MB/s; 5 meas"),
        "{said}"
    );
    assert!(said.contains("2 of it"), "{said}");
}

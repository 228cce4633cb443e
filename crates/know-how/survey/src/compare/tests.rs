//! Tests on synthetic surveys, with noise within a survey and drift from one to the next.

use super::*;
use crate::draw::Draw;
use crate::model::{FORMAT, Fact, Layer, LayerId, MemberResult, Point, Verdict};

/// How far surveys of one cluster lie apart: all places together, and each by itself.
#[derive(Clone, Copy, Default)]
struct Weather {
    common: f64,
    each: f64,
}

const CALM: Weather = Weather { common: 0.0, each: 0.0 };

/// 30 places of a curve and four latencies; those of the list changed by a factor.
fn survey(draw: &mut Draw, changed: &[(usize, f64)]) -> Survey {
    drifted(draw, changed, CALM)
}

fn drifted(draw: &mut Draw, changed: &[(usize, f64)], weather: Weather) -> Survey {
    let common = draw.noisy(1.0, weather.common);
    let drift: Vec<f64> = (0..34).map(|_| common * draw.noisy(1.0, weather.each)).collect();
    let chosen = |at: usize| changed.iter().find(|(place, _)| *place == at).map_or(1.0, |(_, f)| *f);
    let factor = |at: usize| drift[at] * chosen(at);
    let mut samples = |middle: f64| (0..5).map(|_| draw.noisy(middle, 0.05)).collect::<Vec<f64>>();
    let points = (0..30).map(|at| Point { x: at as f64, samples: samples(100.0 * factor(at)) }).collect();
    let members = (30..34)
        .map(|at| MemberResult { name: format!("m{at}"), samples: samples(20.0 * factor(at)), outlier: None })
        .collect();
    let text = String::new;
    let curve = Curve {
        id: "clients.write.n-n".into(),
        title: "Write, a file per process".into(),
        unit: "MB/s".into(),
        axis: "processes".into(),
        points,
        command: text(),
    };
    let side = SideBySide {
        id: "network.latency.each".into(),
        title: text(),
        unit: "us".into(),
        more_is_better: false,
        members,
        command: text(),
    };
    Survey {
        format: FORMAT,
        title: text(),
        version: text(),
        started: text(),
        seconds: 0.0,
        preset: text(),
        commands: vec![],
        hosts: vec![],
        settings: vec![Fact { name: "chunk size".into(), value: chosen(0).to_string() }],
        parts: vec![],
        absent: vec![],
        spread: None,
        layers: vec![Layer { id: LayerId::Clients, about: text(), curves: vec![curve], sides: vec![side] }],
        theory: vec![],
        waterfalls: vec![],
        verdict: Verdict { headline: text(), culprit: None, also: vec![], limits: vec![] },
        remarks: vec![],
    }
}

/// Places that changed for certain: with these, the program ends with another exit code.
fn certain(found: &Comparison) -> usize {
    found.count(Outcome::Better) + found.count(Outcome::Worse)
}

fn marked(found: &Comparison) -> usize {
    found.changes.iter().filter(|change| change.outcome.better().is_some()).count()
}

/// Shares of pairs of untouched sides in which anything was marked.
fn alarms(seed: u64, surveys: usize, weather: Weather, marks: fn(&Comparison) -> usize) -> f64 {
    const PAIRS: usize = 400;
    let mut draw = Draw::new(seed);
    let mut side = || (0..surveys).map(|_| drifted(&mut draw, &[], weather)).collect::<Vec<Survey>>();
    let alarmed = (0..PAIRS).filter(|_| marks(&compare_sides(&side(), &side())) > 0).count();
    alarmed as f64 / PAIRS as f64
}

/// Goal: surveys of an untouched cluster differ in nothing, though they drift from one to the next: of 400 pairs
/// at most one in twenty has any mark, with one survey on a side and with several.
#[test]
fn nothing_changed() {
    let weathers = [(0.0, 0.0), (0.1, 0.0), (0.0, 0.1), (0.1, 0.1), (0.15, 0.1), (0.05, 0.2)];
    for (at, (common, each)) in weathers.into_iter().enumerate() {
        for surveys in [1, 2, 3] {
            let share = alarms(31 + at as u64, surveys, Weather { common, each }, marked);
            assert!(share <= 0.05, "{share} with {surveys} surveys, drift of {common} and {each}");
        }
    }
}

/// Goal: drift far beyond what is assumed (a factor of two and more between surveys of an untouched cluster) is never
/// called a change for certain in more than one of twenty pairs, be it of all places together or of each by itself;
/// with one survey on a side the reader is told that it may be drift.
#[test]
fn large_drift_is_no_change() {
    let weathers = [(0.3, 0.0), (0.0, 0.3), (0.3, 0.1), (0.1, 0.3), (0.3, 0.2), (0.35, 0.0), (0.0, 0.4)];
    for (at, (common, each)) in weathers.into_iter().enumerate() {
        for surveys in [1, 2, 3] {
            let share = alarms(131 + at as u64, surveys, Weather { common, each }, certain);
            // Where drift is measured it is one in twenty whatever its size, give or take what 400 pairs err by.
            let most = if surveys == 1 { 0.05 } else { 0.08 };
            assert!(share <= most, "{share} with {surveys} surveys, drift of {common} and {each}");
        }
    }
    let mut draw = Draw::new(77);
    let weather = Weather { common: 0.3, each: 0.0 };
    let found =
        (0..50).map(|_| compare(&drifted(&mut draw, &[], weather), &drifted(&mut draw, &[], weather)));
    let found: Vec<Comparison> = found.collect();
    assert!(found.iter().any(|f| marked(f) > 0 && certain(f) == 0), "drift of this size would be marked");
    let last = found[0].remarks.last().unwrap();
    assert!(last.starts_with("One survey a side cannot tell drift from change"), "{last}");
}

/// Goal: what no drift explains is certain from one survey on a side: everything at a fifth, or one target's places
/// at a tenth while the rest stayed.
#[test]
fn what_cannot_be_drift_is_certain() {
    let everything: Vec<(usize, f64)> =
        (0..30).map(|at| (at, 0.2)).chain((30..34).map(|at| (at, 5.0))).collect();
    let one: Vec<(usize, f64)> = (3..7).map(|at| (at, 0.1)).collect();
    let weather = Weather { common: 0.05, each: 0.05 };
    for changed in [everything, one] {
        let mut draw = Draw::new(78);
        let told = |_: &usize| {
            let found = compare(&drifted(&mut draw, &[], weather), &drifted(&mut draw, &changed, weather));
            found.count(Outcome::Worse) == changed.len()
        };
        let told = (0..100).filter(told).count();
        assert!(told >= 95, "{told} of 100 with {} places", changed.len());
    }
}

/// Goal: a target at half of its former rate, which shows in four of 34 places, is still marked in spite of drift, as
/// certain when surveys were repeated; and samples without any spread are no proof of anything.
#[test]
fn a_halved_target_is_marked() {
    let halved = [(3, 0.5), (4, 0.5), (5, 0.5), (6, 0.5)];
    for (surveys, weather, least) in [
        (1, Weather { common: 0.05, each: 0.05 }, 0.9),
        (2, Weather { common: 0.05, each: 0.1 }, 0.9),
        (3, Weather { common: 0.1, each: 0.1 }, 0.95),
    ] {
        let wanted = if surveys == 1 { Outcome::MaybeWorse } else { Outcome::Worse };
        let mut draw = Draw::new(40 + surveys);
        let (mut any, mut places) = (0.0, 0.0);
        for _ in 0..100 {
            let mut side = |changed: &[(usize, f64)]| {
                (0..surveys).map(|_| drifted(&mut draw, changed, weather)).collect::<Vec<Survey>>()
            };
            let found = compare_sides(&side(&[]), &side(&halved));
            let worse = |(place, _): &&(usize, f64)| found.changes[*place].outcome == wanted;
            let count = halved.iter().filter(worse).count();
            any += if count > 0 { 0.01 } else { 0.0 };
            places += count as f64 / 400.0;
        }
        let enough = any >= least && places >= least - 0.05;
        assert!(enough, "{any:.2} of the pairs, {places:.2} of the places, with {surveys} surveys");
    }
    let constant = |value: f64| {
        let mut one = survey(&mut Draw::new(1), &[]);
        one.layers[0].sides[0].members.iter_mut().for_each(|m| m.samples = vec![value; 5]);
        one
    };
    let found = compare(&constant(15.0), &constant(16.0));
    assert!(found.changes[30..].iter().all(|c| c.outcome == Outcome::Same && c.p.unwrap() > 0.05));
}

/// Goal: surveys of different presets are told apart; remarks on busy machines are those of both sides; free
/// bytes are no setting, a size is.
#[test]
fn what_a_reader_must_know() {
    let (mut first, mut second) = (survey(&mut Draw::new(5), &[]), survey(&mut Draw::new(6), &[]));
    let host = |value: &str| crate::model::Host {
        name: "alpha".into(),
        roles: vec![],
        clients: false,
        busy: None,
        facts: vec![Fact { name: "target 1".into(), value: value.into() }],
        link: None,
        networks: 1,
    };
    first.hosts = vec![host("ext4 on sda (hdd ST1), /d [rw], 9.3 GiB of 12 GiB free")];
    second.hosts = vec![host("ext4 on sda (hdd ST1), /d [rw], 7.1 GiB of 12 GiB free")];
    first.hosts[0].busy =
        Some("alpha was busy before the survey began: a load of 9.0 on 8 processors".into());
    // A name or a remark that says so is not one that was.
    second.hosts[0].name = "busybox-1".into();
    second.remarks = vec!["busybox-1: could not be measured".into()];
    let found = compare(&first, &second);
    let notes: Vec<&str> = found.remarks.iter().map(String::as_str).collect();
    assert_eq!(notes[0], "before: alpha was busy before the survey began: a load of 9.0 on 8 processors");
    assert_eq!(notes.len(), 2, "{notes:?}");
    second.hosts = vec![host("ext4 on sda (hdd ST1), /d [rw], 7.1 GiB of 12 GiB free")];
    let found = compare(&first, &second);
    assert_eq!(found.settings, Vec::<[String; 3]>::new());
    assert!(presets_differ(&[first.clone()], &[second.clone()]).is_none());
    second.preset = "small".into();
    second.hosts = vec![host("ext4 on sda (hdd ST1), /d [rw], 7.1 GiB of 24 GiB free")];
    let found = compare(&first, &second);
    assert!(found.remarks[0].contains("small after"), "{:?}", found.remarks);
    assert_eq!(found.settings.len(), 1);
    assert!(presets_differ(&[first.clone(), second.clone()], &[first, second]).is_some());
}

/// Goal: what changed is marked in its direction, a latency that fell as better, and settings are shown.
#[test]
fn changes_are_marked() {
    let mut draw = Draw::new(32);
    let changed = [(0, 0.5), (7, 2.0), (31, 0.5), (33, 2.0)];
    let mut seen = [0; 4];
    for _ in 0..100 {
        let found = compare(&survey(&mut draw, &[]), &survey(&mut draw, &changed));
        let right = [Outcome::MaybeWorse, Outcome::MaybeBetter, Outcome::MaybeBetter, Outcome::MaybeWorse];
        for (at, (place, _)) in changed.iter().enumerate() {
            seen[at] += u32::from(found.changes[*place].outcome == right[at]);
        }
        assert_eq!(found.settings, [["chunk size", "1", "0.5"].map(str::to_owned)]);
    }
    assert!(seen.iter().all(|n| *n >= 98), "{seen:?}");
}

/// Goal: single samples and places that one survey lacks are said, not judged.
#[test]
fn what_cannot_be_told() {
    let mut draw = Draw::new(33);
    let (mut first, mut second) = (survey(&mut draw, &[]), survey(&mut draw, &[]));
    first.layers[0].curves[0].title = "Write, a file per process".to_owned();
    let points = &mut second.layers[0].curves[0].points;
    points[0].samples.truncate(1);
    points.pop();
    let found = compare(&first, &second);
    assert_eq!(found.changes[0].outcome, Outcome::Unknown);
    assert_eq!(found.alone, ["first only: clients.write.n-n (Write, a file per process), processes = 29"]);
    assert_eq!(found.changes.len(), 33);
}

/// Goal: what changed is told by the title that people know from the report, of the later survey where two differ.
#[test]
fn titles_are_carried() {
    let mut draw = Draw::new(5);
    let (first, mut second) = (survey(&mut draw, &[]), survey(&mut draw, &[]));
    second.layers[0].curves[0].title = "Write, own files".into();
    let found = compare(&first, &second);
    let title = |id: &str| &found.changes.iter().find(|change| change.id == id).unwrap().title;
    assert_eq!(title("clients.write.n-n"), "Write, own files");
    assert_eq!(title("network.latency.each"), "");
}

/// Goal: what is shown before and after belongs to the ratio that stands beside it, whatever the samples scatter; the
/// document keeps its medians.
#[test]
fn means_belong_to_the_ratio() {
    let mut draw = Draw::new(34);
    let (mut first, mut second) = (survey(&mut draw, &[]), survey(&mut draw, &[]));
    first.layers[0].curves[0].points[0].samples = vec![20.0, 86.0, 90.0];
    second.layers[0].curves[0].points[0].samples = vec![250.0, 281.0, 900.0];
    second.layers[0].curves[0].points[1].samples[0] = 0.0;
    let found = compare_sides(&[first.clone(), first.clone()], &[second.clone()]);
    for change in found.changes.iter().filter(|change| change.ratio.is_some()) {
        let [Some(before), Some(after)] = change.means else { panic!("{change:?}") };
        assert!((after / before / change.ratio.unwrap()[0] - 1.0).abs() < 1e-9, "{change:?}");
    }
    assert_eq!((found.changes[0].before, found.changes[0].after), (86.0, 281.0));
    assert!(found.changes[1].means[1].is_none() && found.changes[1].ratio.is_none());
    let json = serde_json::to_string(&found.changes[0]).unwrap();
    assert!(!json.contains("means") && serde_json::from_str::<Change>(&json).is_ok(), "{json}");
}

/// Goal: only what rules out twice and half as much is called the same; a mark is a mark whatever its interval.
#[test]
fn a_wide_interval_tells_nothing() {
    let change = |ratio: Option<[f64; 3]>, outcome: Outcome| Change {
        id: String::new(),
        title: String::new(),
        place: String::new(),
        unit: String::new(),
        before: 86.0,
        after: 281.0,
        ratio,
        p: None,
        outcome,
        means: [None, None],
    };
    for (ratio, outcome, words) in [
        (Some([5.03, 0.229, 110.462]), Outcome::Same, "cannot tell"),
        (Some([1.0, 0.4, 1.1]), Outcome::Same, "cannot tell"),
        (Some([1.0, 0.75, 1.33]), Outcome::Same, "same"),
        (Some([5.0, 1.5, 20.0]), Outcome::MaybeBetter, "maybe better"),
        (None, Outcome::Unknown, "unknown"),
    ] {
        assert_eq!(change(ratio, outcome).words(), words, "{ratio:?}");
    }
    let mut draw = Draw::new(35);
    let (mut first, second) = (survey(&mut draw, &[]), survey(&mut draw, &[]));
    let quiet = compare(&first, &second);
    assert_eq!((quiet.untold(), quiet.count(Outcome::Same)), (0, 34));
    first.layers[0].curves[0].points[0].samples = vec![20.0, 100.0, 500.0];
    let found = compare(&first, &second);
    assert_eq!(
        (found.untold(), found.changes[0].words(), found.changes[0].outcome),
        (1, "cannot tell", Outcome::Same)
    );
}

/// Goal: of the mounts on a machine only the one that was surveyed is compared, wherever it is; others, and what a
/// machine without layers of clients tells, do not stand among the settings.
#[test]
fn only_the_surveyed_mount_is_compared() {
    let with = |point: &str, others: &[&str], threads: &str| {
        let mut one = survey(&mut Draw::new(36), &[]);
        let fact = |name: String, value: &str| Fact { name, value: value.to_owned() };
        one.settings = vec![fact("mount".into(), point)];
        let own = [
            fact(format!("mount {point}"), "fuse.skep m:/ (rw)"),
            fact(format!("mount {point}: settings"), threads),
        ];
        let others = others.iter().map(|other| fact(format!("mount {other}"), "fuse.skep x:/ (rw)"));
        one.hosts = vec![crate::model::Host {
            name: "vm".into(),
            roles: vec![],
            clients: true,
            busy: None,
            facts: own.into_iter().chain(others).collect(),
            link: None,
            networks: 1,
        }];
        one
    };
    let settings = |a: &Survey, b: &Survey| compare(a, b).settings;
    let first = with("/mnt/a", &[], "threads = 4");
    assert_eq!(settings(&first, &with("/mnt/a", &["/srv/rig/mnt", "/mnt/a2"], "threads = 4")), [[""; 3]; 0]);
    let told = settings(&first, &with("/mnt/b", &["/mnt/a"], "threads = 8"));
    let names: Vec<&str> = told.iter().map(|[name, ..]| name.as_str()).collect();
    assert_eq!(names, ["mount", "vm: mount: settings"]);
    assert_eq!(told[1][1..], ["threads = 4", "threads = 8"]);
}

/// Goal: curves of a search are compared along one line only: what has the rest set in another way is another place.
#[test]
fn lines_of_a_search() {
    let mut draw = Draw::new(37);
    let mut with = |rest: &str| {
        let mut one = survey(&mut draw, &[]);
        let line = &mut one.layers[0].curves[0];
        line.id = "sweep.processes".into();
        line.title = format!("both of 256m over processes, with {rest}");
        line.points.truncate(2);
        one
    };
    let (small, again, large) = (with("transfers of 1m"), with("transfers of 1m"), with("transfers of 16m"));
    let found = |a: &Survey, b: &Survey| {
        let found = compare(a, b);
        (found.changes.len(), found.alone)
    };
    assert_eq!(found(&small, &again), (6, vec![]));
    let (changes, alone) = found(&small, &large);
    assert_eq!((changes, alone.len()), (4, 4), "{alone:?}");
    assert!(
        alone[0]
            .starts_with("first only: sweep.processes (both of 256m over processes, with transfers of 1m)")
    );
    assert!(alone[2].starts_with("second only: ") && alone[2].contains("with transfers of 16m"), "{alone:?}");
}

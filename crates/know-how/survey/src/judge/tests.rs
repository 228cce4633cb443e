use super::*;
use crate::draw::Draw;
use crate::ids;
use crate::model::{Absent, FORMAT, LARGE_STUCK, MemberResult};

const DAEMONS: usize = 3;
const TARGETS: usize = 2;
const ROUNDS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    Target(usize, usize),
    Network(usize),
    Processor(usize),
    Path(usize, usize),
    Disks(usize),
}

impl Fault {
    fn culprit(self) -> Option<(LayerId, String)> {
        Some(match self {
            Fault::None => return None,
            Fault::Target(d, t) => (LayerId::Device, target(d, t)),
            Fault::Network(d) => (LayerId::Network, daemon(d)),
            Fault::Processor(d) => (LayerId::Processor, daemon(d)),
            Fault::Path(a, b) => (LayerId::Network, format!("{}{ARROW}{}", daemon(a), daemon(b))),
            Fault::Disks(d) => (LayerId::Device, daemon(d)),
        })
    }
}

fn daemon(d: usize) -> String {
    format!("storaged-{d}")
}

fn target(d: usize, t: usize) -> String {
    format!("target-{d}0{t}")
}

fn side(id: &str, unit: &str, more_is_better: bool, rows: Vec<(String, f64)>, draw: &mut Draw) -> SideBySide {
    let mut members: Vec<MemberResult> = rows
        .iter()
        .map(|(name, _)| MemberResult { name: name.clone(), samples: vec![], outlier: None })
        .collect();
    for _ in 0..ROUNDS {
        let machine = draw.noisy(1.0, 0.4);
        for (member, (_, level)) in members.iter_mut().zip(&rows) {
            member.samples.push(draw.noisy(level * machine, 0.12));
        }
    }
    SideBySide {
        id: id.into(),
        title: id.into(),
        unit: unit.into(),
        more_is_better,
        members,
        command: String::new(),
    }
}

/// A system of three daemons with two targets each, in which one thing is at a fifth of what it should be,
/// with the effects that this has in the layers above.
fn system(fault: Fault, draw: &mut Draw) -> Survey {
    const SLOW: f64 = 0.2;
    let of = |wrong: bool| if wrong { SLOW } else { 1.0 };
    let starved = |d: usize| of(fault == Fault::Processor(d));
    let disk = |d: usize, t: usize| of(fault == Fault::Target(d, t) || fault == Fault::Disks(d));
    let all = || (0..DAEMONS).flat_map(|d| (0..TARGETS).map(move |t| (d, t)));
    let pairs = || (0..DAEMONS).flat_map(|a| (0..DAEMONS).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let path = |a: usize, b: usize| {
        let slow = fault == Fault::Network(a) || fault == Fault::Network(b) || fault == Fault::Path(a, b);
        of(slow) * starved(a).min(starved(b))
    };
    let named =
        |level: &dyn Fn(usize, usize) -> f64| all().map(|(d, t)| (target(d, t), level(d, t))).collect();
    let device = |d, t| 300.0 * disk(d, t) * starved(d).sqrt();
    let storage = |d, t| 250.0 * disk(d, t) * starved(d);
    let layers = vec![
        (LayerId::Storage, side("storage.write.each", "MB/s", true, named(&storage), draw)),
        (LayerId::Device, side("device.write.each", "MB/s", true, named(&device), draw)),
        (
            LayerId::Network,
            side(
                ids::NETWORK_PAIRS,
                "MB/s",
                true,
                pairs()
                    .map(|(a, b)| (format!("{}{ARROW}{}", daemon(a), daemon(b)), 1_000.0 * path(a, b)))
                    .collect(),
                draw,
            ),
        ),
        (
            LayerId::Processor,
            side(
                ids::PROCESSOR_SHARE,
                "of a core",
                true,
                (0..DAEMONS).map(|d| (daemon(d), 0.9 * starved(d))).collect(),
                draw,
            ),
        ),
    ];
    let layer = |(id, side)| Layer { id, about: String::new(), curves: vec![], sides: vec![side] };
    Survey {
        format: FORMAT,
        title: "synthetic".into(),
        version: "0".into(),
        started: "2026-01-01T00:00:00Z".into(),
        seconds: 1.0,
        preset: "small".into(),
        commands: vec![],
        hosts: vec![],
        settings: vec![],
        parts: all().map(|(d, t)| Part { name: target(d, t), part_of: daemon(d) }).collect(),
        absent: vec![],
        spread: None,
        layers: layers.into_iter().map(layer).collect(),
        theory: vec![],
        waterfalls: vec![],
        verdict: Verdict { headline: String::new(), culprit: None, also: vec![], limits: vec![] },
        remarks: vec![],
    }
}

fn judged(fault: Fault, draw: &mut Draw) -> Survey {
    let mut survey = system(fault, draw);
    judge(&mut survey);
    survey
}

fn named(survey: &Survey) -> Option<(LayerId, String)> {
    survey.verdict.culprit.as_ref().map(|c| (c.layer, c.member.clone()))
}

/// Goal: whatever is wrong, on a noisy machine, it is named in the layer where it sits, with its numbers.
#[test]
fn the_right_one_is_named() {
    let mut draw = Draw::new(21);
    let mut wrong = Vec::new();
    for run in 0..400 {
        let (d, t) = (draw.below(DAEMONS), draw.below(TARGETS));
        let fault = match run % 5 {
            0 => Fault::Target(d, t),
            1 => Fault::Network(d),
            2 => Fault::Processor(d),
            3 => Fault::Path(d, (d + 1) % DAEMONS),
            _ => Fault::Disks(d),
        };
        let survey = judged(fault, &mut draw);
        if named(&survey) != fault.culprit() {
            wrong.push((fault, survey.verdict.headline));
        } else if let Some(culprit) = &survey.verdict.culprit {
            assert!(culprit.evidence.iter().all(|e| e.value < e.expected) && !culprit.advice.is_empty());
            assert!(survey.verdict.headline.contains(&culprit.member));
        }
    }
    assert!(wrong.len() <= 4, "{} of 400: {:?}", wrong.len(), wrong.first());
}

/// Goal: nobody is named in a healthy system, noisy as it may be: at most one false alarm in 400.
#[test]
fn nobody_is_named_in_a_healthy_system() {
    let mut draw = Draw::new(22);
    let alarms: Vec<String> = (0..400)
        .map(|_| judged(Fault::None, &mut draw).verdict)
        .filter(|verdict| verdict.culprit.is_some())
        .map(|verdict| verdict.headline)
        .collect();
    assert!(alarms.len() <= 1, "{}: {:?}", alarms.len(), alarms.first());
}

/// Goal: effects are marked as such: a starved daemon's targets and paths name their cause, and only it is blamed.
#[test]
fn effects_name_their_cause() {
    let mut draw = Draw::new(23);
    let survey = judged(Fault::Processor(1), &mut draw);
    let storage = survey.layers.iter().find(|layer| layer.id == LayerId::Storage).unwrap();
    let marks: Vec<&str> = storage.sides[0].members.iter().filter_map(|m| m.outlier.as_deref()).collect();
    assert_eq!(marks.len(), TARGETS, "{marks:?}");
    assert!(marks.iter().all(|mark| mark.contains("storaged-1 explains it")), "{marks:?}");
    assert!(!survey.verdict.headline.contains("also"), "{}", survey.verdict.headline);
}

/// Goal: two independent faults are both told, and judging again changes nothing.
#[test]
fn two_faults_and_a_second_judgement() {
    let mut draw = Draw::new(24);
    let mut survey = system(Fault::Target(0, 1), &mut draw);
    let network = system(Fault::Network(2), &mut draw).layers.remove(2);
    survey.layers[2] = network;
    judge(&mut survey);
    let mut both: Vec<&str> =
        survey.verdict.culprit.iter().chain(&survey.verdict.also).map(|c| c.member.as_str()).collect();
    both.sort_unstable();
    assert_eq!(both, ["storaged-2", "target-001"]);
    assert!(survey.verdict.headline.contains("; also "), "{}", survey.verdict.headline);
    let first = survey.clone();
    judge(&mut survey);
    assert_eq!(survey, first);
}

/// Goal: a survey of nothing is judged without a word too much.
#[test]
fn an_empty_survey() {
    let mut draw = Draw::new(25);
    let mut survey = system(Fault::None, &mut draw);
    survey.layers.clear();
    judge(&mut survey);
    assert_eq!(survey.verdict.headline, "Nothing lags behind its likes.");
    assert!(survey.verdict.culprit.is_none() && survey.verdict.limits.is_empty());
}

/// Goal: when no daemon gets much of a processor, the verdict says so before it says that nothing lags, and it is the
/// first limit; a culprit is named first all the same, and the same one as without the crowd.
#[test]
fn crowded_processors_are_said_first() {
    let crowd = |fault| {
        let mut survey = system(fault, &mut Draw::new(71));
        judge(&mut survey);
        let alone = survey.clone();
        let members = survey.layers.iter_mut().filter(|layer| layer.id == LayerId::Processor);
        for member in members.flat_map(|layer| &mut layer.sides).flat_map(|side| &mut side.members) {
            member.samples.iter_mut().for_each(|share| *share *= 0.4);
        }
        judge(&mut survey);
        (alone, survey)
    };
    let (alone, crowded) = crowd(Fault::None);
    assert!(alone.verdict.crowded().is_none() && alone.verdict.headline == ALL_ALIKE);
    let headline = &crowded.verdict.headline;
    assert!(
        headline.starts_with("The processors limit all work: ") && headline.ends_with(ALL_ALIKE),
        "{headline}"
    );
    assert_eq!(crowded.verdict.limits.first().and_then(|limit| limit.layer), Some(LayerId::Processor));
    assert!(crowded.verdict.culprit.is_none());
    let (alone, crowded) = crowd(Fault::Target(1, 0));
    assert_eq!(named(&alone), named(&crowded));
    let (before, after) = (&alone.verdict.headline, &crowded.verdict.headline);
    assert!(after.starts_with(before.as_str()) && after.contains("The processors limit"), "{after}");
}

/// A member of a side runs at this share of what it has.
fn slow(survey: &mut Survey, layer: LayerId, name: &str, share: f64) {
    let sides = survey.layers.iter_mut().filter(|l| l.id == layer).flat_map(|l| &mut l.sides);
    let members = sides.flat_map(|side| &mut side.members).filter(|m| m.name.split(ARROW).any(|e| e == name));
    members.flat_map(|m| &mut m.samples).for_each(|sample| *sample *= share);
}

/// Goal: of two that do not explain each other the worse is the culprit, whichever layer is lower.
#[test]
fn the_worst_comes_first() {
    let mut draw = Draw::new(26);
    let mut wrong = 0;
    for run in 0..100 {
        let mut survey = system(Fault::None, &mut draw);
        let (mild, bad) = (0.4, 0.05);
        let (device, network) = if run % 2 == 0 { (mild, bad) } else { (bad, mild) };
        slow(&mut survey, LayerId::Device, &target(0, 1), device);
        slow(&mut survey, LayerId::Network, &daemon(2), network);
        judge(&mut survey);
        let worst =
            if run % 2 == 0 { (LayerId::Network, daemon(2)) } else { (LayerId::Device, target(0, 1)) };
        wrong += usize::from(named(&survey) != Some(worst) || survey.verdict.also.len() != 1);
    }
    assert!(wrong <= 2, "{wrong} of 100");
}

/// Goal: a daemon a little short of processor time does not excuse a disk that hardly moves, one very short does.
#[test]
fn a_mild_cause_explains_no_disaster() {
    let mut draw = Draw::new(27);
    for (processor, expected) in [(0.4, target(0, 1)), (0.05, daemon(0))] {
        let mut survey = system(Fault::None, &mut draw);
        slow(&mut survey, LayerId::Processor, &daemon(0), processor);
        slow(&mut survey, LayerId::Device, &target(0, 1), 0.02);
        judge(&mut survey);
        assert_eq!(named(&survey).map(|(_, name)| name), Some(expected), "{}", survey.verdict.headline);
    }
}

/// Goal: who does not answer is the first finding, explains its targets and paths, and leaves room for others.
#[test]
fn who_is_gone_comes_first() {
    let mut draw = Draw::new(28);
    let absent = |name: &str, layer, why: &str| Absent { name: name.into(), layer, why: why.into() };
    let mut survey = system(Fault::Target(0, 1), &mut draw);
    survey.absent = vec![
        absent("target-201", LayerId::Device, "refused"),
        absent("storaged-2", LayerId::Processor, "is offline, last heard 40 s ago"),
        absent("storaged-2 -> storaged-0", LayerId::Network, "refused"),
        absent("target-110", LayerId::Device, "could not be measured: write: No such device"),
    ];
    judge(&mut survey);
    let verdict = &survey.verdict;
    assert!(verdict.headline.starts_with("storaged-2: is offline, last heard 40 s ago; also target-110"));
    let also: Vec<&str> = verdict.also.iter().map(|c| c.member.as_str()).collect();
    assert_eq!(also, ["target-110", "target-001"]);
    assert!(verdict.culprit.as_ref().is_some_and(|c| c.advice.contains("start it again")));
    assert_eq!(verdict.also[0].finding, "could not be measured: write: No such device");
    survey.absent.remove(1);
    survey.absent.truncate(1);
    survey.absent[0].why = "could not be measured: unix:/run/s.sock: refused".into();
    judge(&mut survey);
    assert!(survey.verdict.headline.starts_with("target-201: could not be measured;"));
}

/// Goal: a node whose paths all fail is named itself; one path that fails is that path.
#[test]
fn paths_that_fail() {
    let mut draw = Draw::new(29);
    for whole in [true, false] {
        let mut survey = system(Fault::None, &mut draw);
        let gone =
            |name: &str| if whole { name.contains("storaged-1") } else { name == "storaged-1 -> storaged-2" };
        let sides = survey.layers.iter_mut().filter(|l| l.id == LayerId::Network).flat_map(|l| &mut l.sides);
        for side in sides {
            let missing = side.members.iter().filter(|m| gone(&m.name)).map(|m| m.name.clone());
            let absent = |name| Absent { name, layer: LayerId::Network, why: "timed out".into() };
            survey.absent.extend(missing.map(absent));
            side.members.retain(|m| !gone(&m.name));
        }
        judge(&mut survey);
        let expected = if whole { "storaged-1" } else { "storaged-1 -> storaged-2" };
        assert_eq!(named(&survey), Some((LayerId::Network, expected.to_owned())));
        assert!(survey.verdict.also.is_empty(), "{}", survey.verdict.headline);
    }
}

/// Goal: where large packets are dropped the network is accused, with the pair, or with the node if no path of it carries
/// any; the advice is to compare MTUs, not to start services.
#[test]
fn large_packets_that_are_dropped() {
    let mut draw = Draw::new(37);
    for whole in [true, false] {
        let mut survey = system(Fault::None, &mut draw);
        let gone =
            |name: &str| if whole { name.contains("storaged-1") } else { name == "storaged-1 -> storaged-2" };
        let sides = survey.layers.iter_mut().filter(|l| l.id == LayerId::Network).flat_map(|l| &mut l.sides);
        for side in sides {
            let missing: Vec<String> =
                side.members.iter().filter(|m| gone(&m.name)).map(|m| m.name.clone()).collect();
            survey.absent.extend(missing.into_iter().map(|name| Absent {
                why: format!("{LARGE_STUCK}: 131072 bytes from {name} were not through after 5 s"),
                layer: LayerId::Network,
                name,
            }));
            side.members.retain(|m| !gone(&m.name));
        }
        judge(&mut survey);
        let expected = if whole { "storaged-1" } else { "storaged-1 -> storaged-2" };
        assert_eq!(named(&survey), Some((LayerId::Network, expected.to_owned())));
        assert!(survey.verdict.also.is_empty(), "{}", survey.verdict.headline);
        let culprit = survey.verdict.culprit.as_ref().unwrap();
        let told = culprit.finding.contains(ARROW) && culprit.finding.contains("storaged-1");
        assert!(told, "{}", culprit.finding);
        assert!(
            culprit.advice.contains("MTU") && !culprit.advice.contains("systemctl"),
            "{}",
            culprit.advice
        );
        assert!(survey.verdict.headline.starts_with(&format!("{expected}: {LARGE_STUCK}")));
    }
    // The host of the survey itself, beside which nobody could measure anything.
    let mut survey = system(Fault::None, &mut draw);
    survey.layers.retain(|layer| layer.id != LayerId::Network);
    survey.absent = (0..2)
        .map(|number| {
            let name = format!("this host{ARROW}{}", daemon(number));
            let why = format!("{LARGE_STUCK}: 49152 bytes from {name} were not through after 5 s");
            Absent { name, layer: LayerId::Network, why }
        })
        .collect();
    judge(&mut survey);
    assert_eq!(named(&survey), Some((LayerId::Network, "this host".to_owned())));
    assert!(survey.verdict.also.is_empty(), "{}", survey.verdict.headline);
}

/// Goal: round trips are told as times, never as what is sent, and the headline is one short sentence.
#[test]
fn delays_are_told_as_times() {
    let mut draw = Draw::new(30);
    let pairs: Vec<(String, f64)> = (0..4)
        .flat_map(|a| (0..4).filter(move |b| *b != a).map(move |b| (a, b)))
        .map(|(a, b)| {
            (format!("{}{ARROW}{}", daemon(a), daemon(b)), if a == 3 || b == 3 { 200.0 } else { 20.0 })
        })
        .collect();
    let mut survey = system(Fault::None, &mut draw);
    survey.layers = vec![Layer {
        id: LayerId::Network,
        about: String::new(),
        curves: vec![],
        sides: vec![side(ids::NETWORK_DELAYS, "us", false, pairs, &mut draw)],
    }];
    judge(&mut survey);
    let headline = &survey.verdict.headline;
    assert!(headline.starts_with("storaged-3: its network is slow: its round trips take "), "{headline}");
    assert!(!headline.contains('%') && headline.len() < 120, "{headline}");
}

/// Goal: a quota is found on a machine where nobody gets much: the share hints at it, the control group as well. One
/// hint alone accuses nobody. (Samples as a rigged cluster on a busy machine gave them.)
#[test]
fn a_quota_on_a_busy_machine() {
    let shares = [
        ("beta", [0.26, 0.22, 0.24, 0.23, 0.24, 0.26, 0.23, 0.21, 0.24, 0.23]),
        ("gamma", [0.45, 0.44, 0.39, 0.33, 0.41, 0.4, 0.43, 0.32, 0.35, 0.34]),
        ("delta", [0.47, 0.57, 0.37, 0.32, 0.34, 0.55, 0.43, 0.36, 0.28, 0.3]),
    ];
    let held = [0.65, 0.53, 0.52, 0.56, 0.84, 0.57, 0.7, 0.89, 0.92, 0.52];
    let member = |name: &str, samples: [f64; 10]| MemberResult {
        name: name.to_owned(),
        samples: samples.to_vec(),
        outlier: None,
    };
    let side = |id: &str, members| SideBySide {
        id: format!("{id}.storaged"),
        title: id.to_owned(),
        unit: "of a processor".to_owned(),
        more_is_better: true,
        members,
        command: String::new(),
    };
    let judged = |share_of_beta: [f64; 10], free_of_beta: [f64; 10]| {
        let of = |name: &str, other| if name == "beta" { share_of_beta } else { other };
        let share = shares.iter().map(|(name, samples)| member(name, of(name, *samples))).collect();
        let of = |name: &str| if name == "beta" { free_of_beta } else { [1.0; 10] };
        let free = shares.iter().map(|(name, _)| member(name, of(name))).collect();
        let mut survey = system(Fault::None, &mut Draw::new(1));
        survey.layers = vec![Layer {
            id: LayerId::Processor,
            about: String::new(),
            curves: vec![],
            sides: vec![side(ids::PROCESSOR_SHARE, share), side(ids::PROCESSOR_FREE, free)],
        }];
        judge(&mut survey);
        survey
    };
    let both = judged(shares[0].1, held);
    assert_eq!(named(&both), Some((LayerId::Processor, "beta".to_owned())));
    assert_eq!(both.verdict.culprit.as_ref().map(|c| c.evidence.len()), Some(2));
    assert!(both.layers[0].sides.iter().all(|side| side.members[0].outlier.is_some()));
    assert_eq!(named(&judged(shares[0].1, [1.0; 10])), None);
    assert_eq!(named(&judged(shares[1].1, held)), None);
}

/// Goal: of a network of two nodes it is said what cannot be told, with what the interfaces could carry; a slow way
/// is named as a path beside the way back. With three nodes nothing is said.
#[test]
fn two_nodes_are_no_likes() {
    let survey = |nodes: usize, levels: [f64; 2]| {
        let mut draw = Draw::new(61);
        let mut survey = system(Fault::None, &mut draw);
        let pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let rows = pairs
            .map(|(a, b)| {
                let level = if (a, b) == (0, 1) { levels[0] } else { levels[1] };
                (format!("{}{ARROW}{}", daemon(a), daemon(b)), level)
            })
            .collect();
        let network = survey.layers.iter_mut().find(|layer| layer.id == LayerId::Network).unwrap();
        network.sides = vec![side(ids::NETWORK_PAIRS, "MB/s", true, rows, &mut draw)];
        survey.hosts = (0..nodes)
            .map(|d| crate::model::Host {
                name: format!("host-{d}"),
                roles: vec![daemon(d)],
                clients: false,
                busy: None,
                facts: vec![],
                link: Some(1_250.0 * (d + 1) as f64),
                networks: 1,
            })
            .collect();
        judge(&mut survey);
        let once = survey.remarks.len();
        judge(&mut survey);
        assert_eq!(survey.remarks.len(), once, "the same remark twice");
        survey
    };
    let slow = survey(2, [100.0, 1_000.0]);
    let culprit = slow.verdict.culprit.as_ref().unwrap();
    assert_eq!(culprit.member, format!("{}{ARROW}{}", daemon(0), daemon(1)));
    assert!(culprit.finding.starts_with("this path is slow, the way back is not: it is at "), "{culprit:?}");
    let both = survey(2, [100.0, 100.0]);
    assert!(both.verdict.culprit.is_none());
    assert!(both.remarks[0].contains("a node cannot be told from its path"), "{:?}", both.remarks);
    assert!(both.remarks[0].contains("of the 1250 that the slower interface"), "{:?}", both.remarks);
    assert!(survey(3, [1_000.0, 1_000.0]).remarks.is_empty());
}

//! Processor time that every daemon gets: a thread of the daemon is busy for a while.

use super::Run;
use super::rounds::{any_may_lag, side_by_side};
use skep_base::{Failure, Outcome};
use skep_bench::significance::median;
use skep_instruments::client::ask;
use skep_instruments::question::{Findings, Measurement, ProcessorFound, ProcessorTest};
use skep_survey::ids;
use skep_survey::lag::LAGS_AT;
use skep_survey::model::{Layer, LayerId, MemberResult, SideBySide};
use skep_types::ServiceKind;
use std::time::Duration;

/// A daemon answers within this time, even one that hardly gets any.
const LIMIT: Duration = Duration::from_secs(60);
/// Part of a processor with which mgmtd does all its work in time: heartbeats, maps, sessions.
const MGMTD_NEEDS: f64 = 0.05;
/// Several threads of a group are held back at the same time, so the sum may exceed the time on the clock.
const LEAST_FREE: f64 = 0.01;

/// Processor time over time on the clock.
fn share(found: &ProcessorFound) -> Outcome<f64> {
    found.shares().first().copied().ok_or_else(|| Failure::new("no round was measured"))
}

/// Share of the time in which the control group let the daemon run; all of it where nothing tells. It does not
/// depend on what else the machine does, so it shows a quota also where everybody gets little.
fn free(found: &ProcessorFound) -> f64 {
    let wall: f64 = found.rounds.iter().map(|round| round.wall_ms).sum();
    let held = found.throttled_ms.unwrap_or(0.0);
    if wall > 0.0 { (1.0 - held / wall).clamp(LEAST_FREE, 1.0) } else { 1.0 }
}

/// Daemons that are compared with each other: those of one service; a lone one with all that carry data or names.
fn likes(daemons: &[(ServiceKind, String)]) -> Vec<(String, Vec<String>)> {
    let of = |chosen: &dyn Fn(ServiceKind) -> bool| -> Vec<String> {
        daemons.iter().filter(|(service, _)| chosen(*service)).map(|(_, name)| name.clone()).collect()
    };
    let mut sets = Vec::new();
    for service in [ServiceKind::Mgmtd, ServiceKind::Metad, ServiceKind::Storaged] {
        let own = of(&|one| one == service);
        let set = match own.len() {
            0 => continue,
            1 if service != ServiceKind::Mgmtd => of(&|one| one != ServiceKind::Mgmtd),
            _ => own,
        };
        sets.push((service.as_str().to_owned(), set));
    }
    sets
}

/// What is to be said of a lone mgmtd.
#[derive(Debug, PartialEq)]
enum Managers {
    Fine,
    /// Less than others, but all it needs.
    Little(String),
    /// Less than it needs.
    TooLittle,
}

fn managers(daemons: &[(ServiceKind, String)], sides: &[Vec<MemberResult>]) -> Managers {
    let of = |figure: usize, wanted: bool| {
        let named = |name: &str| {
            daemons.iter().any(|(service, one)| one == name && (*service == ServiceKind::Mgmtd) == wanted)
        };
        let members = sides.get(figure)?.iter().filter(|member| named(&member.name));
        median(&members.flat_map(|member| member.samples.clone()).collect::<Vec<f64>>())
    };
    let mut least: Option<(f64, f64)> = None;
    for figure in 0..sides.len() {
        let (Some(own), Some(others)) = (of(figure, true), of(figure, false)) else { return Managers::Fine };
        if own <= LAGS_AT * others && least.is_none_or(|(known, _)| own < known) {
            least = Some((own, others));
        }
    }
    match least {
        None => Managers::Fine,
        Some((own, _)) if own < MGMTD_NEEDS => Managers::TooLittle,
        Some((own, others)) => Managers::Little(format!(
            "mgmtd gets {own:.2} of a processor where the other daemons get {others:.2}: it carries no data, and \
             {MGMTD_NEEDS} are enough for it"
        )),
    }
}

/// A mgmtd that gets less than it needs is compared with everybody.
fn with_managers(
    mut sets: Vec<(String, Vec<String>)>,
    daemons: &[(ServiceKind, String)],
) -> Vec<(String, Vec<String>)> {
    let name = ServiceKind::Mgmtd.as_str();
    sets.iter_mut().filter(|(set, _)| set == name).for_each(|(_, members)| {
        *members = daemons.iter().map(|(_, name)| name.clone()).collect();
    });
    sets
}

pub fn measure(run: &mut Run<'_>) -> Outcome<Layer> {
    let nodes = &run.members.nodes;
    let names: Vec<String> = nodes.iter().map(|node| node.alias.clone()).collect();
    let test = ProcessorTest { round_ms: run.preset.processor_ms, rounds: 1, threads: 1 };
    let measure =
        |at: usize| match ask(run.cluster, &nodes[at], &Measurement::Processor(test.clone()), LIMIT)? {
            Findings::Processor(found) => Ok(vec![share(&found)?, free(&found)]),
            _ => Err(Failure::new("the answer is to another question")),
        };
    let daemons: Vec<(ServiceKind, String)> =
        nodes.iter().map(|node| (node.service, node.alias.clone())).collect();
    let sets = likes(&daemons);
    let doubtful = |_, members: &[_]| any_may_lag(sets.iter().map(|(_, names)| names.as_slice()), members);
    let (sides, failed) = side_by_side(&names, run.preset.rounds, 2, measure, doubtful);
    run.missing(LayerId::Processor, failed);
    let sets = match managers(&daemons, &sides) {
        Managers::Fine => sets,
        Managers::Little(text) => {
            run.remark(text);
            sets
        }
        Managers::TooLittle => with_managers(sets, &daemons),
    };
    let command = run.lines.only("processor");
    run.commands.push(command.clone());
    let titled = [
        (
            ids::PROCESSOR_SHARE,
            "Share of a processor that a busy thread of the daemon gets",
            "of a processor",
        ),
        (ids::PROCESSOR_FREE, "Time in which its control group did not hold the daemon back", "of the time"),
    ];
    let side = |(members, (id, title, unit)): (&Vec<MemberResult>, (&str, &str, &str))| {
        let of_set = |(set, names): &(String, Vec<String>)| SideBySide {
            id: format!("{id}.{set}"),
            title: format!("{title} ({set})"),
            unit: unit.to_owned(),
            more_is_better: true,
            members: members.iter().filter(|member| names.contains(&member.name)).cloned().collect(),
            command: command.clone(),
        };
        sets.iter().map(of_set).filter(|side| !side.members.is_empty()).collect::<Vec<SideBySide>>()
    };
    let sides = sides.iter().zip(titled).flat_map(side);
    Ok(Layer {
        id: LayerId::Processor,
        about: format!(
            "In every daemon a thread was busy for {} ms, one daemon at a time, {} times in turn; the figure is the \
             processor time that it got in relation to the time on the clock. Daemons of one service are compared with \
             each other, a lone one with those that carry data. Whoever is below its likes shares its processors \
             with others, is bound to few, or is held back by its control group.",
            run.preset.processor_ms, run.preset.rounds
        ),
        curves: Vec::new(),
        sides: sides.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_instruments::question::ProcessorRound;

    /// Goal: time that the group held back is told apart from time that others took, and never exceeds the clock.
    #[test]
    fn held_back() {
        let found = |throttled_ms| ProcessorFound {
            rounds: vec![ProcessorRound { wall_ms: 200.0, cpu_ms: 40.0, waited_ms: 0.0, pace: 1.0 }],
            throttled: None,
            throttled_ms,
        };
        assert_eq!(
            [None, Some(0.0), Some(150.0), Some(900.0)].map(|ms| free(&found(ms))),
            [1.0, 1.0, 0.25, 0.01]
        );
        assert_eq!(share(&found(None)).unwrap(), 0.2);
        assert_eq!(free(&ProcessorFound::default()), 1.0);
        assert!(share(&ProcessorFound::default()).is_err());
    }

    fn daemons() -> Vec<(ServiceKind, String)> {
        use ServiceKind::{Metad, Mgmtd, Storaged};
        [(Mgmtd, "g"), (Metad, "m"), (Storaged, "s1"), (Storaged, "s2"), (Storaged, "s3")]
            .map(|(service, name)| (service, name.to_owned()))
            .into()
    }

    fn shares(of: &[(&str, f64)]) -> Vec<MemberResult> {
        let all = daemons().into_iter().map(|(_, name)| {
            let share = of.iter().find(|(one, _)| *one == name).map_or(0.9, |(_, share)| *share);
            MemberResult {
                name,
                samples: [1.0, 1.05, 0.95, 1.02, 0.97].map(|x| x * share).into(),
                outlier: None,
            }
        });
        all.collect()
    }

    /// Who lags in the sets that are judged.
    fn blamed(sets: &[(String, Vec<String>)], members: &[MemberResult]) -> Vec<String> {
        let of_set = |(_, names): &(String, Vec<String>)| {
            let members: Vec<MemberResult> =
                members.iter().filter(|member| names.contains(&member.name)).cloned().collect();
            let side = SideBySide {
                id: String::new(),
                title: String::new(),
                unit: String::new(),
                more_is_better: true,
                members,
                command: String::new(),
            };
            let lags = skep_survey::lag::laggards(&side);
            lags.into_iter().map(|lag| side.members[lag.at].name.clone()).collect::<Vec<_>>()
        };
        let mut all: Vec<String> = sets.iter().flat_map(of_set).collect();
        all.dedup();
        all
    }

    /// Goal: by its share alone a daemon at a fifth of a processor is found, also a lone one; no quota is needed.
    #[test]
    fn starved_without_a_quota() {
        let sets = likes(&daemons());
        for name in ["s2", "m"] {
            assert_eq!(blamed(&sets, &shares(&[(name, 0.2)])), [name]);
        }
        assert!(blamed(&sets, &shares(&[])).is_empty());
    }

    /// Goal: a mgmtd with little processor time is a remark, one with too little a finding.
    #[test]
    fn a_quota_on_mgmtd() {
        let all = daemons();
        let of = |share: f64| shares(&[("g", share)]);
        assert_eq!(managers(&all, &[of(0.9), of(0.9)]), Managers::Fine);
        let Managers::Little(text) = managers(&all, &[of(0.2), of(0.9)]) else { panic!() };
        assert!(text.contains("0.20 of a processor"), "{text}");
        assert!(blamed(&likes(&all), &of(0.2)).is_empty());
        assert_eq!(managers(&all, &[of(0.9), of(0.02)]), Managers::TooLittle);
        assert_eq!(blamed(&with_managers(likes(&all), &all), &of(0.02)), ["g"]);
    }
}

//! Processor time that every daemon gets: a thread of the daemon is busy for a while.

use super::Run;
use super::rounds::{may_lag, side_by_side};
use crate::admin::{Failure, Outcome};
use crate::instruments::client::ask;
use crate::instruments::question::{Findings, Measurement, ProcessorFound, ProcessorTest};
use skep_survey::ids;
use skep_survey::model::{Layer, LayerId, SideBySide};
use std::time::Duration;

/// A daemon answers within this time, even one that hardly gets any.
const LIMIT: Duration = Duration::from_secs(60);
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

/// The layer.
pub fn measure(run: &mut Run<'_>) -> Outcome<Layer> {
    let nodes = &run.members.nodes;
    let names: Vec<String> = nodes.iter().map(|node| node.alias.clone()).collect();
    let test = ProcessorTest { round_ms: run.preset.processor_ms, rounds: 1, threads: 1 };
    let measure =
        |at: usize| match ask(run.cluster, &nodes[at], &Measurement::Processor(test.clone()), LIMIT)? {
            Findings::Processor(found) => Ok(vec![share(&found)?, free(&found)]),
            _ => Err(Failure::new("the answer is to another question")),
        };
    let doubtful = |_, members: &[_]| may_lag(members, true);
    let (sides, failed) = side_by_side(&names, run.preset.rounds, 2, measure, doubtful);
    failed.into_iter().for_each(|text| run.remark(text));
    let command =
        format!("skep survey --only processor # a busy thread, {} ms a round", run.preset.processor_ms);
    run.commands.push(command.clone());
    let titled = [
        (
            ids::PROCESSOR_SHARE,
            "Share of a processor that a busy thread of the daemon gets",
            "of a processor",
        ),
        (ids::PROCESSOR_FREE, "Time in which its control group did not hold the daemon back", "of the time"),
    ];
    let sides = sides.into_iter().zip(titled).map(|(members, (id, title, unit))| SideBySide {
        id: id.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        more_is_better: true,
        members,
        command: command.clone(),
    });
    Ok(Layer {
        id: LayerId::Processor,
        about: format!(
            "In every daemon a thread was busy for {} ms, one daemon at a time, {} times in turn; the figure is the \
             processor time that it got in relation to the time on the clock. A daemon below its likes shares its \
             processors with others, or its control group holds it back.",
            run.preset.processor_ms, run.preset.rounds
        ),
        curves: Vec::new(),
        sides: sides.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::question::ProcessorRound;

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
}

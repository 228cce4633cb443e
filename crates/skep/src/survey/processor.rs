//! Processor time that every daemon gets: a thread of the daemon is busy for a while.

use super::Run;
use super::rounds::{may_lag, side_by_side};
use crate::admin::{Failure, Outcome};
use crate::instruments::client::ask;
use crate::instruments::question::{Findings, Measurement, ProcessorTest};
use skep_survey::ids;
use skep_survey::model::{Layer, LayerId, SideBySide};
use std::time::Duration;

/// A daemon answers within this time, even one that hardly gets any.
const LIMIT: Duration = Duration::from_secs(60);

/// The layer.
pub fn measure(run: &mut Run<'_>) -> Outcome<Layer> {
    let nodes = &run.members.nodes;
    let names: Vec<String> = nodes.iter().map(|node| node.alias.clone()).collect();
    let test = ProcessorTest { round_ms: run.preset.processor_ms, rounds: 1, threads: 1 };
    let measure =
        |at: usize| match ask(run.cluster, &nodes[at], &Measurement::Processor(test.clone()), LIMIT)? {
            Findings::Processor(found) => Ok(found.shares()),
            _ => Err(Failure::new("the answer is to another question")),
        };
    let doubtful = |_, members: &[_]| may_lag(members, true);
    let (sides, failed) = side_by_side(&names, run.preset.rounds, 1, measure, doubtful);
    failed.into_iter().for_each(|text| run.remark(text));
    let command =
        format!("skep survey --only processor # a busy thread, {} ms a round", run.preset.processor_ms);
    run.commands.push(command.clone());
    let sides = sides.into_iter().map(|members| SideBySide {
        id: ids::PROCESSOR_SHARE.to_owned(),
        title: "Share of a processor that a busy thread of the daemon gets".to_owned(),
        unit: "of a processor".to_owned(),
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

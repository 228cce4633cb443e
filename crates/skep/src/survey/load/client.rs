//! One client: one process, over transfer sizes.

use super::super::{Run, RunArgs};
use super::{Figure, Place, Shown, curves, foreign, note};
use crate::admin::Outcome;
use skep_bench::job::{IoJob, Job, Work, format_size};
use skep_survey::ids::{CLIENT, READ, WRITE};
use skep_survey::model::{Layer, LayerId};

/// Transfer sizes.
const TRANSFERS: [u64; 4] = [128 << 10, 1 << 20, 4 << 20, 16 << 20];

/// The layer.
pub fn measure(run: &mut Run<'_>, place: &Place, args: &RunArgs) -> Outcome<Layer> {
    let size = run.preset.process_size;
    let command = note(
        run,
        format!(
            "skep bench io {} --block {} --transfer TRANSFER --repetitions {} --invalidate",
            place.path(),
            format_size(size),
            run.preset.repeats
        ),
    );
    let shown = [(WRITE, "Write"), (READ, "Read")].map(|(phase, title)| Shown {
        phase,
        id: format!("{CLIENT}.{phase}"),
        title: format!("{title}, one process"),
    });
    let repeats = run.preset.repeats;
    let mut found = curves(
        &run.hosts,
        &TRANSFERS,
        "transfer size (bytes)",
        Figure::Bytes,
        &shown,
        &command,
        |transfer| {
            let mut job = Job::new(Work::Io(IoJob {
                transfer,
                block: size,
                invalidate: true,
                ..IoJob::new(&place.path())
            }));
            job.repetitions = repeats;
            job
        },
    )?;
    for program in &args.with {
        match foreign::stream(run, place, *program) {
            Ok(curves) => found.extend(curves),
            Err(failure) => run.remark(format!("{}: {failure}", program.name())),
        }
    }
    Ok(Layer {
        id: LayerId::Client,
        about: format!(
            "One process writes a file of {} and reads it, {repeats} times for each transfer size; fsync and close are \
             inside the time, and pages of the file are dropped before it is read.",
            format_size(size)
        ),
        curves: found,
        sides: Vec::new(),
    })
}

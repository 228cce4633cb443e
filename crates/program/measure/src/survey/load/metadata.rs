//! Names: files are created, looked at, opened and removed, over processes.

use super::super::{Run, RunArgs, commands};
use super::{Figure, Foreign, Found, Load, Place, Shown, foreign, note, of_parts, places};
use skep_base::Outcome;
use skep_bench::job::{Items, Job, MetaJob, MetaPhase, Readers, Work};
use skep_survey::ids::METADATA;
use skep_survey::model::{Layer, LayerId};

/// What is done with every file.
const PHASES: [MetaPhase; 4] = [MetaPhase::Create, MetaPhase::Stat, MetaPhase::OpenRead, MetaPhase::Remove];
/// Phase of results, curve, title.
const SHOWN: [(&str, &str, &str); 4] = [
    ("file create", "create", "Create"),
    ("file stat", "stat", "Stat"),
    ("file open-read", "open", "Open and close"),
    ("file remove", "remove", "Remove"),
];

/// The layer: what of it can be measured.
pub fn measure(run: &mut Run<'_>, place: &Place, args: &RunArgs) -> Outcome<Layer> {
    let parts = vec![
        ("names, a directory per process", over_processes(run, place, true)),
        ("names, one directory for all", over_processes(run, place, false)),
        (
            "other programs",
            Ok((foreign::all(run, place, args, |program| program == Foreign::Mdtest), Vec::new())),
        ),
    ];
    let (files, repeats) = (run.preset.files, run.preset.repeats);
    let about = format!(
        "1, 2, 4 ... processes until more bring nothing, each {files} empty files, every place {repeats} times; each \
         process looks at, opens and removes what another created. First a directory each, then one for all."
    );
    of_parts(run, LayerId::Metadata, about, parts)
}

/// In a directory per process, or in one for all.
fn over_processes(run: &mut Run<'_>, place: &Place, own_tree: bool) -> Outcome<Found> {
    let (files, repeats) = (run.preset.files, run.preset.repeats);
    let hosts = run.hosts.clone();
    let (suffix, words, flag) = match own_tree {
        true => ("", "a directory per process", ""),
        false => (".shared", "one directory for all", " --shared"),
    };
    let load = Load {
        hosts: &hosts,
        places: places(run),
        axis: "processes",
        figure: Figure::Operations,
        shown: SHOWN
            .map(|(phase, id, title)| Shown {
                phase,
                id: format!("{METADATA}.{id}{suffix}"),
                title: format!("{title}, {words}"),
            })
            .into(),
    };
    let measured = load.run(run, |processes| {
        let meta = MetaJob {
            items: Items::Total(files),
            phases: PHASES.to_vec(),
            own_tree,
            readers: Readers::Shift { workers: 1 },
            ..MetaJob::new(&place.path())
        };
        let mut job = Job::new(Work::Meta(meta));
        job.workers.processes = processes as u32;
        job.repetitions = repeats;
        job
    })?;
    let lines = run.lines.clone();
    let line = |n: &str| {
        format!(
            "skep bench meta {} --items {files}{flag} --readers shift:1 --phases create,stat,open-read,remove \
             --repetitions {repeats} --processes {n}{}",
            place.shown(),
            lines.hosts(n)
        )
    };
    let command = note(run, commands::each("n", &measured.places, line));
    Ok((measured.curves(&load, &command), measured.sides(&load, &command)))
}

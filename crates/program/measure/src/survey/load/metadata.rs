//! Names: files are created, looked at, opened and removed, over processes.

use super::super::{Run, RunArgs, commands};
use super::{Figure, Foreign, Found, Load, Place, Shown, foreign, note, of_parts, places};
use crate::dealt::Dealt;
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
    let most = u32::try_from(places(run).into_iter().max().unwrap_or(1)).unwrap_or(u32::MAX);
    let dealt = dealt(run, place, args, most);
    let parts = vec![
        ("names, a directory per process", over_processes(run, place, Some(&dealt))),
        ("names, one directory for all", over_processes(run, place, None)),
        (
            "other programs",
            Ok((foreign::all(run, place, args, |program| program == Foreign::Mdtest), Vec::new())),
        ),
    ];
    let (files, repeats) = (run.preset.files, run.preset.repeats);
    let about = format!(
        "1, 2, 4 ... processes until more bring nothing, each {files} empty files, every place {repeats} times; each \
         process looks at, opens and removes what another created. First a directory each, then one for all.{}",
        spread_said(&dealt)
    );
    of_parts(run, LayerId::Metadata, about, parts)
}

/// Directories for the processes, over as many groups of the metadata servers as they reach: in one directory of ours all
/// would lie on one.
fn dealt(run: &mut Run<'_>, place: &Place, args: &RunArgs, most: u32) -> Dealt {
    Dealt::make(&args.access, &place.dir, most).unwrap_or_else(|failure| {
        run.remark(format!(
            "names: all lie on one group of one metadata server: no directory could be dealt out: {failure}"
        ));
        Dealt { dirs: vec![place.dir.clone()], groups: 1, all: 1 }
    })
}

/// What a reader must know of a cluster with several groups.
fn spread_said(dealt: &Dealt) -> String {
    match dealt.all {
        0 | 1 => String::new(),
        _ => format!(
            " Each directory is on one group of shards, a thread of a metadata server: those of the processes were dealt out \
             ({dealt}; with fewer processes fewer of them were used), the one for all, and those of other programs, are on \
             one group, so their rates are not the cluster's."
        ),
    }
}

/// In a directory per process, as they were dealt out, or in one for all.
fn over_processes(run: &mut Run<'_>, place: &Place, dealt: Option<&Dealt>) -> Outcome<Found> {
    let (files, repeats) = (run.preset.files, run.preset.repeats);
    let hosts = run.hosts.clone();
    let spread = format!(" --spread{}", run.lines.cluster());
    let (suffix, words, flag) = match dealt {
        Some(dealt) if dealt.all > 1 => ("", "a directory per process", spread.as_str()),
        Some(_) => ("", "a directory per process", ""),
        None => (".shared", "one directory for all", " --shared"),
    };
    let paths = match dealt {
        Some(dealt) => dealt.dirs.iter().map(|dir| dir.display().to_string()).collect(),
        None => vec![place.path()],
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
            paths: paths.clone(),
            own_tree: dealt.is_some(),
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

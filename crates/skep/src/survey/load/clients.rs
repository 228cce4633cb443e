//! All clients: streams into own files and into one file, random access, over processes.

use super::super::Run;
use super::{Figure, Place, Shown, curves, doublings, note};
use crate::admin::Outcome;
use skep_bench::job::{IoJob, IoKind, IoPhase, Job, Order, Readers, Share, Stonewall, Work, format_size};
use skep_survey::ids::{CLIENTS, ONE_FILE, OWN_FILES, RANDOM_READ, RANDOM_WRITE, READ, WRITE};
use skep_survey::model::{Curve, Layer, LayerId};

/// Transfer size of streams.
const TRANSFER: u64 = 1 << 20;
/// Transfer size of random access.
const RECORD: u64 = 4 << 10;
/// Transfers of one process lie so many bytes together in a shared file.
const PIECE: u64 = 4 << 20;

/// The layer.
pub fn measure(run: &mut Run<'_>, place: &Place) -> Outcome<Layer> {
    let mut found = streams(run, place, Share::PerWorker)?;
    found.extend(streams(run, place, Share::Segmented)?);
    found.extend(random(run, place)?);
    found.extend(super::super::sweep::within(run, place)?);
    Ok(Layer {
        id: LayerId::Clients,
        about: format!(
            "1, 2, 4 ... processes until more bring nothing, each {} of data, every place {} times: a file each, then \
             pieces of {} in one shared file; fsync and close are inside the time, and each process reads what another \
             wrote. Then {} at random places past the page cache.",
            format_size(run.preset.process_size),
            run.preset.repeats,
            format_size(PIECE),
            format_size(RECORD),
        ),
        curves: found,
        sides: Vec::new(),
    })
}

fn job(processes: u64, repeats: u32, io: IoJob) -> Job {
    let mut job = Job::new(Work::Io(io));
    job.workers.processes = processes as u32;
    job.repetitions = repeats;
    job
}

fn streams(run: &mut Run<'_>, place: &Place, share: Share) -> Outcome<Vec<Curve>> {
    let (suffix, words, flag) = match share {
        Share::PerWorker => (OWN_FILES, "a file per process", ""),
        _ => (ONE_FILE, "all processes in one file", " --shared segmented"),
    };
    let (size, repeats) = (run.preset.process_size, run.preset.repeats);
    let (block, segments) =
        if share == Share::PerWorker { (size, 1) } else { (PIECE, (size / PIECE).max(1)) };
    let command = note(
        run,
        format!(
            "skep bench io {} --processes PROCESSES{flag} --block {} --segments {segments} --transfer {} \
             --readers shift:1 --repetitions {repeats} --invalidate",
            place.path(),
            format_size(block),
            format_size(TRANSFER),
        ),
    );
    let shown = [(WRITE, "Write"), (READ, "Read")].map(|(phase, title)| Shown {
        phase,
        id: format!("{CLIENTS}.{phase}{suffix}"),
        title: format!("{title}, {words}"),
    });
    curves(
        &run.hosts,
        &doublings(run.preset.processes),
        "processes",
        Figure::Bytes,
        &shown,
        &command,
        |processes| {
            let io = IoJob {
                share,
                transfer: TRANSFER,
                block,
                segments,
                invalidate: true,
                readers: Readers::Shift { workers: 1 },
                ..IoJob::new(&place.path())
            };
            job(processes, repeats, io)
        },
    )
}

fn random(run: &mut Run<'_>, place: &Place) -> Outcome<Vec<Curve>> {
    let (size, repeats, after_ms) = (run.preset.process_size, run.preset.repeats, run.preset.random_ms);
    let command = note(
        run,
        format!(
            "skep bench io {} --processes PROCESSES --block {} --transfer {} --phases write+setup,repeating-read,repeating-rewrite \
             --direct --stonewall {after_ms}ms --repeat --repetitions {repeats}",
            place.path(),
            format_size(size),
            format_size(RECORD),
        ),
    );
    let shown =
        [("random read", RANDOM_READ, "Random reads"), ("random rewrite", RANDOM_WRITE, "Random writes")]
            .map(|(phase, id, title)| Shown {
                phase,
                id: format!("{CLIENTS}.{id}"),
                title: format!("{title} of {}, own files", format_size(RECORD)),
            });
    curves(
        &run.hosts,
        &doublings(run.preset.processes),
        "processes",
        Figure::Operations,
        &shown,
        &command,
        |processes| {
            let io = IoJob {
                phases: vec![
                    IoPhase::new(IoKind::Write).as_setup(),
                    IoPhase::new(IoKind::Read).in_order(Order::RandomRepeating),
                    IoPhase::new(IoKind::Rewrite).in_order(Order::RandomRepeating),
                ],
                transfer: RECORD,
                block: size,
                direct: true,
                ..IoJob::new(&place.path())
            };
            let mut job = job(processes, repeats, io);
            job.stonewall = Some(Stonewall { after_ms, wear_out: false, repeat: true });
            job
        },
    )
}

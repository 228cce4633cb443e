//! All clients: streams into own files and into one file, random access, over processes.

use super::super::{Run, RunArgs, commands, sweep};
use super::{Figure, Foreign, Found, Load, Place, Shown, foreign, note, of_parts, places};
use skep_base::Outcome;
use skep_bench::job::{IoJob, IoKind, IoPhase, Job, Order, Readers, Share, Stonewall, Work, format_size};
use skep_survey::ids::{CLIENTS, ONE_FILE, OWN_FILES, RANDOM_READ, RANDOM_WRITE, READ, WRITE};
use skep_survey::model::{Curve, Layer, LayerId};

/// Transfer size of streams.
const TRANSFER: u64 = 1 << 20;
/// Transfer size of random access.
const RECORD: u64 = 4 << 10;
/// Transfers of one process lie so many bytes together in a shared file.
const PIECE: u64 = 4 << 20;

/// The layer: what of it can be measured.
pub fn measure(run: &mut Run<'_>, place: &Place, args: &RunArgs) -> Outcome<Layer> {
    let alone = |curves: Vec<Curve>| (curves, Vec::new());
    let parts = vec![
        ("streams, a file per process", streams(run, place, Share::PerWorker)),
        ("streams, all processes in one file", streams(run, place, Share::Segmented)),
        ("random access", random(run, place)),
        ("the search for the best settings", sweep::within(run, place).map(alone)),
        ("other programs", Ok(alone(foreign::all(run, place, args, |program| program != Foreign::Mdtest)))),
    ];
    let about = format!(
        "1, 2, 4 ... processes until more bring nothing, each {} of data, every place {} times: a file each, then \
         pieces of {} in one shared file; fsync and close are inside the time, and each process reads what another \
         wrote. Then {} at random places past the page cache.",
        format_size(run.preset.process_size),
        run.preset.repeats,
        format_size(PIECE),
        format_size(RECORD),
    );
    of_parts(run, LayerId::Clients, about, parts)
}

/// What is measured over processes: the steps that count, what each process does, and the line that measures it again,
/// which has everything but the processes and their hosts.
struct Way {
    figure: Figure,
    shown: Vec<Shown>,
    io: IoJob,
    stonewall: Option<Stonewall>,
    line: String,
}

/// Curves over processes, and hosts of clients beside each other.
fn over_processes(run: &mut Run<'_>, way: Way) -> Outcome<Found> {
    let (hosts, lines, repeats) = (run.hosts.clone(), run.lines.clone(), run.preset.repeats);
    let Way { figure, shown, io, stonewall, line } = way;
    let load = Load { hosts: &hosts, places: places(run), axis: "processes", figure, shown };
    let measured = load.run(run, |processes| {
        let mut job = Job::new(Work::Io(io.clone()));
        job.workers.processes = processes as u32;
        job.repetitions = repeats;
        job.stonewall = stonewall;
        job
    })?;
    let line = |n: &str| format!("{line} --repetitions {repeats} --processes {n}{}", lines.hosts(n));
    let command = note(run, commands::each("n", &measured.places, line));
    Ok((measured.curves(&load, &command), measured.sides(&load, &command)))
}

fn streams(run: &mut Run<'_>, place: &Place, share: Share) -> Outcome<Found> {
    let (suffix, words, flag) = match share {
        Share::PerWorker => (OWN_FILES, "a file per process", ""),
        _ => (ONE_FILE, "all processes in one file", " --shared segmented"),
    };
    let size = run.preset.process_size;
    let (block, segments) =
        if share == Share::PerWorker { (size, 1) } else { (PIECE, (size / PIECE).max(1)) };
    let shown = [(WRITE, "Write"), (READ, "Read")].map(|(phase, title)| Shown {
        phase,
        id: format!("{CLIENTS}.{phase}{suffix}"),
        title: format!("{title}, {words}"),
    });
    let io = IoJob {
        share,
        transfer: TRANSFER,
        block,
        segments,
        invalidate: true,
        readers: Readers::Shift { workers: 1 },
        ..IoJob::new(&place.path())
    };
    let line = format!(
        "skep bench io {}{flag} --block {} --segments {segments} --transfer {} --readers shift:1",
        place.shown(),
        format_size(block),
        format_size(TRANSFER),
    );
    over_processes(run, Way { figure: Figure::Bytes, shown: shown.into(), io, stonewall: None, line })
}

fn random(run: &mut Run<'_>, place: &Place) -> Outcome<Found> {
    let (size, after_ms) = (run.preset.process_size, run.preset.random_ms);
    let rows =
        [("random read", RANDOM_READ, "Random reads"), ("random rewrite", RANDOM_WRITE, "Random writes")];
    let shown = rows.map(|(phase, id, title)| Shown {
        phase,
        id: format!("{CLIENTS}.{id}"),
        title: format!("{title} of {}, own files", format_size(RECORD)),
    });
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
    let line = format!(
        "skep bench io {} --block {} --transfer {} --phases write+setup,repeating-read,repeating-rewrite --direct \
         --cached --stonewall {after_ms}ms --repeat",
        place.shown(),
        format_size(size),
        format_size(RECORD),
    );
    let stonewall = Some(Stonewall { after_ms, wear_out: false, repeat: true });
    over_processes(run, Way { figure: Figure::Operations, shown: shown.into(), io, stonewall, line })
}

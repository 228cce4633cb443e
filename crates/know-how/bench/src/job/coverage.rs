//! What the phases of a job leave in its files: whether a phase can read, and compare, what it needs.
//!
//! A verification that reports damage where there is none is worse than none, so a job after which nobody could
//! say which transfers were written is refused before anything is made.

use super::{IoJob, IoKind, Job, JobError, Order, refuse};

/// What is known of the data before a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// There is none.
    Nothing,
    /// An earlier run wrote it; verification finds out in which pass, word by word. It may as well be foreign.
    Kept,
    /// Parts of it are kept from before, others are of this job.
    Blended,
    /// Every transfer was written by a pass of this job that is known, or as far as the clock let a write come.
    Whole,
}

const BLENDED: &str = "verify: the files are there already and are written over in part only, so nobody can tell \
     what they must hold; write all of them in order first, or let the job make its files";
/// So many bytes hold a whole word wherever they begin; a smaller part names no pass.
const KEPT_TRANSFER_LEAST: u64 = 15;
const SMALL: &str = "verify: the files are an earlier run's, and transfers below 15 bytes do not tell which of its \
     passes wrote them; read them with larger transfers";
const HOLES: &str = "a write in repeating random order leaves some transfers out, so nothing may read after it; lay \
     the files out first (write+setup), or write in random order without repetition";
const CUT: &str = "stonewall: which transfers a write left out that is not in order cannot be told, so no phase may \
     follow it; write in order, or lay the files out first (write+setup)";

impl IoJob {
    /// Whether a write of this order covers all of the data, or, by the clock, all of it up to a point.
    pub(crate) fn covers(order: Order, by_clock: bool) -> bool {
        match order {
            Order::Forward => true,
            Order::RandomRepeating => false,
            Order::Backward | Order::Random | Order::Stride { .. } => !by_clock,
        }
    }
}

/// Goes through the phases as the workers will.
pub(super) fn check(job: &Job, io: &IoJob) -> Result<(), JobError> {
    let mut known = if job.existing { Known::Kept } else { Known::Nothing };
    // Why the data has holes when it has.
    let mut holes = None;
    for phase in &io.phases {
        let by_clock = job.stonewall.is_some() && !phase.setup;
        if phase.kind.needs_data()
            && let Some(why) = holes
        {
            return refuse(why);
        }
        let reads = matches!(phase.kind, IoKind::Read | IoKind::Reread);
        if phase.verify && reads && known == Known::Kept && io.transfer < KEPT_TRANSFER_LEAST {
            return refuse(SMALL);
        }
        let covers = IoJob::covers(phase.order, by_clock);
        known = match (phase.kind, known) {
            (IoKind::Write, _) if covers => {
                holes = None;
                Known::Whole
            }
            (IoKind::Write, Known::Nothing) => {
                holes = Some(if phase.order == Order::RandomRepeating { HOLES } else { CUT });
                Known::Nothing
            }
            // A rewrite that the clock ends covers its part only.
            (IoKind::Rewrite, _) if covers && !by_clock => Known::Whole,
            (_, Known::Kept | Known::Blended) if phase.kind.writes() => Known::Blended,
            // The comparison finds out which pass wrote what was kept.
            (_, Known::Kept) if phase.verify => Known::Whole,
            (_, known) => known,
        };
        if phase.verify && known == Known::Blended {
            return refuse(BLENDED);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{IoPhase, Stonewall, Work};

    const WRITE: IoPhase =
        IoPhase { kind: IoKind::Write, order: Order::Forward, verify: false, setup: false };
    const READ: IoPhase = IoPhase { kind: IoKind::Read, order: Order::Forward, verify: true, setup: false };

    fn checked(phases: &[IoPhase], existing: bool, wall: Option<bool>) -> Result<(), String> {
        let mut job = Job::new(Work::Io(IoJob { phases: phases.to_vec(), ..IoJob::new("/tmp") }));
        job.existing = existing;
        job.stonewall = wall.map(|repeat| Stonewall { after_ms: 5, wear_out: false, repeat });
        job.check().map_err(|error| error.0)
    }

    /// Goal: jobs whose data nobody could know are refused with the reason, with and without a clock.
    #[test]
    fn what_cannot_be_known_is_refused() {
        let random = WRITE.in_order(Order::Random);
        let repeating = WRITE.in_order(Order::RandomRepeating);
        let mixed = IoPhase::new(IoKind::Mixed { read_percent: 50 });
        let rewrite = IoPhase::new(IoKind::Rewrite);
        type Case<'a> = (&'a [IoPhase], bool, Option<bool>, &'a str);
        let cases: [Case; 8] = [
            (&[repeating, READ], false, None, "leaves some transfers out"),
            (&[repeating, READ], true, None, "already"),
            (&[random, READ], false, Some(false), "stonewall"),
            (&[random, READ], false, Some(true), "stonewall"),
            (&[mixed, READ], true, None, "already"),
            (&[mixed.verified()], true, None, "already"),
            (&[rewrite, READ], true, Some(false), "already"),
            (&[WRITE.in_order(Order::Backward), mixed], false, Some(false), "stonewall"),
        ];
        for (phases, existing, wall, says) in cases {
            let error = checked(phases, existing, wall).unwrap_err();
            assert!(error.contains(says), "{phases:?}: {error}");
        }
    }

    /// Goal: files of an earlier run are not compared piece by piece of less than a word; what this run wrote is.
    #[test]
    fn small_transfers() {
        let checked = |phases: &[IoPhase], transfer: u64| {
            let io = IoJob { phases: phases.to_vec(), transfer, ..IoJob::new("/tmp") };
            let mut job = Job::new(Work::Io(io));
            job.existing = true;
            job.check().map_err(|error| error.0)
        };
        assert!(checked(&[READ], 14).unwrap_err().contains("larger transfers"));
        checked(&[READ], 15).unwrap();
        checked(&[WRITE, READ], 1).unwrap();
    }

    /// Goal: what can be known is allowed, and what a refusal advises is.
    #[test]
    fn what_can_be_known_is_allowed() {
        let random = WRITE.in_order(Order::Random);
        let repeating = WRITE.in_order(Order::RandomRepeating);
        let rewrite = IoPhase::new(IoKind::Rewrite);
        type Case<'a> = (&'a [IoPhase], bool, Option<bool>);
        let cases: [Case; 10] = [
            (&[WRITE.as_setup(), random, READ], false, Some(false)),
            (&[WRITE.as_setup(), repeating, READ], false, Some(true)),
            (&[WRITE, random, READ], false, Some(false)),
            (&[WRITE, repeating, READ], false, None),
            (&[random, READ], false, None),
            (&[WRITE, READ], false, Some(false)),
            (&[READ], true, None),
            (&[READ, rewrite.in_order(Order::Random), READ], true, Some(false)),
            (&[rewrite, READ], true, None),
            (&[repeating], false, Some(true)),
        ];
        for (phases, existing, wall) in cases {
            checked(phases, existing, wall).unwrap_or_else(|error| panic!("{phases:?}: {error}"));
        }
    }
}

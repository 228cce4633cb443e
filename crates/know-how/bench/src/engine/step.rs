//! The steps of a job: what the director takes the workers through in each repetition.

use crate::job::{FilesPhase, IoJob, IoKind, IoPhase, Job, MetaPhase, Things, Work};
use serde::{Deserialize, Serialize};

/// One step of a repetition.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its place in [`steps`].
    pub index: u32,
    /// Its name in results.
    pub name: String,
    /// What is done.
    pub kind: StepKind,
    /// Whether it is a line of the results.
    pub shown: bool,
    /// Whether the stonewall applies.
    pub walled: bool,
    /// Whether it makes what later steps use, so that what it did not reach they must not touch.
    pub makes: bool,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepKind {
    /// Makes the file that all workers share, before any of them opens it. It has no parts.
    SharedFile,
    /// A pass over file contents.
    Io(IoPhase),
    /// Makes the directories of trees.
    TreeMake,
    /// Something with every file (`true`: directory) of the trees. The number is that of renames of
    /// these items in the steps before.
    Meta(MetaPhase, bool, u32),
    /// Removes the directories of trees.
    TreeRemove,
    /// Something with a source tree or samples.
    Files(FilesPhase),
}

/// Parts of a step; workers wait for each other between them where the job says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Everything at one go.
    All,
    /// Open the files.
    Open,
    /// Move the data.
    Transfer,
    /// fsync and close.
    Finish,
}

/// The steps of each repetition.
pub fn steps(job: &Job) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |name: String, kind: StepKind, shown: bool, makes: bool| {
        let walled = match kind {
            StepKind::Io(phase) => !phase.setup,
            StepKind::Meta(phase, ..) => {
                let creates_only = matches!(&job.work, Work::Meta(meta) if meta.stonewall_creates);
                phase == MetaPhase::Create || !creates_only
            }
            StepKind::Files(phase) => phase == FilesPhase::Train,
            StepKind::SharedFile | StepKind::TreeMake | StepKind::TreeRemove => false,
        };
        // The same phase twice in a repetition is two lines of the results.
        let before = steps.iter().filter(|step: &&Step| step.kind == kind).count();
        let name = if before == 0 { name } else { format!("{name} {}", before + 1) };
        steps.push(Step { index: steps.len() as u32, name, kind, shown, walled, makes });
    };
    match &job.work {
        Work::Io(io) => {
            if io.share.is_shared() && io.phases.iter().any(|phase| phase.kind == IoKind::Write) {
                add("make the file".to_owned(), StepKind::SharedFile, false, false);
            }
            for phase in &io.phases {
                // A write that the clock may end out of order goes over what a write before it made.
                let by_clock = job.stonewall.is_some() && !phase.setup;
                let makes = phase.kind == IoKind::Write && IoJob::covers(phase.order, by_clock);
                add(phase.name(), StepKind::Io(*phase), !phase.setup, makes);
            }
        }
        Work::Meta(meta) => {
            add("tree create".to_owned(), StepKind::TreeMake, meta.time_tree, false);
            let kinds: &[bool] = match meta.things {
                Things::Files => &[false],
                Things::Directories => &[true],
                Things::Both => &[true, false],
            };
            for directories in kinds {
                let mut renames = 0;
                for phase in &meta.phases {
                    let what = if *directories { "directory" } else { "file" };
                    let kind = StepKind::Meta(*phase, *directories, renames);
                    add(format!("{what} {}", phase.name()), kind, true, *phase == MetaPhase::Create);
                    renames += u32::from(*phase == MetaPhase::Rename);
                }
            }
            // Before it whatever the phases left is removed; only the directories are timed.
            add("tree remove".to_owned(), StepKind::TreeRemove, meta.time_tree && !job.keep, false);
        }
        Work::Files(files) => {
            for phase in &files.phases {
                add(phase.name().to_owned(), StepKind::Files(*phase), true, false);
            }
        }
    }
    // Trees that were there before go only where a phase says so.
    let asked = matches!(&job.work, Work::Meta(meta) if meta.phases.contains(&MetaPhase::Remove));
    if job.keep || (job.existing && !asked) {
        steps.retain(|step| step.kind != StepKind::TreeRemove);
    }
    steps
}

/// The parts a step of a job has.
pub fn parts(job: &Job, step: &Step) -> &'static [Part] {
    match &job.work {
        _ if step.kind == StepKind::SharedFile => &[],
        Work::Io(io) if io.barriers => &[Part::Open, Part::Transfer, Part::Finish],
        _ => &[Part::All],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{MetaJob, Share};

    /// Goal: steps come in the job's order, with their names, directories before files.
    #[test]
    fn order() {
        let mut meta = MetaJob::new("/tmp");
        meta.things = Things::Both;
        meta.phases = vec![MetaPhase::Create, MetaPhase::Rename, MetaPhase::Remove];
        let names: Vec<String> =
            steps(&Job::new(Work::Meta(meta))).into_iter().map(|step| step.name).collect();
        let expected = [
            "tree create",
            "directory create",
            "directory rename",
            "directory remove",
            "file create",
            "file rename",
            "file remove",
            "tree remove",
        ];
        assert_eq!(names, expected);
    }

    /// Goal: preparation is not shown and not stopped by the clock.
    #[test]
    fn setup() {
        let mut io = IoJob::new("/tmp");
        io.phases = vec![IoPhase::new(IoKind::Write).as_setup(), IoPhase::new(IoKind::Read)];
        io.barriers = true;
        let job = Job::new(Work::Io(io));
        let steps = steps(&job);
        assert_eq!((steps[0].shown, steps[0].walled, steps[0].makes), (false, false, true));
        assert_eq!((steps[1].shown, steps[1].walled, steps[1].makes), (true, true, false));
        assert_eq!(parts(&job, &steps[1]).len(), 3);
    }

    /// Goal: a file that all share is made in a step of its own, before the first that may open it; one that is only
    /// read, or each worker's own, is not.
    #[test]
    fn shared_files() {
        let kinds = |share: Share, phases: &[IoKind]| {
            let phases = phases.iter().map(|kind| IoPhase::new(*kind)).collect();
            let job = Job::new(Work::Io(IoJob { share, phases, ..IoJob::new("/tmp") }));
            let all = steps(&job);
            let made = all.iter().position(|step| step.kind == StepKind::SharedFile);
            assert!(made.is_none_or(|at| parts(&job, &all[at]).is_empty() && !all[at].shown));
            made
        };
        assert_eq!(kinds(Share::Whole, &[IoKind::Write, IoKind::Read]), Some(0));
        assert_eq!(kinds(Share::Segmented, &[IoKind::Read]), None);
        assert_eq!(kinds(Share::PerWorker, &[IoKind::Write]), None);
    }
}

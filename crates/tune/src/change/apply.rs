//! Does a plan: the undo file first, then files, then the running kernel; all of it or nothing.

use super::hands::Hands;
use super::journal::Journal;
use super::plan::{Plan, Step};
use super::reading;
use super::undo::undo;
use std::io;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Values of the running kernel that were set.
    pub values: usize,
    /// Files that were written.
    pub files: usize,
}

/// Does it. After an error everything is as it was before the first change that has not been undone yet, or the
/// error says what could not be put back; then the undo file is still there.
pub fn apply(plan: &Plan, hands: &mut dyn Hands) -> Result<Applied, String> {
    let earlier = Journal::read(hands).map_err(|e| format!("the undo file cannot be read: {e}"))?;
    let journal = journal(plan, earlier.clone());
    let failure = match journal.write(hands) {
        Err(e) => Err(format!("the undo file cannot be written ({e}); nothing was changed")),
        Ok(()) => steps(plan, hands).map_err(|(at, e)| format!("{at}: {e}")),
    };
    match failure {
        Ok(()) => Ok(counted(plan)),
        Err(failure) => Err(roll_back(plan, earlier, hands, &failure)),
    }
}

fn counted(plan: &Plan) -> Applied {
    let files = plan.steps.iter().filter(|step| matches!(step, Step::File { .. })).count();
    let set = |step: &&Step| matches!(step, Step::Live { after: Some(_), .. });
    Applied { values: plan.steps.iter().filter(set).count(), files }
}

/// The undo file with the plan's steps in it.
fn journal(plan: &Plan, earlier: Option<Journal>) -> Journal {
    let mut journal = earlier.unwrap_or_default();
    for step in &plan.steps {
        match step {
            Step::Live { path, before, after } => journal.value(path, before, after.as_deref()),
            Step::File { path, before, after } => journal.file(path, before.clone(), after),
        }
    }
    for dir in &plan.missing_dirs {
        if !journal.made_dirs.contains(dir) {
            journal.made_dirs.push(dir.clone());
        }
    }
    journal
}

fn steps<'p>(plan: &'p Plan, hands: &mut dyn Hands) -> Result<(), (&'p str, io::Error)> {
    for dir in &plan.missing_dirs {
        hands.make_dir(dir).map_err(|e| (dir.as_str(), e))?;
    }
    for step in &plan.steps {
        match step {
            Step::File { path, after, .. } => {
                hands
                    .write_unfinished(path, after)
                    .and_then(|()| hands.finish(path))
                    .map_err(|e| (path.as_str(), e))?;
            }
            Step::Live { path, after: Some(after), .. } => {
                set(path, after, hands).map_err(|e| (path.as_str(), e))?;
            }
            Step::Live { after: None, .. } => {}
        }
    }
    Ok(())
}

/// Writes a value, and looks whether the kernel took it as it is.
fn set(path: &str, value: &str, hands: &mut dyn Hands) -> io::Result<()> {
    hands.set(path, value)?;
    let now = hands.read(path)?.map(|text| reading(&text)).unwrap_or_default();
    match now == value {
        true => Ok(()),
        false => Err(io::Error::other(format!("the kernel made {now} of {value}"))),
    }
}

/// Puts back this plan's steps, those of earlier ones stay.
fn roll_back(plan: &Plan, earlier: Option<Journal>, hands: &mut dyn Hands, failure: &str) -> String {
    // Only what this plan touched; what an earlier apply changed is as that left it.
    let own = journal(plan, None);
    let outcome = super::undo::put_back(&own, hands).and_then(|_| match &earlier {
        None => undo(hands).map(drop),
        Some(earlier) => earlier.write(hands).map_err(|e| e.to_string()),
    });
    match outcome {
        Ok(()) => format!("{failure}; everything is as it was before"),
        Err(e) => format!(
            "{failure}; and not everything could be put back ({e}): run skep tune undo when that is repaired"
        ),
    }
}

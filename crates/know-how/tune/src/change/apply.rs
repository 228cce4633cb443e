//! Does a plan: the undo file first, then files, then the running kernel; all of it or nothing.
//!
//! Between the plan and the change a person reads a diff. So everything is looked at again, at once and at the moment
//! of each change: what is not as the diff showed it stays, and the rest is put back.

use super::hands::{Hands, UNFINISHED};
use super::journal::{Journal, OldValue};
use super::plan::{Plan, Step};
use super::reading;
use super::undo::put_back;
use std::collections::BTreeMap;

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
    let mut course = Course::of(plan);
    for at in 0..plan.steps.len() {
        course.look(at, hands).map_err(|e| format!("{e}; nothing was changed"))?;
    }
    let journal = journal(&plan.steps, &plan.missing_dirs, earlier.clone());
    let failure = match journal.write(hands) {
        Err(e) => Err(format!("the undo file cannot be written ({e}); nothing was changed")),
        Ok(()) => course.run(hands),
    };
    match failure {
        Ok(()) => Ok(counted(plan)),
        Err(failure) => Err(course.roll_back(earlier, hands, &failure)),
    }
}

fn counted(plan: &Plan) -> Applied {
    let files = plan.steps.iter().filter(|step| matches!(step, Step::File { .. })).count();
    let set = |step: &&Step| matches!(step, Step::Live { after: Some(_), .. });
    Applied { values: plan.steps.iter().filter(set).count(), files }
}

/// The undo file with these steps in it.
fn journal(steps: &[Step], dirs: &[String], earlier: Option<Journal>) -> Journal {
    let mut journal = earlier.unwrap_or_default();
    for step in steps {
        match step {
            Step::Live { path, disk, before, after, .. } => journal.value(OldValue {
                path: path.clone(),
                disk: disk.clone(),
                before: before.clone(),
                after: after.clone(),
            }),
            Step::File { path, before, after } => journal.file(path, before.clone(), after),
        }
    }
    for dir in dirs {
        if !journal.made_dirs.contains(dir) {
            journal.made_dirs.push(dir.clone());
        }
    }
    journal
}

/// A plan on its way.
struct Course<'p> {
    plan: &'p Plan,
    /// What each value must be now.
    known: BTreeMap<&'p str, String>,
    /// So many steps were begun.
    begun: usize,
}

impl<'p> Course<'p> {
    fn of(plan: &'p Plan) -> Self {
        let value = |step: &'p Step| match step {
            Step::Live { path, before, .. } => Some((path.as_str(), before.clone())),
            Step::File { .. } => None,
        };
        Self { plan, known: plan.steps.iter().filter_map(value).collect(), begun: 0 }
    }

    /// Is what the step changes as it must be?
    fn look(&self, at: usize, hands: &mut dyn Hands) -> Result<(), String> {
        let Some(step) = self.plan.steps.get(at) else { return Ok(()) };
        match step {
            Step::File { path, before, .. } => {
                let now = hands.read(path).map_err(|e| format!("{path}: {e}"))?;
                match now == *before {
                    true => Ok(()),
                    false => Err(format!("{path} was changed by somebody else since the diff was shown")),
                }
            }
            Step::Live { path, disk, .. } => {
                if let Some(owner) = disk {
                    let names = hands.names_of(&owner.name).map_err(|e| format!("{path}: {e}"))?;
                    if !names.contains(&owner.identity) {
                        let (name, identity) = (&owner.name, &owner.identity);
                        return Err(format!("{name} is no longer the disk with {identity}"));
                    }
                }
                let text = hands.read(path).map_err(|e| format!("{path}: {e}"))?;
                let now = text.as_deref().map(reading);
                let must = self.known.get(path.as_str());
                match now.as_ref() == must {
                    true => Ok(()),
                    false => Err(format!(
                        "{path} was changed by somebody else since the diff was shown, from {} to {}",
                        must.map_or("nothing", String::as_str),
                        now.as_deref().unwrap_or("nothing")
                    )),
                }
            }
        }
    }

    /// One past the last step that the kernel may change along with this one.
    fn end(&self, at: usize) -> usize {
        let follows = |step: &&Step| matches!(step, Step::Live { follows: true, .. });
        at + 1 + self.plan.steps.iter().skip(at + 1).take_while(follows).count()
    }

    fn run(&mut self, hands: &mut dyn Hands) -> Result<(), String> {
        for dir in &self.plan.missing_dirs {
            hands.make_dir(dir).map_err(|e| format!("{dir}: {e}"))?;
        }
        for (at, step) in self.plan.steps.iter().enumerate() {
            match step {
                Step::File { path, after, .. } => {
                    // Nothing slow lies between the look and the change.
                    hands.write_unfinished(path, after).map_err(|e| format!("{path}: {e}"))?;
                    self.look(at, hands)?;
                    self.begun = at + 1;
                    hands.finish(path).map_err(|e| format!("{path}: {e}"))?;
                }
                Step::Live { path, after: Some(after), .. } => {
                    let end = self.end(at);
                    (at..end).try_for_each(|one| self.look(one, hands))?;
                    self.begun = end;
                    set(path, after, hands)?;
                    self.learn(at, end, hands)?;
                }
                Step::Live { after: None, .. } => {}
            }
        }
        Ok(())
    }

    /// What the kernel made of the values from `at` to `end`.
    fn learn(&mut self, at: usize, end: usize, hands: &mut dyn Hands) -> Result<(), String> {
        for step in &self.plan.steps[at..end] {
            if let Step::Live { path, .. } = step {
                let text = hands.read(path).map_err(|e| format!("{path}: {e}"))?;
                self.known.insert(path, text.as_deref().map(reading).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Puts back the steps that were begun; those of earlier plans stay, and so does what others did to the rest.
    fn roll_back(&self, earlier: Option<Journal>, hands: &mut dyn Hands, failure: &str) -> String {
        let own = journal(&self.plan.steps[..self.begun], &self.plan.missing_dirs, None);
        let outcome = self.remove_unfinished(hands).and_then(|()| put_back(&own, hands, false));
        let outcome = outcome.and_then(|undone| match &earlier {
            None => Journal::remove(hands).map(|()| undone).map_err(|e| e.to_string()),
            Some(earlier) => earlier.write(hands).map(|()| undone).map_err(|e| e.to_string()),
        });
        match outcome {
            Ok(undone) => {
                let notes: String = undone.notes.iter().map(|note| format!("; {note}")).collect();
                format!("{failure}; what was changed is as it was before{notes}")
            }
            Err(e) => format!(
                "{failure}; and not everything could be put back ({e}): run skep tune undo{} when that is repaired",
                hands.flag()
            ),
        }
    }

    fn remove_unfinished(&self, hands: &mut dyn Hands) -> Result<(), String> {
        for step in &self.plan.steps {
            if let Step::File { path, .. } = step {
                hands.remove(&format!("{path}{UNFINISHED}")).map_err(|e| format!("{path}: {e}"))?;
            }
        }
        Ok(())
    }
}

/// Writes a value, and looks whether the kernel took it as it is.
fn set(path: &str, value: &str, hands: &mut dyn Hands) -> Result<(), String> {
    hands.set(path, value).map_err(|e| format!("{path}: {e}"))?;
    let now = hands.read(path).map_err(|e| format!("{path}: {e}"))?;
    let now = now.map(|text| reading(&text)).unwrap_or_default();
    match now == value {
        true => Ok(()),
        false => Err(format!("{path}: the kernel made {now} of {value}")),
    }
}

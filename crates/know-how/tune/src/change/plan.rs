//! What an `apply` would do, step by step, before it does it.

use super::journal::upward;
use super::{Change, Keep, Live, Owner, reading, remaining};
use crate::Root;
use crate::finding::{Finding, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write;

/// First line of a file that `apply` makes.
const HEADER: &str = "# Written by skep tune apply; skep tune undo puts back what was here.";

/// One change of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A value of the running kernel.
    Live {
        path: String,
        /// The disk that it is a value of.
        disk: Option<Owner>,
        /// It may be changed by the step before it.
        follows: bool,
        before: String,
        /// What it becomes; none: it only changes along with another.
        after: Option<String>,
    },
    File {
        path: String,
        /// Its content; none: it is not there.
        before: Option<String>,
        /// What it becomes.
        after: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they are done: files first, they change nothing until the next boot.
    pub steps: Vec<Step>,
    /// Directories that must be made, the upper ones first.
    pub missing_dirs: Vec<String>,
    /// What must be done before everything counts.
    pub after: Vec<String>,
}

impl Plan {
    /// Of what was found. An error names the thing that cannot be read.
    pub fn of(root: &Root, findings: &[Finding]) -> Result<Self, String> {
        let wanted = findings.iter().filter(|finding| finding.verdict == Verdict::Change);
        let changes: Vec<&Change> = wanted.filter_map(|finding| finding.change.as_ref()).collect();
        let mut plan = Self::default();
        let mut files: BTreeMap<&str, Vec<&Keep>> = BTreeMap::new();
        for keep in changes.iter().flat_map(|change| &change.keep) {
            files.entry(&keep.file).or_default().push(keep);
        }
        for (path, keeps) in files {
            plan.file(root, path, &keeps)?;
        }
        for change in &changes {
            // A new scheduler brings the depth of the queue along, for one.
            if matches!(change.live.as_slice(), [one] if plan.sets(one)) {
                continue;
            }
            for (at, live) in change.live.iter().enumerate() {
                plan.live(root, live, at > 0)?;
            }
        }
        // Also of files that have their lines already: whoever reads them may not have been told.
        let kept = changes.iter().flat_map(|change| &change.keep).map(|keep| keep.file.as_str());
        let live = changes.iter().flat_map(|change| &change.live).map(|live| live.path.as_str());
        plan.after = remaining(kept.chain(live));
        Ok(plan)
    }

    /// Of lines of files alone.
    pub fn of_lines(root: &Root, keeps: &[Keep]) -> Result<Self, String> {
        let mut plan = Self::default();
        let mut files: BTreeMap<&str, Vec<&Keep>> = BTreeMap::new();
        for keep in keeps {
            files.entry(&keep.file).or_default().push(keep);
        }
        files.into_iter().try_for_each(|(path, keeps)| plan.file(root, path, &keeps))?;
        Ok(plan)
    }

    /// What a file becomes.
    pub fn text_of(&self, file: &str) -> Option<&str> {
        self.steps.iter().find_map(|step| match step {
            Step::File { path, after, .. } if path == file => Some(after.as_str()),
            _ => None,
        })
    }

    /// Whether a step does this already.
    fn sets(&self, live: &Live) -> bool {
        let does = |step: &Step| matches!(step, Step::Live { path, after, .. } if *path == live.path && *after == live.value);
        self.steps.iter().any(does)
    }

    /// A value; one that follows another is set even when it is right now: the first may change it.
    fn live(&mut self, root: &Root, live: &Live, follows: bool) -> Result<(), String> {
        let text = root.text(&live.path).ok_or_else(|| format!("{}: cannot be read any more", live.path))?;
        let before = reading(&text);
        if follows || live.value.as_ref() != Some(&before) {
            let (path, disk, after) = (live.path.clone(), live.disk.clone(), live.value.clone());
            self.steps.push(Step::Live { path, disk, follows, before, after });
        }
        Ok(())
    }

    fn file(&mut self, root: &Root, path: &str, keeps: &[&Keep]) -> Result<(), String> {
        let before = match root.path(path).symlink_metadata() {
            Err(_) => None,
            Ok(_) => {
                let text = std::fs::read_to_string(root.path(&root.real(path).unwrap_or_default()));
                Some(text.map_err(|e| format!("{path}: {e}; it cannot be changed"))?)
            }
        };
        let after = merged(before.as_deref(), keeps);
        if before.as_ref() != Some(&after) {
            let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
            for dir in upward(dir) {
                if !root.exists(&dir) && !self.missing_dirs.contains(&dir) {
                    self.missing_dirs.push(dir);
                }
            }
            self.steps.push(Step::File { path: path.to_owned(), before, after });
        }
        Ok(())
    }

    /// Is there nothing to do?
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// As people read changes.
    pub fn diff(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            // Writing to a text never fails.
            let _ = match step {
                Step::Live { before, after: Some(after), .. } if before == after => Ok(()),
                Step::Live { path, before, after: Some(after), .. } => {
                    writeln!(text, "{path}\n-{before}\n+{after}")
                }
                Step::Live { .. } => Ok(()),
                Step::File { path, before, after } => {
                    let what = if before.is_some() { "" } else { " (new)" };
                    writeln!(text, "{path}{what}\n{}", lines(before.as_deref().unwrap_or(""), after))
                }
            };
        }
        text
    }
}

/// Lines that go and lines that come.
fn lines(before: &str, after: &str) -> String {
    let gone = before.lines().filter(|line| !after.lines().any(|kept| kept == *line));
    let come = after.lines().filter(|line| !before.lines().any(|old| old == *line));
    let signed = gone.map(|line| format!("-{line}")).chain(come.map(|line| format!("+{line}")));
    signed.collect::<Vec<_>>().join("\n")
}

/// The file with the lines in it: those that begin alike are replaced, others come to the end of their section.
fn merged(before: Option<&str>, keeps: &[&Keep]) -> String {
    let mut all: Vec<String> = match before {
        Some(text) => text.lines().map(str::to_owned).collect(),
        None => vec![HEADER.to_owned()],
    };
    for keep in keeps {
        let line = format!("{}{}", keep.stem, keep.value);
        let (first, end) = section(&mut all, keep.section);
        let alike: Vec<usize> = (first..end).filter(|at| begins_alike(&all[*at], &keep.stem)).collect();
        // Of several lines for one setting the last one counts at boot: none may stay behind the new one.
        for at in alike.iter().skip(1).rev() {
            all.remove(*at);
        }
        match alike.first() {
            Some(at) => all[*at] = line,
            None => all.insert(end, line),
        }
    }
    all.join("\n") + "\n"
}

/// `a=1` and `a = 1` begin alike; of a sysctl `-a/b=1` and `a.b = 1`, too.
fn begins_alike(line: &str, stem: &str) -> bool {
    let (line, stem) = (squeezed(line), squeezed(stem));
    match (line.split_once('='), stem.strip_suffix('=').filter(|name| !name.contains(' '))) {
        (Some((key, _)), Some(name)) => {
            key.trim_start_matches('-').replace('/', ".") == name.replace('/', ".")
        }
        _ => line.starts_with(&stem),
    }
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ").replace(" =", "=").replace("= ", "=")
}

/// First and last line of a section, which is made if it is not there.
fn section(all: &mut Vec<String>, name: &str) -> (usize, usize) {
    if name.is_empty() {
        return (0, all.len());
    }
    let first = match all.iter().position(|line| line.trim() == name) {
        Some(at) => at + 1,
        None => {
            all.push(name.to_owned());
            all.len()
        }
    };
    let next = all[first..].iter().position(|line| line.starts_with('['));
    let mut end = next.map_or(all.len(), |after| first + after);
    while end > first && all[end - 1].trim().is_empty() {
        end -= 1;
    }
    (first, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(section: &'static str, stem: &str, value: &str) -> Keep {
        Keep { file: String::new(), section, stem: stem.to_owned(), value: value.to_owned() }
    }

    /// Goal: what others wrote stays, a line for the same thing is replaced, new ones come once.
    #[test]
    fn files_are_merged() {
        let line = keep("", "vm.dirty_ratio = ", "20");
        assert_eq!(merged(None, &[&line]), format!("{HEADER}\nvm.dirty_ratio = 20\n"));
        let old = "# mine\nvm.dirty_ratio=40\nvm.swappiness = 1\n";
        assert_eq!(merged(Some(old), &[&line]), "# mine\nvm.dirty_ratio = 20\nvm.swappiness = 1\n");
        let limit = keep("[Service]", "LimitNOFILE=", "5");
        let old = "[Service]\nNice=1\n\n[Install]\nLimitNOFILE=not-this\n";
        let new = "[Service]\nNice=1\nLimitNOFILE=5\n\n[Install]\nLimitNOFILE=not-this\n";
        assert_eq!(merged(Some(old), &[&limit]), new);
        assert_eq!(merged(Some(new), &[&limit]), new);
        assert_eq!(merged(None, &[&limit]), format!("{HEADER}\n[Service]\nLimitNOFILE=5\n"));
    }

    /// Goal: of several lines for one setting, in whichever spelling, only the new one is left: the last one would count
    /// at boot. The diff names those that go.
    #[test]
    fn no_second_line_stays() {
        let line = keep("", "vm.dirty_ratio = ", "20");
        let old =
            "vm.dirty_ratio=40\n# mine\nvm.dirty_ratio = 20\n-vm/dirty_ratio = 60\nvm.dirty_ratio_not = 1\n";
        let new = merged(Some(old), &[&line]);
        assert_eq!(new, "vm.dirty_ratio = 20\n# mine\nvm.dirty_ratio_not = 1\n");
        assert_eq!(lines(old, &new), "-vm.dirty_ratio=40\n--vm/dirty_ratio = 60");
        let limit = keep("[Service]", "LimitNOFILE=", "5");
        let old = "[Service]\nLimitNOFILE=1\nNice=1\nLimitNOFILE=2\n[Install]\nLimitNOFILE=not-this\n";
        let new = "[Service]\nLimitNOFILE=5\nNice=1\n[Install]\nLimitNOFILE=not-this\n";
        assert_eq!(merged(Some(old), &[&limit]), new);
        let rule = keep("", "KERNEL==\"md*\", ATTR{a}=", "\"1\"");
        let old = "KERNEL==\"md*\", ATTR{b}=\"2\"\nKERNEL==\"md*\", ATTR{a}=\"3\"\n";
        let new = "KERNEL==\"md*\", ATTR{b}=\"2\"\nKERNEL==\"md*\", ATTR{a}=\"1\"\n";
        assert_eq!(merged(Some(old), &[&rule]), new);
    }

    /// Goal: a diff shows the lines that go and come, and nothing that only changes along.
    #[test]
    fn diffs() {
        let live = |path: &str, after: Option<&str>| Step::Live {
            path: path.to_owned(),
            disk: None,
            follows: false,
            before: "1".to_owned(),
            after: after.map(str::to_owned),
        };
        let file = Step::File {
            path: "/f".to_owned(),
            before: Some("a\nb\n".to_owned()),
            after: "a\nc\n".to_owned(),
        };
        let plan = Plan { steps: vec![live("/x", Some("2")), live("/y", None), file], ..Plan::default() };
        assert_eq!(plan.diff(), "/x\n-1\n+2\n/f\n-b\n+c\n");
    }
}

//! Subjects of commits: whole in one line of `git log`.

use std::path::Path;
use std::process::Command;

use super::Report;

/// The last commit before the rule.
const BEFORE: &str = "32750fb";
/// Longest subject, in characters.
const SUBJECT_MAX: usize = 72;

/// Checks commits since the rule. Without git, or in a clone without the commit before the rule, there is nothing to say.
pub fn check(root: &Path, report: &mut Report) {
    let mut git = Command::new("git");
    git.args(["log", "--format=%h %s", &format!("{BEFORE}..HEAD")]).current_dir(root);
    if let Ok(output) = git.output()
        && output.status.success()
    {
        subjects(&String::from_utf8_lossy(&output.stdout), report);
    }
}

/// One line for each commit: its name and its subject.
fn subjects(log: &str, report: &mut Report) {
    for (commit, subject) in log.lines().filter_map(|line| line.split_once(' ')) {
        let length = subject.chars().count();
        if length > SUBJECT_MAX {
            let what =
                format!("the subject has {length} characters, at most {SUBJECT_MAX} are allowed: {subject}");
            report.add(commit, 1, what, "git commit --amend (git rebase -i, if it is not the last one)");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a subject above the limit is found by its commit, characters count and not bytes; no history is no failure.
    #[test]
    fn long_subjects_are_found() {
        let (short, long) = ("\u{fc}".repeat(SUBJECT_MAX), "x".repeat(SUBJECT_MAX + 1));
        let mut report = Report::default();
        subjects(&format!("aaaaaaa {short}\nbbbbbbb {long}\nccccccc\n"), &mut report);
        assert_eq!(report.0.iter().map(|failure| failure.path.as_str()).collect::<Vec<_>>(), ["bbbbbbb"]);
        let mut nothing = Report::default();
        check(Path::new("/"), &mut nothing);
        check(Path::new("/no such directory"), &mut nothing);
        assert!(nothing.0.is_empty());
    }
}

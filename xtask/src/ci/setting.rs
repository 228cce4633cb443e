//! A setting of the kernel that steps change, and that is what it was when they are done.

use std::path::{Path, PathBuf};

/// Puts a setting back when it goes. A run that is killed leaves it as the steps set it.
pub struct Kept {
    path: PathBuf,
    /// What it was; none where there is no such setting, which the steps that need it say.
    before: Option<String>,
}

impl Kept {
    /// Remembers what the setting is now.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), before: std::fs::read_to_string(path).ok() }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        // Who may not write it has not changed it either.
        if std::fs::read_to_string(&self.path).is_ok_and(|now| now == *before) {
            return;
        }
        if let Err(e) = std::fs::write(&self.path, before) {
            let (path, before) = (self.path.display(), before.trim());
            eprintln!("{path}: {e}; it was {before:?} before this run: write that back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what steps write into a setting is gone when the run is, and a setting that is not there is not made.
    #[test]
    fn as_it_was_before() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let (path, none) = (scratch.path().join("enable_uring"), scratch.path().join("none"));
        std::fs::write(&path, "N\n").unwrap();
        let both = (Kept::of(&path), Kept::of(&none));
        std::fs::write(&path, "Y").unwrap();
        drop(both);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "N\n");
        assert!(!none.exists());
    }
}

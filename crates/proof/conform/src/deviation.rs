//! Cases that come to another error on some file systems, by a limit that is documented: named one by one, with the error.
//!
//! Such a case may still pass: whether two directories are on two shards is chance for some of them.

use crate::errno::Errno;
use crate::scene::Mismatch;
use crate::table::Case;
use std::collections::BTreeMap;
use std::path::Path;

/// The error that each of them may come to.
#[derive(Clone, Debug, Default)]
pub struct Deviations(BTreeMap<String, Errno>);

impl Deviations {
    /// Reads a file of them.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// An error and an id in each line; `#` begins a remark.
    fn parse(text: &str) -> Result<Self, String> {
        let mut cases = BTreeMap::new();
        for (line, text) in text.lines().enumerate() {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (errno, id) = text
                .split_once(' ')
                .and_then(|(name, id)| Some((Errno::named(name)?, id)))
                .ok_or_else(|| format!("line {}: {text:?} is no error and the id of a case", line + 1))?;
            if cases.insert(id.to_owned(), errno).is_some() {
                return Err(format!("line {}: {id} is named twice", line + 1));
            }
        }
        Ok(Self(cases))
    }

    /// A name that no case has hides a mistake.
    pub fn check(&self, cases: &[Case]) -> Result<(), String> {
        match self.0.keys().find(|id| cases.iter().all(|case| case.id != **id)) {
            None => Ok(()),
            Some(id) => Err(format!("--deviations names {id}, which no case is called: see --list")),
        }
    }

    /// Is this what may come of that case?
    pub fn has(&self, id: &str, what: &Mismatch) -> bool {
        let Some(errno) = self.0.get(id) else { return false };
        let words = || what.happened.split(|c: char| !c.is_ascii_alphanumeric());
        // A script tells what the standard library says.
        words().any(|word| word == errno.to_string())
            || what.happened.contains(&format!("(os error {})", errno.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came_to(happened: &str) -> Mismatch {
        let text = |text: &str| text.to_owned();
        Mismatch { step: text("s"), user: text("root"), expected: text("ok"), happened: text(happened) }
    }

    /// Goal: only the named case with the named error is a deviation; any other outcome of it is a failure.
    #[test]
    fn only_that_error_of_that_case() {
        let known = Deviations::parse("# why\n\nEXDEV rename/a b\n").unwrap();
        for (id, happened, expected) in [
            ("rename/a b", "EXDEV", true),
            ("rename/a b", "rename: Invalid cross-device link (os error 18)", true),
            ("rename/a b", "EIO", false),
            ("rename/a b", "success", false),
            ("rename/a b", "EXDEVIOUS", false),
            ("rename/a", "EXDEV", false),
        ] {
            assert_eq!(known.has(id, &came_to(happened)), expected, "{id}: {happened}");
        }
    }

    /// Goal: lines that say nothing, or the same twice, are errors, and so are names that no case has.
    #[test]
    fn mistakes_are_told() {
        for wrong in ["rename/a", "ENOPE rename/a", "EXDEV a\nEXDEV a"] {
            assert!(Deviations::parse(wrong).is_err(), "{wrong}");
        }
        let cases = crate::table::from_text("call = 'x'\n[[case]]\nname = 'a'\ncall = 'pass'\n").unwrap();
        assert!(Deviations::parse("EXDEV x/a").unwrap().check(&cases).is_ok());
        assert!(Deviations::parse("EXDEV x/b").unwrap().check(&cases).unwrap_err().contains("x/b"));
    }
}

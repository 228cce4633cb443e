//! From TOML text to a checked description, with errors that name the line.

use crate::check::{self, Problem, Step};
use crate::hardware::Hardware;
use crate::wrong;
use serde::de::DeserializeOwned;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// The longest description that is read.
pub const TEXT_MAX: usize = 1 << 20;

/// Why a description cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// File, as the user named it.
    pub file: String,
    /// Line of the file, from 1; 0 when the fault has no place.
    pub line: usize,
    /// Field, `servers[0].targets[1].raid`; empty when the text is no TOML at all.
    pub field: String,
    /// What is wrong and what to write.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Hardware {
    /// Reads and checks a description; all faults found are reported together.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, Vec<Fault>> {
        let fault = |line, field: String, message| Fault { file: file.to_owned(), line, field, message };
        if text.len() > TEXT_MAX {
            let message = format!("longer than {TEXT_MAX} bytes: this is no description of a system");
            return Err(vec![fault(0, String::new(), message)]);
        }
        let hardware: Self = read(file, text)?;
        let problems = check::check(&hardware);
        if problems.is_empty() {
            return Ok(hardware);
        }
        let root = DeTable::parse(text).ok();
        let located = |problem: Problem| {
            let line = root.as_ref().map_or(0, |root| locate(text, root.get_ref(), &problem.place));
            fault(line, check::field(&problem.place), problem.message)
        };
        Err(problems.into_iter().map(located).collect())
    }
}

/// Reads TOML. Of what has the wrong type, name or unit everything is found, not only the first.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Vec<Fault>> {
    wrong::read(text).map_err(|found| {
        let fault = |wrong: wrong::Wrong| Fault {
            file: file.to_owned(),
            line: line_of(text, wrong.at),
            field: check::field(&wrong.place),
            message: wrong.message,
        };
        found.into_iter().map(fault).collect()
    })
}

/// Line of a place; of the innermost table that exists when the field itself is not written.
fn locate(text: &str, root: &DeTable<'_>, place: &[Step]) -> usize {
    let mut line = 1;
    let mut table = Some(root);
    let mut value: Option<&DeValue<'_>> = None;
    for step in place {
        let next = match step {
            Step::Field(name) => {
                let Some((key, found)) = table.and_then(|table| table.get_key_value(name.as_str())) else {
                    break;
                };
                line = line_of(text, key.span().start);
                found
            }
            Step::Item(at) => {
                let Some(found) = value.and_then(DeValue::as_array).and_then(|array| array.get(*at)) else {
                    break;
                };
                line = line_of(text, found.span().start);
                found
            }
        };
        value = Some(next.get_ref());
        table = next.get_ref().as_table();
    }
    line
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    before.bytes().filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub const GOOD: &str = include_str!("../systems/sizing-6gbs-a.toml");

    pub fn faults(text: &str) -> Vec<String> {
        match Hardware::from_toml("lab.toml", text) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.iter().map(Fault::to_string).collect(),
        }
    }

    pub fn line_with(text: &str, wanted: &str) -> usize {
        text.lines().position(|line| line.contains(wanted)).map_or(0, |at| at + 1)
    }

    /// Goal: impossible hardware is refused with file, line, field and what to write instead.
    #[test]
    fn impossible_hardware() {
        assert_eq!(faults(GOOD), Vec::<String>::new());
        for (from, to, field, advice) in [
            ("drives = 6", "drives = 2", "servers[0].targets[0].drives", "at least 4"),
            ("raid = \"raid6\"", "raid = \"raidz2\"", "servers[0].targets[0].raid", "file_system = \"zfs\""),
            ("drive = \"ssd\"", "drive = \"sdd\"", "servers[0].targets[0].drive", "ssd"),
            ("controller = \"raid\"", "controller = \"array\"", "servers[0].targets[0].controller", "raid"),
            ("kind = \"10gbe\"", "kind = \"9gbe\"", "servers[0].nics[0].kind", "10gbe"),
            ("count = 64", "count = 0", "clients.count", "at least 1"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from} is in the example");
            let faults = faults(&text);
            assert_eq!(faults.len(), 1, "{faults:?}");
            let place = format!("lab.toml:{}: {field}: ", line_with(&text, to));
            assert!(faults[0].starts_with(&place), "{} does not start with {place}", faults[0]);
            assert!(faults[0].contains(advice), "{} does not say {advice}", faults[0]);
        }
    }

    /// Goal: a server with targets and no link, of which nothing is written, is found at the server.
    #[test]
    fn no_links() {
        let text = GOOD.replacen("[[servers.nics]]\nkind = \"10gbe\"\n", "", 1);
        let faults = faults(&text);
        assert_eq!(faults.len(), 1, "{faults:?}");
        let place = format!("lab.toml:{}: servers[0].nics: ", line_with(&text, "[[servers]]"));
        assert!(faults[0].starts_with(&place), "{}", faults[0]);
    }

    /// Goal: unknown keys, ambiguous units and broken TOML name their line.
    #[test]
    fn what_toml_says() {
        for (from, to, says) in [
            ("size = \"1 TB\"", "size = \"1T\"", "1.6 TB"),
            ("spares = 0", "sparse = 0", "no key \"sparse\" here: write one of"),
            ("raid = \"raid6\"", "raid = \"raid7\"", "write one of none, raid0"),
            ("drives = 6", "drives = ", "line"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from} is in the example");
            let faults = faults(&text);
            assert!(faults[0].starts_with(&format!("lab.toml:{}: ", line_with(&text, to))), "{}", faults[0]);
            assert!(says == "line" || faults[0].contains(says), "{}", faults[0]);
        }
    }
}

//! A machine as one text: every file that was read, and the links on the way. Tests keep recorded machines;
//! an administrator can send one (`skep tune check --record FILE`) to be looked at elsewhere.
//!
//! A line each: `path = content`, with `\n`, `\t` and `\\` in the content; `path -> target` for a
//! symbolic link. Empty lines and those that begin with `#` mean nothing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

/// What one path holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Held {
    Text(String),
    Link(String),
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    held: BTreeMap<String, Held>,
}

impl Recording {
    /// A file that was read.
    pub(crate) fn file(&mut self, at: &str, text: &str) {
        self.held.insert(at.to_owned(), Held::Text(text.to_owned()));
    }

    /// The symbolic links on the way to `at`, below `dir`.
    pub(crate) fn links(&mut self, dir: &Path, at: &str) {
        let mut here = dir.to_owned();
        let mut steps: Vec<_> = Path::new(at).components().rev().map(|c| c.as_os_str().to_owned()).collect();
        // As many links as the kernel follows.
        let mut left = 40;
        while let Some(step) = steps.pop() {
            match Path::new(&step).components().next() {
                Some(Component::Normal(_)) => here.push(&step),
                Some(Component::ParentDir) => {
                    here.pop();
                    continue;
                }
                _ => continue,
            }
            let Ok(target) = std::fs::read_link(&here) else { continue };
            left -= 1;
            let (Ok(below), Some(text)) = (here.strip_prefix(dir), target.to_str()) else { return };
            if left == 0 || target.is_absolute() {
                return;
            }
            self.held.insert(format!("/{}", below.display()), Held::Link(text.to_owned()));
            here.pop();
            steps.extend(target.components().rev().map(|c| c.as_os_str().to_owned()));
        }
    }

    /// As a text.
    pub fn write(&self) -> String {
        let line = |(at, held): (&String, &Held)| match held {
            Held::Text(text) => format!("{at} = {}\n", escaped(text)),
            Held::Link(target) => format!("{at} -> {target}\n"),
        };
        self.held.iter().map(line).collect()
    }

    /// From a text; an error names the line.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut recording = Self::default();
        for (n, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("line {}: write `path = content` or `path -> target`", n + 1);
            let (at, held) = match (line.split_once(" = "), line.split_once(" -> ")) {
                (Some((at, text)), None) => (at, Held::Text(plain(text))),
                (None, Some((at, target))) => (at, Held::Link(target.to_owned())),
                (Some((at, text)), Some((before, target))) => match at.len() < before.len() {
                    true => (at, Held::Text(plain(text))),
                    false => (before, Held::Link(target.to_owned())),
                },
                (None, None) => (line.strip_suffix(" =").ok_or_else(wrong)?, Held::Text(String::new())),
            };
            let inside = at.starts_with('/') && !at.split('/').any(|part| part == "..");
            if !inside {
                return Err(format!("line {}: {at} is no path from the root of a machine", n + 1));
            }
            recording.held.insert(at.to_owned(), held);
        }
        Ok(recording)
    }

    /// Makes the files and links below `dir`; contents end in a line feed, as those of the kernel do.
    pub fn unpack(&self, dir: &Path) -> io::Result<()> {
        let below = |at: &String| dir.join(at.trim_start_matches('/'));
        for (at, held) in &self.held {
            let path = below(at);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            match held {
                Held::Text(text) => std::fs::write(&path, format!("{text}\n"))?,
                Held::Link(target) => std::os::unix::fs::symlink(target, &path)?,
            }
        }
        // What links lead to, and nothing was read of, is a directory.
        let links = self.held.iter().filter(|(_, held)| matches!(held, Held::Link(_)));
        for path in links.map(|(at, _)| below(at)).filter(|path| !path.exists()) {
            let target = path.parent().unwrap_or(dir).join(std::fs::read_link(&path)?);
            std::fs::create_dir_all(target)?;
        }
        Ok(())
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('\0', "\\0")
}

fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => out.push(match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('0') => '\0',
                Some(other) => other,
                None => '\\',
            }),
            (letter, false) => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Root;

    /// Goal: what was read, links on the way too, is the same machine after it was written and unpacked.
    #[test]
    fn a_machine_survives_the_journey() {
        let dir = tempfile::tempdir().unwrap();
        let text = "# a disk\n/sys/devices/pci/block/sda/dev = 8:0\n/sys/block/sda -> ../devices/pci/block/sda\n\
                    /proc/net/x = a\\tb\\nc -> d\n/etc/empty =\n";
        Recording::read(text).unwrap().unpack(dir.path()).unwrap();
        let root = Root::recording(dir.path()).unwrap();
        assert_eq!(root.text("/sys/block/sda/dev").as_deref(), Some("8:0"));
        assert_eq!(root.real("/sys/block/sda").as_deref(), Some("/sys/devices/pci/block/sda"));
        assert_eq!(root.text("/proc/net/x").as_deref(), Some("a\tb\nc -> d"));
        assert_eq!(root.text("/etc/empty").as_deref(), Some(""));
        let recorded = root.recorded().unwrap();
        assert_eq!(Recording::read(&recorded.write()).unwrap(), recorded);
        assert_eq!(recorded.held.len(), 4);
    }

    /// Goal: a wrong line is named; a path that leads out is refused.
    #[test]
    fn wrong_lines() {
        assert!(Recording::read("\nnonsense").unwrap_err().starts_with("line 2"));
        assert!(Recording::read("/a/../../b = x").unwrap_err().contains("no path"));
        assert!(Recording::read("etc/x = 1").is_err());
    }
}

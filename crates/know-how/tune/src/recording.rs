//! A machine as one text: every file that was read, and the links on the way. Tests keep recorded machines;
//! an administrator can send one (`skep tune check --record FILE`) to be looked at elsewhere.
//!
//! A line each: `path = content`, with `\n`, `\t` and `\\` in the content; `path -> target` for a symbolic link;
//! `path : 4e:0a0b 400:ff` for bytes: where they begin and what they are, in hexadecimal, all others 0. Empty lines and those that begin with `#` mean nothing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

/// Bytes of a device that are unpacked at least: as many as are looked at.
const DEVICE_LEAST: usize = 4096;
/// Bytes of one file or device that a recording may hold.
const BYTES_MAX: usize = 1 << 20;

/// What one path holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Held {
    Text(String),
    Bytes(Vec<u8>),
    Link(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    held: BTreeMap<String, Held>,
}

impl Recording {
    /// A file that was read.
    pub(crate) fn file(&mut self, at: &str, text: &str) {
        self.held.insert(at.to_owned(), Held::Text(text.to_owned()));
    }

    /// Bytes that were read.
    pub(crate) fn bytes(&mut self, at: &str, bytes: Vec<u8>) {
        self.held.insert(at.to_owned(), Held::Bytes(bytes));
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
            Held::Bytes(bytes) => format!("{at} : {}\n", sparse(bytes)),
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
            let wrong =
                || format!("line {}: write `path = content`, `path -> target` or `path : AT:HEX`", n + 1);
            let bytes = line.split_once(" : ").filter(|(at, _)| !at.contains(" = ") && !at.contains(" -> "));
            if let Some((at, text)) = bytes.filter(|(at, _)| is_inside(at)) {
                recording.bytes(at, dense(text).ok_or_else(wrong)?);
                continue;
            }
            let (at, held) = match (line.split_once(" = "), line.split_once(" -> ")) {
                (Some((at, text)), None) => (at, Held::Text(plain(text))),
                (None, Some((at, target))) => (at, Held::Link(target.to_owned())),
                (Some((at, text)), Some((before, target))) => match at.len() < before.len() {
                    true => (at, Held::Text(plain(text))),
                    false => (before, Held::Link(target.to_owned())),
                },
                (None, None) => (line.strip_suffix(" =").ok_or_else(wrong)?, Held::Text(String::new())),
            };
            if !is_inside(at) {
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
                Held::Bytes(bytes) => {
                    let mut whole = bytes.clone();
                    whole.resize(bytes.len().max(DEVICE_LEAST), 0);
                    std::fs::write(&path, whole)?;
                }
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

/// Does a path stay below the root?
fn is_inside(at: &str) -> bool {
    at.starts_with('/') && !at.split('/').any(|part| part == "..")
}

/// The pieces that are not 0.
fn sparse(bytes: &[u8]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut last = None;
    for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        match words.last_mut() {
            Some(word) if last == at.checked_sub(1) => word.push_str(&format!("{byte:02x}")),
            _ => words.push(format!("{at:x}:{byte:02x}")),
        }
        last = Some(at);
    }
    words.join(" ")
}

fn dense(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let (at, hex) = word.split_once(':')?;
        let at = usize::from_str_radix(at, 16).ok().filter(|at| *at < BYTES_MAX)?;
        if hex.is_empty() || hex.len() % 2 != 0 || at + hex.len() / 2 > BYTES_MAX || !hex.is_ascii() {
            return None;
        }
        let end = at + hex.len() / 2;
        bytes.resize(bytes.len().max(end), 0);
        for (byte, pair) in bytes[at..end].iter_mut().zip((0..hex.len()).step_by(2)) {
            *byte = u8::from_str_radix(&hex[pair..pair + 2], 16).ok()?;
        }
    }
    Some(bytes)
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
                    /proc/net/x = a\\tb\\nc -> d\n/etc/empty =\n/dev/sda : 0:58465342 402:01ff\n/etc/y = a : b\n";
        Recording::read(text).unwrap().unpack(dir.path()).unwrap();
        let root = Root::recording(dir.path()).unwrap();
        assert_eq!(root.text("/sys/block/sda/dev").as_deref(), Some("8:0"));
        assert_eq!(root.real("/sys/block/sda").as_deref(), Some("/sys/devices/pci/block/sda"));
        assert_eq!(root.text("/proc/net/x").as_deref(), Some("a\tb\nc -> d"));
        assert_eq!(root.text("/etc/empty").as_deref(), Some(""));
        let device = std::fs::read(root.path("/dev/sda")).unwrap();
        assert_eq!(
            (&device[..4], &device[0x401..0x405], device.len()),
            (&b"XFSB"[..], &[0, 1, 255, 0][..], 4096)
        );
        let written = Recording::read(text).unwrap().write();
        assert!(written.contains("/dev/sda : 0:58465342 402:01ff\n"), "{written}");
        assert_eq!(root.text("/etc/y").as_deref(), Some("a : b"));
        let recorded = root.recorded().unwrap();
        assert_eq!(Recording::read(&recorded.write()).unwrap(), recorded);
        assert_eq!(recorded.held.len(), 5);
    }

    /// Goal: a wrong line is named; a path that leads out is refused.
    #[test]
    fn wrong_lines() {
        assert!(Recording::read("\nnonsense").unwrap_err().starts_with("line 2"));
        assert!(Recording::read("/a/../../b = x").unwrap_err().contains("no path"));
        assert!(Recording::read("etc/x = 1").is_err());
        for text in
            ["/dev/a : 5", "/dev/a : 5:f", "/dev/a : 5:gg", "/dev/a : ffffffffffff:00", "/../a : 5:ff"]
        {
            assert!(Recording::read(text).is_err(), "{text}");
        }
    }
}

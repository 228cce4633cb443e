//! Proof that formats stay readable: the bytes of an example of every record, as a release wrote them, in a text file.

use crate::codec::{Draw, Record};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

/// Reads bytes and writes them again; `None` when they cannot be read.
pub type Again = fn(&[u8]) -> Option<Vec<u8>>;

/// What this release writes, and how it reads.
#[derive(Default)]
pub struct Formats {
    lines: String,
    readers: BTreeMap<String, Again>,
}

impl Formats {
    /// With a record: all that it can have, and the least.
    pub fn record<R: Record>(&mut self, name: &str) {
        let again: Again = |bytes| R::from_bytes(bytes).ok().map(|record| record.to_bytes());
        for (how, draw) in [("full", Draw::FULL), ("bare", Draw::BARE)] {
            self.bytes(&format!("{name}.{how}"), &R::example(draw).to_bytes(), again);
        }
    }

    /// With bytes of another kind.
    pub fn bytes(&mut self, name: &str, bytes: &[u8], again: Again) {
        self.readers.insert(name.to_string(), again);
        let _ = write!(self.lines, "{name} ");
        for byte in bytes {
            let _ = write!(self.lines, "{byte:02x}");
        }
        self.lines.push('\n');
    }

    /// The text for the file of this release.
    pub fn text(&self) -> &str {
        &self.lines
    }

    /// How each kind of bytes is read, in the order of their names.
    pub fn readers(&self) -> impl Iterator<Item = (&str, Again)> {
        self.readers.iter().map(|(name, again)| (name.as_str(), *again))
    }

    /// Why the file of an earlier release cannot be read any more.
    pub fn reads(&self, file: &str) -> Result<(), String> {
        for line in file.lines() {
            let (name, bytes) = parse(line).ok_or_else(|| format!("not NAME BYTES: {line}"))?;
            let again = self.readers.get(name).ok_or_else(|| format!("{name} is not known any more"))?;
            match again(&bytes) {
                None => return Err(format!("{name} cannot be read any more")),
                Some(written) if written != bytes => return Err(format!("{name} is understood differently")),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whether the file of this release says what it writes; the first line that differs.
    pub fn is(&self, file: &str) -> Result<(), String> {
        let mut now = self.lines.lines().zip(file.lines());
        let differs = now.find(|(now, then)| now != then).map(|(now, _)| now);
        match differs.or((self.lines.len() != file.len()).then_some("the number of lines")) {
            None => Ok(()),
            Some(line) => Err(format!(
                "the format changed: {}; SKEP_WRITE_FIXTURES=1 writes the file anew, unless it was released",
                line.split_once(' ').map_or(line, |(name, _)| name)
            )),
        }
    }
}

/// In a test: what every release wrote, in `formats` beside the crate's manifest, is read by this one and means the same; what
/// this one writes is in the file of its own.
#[macro_export]
macro_rules! formats_stay_readable {
    ($formats:expr) => {{
        use std::fs;
        let (formats, dir) = ($formats, concat!(env!("CARGO_MANIFEST_DIR"), "/formats"));
        let own = format!("{dir}/{}.txt", $crate::limits::FORMAT_FILES);
        if std::env::var_os("SKEP_WRITE_FIXTURES").is_some() {
            fs::create_dir_all(dir).unwrap();
            fs::write(&own, formats.text()).unwrap();
        }
        for file in fs::read_dir(dir).unwrap().flatten() {
            let text = fs::read_to_string(file.path()).unwrap();
            formats.reads(&text).unwrap_or_else(|e| panic!("{}: {e}", file.path().display()));
        }
        formats.is(&fs::read_to_string(&own).unwrap()).unwrap();
    }};
}

/// The name and the bytes in a line of a file.
pub fn parse(line: &str) -> Option<(&str, Vec<u8>)> {
    let (name, hex) = line.split_once(' ')?;
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect::<Option<_>>().map(|bytes| (name, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    mod old {
        crate::record! {
            /// As it was.
            #[derive(Debug)]
            pub struct R {
                /// A field.
                pub a: u64,
                /// Another.
                pub b: u64,
            }
        }
    }
    mod swapped {
        crate::record! {
            /// Fields changed places.
            #[derive(Debug)]
            pub struct R {
                /// Another.
                pub b: u64,
                /// A field.
                pub a: u64,
            }
        }
    }
    record! {
        /// It grew.
        #[derive(Debug)]
        pub struct R {
            /// A field.
            pub a: u64,
            /// Another.
            pub b: u64,
        } tags {
            /// New.
            1 => pub c: Option<u64>,
        }
    }
    record! {
        /// It got a field without a tag.
        #[derive(Debug)]
        pub struct More {
            /// A field.
            pub a: u64,
            /// Another.
            pub b: u64,
            /// A third.
            pub c: u64,
        }
    }

    fn with<T: Record>() -> Formats {
        let mut formats = Formats::default();
        formats.record::<T>("R");
        formats
    }

    /// Goal: a field that moved, went, or came without a number of its own is noticed; one that came with a tag leaves
    /// old bytes readable.
    #[test]
    fn changes_of_formats_are_noticed() {
        let before = with::<old::R>();
        assert_eq!((before.is(before.text()), before.reads(before.text())), (Ok(()), Ok(())));
        assert!(with::<swapped::R>().is(before.text()).unwrap_err().contains("changed: R.full"));
        assert!(with::<More>().reads(before.text()).unwrap_err().contains("R.full cannot be read"));
        assert!(before.reads(with::<More>().text()).is_err());
        let grown = with::<R>();
        assert_eq!(grown.reads(before.text()), Ok(()));
        assert!(grown.is(before.text()).is_err());
        assert!(before.reads(grown.text()).unwrap_err().contains("understood differently"));
        assert!(before.reads("S.full 00\n").unwrap_err().contains("not known"));
    }
}

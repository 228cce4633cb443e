//! What is fuzzed.

mod fuse;
mod header;
mod map;
mod stranger;
mod text;

use skep_types::formats::{Again, Formats, parse};

/// Reads an input; an error says which promise it broke.
type Read = Box<dyn Fn(&[u8]) -> Result<(), String>>;

/// One group of readers.
pub struct Target {
    /// By which it is chosen.
    pub name: &'static str,
    /// Good inputs to begin with.
    pub seeds: Vec<Vec<u8>>,
    /// Bytes at the beginning of an input that choose the reader.
    pub fixed: usize,
    /// It gets one input where others get so many: a slow one must not take the time of all.
    pub one_in: u64,
    /// Reads an input.
    pub read: Read,
}

/// All of them. Files of earlier releases lie beside the crates that can read them.
pub fn all() -> Vec<Target> {
    vec![
        of_formats("messages", &skep_wire::formats::all(), "vocabulary/wire"),
        header::target(),
        stranger::target(),
        map::target(),
        of_formats("metadata", &skep_meta::formats::all(), "rules/meta"),
        of_formats("registry", &skep_cluster::formats::all(), "rules/cluster"),
        of_formats("disk", &skep_disk::formats::all(), "hands/disk"),
        fuse::target(),
        text::target(),
    ]
}

/// The number of a reader, then its bytes.
fn of_formats(name: &'static str, formats: &Formats, directory: &str) -> Target {
    let readers: Vec<(String, Again)> =
        formats.readers().map(|(name, again)| (name.to_owned(), again)).collect();
    let mut seeds = Vec::new();
    let earlier = files(directory);
    for line in formats.text().lines().chain(earlier.iter().flat_map(|text| text.lines())) {
        let Some((name, bytes)) = parse(line) else { continue };
        let Ok(number) = readers.binary_search_by(|(reader, _)| reader.as_str().cmp(name)) else { continue };
        let seed = [&(number as u16).to_le_bytes()[..], &bytes].concat();
        if !seeds.contains(&seed) {
            seeds.push(seed);
        }
    }
    let read = move |input: &[u8]| {
        let Some((number, bytes)) = input.split_first_chunk() else { return Ok(()) };
        let (name, again) = &readers[usize::from(u16::from_le_bytes(*number)) % readers.len()];
        let Some(written) = again(bytes) else { return Ok(()) };
        if again(&written).as_ref() != Some(&written) {
            return Err(format!("{name}: what it wrote of the input is not read as the same"));
        }
        Ok(())
    };
    Target { name, seeds, fixed: 2, one_in: 1, read: Box::new(read) }
}

/// The files `formats/*.txt` of a crate, in order of their names.
fn files(directory: &str) -> Vec<String> {
    let path = format!("{}/../../{directory}/formats", env!("CARGO_MANIFEST_DIR"));
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every target has examples to begin with, and reads each.
    #[test]
    fn examples_are_read() {
        for target in all() {
            assert!(!target.seeds.is_empty(), "{}", target.name);
            for seed in &target.seeds {
                assert_eq!((target.read)(seed), Ok(()), "{}", target.name);
            }
        }
    }

    /// Goal: no target falls over the first inputs that are changed, before the hunt with counters takes many more.
    #[test]
    fn changed_inputs_are_read() {
        for target in all() {
            if let Err(broken) = crate::hunt::run(&target, 1, 1_000, None) {
                panic!("{}: {}: {:?}", target.name, broken.what, String::from_utf8_lossy(&broken.input));
            }
        }
    }
}

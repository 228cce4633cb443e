//! Texts from outside: files of administrators, lists of the kernel, command lines and outputs of other tools.

mod foreign;
mod plan;
mod program;

use super::Target;

/// What became of a text.
#[derive(Debug, PartialEq)]
enum Understood {
    Nothing,
    /// And there is no way to write it.
    All,
    /// And this says the same.
    Written(String),
}

impl From<Option<String>> for Understood {
    fn from(written: Option<String>) -> Self {
        written.map_or(Self::Nothing, Self::Written)
    }
}

impl From<bool> for Understood {
    fn from(understood: bool) -> Self {
        if understood { Self::All } else { Self::Nothing }
    }
}

/// One kind of text.
struct Reader {
    name: &'static str,
    again: fn(&str) -> Understood,
    examples: Vec<String>,
}

impl Reader {
    fn new(name: &'static str, again: fn(&str) -> Understood, examples: &[&str]) -> Self {
        Self { name, again, examples: examples.iter().map(|text| (*text).to_owned()).collect() }
    }

    fn read(&self, text: &str) -> Result<(), String> {
        let Understood::Written(written) = (self.again)(text) else { return Ok(()) };
        match (self.again)(&written) {
            Understood::Written(again) if again == written => Ok(()),
            again => Err(format!("{}: {written:?} is read as {again:?}", self.name)),
        }
    }
}

/// The number of a reader, then its text.
pub fn target() -> Target {
    let readers: Vec<Reader> =
        program::readers().into_iter().chain(foreign::readers()).chain(plan::readers()).collect();
    let seed = |(number, reader): (usize, &Reader)| {
        let seed = |text: &String| [&[number as u8][..], text.as_bytes()].concat();
        reader.examples.iter().map(seed).collect::<Vec<_>>()
    };
    let seeds = readers.iter().enumerate().flat_map(seed).collect();
    let read = move |input: &[u8]| match input.split_first() {
        Some((number, bytes)) => {
            readers[usize::from(*number) % readers.len()].read(&String::from_utf8_lossy(bytes))
        }
        None => Ok(()),
    };
    Target { name: "text", seeds, fixed: 1, one_in: 10, read: Box::new(read) }
}

/// A file of another crate, from which examples are taken.
fn file(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each reader has examples, and understands them.
    #[test]
    fn every_reader_has_examples() {
        for reader in program::readers().iter().chain(&foreign::readers()).chain(&plan::readers()) {
            let understood = |text: &&String| (reader.again)(text) != Understood::Nothing;
            let number = reader.examples.iter().filter(understood).count();
            let all = reader.examples.len();
            // Of what is other tools' some is refused: a line may ask for what cannot be done, an output have no result.
            let enough = if reader.name.starts_with("other tools'") { 3 } else { all.max(1) };
            assert!(number >= enough, "{}: {number} of {all}", reader.name);
        }
    }
}

//! Command lines of other tools, translated into jobs where they mean the same thing.
//!
//! An option that cannot be honoured is an error that names it and says what to use instead; one that
//! changes nothing here is accepted with a note. Nothing is passed over in silence.

mod elbencho;
mod fio;
mod fio_file;
mod ior;
mod iozone;
mod launch;
mod mdtest;
mod obdfilter;
mod relatives;
mod size;
mod words;

pub use launch::{Launch, Slots, host_file};
pub use relatives::{Relative, relative};
pub use size::{Units, bytes};

use crate::job::{IoJob, IoKind, IoPhase, Job, MAX_PROCESSES, MAX_THREADS, io_file};
use std::fmt;
use std::path::{Path, PathBuf};
use words::{Fate, Given, Syntax};

/// A tool whose command line is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Bandwidth of MPI programs.
    Ior,
    /// Metadata, of the same family.
    Mdtest,
    /// Throughput of processes with a file each.
    Iozone,
    /// Any pattern, one machine.
    Fio,
    /// Files, directories and large files, several machines.
    Elbencho,
}

impl Tool {
    pub const ALL: [Self; 5] = [Self::Ior, Self::Mdtest, Self::Iozone, Self::Fio, Self::Elbencho];

    /// As its program is called, in small letters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ior => "ior",
            Self::Mdtest => "mdtest",
            Self::Iozone => "iozone",
            Self::Fio => "fio",
            Self::Elbencho => "elbencho",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How one option was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Understood {
    /// As it was written.
    pub option: String,
    /// What it does here.
    pub meaning: String,
}

impl Understood {
    fn new(option: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { option: option.into(), meaning: meaning.into() }
    }
}

/// What a command line came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Translation {
    /// Whose command line it was.
    pub tool: Tool,
    /// What is to be done, one after the other.
    pub jobs: Vec<Job>,
    /// How many processes, where.
    pub launch: Launch,
    /// Every option, in the order in which they stood, and what was taken where nothing was said.
    pub understood: Vec<Understood>,
}

/// Why a command line is not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialectError {
    /// Whose command line it was.
    pub tool: Tool,
    /// The option or word.
    pub word: String,
    /// What is wrong with it and what to do.
    pub why: String,
}

impl fmt::Display for DialectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.tool, self.word, self.why)
    }
}

impl std::error::Error for DialectError {}

/// A [`DialectError`] before it is known whose.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cause {
    word: String,
    why: String,
}

impl Cause {
    fn new(word: impl Into<String>, why: impl Into<String>) -> Self {
        Self { word: word.into(), why: why.into() }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.word, self.why)
    }
}

/// What a translation has to know of the machine.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The working directory, from the root: relative paths begin there.
    pub directory: &'a str,
    /// Reads a file that the command line names: fio's job files, IOzone's list of clients.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
    /// Is there a directory of this name? elbencho works otherwise on files than on directories.
    pub is_dir: &'a dyn Fn(&str) -> bool,
    /// Length of the file of this name, none when there is no such file. fio and elbencho use files that
    /// they find, and fio makes those that it is to read.
    pub file_size: &'a dyn Fn(&str) -> Option<u64>,
    /// Hosts that are named otherwise than by the tool's line; they win over it. What each worker does may
    /// follow from how many there are (elbencho cuts a shared file among the threads of all hosts).
    pub hosts: &'a [String],
    /// A number that no other run has, for options that ask for another order in each run.
    pub drawn: u64,
}

impl Surroundings<'_> {
    /// A path from the root. `..` stays: what it means is the file system's to say.
    fn absolute(&self, path: &str) -> String {
        let joined: PathBuf = Path::new(self.directory).join(path).components().collect();
        joined.to_string_lossy().into_owned()
    }

    /// Directory and last component.
    fn place(&self, path: &str) -> Result<(String, String), String> {
        let path = self.absolute(path);
        match path.rsplit_once('/') {
            Some((directory, name)) if !name.is_empty() => Ok((
                if directory.is_empty() { "/".to_owned() } else { directory.to_owned() },
                name.to_owned(),
            )),
            _ => Err(format!("\"{path}\" names no file")),
        }
    }
}

/// Translates the words that follow the name of `tool`; a launcher and the program's path may stand first.
pub fn translate(
    tool: Tool,
    words: &[String],
    around: &Surroundings<'_>,
) -> Result<Translation, DialectError> {
    translate_words(tool, words, around).map_err(|cause| DialectError {
        tool,
        word: cause.word,
        why: cause.why,
    })
}

fn translate_words(tool: Tool, words: &[String], around: &Surroundings<'_>) -> Result<Translation, Cause> {
    let mut understood = Vec::new();
    let (mut launch, own) = launch::strip(tool, words, &mut understood)?;
    let words = &words[own..];
    let jobs = match tool {
        Tool::Ior => ior::translate(words, &mut launch, around, &mut understood)?,
        Tool::Mdtest => mdtest::translate(words, &mut launch, around, &mut understood)?,
        Tool::Iozone => iozone::translate(words, &mut launch, around, &mut understood)?,
        Tool::Fio => fio::translate(words, &mut launch, around, &mut understood)?,
        Tool::Elbencho => elbencho::translate(words, &mut launch, around, &mut understood)?,
    };
    for job in &jobs {
        job.check().map_err(|error| {
            Cause::new("the command line", format!("asks for a job that cannot be: {error}"))
        })?;
    }
    Ok(Translation { tool, jobs, launch, understood })
}

/// Gives each used option to `apply`, which says what it means; notes and refusals are dealt with here.
/// What is left are the words that belong to no option.
fn options(
    syntax: &Syntax,
    words: &[String],
    understood: &mut Vec<Understood>,
    mut apply: impl FnMut(&Given) -> Result<String, String>,
) -> Result<Vec<String>, Cause> {
    let (given, rest) = words::split(syntax, words)?;
    for given in given {
        let meaning = match given.fate {
            Fate::Used => apply(&given).map_err(|why| Cause::new(&given.written, why))?,
            Fate::Ignored(why) => format!("no effect: {why}"),
            Fate::Refused(why) => {
                return Err(Cause::new(&given.written, format!("cannot be honoured: {why}")));
            }
        };
        understood.push(Understood::new(&given.written, meaning));
    }
    Ok(rest)
}

/// Words that belong to no option are a mistake with most tools.
fn no_rest(rest: &[String]) -> Result<(), Cause> {
    match rest.first() {
        Some(word) => Err(Cause::new(word, "belongs to no option")),
        None => Ok(()),
    }
}

/// Sees to the data that a job reads before it writes any: files that are there and long enough are used;
/// when there is none they are written first, untimed. True: they are there.
fn found_or_laid_out(io: &mut IoJob, workers: u32, around: &Surroundings<'_>) -> Result<bool, String> {
    if workers > MAX_PROCESSES.saturating_mul(MAX_THREADS) {
        return Err(format!("asks for {workers} workers, which is more than any job has"));
    }
    let files = if io.share.is_shared() { 1 } else { workers };
    let need = io.file_size(u64::from(workers));
    let (mut found, mut short) = (0, None);
    for worker in 0..files {
        let path = io_file(io, worker).to_string_lossy().into_owned();
        if let Some(size) = (around.file_size)(&path) {
            found += 1;
            short = short.or((size < need).then_some(path));
        }
    }
    match short {
        Some(path) => {
            Err(format!("{path} exists but has fewer than {need} bytes: remove it, or ask for less"))
        }
        None if found == files => Ok(true),
        None if found == 0 => {
            io.phases.insert(0, IoPhase::new(IoKind::Write).as_setup());
            Ok(false)
        }
        None => Err(format!("{found} of {files} files exist: remove them, or make them all")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[&str] = &[
        "mpirun",
        "-np",
        "--map-by",
        "node",
        "-mca",
        "--byslot",
        "ior",
        "fio",
        "--",
        "-",
        "--name=a",
        "--name",
        "--rw=rw",
        "--size=4k",
        "--size=99999999p",
        "--numjobs=4000000000",
        "--bs=0",
        "--bs=1,2",
        "--rwmixread=200",
        "--runtime=9d",
        "--time_based",
        "--randrepeat=0",
        "--verify=crc32c",
        "--norandommap",
        "--filename=/a:/b",
        "-t",
        "-t0",
        "-b",
        "-s",
        "-o",
        "-O",
        "a=b,c",
        "blockSize=1",
        "@",
        "/",
        "0",
        "1",
        "-1",
        "18446744073709551615",
        "99999999999999999999",
        "4k",
        "1g",
        "9999999t",
        "-i",
        "-i8",
        "-+m",
        "-+n",
        "-+",
        "-F",
        "-R5",
        "-z",
        "-n",
        "-N",
        "-I",
        "-w",
        "-r",
        "-d",
        "-D",
        "--rand",
        "--randamount",
        "--hosts",
        "a,b",
        "--rwmixpct",
        "101",
        "--timelimit",
        "--infloop",
        "x y",
        "\u{e9}\u{20ac}",
        "-\u{e9}",
        "--\u{e9}=",
        "=",
        "--=",
        "-C",
        "-Q",
        "-j",
    ];

    /// Goal: no line of words, however odd, brings a translation down; what comes out is a job that can be.
    #[test]
    fn odd_lines_are_errors_at_worst() {
        let around = Surroundings {
            directory: "/mnt",
            read: &|path| {
                if path == "a" { Ok("h /d p\n[j]\nsize=4k\n".to_owned()) } else { Err("gone".to_owned()) }
            },
            is_dir: &|path| path.len() % 2 == 0,
            file_size: &|path| path.ends_with('a').then_some(7),
            hosts: &[],
            drawn: 0,
        };
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let (mut good, mut bad) = (0, 0);
        for round in 0..40_000 {
            let tool = Tool::ALL[round % Tool::ALL.len()];
            let words: Vec<String> = (0..draw(9)).map(|_| WORDS[draw(WORDS.len())].to_owned()).collect();
            match translate(tool, &words, &around) {
                Ok(translation) => {
                    translation.jobs.iter().for_each(|job| job.check().unwrap());
                    good += 1;
                }
                Err(error) => {
                    assert!(!error.word.is_empty() && !error.why.is_empty(), "{words:?}");
                    bad += 1;
                }
            }
            let _ = relative(&words);
        }
        assert!(good > 500 && bad > 10_000, "{good} {bad}: the words are not odd, or too odd");
    }
}

//! What came out so far, and of what: a long series can be done in pieces, but only of one and the same kind.

use super::cluster::MOUNT;
use super::rig::Rig;
use super::{Arguments, Outcome};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What all pieces of a series must share.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Series {
    /// The seed of the draw.
    pub seed: u64,
    /// What is done, in this order.
    pub set_ups: Vec<Rig>,
    /// Words for the survey.
    pub survey: String,
    /// What the program says of itself.
    pub version: String,
    /// How it was built, as far as that is known.
    #[serde(default)]
    pub build: String,
    /// SHA-256 of the program.
    pub hash: String,
    /// Processors of this machine that may be used.
    #[serde(default)]
    pub processors: usize,
    /// In a hurry: what was made slow is looked for in its own layer and in one that suffers from it.
    #[serde(default)]
    pub short: bool,
    /// So many set-ups at the end are surveyed in all layers.
    #[serde(default)]
    pub whole: usize,
}

/// How a set-up is surveyed.
pub struct Words {
    /// Flags.
    pub text: String,
    /// In all layers.
    pub whole: bool,
}

/// A series and how far it is.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct State {
    /// Of what.
    pub series: Series,
    /// The commit of the source tree when it began, and whether the tree differed from it.
    pub commit: String,
    /// One of each set-up that is done, whatever came of it.
    pub outcomes: Vec<Outcome>,
    /// This set-up was begun.
    pub begun: Option<usize>,
    /// So many set-ups were begun and then cut off with this program, and done again; none: nobody knows, as no file
    /// is kept.
    pub interrupted: Option<u32>,
}

/// The commit of a source tree, and whether the tree differs from it. What documents say changes no program.
fn source(root: &Path) -> String {
    let git = |words: &[&str]| said(Command::new("git").args(words).current_dir(root));
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    described(commit, git(&["status", "--porcelain", "--", ".", ":(exclude)docs"]))
}

fn described(commit: Result<String, String>, changes: Result<String, String>) -> String {
    match (commit, changes) {
        (Err(_), _) => "not known".to_owned(),
        (Ok(commit), Ok(changes)) if changes.is_empty() => commit,
        (Ok(commit), Ok(_)) => format!("{commit} with changes that were not committed"),
        (Ok(commit), Err(_)) => format!("{commit}, perhaps with changes that were not committed"),
    }
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Series {
    /// Of these arguments.
    pub fn of(
        arguments: &Arguments,
        seed: u64,
        program: &Path,
        (set_ups, whole): (Vec<Rig>, usize),
    ) -> Result<Self, String> {
        let sum = said(Command::new("sha256sum").arg(program))?;
        let build = if arguments.program.is_some() {
            "given by --program"
        } else {
            "a build for development, not the release"
        };
        Ok(Self {
            seed,
            set_ups,
            survey: arguments.survey.clone(),
            short: arguments.short,
            version: said(Command::new(program).arg("--version"))?,
            build: build.to_owned(),
            processors: std::thread::available_parallelism().map_err(|e| format!("processors: {e}"))?.get(),
            hash: sum.split_whitespace().next().unwrap_or_default().to_owned(),
            whole,
        })
    }

    /// How a set-up is surveyed.
    pub fn words(&self, number: usize) -> Words {
        let whole = number + self.whole >= self.set_ups.len();
        let text = match self.set_ups.get(number).and_then(Rig::layers) {
            _ if whole => format!("--preset small --mount {MOUNT}"),
            Some(layers) if self.short => format!("--preset quick --only {layers}"),
            _ => self.survey.clone(),
        };
        Words { text, whole }
    }

    /// In what another series differs from this one.
    fn differs(&self, other: &Self) -> Option<String> {
        let rows = [
            ("seed", self.seed.to_string(), other.seed.to_string()),
            ("words for the survey", self.survey.clone(), other.survey.clone()),
            ("version of the program", self.version.clone(), other.version.clone()),
            ("build of the program", self.build.clone(), other.build.clone()),
            ("number of processors", self.processors.to_string(), other.processors.to_string()),
            ("SHA-256 of the program", self.hash.clone(), other.hash.clone()),
            ("number of whole surveys", self.whole.to_string(), other.whole.to_string()),
            ("list of set-ups", format!("{:?}", self.set_ups), format!("{:?}", other.set_ups)),
        ];
        let (what, kept, now) = rows.into_iter().find(|(_, kept, now)| kept != now)?;
        Some(format!("the {what} is {kept} there and {now} now"))
    }
}

impl State {
    /// What an earlier piece of this series left, or a beginning.
    pub fn open(path: Option<&Path>, root: &Path, series: Series) -> Result<Self, String> {
        let Some(path) = path.filter(|path| path.exists()) else {
            // Without a file, whoever cuts this series off and begins anew leaves no trace.
            let interrupted = path.map(|_| 0);
            return Ok(Self { series, commit: source(root), outcomes: Vec::new(), begun: None, interrupted });
        };
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = std::fs::read(path).map_err(|e| failed(&e))?;
        let mut state: Self = serde_json::from_slice(&text).map_err(|e| {
            let what = "it keeps no series: it is another file, or was cut off while it was written";
            failed(&format!("{what} ({e}): name another file, or move it away to begin anew"))
        })?;
        if let Some(why) = state.series.differs(&series) {
            return Err(format!(
                "{}: keeps another series: {why}. Pieces of two series make no table: name another file",
                path.display()
            ));
        }
        if state.begun == Some(state.outcomes.len()) {
            state.interrupted = state.interrupted.map(|times| times + 1);
        }
        Ok(state)
    }

    /// Keeps it, so that nothing is lost, and nothing can be left out: there is always a whole one, this or the last.
    pub fn keep(&self, path: Option<&Path>) -> Result<(), String> {
        let Some(path) = path else { return Ok(()) };
        let text = serde_json::to_vec(self).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let written = File::create(&beside).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.map_err(|e| format!("{}: {e}", beside.display()))?;
        std::fs::rename(&beside, path).map_err(|e| format!("{}: {e}", path.display()))
    }
}

#[cfg(test)]
pub fn an_example() -> Series {
    Series {
        seed: 7,
        set_ups: vec![Rig::Nothing],
        survey: "--preset quick".into(),
        short: false,
        version: "skep 0.1.0".into(),
        build: "built".into(),
        hash: "ab".into(),
        processors: 3,
        whole: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::an_example as series;
    use super::*;

    /// Goal: a tree that differs from its commit is told from one that does not, and from one of which that is not known.
    #[test]
    fn sources() {
        let of = |changes: Result<&str, &str>| {
            described(Ok("897f".to_owned()), changes.map(str::to_owned).map_err(str::to_owned))
        };
        assert_eq!(of(Ok("")), "897f");
        assert_eq!(of(Ok(" M a.rs")), "897f with changes that were not committed");
        assert!(of(Err("no index")).starts_with("897f, perhaps"));
        assert_eq!(described(Err("no git".to_owned()), Ok(String::new())), "not known");
    }

    /// Goal: a series goes on where it stopped, a cut is counted, and pieces of another seed, program or rig
    /// table are refused by name.
    #[test]
    fn no_mixture() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let (path, root) = (scratch.path().join("state.json"), scratch.path());
        assert_eq!(State::open(None, root, series()).unwrap().interrupted, None);
        let mut state = State::open(Some(&path), root, series()).unwrap();
        assert_eq!(state.interrupted, Some(0));
        state.begun = Some(0);
        state.keep(Some(&path)).unwrap();
        let state = State::open(Some(&path), root, series()).unwrap();
        assert_eq!((state.interrupted, state.outcomes.len()), (Some(1), 0));
        let others = [
            ("seed", Series { seed: 8, ..series() }),
            ("SHA-256", Series { hash: "cd".into(), ..series() }),
            ("build", Series { build: "given".into(), ..series() }),
            ("processors", Series { processors: 4, ..series() }),
            ("version", Series { version: "skep 0.2.0".into(), ..series() }),
            ("words", Series { survey: "--preset small".into(), ..series() }),
            ("set-ups", Series { set_ups: vec![], ..series() }),
        ];
        for (what, other) in others {
            let refused = State::open(Some(&path), root, other).err().unwrap();
            assert!(refused.contains(what), "{refused}");
        }
    }

    /// Goal: what is kept is never seen half: it takes the place of the last one whole, and one that cannot be written
    /// leaves the last one. Half a file, as others may leave it, is refused with what to do.
    #[test]
    fn never_half() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let (path, root) = (scratch.path().join("state.json"), scratch.path());
        let mut state = State::open(Some(&path), root, series()).unwrap();
        state.keep(Some(&path)).unwrap();
        let mut last = File::open(&path).unwrap();
        state.begun = Some(0);
        state.keep(Some(&path)).unwrap();
        let mut kept = String::new();
        std::io::Read::read_to_string(&mut last, &mut kept).unwrap();
        assert!(kept.contains("\"begun\":null"), "the last one was written over: {kept}");
        let whole = std::fs::read(&path).unwrap();
        std::fs::create_dir(scratch.path().join("state.json.new")).unwrap();
        let refused = state.keep(Some(&path)).unwrap_err();
        assert!(refused.contains("state.json.new: "), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let refused = State::open(Some(&path), root, series()).err().unwrap();
        assert!(refused.contains("cut off") && refused.contains("name another file"), "{refused}");
    }
}

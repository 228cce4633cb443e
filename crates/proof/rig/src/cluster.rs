//! One cluster: `skep up` in a directory of its own.

use crate::daemon::Daemon;
use crate::mounts::is_mounted;
use crate::runner::Runner;
use crate::scratch::{Scratch, take_down};
use signal_hook::consts::SIGHUP;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};

/// Lines of each log that are shown after a failure.
const LINES_SHOWN: usize = 40;

/// What to start.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program.
    pub skep: PathBuf,
    /// Storage targets.
    pub targets: u32,
    /// Metadata shards.
    pub shards: u32,
    /// Metadata servers.
    pub metas: u32,
    /// Groups of each of them.
    pub groups: u32,
    /// Storage servers.
    pub servers: u32,
    /// Where its directory is made; absent: where temporary files go.
    pub base: Option<PathBuf>,
    /// Configuration by environment, such as (`SKEP_METAD_GRACE`, `2s`).
    pub environment: Vec<(String, String)>,
}

impl Plan {
    /// The small cluster that most tests want: two storage servers with two targets each, four shards.
    pub fn new(skep: impl Into<PathBuf>) -> Self {
        Self {
            skep: skep.into(),
            targets: 4,
            shards: 4,
            metas: 1,
            groups: 1,
            servers: 2,
            base: None,
            environment: Vec::new(),
        }
    }

    /// With one more key of a service's configuration.
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.environment.push((variable.to_owned(), value.to_owned()));
        self
    }
}

/// A running cluster with its first mount. Dropped, nothing of it is left.
#[derive(Debug)]
pub struct Cluster {
    plan: Plan,
    runner: Runner,
    /// Starts and stops the cluster: a command that waits for a dead server must not keep it from coming back.
    lifecycle: Runner,
    scratch: Scratch,
    mount: PathBuf,
}

impl Cluster {
    /// Starts it and waits until it is mounted.
    pub fn start(plan: Plan) -> Result<Self, String> {
        listen_to_the_terminal()?;
        let scratch = Scratch::new(plan.base.as_deref())?;
        let mount = scratch.path().join("mnt");
        let cluster = Self { plan, runner: Runner::start()?, lifecycle: Runner::start()?, scratch, mount };
        cluster.up()?;
        if !is_mounted(&cluster.mount) {
            return Err(format!("skep up succeeded, but nothing is mounted at {}", cluster.mount.display()));
        }
        Ok(cluster)
    }

    /// The directory of `skep up`.
    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("cluster")
    }

    /// A path beside the cluster's own directory, for files of the test; it goes away with the cluster.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The first mount.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The program that it runs.
    pub fn program(&self) -> &Path {
        &self.plan.skep
    }

    /// The state directory of each group of shards, on all metadata servers.
    pub fn groups(&self) -> Vec<PathBuf> {
        let server = |number| self.dir().join("state").join(format!("metad-{number}"));
        let group = |server: PathBuf, number| match number {
            0 => server,
            _ => server.join(format!("group-{number}")),
        };
        let groups = |server: PathBuf| (0..self.plan.groups).map(move |number| group(server.clone(), number));
        (1..=self.plan.metas).flat_map(|number| groups(server(number))).collect()
    }

    /// `skep up`: starts whatever does not run.
    pub fn up(&self) -> Result<(), String> {
        let number = |n: u32| OsString::from(n.to_string());
        let words: [OsString; 15] = [
            "up".into(),
            "--dir".into(),
            self.dir().into(),
            "--mount".into(),
            self.mount.clone().into(),
            "--targets".into(),
            number(self.plan.targets),
            "--shards".into(),
            number(self.plan.shards),
            "--metas".into(),
            number(self.plan.metas),
            "--groups".into(),
            number(self.plan.groups),
            "--servers".into(),
            number(self.plan.servers),
        ];
        self.must_by(&self.lifecycle, words).map(drop)
    }

    /// `skep down`.
    pub fn down(&self) -> Result<(), String> {
        let dir = self.dir();
        self.must_by(&self.lifecycle, [OsStr::new("down"), OsStr::new("--dir"), dir.as_os_str()]).map(drop)
    }

    /// `skep` with these words and the plan's environment, to be started by the caller.
    pub fn command<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        let mut command = Command::new(&self.plan.skep);
        command.args(words).stdin(Stdio::null());
        command.envs(self.plan.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `skep` to its end, also while this process has files of the cluster open.
    pub fn run<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Result<Output, String> {
        self.run_by(&self.runner, words)
    }

    fn run_by<W: AsRef<OsStr>>(
        &self,
        runner: &Runner,
        words: impl IntoIterator<Item = W>,
    ) -> Result<Output, String> {
        let program = self.plan.skep.clone().into_os_string();
        let words = words.into_iter().map(|word| word.as_ref().to_owned());
        let words: Vec<OsString> = std::iter::once(program).chain(words).collect();
        runner.run(&words, &self.plan.environment, self.scratch.path())
    }

    /// [`Cluster::run`] that must succeed; gives what was printed on standard output.
    pub fn must<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Result<String, String> {
        self.must_by(&self.runner, words)
    }

    fn must_by<W: AsRef<OsStr>>(
        &self,
        runner: &Runner,
        words: impl IntoIterator<Item = W>,
    ) -> Result<String, String> {
        let words: Vec<OsString> = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        let output = self.run_by(runner, &words)?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            Ok(out.into_owned())
        } else {
            Err(format!("skep {}: {}\n{out}{err}", words.join(OsStr::new(" ")).display(), output.status))
        }
    }

    /// An administrative command against this cluster, such as `["node", "list"]`.
    pub fn admin<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Result<String, String> {
        self.must(self.admin_words(words))
    }

    /// The words of [`Cluster::admin`].
    pub fn admin_words<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Vec<OsString> {
        let words = words.into_iter().map(|word| word.as_ref().to_owned());
        words.chain([OsString::from("--cluster"), self.dir().join("cluster.toml").into()]).collect()
    }

    /// Every process of it that runs, the mounts among them.
    pub fn daemons(&self) -> Vec<Daemon> {
        Daemon::all(self.scratch.path())
    }

    /// The running processes of one service.
    pub fn of(&self, service: &str) -> Vec<Daemon> {
        self.daemons().into_iter().filter(|daemon| daemon.service == service).collect()
    }

    /// The only (or first) process of a service.
    pub fn one(&self, service: &str) -> Result<Daemon, String> {
        let all = self.daemons();
        let found = all.iter().find(|daemon| daemon.service == service).cloned();
        found.ok_or_else(|| format!("no {service} runs; these do: {all:?}"))
    }

    /// The process behind the mount at `point`.
    pub fn mount_daemon(&self, point: &Path) -> Result<Daemon, String> {
        let all = self.of("mount");
        let set = OsString::from(format!("mount_point={}", point.display()));
        let named = |daemon: &&Daemon| {
            daemon.words.iter().any(|word| word == point.as_os_str() || *word == set)
                || point == self.mount && daemon.words.iter().all(|word| !self.is_mount_point(word))
        };
        let found = all.iter().find(named).cloned();
        found.ok_or_else(|| format!("no process serves {}; these mount: {all:?}", point.display()))
    }

    /// Mounts the cluster once more, at a new directory of this name; `options` go to `-o`.
    pub fn second_mount(&self, name: &str, options: &[&str]) -> Result<PathBuf, String> {
        let point = self.beside(name);
        std::fs::create_dir_all(&point).map_err(|e| format!("{}: {e}", point.display()))?;
        self.mount_at(&point, options).map(|()| point)
    }

    /// Mounts at a point of [`Cluster::second_mount`] again, after its process was killed.
    pub fn mount_again(&self, point: &Path) -> Result<(), String> {
        self.mount_at(point, &[])
    }

    fn mount_at(&self, point: &Path, options: &[&str]) -> Result<(), String> {
        self.must(self.mount_words(point, options))?;
        match is_mounted(point) {
            true => Ok(()),
            false => Err(format!("skep mount succeeded, but nothing is mounted at {}", point.display())),
        }
    }

    /// The words that mount this cluster at `point`.
    pub fn mount_words(&self, point: &Path, options: &[&str]) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            vec!["mount".into(), "--config".into(), self.dir().join("etc/mount.toml").into()];
        for option in options {
            words.extend(["--set".into(), OsString::from(option)]);
        }
        words.extend(["--set".into(), format!("mount_point={}", point.display()).into()]);
        words
    }

    /// What every log of the cluster says, by file name.
    pub fn logs(&self) -> Vec<(String, String)> {
        // Mounts beside the first write where they run.
        let files = |place: &str| std::fs::read_dir(self.dir().join(place)).into_iter().flatten().flatten();
        let others = files("run").filter(|file| file.path().extension().is_some_and(|end| end == "log"));
        let mut logs: Vec<(String, String)> = files("log")
            .chain(others)
            .map(|file| {
                let text = std::fs::read(file.path()).unwrap_or_default();
                (file.file_name().display().to_string(), String::from_utf8_lossy(&text).into_owned())
            })
            .collect();
        logs.sort();
        logs
    }

    /// Prints the last lines of every log.
    pub fn show_logs(&self) {
        for (name, text) in self.logs() {
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("--- {name}, the last lines of {}", lines.len());
            for line in &lines[lines.len().saturating_sub(LINES_SHOWN)..] {
                eprintln!("{line}");
            }
        }
    }

    /// Does a word of a mount's command line say where it mounts? (`skep up` says it in a file.) Nothing
    /// is looked at: the mount may hang.
    fn is_mount_point(&self, word: &OsStr) -> bool {
        let toml = Path::new(word).extension().is_some_and(|extension| extension == "toml");
        let below = Path::new(word).starts_with(self.scratch.path());
        word.as_encoded_bytes().starts_with(b"mount_point=") || (below && !toml)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_logs();
        }
        take_down(self.scratch.path());
    }
}
/// Under nohup this process ignores SIGHUP, and so would everything that it starts, also what tests send that signal. What
/// is caught is not inherited: so it is caught, and goes on doing nothing.
fn listen_to_the_terminal() -> Result<(), String> {
    static CAUGHT: OnceLock<Result<(), String>> = OnceLock::new();
    let catch = || {
        let failed = |e: std::io::Error| format!("signals of this process: {e}");
        let status = std::fs::read_to_string("/proc/self/status").map_err(failed)?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0").trim();
        let is_ignored = u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & 1 << (SIGHUP - 1) != 0);
        match is_ignored {
            true => signal_hook::flag::register(SIGHUP, Arc::default()).map(drop).map_err(failed),
            false => Ok(()),
        }
    };
    CAUGHT.get_or_init(catch).clone()
}

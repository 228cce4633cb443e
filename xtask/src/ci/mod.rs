//! `cargo xtask ci`: the steps of `make test`, in order, each with its title, time and count.
//!
//! A step is a command. Lines such as `test result: ok. 3 passed; 0 failed` or `3 passed, 0 failed`
//! in its output are counted; a step that prints none counts as one case. All steps run even after
//! one failed, so that one run shows everything.

mod count;
mod said;
mod setting;
pub mod step;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::Table;
use comfy_table::presets::NOTHING;

pub use count::Count;
use setting::Kept;
use step::Outcome;

/// One step: a name for the command line, a title, a command and its longest time.
struct Step {
    name: &'static str,
    title: &'static str,
    command: &'static [&'static str],
    limit: Duration,
    /// Run when no step is named.
    always: bool,
    /// How the mounts of the step are served, where it has any.
    transport: Option<Transport>,
    /// Run at the same time as the step before it: both leave processors idle, and neither measures.
    beside: bool,
}

/// How mounts get their requests from the kernel. A step asks for one and fails without it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// FUSE over `io_uring`.
    Uring,
    /// `/dev/fuse`.
    Dev,
    /// The same, by mounts that ask for no leases. All others do.
    DevUnleased,
}

impl Transport {
    /// Settings for everything that the step starts.
    fn variables(self) -> [&'static str; 2] {
        match self {
            Self::Uring => ["SKEP_MOUNT_TRANSPORT=uring", "SKEP_MOUNT_LEASES=on"],
            Self::Dev => ["SKEP_MOUNT_TRANSPORT=dev", "SKEP_MOUNT_LEASES=on"],
            Self::DevUnleased => ["SKEP_MOUNT_TRANSPORT=dev", "SKEP_MOUNT_LEASES=off"],
        }
    }
}

/// The switch of the kernel module; it is off until somebody sets it. Steps set it, and the run puts it back.
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// What follows ends when the thread that started it does.
pub const ENDS_WITH_US: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Runs what follows in namespaces of its own: when this run ends, in whatever way, so does everything in them, and their
/// mounts go. (When the thread that started it dies so does unshare, with it the first process of the namespace.)
const CONTAINED: [&str; 11] = [
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--fork",
    "--kill-child",
    "--pid",
    "--mount-proc",
    "--mount",
    "--propagation",
    "private",
];

/// Longest time of a step that only reads the sources.
const READING: Duration = Duration::from_secs(300);
/// Longest time of a step that compiles the tree.
const COMPILING: Duration = Duration::from_secs(1_200);

/// Longest time of a step that works on mounted clusters: several times what it takes on two cores.
const MOUNTED: Duration = Duration::from_secs(1_800);

/// Modules of process tests that are not about what mounts do with the kernel's requests.
const ONE_TRANSPORT: &str = "survey,tune,loads,instruments,administration,agent,bench,http,intruders,pools,refusals,\
    tending,ages,another,crowded,connections,formats,full,gone,idle,metas,moves,schema,shards";

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        title: "the sources are formatted",
        command: &["cargo", "fmt", "--all", "--check"],
        limit: READING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "clippy",
        title: "no warning of compiler or clippy, without a build",
        command: &[
            "cargo",
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
        limit: COMPILING,
        always: false,
        transport: None,
        beside: false,
    },
    Step {
        name: "build",
        title: "everything compiles, without a warning of compiler or clippy",
        command: &["cargo", "xtask", "build"],
        limit: COMPILING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "tidy",
        title: "the rules of the house",
        command: &["cargo", "xtask", "tidy"],
        limit: READING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "bare",
        title: "vocabulary, rules and model without std and without a system below",
        command: &["cargo", "xtask", "bare"],
        limit: COMPILING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "notices",
        title: "notices of others' crates are those of Cargo.lock",
        command: &["cargo", "xtask", "notices", "--check"],
        limit: READING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "deny",
        title: "licences, bans and sources of dependencies",
        command: &[
            "cargo",
            "deny",
            "--offline",
            "check",
            "--hide-inclusion-graph",
            "licenses",
            "bans",
            "sources",
        ],
        limit: READING,
        always: false,
        transport: None,
        beside: false,
    },
    Step {
        name: "test",
        title: "unit tests and fuzz smoke of every crate",
        // The browser beside it waits for one page after the other; these fill the processors meanwhile.
        command: &["nice", "-n", "5", "cargo", "xtask", "units"],
        limit: COMPILING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "conform",
        title: "the POSIX table over a mount (FUSE over io_uring)",
        command: &["nice", "-n", "5", "cargo", "xtask", "conform", "--jobs", "3"],
        limit: MOUNTED,
        always: true,
        transport: Some(Transport::Uring),
        beside: true,
    },
    Step {
        name: "conform-dev",
        title: "a quarter of the POSIX table over /dev/fuse, without leases",
        // What is above the transport is seen over the other one. That everything works without leases as well is seen here.
        command: &["nice", "-n", "5", "cargo", "xtask", "conform", "--every", "4"],
        limit: MOUNTED,
        always: true,
        transport: Some(Transport::DevUnleased),
        beside: true,
    },
    Step {
        name: "browser",
        title: "the survey's report in a real browser and on paper",
        command: &["cargo", "xtask", "browser"],
        limit: MOUNTED,
        always: true,
        transport: None,
        beside: true,
    },
    Step {
        name: "fuzz",
        title: "readers of bytes from outside, fuzzed by the code that inputs reach",
        command: &["cargo", "xtask", "fuzz", "--runs", "20000"],
        limit: COMPILING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "sim",
        title: "the rules of a whole cluster against the oracle, 400 seeds",
        command: &["cargo", "xtask", "sim", "--seeds", "400"],
        limit: COMPILING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "sim-pieces",
        title: "the same of files that are written in small pieces, 40 seeds",
        command: &["cargo", "xtask", "sim", "--seeds", "40", "--pieces"],
        limit: COMPILING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "canary",
        title: "bugs on purpose, which the simulator must find",
        // The rarest, answers-first, is met by one seed in a hundred.
        command: &["cargo", "xtask", "sim", "--seeds", "2000", "--canary", "all"],
        limit: COMPILING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "process",
        title: "real daemons, sockets and mounts (FUSE over io_uring)",
        command: &["cargo", "xtask", "process"],
        limit: MOUNTED,
        always: true,
        transport: Some(Transport::Uring),
        beside: false,
    },
    Step {
        name: "process-dev",
        title: "the same with mounts over /dev/fuse, where a mount is what is tested",
        // What administers and measures was tested with the other transport: it is the same program above both.
        command: &["cargo", "xtask", "process", "--except", ONE_TRANSPORT],
        limit: MOUNTED,
        always: true,
        transport: Some(Transport::Dev),
        beside: false,
    },
    Step {
        name: "hosts",
        title: "four hosts by the pages of docs/admin, word for word, under load",
        command: &["cargo", "xtask", "hosts"],
        limit: MOUNTED,
        always: true,
        transport: None,
        beside: true,
    },
    Step {
        name: "rigged",
        title: "a disk, a network and a daemon made slow, large packets dropped, each of which the survey must name; and nothing, where nothing is",
        command: &["cargo", "xtask", "rigged", "--short"],
        limit: COMPILING,
        always: true,
        transport: None,
        beside: false,
    },
    Step {
        name: "crash",
        title: "random kill -9 under load: nothing lost, nothing leaked",
        command: &["cargo", "xtask", "crash", "--seed", "1", "--kills", "8", "--mount-kills", "1"],
        limit: MOUNTED,
        always: true,
        transport: Some(Transport::Uring),
        beside: false,
    },
    Step {
        name: "lost-log",
        title: "a lost end of the metadata log, which the crash test must find",
        command: &[
            "cargo",
            "xtask",
            "crash",
            "--seed",
            "1",
            "--kills",
            "30",
            "--mount-kills",
            "0",
            "--canary",
            "log",
        ],
        limit: MOUNTED,
        always: true,
        transport: Some(Transport::Uring),
        beside: true,
    },
    Step {
        name: "lost-byte",
        title: "a wrong byte on a target, which the crash test must find",
        command: &[
            "cargo",
            "xtask",
            "crash",
            "--seed",
            "1",
            "--kills",
            "30",
            "--mount-kills",
            "0",
            "--canary",
            "chunk",
        ],
        limit: MOUNTED,
        always: true,
        transport: Some(Transport::Uring),
        beside: true,
    },
];

/// Which steps to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Steps by name; none: all of `make test`.
    steps: Vec<String>,
    /// Print the steps and stop.
    #[arg(long)]
    list: bool,
}

/// Runs the steps; true when all passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    if arguments.list {
        for step in STEPS {
            println!(
                "{:11} {}{}",
                step.name,
                step.title,
                if step.always { "" } else { " (only when named)" }
            );
        }
        return Ok(true);
    }
    let steps = chosen(&arguments.steps)?;
    let _uring = Kept::of(Path::new(ENABLE_URING))?;
    let mut results = Vec::new();
    let mut begun = 0;
    for group in steps.chunk_by(|_, next| next.beside) {
        for step in group {
            begun += 1;
            println!("==> {begun}/{} {}: {}", steps.len(), step.name, step.title);
        }
        for (step, outcome) in group.iter().zip(run_together(root, group)?) {
            println!(
                "==> {} {} after {:.1} s ({:.1} s of processors)",
                step.name,
                word(&outcome),
                outcome.took.as_secs_f64(),
                outcome.processor.as_secs_f64()
            );
            keep(root, step, &outcome);
            results.push((*step, outcome));
        }
    }
    Ok(summary(&results))
}

/// Runs steps at the same time. What the first one prints is seen at once, what the others print when all have ended.
fn run_together(root: &Path, group: &[&Step]) -> Result<Vec<Outcome>, String> {
    let run_one = |step: &Step, sink: &mut dyn Write| match command(step) {
        Ok(command) => step::run(root, &command, step.limit, sink),
        Err(text) => {
            let _ = writeln!(sink, "{text}");
            Ok(Outcome::not_run())
        }
    };
    let Some((first, others)) = group.split_first() else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let captured = |step| {
            let mut output = Vec::new();
            run_one(step, &mut output).map(|outcome| (outcome, output))
        };
        let others: Vec<_> = others.iter().map(|step| scope.spawn(move || captured(step))).collect();
        let mut outcomes = vec![run_one(first, &mut std::io::stdout())?];
        for other in others {
            let (outcome, output) = other.join().map_err(|_| "a step's thread panicked")??;
            // Who reads our output may have gone; the step still counts.
            let _ = std::io::stdout().write_all(&output);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    })
}

/// The command of a step, its transport made ready.
fn command(step: &Step) -> Result<Vec<&'static str>, String> {
    if step.transport == Some(Transport::Uring) {
        std::fs::write(ENABLE_URING, "Y").map_err(|e| {
            format!("{ENABLE_URING}: {e}; FUSE over io_uring needs Linux 6.14, the module fuse and root")
        })?;
    }
    Ok(words(step))
}

fn words(step: &Step) -> Vec<&'static str> {
    let Some(transport) = step.transport else {
        return ENDS_WITH_US.iter().chain(step.command).copied().collect();
    };
    // Process tests have namespaces each, which end with them.
    let around: &[&str] = if step.command.contains(&"process") { &ENDS_WITH_US } else { &CONTAINED };
    let settings = transport.variables();
    ["env"].into_iter().chain(settings).chain(around.iter().chain(step.command).copied()).collect()
}

fn chosen(names: &[String]) -> Result<Vec<&'static Step>, String> {
    if names.is_empty() {
        return Ok(STEPS.iter().filter(|step| step.always).collect());
    }
    let find = |name: &String| {
        STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
            let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            format!("there is no step {name:?}; the steps are {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// Adds a line to `target/ci-times.tsv`: seconds since 1970, step, seconds, result, seconds of processors. How long a step takes is seen over many
/// runs only.
fn keep(root: &Path, step: &Step, outcome: &Outcome) {
    let target = crate::target_directory(root);
    let path = target.join("ci-times.tsv");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (took, processor) = (outcome.took.as_secs_f64(), outcome.processor.as_secs_f64());
    let line = format!("{now}\t{}\t{took:.1}\t{}\t{processor:.1}\n", step.name, word(outcome));
    let file = OpenOptions::new().create(true).append(true).open(&path);
    if let Err(e) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("{}: {e}", path.display());
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match (outcome.passed, outcome.expired) {
        (_, true) => "ran out of time",
        (true, _) => "passed",
        (false, _) => "FAILED",
    }
}

/// Prints the table and, as the last line, the sum; true when nothing failed.
fn summary(results: &[(&Step, Outcome)]) -> bool {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["step", "seconds", "processors", "passed", "failed", "result"]);
    let mut sum = Count::default();
    for (step, outcome) in results {
        let count = outcome.cases();
        sum.passed += count.passed;
        sum.failed += count.failed;
        table.add_row([
            step.name.to_owned(),
            format!("{:.1}", outcome.took.as_secs_f64()),
            format!("{:.1}", outcome.processor.as_secs_f64()),
            count.passed.to_string(),
            count.failed.to_string(),
            word(outcome).to_owned(),
        ]);
    }
    for (step, outcome) in results.iter().filter(|(_, outcome)| !outcome.passed) {
        println!("==> {} {}; it said:\n{}", step.name, word(outcome), outcome.said.text());
    }
    let processors: Duration = results.iter().map(|(_, outcome)| outcome.processor).sum();
    println!("{table}");
    println!("{:.0} s of processors", processors.as_secs_f64());
    println!("{} passed, {} failed", sum.passed, sum.failed);
    sum.failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use said::Said;

    /// Until a process has said something, or ended.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn names(steps: &[&Step]) -> Vec<&'static str> {
        steps.iter().map(|step| step.name).collect()
    }

    /// Goal: without names the steps of `make test` run in their order; a wrong name is refused.
    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(
            names(&chosen(&[]).expect("all")),
            [
                "fmt",
                "build",
                "tidy",
                "bare",
                "notices",
                "test",
                "conform",
                "conform-dev",
                "browser",
                "fuzz",
                "sim",
                "sim-pieces",
                "canary",
                "process",
                "process-dev",
                "hosts",
                "rigged",
                "crash",
                "lost-log",
                "lost-byte"
            ]
        );
        assert_eq!(names(&chosen(&["deny".into(), "fmt".into()]).expect("two")), ["deny", "fmt"]);
        let error = chosen(&["fmtt".into()]).err().expect("unknown");
        assert!(error.contains("the steps are fmt, "), "{error}");
    }

    /// Goal: nothing that a step started outlives this run, not even when it is killed. Method: a shell in its place, and a
    /// process that goes away from its group as daemons do.
    #[test]
    fn a_killed_run_leaves_no_process() {
        let inside = "setsid sleep 1000 & echo began; wait";
        let mut run = std::process::Command::new("sh")
            .args(["-c", "\"$@\" & wait", "sh"])
            .args(CONTAINED)
            .args(["sh", "-c", inside])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        let output = run.stdout.take().expect("a pipe");
        let (send, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut said = std::io::BufReader::new(output);
            let mut line = String::new();
            std::io::BufRead::read_line(&mut said, &mut line).expect("a line");
            send.send(line).expect("somebody listens");
            // Whoever lives has our pipe open: its end is the end of them all.
            send.send(std::io::read_to_string(said).expect("the end")).expect("somebody listens");
        });
        assert_eq!(lines.recv_timeout(PATIENCE).expect("it begins"), "began\n", "namespaces need root");
        run.kill().expect("kill");
        run.wait().expect("wait");
        assert_eq!(lines.recv_timeout(PATIENCE).expect("nobody is left"), "");
    }

    /// Goal: no step outlives this run, and those that mount take everything with them.
    #[test]
    fn every_step_ends_with_us() {
        for step in STEPS {
            let words = words(step);
            assert!(words.windows(3).any(|three| three == ENDS_WITH_US), "{}", step.name);
            let contained = words.windows(CONTAINED.len()).any(|some| some == CONTAINED);
            assert_eq!(contained, step.transport.is_some() && !words.contains(&"process"), "{}", step.name);
        }
    }

    /// Goal: mounts have leases over each transport, and some have none.
    #[test]
    fn leases_are_tried_over_each_transport_and_without() {
        let settings = |name: &str| {
            let step = chosen(&[name.into()]).expect("a step")[0];
            words(step).into_iter().filter(|word| word.starts_with("SKEP_MOUNT_")).collect::<Vec<_>>()
        };
        for (name, transport, leases) in [
            ("conform", "uring", "on"),
            ("conform-dev", "dev", "off"),
            ("process", "uring", "on"),
            ("process-dev", "dev", "on"),
            ("crash", "uring", "on"),
        ] {
            let expected =
                [format!("SKEP_MOUNT_TRANSPORT={transport}"), format!("SKEP_MOUNT_LEASES={leases}")];
            assert_eq!(settings(name), expected, "{name}");
        }
    }

    /// Goal: one failed step makes the whole run fail, whatever the others count.
    #[test]
    fn one_failure_fails_the_run() {
        let outcome = |passed, failed| Outcome {
            passed,
            expired: false,
            took: Duration::ZERO,
            processor: Duration::ZERO,
            count: Count { passed: 5, failed },
            said: Said::default(),
        };
        assert!(summary(&[(&STEPS[0], outcome(true, 0)), (&STEPS[1], outcome(true, 0))]));
        assert!(!summary(&[(&STEPS[0], outcome(true, 0)), (&STEPS[1], outcome(false, 0))]));
        assert!(!summary(&[(&STEPS[0], outcome(true, 1))]));
    }
}

//! `skep bench ior|mdtest|iozone|fio|elbencho -- ARGS`: other tools' command lines.

mod made;

use super::coordinator::{HostsArgs, draw};
use super::load::{advised, perform};
use super::output::ShowArgs;
use clap::Args;
use made::Directories;
use serde::Serialize;
use skep_base::output::{self, Row};
use skep_base::{Failure, Outcome};
use skep_bench::dialect::{Launch, Surroundings, Tool, Translation, Understood, relative, translate};
use skep_bench::job::{Job, Work};
use std::io::{Read, Write};
use std::path::Path;

/// Longest file that a command line names (job files, lists of clients).
const FILE_MAX: u64 = 1 << 20;

/// What each of them takes.
#[derive(Debug, Args)]
pub struct DialectArgs {
    /// Show the job, and how each option was understood, and do nothing
    #[arg(long)]
    explain: bool,
    /// Where workers run.
    #[command(flatten)]
    hosts: HostsArgs,
    /// How to show it.
    #[command(flatten)]
    show: ShowArgs,
    /// The tool's own options; mpirun and the program's path may stand first
    #[arg(last = true, required = true, value_name = "ARGS")]
    words: Vec<String>,
}

/// What tools take whose work other commands do.
#[derive(Debug, Args)]
pub struct RelativeArgs {
    /// The tool's own options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    words: Vec<String>,
}

/// How an option was understood.
#[derive(Serialize)]
struct Line {
    option: String,
    meaning: String,
}

impl Row for Line {
    const TITLES: &'static [&'static str] = &["OPTION", "MEANING"];
    fn cells(&self) -> Vec<String> {
        vec![self.option.clone(), self.meaning.clone()]
    }
}

/// Does what the command line of `tool` says.
pub fn run(tool: Tool, args: &DialectArgs, out: &mut dyn Write) -> Outcome {
    if let Some(found) = relative(&args.words) {
        // Work was asked for, and none is done.
        return Err(Failure::new(instead(found)?));
    }
    let named = args.hosts.names().map_err(Failure::new)?;
    let mut translation = translated(tool, &args.words, &named)?;
    let hosts = hosts(&args.hosts, &translation.launch);
    spread(&mut translation, &hosts)?;
    if args.explain {
        return explain(&translation, out).map_err(|e| Failure::new(format!("cannot write: {e}")));
    }
    for line in translation.understood.iter().filter(|line| line.meaning.starts_with("no effect")) {
        eprintln!("skep: {}: {}", line.option, line.meaning);
    }
    let mut made = Directories::default();
    for job in &translation.jobs {
        prepare(tool, job, &mut made)?;
        let mut crew = hosts.crew(job).map_err(Failure::new)?;
        let done = perform(job, crew.as_mut(), &args.show, out);
        done.map_err(|failure| advised(failure, other_name(tool)))?;
    }
    Ok(())
}

/// Names the command that does what another tool's command line asks for; none: `args` hold the tool's name, too.
pub fn run_relative(name: Option<&str>, args: &RelativeArgs, out: &mut dyn Write) -> Outcome {
    let mut words: Vec<String> = name.map(str::to_owned).into_iter().collect();
    let own = args.words.first().is_some_and(|word| word.rsplit('/').next() == name);
    words.extend(args.words.iter().skip(usize::from(own)).cloned());
    match relative(&words) {
        Some(found) => {
            let answer = instead(found)?;
            writeln!(out, "{answer}").map_err(|e| Failure::new(format!("cannot write: {e}")))
        }
        None => Err(Failure::new(format!(
            "`{}` has no equivalent here that is known: see docs/admin/bench-tools.md",
            words.join(" ")
        ))),
    }
}

fn instead(found: Result<skep_bench::dialect::Relative, String>) -> Outcome<String> {
    let found = found.map_err(Failure::new)?;
    Ok(format!("{}: run `{}` instead: {}", found.tool, found.instead, found.because))
}

/// `hosts`: those that flags of this program name.
fn translated(tool: Tool, words: &[String], hosts: &[String]) -> Outcome<Translation> {
    let directory = std::env::current_dir().map_err(|e| Failure::local("working directory", e))?;
    let around = Surroundings {
        directory: &directory.to_string_lossy(),
        read: &|path| read(path),
        is_dir: &|path| Path::new(path).is_dir(),
        file_size: &|path| {
            Path::new(path).metadata().ok().filter(|meta| meta.is_file()).map(|meta| meta.len())
        },
        hosts,
        drawn: draw().map_err(Failure::new)?,
    };
    translate(tool, words, &around).map_err(|e| Failure::usage(e.to_string()))
}

fn read(path: &str) -> Result<String, String> {
    let wrong = |e: std::io::Error| format!("cannot be read: {e}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(wrong)?;
    file.take(FILE_MAX).read_to_string(&mut text).map_err(wrong)?;
    Ok(text)
}

/// Flags of this program win over what the tool's line says.
fn hosts(flags: &HostsArgs, launch: &Launch) -> HostsArgs {
    let mut hosts = flags.clone();
    if hosts.hosts.is_empty() && hosts.host_file.is_none() {
        hosts.hosts.clone_from(&launch.hosts);
        hosts.host_file = launch.host_file.clone().filter(|_| hosts.hosts.is_empty());
    }
    hosts
}

/// `-npernode 4` counts once the hosts are known.
fn spread(translation: &mut Translation, hosts: &HostsArgs) -> Outcome {
    if let (None, Some(per_host)) = (translation.launch.processes, translation.launch.per_host) {
        let count = hosts.names().map_err(Failure::new)?.len().max(1);
        for job in &mut translation.jobs {
            job.workers.processes = per_host.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }
    let slots = hosts.slots().map_err(Failure::new)?;
    for job in &mut translation.jobs {
        job.slots.clone_from(&slots);
        job.check().map_err(|e| Failure::usage(e.to_string()))?;
    }
    Ok(())
}

/// mdtest makes the directory that it is told to work in.
fn prepare(tool: Tool, job: &Job, made: &mut Directories) -> Outcome {
    let (Tool::Mdtest, Work::Meta(meta)) = (tool, &job.work) else { return Ok(()) };
    meta.paths.iter().try_for_each(|path| made.make(Path::new(path)))
}

/// What to do in the tool's own line where a name is taken.
fn other_name(tool: Tool) -> &'static str {
    match tool {
        Tool::Ior => "name another file by -o, or have it written over by -E",
        Tool::Mdtest => "or name another directory by -d",
        Tool::Iozone => "or name other files by -f or -F",
        Tool::Fio => "or name another by --filename or --directory",
        Tool::Elbencho => "or name another directory or file at the end of the line",
    }
}

fn explain(translation: &Translation, out: &mut dyn Write) -> std::io::Result<()> {
    let line = |line: &Understood| Line { option: line.option.clone(), meaning: line.meaning.clone() };
    let lines: Vec<_> = translation.understood.iter().map(line).collect();
    output::rows(output::Format::Table, &lines, out)?;
    for job in &translation.jobs {
        writeln!(out, "\n{}", serde_json::to_string_pretty(job)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: `--hosts` wins over a launcher's host file; per-host counts are multiplied out.
    #[test]
    fn where_workers_run() {
        let words: Vec<String> =
            "mpirun -npernode 4 -machinefile m ior -w -o /tmp/x".split(' ').map(str::to_owned).collect();
        let mut translation = translated(Tool::Ior, &words, &[]).unwrap();
        let flags = HostsArgs { hosts: vec!["a".into(), "b".into()], ..HostsArgs::default() };
        let chosen = hosts(&flags, &translation.launch);
        assert_eq!((chosen.hosts.len(), chosen.host_file.is_none()), (2, true));
        spread(&mut translation, &chosen).unwrap();
        assert_eq!(translation.jobs[0].workers.processes, 8);
        let chosen = hosts(&HostsArgs::default(), &translation.launch);
        assert_eq!(chosen.host_file.as_deref(), Some(Path::new("m")));
    }

    /// Goal: a host file's slots decide which host a process goes to.
    #[test]
    fn slots_of_a_host_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        std::fs::write(&file, "a slots=3\nb slots=1\n").unwrap();
        let line = format!("mpirun -np 4 --map-by slot --hostfile {} ior -w -o /tmp/x", file.display());
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut translation = translated(Tool::Ior, &words, &[]).unwrap();
        let chosen = hosts(&HostsArgs::default(), &translation.launch);
        spread(&mut translation, &chosen).unwrap();
        assert_eq!(translation.jobs[0].hosts_of(2), [0, 0, 0, 1]);
    }

    /// Goal: a line that has an equivalent is answered with it on standard output, and that is a success; one that has
    /// none, or that cannot be, is a failure.
    #[test]
    fn an_answer_is_a_success() {
        let ask = |name: Option<&str>, words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let mut out = Vec::new();
            let outcome = run_relative(name, &RelativeArgs { words }, &mut out);
            (outcome.map_err(|failure| failure.to_string()), String::from_utf8(out).unwrap())
        };
        let line = "pdsh -g oss \"thrlo=4 thrhi=4 nobjlo=1 nobjhi=1 rsz=1024K size=64 obdfilter-survey\"";
        for (name, words) in [(None, &[line][..]), (Some("qperf"), &["b", "tcp_bw"])] {
            let (outcome, out) = ask(name, words);
            outcome.unwrap();
            assert!(out.contains("run `skep bench ") && out.ends_with('\n'), "{out}");
        }
        assert!(ask(None, &["uptime"]).0.unwrap_err().contains("no equivalent"));
        assert!(ask(None, &["qperf b rc_bi_bw"]).0.unwrap_err().contains("RDMA"));
        assert_eq!(ask(None, &["uptime"]).1, "");
    }

    /// Goal: hosts that our own flag names count where a tool's work follows from them: elbencho has its threads on
    /// each of them and cuts a shared file among all.
    #[test]
    fn elbencho_on_hosts_of_the_flag() {
        let words: Vec<String> =
            "-w -b 1m -s 16g -t 4 /tmp/no-such-big-file".split(' ').map(str::to_owned).collect();
        let flags = HostsArgs { hosts: vec!["a".into(), "b".into()], ..HostsArgs::default() };
        let mut translation = translated(Tool::Elbencho, &words, &flags.names().unwrap()).unwrap();
        let chosen = hosts(&flags, &translation.launch);
        spread(&mut translation, &chosen).unwrap();
        let job = &translation.jobs[0];
        assert_eq!((job.workers.processes, job.workers.threads, chosen.names().unwrap().len()), (2, 4, 2));
        let Work::Io(io) = &job.work else { panic!("{:?}", job.work) };
        assert_eq!(io.block, 2 << 30);
    }

    /// Goal: the explanation holds every option and a job that can be read back.
    #[test]
    fn explained() {
        let words: Vec<String> = "-w -i3 -t 1m -b 2m -v".split(' ').map(str::to_owned).collect();
        let translation = translated(Tool::Ior, &words, &[]).unwrap();
        let mut out = Vec::new();
        explain(&translation, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (table, json) = text.split_once("\n\n").unwrap();
        for option in ["-w", "-i3", "-t 1m", "-b 2m", "-v"] {
            assert!(table.lines().any(|line| line.starts_with(option)), "{option}: {table}");
        }
        assert_eq!(serde_json::from_str::<Job>(json).unwrap(), translation.jobs[0]);
    }
}

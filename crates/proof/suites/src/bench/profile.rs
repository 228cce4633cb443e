//! Where the time of an operation goes: `perf stat` counts per process, `perf record` samples the core.

use super::measure::{Amount, GROUPS, Load, Phase};
use super::symbols;
use super::system::System;
use super::transport::Transport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Samples per second; odd, so that they do not fall into step with the kernel's own ticks.
const FREQUENCY: u32 = 3_989;
/// Until the profiler has begun.
const WARM_UP: Duration = Duration::from_millis(400);
/// Symbols kept of each profile.
const SYMBOLS: usize = 25;
/// The load itself, as processes are called in the result.
const LOAD: &str = "load";

/// What a process costs per operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Process {
    /// load, mount, metad, storaged...
    pub name: String,
    /// Microseconds of CPU.
    pub cpu_us: f64,
    /// System calls, io_uring_enter among them.
    pub system_calls: f64,
    /// Context switches.
    pub switches: f64,
}

/// What the time is spent with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cost {
    /// A part of the kernel, the code of a process, or one function.
    pub name: String,
    /// Microseconds per operation.
    pub us: f64,
    /// Share of all samples.
    pub share: f64,
}

/// One operation on one transport.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Profile {
    /// stat, create...
    pub operation: String,
    /// Which.
    pub transport: Transport,
    /// Microseconds of wall time, without any profiler.
    pub us_per_op: f64,
    /// Messages from the kernel to the mount.
    pub fuse_messages: f64,
    /// Each process.
    pub processes: Vec<Process>,
    /// Largest first.
    pub groups: Vec<Cost>,
    /// The largest functions, `process: function`.
    pub symbols: Vec<Cost>,
}

/// Profiles every phase of one process (its own directory, its own file) on a mounted Skep.
pub fn run(
    system: &System,
    transport: Transport,
    core: usize,
    amount: Amount,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<Profile>, String> {
    let mut profiles = Vec::new();
    for group in GROUPS.iter().filter(|group| !group.shared) {
        if !group.phases.iter().any(|phase| wanted(phase.name)) {
            continue;
        }
        let moves_data = group.phases.iter().any(|phase| phase.work.moves_data());
        let counted =
            each(system, group.phases, moves_data, amount, &mut |load, phase| count(system, load, phase))?;
        let sampled = each(system, group.phases, moves_data, amount, &mut |load, phase| {
            sample(system, load, phase, core)
        })?;
        for ((phase, counted), sampled) in group.phases.iter().zip(counted).zip(sampled) {
            if wanted(phase.name) {
                profiles.push(Profile {
                    operation: phase.name.to_owned(),
                    transport,
                    us_per_op: counted.us_per_op,
                    fuse_messages: counted.fuse_messages,
                    processes: counted.processes,
                    groups: sampled.groups,
                    symbols: sampled.symbols,
                });
            }
        }
    }
    Ok(profiles)
}

fn each<T>(
    system: &System,
    phases: &[Phase],
    moves_data: bool,
    amount: Amount,
    one: &mut dyn FnMut(&mut Load<'_>, &Phase) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let mut load = Load::start(system, false, moves_data, amount)?;
    let found = phases.iter().map(|phase| one(&mut load, phase)).collect::<Result<_, _>>()?;
    load.end()?;
    Ok(found)
}

/// The processes of a system by their part in it.
fn parts(system: &System, load: &Load<'_>) -> Result<BTreeMap<u32, String>, String> {
    let mut parts: BTreeMap<u32, String> =
        load.pids().into_iter().map(|pid| (pid, LOAD.to_owned())).collect();
    for entry in std::fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(&system.mark) {
            let part = ["mount", "metad", "storaged", "mgmtd"]
                .into_iter()
                .find(|p| line.split('\0').nth(1) == Some(p));
            parts.entry(pid).or_insert_with(|| part.unwrap_or("other").to_owned());
        }
    }
    Ok(parts)
}

/// A running `perf`; what it writes is in `output`.
struct Perf {
    child: Child,
    output: PathBuf,
}

impl Perf {
    fn start(arguments: &[String], output: &str) -> Result<Self, String> {
        let output = std::env::temp_dir().join(format!("skep-bench-{}-{output}", std::process::id()));
        let mut command = Command::new("perf");
        command.args(arguments).arg("-o").arg(&output).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| format!("perf: {e}; install it (linux-perf)"))?;
        Ok(Self { child, output })
    }

    fn end(mut self) -> Result<PathBuf, String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).map_err(|e| format!("perf: {e}"))?;
        self.child.wait().map_err(|e| format!("perf: {e}"))?;
        Ok(self.output)
    }
}

struct Counted {
    us_per_op: f64,
    fuse_messages: f64,
    processes: Vec<Process>,
}

fn count(system: &System, load: &mut Load<'_>, phase: &Phase) -> Result<Counted, String> {
    let mut by_part: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (pid, part) in parts(system, load)? {
        by_part.entry(part).or_default().push(pid.to_string());
    }
    let events = "task-clock,context-switches,raw_syscalls:sys_enter,fuse:fuse_request_send";
    let mut running = Vec::new();
    for (part, pids) in by_part {
        let arguments = ["stat", "-x,", "-e", events, "-p", &pids.join(",")].map(str::to_owned);
        running.push((Perf::start(&arguments, &format!("{part}.stat"))?, part));
    }
    std::thread::sleep(WARM_UP);
    let (operations, seconds) = load.phase(phase)?;
    let mut counted =
        Counted { us_per_op: seconds * 1e6 / operations, fuse_messages: 0.0, processes: Vec::new() };
    for (perf, part) in running {
        let path = perf.end()?;
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let _ = std::fs::remove_file(&path);
        let per_op = |event: &str| events_of(&text, event) / operations;
        if part == LOAD {
            counted.fuse_messages = per_op("fuse:fuse_request_send");
        }
        counted.processes.push(Process {
            cpu_us: per_op("task-clock") * 1e3,
            system_calls: per_op("raw_syscalls:sys_enter"),
            switches: per_op("context-switches"),
            name: part,
        });
    }
    Ok(counted)
}

/// One counter of `perf stat -x,`.
fn events_of(text: &str, event: &str) -> f64 {
    let line = text.lines().find(|line| line.split(',').nth(2) == Some(event));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0.0)
}

struct Sampled {
    groups: Vec<Cost>,
    symbols: Vec<Cost>,
}

fn sample(system: &System, load: &mut Load<'_>, phase: &Phase, core: usize) -> Result<Sampled, String> {
    let parts = parts(system, load)?;
    let (frequency, core) = (FREQUENCY.to_string(), core.to_string());
    let arguments =
        ["record", "-q", "-e", "cpu-clock", "-F", &frequency, "-g", "-C", &core].map(str::to_owned);
    let perf = Perf::start(&arguments, "record.data")?;
    std::thread::sleep(WARM_UP);
    let (operations, _) = load.phase(phase)?;
    let path = perf.end()?;
    let text = script(&path);
    let _ = std::fs::remove_file(&path);
    Ok(sum(&text?, &parts, 1e6 / f64::from(FREQUENCY) / operations))
}

fn script(path: &Path) -> Result<String, String> {
    let mut command = Command::new("perf");
    command.args(["script", "--no-inline", "-F", "pid,ip,sym", "-i"]).arg(path);
    let output = command.output().map_err(|e| format!("perf script: {e}"))?;
    if !output.status.success() {
        return Err(format!("perf script: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Adds up the samples of `parts`; each stands for `us` microseconds of an operation.
fn sum(text: &str, parts: &BTreeMap<u32, String>, us: f64) -> Sampled {
    let (mut groups, mut symbols): (BTreeMap<String, u64>, BTreeMap<String, u64>) = Default::default();
    let mut all = 0;
    for block in text.split("\n\n") {
        let mut lines = block.lines().skip_while(|line| line.trim().is_empty());
        let pid = lines.next().and_then(|line| line.trim().parse::<u32>().ok());
        let Some(part) = pid.and_then(|pid| parts.get(&pid)) else { continue };
        let frames: Vec<(&str, &str)> =
            lines.map(|line| line.trim().split_once(' ').unwrap_or((line.trim(), "?"))).collect();
        all += 1;
        *groups.entry(symbols::group(&frames, part)).or_default() += 1;
        let innermost = frames.first().map_or("?", |(_, name)| name);
        *symbols.entry(format!("{part}: {innermost}")).or_default() += 1;
    }
    let costs = |counts: BTreeMap<String, u64>| {
        let cost =
            |(name, n): (String, u64)| Cost { name, us: n as f64 * us, share: n as f64 / f64::from(all) };
        let mut costs: Vec<Cost> = counts.into_iter().map(cost).collect();
        costs.sort_by(|a, b| b.us.total_cmp(&a.us));
        costs
    };
    let mut symbols = costs(symbols);
    symbols.truncate(SYMBOLS);
    Sampled { groups: costs(groups), symbols }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what perf prints is added up per part, and other processes are left out.
    #[test]
    fn samples_are_added_up() {
        let text = " 7 \n\tffffffff81 unix_stream_sendmsg\n\tffffffff82 do_syscall_64\n\n 7 \n\t55aa skep::step\n\n 9 \n\tffffffff81 fuse_x\n\n";
        let parts = BTreeMap::from([(7, "metad".to_owned())]);
        let sampled = sum(text, &parts, 2.0);
        let groups: Vec<(&str, f64, f64)> =
            sampled.groups.iter().map(|cost| (cost.name.as_str(), cost.us, cost.share)).collect();
        assert_eq!(groups, [("Unix sockets", 2.0, 0.5), ("code of metad", 2.0, 0.5)]);
        assert!(sampled.symbols.iter().any(|cost| cost.name == "metad: skep::step"));
        assert_eq!(events_of("1,,a,5\n2.50,msec,task-clock,7\n", "task-clock"), 2.5);
        assert_eq!(events_of("<not counted>,,a,5\n", "a"), 0.0);
    }
}

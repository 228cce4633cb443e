//! `cargo xtask bench --peers`: Skep beside MooseFS and GlusterFS as Debian installs them, the empty FUSE file system,
//! tmpfs and ext4, interleaved in one run. The page is `docs/bench/peers.md`.

mod apart;
mod counters;
mod gluster;
mod load;
mod moose;
mod page;
mod result;
mod rows;
mod systems;
mod table;
mod tree;
mod verdict;

use crate::bench::place::{Cores, Place};
use crate::bench::result::Rates;
use crate::bench::transport::{Transport, available};
use crate::bench::{self, Arguments, BUILDS, command_line, machine, socket, today};
use load::{Amount, Group, Measured};
use result::{Placed, Report, Sample, Samples};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use systems::{Member, Members, Start};
use tree::{Source, Trees};
use verdict::{Besides, verdicts};

/// What is built besides.
const RPC_BENCH: &[&str] = &["build", "--release", "--package", "skep-net", "--example", "rpc_bench"];
/// Requests of each of its parts.
const RPCS: &str = "5000";
/// The part that counts.
const RPC: (&str, &str) = ("event", "unix 200 B");

/// What only this benchmark has.
#[derive(clap::Args)]
pub struct Options {
    /// With --peers: rounds of the trees of files, which take longest [default: --rounds].
    #[arg(long)]
    tree_rounds: Option<usize>,
    /// With --peers: files of a tree.
    #[arg(long, default_value_t = 3_000)]
    tree_files: usize,
    /// With --peers: list a directory of so many entries as well, once, where the first place is; minutes.
    #[arg(long, default_value_t = 0)]
    large: u64,
    /// With --peers: seconds after which that listing is ended.
    #[arg(long, default_value_t = 120)]
    large_limit: u64,
    /// With --peers: a directory on ext4 [default: the directory that cargo builds in].
    #[arg(long)]
    disk: Option<PathBuf>,
}

/// Runs the benchmark; true when it came to its end.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    if let Some(path) = &arguments.page {
        return page::write(path).map(|()| true);
    }
    if arguments.realtime {
        // Seen when pinned: while GlusterFS started, this program took the whole core for ever, in the kernel, and
        // glusterd's child never ran. Why is not known.
        return Err("--realtime does not go with --peers".to_owned());
    }
    if !apart::is_inside() {
        if !arguments.built {
            bench::build(root, &BUILDS)?;
            bench::build(root, &[RPC_BENCH])?;
        }
        if rustix::process::geteuid().is_root() {
            return apart::run_inside();
        }
    }
    let report = measure(root, arguments)?;
    print!("{}", table::text(&report));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(true)
}

fn measure(root: &Path, arguments: &Arguments) -> Result<Report, String> {
    let binaries = arguments.binaries.clone().unwrap_or_else(|| root.join("target/release"));
    let options = &arguments.with_peers;
    let cores = Cores::now(arguments.pin)?;
    // io_uring is the last of them.
    let transport = available(&arguments.transport)?.into_iter().max().unwrap_or(Transport::Dev);
    cores.go(Place::Pinned)?;
    let rpc_us = rpc(&binaries);
    let tree_rounds = options.tree_rounds.unwrap_or(arguments.rounds);
    let disk = options.disk.clone().unwrap_or_else(|| crate::target_directory(root));
    let (mut samples, mut absent, mut placed) = (Vec::new(), Vec::new(), Vec::new());
    for (number, place) in arguments.place.iter().enumerate() {
        cores.go(*place)?;
        let start = Start {
            binaries: &binaries,
            beside: arguments.beside.as_deref(),
            backing: &arguments.backing,
            disk: &disk,
            transport,
        };
        let members = Members::start(&start)?;
        let mut run = Run { arguments, members: &members, place: *place, samples: &mut samples };
        let mut sockets = Rates::new();
        for round in 0..arguments.rounds {
            eprintln!("{}, round {} of {}", place.name(), round + 1, arguments.rounds);
            sockets.insert(round, socket::stream(arguments.mib)?);
            run.groups(round)?;
        }
        run.trees(tree_rounds)?;
        if number == 0 && options.large > 0 {
            run.listings()?;
        }
        absent = members.absent().to_vec();
        placed.push((*place, sockets));
    }
    let of_place = |(place, socket): &(Place, Rates)| {
        let samples = Samples { all: &samples, place: *place };
        let verdicts = verdicts(samples, &Besides { rpc_us, socket });
        Placed { place: *place, rows: samples.lines(), verdicts }
    };
    Ok(Report {
        date: today()?,
        command: command_line(),
        machine: machine(&cores)?,
        pinned_to: cores.pinned,
        rounds: (arguments.rounds, tree_rounds),
        files: (arguments.files, options.tree_files, options.large),
        rpc_us,
        absent,
        places: placed.iter().map(of_place).collect(),
    })
}

/// The rounds of one place.
struct Run<'a> {
    arguments: &'a Arguments,
    members: &'a Members,
    place: Place,
    samples: &'a mut Vec<Sample>,
}

impl<'a> Run<'a> {
    fn add(&mut self, round: usize, member: &Member, found: Vec<Measured>) {
        let wanted = found.into_iter().filter(|of| self.arguments.wants(of.row));
        let sample = |of| Sample { place: self.place, round, system: member.name, of };
        self.samples.extend(wanted.map(sample));
    }

    /// The systems in the order of a round: another one first in every round.
    fn turns(&self, round: usize) -> impl Iterator<Item = &'a Member> + use<'a> {
        let all = self.members.all();
        (0..all.len()).map(move |turn| &all[(turn + round) % all.len()])
    }

    fn wants_one(&self, rows: &[&str]) -> bool {
        rows.iter().any(|row| self.arguments.wants(row))
    }

    fn groups(&mut self, round: usize) -> Result<(), String> {
        for group in load::GROUPS {
            if !self.wants_one(group.rows) {
                continue;
            }
            for processes in if group.by_processes { &self.arguments.processes[..] } else { &[1] } {
                let (files, mib) = (self.arguments.files, self.arguments.mib);
                self.group(group, round, &Amount { processes: *processes, files, mib })?;
            }
        }
        Ok(())
    }

    fn group(&mut self, group: &Group, round: usize, amount: &Amount) -> Result<(), String> {
        for member in self.turns(round).filter(|member| (group.on)(member)) {
            let found = (group.run)(member, amount)?;
            self.add(round, member, found);
        }
        Ok(())
    }

    /// First all systems, then once more when 10 s have passed for the last of them.
    fn trees(&mut self, rounds: usize) -> Result<(), String> {
        let rows = [
            rows::UNTAR,
            rows::COPY,
            rows::CLONE,
            rows::DELETE,
            rows::LS,
            rows::FIND,
            rows::GREP,
            rows::STATUS,
        ];
        if rounds == 0 || !self.wants_one(&rows) {
            return Ok(());
        }
        let source = Source::make(self.members.scratch(), self.arguments.with_peers.tree_files)?;
        for round in 0..rounds {
            eprintln!("{}, trees, round {} of {rounds}", self.place.name(), round + 1);
            let mut left = Vec::new();
            for member in self.turns(round).filter(|member| tree::is_on(member)) {
                let found = Trees { member, source: &source }.first()?;
                self.add(round, member, found);
                left.push((member, Instant::now()));
            }
            for (member, since) in left {
                std::thread::sleep(tree::LATER.saturating_sub(since.elapsed()));
                let found = Trees { member, source: &source }.later()?;
                self.add(round, member, found);
            }
        }
        Ok(())
    }

    fn listings(&mut self) -> Result<(), String> {
        let options = &self.arguments.with_peers;
        let limit = Duration::from_secs(options.large_limit);
        for member in self.turns(0).filter(|member| tree::is_on(member)) {
            let found = tree::listing(member, options.large, limit)?;
            self.add(0, member, vec![found]);
        }
        Ok(())
    }
}

/// Microseconds of an RPC, if the program is there that measures it.
fn rpc(binaries: &Path) -> Option<f64> {
    let program = binaries.join("examples/rpc_bench");
    let output = Command::new(&program).arg(RPCS).output();
    let said = match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => format!("{}", output.status),
        Err(e) => e.to_string(),
    };
    let found = said.lines().find_map(rpc_of);
    if found.is_none() {
        eprintln!("bench: without the time of an RPC: {}: {}", program.display(), said.trim());
    }
    found
}

/// The wall time of the line that counts.
fn rpc_of(line: &str) -> Option<f64> {
    let (name, rest) = line.split_once("wall")?;
    let is_it = name.starts_with(RPC.0) && name.trim_end().ends_with(RPC.1);
    is_it.then(|| rest.split_whitespace().next()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the one line of many that counts.
    #[test]
    fn the_time_of_an_rpc() {
        let lines = "event  unix 200 B                wall    10.54 us  cpu     9.47 us\n\
            event  tcp 200 B                 wall    16.66 us  cpu    16.63 us\n\
            stream unix 200 B                wall     9.44 us  cpu     9.44 us\n";
        assert_eq!(lines.lines().filter_map(rpc_of).collect::<Vec<_>>(), [10.54]);
    }
}

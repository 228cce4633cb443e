//! What load processes do: names, records, streams, and two mounts at once.

use super::counters::Counters;
use super::rows;
use super::systems::{EMPTY, Member, PAGES};
use crate::bench::measure::{Order, SETTLE, Worker, timed};
use crate::bench::worker::Work;
use std::path::Path;

/// Processes, or mounts, that write one file.
pub const FOUR: usize = 4;
/// Records of one run.
const RECORDS: u64 = 8_000;

/// One measured row.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Which.
    pub row: &'static str,
    /// Processes at once.
    pub processes: usize,
    /// How many.
    pub operations: f64,
    /// How long.
    pub seconds: f64,
    /// It was ended before it was done.
    pub cut_off: bool,
    /// Processor time of everything, in seconds.
    pub cpu: f64,
    /// Messages of the kernel.
    pub messages: Option<f64>,
    /// RPCs of mounts.
    pub rpcs: Option<f64>,
}

/// Rows that are measured together; every system takes its turn at a group.
pub struct Group {
    /// The rows.
    pub rows: &'static [&'static str],
    /// Once for each number of processes?
    pub by_processes: bool,
    /// On this system?
    pub on: fn(&Member) -> bool,
    /// Does it.
    pub run: fn(&Member, &Amount) -> Result<Vec<Measured>, String>,
}

/// How much a group does.
pub struct Amount {
    /// Processes at once.
    pub processes: usize,
    /// Files of all of them.
    pub files: u64,
    /// MiB of all of them.
    pub mib: u64,
}

/// All but the trees.
pub const GROUPS: &[Group] = &[
    Group {
        rows: &[rows::CREATE, rows::STAT, rows::STAT_WARM, rows::OPEN_WARM, rows::REMOVE],
        by_processes: true,
        on: |member| member.name != PAGES && member.name != super::systems::DISK,
        run: names,
    },
    Group {
        rows: &[rows::TINY_WRITE, rows::TINY_READ, rows::SMALL_WRITE, rows::SMALL_READ],
        by_processes: false,
        on: |member| member.name != super::systems::DISK,
        run: records,
    },
    Group {
        rows: &[rows::WRITE, rows::READ],
        by_processes: true,
        on: |member| member.name != PAGES && member.name != super::systems::DISK,
        run: streams,
    },
    Group {
        rows: &[rows::OWN, rows::ONE, rows::ONE_AGAIN, rows::ONE_MOUNTS],
        by_processes: false,
        on: |member| member.name != PAGES && member.name != super::systems::DISK,
        run: shared,
    },
    Group {
        rows: &[rows::STRIDE_WRITE, rows::STRIDE_READ],
        by_processes: false,
        on: |member| member.name != PAGES && member.name != super::systems::DISK,
        run: strides,
    },
    Group {
        rows: &[rows::MANY_WRITE, rows::MANY_READ],
        by_processes: false,
        on: |member| member.name != PAGES && member.name != super::systems::DISK,
        run: many,
    },
    Group {
        rows: &[rows::SYNC_SMALL, rows::SYNC_LARGE],
        by_processes: false,
        on: |member| member.is_on_disk,
        run: synced,
    },
    Group {
        rows: &[rows::IN_TURN, rows::IN_TURN_LISTED],
        by_processes: false,
        on: Member::is_shared,
        run: in_turn,
    },
    Group {
        rows: &[rows::TOGETHER, rows::SEE, rows::APPEND],
        by_processes: false,
        on: Member::is_shared,
        run: together,
    },
];

/// Load processes in the directory `load` of one mount each, or of both.
struct Crew<'a> {
    member: &'a Member,
    workers: Vec<Worker>,
}

impl<'a> Crew<'a> {
    fn new(member: &'a Member) -> Self {
        Self { member, workers: Vec::new() }
    }

    fn add(
        &mut self,
        mount: &Path,
        (shared, processes): (bool, usize),
        index: usize,
        count: u64,
    ) -> Result<(), String> {
        let (directory, other) = (mount.join("load"), self.member.there.join("load"));
        let other = Some(other.as_path());
        let order = Order { directory: &directory, other, shared, index, count, processes };
        self.workers.push(Worker::start(&order)?);
        Ok(())
    }

    fn of(
        member: &'a Member,
        mount: &Path,
        shared: bool,
        processes: usize,
        all: u64,
    ) -> Result<Self, String> {
        let mut crew = Self::new(member);
        for index in 0..processes {
            crew.add(mount, (shared, processes), index, all / processes as u64)?;
        }
        Ok(crew)
    }

    fn does(&mut self, work: Work, row: &'static str) -> Result<Measured, String> {
        let before = Counters::read(self.member)?;
        let done = timed(&mut self.workers, work);
        let (operations, seconds) = done.map_err(|e| format!("{}, {row}: {e}", self.member.name))?;
        let spent = Counters::read(self.member)?.since(&before, self.member);
        Ok(Measured {
            row,
            processes: self.workers.len(),
            operations,
            seconds,
            cut_off: false,
            cpu: spent.cpu,
            messages: spent.messages,
            rpcs: spent.rpcs,
        })
    }

    fn end(self) -> Result<(), String> {
        self.workers.into_iter().try_for_each(Worker::end)
    }
}

/// A new directory for the load.
pub fn make(member: &Member, name: &str) -> Result<std::path::PathBuf, String> {
    let directory = member.here.join(name);
    std::fs::create_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    Ok(directory)
}

fn clear(member: &Member) -> Result<(), String> {
    let directory = member.here.join("load");
    std::fs::remove_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    if member.is_shared() {
        // Servers delete contents behind the program's back.
        std::thread::sleep(SETTLE);
    }
    Ok(())
}

/// A file system without another mount knows what it made: its look through the other one begins as cold when the kernel
/// has dropped the names.
fn forget_names(member: &Member) -> Result<(), String> {
    const DROP: (&str, &str) = ("/proc/sys/vm/drop_caches", "2");
    if member.name == EMPTY {
        std::fs::write(DROP.0, DROP.1).map_err(|e| format!("{}: {e}", DROP.0))?;
        std::thread::sleep(SETTLE);
    }
    Ok(())
}

/// One directory of all processes: made and removed here, looked at through the other mount.
fn names(member: &Member, amount: &Amount) -> Result<Vec<Measured>, String> {
    make(member, "load")?;
    let crew = |mount: &Path| Crew::of(member, mount, true, amount.processes, amount.files);
    let mut here = crew(&member.here)?;
    let mut found = vec![here.does(Work::Create, rows::CREATE)?];
    forget_names(member)?;
    let mut there = crew(&member.there)?;
    found.push(there.does(Work::Stat, rows::STAT)?);
    found.push(there.does(Work::StatAgain, rows::STAT_WARM)?);
    there.does(Work::OpenRead, rows::OPEN_WARM)?;
    found.push(there.does(Work::OpenReadAgain, rows::OPEN_WARM)?);
    there.end()?;
    found.push(here.does(Work::Remove, rows::REMOVE)?);
    here.end()?;
    clear(member)?;
    Ok(found)
}

/// What one process writes, it reads again through the same mount.
fn records(member: &Member, _: &Amount) -> Result<Vec<Measured>, String> {
    make(member, "load")?;
    let mut crew = Crew::of(member, &member.here, false, 1, RECORDS)?;
    let mut found = Vec::new();
    for (bytes, write, read) in
        [(512, rows::TINY_WRITE, rows::TINY_READ), (4_096, rows::SMALL_WRITE, rows::SMALL_READ)]
    {
        found.push(crew.does(Work::WriteRecords(bytes), write)?);
        found.push(crew.does(Work::ReadRecords(bytes), read)?);
    }
    crew.end()?;
    clear(member)?;
    Ok(found)
}

/// Written here, read through the other mount, which has no pages of it.
fn streams(member: &Member, amount: &Amount) -> Result<Vec<Measured>, String> {
    make(member, "load")?;
    let crew = |mount: &Path| Crew::of(member, mount, false, amount.processes, amount.mib);
    let mut here = crew(&member.here)?;
    let mut found = vec![here.does(Work::Write, rows::WRITE)?];
    here.end()?;
    let mut there = crew(&member.there)?;
    found.push(there.does(Work::Read, rows::READ)?);
    there.end()?;
    clear(member)?;
    Ok(found)
}

/// A file for each of four processes, one for all of them, and one for as many mounts.
fn shared(member: &Member, amount: &Amount) -> Result<Vec<Measured>, String> {
    make(member, "load")?;
    let mut own = Crew::of(member, &member.here, false, FOUR, amount.mib)?;
    let mut found = vec![own.does(Work::Write, rows::OWN)?];
    own.end()?;
    clear(member)?;
    make(member, "load")?;
    let mut one = Crew::of(member, &member.here, true, FOUR, amount.mib)?;
    found.push(one.does(Work::Write, rows::ONE)?);
    found.push(one.does(Work::Write, rows::ONE_AGAIN)?);
    one.end()?;
    clear(member)?;
    if !member.more.is_empty() {
        make(member, "load")?;
        let mut mounts = Crew::new(member);
        for (index, mount) in [&member.here, &member.there].into_iter().chain(&member.more).enumerate() {
            mounts.add(mount, (true, FOUR), index, amount.mib / FOUR as u64)?;
        }
        found.push(mounts.does(Work::Write, rows::ONE_MOUNTS)?);
        mounts.end()?;
        clear(member)?;
    }
    Ok(found)
}

/// Records that fit nothing, of processes in turn.
fn strides(member: &Member, amount: &Amount) -> Result<Vec<Measured>, String> {
    make(member, "load")?;
    let crew = |mount: &Path| Crew::of(member, mount, true, FOUR, amount.mib);
    let mut here = crew(&member.here)?;
    let mut found = vec![here.does(Work::WriteStrides, rows::STRIDE_WRITE)?];
    here.end()?;
    let mut there = crew(&member.there)?;
    found.push(there.does(Work::ReadStrides, rows::STRIDE_READ)?);
    there.end()?;
    clear(member)?;
    Ok(found)
}

/// One process with many requests at once, to a file that is there.
fn many(member: &Member, amount: &Amount) -> Result<Vec<Measured>, String> {
    make(member, "load")?;
    let mut crew = Crew::of(member, &member.here, false, 1, amount.mib)?;
    crew.does(Work::Write, rows::MANY_WRITE)?;
    let mut found = vec![crew.does(Work::ManyWrites, rows::MANY_WRITE)?];
    found.push(crew.does(Work::ManyReads, rows::MANY_READ)?);
    crew.end()?;
    clear(member)?;
    Ok(found)
}

/// Files that are on stable storage when they are answered for.
fn synced(member: &Member, amount: &Amount) -> Result<Vec<Measured>, String> {
    const EIGHT: usize = 8;
    let mut found = Vec::new();
    for (bytes, row) in [(4 << 10, rows::SYNC_SMALL), (64 << 10, rows::SYNC_LARGE)] {
        make(member, "load")?;
        let mut crew = Crew::of(member, &member.here, false, EIGHT, amount.files)?;
        found.push(crew.does(Work::SyncFiles(bytes), row)?);
        crew.end()?;
        clear(member)?;
    }
    Ok(found)
}

/// What a listing costs those who write to what it lists.
fn in_turn(member: &Member, _: &Amount) -> Result<Vec<Measured>, String> {
    let mut found = Vec::new();
    for (work, row) in [(Work::InTurn, rows::IN_TURN), (Work::InTurnListed, rows::IN_TURN_LISTED)] {
        make(member, "load")?;
        let mut crew = Crew::of(member, &member.here, false, 1, 1)?;
        found.push(crew.does(work, row)?);
        crew.end()?;
        clear(member)?;
    }
    Ok(found)
}

/// Two mounts change the same things.
fn together(member: &Member, amount: &Amount) -> Result<Vec<Measured>, String> {
    make(member, "load")?;
    let mut pair = Crew::new(member);
    pair.add(&member.here, (true, 2), 0, amount.files / 2)?;
    pair.add(&member.there, (true, 2), 1, amount.files / 2)?;
    let mut found = vec![pair.does(Work::Create, rows::TOGETHER)?];
    found.push(pair.does(Work::Append, rows::APPEND)?);
    pair.end()?;
    let mut one = Crew::new(member);
    one.add(&member.here, (true, 2), 2, amount.files / 2)?;
    found.push(one.does(Work::MakeAndSee, rows::SEE)?);
    one.end()?;
    clear(member)?;
    Ok(found)
}

/// Is the empty file system of this row the one with pages?
pub fn empty_of(row: &str) -> &'static str {
    let pages = [rows::TINY_WRITE, rows::TINY_READ, rows::SMALL_WRITE, rows::SMALL_READ];
    if pages.contains(&row) { PAGES } else { EMPTY }
}

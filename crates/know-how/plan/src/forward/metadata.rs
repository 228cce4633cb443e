//! Names: how many operations a second, how many files, and whether the space fits the rules.

use super::capacity::Capacity;
use super::inodes::{self, Inodes};
use super::small::{self, CONTENTS_SPACE, Rows};
use super::{Figure, Unit};
use crate::catalogue::{Catalogue, Costs, RULE_BYTES, RULE_FILES};
use crate::hardware::{Hardware, Role, Server, Software, TargetGroup};
use crate::measured::{per_second, shared_per_second, shipped};
use crate::units::{count, decimal};
use serde::Serialize;

/// Least and most metadata space as a part of the storage space, and who says so.
pub const RULES: [(f64, f64, &str); 2] =
    [(0.003, 0.005, "001: 0.3 % to 0.5 %"), (0.005, 0.01, "003: 0.5 % to 1 %, another server below 1 %")];

/// Names.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Metadata {
    /// Space for names, after RAID.
    pub space: Figure,
    /// Files that fit.
    pub files: Option<Figure>,
    /// Files that fit when each is as large as the inline limit; `None` where no contents lie in the metadata.
    pub largest_small: Option<Figure>,
    /// Contents in the metadata of the files that are to be stored.
    pub contents: Option<Figure>,
    /// Space that the files that are to be stored need here.
    pub needed: Option<Figure>,
    /// Inodes of its file systems; `None` where mkfs makes no table of them.
    pub inodes: Option<Inodes>,
    /// The space as a part of the usable storage space.
    pub part: Figure,
    /// What each rule asks for.
    pub rules: Vec<Rule>,
    /// Mean file size at which names and contents are full at the same time.
    pub mean_file: Option<Figure>,
    /// Files created per second.
    pub creates: Option<Figure>,
    /// Files stat'ed per second.
    pub stats: Option<Figure>,
    /// Files removed per second.
    pub removes: Option<Figure>,
    /// Small files opened and read per second, whose contents come with the open.
    pub opens: Option<Figure>,
    /// Memory for rows; `None` where nothing is known of the software's.
    pub rows: Option<Rows>,
}

/// A rule of thumb and whether it is met.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rule {
    /// Who says it.
    pub source: String,
    /// Bytes it asks for at least.
    pub least: f64,
    /// Bytes it asks for at most.
    pub most: f64,
    /// `short`, `met` or `ample`.
    pub verdict: &'static str,
}

pub fn metadata(hardware: &Hardware, catalogue: &Catalogue<'_>, capacity: &Capacity) -> Metadata {
    let costs = Costs::of(hardware.software);
    let space = space(hardware);
    let part = space.value / capacity.usable.value;
    let files = (space.value > 0.0).then(|| files(hardware, &costs, space.value));
    let usable = capacity.usable.value;
    let rules = rules(&costs, part, usable);
    let mean_file = files.as_ref().map(|files| {
        let why = format!("{} of contents over {} files", decimal(usable), count(files.value));
        Figure::new(usable / files.value, Unit::MemoryBytes, why)
    });
    let rate = |per_core: Option<f64>, what: &str| rate(hardware, per_core?, what, costs.names_source);
    let stats = rate(costs.stats_per_core, "stats/s");
    let small_file = small::inline(hardware);
    let per_open = shipped().filter(|_| hardware.software == Software::Skep);
    let per_open = per_open.map(|us| per_second(small::open_us(&us, small_file)));
    let opens = rate(
        per_open,
        &format!("opens/s of files with {small_file:.0} bytes, stat x 1.14 by docs/bench/profile.md,"),
    );
    let rows = small::rows(hardware, catalogue, &holders(hardware), [stats.as_ref(), opens.as_ref()]);
    let largest_small = small::largest(hardware, rows_space(hardware), costs.bytes_per_file);
    Metadata {
        part: Figure::new(part, Unit::Part, format!("{} of {}", decimal(space.value), decimal(usable))),
        creates: rate(costs.creates_per_core, "creates/s"),
        stats,
        removes: rate(costs.removes_per_core, "removes/s"),
        opens,
        rows,
        largest_small,
        contents: small::contents(hardware),
        needed: small::needed(hardware, costs.bytes_per_file),
        inodes: inodes::inodes(hardware.software, &held(hardware)),
        space,
        files,
        rules,
        mean_file,
    }
}

/// What each rule of thumb asks for. The rules are for 3,413 bytes a file; where a file takes less, the same number of
/// files takes that part of it.
fn rules(costs: &Costs, part: f64, usable: f64) -> Vec<Rule> {
    let usual = RULE_BYTES / RULE_FILES;
    let scale = costs.bytes_per_file / usual;
    let rule = |(least, most, source): &(f64, f64, &str)| {
        let (least, most) = (least * scale, most * scale);
        let source = match (1.0 - scale).abs() < 1e-9 {
            true => (*source).to_owned(),
            false => format!(
                "{source}, for {usual:.0} bytes a file; here a file takes {:.0}, so {:.2} % to {:.2} %",
                costs.bytes_per_file,
                least * 100.0,
                most * 100.0
            ),
        };
        let verdict = match part {
            part if part < least => "short",
            part if part <= most => "met",
            _ => "ample",
        };
        Rule { source, least: least * usable, most: most * usable, verdict }
    };
    RULES.iter().map(rule).collect()
}

/// Operations per second: of Skep by the threads of its groups, otherwise by cores.
fn rate(hardware: &Hardware, per_core: f64, what: &str, source: &str) -> Option<Figure> {
    let one = count(per_core);
    if hardware.software != Software::Skep {
        let cores = cores(hardware)?;
        let why = format!("{cores} metadata cores x {one} {what} ({source})");
        return (cores > 0.0).then(|| Figure::new(cores * per_core, Unit::PerSecond, why));
    }
    let (threads, whose) = threads(hardware)?;
    if threads <= 1.0 {
        return Some(Figure::new(per_core, Unit::PerSecond, format!("{whose} x {one} {what} ({source})")));
    }
    let at_root = shipped()?.at_root;
    let us = per_second(per_core);
    let why = format!(
        "{whose}: {us:.0} us each ({source}), of which {at_root:.0} are of the group with the root directory, where every \
         path begins, and the rest of all, when work is in as many directories or more; one directory is of one group, so \
         {one} {what} at most",
    );
    Some(Figure::new(shared_per_second(us, at_root, threads), Unit::PerSecond, why))
}

/// Threads that serve names, one for each group of Skep as far as there are cores, and whose they are in words. `None` when
/// a description does not say how many cores there are, or has no metadata server.
pub fn threads(hardware: &Hardware) -> Option<(f64, String)> {
    let serving = hardware.servers.iter().filter(|server| server.roles.contains(&Role::Meta));
    // Nobody knows which servers register first, and each gets as many shards: the one with fewest cores counts.
    let cores = serving.map(of).reduce(|a, b| Some(a?.min(b?)))??;
    let (servers, groups) = (hardware.metadata_servers, f64::from(hardware.metadata_groups));
    let each = groups.min(cores);
    let threads = f64::from(servers) * each;
    let few = if each < groups { format!(" on {cores} cores each") } else { String::new() };
    let whose = match (servers, hardware.metadata_groups) {
        (1, 1) => format!("1 thread of {cores} cores, as one group has all shards,"),
        _ => format!("{threads} threads, of {servers} metadata servers with {groups} groups{few}"),
    };
    (threads > 0.0).then_some((threads, whose))
}

/// Servers of a kind, how many, and the kind.
pub type Holder<'a> = (u64, &'a Server);

/// Servers of a kind that hold names, with the kind. The shards of Skep are dealt out evenly over the metadata servers that
/// its cluster is made for, whichever register first: each counts as the one with least space, which is full before others.
fn holders(hardware: &Hardware) -> Vec<Holder<'_>> {
    let all = hardware.servers.iter().filter(|server| bytes(server) > 0.0);
    if hardware.software == Software::Skep {
        let least = all.min_by(|a, b| bytes(a).total_cmp(&bytes(b)));
        return least.map(|server| (u64::from(hardware.metadata_servers), server)).into_iter().collect();
    }
    all.map(|server| (u64::from(server.count), server)).collect()
}

/// Servers with drives for names.
pub fn serving_names(hardware: &Hardware) -> u64 {
    hardware.servers.iter().filter(|server| bytes(server) > 0.0).map(|server| u64::from(server.count)).sum()
}

fn targets(server: &Server) -> impl Iterator<Item = &TargetGroup> {
    server.targets.iter().filter(|group| group.role == Role::Meta)
}

/// Space for names in one server.
fn bytes(server: &Server) -> f64 {
    targets(server).map(group_bytes).sum()
}

fn group_bytes(group: &TargetGroup) -> f64 {
    f64::from(group.count) * f64::from(group.raid.data_drives(group.drives)) * group.size.bytes()
}

fn space(hardware: &Hardware) -> Figure {
    let mut sum = 0.0;
    let mut parts = Vec::new();
    for (servers, server) in holders(hardware) {
        for group in targets(server) {
            let targets = servers * u64::from(group.count);
            let data = group.raid.data_drives(group.drives);
            sum += servers as f64 * group_bytes(group);
            parts.push(format!(
                "{targets} targets x {data} of {} drives ({}) x {}",
                group.drives, group.raid, group.size
            ));
        }
    }
    if parts.is_empty() {
        parts.push("the description has no metadata target".to_owned());
    }
    let mut why = parts.join(" + ");
    let serving = serving_names(hardware);
    let (skep, made_for) = (hardware.software == Software::Skep, u64::from(hardware.metadata_servers));
    if skep && serving > made_for {
        why += &format!("; {made_for} of {serving} metadata servers hold all shards (metadata_servers)");
    }
    Figure::new(sum, Unit::Bytes, why)
}

/// Groups of targets for names, each with its number of servers.
fn held(hardware: &Hardware) -> Vec<(u64, &TargetGroup)> {
    let of = |(servers, server)| targets(server).map(move |group| (servers, group));
    holders(hardware).into_iter().flat_map(of).collect()
}

/// Space that rows have beside the tables of inodes.
fn rows_space(hardware: &Hardware) -> f64 {
    let group = |(servers, group): (u64, &TargetGroup)| {
        servers as f64 * group_bytes(group) * (1.0 - inodes::table_part(hardware.software, group))
    };
    held(hardware).into_iter().map(group).sum()
}

/// Files by the bytes that one takes, or by the inodes that mkfs made, whichever is less. Where files are rows, the table
/// of inodes is lost to them; where a file takes an inode, the table is part of what it takes.
fn files(hardware: &Hardware, costs: &Costs, space: f64) -> Figure {
    let (mut files, mut rows_lost, mut short, mut large) = (0.0, 0.0, 0.0, None);
    let contents = small::inline(hardware);
    let row = costs.bytes_per_file + CONTENTS_SPACE * contents;
    for (servers, group) in held(hardware) {
        let bytes = servers as f64 * group_bytes(group);
        let Some((one, why)) = inodes::per_file(hardware.software, group) else {
            let lost = bytes * inodes::table_part(hardware.software, group);
            rows_lost += lost;
            files += (bytes - lost) / row;
            continue;
        };
        let by_bytes = bytes / one.max(costs.bytes_per_file);
        if one > costs.bytes_per_file {
            large = Some(format!("{one:.0} bytes each: {why}"));
        }
        let made = bytes / inodes::geometry(hardware.software, group).0 as f64;
        short += (by_bytes - made).max(0.0);
        files += by_bytes.min(made);
    }
    let rule = format!(
        "{} of {row:.0} bytes each ({}{}; the rule of {} per {} files is {:.0} bytes)",
        decimal(space - rows_lost),
        costs.bytes_per_file_source,
        if contents > 0.0 { format!(", {contents:.0} a file here, doubled too") } else { String::new() },
        decimal(RULE_BYTES),
        count(RULE_FILES),
        RULE_BYTES / RULE_FILES,
    );
    let mut why = large.unwrap_or(rule);
    if rows_lost > 0.0 {
        why += &format!("; {} of the space is the table of inodes", decimal(rows_lost));
    }
    if short > 0.0 {
        why = format!("inodes of mkfs; the space would be enough for {}: {why}", count(files + short));
    }
    Figure::new(files, Unit::Count, why)
}

/// Cores that serve metadata; `None` when a description does not say.
fn cores(hardware: &Hardware) -> Option<f64> {
    let serving = hardware.servers.iter().filter(|server| server.roles.contains(&Role::Meta));
    serving.map(|server| Some(f64::from(server.count) * of(server)?)).sum()
}

fn of(server: &Server) -> Option<f64> {
    if let Some(cores) = server.meta_cores {
        return Some(f64::from(cores));
    }
    Some(f64::from(server.sockets) * f64::from(server.cores?))
}

//! What the guidelines of the documents say about a system, where it departs from them.

use super::client::CLIENTS_OF_AN_ENCLOSURE;
use super::memory::MUCH;
use super::parity::{Maker, RAIDZ_DRIVES, maker};
use super::small::inline_limit;
use super::stream::{Stage, storage};
use super::{Figure, Forecast};
use crate::catalogue::DriveKind;
use crate::hardware::{FileSystem, Hardware, Role, Server, Software, TargetGroup};
use crate::raid::Raid;
use crate::scale::Calibration;
use crate::units::{count, decimal};

/// 001: around this many drives for large writes, half of it for small ones.
const RAID6_HDD_DRIVES: u32 = 12;
/// Connections that one mount opens to one storage server at most, however much runs on it.
pub const CONNECTIONS_PER_CLIENT: u64 = 32;
/// Most connections of a client to one metadata server of Skep, over `/dev/fuse`; over io_uring it has one for each core.
pub const META_CONNECTIONS_PER_CLIENT: u64 = 64;
/// Headroom below which two components are in balance.
const BALANCED: f64 = 0.1;

/// One sentence for each thing worth knowing.
pub fn notes(hardware: &Hardware, forecast: &Forecast) -> Vec<String> {
    let mut notes = Vec::new();
    for server in &hardware.servers {
        let groups = server.targets.iter();
        groups.for_each(|group| group_notes(&mut notes, hardware, server, group));
        if server.roles.contains(&Role::Meta)
            && server.roles.contains(&Role::Storage)
            && server.meta_cores.is_none()
        {
            notes.push(format!(
                "{}: metadata and file contents share processors and memory; streaming raises the latency of \
                 metadata (001). Dedicated servers, or meta_cores and links with roles, keep them apart.",
                server.name
            ));
        }
    }
    for stream in [&forecast.write, &forecast.read] {
        let way = if stream.direction == super::Direction::Write { "writing" } else { "reading" };
        if stream.bottleneck.contains(&Stage::Links) {
            notes.push(format!(
                "{way} is limited by the servers' links: the network should carry more than the drives deliver (001)."
            ));
        }
        if stream.bottleneck.contains(&Stage::Clients) {
            notes.push(format!(
                "{way} is limited by the clients: with clients enough programs would see {}.",
                stream.without_clients
            ));
        }
        if stream.headroom < BALANCED && !stream.next.is_empty() {
            notes.push(format!(
                "{way} is balanced: without the bottleneck it would gain {} only, then {} would limit.",
                percent(stream.headroom),
                titles(&stream.next)
            ));
        }
    }
    services(&mut notes, hardware, forecast);
    if forecast.memory.largest_part > MUCH {
        notes.push(format!(
            "connections take up to {} of a server's memory, which then lacks as cache: fewer or smaller buffers, \
             fewer connections, or more memory.",
            percent(forecast.memory.largest_part)
        ));
    }
    notes.extend(connections(hardware));
    notes.extend(few_clients(hardware));
    let files = forecast.capacity.targets.div_ceil(u64::from(hardware.striping.targets.max(1)));
    notes.push(format!(
        "{} targets, {} for each file: at least {files} files in use at the same time to reach all targets.",
        forecast.capacity.targets, hardware.striping.targets
    ));
    notes
}

/// Services that are missing, and metadata that is short of space.
fn services(notes: &mut Vec<String>, hardware: &Hardware, forecast: &Forecast) {
    if !hardware.servers.iter().any(|server| server.roles.contains(&Role::Mgmt)) {
        notes.push(
            "no management service is described: a cluster needs one. Add \"mgmt\" to the roles of a server; it takes \
             no target."
                .to_owned(),
        );
    }
    let short: Vec<&str> = forecast
        .metadata
        .rules
        .iter()
        .filter(|rule| rule.verdict == "short")
        .map(|rule| rule.source.as_str())
        .collect();
    if forecast.metadata.space.value <= 0.0 {
        notes.push(
            "no metadata server is described (role \"meta\", with a target for it): metadata is not planned here."
                .to_owned(),
        );
    } else if let Some(needed) = &forecast.metadata.needed {
        stored(notes, hardware, forecast, needed);
    } else if !short.is_empty() {
        notes.push(format!(
            "metadata space is {} of the storage space, less than the rules ask for ({}).",
            forecast.metadata.part.show(),
            short.join("; ")
        ));
    }
}

/// Whether the files that are to be stored have their space, and their rows memory.
fn stored(notes: &mut Vec<String>, hardware: &Hardware, forecast: &Forecast, needed: &Figure) {
    let metadata = &forecast.metadata;
    let wanted = hardware.files.as_ref().map_or(0.0, |files| files.count);
    if metadata.files.as_ref().is_some_and(|files| files.value < wanted) {
        notes.push(format!(
            "{} files do not fit: they need {} of metadata{}, there are {}: more or larger drives for it{}.",
            count(wanted),
            decimal(needed.value),
            if metadata.contents.is_some() { ", contents of small files included" } else { "" },
            decimal(metadata.space.value),
            if metadata.contents.is_some() { ", or a smaller inline_limit" } else { "" },
        ));
    }
    let limit = inline_limit(hardware.software, hardware.inline_limit);
    let contents = hardware.files.as_ref().map_or(0.0, |files| files.elsewhere(limit));
    if contents > forecast.capacity.usable.value {
        notes.push(format!(
            "contents of {} need {} on the storage targets, which have {}: more or larger drives.",
            count(wanted),
            decimal(contents),
            decimal(forecast.capacity.usable.value)
        ));
    }
    let Some(rows) = &metadata.rows else { return };
    let Some(all) = rows.all.as_ref().filter(|all| all.value > rows.room.value) else { return };
    let shown = |figure: &Option<Figure>| figure.as_ref().map_or("not known".to_owned(), Figure::show);
    notes.push(format!(
        "rows of all files take {} of memory, there are {}: the rates of names are for {} files in use. Of others a row is \
         read from the drives, and the thread that serves names waits: {} stats, {} opens of small files.",
        all.show(),
        rows.room.show(),
        count(rows.files.value),
        shown(&rows.cold_stats),
        shown(&rows.cold_opens)
    ));
}

/// Fewer clients than 004's rule for Lustre asks for, if so.
fn few_clients(hardware: &Hardware) -> Option<String> {
    let serving = hardware.servers.iter().filter(|server| storage(server).next().is_some());
    let servers: u64 = serving.map(|server| u64::from(server.count)).sum();
    let (clients, wanted) =
        (u64::from(hardware.clients.count), CLIENTS_OF_AN_ENCLOSURE * servers.div_ceil(2));
    (hardware.software == Software::Lustre && clients < wanted).then(|| {
        format!(
            "{clients} clients may not saturate {servers} servers: 004 takes {CLIENTS_OF_AN_ENCLOSURE} for each enclosure of \
             two, {wanted} here, whatever their links carry."
        )
    })
}

/// More clients and servers than the shipped limit of connections of one storage server, if so. A busy client holds up
/// to [`CONNECTIONS_PER_CLIENT`] of them, and every daemon one.
fn connections(hardware: &Hardware) -> Option<String> {
    if hardware.software != Software::Skep {
        return None;
    }
    let constants = Calibration::shipped().ok()?.constants;
    let most = constants.storaged_connections_max;
    let daemons: u64 = hardware.servers.iter().map(|s| u64::from(s.count) * s.roles.len() as u64).sum();
    let needed = u64::from(hardware.clients.count) * CONNECTIONS_PER_CLIENT + daemons;
    (needed > most).then(|| {
        format!(
            "{} busy clients and {daemons} services are up to {needed} connections of a storage server, more than \
             max_connections ({most}): raise it in the configuration of storaged (a thread each, 256 KiB of stack), or \
             clients take turns and wait for one another. A metadata server has up to {META_CONNECTIONS_PER_CLIENT} of a \
             client over /dev/fuse, and one for each of its cores over io_uring.",
            hardware.clients.count
        )
    })
}

fn group_notes(notes: &mut Vec<String>, hardware: &Hardware, server: &Server, group: &TargetGroup) {
    let hdd = crate::catalogue::Catalogue::of(hardware)
        .and_then(|catalogue| catalogue.drive(&group.drive))
        .is_some_and(|drive| drive.kind == DriveKind::Hdd);
    let mut note = |text: String| notes.push(format!("{}: {text}", server.name));
    if group.raid.is_zfs() && group.drives > RAIDZ_DRIVES {
        let counts = if hdd { "" } else { ", and counts as one of so many here" };
        note(format!(
            "a {} of {} drives loses speed{counts}: take {RAIDZ_DRIVES} at most (001, of NVMe).",
            group.raid, group.drives
        ));
    }
    if group.role == Role::Storage && !hdd && maker(server, group) == Maker::Md {
        note(format!(
            "{} of flash in software: 001 calls MD RAID 6 very bad on NVMe; one thread makes the parity of a target. Take \
             raidz2 of {RAIDZ_DRIVES} drives, or a controller.",
            group.raid
        ));
    }
    if let Some(own) = of_zfs(group) {
        note(format!(
            "{} with file_system = \"zfs\": ZFS has {own} for this, which also mends what its checksums find: write \
             raid = \"{own}\", unless a controller makes the RAID.",
            group.raid
        ));
    }
    if group.role == Role::Meta && group.raid.parity() > 0 {
        note(format!(
            "metadata on {}: every small write updates parity; RAID 1 or 10 avoids it (001).",
            group.raid
        ));
    }
    if group.raid == Raid::Raid6 && hdd && group.drives > RAID6_HDD_DRIVES {
        note(format!(
            "RAID 6 of {} hard disks: around {RAID6_HDD_DRIVES} suit large writes, 6 small ones (001).",
            group.drives
        ));
    }
    if group.raid.survives(group.drives) == 0 && group.role == Role::Storage && hardware.striping.copies == 1
    {
        let other = if hardware.software == Software::Skep { "a RAID level" } else { "copies = 2" };
        note(format!(
            "one failed drive loses a target and every file with a chunk on it: scratch data only, or {other}."
        ));
    }
    if group.raid.survives(group.drives) > 0
        && group.spares == 0
        && storage(server).any(|other| other == group)
    {
        note(format!("no hot spare for the {} targets; keep at least cold ones at hand (001).", group.raid));
    }
}

/// What ZFS itself has in the place of a RAID level with parity.
fn of_zfs(group: &TargetGroup) -> Option<&'static str> {
    match (group.file_system, group.raid) {
        (FileSystem::Zfs, Raid::Raid5) => Some("raidz1"),
        (FileSystem::Zfs, Raid::Raid6) => Some("raidz2"),
        _ => None,
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Names of components, joined.
pub fn titles(stages: &[Stage]) -> String {
    stages.iter().map(|stage| stage.title()).collect::<Vec<_>>().join(" and ")
}

//! Impossible hardware is refused, each fault with the place and what to write instead.

use crate::catalogue::{Catalogue, PRESETS};
use crate::forward::inodes::has_table as has_inode_table;
use crate::forward::small::{INLINE_MAX, inline_limit};
use crate::hardware::{
    DriveOverride, FileSystem, Hardware, METADATA_GROUPS_MAX, Overrides, Pcie, Role, Server, Software,
    TargetGroup,
};
use crate::raid::Raid;
use std::ops::RangeInclusive;

/// Most servers or clients of one kind.
pub const MACHINES_MAX: u32 = 1_000_000;
/// Most drives, links, controllers or targets of one server.
pub const PARTS_MAX: u32 = 10_000;
/// Smallest chunk that the file system takes.
pub const CHUNK_MIN: u64 = 64 << 10;
/// Bytes per inode that mkfs.ext4 takes (`-i`).
pub const INODE_RATIO: RangeInclusive<u64> = 1024..=67_108_864;
/// Bytes of an inode that mkfs.ext4 takes (`-I`).
pub const INODE_SIZE: RangeInclusive<u64> = 128..=4096;
/// Largest price, or operations per second, of one part.
pub const NUMBER_MAX: f64 = 1e12;
/// Most copies of a chunk.
pub const COPIES_MAX: u32 = 3;

/// One step from a table to a field in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A key.
    Field(String),
    /// An element of an array.
    Item(usize),
}

/// One thing that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: Vec<Step>,
    /// What is wrong and what to write.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", field(&self.place), self.message)
    }
}

/// `servers[0].targets[1].raid`.
pub fn field(place: &[Step]) -> String {
    let mut text = String::new();
    for step in place {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => text.push_str(&format!(".{name}")),
            Step::Item(at) => text.push_str(&format!("[{at}]")),
        }
    }
    text
}

const NO_MIRROR: &str = "this release of Skep keeps one copy of every chunk (mirror groups come in a later one): write \
    copies = 1, and a raid level for the targets";

const NOTHING: &str = "a component that delivers nothing: write its rate, such as \"2.5 GB/s\"";

/// Everything wrong with a description; empty when it can be planned with.
pub fn check(hardware: &Hardware) -> Vec<Problem> {
    let mut found = Found { problems: Vec::new(), at: Vec::new() };
    let Some(catalogue) = Catalogue::of(hardware) else {
        let names = PRESETS.map(|preset| preset.name).join(", ");
        found.field("preset", format!("no such preset: write one of {names}, or leave it out"));
        return found.problems;
    };
    if hardware.servers.is_empty() {
        found.field("servers", "there are none: describe at least one kind in [[servers]]".to_owned());
    }
    for (at, server) in hardware.servers.iter().enumerate() {
        found.at = vec![Step::Field("servers".to_owned()), Step::Item(at)];
        if hardware.servers[..at].iter().any(|other| other.name == server.name) {
            found.field(
                "name",
                format!("two kinds of servers are called {:?}: name them differently", server.name),
            );
        }
        check_server(&mut found, &catalogue, hardware.software, server);
    }
    found.at.clear();
    check_clients(&mut found, &catalogue, hardware);
    check_layout(&mut found, hardware);
    check_names(&mut found, hardware);
    check_files(&mut found, hardware);
    if hardware.software == Software::Skep && hardware.striping.copies > 1 {
        found.field("striping.copies", NO_MIRROR.to_owned());
    }
    check_rates(&mut found, hardware);
    found.problems
}

struct Found {
    problems: Vec<Problem>,
    at: Vec<Step>,
}

impl Found {
    fn field(&mut self, name: &str, message: String) {
        let mut place = self.at.clone();
        place.extend(name.split('.').map(|part| Step::Field(part.to_owned())));
        self.problems.push(Problem { place, message });
    }

    /// Names of priced things may hold dots.
    fn priced(&mut self, table: &str, name: &str, message: &str) {
        let place = ["prices", table, name].map(|part| Step::Field(part.to_owned())).to_vec();
        self.problems.push(Problem { place, message: message.to_owned() });
    }

    fn within(&mut self, name: &str, value: u32, most: u32) {
        if value == 0 || value > most {
            self.field(name, format!("{value} makes no sense: write at least 1 and at most {most}"));
        }
    }

    fn slot(&mut self, name: &str, slot: Option<Pcie>) {
        let Some(Pcie { generation, lanes }) = slot else { return };
        if !(1..=6).contains(&generation) {
            self.field(name, format!("PCIe generation {generation} does not exist: write 1 to 6"));
        }
        if !matches!(lanes, 1 | 2 | 4 | 8 | 16 | 32) {
            self.field(name, format!("a slot of {lanes} lanes does not exist: write 1, 2, 4, 8, 16 or 32"));
        }
    }

    fn inside(&mut self, list: &str, at: usize, check: impl FnOnce(&mut Self)) {
        let depth = self.at.len();
        self.at.extend([Step::Field(list.to_owned()), Step::Item(at)]);
        check(self);
        self.at.truncate(depth);
    }
}

fn check_server(found: &mut Found, catalogue: &Catalogue<'_>, software: Software, server: &Server) {
    found.within("count", server.count, MACHINES_MAX);
    found.within("sockets", server.sockets, 64);
    if let Some(cores) = server.cores {
        found.within("cores", cores, PARTS_MAX);
    }
    if let (Some(meta), Some(cores)) = (server.meta_cores, server.cores)
        && u64::from(meta) > u64::from(cores) * u64::from(server.sockets)
    {
        found.field("meta_cores", format!("{meta} of {cores} x {} cores: write fewer", server.sockets));
    }
    if server.memory.0 == 0 {
        found.field(
            "memory",
            "a server without memory does nothing: write a size such as \"256 GiB\"".to_owned(),
        );
    }
    if server.roles.is_empty() {
        found.field("roles", "it does nothing: write some of \"mgmt\", \"meta\", \"storage\"".to_owned());
    }
    for role in [Role::Meta, Role::Storage] {
        check_role(found, server, role);
    }
    for (at, nic) in server.nics.iter().enumerate() {
        found.inside("nics", at, |found| {
            found.within("count", nic.count, PARTS_MAX);
            found.slot("pcie", nic.pcie);
            if catalogue.nic(&nic.kind).is_none() {
                found.field("kind", unknown("link", &nic.kind, &catalogue.nic_names(), "nics"));
            }
        });
    }
    for (at, controller) in server.controllers.iter().enumerate() {
        found.inside("controllers", at, |found| {
            found.within("count", controller.count, PARTS_MAX);
            found.slot("pcie", controller.pcie);
            if catalogue.controller(&controller.kind).is_none() {
                let names = catalogue.controller_names();
                found.field("kind", unknown("controller", &controller.kind, &names, "controllers"));
            }
            let measured =
                [("measured_read", controller.measured_read), ("measured_write", controller.measured_write)];
            for (name, rate) in measured {
                if rate.is_some_and(|rate| rate.0 <= 0.0) {
                    let wrong = "a controller that passes nothing: write what was measured, or leave it out";
                    found.field(name, wrong.to_owned());
                }
            }
            if server.controllers[..at].iter().any(|other| other.name == controller.name) {
                found.field("name", format!("two controllers are called {:?}", controller.name));
            }
        });
    }
    for (at, switch) in server.pcie_switches.iter().enumerate() {
        found.inside("pcie_switches", at, |found| {
            found.within("count", switch.count, PARTS_MAX);
            found.slot("uplink", Some(switch.uplink));
        });
    }
    for (at, group) in server.targets.iter().enumerate() {
        found.inside("targets", at, |found| {
            check_group(found, catalogue, server, group);
            check_inodes(found, software, group);
        });
    }
}

fn check_role(found: &mut Found, server: &Server, role: Role) {
    let name = if role == Role::Meta { "meta" } else { "storage" };
    let wanted = server.roles.contains(&role);
    let targets = server.targets.iter().any(|group| group.role == role);
    if wanted && !targets {
        found.field(
            "targets",
            format!("role {name:?} without a target: add [[servers.targets]] with role = {name:?}"),
        );
    }
    if targets && !wanted {
        found.field("roles", format!("it has targets with role = {name:?}: add {name:?} to roles"));
    }
    let link =
        |nic: &crate::hardware::Nic| nic.count > 0 && (nic.roles.is_empty() || nic.roles.contains(&role));
    if wanted && !server.nics.iter().any(link) {
        found.field(
            "nics",
            format!("no link carries {name:?}: add [[servers.nics]] with kind = \"100gbe\" or another of the catalogue"),
        );
    }
}

fn check_group(found: &mut Found, catalogue: &Catalogue<'_>, server: &Server, group: &TargetGroup) {
    found.within("count", group.count, PARTS_MAX);
    found.slot("pcie", group.pcie);
    if group.role == Role::Mgmt {
        found.field(
            "role",
            "the management service needs no target: write \"meta\" or \"storage\"".to_owned(),
        );
    }
    if group.drives > PARTS_MAX {
        found.within("drives", group.drives, PARTS_MAX);
    }
    if group.spares > PARTS_MAX {
        found.field("spares", format!("{} makes no sense: write at most {PARTS_MAX}", group.spares));
    }
    if group.drives < group.raid.least_drives() {
        let least = group.raid.least_drives();
        let message = format!(
            "{} of {} drives: it needs at least {least}; write drives = {least} or another raid",
            group.raid, group.drives
        );
        found.field("drives", message);
    } else if group.raid == Raid::Raid10 && group.drives % 2 == 1 {
        found.field("drives", format!("RAID 10 pairs drives: {} is odd", group.drives));
    }
    if group.size.0 == 0 {
        found.field("size", "a drive without capacity: write its size, such as \"1.6 TB\"".to_owned());
    }
    match (group.raid.is_zfs(), group.file_system) {
        (true, FileSystem::Zfs) | (false, _) => {}
        (true, _) => found.field("raid", format!("{} is ZFS's own: write file_system = \"zfs\"", group.raid)),
    }
    for (name, rate) in [("measured_read", group.measured_read), ("measured_write", group.measured_write)] {
        if rate.is_some_and(|rate| rate.0 <= 0.0) {
            found.field(
                name,
                "a target that delivers nothing: write what was measured, or leave it out".to_owned(),
            );
        }
    }
    if catalogue.drive(&group.drive).is_none() {
        let message = match catalogue.own_drive(&group.drive) {
            Some(own) => half(&group.drive, own),
            None => unknown("drive", &group.drive, &catalogue.drive_names(), "drives"),
        };
        found.field("drive", message);
    }
    if let Some(name) = &group.controller
        && !server.controllers.iter().any(|controller| &controller.name == name)
    {
        let names: Vec<String> =
            server.controllers.iter().map(|controller| controller.name.clone()).collect();
        found.field("controller", elsewhere("controller", name, &names, "[[servers.controllers]]"));
    }
    if let Some(name) = &group.pcie_switch
        && !server.pcie_switches.iter().any(|switch| &switch.name == name)
    {
        let names: Vec<String> = server.pcie_switches.iter().map(|switch| switch.name.clone()).collect();
        found.field("pcie_switch", elsewhere("PCIe switch", name, &names, "[[servers.pcie_switches]]"));
    }
}

/// What mkfs.ext4 would refuse, and what it is not asked for.
fn check_inodes(found: &mut Found, software: Software, group: &TargetGroup) {
    let table = group.role == Role::Meta && has_inode_table(group.file_system);
    for (name, given) in [("bytes_per_inode", group.bytes_per_inode), ("inode_size", group.inode_size)] {
        if given.is_some() && !table {
            found.field(
                name,
                "only a metadata target on ext4 or ldiskfs has a table of inodes: leave it out".to_owned(),
            );
            return;
        }
    }
    if group.bytes_per_inode.is_some_and(|ratio| !INODE_RATIO.contains(&ratio)) {
        found.field(
            "bytes_per_inode",
            format!(
                "write what mkfs.ext4 -i was given, from {} to {}, such as 2048",
                INODE_RATIO.start(),
                INODE_RATIO.end()
            ),
        );
        return;
    }
    let Some(size) = group.inode_size else { return };
    if !INODE_SIZE.contains(&size) || !size.is_power_of_two() {
        let (least, most) = (INODE_SIZE.start(), INODE_SIZE.end());
        found
            .field("inode_size", format!("{size}: write a power of two from {least} to {most}, such as 512"));
        return;
    }
    let (ratio, _) = crate::forward::inodes::geometry(software, group);
    if size >= ratio {
        found.field(
            "inode_size",
            format!("inodes of {size} bytes, one for every {ratio}: the table leaves nothing; write a larger bytes_per_inode"),
        );
    }
}

fn check_clients(found: &mut Found, catalogue: &Catalogue<'_>, hardware: &Hardware) {
    found.within("clients.count", hardware.clients.count, MACHINES_MAX);
    found.within("clients.nics", hardware.clients.nics, PARTS_MAX);
    if let Some(cores) = hardware.clients.cores {
        found.within("clients.cores", cores, PARTS_MAX);
    }
    if catalogue.nic(&hardware.clients.nic).is_none() {
        found.field("clients.nic", unknown("link", &hardware.clients.nic, &catalogue.nic_names(), "nics"));
    }
}

/// Metadata servers and groups that a cluster of Skep can be made for.
fn check_names(found: &mut Found, hardware: &Hardware) {
    let (servers, groups) = (hardware.metadata_servers, hardware.metadata_groups);
    if hardware.software != Software::Skep {
        for (field, number) in [("metadata_servers", servers), ("metadata_groups", groups)] {
            if number != 1 {
                found.field(field, "only Skep deals shards to servers and groups: leave it out".to_owned());
            }
        }
        return;
    }
    let of_names = |server: &&Server| server.targets.iter().any(|group| group.role == Role::Meta);
    let serving: u128 = hardware.servers.iter().filter(of_names).map(|one| u128::from(one.count)).sum();
    if servers == 0 || u128::from(servers) > serving.max(1) {
        let most = serving.max(1);
        let message = format!(
            "{servers} metadata servers, and {serving} have a target with role \"meta\": write 1 to {most}"
        );
        found.field("metadata_servers", message);
    }
    if groups == 0 || groups > METADATA_GROUPS_MAX {
        let message = format!("a metadata server of Skep has 1 to {METADATA_GROUPS_MAX} groups");
        found.field("metadata_groups", message);
    }
}

/// Files that cannot be, and a limit that Skep does not take.
fn check_files(found: &mut Found, hardware: &Hardware) {
    if let Some(limit) = hardware.inline_limit {
        if hardware.software != Software::Skep {
            found.field("inline_limit", "only Skep keeps contents in the metadata: leave it out".to_owned());
        } else if limit.0 > INLINE_MAX {
            found.field("inline_limit", format!("{limit}: Skep takes 8 KiB at most, write 0 B to 8 KiB"));
        }
    }
    let Some(files) = &hardware.files else { return };
    let limit = inline_limit(hardware.software, hardware.inline_limit);
    for (field, message) in files.wrong(limit) {
        found.field(&format!("files.{field}"), message);
    }
}

fn check_layout(found: &mut Found, hardware: &Hardware) {
    let striping = &hardware.striping;
    let groups =
        || hardware.servers.iter().flat_map(|server| server.targets.iter().map(move |group| (server, group)));
    let storage = || groups().filter(|(_, group)| group.role == Role::Storage);
    // Wide, because counts have not been refused yet.
    let targets: u128 =
        storage().map(|(server, group)| u128::from(server.count) * u128::from(group.count)).sum();
    if targets == 0 {
        found.field(
            "servers",
            "no storage target anywhere: give a server role \"storage\" and targets".to_owned(),
        );
    } else if striping.targets == 0 || u128::from(striping.targets) > targets {
        let message =
            format!("a file over {} targets, of {targets} there are: write 1 to {targets}", striping.targets);
        found.field("striping.targets", message);
    }
    let chunk = striping.chunk.0;
    if hardware.software == Software::Skep && (chunk < CHUNK_MIN || !chunk.is_power_of_two()) {
        found.field("striping.chunk", format!("{}: write a power of two of at least 64 KiB", striping.chunk));
    }
    found.within("striping.copies", striping.copies, COPIES_MAX);
    let holders: u64 = hardware
        .servers
        .iter()
        .filter(|server| server.targets.iter().any(|group| group.role == Role::Storage))
        .map(|server| u64::from(server.count))
        .sum();
    if (1..=COPIES_MAX).contains(&striping.copies) && holders > 0 && u64::from(striping.copies) > holders {
        let message =
            format!("{} copies on {holders} storage servers: each copy needs its own", striping.copies);
        found.field("striping.copies", message);
    }
    let over = hardware.network.oversubscription;
    if !(1.0..=1000.0).contains(&over) {
        found.field("network.oversubscription", format!("{over}: write 1 (non-blocking) or more"));
    }
    if let Some(connections) = &hardware.connections {
        found.within("connections.buffers", connections.buffers, MACHINES_MAX);
        found.within("connections.per_client", connections.per_client, MACHINES_MAX);
    }
}

fn check_rates(found: &mut Found, hardware: &Hardware) {
    let zero = NOTHING.to_owned();
    let amount = format!("write a number from 0 to {NUMBER_MAX}");
    if let Some(prices) = &hardware.prices {
        let lists = [
            ("servers", &prices.servers),
            ("drives", &prices.drives),
            ("nics", &prices.nics),
            ("controllers", &prices.controllers),
        ];
        for (table, list) in lists {
            for (name, _) in list.iter().filter(|(_, price)| !(0.0..=NUMBER_MAX).contains(*price)) {
                found.priced(table, name, &amount);
            }
        }
        if !(0.0..=NUMBER_MAX).contains(&prices.network) {
            found.field("prices.network", amount.clone());
        }
    }
    for (field, rate) in
        [("clients.stream", hardware.clients.stream), ("network.fabric", hardware.network.fabric)]
    {
        if rate.is_some_and(|rate| rate.0 <= 0.0) {
            found.field(field, zero.clone());
        }
    }
    check_overrides(found, &hardware.catalogue);
}

/// Rates of one's own that cannot be, for requirements too.
pub fn overrides(own: &Overrides) -> Vec<Problem> {
    let mut found = Found { problems: Vec::new(), at: Vec::new() };
    check_overrides(&mut found, own);
    found.problems
}

fn check_overrides(found: &mut Found, own: &Overrides) {
    for (name, part) in [("write_efficiency", own.write_efficiency), ("read_efficiency", own.read_efficiency)]
    {
        if let Some(part) = part
            && !(part > 0.0 && part <= 1.0)
        {
            found.field(&format!("catalogue.{name}"), format!("{part}: write a part, such as 0.9"));
        }
    }
    let zero = NOTHING.to_owned();
    let amount = format!("write a number from 0 to {NUMBER_MAX}");
    for (table, rates) in [("nics", &own.nics), ("controllers", &own.controllers)] {
        for (name, _) in rates.iter().filter(|(_, rate)| rate.0 <= 0.0) {
            found.field(&format!("catalogue.{table}.{name}"), zero.clone());
        }
    }
    if own.core_copy.is_some_and(|rate| rate.0 <= 0.0) {
        found.field("catalogue.core_copy", zero.clone());
    }
    for (name, drive) in &own.drives {
        for (field, number) in [("read_iops", drive.read_iops), ("write_iops", drive.write_iops)] {
            if number.is_some_and(|number| !(0.0..=NUMBER_MAX).contains(&number)) {
                found.field(&format!("catalogue.drives.{name}.{field}"), amount.clone());
            }
        }
        for (field, rate) in [("read", drive.read), ("write", drive.write)] {
            if rate.is_some_and(|rate| rate.0 <= 0.0) {
                found.field(&format!("catalogue.drives.{name}.{field}"), zero.clone());
            }
        }
    }
}

fn unknown(what: &str, name: &str, names: &[String], table: &str) -> String {
    format!(
        "no {what} {name:?} in the catalogue: write one of {}, or give its rate under [catalogue.{table}]",
        names.join(", ")
    )
}

/// A drive of which the description gives something, but not enough.
fn half(name: &str, own: &DriveOverride) -> String {
    let rates = if own.read.is_some() || own.write.is_some() { "one rate only" } else { "no rate" };
    format!(
        "{name:?} has {rates}: a drive that the catalogue does not know needs read and write in \
         [catalogue.drives.{name}]"
    )
}

fn elsewhere(what: &str, name: &str, names: &[String], table: &str) -> String {
    if names.is_empty() {
        return format!("this server has no {what} {name:?}: add it in {table}");
    }
    format!("this server has no {what} {name:?}: write one of {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a description in which nothing makes sense is refused for each reason and never panics.
    #[test]
    fn nothing_at_all() {
        let found = check(&Hardware::default());
        let fields: Vec<String> = found.iter().map(|problem| field(&problem.place)).collect();
        assert_eq!(fields, ["servers", "clients.count", "clients.nics", "clients.nic", "servers"]);
        assert!(found.iter().all(|problem| problem.message.contains(':')), "{found:?}");
    }

    /// Goal: a drive of one's own that lacks a rate is told what it lacks, and is nowhere offered as one to write.
    #[test]
    fn half_a_drive() {
        let text = crate::systems::system("example").unwrap().text.replace("\"p5600\"", "\"mine\"");
        let told = |drive: &str| {
            let faults = Hardware::from_toml("x", &format!("{text}[catalogue.drives.mine]\n{drive}\n"));
            faults.unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let one = told("read = \"3 GB/s\"");
        assert!(
            one.contains("\"mine\" has one rate only: ") && one.contains("needs read and write"),
            "{one}"
        );
        assert!(!one.contains("no drive"), "{one}");
        let none = told("read_iops = 5");
        assert!(none.contains("\"mine\" has no rate: ") && none.contains("needs read and write"), "{none}");
        let other = text.replace("\"mine\"", "\"yours\"") + "[catalogue.drives.mine]\nread = \"3 GB/s\"\n";
        let other = Hardware::from_toml("x", &other).unwrap_err();
        let other = other.iter().find(|fault| fault.to_string().contains("no drive \"yours\"")).unwrap();
        assert!(!other.to_string().contains("mine"), "{other}");
    }

    /// Goal: whatever numbers stand in a description, it is refused or planned with finite figures; nothing panics.
    #[test]
    fn any_numbers() {
        let text = crate::systems::system("example").unwrap().text;
        let numbers = ["0", "1", "2", "7", "999", "4294967295", "-1", "0.5", "1e300", "nan", "inf"];
        let sizes =
            ["\"0 B\"", "\"1 B\"", "\"8 GB/s\"", "\"6.4 PB\"", "\"7 EiB\"", "\"1e9 PB\"", "\"1e300 PB/s\""];
        let (mut planned, mut refused) = (0, 0);
        for (at, line) in text.lines().enumerate() {
            let Some((key, _)) = line.split_once(" = ") else { continue };
            for value in numbers.into_iter().chain(sizes) {
                let changed: Vec<String> = text
                    .lines()
                    .enumerate()
                    .map(
                        |(other, line)| {
                            if other == at { format!("{key} = {value}") } else { line.to_owned() }
                        },
                    )
                    .collect();
                match Hardware::from_toml("x", &changed.join("\n")) {
                    Err(faults) => {
                        refused += 1;
                        assert!(faults.iter().all(|fault| fault.line > 0), "{faults:?}");
                    }
                    Ok(hardware) => {
                        planned += 1;
                        let forecast = crate::forward::forecast(&hardware).unwrap();
                        let json = serde_json::to_string(&forecast).unwrap();
                        assert!(
                            !json.contains("null,\"unit\""),
                            "{key} = {value}: a figure that is no number: {json}"
                        );
                        assert!(
                            forecast.write.limit.0.is_finite() && forecast.read.headroom.is_finite(),
                            "{key} = {value}"
                        );
                    }
                }
            }
        }
        assert!(planned > 50 && refused > 200, "{planned} {refused}");
    }
}

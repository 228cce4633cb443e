//! Proposals in sentences.

use super::blocks::{Block, Count, client_side, holders, shape, why_grouped};
use super::requirements::{Availability, Requirements, Servers};
use super::search::{Need, SERVERS_MAX, Short, names_short, servers_deliver};
use super::{ClientSide, Proposal, Proposals};
use crate::forward::{Forecast, Stage, Stream};
use crate::hardware::{Hardware, Software};
use crate::units::{count, decimal};
use std::fmt::Write;

/// How drives are grouped, and why.
pub fn grouped(block: &Block, requirements: &Requirements, hardware: &Hardware) -> String {
    let group = hardware.servers.first().and_then(|server| server.targets.first());
    why_grouped(block, requirements, group.map_or(1, |group| group.drives))
}

/// Why so many.
pub fn decided(number: &Count, decided: &[Need]) -> String {
    let names: Vec<&str> = decided.iter().map(|need| need.name()).collect();
    match names.is_empty() {
        true => format!("{} for contents: fewer are not possible", number.storage),
        false => format!("{} for contents: one less would miss {}", number.storage, names.join(" and ")),
    }
}

/// Drives for names, and what they leave to contents.
fn place_of_names(block: &Block, requirements: &Requirements, number: &Count) -> String {
    let (with, without) = holders(number, requirements);
    let rest = shape(block, number.pairs, without > 0, requirements);
    let whose = match (without, with) {
        (0, 1) => "of the server".to_owned(),
        (0, _) => "of every server".to_owned(),
        (_, 1) => "of one server, the others have none,".to_owned(),
        _ => format!("of {with} servers, the others have none,"),
    };
    let used = number.pairs * 2 + rest.groups * rest.drives;
    let empty = match block.slots.saturating_sub(used) {
        0 => String::new(),
        left => format!("; {left} stay empty, because all targets are as large as the others'"),
    };
    let empty = if without > 0 { empty } else { String::new() };
    let targets = if rest.groups == 1 { "target" } else { "targets" };
    format!(
        "drives for names take {} of the {} slots {whose} and leave {} {targets} of {} drives{empty}",
        number.pairs * 2,
        block.slots,
        rest.groups,
        rest.drives
    )
}

/// What to know about it.
pub fn reasons(
    block: &Block,
    layout: Servers,
    requirements: &Requirements,
    number: &Count,
    (hardware, forecast): (&Hardware, &Forecast),
) -> Vec<String> {
    let mut reasons = Vec::new();
    match layout {
        Servers::Combined => {
            reasons.push(
                "names and contents on the same servers: fewer machines, the most common design (001)"
                    .to_owned(),
            );
            reasons.push(place_of_names(block, requirements, number));
        }
        Servers::Dedicated => reasons.push(format!(
            "{} for names alone: storage load neither pushes names out of the cache nor delays them (001)",
            number.names
        )),
    }
    for stream in [&forecast.write, &forecast.read] {
        reasons.push(limited(stream, requirements));
    }
    if requirements.availability == Availability::Mirror {
        // Requirements refuse it for Skep, which has no mirror groups in this release.
        reasons.push("mirrored: survives the loss of a server, at half the space and writes".to_owned());
    }
    reasons.extend(shared_names(hardware));
    if names_short(forecast) {
        let files = forecast.metadata.files.as_ref().map_or(0.0, |files| files.value);
        reasons.push(format!(
            "space for names is {} of the capacity, less than the rule ({}): {} files fit",
            forecast.metadata.part.show(),
            forecast.metadata.rules.first().map_or("", |rule| rule.source.as_str()),
            count(files)
        ));
    }
    reasons.extend(small_files(requirements, forecast));
    reasons.extend(forecast.losses.iter().map(|loss| loss.said.clone()));
    reasons
}

/// Over what names are dealt, and how a cluster is made so.
fn shared_names(hardware: &Hardware) -> Option<String> {
    if hardware.software != Software::Skep {
        return None;
    }
    let (servers, groups) = (hardware.metadata_servers, hardware.metadata_groups);
    Some(match (servers, groups) {
        (1, 1) => "one metadata server holds all names, in one group with one thread".to_owned(),
        _ => format!(
            "names are dealt over {servers} metadata {} with {groups} {}: metas = {} of mgmtd, groups = {groups} of metad, \
             before their first start; a directory is on one of them, so work in one has one thread",
            if servers == 1 { "server" } else { "servers" },
            if groups == 1 { "group (one thread)" } else { "groups (a thread) each" },
            u64::from(servers) * u64::from(groups),
        ),
    })
}

/// Contents in the metadata, and the memory of rows.
fn small_files(requirements: &Requirements, forecast: &Forecast) -> Vec<String> {
    let metadata = &forecast.metadata;
    let mut reasons = Vec::new();
    let by_mean = requirements.file_size.is_none() && requirements.small_part.is_none();
    match (&metadata.contents, &metadata.needed) {
        (Some(contents), Some(needed)) => {
            let guess = match by_mean {
                true => {
                    "; by the mean of all files, so the storage targets could hold all of it too: give --file-size or \
                         --small-part"
                }
                false => "",
            };
            reasons.push(format!(
                "{} of contents of small files lie in the metadata ({}), which needs {} of the {} there{guess}",
                decimal(contents.value),
                contents.why,
                decimal(needed.value),
                decimal(metadata.space.value)
            ));
        }
        (None, None) if requirements.files.is_some() && metadata.largest_small.is_some() => {
            let largest = metadata.largest_small.as_ref().map_or(0.0, |figure| figure.value);
            reasons.push(format!(
                "no contents of small files are counted: --file-size says how large files are; {} of 8 KiB would fit",
                count(largest)
            ));
        }
        _ => {}
    }
    if let Some(rows) = &metadata.rows {
        let cold = rows
            .cold_stats
            .as_ref()
            .map_or(String::new(), |stats| format!(", others at {} stats", stats.show()));
        reasons.push(format!(
            "rows of {} files are in memory (half of the server's, as cache_size of metad){cold}",
            count(rows.files.value)
        ));
    }
    reasons
}

fn limited(stream: &Stream, requirements: &Requirements) -> String {
    let way = match stream.direction {
        crate::forward::Direction::Write => "writing",
        crate::forward::Direction::Read => "reading",
    };
    let titles = |stages: &[Stage]| stages.iter().map(|s| s.title()).collect::<Vec<_>>().join(", ");
    let all = servers_deliver(requirements, stream);
    if all > stream.expected {
        let side = client_side(requirements);
        return format!(
            "{way} {all} with clients enough; the {} assumed ones see {}",
            side.count, stream.expected
        );
    }
    let next = match stream.next.is_empty() {
        true => String::new(),
        false => format!("; without that limit {}, then {}", stream.next_expected, titles(&stream.next)),
    };
    format!("{way} {}, limited by {}{next}", stream.expected, titles(&stream.bottleneck))
}

/// Why a block does not do.
pub fn rejected(requirements: &Requirements, short: &Short) -> String {
    if !short.unpriced.is_empty() {
        return format!("no price of {}", short.unpriced.join(", "));
    }
    let names: Vec<&str> = short.unmet.iter().map(|need| need.name()).collect();
    if short.unmet == [Need::Budget] {
        let cost = short.cost.map_or(String::new(), |cost| format!(" costs {cost:.0},"));
        let budget = requirements.budget.unwrap_or_default();
        return format!("what meets the rest{cost} more than the budget of {budget:.0}");
    }
    if let Some(given) = requirements.metadata_servers
        && short.unmet.iter().all(|need| need.of_names())
    {
        return format!("metadata_servers: {given} of these are too few for {}", names.join(" and "));
    }
    format!("{SERVERS_MAX} servers are not enough for {}", names.join(" and "))
}

/// What no block meets.
pub fn impossible(need: Need, requirements: &Requirements, short: &[Short]) -> String {
    if need == Need::Budget {
        let cheapest = short.iter().filter_map(|short| short.cost).fold(f64::INFINITY, f64::min);
        let budget = requirements.budget.unwrap_or_default();
        return format!(
            "budget: {budget:.0} is not enough; the cheapest that meets the rest costs {cheapest:.0}"
        );
    }
    let r = requirements;
    let wanted = match need {
        Need::Write => r.write.map(|rate| rate.to_string()),
        Need::Read => r.read.map(|rate| rate.to_string()),
        Need::Iops => r.iops.map(|n| format!("{}/s", count(n))),
        Need::WriteIops => r.write_iops.map(|n| format!("{}/s", count(n))),
        Need::Capacity => r.contents().map(decimal),
        Need::Files => r.files.map(count),
        Need::MetadataRate => r.metadata_rate.map(|n| format!("{}/s", count(n))),
        Need::Opens => r.opens.map(|n| format!("{}/s", count(n))),
        Need::NamesSpace | Need::Budget => None,
    };
    let wanted = wanted.map_or(String::new(), |wanted| format!("{wanted} "));
    let most = r.metadata_servers.filter(|_| need.of_names());
    let servers = match most {
        Some(given) => format!("{given} metadata servers (metadata_servers)"),
        None => format!("{SERVERS_MAX} servers"),
    };
    format!("{}: {wanted}is more than {servers} of any allowed kind deliver", need.name())
}

impl ClientSide {
    /// Who they are, and what that means for the figures.
    fn text(&self) -> String {
        let Self { count, nic, carry, .. } = self;
        let clients = format!("Clients: {count} with one {nic} link each, {carry} together");
        if self.assumed {
            format!(
                "{clients}: assumed, as --clients is not given. Write and read above are what programs see with clients \
                 enough; --clients N counts what N of them carry."
            )
        } else {
            format!("{clients}, as given; write and read above are with them.")
        }
    }
}

impl Proposals {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.table(&mut out);
        let _ = writeln!(out, "{}", self.order);
        let _ = writeln!(out, "{}", self.clients.text());
        for (at, proposal) in self.proposals.iter().enumerate() {
            let _ = writeln!(out, "\n{}. {}", at + 1, proposal.title);
            for server in &proposal.hardware.servers {
                let drives: Vec<String> = server.targets.iter().map(group).collect();
                let links: Vec<String> =
                    server.nics.iter().map(|nic| format!("{} x {}", nic.count, nic.kind)).collect();
                let _ = writeln!(
                    out,
                    "   {} x {}: {}; {}",
                    server.count,
                    server.name,
                    drives.join(" + "),
                    links.join(" + ")
                );
            }
            for reason in &proposal.reasons {
                let _ = writeln!(out, "   - {reason}");
            }
        }
        if !self.rejected.is_empty() {
            let _ = writeln!(out, "\nNot proposed");
            for line in &self.rejected {
                let _ = writeln!(out, "   {line}");
            }
        }
        let _ = writeln!(
            out,
            "\n`skep plan propose ... --description N` prints the description of one for `skep plan`."
        );
        out
    }

    fn table(&self, out: &mut String) {
        let priced = self.proposals.iter().any(|proposal| proposal.forecast.cost.is_some());
        let _ = write!(
            out,
            "    {:<26} {:>7} {:>7} {:>11} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "servers", "drives", "write", "read", "reads/s", "writes/s", "usable", "files", "creates/s"
        );
        let _ = writeln!(out, "{}", if priced { format!(" {:>12}", "cost") } else { String::new() });
        for (at, proposal) in self.proposals.iter().enumerate() {
            let line = row(proposal, &self.requirements);
            let cost = proposal.forecast.cost.as_ref();
            let cost = cost.map_or(String::new(), |cost| format!(" {:>12.0}", cost.total.value));
            let _ = writeln!(out, "{:>2}. {line}{cost}", at + 1);
        }
    }
}

fn group(group: &crate::hardware::TargetGroup) -> String {
    let targets = if group.count == 1 { "target" } else { "targets" };
    format!("{} {targets} of {} {} {} ({})", group.count, group.drives, group.drive, group.size, group.raid)
}

fn row(proposal: &Proposal, requirements: &Requirements) -> String {
    let forecast = &proposal.forecast;
    let figure = |figure: &Option<crate::forward::Figure>| {
        figure.as_ref().map_or_else(|| "-".to_owned(), |figure| count(figure.value))
    };
    format!(
        "{:<26} {:>7} {:>7} {:>11} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9}",
        proposal.title,
        u64::from(proposal.servers.0) + u64::from(proposal.servers.1),
        proposal.drives,
        servers_deliver(requirements, &forecast.write).to_string(),
        servers_deliver(requirements, &forecast.read).to_string(),
        figure(&forecast.random.read),
        figure(&forecast.random.write),
        decimal(forecast.capacity.usable.value),
        figure(&forecast.metadata.files),
        figure(&forecast.metadata.creates),
    )
}

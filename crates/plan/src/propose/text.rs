//! Proposals in sentences.

use super::blocks::Count;
use super::requirements::{Availability, Requirements, Servers};
use super::search::{Need, SERVERS_MAX, Short, names_short};
use super::{Proposal, Proposals};
use crate::forward::{Forecast, Stage, Stream};
use crate::units::{count, decimal};
use std::fmt::Write;

/// Why so many, and what to know about it.
pub fn reasons(
    layout: Servers,
    requirements: &Requirements,
    number: &Count,
    forecast: &Forecast,
    decided: &[Need],
) -> Vec<String> {
    let mut reasons = Vec::new();
    let names: Vec<&str> = decided.iter().map(|need| need.name()).collect();
    reasons.push(match names.is_empty() {
        true => format!("{} for contents: fewer are not possible", number.storage),
        false => format!("{} for contents: one less would miss {}", number.storage, names.join(" and ")),
    });
    reasons.push(match layout {
        Servers::Combined => {
            "names and contents on the same servers: fewer machines, the most common design (001)".to_owned()
        }
        Servers::Dedicated => format!(
            "{} for names alone: storage load neither pushes names out of the cache nor delays them (001)",
            number.metadata
        ),
    });
    for stream in [&forecast.write, &forecast.read] {
        reasons.push(limited(stream));
    }
    if requirements.availability == Availability::Mirror {
        // Requirements refuse it for Skep, which has no mirror groups in this release.
        reasons.push("mirrored: survives the loss of a server, at half the space and writes".to_owned());
    }
    if requirements.one_thread().is_some() {
        let empty = if layout == Servers::Combined && number.storage > 1 {
            "; the drives for names of the others stay empty until shards are spread: leave them out, or plan for that"
        } else {
            ""
        };
        reasons.push(format!(
            "this release of Skep keeps all names on one metadata server, with one thread{empty}"
        ));
    }
    if names_short(forecast) {
        let files = forecast.metadata.files.as_ref().map_or(0.0, |files| files.value);
        reasons.push(format!(
            "space for names is {} of the capacity on that server, less than the rule of 0.3 % (001): {} files fit",
            forecast.metadata.part.show(),
            count(files)
        ));
    }
    reasons
}

fn limited(stream: &Stream) -> String {
    let way = match stream.direction {
        crate::forward::Direction::Write => "writing",
        crate::forward::Direction::Read => "reading",
    };
    let titles = |stages: &[Stage]| stages.iter().map(|s| s.title()).collect::<Vec<_>>().join(", ");
    let next = match stream.next.is_empty() {
        true => String::new(),
        false => format!(", next {} at {}", titles(&stream.next), stream.next_rate),
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
        Need::Capacity => r.capacity.map(|size| decimal(size.bytes())),
        Need::Files => r.files.map(count),
        Need::MetadataRate => r.metadata_rate.map(|n| format!("{}/s", count(n))),
        Need::NamesSpace | Need::Budget => None,
    };
    let wanted = wanted.map_or(String::new(), |wanted| format!("{wanted} "));
    format!("{}: {wanted}is more than {SERVERS_MAX} servers of any allowed kind deliver", need.name())
}

impl Proposals {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.table(&mut out);
        let _ = writeln!(out, "{}", self.order);
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
            let line = row(proposal, self.requirements.one_thread());
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

/// `one_thread`: what this release's one metadata thread does, where that is less than the forecast's cores.
fn row(proposal: &Proposal, one_thread: Option<f64>) -> String {
    let forecast = &proposal.forecast;
    let figure = |figure: &Option<crate::forward::Figure>| {
        figure.as_ref().map_or_else(|| "-".to_owned(), |figure| count(figure.value))
    };
    let creates = match (one_thread, &forecast.metadata.creates) {
        (Some(most), Some(figure)) if most < figure.value => count(most),
        _ => figure(&forecast.metadata.creates),
    };
    format!(
        "{:<26} {:>7} {:>7} {:>11} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9}",
        proposal.title,
        u64::from(proposal.servers.0) + u64::from(proposal.servers.1),
        proposal.drives,
        forecast.write.expected.to_string(),
        forecast.read.expected.to_string(),
        figure(&forecast.random.read),
        figure(&forecast.random.write),
        decimal(forecast.capacity.usable.value),
        figure(&forecast.metadata.files),
        creates,
    )
}

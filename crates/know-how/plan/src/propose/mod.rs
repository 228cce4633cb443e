//! From requirements to building blocks: alternatives, each with its reason, each checked by the forward model.
//!
//! A proposal is a [`Hardware`] description like one that a person writes; what it is said to deliver is what
//! `skep plan` says of it.

pub mod blocks;
pub mod requirements;
pub mod search;
mod text;

pub use requirements::{Availability, Kind, Requirements, Servers};
pub use search::Need;

use crate::forward::Forecast;
use crate::hardware::Hardware;
use crate::units::Rate;
use blocks::{BLOCKS, Block};
use search::{Enough, Short};
use serde::Serialize;
use std::collections::BTreeSet;

/// One way to meet the requirements.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Proposal {
    /// Short name: block and layout.
    pub title: String,
    /// Name of the building block.
    pub block: String,
    /// Kind of drive.
    pub kind: Kind,
    /// Which services share a machine.
    pub layout: Servers,
    /// Servers for contents, servers for names.
    pub servers: (u32, u32),
    /// Drives of all servers.
    pub drives: u64,
    /// Bytes on the labels of the drives for contents.
    pub raw_bytes: f64,
    /// Requirements that decided how many servers there are; empty: the smallest possible is enough.
    pub decided: Vec<Need>,
    /// Why this block, so many, arranged like this.
    pub reasons: Vec<String>,
    /// The description, for `skep plan`.
    pub hardware: Hardware,
    /// What it delivers.
    pub forecast: Forecast,
}

/// The clients that proposals reckon with.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientSide {
    /// How many.
    pub count: u32,
    /// The link of each.
    pub nic: String,
    /// Nobody said how many, so they are as many as what was asked for takes, and 16 at least.
    pub assumed: bool,
    /// What all of them carry in one direction.
    #[serde(serialize_with = "crate::units::as_number")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub carry: Rate,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Proposals {
    /// What was asked.
    pub requirements: Requirements,
    /// By what they are ordered.
    pub order: String,
    /// The clients of every proposal.
    pub clients: ClientSide,
    /// The best first.
    pub proposals: Vec<Proposal>,
    /// Blocks that do not do, and why.
    pub rejected: Vec<String>,
}

/// Proposes; `Err` says in sentences which requirements cannot be met.
pub fn propose(requirements: &Requirements) -> Result<Proposals, Vec<String>> {
    let wrong = requirements.check();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let kinds = requirements.kinds();
    let (mut proposals, mut rejected, mut short) = (Vec::new(), Vec::new(), Vec::new());
    for block in BLOCKS.iter().filter(|block| kinds.contains(&block.kind)) {
        for layout in layouts(requirements) {
            match best_size(block, layout, requirements) {
                Ok(enough) => proposals.push(proposal(block, layout, requirements, enough)),
                Err(why) => {
                    rejected.push(format!(
                        "{}: {}",
                        title(block, layout),
                        text::rejected(requirements, &why)
                    ));
                    short.push(why);
                }
            }
        }
    }
    if proposals.is_empty() {
        return Err(impossible(requirements, &short, rejected));
    }
    let priced =
        proposals.iter().all(|p| p.forecast.cost.as_ref().is_some_and(|cost| cost.unpriced.is_empty()));
    let proposals = order(proposals, requirements);
    let order = order_rule(priced).to_owned();
    let clients = blocks::client_side(requirements);
    Ok(Proposals { requirements: requirements.clone(), order, clients, proposals, rejected })
}

fn layouts(requirements: &Requirements) -> Vec<Servers> {
    match requirements.servers {
        Some(one) => vec![one],
        None => vec![Servers::Combined, Servers::Dedicated],
    }
}

fn title(block: &Block, layout: Servers) -> String {
    match layout {
        Servers::Combined => format!("{}, combined", block.name),
        Servers::Dedicated => format!("{}, metadata apart", block.name),
    }
}

/// The size of drive that ranks best.
fn best_size(block: &Block, layout: Servers, requirements: &Requirements) -> Result<Enough, Short> {
    let mut best: Option<Enough> = None;
    let mut shorts = Vec::new();
    for size in block.sizes {
        match search::enough(block, layout, *size, requirements) {
            Ok(found) if best.as_ref().is_none_or(|best| better(&found, best, requirements)) => {
                best = Some(found)
            }
            Ok(_) => {}
            Err(short) => shorts.push(short),
        }
    }
    best.ok_or_else(|| nearest(shorts))
}

/// Of the sizes that do not do: the one that misses least, then the cheapest.
fn nearest(shorts: Vec<Short>) -> Short {
    let key = |short: &Short| (short.unmet.len(), short.cost.unwrap_or(f64::INFINITY));
    let none = Short { unmet: Vec::new(), cost: None, unpriced: Vec::new() };
    shorts
        .into_iter()
        .min_by(|a, b| key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)))
        .unwrap_or(none)
}

fn better(one: &Enough, other: &Enough, requirements: &Requirements) -> bool {
    rank(requirements, &one.hardware, &one.forecast) < rank(requirements, &other.hardware, &other.forecast)
}

/// How proposals are ordered; lower is better. All are whole numbers, so that they can be compared.
///
/// Cost where everything has a price. Without prices servers times over-provision: few servers that deliver what was
/// asked for and not much more; then raw space.
fn rank(requirements: &Requirements, hardware: &Hardware, forecast: &Forecast) -> (u64, u64, u64) {
    let cost = forecast.cost.as_ref().filter(|cost| cost.unpriced.is_empty());
    let servers: f64 = hardware.servers.iter().map(|server| f64::from(server.count)).sum();
    let waste = servers * search::over_provision(requirements, forecast);
    let first = cost.map_or(0, |cost| cost.total.value as u64);
    (first, (waste * 1e3) as u64, (forecast.capacity.raw.value / 1e9) as u64)
}

/// The rule of the order in a sentence.
pub fn order_rule(priced: bool) -> &'static str {
    if priced {
        "Order: cost, least first; the best of each kind of drive before the others."
    } else {
        "Order: without prices, number of servers times over-provision (what is delivered over what was asked for, \
         geometric mean), least first; the best of each kind of drive before the others."
    }
}

/// The best of each kind of drive first, so that they can be compared, then the others.
fn order(mut all: Vec<Proposal>, requirements: &Requirements) -> Vec<Proposal> {
    all.sort_by_key(|proposal| rank(requirements, &proposal.hardware, &proposal.forecast));
    let mut seen = BTreeSet::new();
    let (mut first, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|p| seen.insert(p.kind));
    first.extend(rest);
    first.truncate(requirements.show);
    first
}

fn proposal(block: &Block, layout: Servers, requirements: &Requirements, enough: Enough) -> Proposal {
    let Enough { count, hardware, forecast, decided } = enough;
    let drives = |server: &crate::hardware::Server| {
        let of: u64 = server.targets.iter().map(|g| u64::from(g.count) * u64::from(g.drives)).sum();
        u64::from(server.count) * of
    };
    let grouped = text::grouped(block, requirements, &hardware);
    let mut reasons = vec![block.why.to_owned(), grouped, text::decided(&count, &decided)];
    reasons.extend(text::reasons(block, layout, requirements, &count, (&hardware, &forecast)));
    Proposal {
        title: title(block, layout),
        block: block.name.to_owned(),
        kind: block.kind,
        layout,
        servers: (count.storage, if layout == Servers::Dedicated { count.names } else { 0 }),
        drives: hardware.servers.iter().map(drives).sum(),
        raw_bytes: forecast.capacity.raw.value,
        decided,
        reasons,
        hardware,
        forecast,
    }
}

fn impossible(requirements: &Requirements, short: &[Short], rejected: Vec<String>) -> Vec<String> {
    // What no block meets is impossible by itself; otherwise it is what they miss together.
    let mut everywhere: Option<BTreeSet<Need>> = None;
    for one in short {
        let unmet: BTreeSet<Need> = one.unmet.iter().copied().collect();
        everywhere = Some(match everywhere {
            Some(known) => known.intersection(&unmet).copied().collect(),
            None => unmet,
        });
    }
    let mut lines: Vec<String> = everywhere
        .unwrap_or_default()
        .into_iter()
        .map(|need| text::impossible(need, requirements, short))
        .collect();
    if lines.is_empty() {
        lines.push("no building block meets all requirements; each misses something else:".to_owned());
        lines.extend(rejected);
    }
    lines
}

#[cfg(test)]
mod tests;

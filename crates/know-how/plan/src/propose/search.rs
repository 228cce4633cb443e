//! How many of a block are enough: found with the forward model, which is the judge of every proposal.

use super::blocks::{Block, Count, groups_max, names_kind, names_sizes, pairs_max, system};
use super::requirements::{Availability, Requirements, Servers};
use crate::forward::{self, Forecast, Stream};
use crate::hardware::{Hardware, Software};
use crate::scale::saturation::smallest;
use crate::units::Rate;
use serde::Serialize;

/// Most servers of one kind that are proposed.
pub const SERVERS_MAX: u32 = 4_096;

/// One requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Streaming writes.
    Write,
    /// Streaming reads.
    Read,
    /// Random reads.
    Iops,
    /// Random writes.
    WriteIops,
    /// Space for contents.
    Capacity,
    /// Number of files.
    Files,
    /// Creates per second.
    MetadataRate,
    /// Small files opened and read per second.
    Opens,
    /// The rule for the space of names.
    NamesSpace,
    /// Cost.
    Budget,
}

impl Need {
    /// As the requirements call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Iops => "iops",
            Self::WriteIops => "write_iops",
            Self::Capacity => "capacity",
            Self::Files => "files",
            Self::MetadataRate => "metadata_rate",
            Self::Opens => "opens",
            Self::NamesSpace => "space for names (0.3 % of the capacity, for files of 3.4 kB of metadata)",
            Self::Budget => "budget",
        }
    }

    /// Is it met by servers for names?
    pub fn of_names(self) -> bool {
        matches!(self, Self::Files | Self::MetadataRate | Self::Opens | Self::NamesSpace)
    }
}

/// What is asked for beside what is delivered.
fn delivered(requirements: &Requirements, forecast: &Forecast) -> [(Need, Option<f64>, f64); 8] {
    let r = requirements;
    let m = &forecast.metadata;
    let has = |figure: &Option<forward::Figure>| figure.as_ref().map_or(0.0, |figure| figure.value);
    [
        (Need::Write, r.write.map(|rate| rate.0), forecast.write.expected.0),
        (Need::Read, r.read.map(|rate| rate.0), forecast.read.expected.0),
        (Need::Iops, r.iops, has(&forecast.random.read)),
        (Need::WriteIops, r.write_iops, has(&forecast.random.write)),
        (Need::Capacity, r.contents(), forecast.capacity.usable.value),
        (Need::Files, r.files, has(&m.files)),
        (Need::MetadataRate, r.metadata_rate, has(&m.creates)),
        (Need::Opens, r.opens, has(&m.opens)),
    ]
}

/// What programs see: with the clients that were given, else with clients enough.
pub fn servers_deliver(requirements: &Requirements, stream: &Stream) -> Rate {
    if requirements.clients.is_none() { stream.without_clients } else { stream.expected }
}

/// Delivered over asked for: the geometric mean of all that was asked for, 1 when nothing was.
pub fn over_provision(requirements: &Requirements, forecast: &Forecast) -> f64 {
    let all = delivered(requirements, forecast).map(|(need, asked, has)| match need {
        // Clients that are only assumed are as many as were asked for: they hide what servers deliver too much.
        Need::Write => (need, asked, servers_deliver(requirements, &forecast.write).0),
        Need::Read => (need, asked, servers_deliver(requirements, &forecast.read).0),
        _ => (need, asked, has),
    });
    let asked = all.iter().filter_map(|(_, asked, has)| asked.map(|asked| has / asked));
    let (count, sum) = asked.fold((0.0, 0.0), |(count, sum), ratio| (count + 1.0, sum + ratio.max(1.0).ln()));
    if count > 0.0 { (sum / count).exp() } else { 1.0 }
}

/// What a forecast does not deliver.
pub fn unmet(requirements: &Requirements, forecast: &Forecast) -> Vec<Need> {
    let r = requirements;
    let least = delivered(requirements, forecast);
    let mut unmet: Vec<Need> = least
        .into_iter()
        .filter(|(_, wanted, has)| wanted.is_some_and(|wanted| *has < wanted))
        .map(|(need, ..)| need)
        .collect();
    // No server of Skep is bought for a rule of thumb: the rule is followed as far as the drives of those go that the rest
    // needs, and the proposal says how far that is.
    if r.software != Software::Skep && names_short(forecast) {
        unmet.push(Need::NamesSpace);
    }
    if let (Some(budget), Some(cost)) = (r.budget, &forecast.cost)
        && cost.total.value > budget
    {
        unmet.push(Need::Budget);
    }
    unmet
}

/// Is there less space for names than the rule asks for?
pub fn names_short(forecast: &Forecast) -> bool {
    // Where it is known what is to be stored, that is what must fit.
    forecast.metadata.needed.is_none()
        && forecast.metadata.rules.first().is_some_and(|rule| rule.verdict == "short")
}

/// A system that is enough, and what made it as large as it is.
#[derive(Debug, Clone)]
pub struct Enough {
    /// How many of what.
    pub count: Count,
    /// The description.
    pub hardware: Hardware,
    /// What it delivers.
    pub forecast: Forecast,
    /// Requirements that one server for contents less would not meet.
    pub decided: Vec<Need>,
}

/// Why a block does not do.
#[derive(Debug, Clone, PartialEq)]
pub struct Short {
    /// What is not met by as many servers as may be proposed, or by the system that meets all the rest.
    pub unmet: Vec<Need>,
    /// The cost of the latter.
    pub cost: Option<f64>,
    /// Parts without a price, where there is a budget.
    pub unpriced: Vec<String>,
}

struct Search<'a> {
    block: &'a Block,
    layout: Servers,
    requirements: &'a Requirements,
}

/// The fewest servers that are enough, with drives of one size.
pub fn enough(
    block: &Block,
    layout: Servers,
    size: u64,
    requirements: &Requirements,
) -> Result<Enough, Short> {
    let search = Search { block, layout, requirements };
    let names_size = search.names_sizes().first().copied().unwrap_or(size);
    let least = search.least();
    let mut count = Count { storage: least, names: least, groups: 1, pairs: 1, size, names_size };
    count = search.contents(count)?;
    count = search.names(count)?;
    let hardware = system(block, layout, &count, requirements);
    let forecast = forecast(&hardware)?;
    let missing = unmet(requirements, &forecast);
    let unpriced = unpriced(requirements, &forecast);
    if !missing.is_empty() || !unpriced.is_empty() {
        let cost = forecast.cost.as_ref().map(|cost| cost.total.value);
        return Err(Short { unmet: missing, cost, unpriced });
    }
    let decided = search.decided(count);
    Ok(Enough { count, hardware, forecast, decided })
}

fn unpriced(requirements: &Requirements, forecast: &Forecast) -> Vec<String> {
    match (&requirements.budget, &forecast.cost) {
        (Some(_), Some(cost)) => cost.unpriced.clone(),
        _ => Vec::new(),
    }
}

fn forecast(hardware: &Hardware) -> Result<Forecast, Short> {
    // Blocks make possible hardware only; the tests would see it otherwise.
    forward::forecast(hardware).map_err(|_| Short { unmet: Vec::new(), cost: None, unpriced: Vec::new() })
}

impl Search<'_> {
    fn missing(&self, count: &Count) -> Vec<Need> {
        match forecast(&system(self.block, self.layout, count, self.requirements)) {
            Ok(forecast) => unmet(self.requirements, &forecast),
            Err(short) => short.unmet,
        }
    }

    /// Servers for what does not depend on names; no fewer than there are already.
    fn contents(&self, count: Count) -> Result<Count, Short> {
        let missing = |storage: u32| {
            let mut missing = self.missing(&Count { storage, ..count });
            missing.retain(|need| !need.of_names() && *need != Need::Budget);
            missing
        };
        if missing(count.storage).is_empty() {
            return Ok(count);
        }
        let least = self.least();
        let found = smallest(SERVERS_MAX, |storage| storage >= least && missing(storage).is_empty());
        let short = || Short { unmet: missing(SERVERS_MAX), cost: None, unpriced: Vec::new() };
        found.map(|storage| Count { storage, ..count }).ok_or_else(short)
    }

    /// Servers of one kind at least: a copy needs another server.
    fn least(&self) -> u32 {
        if self.requirements.availability == Availability::Mirror { 2 } else { 1 }
    }

    fn names_sizes(&self) -> &'static [u64] {
        names_sizes(names_kind(self.block.kind, self.requirements))
    }

    fn missing_names(&self, count: &Count) -> Vec<Need> {
        let mut missing = self.missing(count);
        missing.retain(|need| need.of_names());
        missing
    }

    /// Servers, groups and drives for names: more drives before more servers. In a combined server their drives take the
    /// place of others, so that more servers for contents may be needed.
    fn names(&self, count: Count) -> Result<Count, Short> {
        let skep = self.requirements.software == Software::Skep;
        let most = pairs_max(self.block, self.layout, self.requirements);
        // Other software has more servers rather than larger drives.
        let sizes = if skep { self.names_sizes() } else { self.names_sizes().get(..1).unwrap_or_default() };
        let last = (sizes.last().copied().unwrap_or_default(), most);
        let full = Count { pairs: last.1, names_size: last.0, ..count };
        let full = self.contents(full).unwrap_or(full);
        let least = self.with_names(self.servers_for_names(&full)?, &count);
        for names_size in sizes {
            let mut count = Count { names_size: *names_size, ..least };
            for pairs in 1..=most {
                count = self.contents(Count { pairs, ..count })?;
                let enough = self.missing_names(&count).is_empty();
                // Of the servers of Skep, as many drives as the rule asks for, or as fit.
                if enough && (!skep || (*names_size, pairs) == last || !self.names_short(&count)?) {
                    return Ok(count);
                }
            }
        }
        Err(Short { unmet: self.missing_names(&full), cost: None, unpriced: Vec::new() })
    }

    /// The fewest servers that hold the names with as many and as large drives as they take.
    fn servers_for_names(&self, full: &Count) -> Result<u32, Short> {
        let given = self.requirements.metadata_servers;
        let spread_anyway = self.layout == Servers::Combined && self.requirements.software != Software::Skep;
        let least = given.unwrap_or(if spread_anyway { full.storage } else { self.least() });
        let missing = |servers: u32| self.missing_names(&self.with_names(servers, full));
        if missing(least).is_empty() {
            return Ok(least);
        }
        let short = |servers: u32| Short { unmet: missing(servers), cost: None, unpriced: Vec::new() };
        if given.is_some() {
            return Err(short(least));
        }
        let found = smallest(SERVERS_MAX, |servers| servers >= least && missing(servers).is_empty());
        found.ok_or_else(|| short(SERVERS_MAX))
    }

    /// With so many servers for names, and as few groups in each as the rates need.
    fn with_names(&self, names: u32, count: &Count) -> Count {
        let storage = if self.layout == Servers::Combined { count.storage.max(names) } else { count.storage };
        let count = Count { names, storage, ..*count };
        if self.requirements.software != Software::Skep {
            return count;
        }
        let most = groups_max(self.layout);
        let fast = |groups: u32| {
            let missing = self.missing_names(&Count { groups, ..count });
            !missing.iter().any(|need| matches!(need, Need::MetadataRate | Need::Opens))
        };
        let any_rate = self.requirements.metadata_rate.is_some() || self.requirements.opens.is_some();
        let needed = || (1..most).find(|groups| !any_rate || fast(*groups)).unwrap_or(most);
        Count { groups: self.requirements.metadata_groups.unwrap_or_else(needed), ..count }
    }

    fn names_short(&self, count: &Count) -> Result<bool, Short> {
        let hardware = system(self.block, self.layout, count, self.requirements);
        Ok(names_short(&forecast(&hardware)?))
    }

    fn decided(&self, count: Count) -> Vec<Need> {
        if count.storage <= self.least() {
            return Vec::new();
        }
        let mut missing = self.missing(&Count { storage: count.storage - 1, ..count });
        missing.retain(|need| *need != Need::Budget);
        missing
    }
}

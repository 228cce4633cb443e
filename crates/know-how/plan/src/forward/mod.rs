//! From hardware to what it delivers: each figure with the sum behind it.

pub mod capacity;
pub mod client;
pub mod cost;
mod efficiency;
mod figure;
pub mod inodes;
pub mod loss;
pub mod memory;
pub mod metadata;
mod notes;
pub mod parity;
mod parts;
pub mod random;
pub mod rebuild;
mod share;
pub mod single_file;
pub mod small;
pub mod stream;

pub use efficiency::Efficiency;
pub use figure::{Figure, Unit};
pub use notes::{CONNECTIONS_PER_CLIENT, META_CONNECTIONS_PER_CLIENT};
pub use stream::{Direction, Limit, Stage, Stream};

use crate::catalogue::{Catalogue, Component};
use crate::check::{self, Problem};
use crate::hardware::{Controller, Hardware};
use serde::Serialize;

/// What a system delivers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Forecast {
    /// Name of the description.
    pub name: String,
    /// Its preset, or the general catalogue.
    pub preset: String,
    /// Streaming, a file per process.
    pub write: Stream,
    /// Streaming, a file per process.
    pub read: Stream,
    /// One shared file; `None` where nothing is known about the software.
    pub single_file: single_file::SingleFile,
    /// Random 4 KiB.
    pub random: random::Random,
    /// Space for file contents.
    pub capacity: capacity::Capacity,
    /// Names: rate, space, files.
    pub metadata: metadata::Metadata,
    /// Memory for connections.
    pub memory: memory::Memory,
    /// After a drive or a target failed.
    pub rebuild: Vec<rebuild::Rebuild>,
    /// What is away with one server, of each kind.
    pub losses: Vec<loss::Loss>,
    /// With prices only.
    pub cost: Option<cost::Cost>,
    /// What to look at.
    pub notes: Vec<String>,
    /// Component rates that were used, with their sources.
    pub components: Vec<Component>,
}

/// Computes everything; impossible hardware is refused.
pub fn forecast(hardware: &Hardware) -> Result<Forecast, Vec<Problem>> {
    let problems = check::check(hardware);
    if !problems.is_empty() {
        return Err(problems);
    }
    // `check` has refused unknown presets.
    let Some(catalogue) = Catalogue::of(hardware) else { return Err(problems) };
    let write = stream::stream(hardware, &catalogue, Direction::Write);
    let read = stream::stream(hardware, &catalogue, Direction::Read);
    let capacity = capacity::capacity(hardware);
    let metadata = metadata::metadata(hardware, &catalogue, &capacity);
    let memory = memory::memory(hardware);
    let cost = hardware.prices.as_ref().map(|prices| cost::cost(hardware, prices, &capacity, &write, &read));
    let mut forecast = Forecast {
        name: hardware.name.clone(),
        preset: hardware.preset.clone().unwrap_or_else(|| crate::catalogue::PRESETS[0].name.to_owned()),
        single_file: single_file::single_file(hardware, &catalogue, &write, &read),
        random: random::random(hardware, &catalogue),
        rebuild: rebuild::rebuild(hardware, &catalogue),
        losses: loss::losses(hardware),
        components: components(hardware, &catalogue),
        notes: Vec::new(),
        write,
        read,
        capacity,
        metadata,
        memory,
        cost,
    };
    forecast.notes = notes::notes(hardware, &forecast);
    Ok(forecast)
}

fn components(hardware: &Hardware, catalogue: &Catalogue<'_>) -> Vec<Component> {
    let mut used: Vec<Component> = Vec::new();
    let mut add = |component: Option<Component>| {
        if let Some(component) = component
            && !used.iter().any(|other| other.name == component.name)
        {
            used.push(component);
        }
    };
    for server in &hardware.servers {
        for group in &server.targets {
            let drive = catalogue.drive(&group.drive);
            for (way, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
                add(drive.as_ref().map(|drive| drive.streaming(direction)).map(|streaming| Component {
                    name: format!("{} ({way})", group.drive),
                    rate: streaming.rate,
                    source: streaming.source.clone(),
                }));
            }
        }
        let by_catalogue = |c: &&Controller| c.measured_read.is_none() || c.measured_write.is_none();
        let controllers = server.controllers.iter().filter(by_catalogue);
        controllers.for_each(|controller| add(catalogue.controller(&controller.kind)));
        server.nics.iter().for_each(|nic| add(catalogue.nic(&nic.kind)));
    }
    add(catalogue.nic(&hardware.clients.nic));
    used
}

#[cfg(test)]
mod better;
#[cfg(test)]
mod tests;

//! Memory for connections: buffer size x buffers x 2 directions x connections, for every client.

use super::{Figure, Unit};
use crate::catalogue;
use crate::hardware::{Hardware, Role};
use crate::units::binary;
use serde::Serialize;

/// Part of a server's memory for connections above which a note says so: what is left is the cache.
pub const MUCH: f64 = 0.1;

/// Memory for connections.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Memory {
    /// One client at one server.
    pub per_client: Figure,
    /// All clients at one server of each kind that they connect to, by its name.
    pub per_server: Vec<(String, Figure)>,
    /// The largest part of a server's memory that this takes.
    pub largest_part: f64,
}

pub fn memory(hardware: &Hardware) -> Memory {
    let (connections, source) = match &hardware.connections {
        Some(own) => (own.clone(), "the description's own"),
        None => catalogue::connections(hardware.software),
    };
    let bytes = connections.buffer_size.bytes()
        * f64::from(connections.buffers)
        * 2.0
        * f64::from(connections.per_client);
    let why = format!(
        "{} bytes x {} buffers x 2 directions x {} connections = {bytes:.0} bytes ({source})",
        connections.buffer_size.0, connections.buffers, connections.per_client
    );
    let per_client = Figure::new(bytes, Unit::MemoryBytes, why);
    let serving = |role: &Role| *role != Role::Mgmt;
    let mut largest_part = 0.0f64;
    let per_server = hardware
        .servers
        .iter()
        .filter(|server| server.roles.iter().any(serving))
        .map(|server| {
            // A server that does both runs two services, each with its own connections.
            let services = server.roles.iter().filter(|role| serving(role)).count();
            let all = bytes * f64::from(hardware.clients.count) * services as f64;
            let part = all / server.memory.bytes();
            largest_part = largest_part.max(part);
            let why = format!(
                "{} clients x {} x {services} services: {:.1} % of {}",
                hardware.clients.count,
                binary(bytes),
                part * 100.0,
                server.memory
            );
            (server.name.clone(), Figure::new(all, Unit::MemoryBytes, why))
        })
        .collect();
    Memory { per_client, per_server, largest_part }
}

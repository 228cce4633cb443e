//! What one client moves: its links, and for Skep its mount.
//!
//! A mount copies every byte on the client's own cores, and there is one FUSE connection for each mount.

use super::Direction;
use super::parts::INFINITE;
use crate::catalogue::Catalogue;
use crate::hardware::{Hardware, Software};
use crate::measured;
use crate::units::{MIB, Rate};

/// MiB/s that an empty FUSE file system moved, writing and reading: docs/bench/README.md, free placement, io_uring, 1 MiB,
/// four processes on two cores. The most that anybody measured through one mount.
const FUSE: [f64; 2] = [13_270.0, 11_122.0];
/// 004: "a minimum of 8 clients to saturate a single SSU", an enclosure with two servers.
pub const CLIENTS_OF_AN_ENCLOSURE: u64 = 8;

/// One client in one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct OneClient {
    /// What it moves.
    pub rate: Rate,
    pub why: String,
}

/// Its links, or its mount where that is less; what was measured of a mount replaces what is reckoned.
pub fn one(hardware: &Hardware, catalogue: &Catalogue<'_>, direction: Direction) -> OneClient {
    let clients = &hardware.clients;
    let link = catalogue.nic(&clients.nic).map_or(0.0, |part| part.rate.0);
    let links = f64::from(clients.nics) * link;
    let by_links = format!("{} x {}", clients.nics, clients.nic);
    let (most, why) = match clients.stream {
        Some(stream) => (stream.0, "as given in clients.stream".to_owned()),
        None if hardware.software == Software::Skep => mount(clients.cores, direction),
        None => (INFINITE, String::new()),
    };
    match most < links {
        true => OneClient { rate: Rate(most), why: format!("{why}; its links: {by_links}") },
        false => OneClient { rate: Rate(links), why: by_links },
    }
}

/// What one mount moves on so many cores.
fn mount(cores: Option<u32>, direction: Direction) -> (f64, String) {
    let way = usize::from(direction == Direction::Read);
    let fuse = FUSE[way] * MIB;
    let us = measured::shipped().map(|us| if way == 0 { us.mount_write_mib } else { us.mount_read_mib });
    let by_cores =
        us.zip(cores).map(|(us, cores)| (f64::from(cores) * MIB * measured::per_second(us), us, cores));
    match by_cores {
        Some((rate, us, cores)) if rate < fuse => {
            let why = format!(
                "{cores} cores, of which mount and program take {us:.0} us for a MiB: docs/bench/profile.md"
            );
            (rate, why)
        }
        _ => {
            let why = "one mount: an empty FUSE file system moved so much on two cores, docs/bench/README.md, and nobody \
                       measured more; clients.stream says what yours moves";
            (fuse, why.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::forward::{Forecast, Stage, forecast};
    use crate::hardware::Hardware;
    use crate::units::MIB;

    fn plan(system: &str, from: &str, to: &str) -> Forecast {
        let text = crate::systems::system(system).unwrap().text;
        assert!(text.contains(from), "{from}");
        forecast(&Hardware::from_toml("x", &text.replacen(from, to, 1)).unwrap()).unwrap()
    }

    fn carried(plan: &Forecast) -> (f64, f64, String) {
        let of = |stream: &crate::forward::Stream| {
            stream.limits.iter().find(|limit| limit.stage == Stage::Clients).unwrap().clone()
        };
        (of(&plan.write).rate.0, of(&plan.read).rate.0, of(&plan.write).why)
    }

    const CLIENTS: &str = "count = 16\nnic = \"100gbe\"";

    /// Goal: no mount is infinitely fast: four links of 40 GB/s do not make 160 GB/s through one FUSE mount; cores of the
    /// client count; what was measured of a mount stands; clients of other software have no FUSE.
    #[test]
    fn one_mount() {
        let one = |more: &str| {
            carried(&plan("example", CLIENTS, &format!("count = 1\nnic = \"400gbe\"\nnics = 4\n{more}")))
        };
        let (write, read, why) = one("");
        assert_eq!((write, read), (13_270.0 * MIB, 11_122.0 * MIB));
        assert!(why.contains("one mount") && why.contains("its links: 4 x 400gbe"), "{why}");
        let (write, _, why) = one("cores = 2");
        assert!(
            (write - 2.0 * MIB * 1e6 / (263.984 + 31.0)).abs() < 1.0 && why.contains("2 cores"),
            "{write} {why}"
        );
        assert_eq!(one("cores = 64").0, 13_270.0 * MIB);
        assert_eq!(one("stream = \"20 GB/s\"").0, 20e9);
        assert_eq!(carried(&plan("example", CLIENTS, CLIENTS)).0, 160e9, "100gbe is less than a mount");
        let other = plan("clusterstor-ssu", "nic = \"qdr\"", "nic = \"400gbe\"");
        assert_eq!(carried(&other).0, 64.0 * 40e9);
        let text = crate::systems::system("example").unwrap().text.replacen(
            CLIENTS,
            &format!("{CLIENTS}\ncores = 0"),
            1,
        );
        let told = Hardware::from_toml("x", &text).unwrap_err()[0].to_string();
        assert!(told.contains(": clients.cores: ") && told.contains("at least 1"), "{told}");
    }

    /// Goal: 004's rule of eight clients for an enclosure of two servers is told where it fits.
    #[test]
    fn eight_clients_for_an_enclosure() {
        let told = |clients: u32| {
            let plan = plan("clusterstor-2-ssu", "count = 64", &format!("count = {clients}"));
            plan.notes.iter().any(|note| note.contains("004 takes 8"))
        };
        assert!(told(15) && !told(16));
        assert!(
            !plan("example", "count = 16", "count = 1").notes.iter().any(|note| note.contains("004 takes 8"))
        );
    }
}

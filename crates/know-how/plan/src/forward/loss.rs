//! What the loss of one server means: what is away until it is back, and how much.
//!
//! Drives that fail are the business of RAID and of [`super::rebuild`]. A server that is dead keeps what is on its drives,
//! and nobody reaches it. Where there is one copy of everything, that is what matters most.

use super::capacity::left_by;
use super::metadata::serving_names;
use super::stream::storage;
use super::{Figure, Unit};
use crate::hardware::{Hardware, Role, Server, Software};
use crate::units::decimal;
use serde::Serialize;

/// One server of a kind is away.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loss {
    /// Its kind.
    pub server: String,
    /// Part of the files whose names are away.
    pub names: Option<Figure>,
    /// Part of the files that have contents on it, at most.
    pub contents: Option<Figure>,
    /// Space that is away.
    pub space: Option<Figure>,
    /// All of it in a sentence.
    pub said: String,
}

/// For every kind of server that holds something.
pub fn losses(hardware: &Hardware) -> Vec<Loss> {
    hardware.servers.iter().filter_map(|server| loss(hardware, server)).collect()
}

fn loss(hardware: &Hardware, server: &Server) -> Option<Loss> {
    let (names, contents, space) =
        (names(hardware, server), contents(hardware, server), space(hardware, server));
    let mut said = Vec::new();
    if let Some(names) = &names {
        said.push(names_said(hardware, names));
    }
    match (&contents, &space) {
        (Some(contents), Some(space)) => said.push(format!(
            "{} of the usable space, with chunks of up to {} of the files ({}), is away: one copy of each chunk",
            decimal(space.value),
            contents.show(),
            contents.why
        )),
        _ if storage(server).next().is_some() => {
            said.push("no contents are away, other servers have copies".to_owned());
        }
        _ => {}
    }
    if hardware.software == Software::Skep && alone(hardware, server, Role::Mgmt) {
        said.push("no mount or server can join (what runs does not ask mgmtd for its I/O)".to_owned());
    }
    if said.is_empty() {
        return None;
    }
    let wait = match hardware.software {
        Software::Skep => "Until it is back programs wait, and get EIO after the mount's retry (10 min)",
        Software::Beegfs | Software::Lustre => "That lasts until it is back",
    };
    let said = format!("one {} lost: {}. {wait}.", server.name, said.join("; "));
    Some(Loss { server: server.name.clone(), names, contents, space, said })
}

fn names_said(hardware: &Hardware, names: &Figure) -> String {
    match (names.value >= 1.0, serving_names(hardware)) {
        (true, 2..) => format!("all files are away when it is the one with all names ({})", names.why),
        (true, _) => format!("all files are away, the whole file system stops ({})", names.why),
        (false, _) if hardware.software == Software::Skep => format!(
            "names of {} of the directories are away, and no path can be walked when it is the one with the root ({})",
            names.show(),
            names.why
        ),
        (false, _) => format!("names of {} of the directories are away ({})", names.show(), names.why),
    }
}

fn alone(hardware: &Hardware, server: &Server, role: Role) -> bool {
    let all: u64 =
        hardware.servers.iter().filter(|one| one.roles.contains(&role)).map(|one| u64::from(one.count)).sum();
    all == 1 && server.roles.contains(&role)
}

fn names(hardware: &Hardware, server: &Server) -> Option<Figure> {
    if !server.targets.iter().any(|group| group.role == Role::Meta) {
        return None;
    }
    let serving = serving_names(hardware);
    let made_for = hardware.metadata_servers;
    let (part, why) = match hardware.software {
        Software::Skep if made_for > 1 => (
            1.0 / f64::from(made_for),
            format!("1 of {made_for} metadata servers, each with as many shards, and nothing copies them"),
        ),
        Software::Skep if serving > 1 => (
            1.0,
            format!(
                "1 of {serving} metadata servers holds all shards (metadata_servers = 1), the others none"
            ),
        ),
        Software::Skep => (1.0, "one metadata server holds all names, and nothing copies them".to_owned()),
        Software::Beegfs | Software::Lustre => {
            (1.0 / serving as f64, format!("1 of {serving} metadata servers"))
        }
    };
    Some(Figure::new(part, Unit::Part, why))
}

/// A file with stripes on several servers is away with any of them: where the stripes lie on different servers, each
/// target more of a file is another server that it needs.
fn contents(hardware: &Hardware, server: &Server) -> Option<Figure> {
    let of = |server: &Server| storage(server).map(|group| u64::from(group.count)).sum::<u64>();
    let own = of(server);
    if own == 0 || hardware.striping.copies > 1 {
        return None;
    }
    let all: u64 = hardware.servers.iter().map(|server| u64::from(server.count) * of(server)).sum();
    let stripes = u64::from(hardware.striping.targets);
    let part = (stripes as f64 * own as f64 / all as f64).min(1.0);
    Some(Figure::new(part, Unit::Part, format!("files on {stripes} of {all} targets, {own} of them in it")))
}

fn space(hardware: &Hardware, server: &Server) -> Option<Figure> {
    if storage(server).next().is_none() || hardware.striping.copies > 1 {
        return None;
    }
    let group = |group: &crate::hardware::TargetGroup| {
        let data = f64::from(group.count) * f64::from(group.raid.data_drives(group.drives));
        data * group.size.bytes() * left_by(group.file_system).0
    };
    Some(Figure::new(storage(server).map(group).sum(), Unit::Bytes, "the usable space of its targets"))
}

#[cfg(test)]
mod tests {
    use crate::forward::{Forecast, forecast};
    use crate::hardware::Hardware;

    fn plan(from: &str, to: &str) -> Forecast {
        let text = crate::systems::system("example").unwrap().text;
        assert!(text.contains(from), "{from}");
        forecast(&Hardware::from_toml("x", &text.replacen(from, to, 1)).unwrap()).unwrap()
    }

    /// Goal: a plan says what one lost server takes with it, and how much: all files with the one metadata server, its
    /// part of the space and of the files with a storage server, nothing of mirrored contents.
    #[test]
    fn one_server_lost() {
        let skep = plan("targets = 4", "targets = 1");
        let loss = &skep.losses[0];
        assert_eq!(skep.losses.len(), 1);
        assert_eq!(loss.names.as_ref().unwrap().value, 1.0);
        // Two servers of two targets: half of the files, half of the space.
        assert_eq!(loss.contents.as_ref().unwrap().value, 0.5);
        assert_eq!(loss.space.as_ref().unwrap().value * 2.0, skep.capacity.usable.value);
        assert!(loss.said.contains("1 of 2 metadata servers holds all shards"), "{}", loss.said);
        assert!(loss.said.contains("Until it is back"), "{}", loss.said);
        let page = crate::text::forecast(&skep, false);
        assert!(page.contains(&loss.said), "{page}");
        // Shards dealt to both: half of the names with each, and all paths with the one that has the root.
        let both = plan("software = \"skep\"", "metadata_servers = 2\nsoftware = \"skep\"");
        assert_eq!(both.losses[0].names.as_ref().unwrap().value, 0.5);
        assert!(both.losses[0].said.contains("when it is the one with the root"), "{}", both.losses[0].said);
        let striped = plan("targets = 4", "targets = 4");
        assert_eq!(striped.losses[0].contents.as_ref().unwrap().value, 1.0, "each file needs both servers");
        let text = crate::systems::system("example").unwrap().text;
        let of = |text: &str| forecast(&Hardware::from_toml("x", text).unwrap()).unwrap().losses.remove(0);
        let alone = of(&text.replacen("count = 2\nroles", "count = 1\nroles", 1).replacen(
            "targets = 4",
            "targets = 2",
            1,
        ));
        assert!(alone.said.contains("the whole file system stops"), "{}", alone.said);
        assert!(alone.said.contains("no mount or server can join"), "{}", alone.said);
        let beegfs = text.replacen("software = \"skep\"", "software = \"beegfs\"", 1);
        let mirrored = of(&beegfs.replacen("# copies = 2", "copies = 2", 1));
        assert!(mirrored.contents.is_none() && mirrored.space.is_none());
        assert_eq!(mirrored.names.as_ref().unwrap().value, 0.5);
        assert!(mirrored.said.contains("other servers have copies"), "{}", mirrored.said);
    }
}

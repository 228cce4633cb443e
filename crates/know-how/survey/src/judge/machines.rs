//! On how many machines a stream is at work: it decides how the limits of layers add up.

use crate::ceiling::Place;
use crate::model::{Host, LayerId, Limit, Survey};

/// Machines on which clients or storage daemons run. Those that only keep names or the map take no part in a stream.
fn at_work(survey: &Survey) -> Vec<&Host> {
    let stores = |name: &String| survey.parts.iter().any(|part| part.part_of == *name);
    let works = |host: &&Host| host.clients || host.roles.iter().any(stores);
    survey.hosts.iter().filter(works).collect()
}

/// Whether clients and storage daemons share one machine, and one network.
pub fn place(survey: &Survey) -> Place {
    match at_work(survey).as_slice() {
        [_, _, ..] => Place::Apart,
        [one] if one.networks > 1 => Place::Namespaces,
        _ => Place::Together,
    }
}

/// Says how it was decided on how many machines a stream is at work, where a limit rests on it.
pub fn remark(survey: &mut Survey, limits: &[Limit]) {
    let streams = |limit: &Limit| limit.layer != Some(LayerId::Processor) && !limit.evidence.is_empty();
    if !limits.iter().any(streams) {
        return;
    }
    let hosts = at_work(survey);
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let text = match (place(survey), hosts.as_slice()) {
        (_, []) => return,
        (Place::Apart, _) => format!(
            "clients and storage daemons were counted as on {} machines ({}), for their ids of machine and boot differ: \
             their layers work at the same time, and the slowest limits",
            names.len(),
            names.join(", ")
        ),
        (Place::Namespaces, [one, ..]) => format!(
            "clients and storage daemons were counted as on one machine ({}), for their ids of machine and boot are the \
             same, with {} networks of their own, for they are in as many network namespaces: they share its processors, \
             so times add up, but for the network, which works at the same time",
            one.name, one.networks
        ),
        (Place::Together, [one, ..]) => format!(
            "clients and storage daemons were counted as on one machine ({}), for their ids of machine and boot are the \
             same, and on one network: they share its processors, so the times of their layers add up",
            one.name
        ),
    };
    if !survey.remarks.contains(&text) {
        survey.remarks.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::judge;
    use crate::model::{Curve, FORMAT, Layer, MemberResult, Part, Point, SideBySide, Verdict};

    fn host(name: &str, roles: &[&str], clients: bool) -> Host {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        Host { name: name.to_owned(), roles, clients, busy: None, facts: Vec::new(), link: None, networks: 1 }
    }

    fn survey(hosts: Vec<Host>, layers: Vec<Layer>) -> Survey {
        Survey {
            format: FORMAT,
            title: String::new(),
            version: String::new(),
            started: String::new(),
            seconds: 1.0,
            preset: "small".into(),
            commands: vec![],
            hosts,
            settings: vec![],
            parts: vec![Part { name: "target-101".into(), part_of: "storaged-1".into() }],
            absent: vec![],
            spread: None,
            layers,
            theory: vec![],
            waterfalls: vec![],
            verdict: Verdict { headline: String::new(), culprit: None, also: vec![], limits: vec![] },
            remarks: vec![],
        }
    }

    fn layer(id: LayerId, curve: &str, rate: f64) -> Layer {
        let points = vec![Point { x: 1.0, samples: vec![rate, rate * 1.01, rate * 0.99] }];
        let curve = Curve {
            id: curve.to_owned(),
            title: String::new(),
            unit: "MB/s".into(),
            axis: "processes".into(),
            points,
            command: String::new(),
        };
        Layer { id, about: String::new(), curves: vec![curve], sides: vec![] }
    }

    /// Goal: one storage server with clients on other machines works beside them, so that its network limits; with
    /// the clients on it the times add up; a machine that only keeps the map changes neither.
    #[test]
    fn clients_on_other_machines() {
        let layers = || {
            vec![
                layer(LayerId::Device, "device.write", 4_000.0),
                layer(LayerId::Storage, "storage.write", 3_000.0),
                layer(LayerId::Network, "network.write", 1_000.0),
                layer(LayerId::Clients, "clients.write.n-n", 700.0),
            ]
        };
        let store = |clients| host("s", &["storaged-1"], clients);
        let (map, client) = (host("m", &["mgmtd-1", "metad-1"], false), host("c", &[], true));
        let mut apart = survey(vec![store(false), client.clone()], layers());
        judge(&mut apart);
        let finding = &apart.verdict.limits[0].finding;
        assert!(finding.starts_with("the network carries 1000 MB/s"), "{finding}");
        for hosts in [vec![store(true)], vec![store(true), map.clone()]] {
            let mut together = survey(hosts, layers());
            judge(&mut together);
            let finding = &together.verdict.limits[0].finding;
            assert!(finding.starts_with("on one machine the times add up"), "{finding}");
        }
        assert_eq!(place(&survey(vec![store(true), client], vec![])), Place::Apart);
    }

    /// Goal: daemons in network namespaces of one machine share its processors but no network: a network that carries less
    /// than the processors leave for all else limits by itself, a fast one is no part of a byte's time; and the report says
    /// from what it was concluded that they are on one machine, or on several.
    #[test]
    fn namespaces_of_one_machine() {
        let of = |network: f64, clients: f64, hosts: Vec<Host>| {
            let mut one = survey(
                hosts,
                vec![
                    layer(LayerId::Device, "device.write", 4_000.0),
                    layer(LayerId::Storage, "storage.write", 3_000.0),
                    layer(LayerId::Network, "network.write", network),
                    layer(LayerId::Clients, "clients.write.n-n", clients),
                ],
            );
            judge(&mut one);
            (one.verdict.limits.remove(0), one.remarks.pop().unwrap_or_default())
        };
        let namespaces = || vec![Host { networks: 4, ..host("box", &["storaged-1"], true) }];
        let (slow, told) = of(500.0, 450.0, namespaces());
        assert_eq!(slow.layer, Some(LayerId::Network), "{}", slow.finding);
        assert!(slow.finding.starts_with("the network carries 500 MB/s"), "{}", slow.finding);
        assert!(told.contains("one machine (box)") && told.contains("4 networks of their own"), "{told}");
        assert!(told.contains("ids of machine and boot"), "{told}");
        let (fast, _) = of(3_500.0, 700.0, namespaces());
        assert_eq!(fast.layer, Some(LayerId::Clients), "{}", fast.finding);
        assert!(
            fast.finding.contains("the clients (mount, kernel, programs) with the network"),
            "{}",
            fast.finding
        );
        let (_, told) = of(500.0, 300.0, vec![host("box", &["storaged-1"], true)]);
        assert!(told.contains("and on one network") && told.contains("add up"), "{told}");
        let (_, told) = of(500.0, 450.0, vec![host("s", &["storaged-1"], false), host("c", &[], true)]);
        assert!(told.contains("on 2 machines (s, c)"), "{told}");
    }

    /// Goal: a client host at a third of the others is named once, with what every layer of clients showed of it, and
    /// nobody beside it.
    #[test]
    fn a_slow_client_host() {
        let side = |id: &str, unit: &str, level: f64| {
            let member = |(name, share): (&str, f64)| MemberResult {
                name: format!("client {name}"),
                samples: [1.0, 1.06, 0.95, 1.02, 0.97].map(|x| x * level * share).into(),
                outlier: None,
            };
            SideBySide {
                id: id.to_owned(),
                title: id.to_owned(),
                unit: unit.to_owned(),
                more_is_better: true,
                members: [("h1", 1.0), ("h2", 0.33), ("h3", 1.04)].map(member).into(),
                command: String::new(),
            }
        };
        let with = |id, side| Layer { id, about: String::new(), curves: vec![], sides: vec![side] };
        let layers = vec![
            with(LayerId::Client, side("client.write.each", "MB/s", 500.0)),
            with(LayerId::Clients, side("clients.read.n-n.each", "MB/s", 800.0)),
            with(LayerId::Metadata, side("metadata.create.each", "operations/s", 3_000.0)),
        ];
        let mut survey = survey(vec![host("h1", &[], true)], layers);
        judge(&mut survey);
        let culprit = survey.verdict.culprit.as_ref().unwrap();
        assert_eq!((culprit.member.as_str(), survey.verdict.also.len()), ("client h2", 0));
        assert!(culprit.finding.starts_with("it reaches 3"), "{}", culprit.finding);
        assert!(culprit.advice.contains("this client"), "{}", culprit.advice);
        assert_eq!(culprit.evidence.len(), 3);
        for side in survey.layers.iter().flat_map(|layer| &layer.sides) {
            let marked: Vec<bool> = side.members.iter().map(|member| member.outlier.is_some()).collect();
            assert_eq!(marked, [false, true, false], "{}", side.id);
        }
    }
}

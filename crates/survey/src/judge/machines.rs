//! On how many machines a stream is at work: it decides how the limits of layers add up.

use crate::ceiling::Place;
use crate::model::{Host, Survey};

/// Whether clients and storage daemons share one machine. Machines that only keep names or the map take no part in a
/// stream, so they do not count.
pub fn place(survey: &Survey) -> Place {
    let stores = |name: &String| survey.parts.iter().any(|part| part.part_of == *name);
    let works = |host: &&Host| host.clients || host.roles.iter().any(stores);
    if survey.hosts.iter().filter(works).count() > 1 { Place::Apart } else { Place::Together }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::judge;
    use crate::model::{Curve, FORMAT, Layer, LayerId, MemberResult, Part, Point, SideBySide, Verdict};

    fn host(name: &str, roles: &[&str], clients: bool) -> Host {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        Host { name: name.to_owned(), roles, clients, busy: None, facts: Vec::new(), link: None }
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

//! A network of two nodes has no likes: what its judgement is worth must be said.

use super::{DELAYS, figure};
use crate::model::{LayerId, SideBySide, Survey};
use crate::pairs::{ARROW, nodes};
use skep_bench::significance::median;

/// Says of every network of two nodes what could not be told, and what interfaces could carry.
pub fn remark(survey: &mut Survey) {
    let network = survey.layers.iter().filter(|layer| layer.id == LayerId::Network);
    let rates = network.flat_map(|layer| &layer.sides).filter(|side| side.unit != DELAYS);
    let texts: Vec<String> = rates.filter_map(|side| text(survey, side)).collect();
    for text in texts {
        if !survey.remarks.contains(&text) {
            survey.remarks.push(text);
        }
    }
}

fn text(survey: &Survey, side: &SideBySide) -> Option<String> {
    let ends: Vec<&str> = nodes(side).into_iter().collect();
    let [a, b] = ends.as_slice() else { return None };
    let told = |member: &crate::model::MemberResult| {
        let (from, to) = member.name.split_once(ARROW)?;
        let value = figure(median(&member.samples)?);
        let of = match slower(survey, from, to) {
            Some(link) => format!(" of the {} that the slower interface of both can carry", figure(link)),
            None => String::new(),
        };
        Some(format!("{} {value} {}{of}", member.name, side.unit))
    };
    let paths: Vec<String> = side.members.iter().filter_map(told).collect();
    Some(format!(
        "{}: {a} and {b} are the only nodes, so a path was compared with the way back only; a node cannot be told from \
         its path, and if both ways are slow nothing shows it but the figures: {}",
        side.title,
        paths.join(", ")
    ))
}

/// The slower of the fastest interfaces of both ends, if both are on machines of their own and tell.
fn slower(survey: &Survey, a: &str, b: &str) -> Option<f64> {
    let host = |node: &str| survey.hosts.iter().position(|host| host.roles.iter().any(|role| role == node));
    let (a, b) = (host(a)?, host(b)?);
    let link = |at: usize| survey.hosts[at].link;
    (a != b).then(|| Some(link(a)?.min(link(b)?))).flatten()
}

//! Members of the network layer that were measured on one way: TCP is slower than a Unix socket, and nobody's fault.

use skep_net::choose;
use skep_survey::model::MemberResult;
use skep_survey::pairs::ARROW;
use skep_types::Uuid;
use skep_wire::mgmt::NodeEntry;
use std::collections::BTreeSet;

/// Is a server reached over a Unix socket from that machine?
pub fn by_socket(from: Uuid, to: &NodeEntry) -> bool {
    choose(&to.addresses, to.machine, from).first().is_some_and(skep_net::Endpoint::is_unix)
}

/// Which of the pairs that were measured are to be compared with each other.
pub struct Ways {
    others: BTreeSet<String>,
    /// The way of those that are left out.
    told: &'static str,
}

impl Ways {
    /// Of pairs by name, each with whether a Unix socket was used. Most decide; of as many, the network does.
    pub fn new(pairs: impl Iterator<Item = (String, bool)>) -> Self {
        let (sockets, tcp): (Vec<_>, Vec<_>) = pairs.partition(|(_, socket)| *socket);
        let (others, told) = match sockets.len() > tcp.len() {
            true => (tcp, "by TCP beside Unix sockets"),
            false if tcp.is_empty() => (Vec::new(), ""),
            false => (sockets, "by Unix sockets beside TCP"),
        };
        Self { others: others.into_iter().map(|(name, _)| name).collect(), told }
    }

    /// Those that can be compared.
    pub fn keep(&self, members: Vec<MemberResult>) -> Vec<MemberResult> {
        members.into_iter().filter(|member| !self.is_other(&member.name)).collect()
    }

    /// A pair in either direction.
    fn is_other(&self, name: &str) -> bool {
        let (a, b) = name.split_once(ARROW).unwrap_or((name, ""));
        self.others.contains(name) || self.others.contains(&format!("{b}{ARROW}{a}"))
    }

    /// What is left out, if anything is.
    pub fn remark(&self) -> Option<String> {
        let names: Vec<&str> = self.others.iter().map(String::as_str).collect();
        let (told, names) = (self.told, names.join(", "));
        (!self.others.is_empty())
            .then(|| format!("network: measured {told}, so not compared with the others: {names}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    fn kept(pairs: &[(&str, bool)]) -> (Vec<String>, Option<String>) {
        let ways = Ways::new(pairs.iter().map(|(name, socket)| ((*name).to_owned(), *socket)));
        let member = |name: &str| MemberResult { name: name.to_owned(), samples: vec![1.0], outlier: None };
        let mut members: Vec<MemberResult> = pairs.iter().map(|(name, _)| member(name)).collect();
        members.push(member("c -> a"));
        (ways.keep(members).into_iter().map(|member| member.name).collect(), ways.remark())
    }

    /// Goal: a server on TCP beside servers on Unix sockets is compared with none of them, in neither direction, and that is
    /// said; servers on one way are all compared.
    #[test]
    fn only_what_came_the_same_way_is_compared() {
        let (names, remark) = kept(&[("a -> b", true), ("a -> d", true), ("a -> c", false)]);
        assert_eq!(names, ["a -> b", "a -> d"]);
        assert!(
            remark.unwrap().contains("by TCP beside Unix sockets, so not compared with the others: a -> c")
        );
        let (names, remark) = kept(&[("a -> b", false), ("a -> c", true)]);
        assert_eq!((names.len(), remark.unwrap().contains("by Unix sockets beside TCP")), (1, true));
        for socket in [true, false] {
            let (names, remark) = kept(&[("a -> b", socket), ("a -> c", socket)]);
            assert_eq!((names.len(), remark), (3, None));
        }
    }

    /// Goal: a socket counts on its own machine only.
    #[test]
    fn sockets_of_the_machine() {
        let mut node = samples::status().nodes[0].node.clone();
        assert!(!by_socket(node.machine, &node));
        node.addresses[0].text = "unix:/run/skep/s".to_owned();
        assert!(by_socket(node.machine, &node));
        assert!(!by_socket(Uuid([7; 16]), &node));
    }
}

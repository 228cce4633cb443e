//! Processors and NUMA nodes.

use crate::Root;
use std::collections::BTreeSet;

/// Largest number of a processor that is believed.
const CPU_MAX: u32 = 1 << 14;

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: u32,
    /// Its processors.
    pub cpus: BTreeSet<u32>,
}

/// All nodes, in order.
pub fn nodes(root: &Root) -> Vec<Node> {
    let at = "/sys/devices/system/node";
    let one = |name: String| {
        let id = name.strip_prefix("node")?.parse().ok()?;
        Some(Node { id, cpus: cpus_of(&root.text(&format!("{at}/{name}/cpulist"))?) })
    };
    let mut nodes: Vec<Node> = root.names(at).into_iter().filter_map(one).collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// How many processors there are; 1 when nothing tells.
pub fn count(root: &Root) -> usize {
    let online = root.text("/sys/devices/system/cpu/online").unwrap_or_default();
    cpus_of(&online).len().max(1)
}

/// `0-3,8` as a set.
pub fn cpus_of(list: &str) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            all.extend(first..=last.min(CPU_MAX));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the kernel's lists are read; nonsense is nothing, a huge range does not fill memory.
    #[test]
    fn lists() {
        assert_eq!(cpus_of("0-2,5\n"), BTreeSet::from([0, 1, 2, 5]));
        assert!(cpus_of("").is_empty() && cpus_of("x-y").is_empty());
        assert!(cpus_of("0-4294967295").len() <= CPU_MAX as usize + 1);
    }
}

//! Processors: balancing between NUMA nodes, frequency.

use super::SERVICES;
use super::sources::{dell_2020, dell_2021, linux, slides};
use crate::change::Change;
use crate::finding::Severity;
use crate::host::{Host, Role};
use crate::rule::{Look, Rule, Seen, exactly, nothing};
use std::collections::BTreeMap;

/// How tmpfiles.d finds the governors of all processors.
const GOVERNORS: &str = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "processor",
        setting: "kernel.numa_balancing",
        roles: &[Role::Meta, Role::Storage],
        severity: Severity::Minor,
        reason: "Services are bound to the node of their drives; the kernel's own moving of pages only costs faults.",
        effect: "Less processor time and fewer stalls where services are bound.",
        sources: &[dell_2020("0"), dell_2021("0")],
        choice: "",
        look: Look::Sysctl(|host| match host.nodes.len() {
            0 | 1 => nothing("there is one NUMA node"),
            _ => exactly(0),
        }),
    },
    Rule {
        area: "processor",
        setting: "scaling_governor",
        roles: SERVICES,
        severity: Severity::Minor,
        reason: "Small requests come one by one: a processor that slows down in between adds its wake-up to each of them.",
        effect: "Shorter round trips under light load; nothing under full load. Costs power.",
        sources: &[slides("system BIOS: performance profile"), linux("performance: the highest frequency")],
        choice: "performance in the kernel, as the BIOS profile of the documents.",
        look: Look::Special(governor),
    },
];

fn governor(host: &Host<'_>) -> Vec<Seen> {
    let at = "/sys/devices/system/cpu";
    let cpus = host.root.names(at).into_iter().filter(|name| {
        name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    });
    let found = cpus.filter_map(|cpu| {
        let path = format!("{at}/{cpu}/cpufreq/scaling_governor");
        Some((host.root.text(&path)?, path))
    });
    let mut by_word: BTreeMap<String, Vec<String>> = BTreeMap::new();
    found.for_each(|(word, path)| by_word.entry(word).or_default().push(path));
    if by_word.is_empty() {
        return vec![Seen::not_applicable(
            "host",
            "the kernel does not control the frequency here (virtual machine or BIOS)",
        )];
    }
    let shown: Vec<String> =
        by_word.iter().map(|(word, paths)| format!("{word} x {}", paths.len())).collect();
    let other = by_word.iter().filter(|(word, _)| *word != "performance");
    let paths: Vec<String> = other.flat_map(|(_, paths)| paths.clone()).collect();
    let seen = Seen::new("host", shown.join(", "), "performance").good_if(paths.is_empty());
    vec![seen.change(Change::sysfs(&paths, GOVERNORS, "performance"))]
}

//! Memory: dirty pages, caches, reserves, huge pages.

use super::sources::{dell_2020, dell_2021, guide, hp, linux, slides};
use super::{EVERYBODY, SERVERS, SERVICES};
use crate::change::{Change, Live, reading};
use crate::finding::Severity;
use crate::host::Host;
use crate::rule::{Look, Rule, Seen, Wish, exactly, nothing, sysctl_path, within};

/// What all documents say, for machines of 64 GiB and more.
const RESERVE_KIB: u64 = 262_144;
/// On smaller machines so much of the memory: 1/256.
const RESERVE_SHARE: u64 = 256;
/// Less is never right.
const RESERVE_LEAST_KIB: u64 = 16_384;
/// More than 1/20 of the memory in reserve makes the kernel kill programs.
const RESERVE_MOST: u64 = 20;

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "memory",
        setting: "vm.dirty_background_ratio",
        roles: SERVERS,
        severity: Severity::Major,
        reason: "Writing must begin early, or drives idle first and are flooded later.",
        effect: "Steadier writes, shorter waits in fsync.",
        sources: &[hp("5"), slides("1 to 5"), dell_2020("5"), dell_2021("5"), guide("5")],
        choice: "5; 1 to 5 may stay. Given in bytes (dirty_background_bytes), 64 MiB to 5 % of the memory may stay.",
        look: Look::Special(background),
    },
    Rule {
        area: "memory",
        setting: "vm.dirty_ratio",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "Writers are held up when so much waits to be written: too little stops bursts, too much makes every sync \
                 endless.",
        effect: "Bursts of clients are taken at the speed of memory up to this much.",
        sources: &[hp("20"), slides("10 to 75"), dell_2020("20"), dell_2021("20"), guide("20")],
        choice: "20; 10 to 75 may stay. Given in bytes (dirty_bytes), 256 MiB to 75 % of the memory may stay.",
        look: Look::Special(foreground),
    },
    Rule {
        area: "memory",
        setting: "vm.vfs_cache_pressure",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "Names and inodes of chunk files and logs are worth more than the pages that would push them out.",
        effect: "Opens of chunk files stay in memory beside large streams.",
        sources: &[hp("50"), slides("50"), dell_2020("50"), dell_2021("50"), guide("50")],
        choice: "",
        look: Look::Sysctl(|_| within(50, 1, 50)),
    },
    Rule {
        area: "memory",
        setting: "vm.min_free_kbytes",
        roles: SERVICES,
        severity: Severity::Minor,
        reason: "Packets arrive when nothing can wait: without a reserve the network stalls or drops under memory pressure.",
        effect: "No allocation failures of the network driver under full load.",
        sources: &[
            hp("262144, on 128 GB"),
            slides("262144"),
            dell_2020("262144, on 384 GB"),
            dell_2021("262144"),
            guide("262144"),
            linux("too high and the machine is out of memory at once"),
        ],
        choice: "262144 from 64 GiB of memory on; below that 1/256 of the memory, or a small machine would lose a large part.",
        look: Look::Sysctl(reserve),
    },
    Rule {
        area: "memory",
        setting: "vm.zone_reclaim_mode",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "Page cache of the other NUMA node is faster than any drive: pages must not be thrown away for being far.",
        effect: "The whole memory is cache; no stalls when one node is full.",
        sources: &[dell_2020("2"), dell_2021("0"), guide("1"), linux("0 for file servers")],
        choice: "0: the later of the two Dell papers and the kernel's own advice for file servers; 1 and 2 throw cache away \
                 while memory is free.",
        look: Look::Sysctl(|host| match host.nodes.len() {
            0 | 1 => nothing("there is one NUMA node"),
            _ => exactly(0),
        }),
    },
    Rule {
        area: "memory",
        setting: "transparent_hugepage",
        roles: SERVICES,
        severity: Severity::Minor,
        reason: "Merging pages in the background holds up programs that never asked for it.",
        effect: "No stalls of milliseconds by compaction; programs that ask for huge pages still get them.",
        sources: &[
            hp("never (redhat_transparent_hugepage)"),
            slides("never (redhat_transparent_hugepage)"),
            dell_2020("disabled"),
            guide("always"),
            linux("madvise: for those who ask"),
        ],
        choice: "madvise; never may stay. \"always\" of the present BeeGFS documentation serves its RDMA buffers, which Skep \
                 does not have. The old path redhat_transparent_hugepage is understood.",
        look: Look::Special(huge_pages),
    },
    Rule {
        area: "memory",
        setting: "vm.overcommit_memory",
        roles: EVERYBODY,
        severity: Severity::Info,
        reason: "Services reserve address space for rings and caches that they fill slowly; strict accounting refuses it.",
        effect: "No service ends because memory that it never used was refused.",
        sources: &[linux("0: heuristic; 2: strict")],
        choice: "",
        look: Look::Sysctl(|_| within(0, 0, 1)),
    },
];

fn reserve(host: &Host<'_>) -> Wish {
    match host.memory_kib {
        0 => nothing("the size of the memory is not known"),
        memory => {
            let share = (memory / RESERVE_SHARE).max(RESERVE_LEAST_KIB);
            let least = RESERVE_KIB.min(share);
            let most = (memory / RESERVE_MOST).max(least);
            let note = if least < RESERVE_KIB { "1/256 of this memory" } else { "" };
            within(least, least, most).because(note)
        }
    }
}

fn background(host: &Host<'_>) -> Vec<Seen> {
    vec![dirty(host, "vm.dirty_background_ratio", "vm.dirty_background_bytes", (5, 1, 5), 64 << 20)]
}

fn foreground(host: &Host<'_>) -> Vec<Seen> {
    vec![dirty(host, "vm.dirty_ratio", "vm.dirty_bytes", (20, 10, 75), 256 << 20)]
}

/// A limit that is given as a share of the memory or in bytes; of the two, the other is 0. In bytes it may be less than the
/// smallest share: on a large machine 1 % is gigabytes, and who limits that on purpose does it in bytes.
fn dirty(
    host: &Host<'_>,
    ratio: &str,
    bytes: &str,
    (want, low, high): (u64, u64, u64),
    least_bytes: u64,
) -> Seen {
    let (share, size) = (host.root.number(&sysctl_path(ratio)), host.root.number(&sysctl_path(bytes)));
    let wanted = format!("{want} ({low}..{high})");
    let change = Change::sysctl(ratio, &want.to_string());
    let seen = match (share, size) {
        (None, _) => Seen { recommended: Some(wanted), ..Seen::unknown("host", "it cannot be read") },
        (Some(share), None | Some(0)) => {
            Seen::new("host", share.to_string(), wanted).good_if((low..=high).contains(&share)).change(change)
        }
        (Some(_), Some(size)) if host.memory_kib == 0 => {
            let seen = Seen::unknown("host", "it is given in bytes, and the size of the memory is not known");
            Seen { current: Some(format!("{size} bytes")), recommended: Some(wanted), ..seen }
        }
        (Some(_), Some(size)) => {
            let share = size / 1024 * 100 / host.memory_kib;
            let current = format!("{size} bytes ({share} %)");
            let mut change = change;
            // The kernel makes the bytes 0 when the share is set.
            change.live.push(Live::along(sysctl_path(bytes)));
            let note = format!("{bytes} is in use; {share} % of this memory");
            Seen::new("host", current, wanted)
                .good_if(share <= high && (share >= low || size >= least_bytes))
                .note(note)
                .change(change)
        }
    };
    let right = |text: &str| text.parse().is_ok_and(|share: u64| (low..=high).contains(&share));
    seen.set_again(host.root, ratio, right)
}

fn huge_pages(host: &Host<'_>) -> Vec<Seen> {
    let names = ["/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/redhat_transparent_hugepage"];
    let found = names
        .iter()
        .map(|dir| format!("{dir}/enabled"))
        .find_map(|path| Some((host.root.text(&path)?, path)));
    let Some((text, path)) = found else {
        return vec![Seen::not_applicable("host", "this kernel has no transparent huge pages")];
    };
    let current = reading(&text);
    let good = current == "madvise" || current == "never";
    // The oldest kernels with it know no madvise.
    let set = if text.contains("madvise") || good { "madvise" } else { "never" };
    let mut seen = Seen::new("host", current, format!("{set} (or never)")).good_if(good);
    if path.contains("redhat") {
        seen = seen.note("the old name of transparent_hugepage");
    }
    vec![seen.change(Change::sysfs(std::slice::from_ref(&path), &path, set))]
}

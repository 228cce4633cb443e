//! Network: packets, buffers, RDMA.

use super::sources::{linux, skep, slides};
use super::{EVERYBODY, SERVICES};
use crate::change::{Change, reading};
use crate::finding::Severity;
use crate::host::{Host, Nic};
use crate::rule::{Look, Rule, Seen, Wish, nothing, sysctl_path, within};

/// From this speed on (Mb/s) packets of 1500 bytes cost too much.
const FAST: u64 = 10_000;
/// Largest buffer of a socket on fast networks: what is in flight at 100 Gb/s in 1.3 ms.
const BUFFER: u64 = 16 << 20;
/// Packets of fast Ethernet.
const JUMBO: u64 = 9000;
/// Packets of InfiniBand in connected mode.
const CONNECTED: u64 = 65_520;
/// Least of InfiniBand in datagram mode.
const DATAGRAM: u64 = 2044;

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "network",
        setting: "mtu",
        roles: EVERYBODY,
        severity: Severity::Minor,
        reason: "Each packet costs the same whatever it carries; large transfers want few.",
        effect: "Less processor time per byte from 10 Gb/s on; InfiniBand in connected mode up to twice.",
        sources: &[
            slides("network settings before production"),
            linux("9000 Ethernet, 65520 IPoIB connected, 2044 datagram"),
        ],
        choice: "9000 from 10 Gb/s on, when every switch and host of the network has it: otherwise packets vanish. That is why \
                 it is advice only.",
        look: Look::Special(mtu),
    },
    Rule {
        area: "network",
        setting: "net.core.rmem_max",
        roles: EVERYBODY,
        severity: Severity::Minor,
        reason: "What a program may ask for; also the limit of what is in flight towards it.",
        effect: "Full speed over one connection on fast networks.",
        sources: &[linux("at least bandwidth x delay: 16 MiB is 100 Gb/s x 1.3 ms")],
        choice: "",
        look: Look::Sysctl(buffer),
    },
    Rule {
        area: "network",
        setting: "net.core.wmem_max",
        roles: EVERYBODY,
        severity: Severity::Minor,
        reason: "What a program may ask for; also the limit of what is in flight from it.",
        effect: "Full speed over one connection on fast networks.",
        sources: &[linux("at least bandwidth x delay: 16 MiB is 100 Gb/s x 1.3 ms")],
        choice: "",
        look: Look::Sysctl(buffer),
    },
    Rule {
        area: "network",
        setting: "net.ipv4.tcp_rmem",
        roles: EVERYBODY,
        severity: Severity::Minor,
        reason: "The kernel grows receive buffers up to the third number; Skep leaves it to the kernel.",
        effect: "Full speed over one connection on fast networks.",
        sources: &[linux("least, first, most; most at least bandwidth x delay")],
        choice: "",
        look: Look::Special(|host| grown(host, "net.ipv4.tcp_rmem")),
    },
    Rule {
        area: "network",
        setting: "net.ipv4.tcp_wmem",
        roles: EVERYBODY,
        severity: Severity::Minor,
        reason: "The kernel grows send buffers up to the third number; Skep leaves it to the kernel.",
        effect: "Full speed over one connection on fast networks.",
        sources: &[linux("least, first, most; most at least bandwidth x delay")],
        choice: "",
        look: Look::Special(|host| grown(host, "net.ipv4.tcp_wmem")),
    },
    Rule {
        area: "network",
        setting: "net.core.somaxconn",
        roles: SERVICES,
        severity: Severity::Minor,
        reason: "After a restart all clients come back at once; connections beyond the backlog wait for seconds.",
        effect: "No pause of a second when many clients connect together.",
        sources: &[linux("4096 since 5.4, 128 before")],
        choice: "",
        look: Look::Sysctl(|_| within(4096, 4096, u64::MAX)),
    },
    Rule {
        area: "network",
        setting: "RDMA",
        roles: EVERYBODY,
        severity: Severity::Info,
        reason: "RDMA moves data without the processor. Skep talks TCP (over IPoIB or RoCE interfaces as over any other).",
        effect: "Says what is there: a port that is down, or an interface that could be used.",
        sources: &[
            slides("connUseRDMA (true)"),
            skep("TCP and Unix sockets; RDMA has its place in the transport"),
        ],
        choice: "Information only.",
        look: Look::Special(rdma),
    },
];

fn is_fast(host: &Host<'_>) -> bool {
    host.nics.iter().any(|nic| nic.up && nic.physical && nic.speed.is_none_or(|speed| speed >= FAST))
}

fn buffer(host: &Host<'_>) -> Wish {
    match is_fast(host) {
        true => within(BUFFER, BUFFER, u64::MAX),
        false => nothing("the network is slower than 10 Gb/s: the default is enough"),
    }
}

fn grown(host: &Host<'_>, key: &'static str) -> Vec<Seen> {
    let Some(current) = host.root.text(&sysctl_path(key)).map(|text| reading(&text)) else {
        return vec![Seen::unknown("host", "it cannot be read")];
    };
    let numbers: Vec<u64> = current.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [least, first, most] = numbers[..] else {
        return vec![Seen::unknown("host", format!("{current}: three numbers were expected"))];
    };
    if !is_fast(host) {
        let seen = Seen::not_applicable("host", "the network is slower than 10 Gb/s: the default is enough");
        return vec![Seen { current: Some(current), ..seen }];
    }
    let wanted = format!("{least} {first} {}", most.max(BUFFER));
    let good = most >= BUFFER;
    vec![Seen::new("host", current, wanted.clone()).good_if(good).change(Change::sysctl(key, &wanted))]
}

fn mtu(host: &Host<'_>) -> Vec<Seen> {
    let used = |nic: &&Nic| nic.physical && nic.up;
    let all: Vec<Seen> = host.nics.iter().filter(used).map(one_mtu).collect();
    match all.is_empty() {
        true => vec![Seen::not_applicable("host", "no interface with hardware below is up")],
        false => all,
    }
}

fn one_mtu(nic: &Nic) -> Seen {
    let (wanted, shown) = match (nic.infiniband, nic.mode.as_deref()) {
        (true, Some("connected")) => (CONNECTED, format!("{CONNECTED}")),
        (true, _) => {
            (DATAGRAM, format!(">= {DATAGRAM} (4092 where the switch has it; connected mode 65520)"))
        }
        (false, _) => (JUMBO, format!("{JUMBO}, on every switch and host")),
    };
    if !nic.infiniband && nic.speed.is_some_and(|speed| speed < FAST) {
        let seen = Seen::not_applicable(&nic.name, "slower than 10 Gb/s: 1500 is enough");
        return Seen { current: Some(nic.mtu.to_string()), ..seen };
    }
    if !nic.infiniband && nic.speed.is_none() {
        let seen = Seen::not_applicable(&nic.name, "it does not tell its speed (virtual machine)");
        return Seen { current: Some(nic.mtu.to_string()), ..seen };
    }
    let good = nic.mtu >= wanted;
    let how = format!(
        "when all switches and hosts have it: ip link set {} mtu {wanted}, and in the network's configuration",
        nic.name
    );
    Seen::new(&nic.name, nic.mtu.to_string(), shown).good_if(good).note(if good {
        String::new()
    } else {
        how
    })
}

fn rdma(host: &Host<'_>) -> Vec<Seen> {
    if host.fabrics.is_empty() {
        return vec![Seen::not_applicable("host", "no RDMA device")];
    }
    let one = |fabric: &crate::host::Fabric| {
        let current = format!("{}, {}, {}", fabric.link, fabric.state, fabric.rate);
        let active = fabric.state.contains("ACTIVE");
        let how = if active {
            "Skep uses its IP interface"
        } else {
            "no cable, or no subnet manager: look at ibstat"
        };
        Seen::new(&fabric.name, current, "ACTIVE").good_if(active).note(how)
    };
    host.fabrics.iter().map(one).collect()
}

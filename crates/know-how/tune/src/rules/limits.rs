//! Limits of files and processes; what FUSE may use.

use super::sources::{guide, linux, skep};
use super::{EVERYBODY, SERVICES};
use crate::change::Change;
use crate::finding::Severity;
use crate::host::{Host, Role, Service};
use crate::rule::{Look, Rule, Seen, within};

/// Open files of a service: sockets of clients, chunk files, logs. The packaged units have it.
const FILES: u64 = 1 << 20;

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "limits",
        setting: "fs.file-max",
        roles: EVERYBODY,
        severity: Severity::Minor,
        reason: "Every connection and chunk file in use is an open file of the machine.",
        effect: "No ENFILE when thousands of clients are connected.",
        sources: &[linux("all open files of the machine")],
        choice: "",
        look: Look::Sysctl(|_| within(8 * FILES, 2 * FILES, u64::MAX)),
    },
    Rule {
        area: "limits",
        setting: "fs.nr_open",
        roles: SERVICES,
        severity: Severity::Minor,
        reason: "No process may have more open files, whatever its unit allows.",
        effect: "LimitNOFILE of the units counts.",
        sources: &[linux("1048576")],
        choice: "",
        look: Look::Sysctl(|_| within(FILES, FILES, u64::MAX)),
    },
    Rule {
        area: "limits",
        setting: "LimitNOFILE",
        roles: SERVICES,
        severity: Severity::Major,
        reason: "A service that cannot open files refuses clients or chunks.",
        effect: "As many clients and chunk files as memory allows.",
        sources: &[guide("50000 (tuneProcessFDLimit)"), skep("1048576 in the packaged units")],
        choice: "1048576: a limit costs nothing until it is used.",
        look: Look::Special(files),
    },
    Rule {
        area: "limits",
        setting: "fuse.enable_uring",
        roles: &[Role::Client],
        severity: Severity::Major,
        reason: "With it requests of programs reach the mount through shared rings, without a system call for each.",
        effect: "Less processor time for each operation; more small operations per second.",
        sources: &[linux("off by default; since 6.14"), skep("used by the mount when it is there")],
        choice: "On.",
        look: Look::Special(uring),
    },
];

fn files(host: &Host<'_>) -> Vec<Seen> {
    let one = |service: &Service| {
        let limits = service.pid.and_then(|pid| host.root.text(&format!("/proc/{pid}/limits")));
        let soft = limits.as_deref().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
            line.split_whitespace().next().map(str::to_owned)
        });
        match soft {
            None => {
                let seen = Seen::unknown(&service.name, "it does not run; the packaged unit has 1048576");
                Seen { recommended: Some(format!(">= {FILES}")), ..seen }
            }
            Some(soft) => {
                let good = soft == "unlimited" || soft.parse().is_ok_and(|number: u64| number >= FILES);
                let change = Change::drop_in(&service.unit, &[("LimitNOFILE", FILES.to_string())]);
                let seen = Seen::new(&service.name, soft, format!(">= {FILES}")).good_if(good);
                match good || service.is_of_unit(host.root) {
                    true => seen.change(change),
                    false => seen.note(format!(
                        "not started by {}: ulimit -n {FILES} before it is started",
                        service.unit
                    )),
                }
            }
        }
    };
    let services = host.services.iter().filter(|service| service.role != Role::Client);
    let all: Vec<Seen> = services.map(one).collect();
    match all.is_empty() {
        true => vec![Seen::unknown("services", "no service is configured or runs here")],
        false => all,
    }
}

fn uring(host: &Host<'_>) -> Vec<Seen> {
    match host.root.text("/sys/module/fuse/parameters/enable_uring") {
        None => {
            let why = match host.kernel >= (6, 14) {
                true => "the fuse module is not loaded (modprobe fuse), or was built without it",
                false => "this kernel does not have it: it came with 6.14",
            };
            vec![Seen::not_applicable("host", why)]
        }
        Some(text) => {
            let good = text == "Y" || text == "1";
            let change = Change::module("fuse", "enable_uring", "Y", "1");
            vec![Seen::new("host", text, "Y").good_if(good).change(change)]
        }
    }
}

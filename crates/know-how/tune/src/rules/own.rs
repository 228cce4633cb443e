//! Skep's own settings, against the machine and the cluster. They stand in its configuration files and in
//! the policy of directories: advice, with the line to write.

use super::SERVICES;
use super::sources::{dell_2020, dell_2021, guide, hp, skep, slides, slides_nvme};
use crate::finding::Severity;
use crate::host::{Host, Role, Service};
use crate::rule::{Look, Rule, Seen};

/// Connections that one mount opens to one storage server at most, however much runs on it.
pub const STORAGE_CONNECTIONS_PER_CLIENT: u64 = 32;
/// Connections that one mount opens to one metadata server at most: one for each of its processors with
/// io_uring, and no more than this with /dev/fuse.
pub const META_CONNECTIONS_PER_CLIENT: u64 = 64;
/// Part of the memory that a metadata server should use for rows: 1/4, at least what it has by default.
const CACHE_SHARE: u64 = 4;
/// The default of `cache_size`.
const CACHE_LEAST: u64 = 256 << 20;
/// Request size that mounts and servers are made for.
const REQUEST: u64 = 1 << 20;
/// Chunks below this make each large request touch many targets.
const CHUNK_LEAST: u64 = 256 << 10;

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "skep",
        setting: "max_connections",
        roles: SERVICES,
        severity: Severity::Major,
        reason: "A storage server has a thread for each connection: its workers are its connections. At the limit clients \
                 are refused.",
        effect: "Every client that is in the cluster can be served.",
        sources: &[
            hp("tuneNumWorkers 48 (storage), 0 (metadata); connMaxInternodeNum 32, 12 at clients"),
            slides(
                "tuneNumWorkers 12 per target, 0 = twice the cores (metadata); connMaxInternodeNum 32 and 24",
            ),
            slides_nvme("tuneNumWorkers 64 and 120; connMaxInternodeNum 32, 18 at clients"),
            dell_2020("tuneNumWorkers 32 and 24; connMaxInternodeNum 12, 32, 24"),
            dell_2021("tuneNumWorkers 128; connMaxInternodeNum 64"),
            skep("no pool of workers: connections are made as requests need them"),
        ],
        choice: "Numbers of workers and connections of the documents have no counterpart: there is nothing to set but the \
                 limit: up to 32 connections of each mount to a storage server, up to 64 to a metadata server.",
        look: Look::Special(connections),
    },
    Rule {
        area: "skep",
        setting: "workers (threads, max_threads)",
        roles: &[Role::Client],
        severity: Severity::Minor,
        reason: "With /dev/fuse so many requests of programs are served at once; with io_uring the queue decides.",
        effect: "More programs at once are served without waiting for each other.",
        sources: &[
            hp("connMaxInternodeNum 12"),
            slides_nvme("18"),
            dell_2021("64"),
            skep("one per core, at most 64"),
        ],
        choice: "As many as cores (0), max_threads not below them.",
        look: Look::Special(threads),
    },
    Rule {
        area: "skep",
        setting: "queue_depth",
        roles: &[Role::Client],
        severity: Severity::Minor,
        reason: "Requests of one processor that may be on their way at once, with io_uring.",
        effect: "Random reads and writes with many requests in flight.",
        sources: &[skep("32 by default, 256 at most")],
        choice: "",
        look: Look::Special(|host| number(host, Role::Client, "queue_depth", 16, "queue_depth = 32")),
    },
    Rule {
        area: "skep",
        setting: "request_size",
        roles: &[Role::Client],
        severity: Severity::Minor,
        reason: "The kernel cuts large reads and writes of programs into requests of this size.",
        effect: "Fewer requests for the same bytes.",
        sources: &[
            skep("1 MiB by default, the most that FUSE takes"),
            hp("512K chunks"),
            dell_2021("2 MB chunks"),
        ],
        choice: "The largest: 1 MiB.",
        look: Look::Special(|host| {
            number(host, Role::Client, "request_size", REQUEST, "request_size = \"1MiB\"")
        }),
    },
    Rule {
        area: "skep",
        setting: "io",
        roles: &[Role::Client],
        severity: Severity::Info,
        reason: "Streams go past the page cache, small records through it; the mount chooses at each open.",
        effect: "A fixed choice is slower for one of the two.",
        sources: &[skep("auto")],
        choice: "",
        look: Look::Special(|host| word(host, Role::Client, "io", &["auto"])),
    },
    Rule {
        area: "skep",
        setting: "transport",
        roles: &[Role::Client],
        severity: Severity::Info,
        reason: "io_uring where the kernel has it, else /dev/fuse.",
        effect: "Less processor time for each operation where the ring can be used.",
        sources: &[skep("auto")],
        choice: "",
        look: Look::Special(|host| word(host, Role::Client, "transport", &["auto", "uring"])),
    },
    Rule {
        area: "skep",
        setting: "cache_size",
        roles: &[Role::Meta],
        severity: Severity::Major,
        reason: "Rows that are in memory are answered without a disk.",
        effect: "Lookups of a large tree at the speed of memory.",
        sources: &[
            skep("256 MiB by default"),
            slides("metadata servers: memory for as many inodes as are in use"),
        ],
        choice: "A quarter of the memory, shared by the metadata servers of the machine.",
        look: Look::Special(cache),
    },
    Rule {
        area: "skep",
        setting: "sync_on_write",
        roles: &[Role::Storage],
        severity: Severity::Major,
        reason: "Programs that need it call fsync, which reaches the targets; syncing every write serves nobody else.",
        effect: "Writes at the speed of the drives, not of their flushes.",
        sources: &[skep("false"), hp("tuneRemoteFSync false: fsync of programs ignored")],
        choice: "false. Ignoring fsync, as the HP benchmark did, is not possible in Skep: acknowledged is acknowledged.",
        look: Look::Special(|host| word(host, Role::Storage, "sync_on_write", &["false"])),
    },
    Rule {
        area: "skep",
        setting: "chunk_size",
        roles: &[Role::Meta],
        severity: Severity::Minor,
        reason: "A request that fits into a chunk goes to one target; a chunk as long as a RAID stripe fills it.",
        effect: "Streams with large requests; skep tune auto finds the best for a directory.",
        sources: &[
            hp("512K"),
            dell_2020("2M"),
            dell_2021("2M"),
            guide("512k by default"),
            skep("see the default of the configuration; per directory by skep entry set"),
        ],
        choice: "512 KiB and more; 1 MiB where requests are 1 MiB. What is best depends on the drives: measure.",
        look: Look::Special(chunk),
    },
    Rule {
        area: "skep",
        setting: "targets of a file",
        roles: &[Role::Meta],
        severity: Severity::Minor,
        reason: "A file on few targets is as fast as those; one on all costs each client a connection to every server.",
        effect: "One large file uses all targets; many files need few targets each.",
        sources: &[
            hp("2 of 2"),
            dell_2020("3: the targets of a NUMA node"),
            dell_2021("2: the targets of a NUMA node"),
            guide("4"),
            skep("progressive: 1, then 4, then all as the file grows"),
        ],
        choice: "progressive: it needs no choice. A fixed number must not exceed the pool.",
        look: Look::Special(width),
    },
];

fn of<'h>(host: &'h Host<'_>, role: Role) -> impl Iterator<Item = &'h Service> {
    host.services.iter().filter(move |service| service.role == role)
}

/// What is said when no service of the role is here.
fn or_none(seen: Vec<Seen>) -> Vec<Seen> {
    match seen.is_empty() {
        true => vec![Seen::unknown("services", "no such service is configured or runs here")],
        false => seen,
    }
}

fn write(service: &Service, line: &str) -> String {
    format!("in the configuration of {}: {line}", service.name)
}

fn connections(host: &Host<'_>) -> Vec<Seen> {
    let servers = host.services.iter().filter(|service| service.settings.contains_key("max_connections"));
    let one = |service: &Service| {
        let Some(now) = service.number("max_connections") else {
            return Seen::unknown(&service.name, "the setting is no number");
        };
        let each = match service.role {
            Role::Storage => STORAGE_CONNECTIONS_PER_CLIENT,
            _ => META_CONNECTIONS_PER_CLIENT,
        };
        let Some(cluster) = &host.cluster else {
            let why = format!("the cluster was not asked (--cluster, --mgmtd): {each} for each mount");
            let seen = Seen::unknown(&service.name, &why);
            return Seen { current: Some(now.to_string()), ..seen };
        };
        let servers = u64::from(cluster.storage_servers) + u64::from(cluster.metadata_servers);
        let wanted = u64::from(cluster.clients) * each + servers;
        let line = format!("max_connections = {}", wanted.next_power_of_two());
        let good = now >= wanted;
        let seen =
            Seen::new(&service.name, now.to_string(), format!(">= {wanted} ({} mounts)", cluster.clients));
        seen.good_if(good).note(if good { String::new() } else { write(service, &line) })
    };
    let all: Vec<Seen> = servers.map(one).collect();
    match all.is_empty() {
        true => vec![Seen::not_applicable("services", "none here has such a limit")],
        false => all,
    }
}

fn threads(host: &Host<'_>) -> Vec<Seen> {
    let one = |service: &Service| {
        let (threads, most) =
            (service.number("threads").unwrap_or(0), service.number("max_threads").unwrap_or(0));
        let cpus = host.cpus as u64;
        let good = (threads == 0 || threads >= cpus.min(most)) && most >= cpus.min(64);
        let seen = Seen::new(
            &service.name,
            format!("threads {threads}, max_threads {most}"),
            format!("threads 0, max_threads >= {}", cpus.min(64)),
        );
        let how = write(service, &format!("threads = 0, max_threads = {}", cpus.max(64)));
        seen.good_if(good).note(if good { String::new() } else { how })
    };
    or_none(of(host, Role::Client).map(one).collect())
}

fn number(host: &Host<'_>, role: Role, key: &str, least: u64, line: &str) -> Vec<Seen> {
    let one = |service: &Service| match service.number(key) {
        None => Seen::unknown(&service.name, "the setting is not known"),
        Some(now) => {
            let good = now >= least;
            let seen = Seen::new(&service.name, now.to_string(), format!(">= {least}")).good_if(good);
            seen.note(if good { String::new() } else { write(service, line) })
        }
    };
    or_none(of(host, role).map(one).collect())
}

fn word(host: &Host<'_>, role: Role, key: &str, words: &[&str]) -> Vec<Seen> {
    let one = |service: &Service| match service.settings.get(key) {
        None => Seen::unknown(&service.name, "the setting is not known"),
        Some(now) => {
            let good = words.contains(&now.as_str());
            let quote = if words[0].parse::<bool>().is_ok() { "" } else { "\"" };
            let how = write(service, &format!("{key} = {quote}{}{quote}", words[0]));
            Seen::new(&service.name, now, words.join(" or ")).good_if(good).note(if good {
                String::new()
            } else {
                how
            })
        }
    };
    or_none(of(host, role).map(one).collect())
}

fn cache(host: &Host<'_>) -> Vec<Seen> {
    let servers = of(host, Role::Meta).count().max(1) as u64;
    let one = |service: &Service| match (service.number("cache_size"), host.memory_kib) {
        (None, _) | (_, 0) => {
            Seen::unknown(&service.name, "the setting or the size of the memory is not known")
        }
        (Some(now), memory) => {
            let share = (memory * 1024 / CACHE_SHARE / servers).max(CACHE_LEAST);
            let good = now >= share / 2 && now <= memory * 1024 / 2;
            let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
            let how = write(service, &format!("cache_size = \"{}MiB\"", share >> 20));
            Seen::new(&service.name, gib(now), gib(share)).good_if(good).note(if good {
                String::new()
            } else {
                how
            })
        }
    };
    or_none(of(host, Role::Meta).map(one).collect())
}

/// Defaults of metadata servers, and the directories that were asked for.
fn policies<'h>(host: &'h Host<'_>) -> impl Iterator<Item = (String, Option<u64>, String, String)> + 'h {
    let servers = of(host, Role::Meta).map(|service| {
        let targets = service.settings.get("stripe_targets").cloned().unwrap_or_default();
        (service.name.clone(), service.number("chunk_size"), targets, String::new())
    });
    let directories = host.cluster.iter().flat_map(|cluster| &cluster.directories);
    let directories = directories.map(|(path, chunk, targets, pool)| {
        let targets = if *targets == 0 { "progressive".to_owned() } else { targets.to_string() };
        (path.clone(), Some(*chunk), targets, pool.clone())
    });
    servers.chain(directories)
}

fn chunk(host: &Host<'_>) -> Vec<Seen> {
    let one = |(name, chunk, ..): (String, Option<u64>, String, String)| match chunk {
        None => Seen::unknown(name, "the setting is not known"),
        Some(chunk) => {
            let good = (CHUNK_LEAST..=16 << 20).contains(&chunk);
            let how = if good {
                ""
            } else {
                "chunk_size = \"1MiB\", or skep entry set --chunk-size 1MiB DIR; skep tune auto measures"
            };
            Seen::new(name, format!("{} KiB", chunk >> 10), "256 KiB to 16 MiB").good_if(good).note(how)
        }
    };
    or_none(policies(host).map(one).collect())
}

fn width(host: &Host<'_>) -> Vec<Seen> {
    let one = |(name, _, targets, pool): (String, Option<u64>, String, String)| {
        let Ok(wanted) = targets.parse::<u32>() else {
            return match targets.as_str() {
                "progressive" => Seen::new(name, "progressive", "progressive"),
                _ => Seen::unknown(name, "the setting is not known"),
            };
        };
        let Some(cluster) = &host.cluster else {
            let seen = Seen::unknown(
                name,
                "the cluster was not asked how many targets there are (--cluster, --mgmtd)",
            );
            return Seen { current: Some(targets), ..seen };
        };
        let of_pool =
            cluster.pools.iter().find(|(name, _)| pool.is_empty() || *name == pool).map_or(0, |(_, n)| *n);
        let good = wanted <= of_pool;
        let note = match wanted {
            few if few < of_pool => format!(
                "right where many files are used at once; one large file gets what {few} of {of_pool} targets deliver"
            ),
            all if all == of_pool => String::new(),
            _ => format!("files get {of_pool}: skep entry set --targets {of_pool}, or progressive"),
        };
        Seen::new(name, targets, format!("progressive, or at most {of_pool}")).good_if(good).note(note)
    };
    or_none(policies(host).map(one).collect())
}

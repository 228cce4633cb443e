//! Options of the file systems below targets and metadata. They are advice: a mount is changed by hand.

use super::SERVERS;
use super::sources::{guide, hp, linux, skep, slides, slides_nvme, xfs};
use crate::finding::Severity;
use crate::host::{DiskKind, Host, Mount, Place, Role};
use crate::rule::{Look, Rule, Seen};
use std::collections::BTreeMap;

/// XFS forgot nobarrier in this release; a mount that asks for it fails.
const NO_BARRIER_GONE: (u32, u32) = (4, 19);
/// Of fresh files so much is allotted at once: 128 MiB.
const ALLOCSIZE: u64 = 131_072 << 10;

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "mount",
        setting: "noatime",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "Nobody reads the access times of chunk files, and each would be a write.",
        effect: "No writes while reading. (nodiratime is part of noatime.)",
        sources: &[
            hp("noatime, nodiratime"),
            slides("noatime, nodiratime"),
            slides_nvme("noatime, nodiratime"),
        ],
        choice: "",
        look: Look::Special(|host| on_each(host, &["xfs", "ext4", "zfs"], noatime)),
    },
    Rule {
        area: "mount",
        setting: "barriers",
        roles: SERVERS,
        severity: Severity::Danger,
        reason: "Without barriers fsync is a lie: after a power loss acknowledged data is gone, and a mirror's members differ.",
        effect: "What was acknowledged survives a power loss.",
        sources: &[
            hp("nobarrier, behind a controller with battery"),
            slides("nobarrier on ext4; not with mirrors"),
            slides_nvme("nobarrier, for metadata"),
            linux(
                "XFS: gone since 4.19; flushes are skipped anyway where the cache is safe (write_cache: write through)",
            ),
        ],
        choice: "Never nobarrier: Skep cannot see the battery. Where the controller's cache is safe it reports write \
                 through, and the kernel sends no flushes: that gives the same speed.",
        look: Look::Special(barriers),
    },
    Rule {
        area: "mount",
        setting: "logbsize",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "Larger log buffers carry more changes of names and sizes in each write of the log.",
        effect: "More creates and removes of chunk files per second.",
        sources: &[hp("logbufs=8, logbsize=256k"), slides("larger"), slides_nvme("logbufs=8, logbsize=256k")],
        choice: "logbufs=8 (the kernel's own default by now) and logbsize=256k.",
        look: Look::Special(|host| on_each(host, &["xfs"], log_buffers)),
    },
    Rule {
        area: "mount",
        setting: "allocsize",
        roles: &[Role::Storage],
        severity: Severity::Minor,
        reason: "Chunk files of many streams grow side by side; allotting each a long piece keeps them in one place.",
        effect: "Sequential reads of files that were written at the same time stay sequential on the disk.",
        sources: &[
            hp("131072k"),
            slides("larger, against fragmentation"),
            slides_nvme("131072k"),
            linux("by default it grows with the file"),
        ],
        choice: "131072k on HDD; flash does not mind fragments, the kernel's growing default may stay there.",
        look: Look::Special(|host| on_each(host, &["xfs"], allocsize)),
    },
    Rule {
        area: "mount",
        setting: "largeio,swalloc",
        roles: &[Role::Storage],
        severity: Severity::Info,
        reason: "swalloc rounds the places of large files to whole stripes, largeio tells programs the stripe as good size.",
        effect: "Fewer half-filled stripes on parity RAID.",
        sources: &[hp("largeio, swalloc"), slides_nvme("largeio, swalloc"), xfs("only with stripe geometry")],
        choice: "Only where the file system knows a stripe: without one both do nothing.",
        look: Look::Special(|host| on_each(host, &["xfs"], large_io)),
    },
    Rule {
        area: "mount",
        setting: "inode64",
        roles: SERVERS,
        severity: Severity::Major,
        reason: "With inode32 all inodes lie in the first terabyte, far from their data, and it fills up first.",
        effect: "Inodes beside their data; no ENOSPC while space is left.",
        sources: &[hp("inode64"), slides_nvme("inode64"), linux("the default since 3.7")],
        choice: "inode64, given or by default.",
        look: Look::Special(|host| on_each(host, &["xfs"], inode64)),
    },
    Rule {
        area: "mount",
        setting: "user_xattr",
        roles: &[Role::Meta],
        severity: Severity::Info,
        reason: "Documents for other systems ask for it because those keep metadata in attributes of files; Skep keeps rows.",
        effect: "None: listed so that nobody looks for it.",
        sources: &[hp("user_xattr"), slides_nvme("user_xattr"), skep("not needed")],
        choice: "Not needed by Skep.",
        look: Look::Special(|_| {
            vec![Seen::not_applicable("host", "Skep keeps metadata in rows, not in attributes")]
        }),
    },
    Rule {
        area: "mount",
        setting: "zfs properties",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "Defaults of ZFS keep attributes in hidden directories and records that are small for streams.",
        effect: "Fewer reads per file; streams in larger records.",
        sources: &[
            slides(
                "compression=lz4 dedup=off atime=off xattr=sa dnodesize=auto, recordsize by measurement; raidz2 of at most 6",
            ),
            guide("the same"),
        ],
        choice: "As the slides; recordsize=1M for targets until skep bench says otherwise.",
        look: Look::Special(|host| on_each(host, &["zfs"], zfs)),
    },
];

/// Lays a look over each mount of these kinds that carries a directory of interest, once.
fn on_each(
    host: &Host<'_>,
    kinds: &[&str],
    look: fn(&Host<'_>, &Place, &Mount) -> Option<Seen>,
) -> Vec<Seen> {
    let mut points = Vec::new();
    let mut all = Vec::new();
    for place in &host.places {
        let Some(mount) = host.mount_of(&place.path) else {
            all.push(Seen::unknown(&place.path, "nothing is mounted there or above"));
            continue;
        };
        if points.contains(&&mount.point) {
            continue;
        }
        points.push(&mount.point);
        let seen = kinds.contains(&mount.kind.as_str()).then(|| look(host, place, mount)).flatten();
        let not_this = || {
            let why = format!("{} is {}, this is for {}", mount.point, mount.kind, kinds.join(", "));
            Seen::not_applicable(&mount.point, why)
        };
        all.push(seen.unwrap_or_else(not_this));
    }
    if host.places.is_empty() {
        all.push(Seen::unknown("directories", "no directory of a service is known: name some by --path"));
    }
    all
}

fn remount(mount: &Mount, options: &str) -> String {
    format!(
        "add {options} to {} in /etc/fstab, then: mount -o remount,{options} {}",
        mount.point, mount.point
    )
}

/// Of options that XFS takes at a remount without a word, and does not follow.
fn next_mount(mount: &Mount, options: &str) -> String {
    format!(
        "add {options} to {} in /etc/fstab; it counts from the next mount (umount, mount), XFS ignores it at a remount",
        mount.point
    )
}

fn options(mount: &Mount, wanted: &[&str]) -> String {
    let named =
        |word: &&&str| mount.options.iter().any(|one| one == **word || one.starts_with(&format!("{word}=")));
    let found: Vec<String> = wanted
        .iter()
        .filter(named)
        .map(|word| mount.value(word).map_or_else(|| (*word).to_owned(), |value| format!("{word}={value}")))
        .collect();
    if found.is_empty() { "default".to_owned() } else { found.join(",") }
}

fn noatime(_: &Host<'_>, _: &Place, mount: &Mount) -> Option<Seen> {
    let current = options(mount, &["noatime", "relatime", "strictatime"]);
    let how = match mount.kind.as_str() {
        "zfs" => format!("zfs set atime=off {}", mount.source),
        _ => remount(mount, "noatime"),
    };
    let good = mount.has("noatime");
    Some(Seen::new(&mount.point, current, "noatime").good_if(good).note(if good {
        String::new()
    } else {
        how
    }))
}

/// Does an entry ask for mounting without barriers?
fn unsafe_option(mount: &Mount) -> Option<&'static str> {
    match () {
        () if mount.has("nobarrier") => Some("nobarrier"),
        () if mount.value("barrier") == Some("0") => Some("barrier=0"),
        () => None,
    }
}

fn barriers(host: &Host<'_>) -> Vec<Seen> {
    on_each(host, &["xfs", "ext4"], |host, place, mount| {
        let cache =
            place.disks.iter().rev().find_map(|disk| host.root.text(&host.disk(disk)?.queue("write_cache")));
        let cache = cache.map_or_else(String::new, |cache| format!("drives report {cache}"));
        let at_boot = host.fstab.iter().find(|entry| entry.point == mount.point).and_then(unsafe_option);
        let gone = mount.kind == "xfs" && host.kernel >= NO_BARRIER_GONE;
        Some(match (unsafe_option(mount), at_boot) {
            (Some(option), _) => Seen::new(&mount.point, option, "barriers (default)")
                .note(format!("remove {option} and mount again; never on mirrored targets; {cache}")),
            (None, Some(option)) if gone => {
                Seen::new(&mount.point, format!("{option} in /etc/fstab"), "barriers (default)").note(
                    format!(
                        "remove it: since Linux 4.19 a mount of XFS with {option} fails, at the next boot"
                    ),
                )
            }
            (None, Some(option)) => {
                Seen::new(&mount.point, format!("{option} in /etc/fstab"), "barriers (default)")
                    .note("remove it before the next boot".to_owned())
            }
            (None, None) => {
                Seen::new(&mount.point, "barriers", "barriers (default)").good_if(true).note(cache)
            }
        })
    })
}

fn log_buffers(_: &Host<'_>, _: &Place, mount: &Mount) -> Option<Seen> {
    let buffers = mount.value("logbufs").map_or(Some(8), |text| text.parse::<u64>().ok());
    let good =
        buffers.is_some_and(|buffers| buffers >= 8) && mount.bytes("logbsize").unwrap_or(0) >= 256 << 10;
    let current = options(mount, &["logbufs", "logbsize"]);
    let seen = Seen::new(&mount.point, current, "logbufs=8,logbsize=256k").good_if(good);
    Some(if good { seen } else { seen.note(next_mount(mount, "logbufs=8,logbsize=256k")) })
}

fn allocsize(host: &Host<'_>, place: &Place, mount: &Mount) -> Option<Seen> {
    if place.role != Role::Storage {
        return None;
    }
    let turns = place.disks.first().and_then(|name| host.disk(name)).map(|disk| host.media(disk))
        == Some(DiskKind::Hdd);
    let now = mount.bytes("allocsize");
    let current = options(mount, &["allocsize"]);
    Some(match (turns, now) {
        (true, now) => {
            let good = now.is_some_and(|bytes| bytes >= ALLOCSIZE);
            let seen = Seen::new(&mount.point, current, "allocsize=131072k").good_if(good);
            if good { seen } else { seen.note(next_mount(mount, "allocsize=131072k")) }
        }
        (false, _) => Seen::new(&mount.point, current, "default (or allocsize=131072k)")
            .good_if(now.is_none_or(|bytes| bytes >= 1 << 20)),
    })
}

fn large_io(_: &Host<'_>, place: &Place, mount: &Mount) -> Option<Seen> {
    if place.role != Role::Storage {
        return None;
    }
    if mount.value("swidth").is_none_or(|width| width == "0") {
        return Some(Seen::not_applicable(&mount.point, "the file system knows no stripe"));
    }
    let good = mount.has("largeio") && mount.has("swalloc");
    let seen =
        Seen::new(&mount.point, options(mount, &["largeio", "swalloc"]), "largeio,swalloc").good_if(good);
    Some(if good { seen } else { seen.note(next_mount(mount, "largeio,swalloc")) })
}

fn inode64(_: &Host<'_>, _: &Place, mount: &Mount) -> Option<Seen> {
    let seen = Seen::new(&mount.point, options(mount, &["inode64", "inode32"]), "inode64")
        .good_if(!mount.has("inode32"));
    Some(if mount.has("inode32") { seen.note(remount(mount, "inode64")) } else { seen })
}

/// Properties that are judged, and what may stay. The first is what is set.
const PROPERTIES: &[(&str, &[&str])] = &[
    ("compression", &["lz4", "on", "zstd", "zstd-fast"]),
    ("dedup", &["off"]),
    ("atime", &["off"]),
    ("xattr", &["sa"]),
    ("dnodesize", &["auto"]),
];
/// Records of a target: as long as a request.
const RECORD: u64 = 1 << 20;

fn zfs(host: &Host<'_>, place: &Place, mount: &Mount) -> Option<Seen> {
    let data = &mount.source;
    let stores = place.role == Role::Storage;
    let size = if stores { " recordsize=1M" } else { "" };
    let wanted = format!("compression=lz4 dedup=off atime=off xattr=sa dnodesize=auto{size}");
    let Some(text) = host.zfs.get(data) else {
        let note = format!(
            "the kernel does not show them and there is no program zfs here that answers; look: zfs get \
             compression,dedup,atime,xattr,dnodesize,recordsize {data}; set: zfs set {wanted} {data}"
        );
        return Some(Seen { recommended: Some(wanted), ..Seen::unknown(&mount.point, note) });
    };
    let now: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('\t')).collect();
    let mut wrong: Vec<String> = Vec::new();
    for (name, good) in PROPERTIES {
        if !now.get(name).is_some_and(|value| good.contains(value)) {
            wrong.push(format!("{name}={}", good[0]));
        }
    }
    let record = now.get("recordsize").and_then(|value| value.parse::<u64>().ok());
    if stores && record.is_none_or(|bytes| bytes < RECORD) {
        wrong.push("recordsize=1M".to_owned());
    }
    let names = PROPERTIES.iter().map(|(name, _)| *name).chain(stores.then_some("recordsize"));
    let current: Vec<String> =
        names.map(|name| format!("{name}={}", now.get(name).copied().unwrap_or("?"))).collect();
    let seen = Seen::new(&mount.point, current.join(" "), wanted).good_if(wrong.is_empty());
    let how = format!("zfs set {} {data}; files that are there keep their records", wrong.join(" "));
    Some(if wrong.is_empty() { seen } else { seen.note(how) })
}

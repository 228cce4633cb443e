//! How file systems were made, against the RAID below. Advice only: changing it means making them anew.

use super::SERVERS;
use super::sources::{guide, hp, skep, slides, slides_nvme, xfs};
use crate::finding::Severity;
use crate::host::{Disk, Host, Mount, Place, Role, Superblock};
use crate::rule::{Look, Rule, Seen};

/// Partitions begin at multiples of this when nothing else is known: 1 MiB.
const ALIGNMENT: u64 = 1 << 20;
/// Bytes of a device that are enough to see how it was made.
const LOOKED_AT: u64 = 4096;

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "geometry",
        setting: "stripe (su, sw)",
        roles: SERVERS,
        severity: Severity::Major,
        reason: "A file system that does not know the stripes of its RAID writes parts of them: each such write reads \
                 parity first.",
        effect: "Full-stripe writes; on parity RAID often twice the write speed.",
        sources: &[
            hp("256 KiB per disk, RAID 6 of 12"),
            slides("mkfs.xfs -d su=128k,sw=8"),
            xfs("su: chunk of one drive, sw: drives with data"),
        ],
        choice: "What the RAID below says: from md, else from the controller (optimal_io_size). The numbers of the \
                 documents are those of their arrays.",
        look: Look::Special(stripes),
    },
    Rule {
        area: "geometry",
        setting: "partition alignment",
        roles: SERVERS,
        severity: Severity::Major,
        reason: "A partition that begins inside of a stripe or a flash page makes every aligned write touch two.",
        effect: "Writes cost one stripe, not two.",
        sources: &[
            hp("file system on the device itself, without partition"),
            slides("align partitions properly"),
            slides_nvme("yes"),
        ],
        choice: "No partition, or one that begins at a multiple of the stripe (of 1 MiB where no stripe is known).",
        look: Look::Special(alignment),
    },
    Rule {
        area: "geometry",
        setting: "inode size",
        roles: SERVERS,
        severity: Severity::Info,
        reason: "Extents and attributes that fit into the inode save a block and a read for each file.",
        effect: "One read less for each chunk file that is opened cold.",
        sources: &[
            hp("512 for metadata (ext4 -I 512)"),
            slides("512 for both (xfs -i size=512, ext4 -I 512 -i 2048)"),
            guide("512 for metadata"),
            skep("metadata is rows in a few large files: their inodes do not matter"),
        ],
        choice: "512 for targets (the default of XFS by now). For metadata any: Skep keeps rows, not a file per file.",
        look: Look::Special(inode_size),
    },
    Rule {
        area: "geometry",
        setting: "bytes per inode",
        roles: &[Role::Meta],
        severity: Severity::Info,
        reason: "Other systems need an inode per file on the metadata disk (ext4 -i 2048, -J size=400, dir_index); Skep \
                 needs a few dozen.",
        effect: "None: space that would have been inodes holds rows.",
        sources: &[
            hp("-i 2048, -J size=400, dir_index"),
            slides("-i 2048, -J size=400, dir_index"),
            skep("the default is enough"),
        ],
        choice: "The default: the documents' numbers are for a file per file.",
        look: Look::Special(|_| {
            vec![Seen::not_applicable("host", "Skep keeps metadata in rows of a few large files")]
        }),
    },
];

/// Bytes of one drive in a stripe, and of a whole stripe, as the device says.
fn stripe(host: &Host<'_>, disk: &Disk) -> Option<(u64, u64, &'static str)> {
    if let Some(md) = &disk.md {
        return Some((md.chunk, md.chunk.checked_mul(md.data_drives()?)?, "md"));
    }
    let width = host.root.number(&disk.queue("optimal_io_size"))?;
    let unit = host.root.number(&disk.queue("minimum_io_size"))?;
    // Drives name sizes too that are no stripes: only several units of some size are one.
    let is_stripe = unit >= 16 << 10 && width > unit && width.is_multiple_of(unit) && width <= 64 << 20;
    is_stripe.then_some((unit, width, "its controller"))
}

/// The device of a mount, read as far as its superblock goes.
fn superblock(host: &Host<'_>, mount: &Mount) -> Option<Superblock> {
    // `/dev/root` and the like are no files: the number always is.
    let number = format!("/dev/block/{}", mount.dev);
    let bytes = [&mount.source, &number]
        .into_iter()
        .find_map(|at| host.root.bytes(at, LOOKED_AT, Superblock::essence));
    Superblock::parse(&bytes?)
}

/// What the file system knows of the stripe: by its options, else by its superblock.
fn known(host: &Host<'_>, mount: &Mount) -> Option<(u64, u64)> {
    let sectors = |option: &str| mount.value(option)?.parse::<u64>().ok()?.checked_mul(512);
    let by_options = (mount.kind == "xfs").then(|| Some((sectors("sunit")?, sectors("swidth")?))).flatten();
    by_options.or_else(|| superblock(host, mount).map(|block| (block.unit, block.width)))
}

fn each(host: &Host<'_>, look: fn(&Host<'_>, &Place, &Mount) -> Seen) -> Vec<Seen> {
    let mut points = Vec::new();
    let mut all = Vec::new();
    for place in &host.places {
        let Some(mount) = host.mount_of(&place.path) else { continue };
        if !points.contains(&&mount.point) {
            points.push(&mount.point);
            all.push(look(host, place, mount));
        }
    }
    if all.is_empty() {
        all.push(Seen::unknown("directories", "no directory of a service is known: name some by --path"));
    }
    all
}

/// What is said of a mount that no disk carries: a file system in memory has none, so nothing of it can be laid out
/// wrongly; one whose disk is not found may be.
fn without_disk(mount: &Mount) -> Seen {
    match mount.in_memory() {
        true => Seen::not_applicable(&mount.point, format!("{} is in memory, on no disk", mount.kind)),
        false => Seen::unknown(&mount.point, format!("{} is no disk of this machine", mount.source)),
    }
}

fn stripes(host: &Host<'_>) -> Vec<Seen> {
    each(host, |host, _, mount| {
        let Some(disk) = host.disk_of(mount) else { return without_disk(mount) };
        if mount.kind != "xfs" && mount.kind != "ext4" {
            return Seen::not_applicable(&mount.point, format!("{} places stripes by itself", mount.kind));
        }
        let Some((unit, width, whose)) = stripe(host, disk) else {
            return Seen::not_applicable(
                &mount.point,
                format!("{} has no stripes that it tells of", disk.name),
            );
        };
        let wanted = format!("su={}k,sw={}", unit >> 10, width / unit.max(1));
        let made = match mount.kind.as_str() {
            "xfs" => format!("mkfs.xfs -d {wanted}"),
            _ => format!("mkfs.ext4 -E stride={},stripe_width={}", unit >> 12, width >> 12),
        };
        match known(host, mount) {
            None => {
                let note = format!("{} cannot be read: run as root; {whose} says {wanted}", mount.source);
                Seen { recommended: Some(wanted), ..Seen::unknown(&mount.point, note) }
            }
            Some((0, _) | (_, 0)) => Seen::new(&mount.point, "none", wanted).note(format!(
                "{whose} has stripes; only making it anew helps: {made} (XFS: mount -o sunit=,swidth=)"
            )),
            Some((su, wide)) => {
                let current = format!("su={}k,sw={}", su >> 10, wide / su);
                let good = su == unit && wide == width;
                let note = format!("{whose} says so; only making it anew helps: {made}");
                Seen::new(&mount.point, current, wanted).good_if(good).note(if good {
                    String::new()
                } else {
                    note
                })
            }
        }
    })
}

fn alignment(host: &Host<'_>) -> Vec<Seen> {
    each(host, |host, _, mount| {
        let Some(disk) = host.disk_of(mount) else { return without_disk(mount) };
        let Some(partition) = disk.partitions.iter().find(|one| one.dev == mount.dev) else {
            return Seen::new(&disk.name, "whole disk", "whole disk");
        };
        let unit = stripe(host, disk).map_or(ALIGNMENT, |(_, width, _)| width);
        let good = partition.start.is_multiple_of(unit);
        let kib = |bytes: u64| format!("{} KiB", bytes >> 10);
        let seen = Seen::new(
            &partition.name,
            format!("begins at {}", kib(partition.start)),
            format!("a multiple of {}", kib(unit)),
        );
        let how = format!("make it anew, beginning at {}", kib(unit));
        seen.good_if(good).note(if good { String::new() } else { how })
    })
}

fn inode_size(host: &Host<'_>) -> Vec<Seen> {
    each(host, |host, place, mount| {
        if mount.kind != "xfs" && mount.kind != "ext4" {
            return Seen::not_applicable(&mount.point, format!("{} has no inode size to choose", mount.kind));
        }
        if place.role == Role::Meta {
            return Seen::not_applicable(&mount.point, "Skep keeps metadata in rows: few inodes, any size");
        }
        match superblock(host, mount) {
            None => {
                let note = format!("{} cannot be read: run as root", mount.source);
                let seen = Seen::unknown(&mount.point, note);
                Seen { recommended: Some(">= 512".to_owned()), ..seen }
            }
            Some(block) => {
                let good = block.inode_size >= 512;
                let how = "only making it anew helps: mkfs.xfs -i size=512, mkfs.ext4 -I 512";
                Seen::new(&mount.point, block.inode_size.to_string(), ">= 512").good_if(good).note(if good {
                    ""
                } else {
                    how
                })
            }
        }
    })
}

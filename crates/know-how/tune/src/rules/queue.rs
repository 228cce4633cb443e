//! Queues of disks: scheduler, depth, read-ahead, size of requests.

use super::SERVERS;
use super::sources::{dell_2020, guide, hp, linux, slides, slides_nvme};
use crate::change::Change;
use crate::finding::Severity;
use crate::host::{Disk, DiskKind, Host, Role};
use crate::rule::{Accept, Look, Rule, Seen, Want, Wish, drives, exactly, judged, nothing, within};

/// Deepest queue that a scheduler takes since Linux 5.0 (more is EINVAL).
const SCHEDULED_MAX: u64 = 2048;
/// Deepest queue that the single-queue layer of older kernels took without complaint.
const SINGLE_QUEUE_MAX: u64 = 4096;

pub(super) const RULES: &[Rule] = &[
    Rule {
        area: "queue",
        setting: "scheduler",
        roles: SERVERS,
        severity: Severity::Major,
        reason: "Turning disks need requests sorted and writers kept from starving readers; flash needs neither, and \
                 NVMe queues are deeper than any scheduler.",
        effect: "HDD: higher and steadier streams under mixed load. NVMe: less processor time per request.",
        sources: &[
            hp("deadline, for HDD and SSD"),
            slides("noop, deadline or cfq; for NVMe noop has good results"),
            slides_nvme("deadline"),
            dell_2020("noop is usual for flash; NVMe bypasses the queue of the block layer"),
            guide("deadline"),
        ],
        choice: "HDD mq-deadline (all agree). SSD mq-deadline, none may stay. NVMe none: its own example says deadline, \
                 the same document's advice and Dell say noop. Old names: deadline = mq-deadline, noop = none; cfq is gone, \
                 bfq costs throughput.",
        look: Look::Special(scheduler),
    },
    Rule {
        area: "queue",
        setting: "nr_requests",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "A deep queue lets the scheduler merge and sort many streams; metadata wants short waits instead.",
        effect: "Some per cent with many streams per HDD target; none with few.",
        sources: &[
            hp("4096 for storage, 128 for metadata"),
            slides("128, 4096"),
            slides_nvme("1023 (max)"),
            guide("4096 for storage, 128 for metadata"),
            linux("at most 2048 with a scheduler, the device's tags without (since 5.0)"),
        ],
        choice: "The kernel decides: 4096 is refused since 5.0, so HDD storage gets 2048; without scheduler the device's \
                 own depth (1023 of many NVMe drives), which is the default. Metadata: 128 and more.",
        look: Look::Drive(nr_requests),
    },
    Rule {
        area: "queue",
        setting: "read_ahead_kb",
        roles: SERVERS,
        severity: Severity::Major,
        reason: "Storage servers read chunk files in order through the page cache: what is fetched ahead keeps every \
                 drive of a RAID busy. Metadata is read at random.",
        effect: "Reads of one stream on RAID often double from the default of 128.",
        sources: &[
            hp("8192 for storage, 128 for metadata"),
            slides("4 to 64 MB"),
            slides_nvme("4096, for storage and metadata"),
            guide("4096 for storage, 128 for metadata"),
        ],
        choice: "Storage: HDD 8192 (4096 to 65536 may stay), flash 4096 (from 1024). Metadata 128, on NVMe up to 4096 may \
                 stay: random reads there do not wait for it.",
        look: Look::Volume(read_ahead),
    },
    Rule {
        area: "queue",
        setting: "max_sectors_kb",
        roles: SERVERS,
        severity: Severity::Minor,
        reason: "The largest request in KiB that the kernel sends to the disk; longer reads and writes are cut. Every \
                 request costs the kernel, the controller and the drive, and a RAID moves a whole stripe at once only \
                 when a request covers it.",
        effect: "A few per cent of streaming; more where the stripe is wider than the request. Small blocks at random \
                 places do not change. It counts at once, while the disk is in use.",
        sources: &[hp("1024"), slides("to fit the hardware"), slides_nvme("512"), guide("256")],
        choice: "HDD storage 1024 (HP), other storage 512 (the NVMe example), metadata 256 (the documentation). More may \
                 stay: no document says that it harms. Never above what the hardware takes (max_hw_sectors_kb), which the \
                 kernel refuses.",
        look: Look::Drive(max_sectors),
    },
];

fn stores(disk: &Disk) -> bool {
    disk.roles.contains(&Role::Storage)
}

/// Schedulers that the kernel offers for a disk, in its own names.
fn offered(host: &Host<'_>, disk: &Disk) -> Vec<String> {
    let text = host.root.text(&disk.queue("scheduler")).unwrap_or_default();
    text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect()
}

/// The name that this kernel has for what older documents call deadline and noop.
fn here<'n>(offers: &[String], new: &'n str, old: &'n str) -> &'n str {
    if !offers.iter().any(|one| one == new) && offers.iter().any(|one| one == old) { old } else { new }
}

fn scheduler_wish(host: &Host<'_>, disk: &Disk) -> Wish {
    let offers = offered(host, disk);
    let (sorted, plain) = (here(&offers, "mq-deadline", "deadline"), here(&offers, "none", "noop"));
    let words = match disk.kind {
        DiskKind::Hdd => vec![sorted],
        DiskKind::Nvme => vec![plain],
        _ => vec![sorted, plain],
    };
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let set = words.first().cloned().unwrap_or_default();
    if !offers.is_empty() && !offers.contains(&set) {
        let all = offers.join(", ");
        return nothing(format!("this kernel offers {all}, not {set}; modprobe {set} where it is a module"));
    }
    let note = if sorted == "deadline" { "an old kernel: its names are deadline and noop" } else { "" };
    Wish::Want(Want { set, accept: Accept::OneOf(words), note: note.to_owned() })
}

fn scheduler(host: &Host<'_>) -> Vec<Seen> {
    let one = |disk: &Disk| {
        let change = |value: &str| {
            let mut change = Change::queue(disk, "scheduler", value);
            // The kernel gives a new scheduler its default depth: the wanted one is set again after it.
            if let Wish::Want(want) = nr_requests(host, disk) {
                let depth = host.root.number(&disk.queue("nr_requests")).map(|number| number.to_string());
                let depth = depth.filter(|depth| want.accepts(depth)).unwrap_or(want.set);
                let queue = Change::queue(disk, "nr_requests", &depth);
                change.live.extend(queue.live);
                change.keep.extend(queue.keep);
            }
            change
        };
        let text = host.root.text(&disk.queue("scheduler"));
        judged(&disk.name, text, &scheduler_wish(host, disk), change).of_disk(disk)
    };
    drives(host, SERVERS).map(one).collect()
}

/// Tags of the device: its own depth.
fn tags(host: &Host<'_>, disk: &Disk) -> Option<u64> {
    host.root.number(&format!("/sys/block/{}/mq/0/nr_tags", disk.name))
}

fn nr_requests(host: &Host<'_>, disk: &Disk) -> Wish {
    let unscheduled = match scheduler_wish(host, disk) {
        Wish::Want(want) => want.set == "none" || want.set == "noop",
        Wish::Nothing(_) => true,
    };
    if unscheduled {
        return match tags(host, disk) {
            Some(tags) => exactly(tags).because("the device's own depth; more is refused without scheduler"),
            None => within(1023, 64, u64::MAX).because("the device's own depth is the limit"),
        };
    }
    let old_kernel = offered(host, disk).iter().any(|name| name == "deadline");
    let most = if old_kernel { SINGLE_QUEUE_MAX } else { SCHEDULED_MAX };
    match (stores(disk), disk.kind) {
        (true, DiskKind::Hdd) => within(most, 1024, most),
        (true, _) => within(1024, 256, most),
        (false, _) => within(128, 64, most),
    }
}

fn read_ahead(host: &Host<'_>, disk: &Disk) -> Wish {
    match (stores(disk), host.media(disk)) {
        (true, DiskKind::Hdd) => within(8192, 4096, 65536),
        (true, _) => within(4096, 1024, 65536),
        (false, DiskKind::Nvme) => within(128, 0, 4096),
        (false, _) => within(128, 0, 128),
    }
}

fn max_sectors(host: &Host<'_>, disk: &Disk) -> Wish {
    let (wanted, what) = match (stores(disk), disk.kind) {
        (true, DiskKind::Hdd) => (1024, "storage on turning disks"),
        (true, _) => (512, "storage on flash"),
        (false, _) => (256, "metadata"),
    };
    let limit = host.root.number(&disk.queue("max_hw_sectors_kb"));
    let most = limit.unwrap_or(u64::MAX);
    let value = wanted.min(most);
    let mut note = format!("{wanted} KiB are recommended for {what}; ");
    note += &match limit {
        None => "how much the hardware takes is not told (max_hw_sectors_kb)".to_owned(),
        Some(most) if most < wanted => {
            format!("the hardware takes {most} at most (max_hw_sectors_kb), so {most} it is")
        }
        Some(most) => format!("the hardware takes up to {most} (max_hw_sectors_kb)"),
    };
    match host.root.number(&disk.queue("max_sectors_kb")) {
        Some(now) if now < value => {
            note += &format!("; now every read or write of more than {now} KiB is cut into several requests");
        }
        Some(now) if now > value => note += &format!("; {now} may stay"),
        _ => {}
    }
    within(value, value, most).because(note)
}

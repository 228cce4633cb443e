//! What the table says of three recorded machines.

use crate::finding::{Finding, Severity, Verdict};
use crate::host::{ClusterFacts, Host, Part, Role};
use crate::testing::{
    HDD, NVME, SSD, ZFS, nvme_part, read, service, storage_and_meta, unpacked, xfs_superblock,
};
use crate::{Root, check};
use std::collections::BTreeSet;

fn findings(text: &str, part: Part) -> Vec<Finding> {
    let dir = unpacked(text);
    let root = Root::new(dir.path()).unwrap();
    check(&read(&root, part))
}

fn one<'f>(all: &'f [Finding], setting: &str, subject: &str) -> &'f Finding {
    let mut found = all.iter().filter(|one| one.setting == setting && one.subject == subject);
    let first = found.next().unwrap_or_else(|| panic!("no {setting} of {subject}"));
    assert!(found.next().is_none(), "{setting} of {subject} twice");
    first
}

/// Verdict, what is set and what should be.
fn says(all: &[Finding], setting: &str, subject: &str) -> (Verdict, String, String) {
    let one = one(all, setting, subject);
    (one.verdict, one.current.clone().unwrap_or_default(), one.recommended.clone().unwrap_or_default())
}

fn change(current: &str, recommended: &str) -> (Verdict, String, String) {
    (Verdict::Change, current.to_owned(), recommended.to_owned())
}

fn ok(current: &str, recommended: &str) -> (Verdict, String, String) {
    (Verdict::Ok, current.to_owned(), recommended.to_owned())
}

/// Goal: a line of our own file that would undo a right value at the next boot is told, whichever spelling it has.
#[test]
fn a_line_of_ours_that_is_wrong() {
    for line in ["vm.dirty_ratio = 20\\nvm.dirty_ratio = 3", "-vm/dirty_ratio=3"] {
        let all = findings(&format!("{HDD}\n/etc/sysctl.d/90-skep.conf = {line}\n"), storage_and_meta());
        // The recorded file that is read later is told first; without it ours is.
        assert!(one(&all, "vm.dirty_ratio", "host").note.contains("at every boot"));
        let without = HDD.lines().filter(|line| !line.starts_with("/etc/sysctl"));
        let text =
            without.chain([&*format!("/etc/sysctl.d/90-skep.conf = {line}")]).collect::<Vec<_>>().join("\n");
        let all = findings(&text, storage_and_meta());
        let ratio = one(&all, "vm.dirty_ratio", "host");
        assert_eq!(ratio.verdict, Verdict::Ok);
        assert!(ratio.note.contains("90-skep.conf sets it to 3 at the next boot"), "{ratio:?}");
    }
}

/// Goal: on the machine of the HP paper the table says what the paper says, in the names of its kernel, except where
/// the paper is not safe.
#[test]
fn turning_disks_and_old_names() {
    let all = findings(HDD, storage_and_meta());
    for disk in ["sda", "sdl"] {
        assert_eq!(says(&all, "scheduler", disk), change("cfq", "deadline"), "{disk}");
        assert_eq!(says(&all, "nr_requests", disk), change("128", "4096 (1024..4096)"));
        assert_eq!(says(&all, "max_sectors_kb", disk), change("512", "1024 (up to 32767)"));
    }
    assert!(one(&all, "scheduler", "sda").note.contains("old kernel"));
    // The read-ahead counts where the file system is; members are not asked.
    assert_eq!(says(&all, "read_ahead_kb", "md0"), change("3072", "8192 (4096..65536)"));
    assert_eq!(says(&all, "read_ahead_kb", "md1"), ok("128", "128 (0..128)"));
    assert!(!all.iter().any(|one| one.setting == "read_ahead_kb" && one.subject == "sda"));
    // Metadata on SSD.
    assert_eq!(says(&all, "scheduler", "sdm"), change("cfq", "deadline (or noop)"));
    assert_eq!(says(&all, "nr_requests", "sdm").0, Verdict::Ok);
    // The system's own disk is nobody's business.
    assert!(!all.iter().any(|one| one.subject == "sdo"));
    assert_eq!(says(&all, "vm.dirty_background_ratio", "host"), change("10", "5 (1..5)"));
    assert_eq!(says(&all, "vm.dirty_ratio", "host"), ok("20", "20 (10..75)"));
    assert_eq!(says(&all, "vm.min_free_kbytes", "host").0, Verdict::Change);
    // A file that is read later would win at the next boot.
    assert!(one(&all, "vm.dirty_ratio", "host").note.contains("sets it to 5 at every boot"));
    let cache = one(&all, "vm.vfs_cache_pressure", "host");
    assert!(cache.note.contains("/etc/sysctl.d/99-sysctl.conf sets it to 200"), "{cache:?}");
    assert_eq!(says(&all, "vm.zone_reclaim_mode", "host"), change("1", "0"));
    assert_eq!(says(&all, "transparent_hugepage", "host"), change("always", "madvise (or never)"));
    let pages = one(&all, "transparent_hugepage", "host").change.as_ref().unwrap();
    assert!(pages.live[0].path.contains("redhat_transparent_hugepage"));
    assert_eq!(says(&all, "kernel.numa_balancing", "host").0, Verdict::Unknown);
    assert_eq!(says(&all, "scaling_governor", "host"), change("ondemand x 24", "performance"));
    // Both papers recommend nobarrier; Skep never does.
    for (point, option) in [("/data/skep0", "nobarrier"), ("/data/meta", "barrier=0")] {
        let barriers = one(&all, "barriers", point);
        assert_eq!((barriers.verdict, barriers.severity), (Verdict::Change, Severity::Danger));
        assert_eq!(barriers.current.as_deref(), Some(option));
        assert!(barriers.note.contains("never on mirrored targets") && barriers.change.is_none());
    }
    assert_eq!(says(&all, "allocsize", "/data/skep0"), change("default", "allocsize=131072k"));
    assert_eq!(says(&all, "logbsize", "/data/skep0").0, Verdict::Change);
    assert_eq!(says(&all, "noatime", "/data/meta"), change("relatime", "noatime"));
    // The RAID: 12 drives, 2 of them parity, 256 KiB each, and the file system knows it.
    assert_eq!(says(&all, "stripe (su, sw)", "/data/skep0"), ok("su=256k,sw=10", "su=256k,sw=10"));
    assert_eq!(says(&all, "inode size", "/data/skep0"), ok("512", ">= 512"));
    // Drives of storage and the InfiniBand card hang on node 1, those of metadata on node 0.
    assert_eq!(says(&all, "bind-numa", "storaged"), change("node 0,1", "node 1"));
    assert_eq!(says(&all, "interfaces", "storaged"), change("all", "ib0"));
    assert_eq!(says(&all, "bind-numa", "metad"), change("node 0,1", "node 0"));
    assert_eq!(says(&all, "mtu", "ib0").0, Verdict::Ok);
    assert_eq!(says(&all, "mtu", "eth0").0, Verdict::NotApplicable);
    assert_eq!(says(&all, "RDMA", "mlx4_0/1").0, Verdict::Ok);
    assert_eq!(says(&all, "net.core.somaxconn", "host"), change("128", ">= 4096"));
}

/// Goal: what XFS takes at a remount and ignores is said to count from the next mount only; what it follows is remounted.
#[test]
fn what_a_remount_does() {
    let text = HDD.replace("attr2,inode64,noquota", "attr2,inode32,swidth=5120,noquota");
    let all = findings(&text, storage_and_meta());
    for setting in ["logbsize", "allocsize", "largeio,swalloc"] {
        let found = one(&all, setting, "/data/skep0");
        assert_eq!(found.verdict, Verdict::Change, "{setting}");
        assert!(found.note.contains("next mount") && !found.note.contains("-o remount"), "{}", found.note);
    }
    for setting in ["noatime", "inode64"] {
        let found = one(&all, setting, "/data/skep0");
        assert!(found.note.contains(&format!("mount -o remount,{setting} /data/skep0")), "{}", found.note);
    }
}

/// Goal: of the size of requests a reader learns what is set, what should be and for what, what the hardware takes, and
/// what follows; more than the hardware takes is never recommended, and that is said.
#[test]
fn sizes_of_requests() {
    let note = |all: &[Finding], disk: &str| one(all, "max_sectors_kb", disk).note.clone();
    let all = findings(HDD, storage_and_meta());
    assert_eq!(
        note(&all, "sda"),
        "1024 KiB are recommended for storage on turning disks; the hardware takes up to 32767 (max_hw_sectors_kb); now \
         every read or write of more than 512 KiB is cut into several requests"
    );
    assert!(
        note(&all, "sdm").ends_with("up to 32767 (max_hw_sectors_kb); 512 may stay"),
        "{}",
        note(&all, "sdm")
    );
    let weak = HDD.replace("max_hw_sectors_kb = 32767", "max_hw_sectors_kb = 512");
    let all = findings(&weak, storage_and_meta());
    assert_eq!(says(&all, "max_sectors_kb", "sda"), ok("512", "512"));
    assert!(
        note(&all, "sda").ends_with("takes 512 at most (max_hw_sectors_kb), so 512 it is"),
        "{}",
        note(&all, "sda")
    );
    let silent: Vec<&str> = HDD.lines().filter(|line| !line.contains("max_hw_sectors_kb")).collect();
    let all = findings(&silent.join("\n"), storage_and_meta());
    assert_eq!(says(&all, "max_sectors_kb", "sda"), change("512", ">= 1024"));
    assert!(note(&all, "sda").contains("is not told"), "{}", note(&all, "sda"));
}

/// Goal: properties of ZFS are judged by what `zfs get` said, one dataset as it is made and one as it should be; where it
/// was not asked that is said, and what to ask.
#[test]
fn zfs_on_turning_disks() {
    let storage = crate::testing::service(Role::Storage, "storaged", "/data/skep0/t1", &[]);
    let directories =
        vec!["/data/skep0/t1".to_owned(), "/data/skep1/t2".to_owned(), "/data/skep2/t3".to_owned()];
    let storage = crate::host::Service { directories, ..storage };
    let all = findings(ZFS, Part { services: vec![storage], ..Part::default() });
    let made = one(&all, "zfs properties", "/data/skep0");
    assert_eq!(made.verdict, Verdict::Change);
    let how = "zfs set compression=lz4 atime=off xattr=sa dnodesize=auto recordsize=1M tank/skep0;";
    assert!(made.note.starts_with(how) && made.change.is_none(), "{}", made.note);
    assert!(
        made.current.as_deref().unwrap().contains("atime=on")
            && made.current.as_deref().unwrap().contains("recordsize=131072")
    );
    assert_eq!(one(&all, "zfs properties", "/data/skep1").verdict, Verdict::Ok);
    let unasked = one(&all, "zfs properties", "/data/skep2");
    assert!(unasked.verdict == Verdict::Unknown && unasked.note.contains("there is no program zfs"));
    assert_eq!(says(&all, "noatime", "/data/skep0"), change("relatime", "noatime"));
    assert_eq!(says(&all, "noatime", "/data/skep1").0, Verdict::Ok);
    assert_eq!(says(&all, "inode size", "/data/skep0").0, Verdict::NotApplicable);
    assert_eq!(says(&all, "stripe (su, sw)", "/data/skep0").0, Verdict::Unknown);
    assert_eq!(says(&all, "barriers", "/data/skep0").0, Verdict::NotApplicable);
}

/// Goal: a target in memory has no disk whose layout could be wrong: nothing of it is left open, let alone as a major
/// matter; a source that no disk is found for stays open.
#[test]
fn memory_has_no_geometry() {
    for (kind, source, verdict) in [
        ("tmpfs", "tmpfs", Verdict::NotApplicable),
        ("ramfs", "none", Verdict::NotApplicable),
        ("xfs", "/dev/gone", Verdict::Unknown),
    ] {
        let line = format!("36 25 0:77 / /data/memory rw,relatime shared:9 - {kind} {source} rw");
        let dir = unpacked(HDD);
        let mounts = dir.path().join("proc/self/mountinfo");
        let text = std::fs::read_to_string(&mounts).unwrap();
        std::fs::write(&mounts, format!("{text}\n{line}\n")).unwrap();
        let root = Root::new(dir.path()).unwrap();
        let storage = service(Role::Storage, "storaged", "/data/memory", &[]);
        let all = check(&read(&root, Part { services: vec![storage], ..Part::default() }));
        for setting in ["stripe (su, sw)", "partition alignment"] {
            let found = one(&all, setting, "/data/memory");
            assert_eq!(found.verdict, verdict, "{kind}: {setting}: {}", found.note);
        }
        let open =
            all.iter().filter(|one| one.verdict == Verdict::Unknown && one.severity == Severity::Major);
        let of_disks = |one: &&Finding| ["disks", "/data/memory"].contains(&one.subject.as_str());
        let open: Vec<_> = open.filter(of_disks).map(|one| one.setting).collect();
        assert_eq!(open.is_empty(), verdict == Verdict::NotApplicable, "{kind}: {open:?}");
    }
}

/// Goal: a layout of fewer targets than there are stays, and what it means for one large file is said.
#[test]
fn few_targets_are_explained() {
    let pools = vec![("default".to_owned(), 4)];
    let of = |targets: &str| {
        let metad = service(Role::Meta, "metad", "/data/meta/metad", &[("stripe_targets", targets)]);
        let cluster = Some(ClusterFacts { pools: pools.clone(), ..ClusterFacts::default() });
        let all = findings(HDD, Part { services: vec![metad], cluster, ..Part::default() });
        let found = one(&all, "targets of a file", "metad");
        (found.verdict, found.note.clone())
    };
    let (verdict, note) = of("1");
    assert_eq!(verdict, Verdict::Ok);
    assert!(note.contains("one large file gets what 1 of 4 targets deliver"), "{note}");
    assert_eq!(of("4"), (Verdict::Ok, String::new()));
    assert_eq!(of("5").0, Verdict::Change);
}

/// Goal: memory of a service that is bound to a node is preferred there, never confined to it.
#[test]
fn memory_is_preferred_not_bound() {
    let all = findings(NVME, nvme_part());
    let bound: Vec<_> = all.iter().filter(|one| one.setting == "bind-numa").collect();
    let lines = bound.iter().filter_map(|one| one.change.as_ref()).flat_map(|change| &change.keep);
    let policies: Vec<&str> =
        lines.filter(|line| line.stem == "NUMAPolicy=").map(|line| line.value.as_str()).collect();
    assert!(!policies.is_empty() && policies.iter().all(|policy| *policy == "preferred"), "{policies:?}");
    assert!(bound.iter().all(|one| !one.note.contains("membind")));
    assert!(bound[0].choice.contains("NUMAPolicy=preferred"));
}

/// Goal: with the superblocks readable, geometry and inode size are compared.
#[test]
fn superblocks_are_compared() {
    let dir = unpacked(HDD);
    std::fs::create_dir_all(dir.path().join("dev")).unwrap();
    let root = Root::new(dir.path()).unwrap();
    for (su, sw, inode, verdict) in [
        (256 << 10, 10, 512, Verdict::Ok),
        (128 << 10, 10, 512, Verdict::Change),
        (256 << 10, 12, 256, Verdict::Change),
        (0, 0, 512, Verdict::Change),
    ] {
        std::fs::write(dir.path().join("dev/md0"), xfs_superblock(inode, su, sw)).unwrap();
        let all = check(&read(&root, storage_and_meta()));
        let stripe = one(&all, "stripe (su, sw)", "/data/skep0");
        assert_eq!((stripe.verdict, stripe.change.is_none()), (verdict, true), "{su} {sw}");
        let size = one(&all, "inode size", "/data/skep0").verdict;
        assert_eq!(size == Verdict::Ok, inode >= 512);
    }
}

/// Goal: flash behind a controller: its stripes come from the device, a misaligned partition and a nobarrier that would
/// fail at boot are found, hardware limits are kept.
#[test]
fn flash_behind_a_controller() {
    let cluster = ClusterFacts {
        pools: vec![("default".to_owned(), 4)],
        clients: 100,
        storage_servers: 4,
        metadata_servers: 2,
        directories: vec![("/mnt/a".to_owned(), 1 << 20, 8, "default".to_owned())],
    };
    let mut part = storage_and_meta();
    part.services[0].settings.insert("max_connections".to_owned(), "64".to_owned());
    part.services[1].settings.insert("chunk_size".to_owned(), "65536".to_owned());
    part.services[1].settings.insert("stripe_targets".to_owned(), "8".to_owned());
    let all = findings(SSD, Part { cluster: Some(cluster), ..part });
    assert_eq!(says(&all, "scheduler", "sda"), change("bfq", "mq-deadline (or none)"));
    assert_eq!(says(&all, "nr_requests", "sda"), ok("256", "1024 (256..2048)"));
    assert_eq!(says(&all, "max_sectors_kb", "sda"), ok("1280", "512 (up to 4096)"));
    assert_eq!(says(&all, "read_ahead_kb", "sda"), change("128", "4096 (1024..65536)"));
    assert_eq!(says(&all, "read_ahead_kb", "sdb"), change("4096", "128 (0..128)"));
    assert_eq!(says(&all, "vm.dirty_ratio", "host"), ok("40", "20 (10..75)"));
    // 62.5 GiB: 1/256 of the memory is less than the documents' 256 MiB.
    assert_eq!(says(&all, "vm.min_free_kbytes", "host").2, "256000 (up to 3276800)");
    assert_eq!(says(&all, "stripe (su, sw)", "/data/skep0"), change("su=128k,sw=4", "su=128k,sw=8"));
    assert_eq!(
        says(&all, "partition alignment", "sda1"),
        change("begins at 1152 KiB", "a multiple of 1024 KiB")
    );
    assert_eq!(says(&all, "partition alignment", "sdb1").0, Verdict::Ok);
    let barriers = one(&all, "barriers", "/data/skep0");
    assert!(barriers.verdict == Verdict::Change && barriers.note.contains("4.19"), "{barriers:?}");
    assert_eq!(says(&all, "allocsize", "/data/skep0").0, Verdict::Ok);
    assert_eq!(says(&all, "noatime", "/data/skep0"), ok("noatime", "noatime"));
    assert_eq!(says(&all, "mtu", "ens1f0"), change("1500", "9000, on every switch and host"));
    assert!(!all.iter().any(|one| one.subject == "ens1f1" || one.subject == "lo"));
    assert_eq!(says(&all, "net.core.rmem_max", "host").0, Verdict::Change);
    assert_eq!(says(&all, "max_connections", "storaged"), change("64", ">= 3206 (100 mounts)"));
    assert_eq!(says(&all, "chunk_size", "metad").0, Verdict::Change);
    assert_eq!(says(&all, "targets of a file", "metad"), change("8", "progressive, or at most 4"));
    assert_eq!(says(&all, "targets of a file", "/mnt/a").0, Verdict::Change);
    assert_eq!(says(&all, "cache_size", "metad").0, Verdict::Change);
}

/// Goal: NVMe without scheduler at the device's depth, services bound to the nodes of their drives, limits in bytes
/// translated, FUSE over io_uring wanted.
#[test]
fn nvme_on_two_nodes() {
    let all = findings(NVME, nvme_part());
    assert_eq!(says(&all, "scheduler", "nvme0n1"), ok("none", "none"));
    assert_eq!(says(&all, "scheduler", "nvme2n1"), change("mq-deadline", "none"));
    assert_eq!(says(&all, "nr_requests", "nvme0n1"), ok("1023", "1023"));
    // A new scheduler brings its own depth: it is set again.
    let lines = &one(&all, "scheduler", "nvme2n1").change.as_ref().unwrap().live;
    assert!(
        lines[1].path.ends_with("nvme2n1/queue/nr_requests") && lines[1].value.as_deref() == Some("1023")
    );
    assert_eq!(says(&all, "max_sectors_kb", "nvme7n1"), change("128", "512 (up to 2048)"));
    assert_eq!(says(&all, "read_ahead_kb", "md0").0, Verdict::Ok);
    assert_eq!(says(&all, "read_ahead_kb", "md1").0, Verdict::Change);
    let dirty = one(&all, "vm.dirty_background_ratio", "host");
    assert_eq!((dirty.verdict, dirty.current.as_deref()), (Verdict::Ok, Some("134217728 bytes (0 %)")));
    assert!(dirty.note.contains("dirty_background_bytes"));
    assert_eq!(says(&all, "vm.dirty_ratio", "host").0, Verdict::Ok, "512 MiB, on purpose");
    let little = NVME.replace("dirty_background_bytes = 134217728", "dirty_background_bytes = 1048576");
    let all = findings(&little, nvme_part());
    assert_eq!(one(&all, "vm.dirty_background_ratio", "host").verdict, Verdict::Change);
    let all = findings(NVME, nvme_part());
    assert_eq!(says(&all, "stripe (su, sw)", "/data/skep0"), ok("su=128k,sw=4", "su=128k,sw=4"));
    assert_eq!(says(&all, "largeio,swalloc", "/data/skep0").0, Verdict::Ok);
    assert_eq!(says(&all, "largeio,swalloc", "/data/skep1").0, Verdict::NotApplicable);
    assert_eq!(says(&all, "logbsize", "/data/skep1").0, Verdict::Change);
    // A process of node 0 alone; the unit of node 1 has no drop-in yet.
    assert_eq!(says(&all, "bind-numa", "storaged@n0"), ok("node 0", "node 0"));
    assert_eq!(says(&all, "bind-numa", "storaged@n1"), change("node 0,1", "node 1"));
    assert_eq!(says(&all, "interfaces", "storaged@n0"), ok("eth0", "eth0"));
    assert_eq!(says(&all, "interfaces", "storaged@n1"), change("eth0 eth1", "eth1"));
    assert_eq!(says(&all, "LimitNOFILE", "storaged@n0"), change("1024", ">= 1048576"));
    assert!(one(&all, "LimitNOFILE", "storaged@n0").change.is_some());
    assert_eq!(says(&all, "LimitNOFILE", "storaged@n1").0, Verdict::Unknown);
    assert_eq!(says(&all, "fuse.enable_uring", "host"), change("N", "Y"));
    assert_eq!(says(&all, "request_size", "mount"), change("131072", ">= 1048576"));
    assert_eq!(says(&all, "workers (threads, max_threads)", "mount").0, Verdict::Change);
    assert_eq!(says(&all, "mtu", "eth0").0, Verdict::Ok);
    assert_eq!(says(&all, "mtu", "eth1").0, Verdict::Change);
    assert_eq!(says(&all, "RDMA", "mlx5_1/1").0, Verdict::Change);
}

/// Goal: a service that something else than its unit started is not changed by a drop-in, which would do nothing.
#[test]
fn services_without_a_unit() {
    let all = findings(&NVME.replace("skep-storaged@n0.service", "session-3.scope"), nvme_part());
    let files = one(&all, "LimitNOFILE", "storaged@n0");
    assert!(files.verdict == Verdict::Change && files.change.is_none() && files.note.contains("ulimit -n"));
    // A directory on a mount of Skep is no place of a target.
    let part = Part { directories: vec!["/mnt/skep/project".to_owned()], ..nvme_part() };
    assert!(!findings(NVME, part).iter().any(|one| one.subject == "/mnt/skep"));
}

/// Goal: a role that is only named applies to every drive but the system's; directories that are named narrow it.
#[test]
fn roles_and_directories_that_are_named() {
    let dir = unpacked(NVME);
    let root = Root::new(dir.path()).unwrap();
    let roles = BTreeSet::from([Role::Storage]);
    let part = Part { roles, ..Part::default() };
    let drives = |host: &Host<'_>| {
        let all = check(host);
        all.iter()
            .filter(|one| one.setting == "scheduler")
            .map(|one| one.subject.clone())
            .collect::<BTreeSet<_>>()
    };
    let every = drives(&read(&root, part.clone()));
    assert!(every.len() == 8 && !every.contains("sda") && !every.contains("loop0"), "{every:?}");
    let narrow = Part { directories: vec!["/data/skep1/x".to_owned()], ..part };
    assert!(drives(&read(&root, narrow)).iter().all(|name| "nvme4n1" <= name.as_str()));
    // A setting of clients means nothing to a server.
    let all = check(&read(&root, Part { roles: BTreeSet::from([Role::Mgmt]), ..Part::default() }));
    assert_eq!(one(&all, "fuse.enable_uring", "host").verdict, Verdict::NotApplicable);
}

/// Goal: an empty tree, and one full of nonsense, are looked at without a fault; nothing is called right.
#[test]
fn nothing_and_nonsense() {
    let roles = BTreeSet::from([Role::Storage, Role::Meta, Role::Client, Role::Mgmt]);
    let part = Part { roles, directories: vec!["/data/skep0".to_owned()], ..storage_and_meta() };
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path()).unwrap();
    let all = check(&read(&root, part.clone()));
    assert!(all.iter().all(|one| one.verdict != Verdict::Change || one.area == "skep"), "{all:#?}");
    let mut nonsense = String::new();
    for line in NVME.lines().chain(HDD.lines()).filter(|line| line.contains(" = ")) {
        let (path, _) = line.split_once(" = ").unwrap();
        nonsense.push_str(&format!("{path} = [x 99999999999999999999 -1 \\n\\t = ,- - ]\n"));
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = crate::recording::Recording::read(&nonsense).unwrap();
    recording.unpack(dir.path()).unwrap();
    let root = Root::new(dir.path()).unwrap();
    assert!(check(&read(&root, part)).len() > 30);
}

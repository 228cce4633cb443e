use super::*;
use crate::units::Rate;

fn read(text: &str) -> Hardware {
    Hardware::from_toml("test", text).unwrap()
}

const SMALL: &str = r#"
name = "small"
[[servers]]
name = "s"
count = 2
roles = ["storage"]
memory = "64 GiB"
[[servers.controllers]]
name = "fast"
measured_read = "100000 GB/s"
measured_write = "100000 GB/s"
[[servers.nics]]
kind = "100gbe"
[[servers.targets]]
role = "storage"
count = 2
controller = "fast"
drive = "ssd"
drives = 6
size = "1 TB"
raid = "raid6"
[clients]
count = 100
nic = "100gbe"
[striping]
targets = 1
"#;

/// Goal: drives and parity are summed as the document does it, and the next limit is named.
#[test]
fn chain_of_one_kind() {
    let forecast = forecast(&read(SMALL)).unwrap();
    assert_eq!((forecast.write.limit, forecast.read.limit), (Rate::gb(6.4), Rate::gb(9.6)));
    assert_eq!(
        (&*forecast.write.bottleneck, &*forecast.write.next),
        (&[Stage::Drives][..], &[Stage::Links][..])
    );
    assert_eq!(forecast.write.next_rate, Rate::gb(20.0));
    assert!((forecast.write.headroom - (20.0 / 6.4 - 1.0)).abs() < 1e-9);
    assert_eq!(forecast.write.raw_drives, Rate::gb(9.6));
}

/// Goal: of servers that are not alike, each is limited by its own component, and the bottleneck is the
/// component whose removal helps most, not the smallest sum.
#[test]
fn servers_not_alike() {
    let text = SMALL.replace("[clients]", SECOND);
    let forecast = forecast(&read(&text)).unwrap();
    // 2 x 3.2 behind 10 GB/s, and 1 x 1.6 behind 1 GB/s.
    assert_eq!(forecast.write.limit, Rate::gb(7.4));
    assert_eq!(forecast.write.bottleneck, [Stage::Drives]);
}

const SECOND: &str = r#"
[[servers]]
name = "old"
roles = ["storage"]
memory = "64 GiB"
[[servers.nics]]
kind = "10gbe"
[[servers.targets]]
role = "storage"
drive = "ssd"
drives = 6
size = "1 TB"
raid = "raid6"
[clients]"#;

/// Goal: a striped file waits for the slowest target; an unstriped load does not.
#[test]
fn slowest_target() {
    let uneven = SMALL.replace("[clients]", SECOND);
    let striped = uneven.replace("targets = 1", "targets = 5");
    let limit = |text: &str| forecast(&read(text)).unwrap().write;
    assert_eq!(limit(&uneven).limit, Rate::gb(7.4));
    let striped = limit(&striped);
    let shown = |stream: &Stream| stream.limits.iter().any(|limit| limit.stage == Stage::SlowestTarget);
    assert!(shown(&striped) && !shown(&limit(&uneven)), "the page says why");
    assert_eq!(striped.limit, Rate::gb(5.0), "five targets at the 1 GB/s of the one behind 10 GbE");
    assert_eq!(striped.bottleneck, [Stage::Links], "the link of the old server slows all");
}

/// Goal: two components with the same rate are both named, and what comes after both is the next.
#[test]
fn a_tie() {
    let text = SMALL.replace("kind = \"100gbe\"\n[[servers.targets]]", "kind = \"own\"\n[[servers.targets]]")
        + "[catalogue.nics]\nown = \"3.2 GB/s\"\n";
    let write = forecast(&read(&text)).unwrap().write;
    assert_eq!(write.bottleneck, [Stage::Drives, Stage::Links]);
    assert_eq!((write.next, write.next_rate), (vec![Stage::Clients], Rate::gb(1000.0)));
}

/// Goal: copies halve capacity and writing, and leave reading alone.
#[test]
fn copies() {
    let refused = Hardware::from_toml("test", &(SMALL.to_owned() + "copies = 2\n")).unwrap_err();
    assert!(refused.iter().any(|fault| fault.to_string().contains("one copy")), "Skep has no mirrors");
    let small = SMALL.replace("name = \"small\"", "name = \"small\"\nsoftware = \"beegfs\"");
    let once = forecast(&read(&small)).unwrap();
    let twice = forecast(&read(&(small + "copies = 2\n"))).unwrap();
    assert_eq!(twice.write.limit.0 * 2.0, once.write.limit.0);
    assert_eq!(twice.read.limit, once.read.limit);
    assert_eq!(twice.capacity.usable.value * 2.0, once.capacity.usable.value);
    assert!(twice.rebuild[0].resync.is_some() && once.rebuild[0].resync.is_none());
}

/// Goal: more hardware never delivers less (drives, links, clients, servers), in either direction.
#[test]
fn more_is_never_less() {
    let rate = |drives: u32, links: u32, clients: u32, servers: u32| {
        let mut hardware = read(SMALL);
        hardware.servers[0].targets[0].drives = drives;
        hardware.servers[0].nics[0].count = links;
        hardware.servers[0].count = servers;
        hardware.clients.count = clients;
        let forecast = forecast(&hardware).unwrap();
        (forecast.write.limit.0, forecast.read.limit.0)
    };
    for drives in [4, 6, 12, 60] {
        for links in [1, 2, 5] {
            for clients in [1, 3, 50] {
                for servers in [1, 2, 9] {
                    let (write, reading) = rate(drives, links, clients, servers);
                    for more in [
                        rate(drives + 1, links, clients, servers),
                        rate(drives, links + 1, clients, servers),
                        rate(drives, links, clients + 1, servers),
                        rate(drives, links, clients, servers + 1),
                    ] {
                        assert!(more.0 >= write * (1.0 - 1e-12) && more.1 >= reading * (1.0 - 1e-12));
                    }
                }
            }
        }
    }
}

/// Goal: cost is what the price list adds up to, and what has no price is named.
#[test]
fn prices() {
    let text =
        SMALL.to_owned() + "[prices]\ncurrency = \"EUR\"\nservers.s = 5000\ndrives.\"ssd 1 TB\" = 100\n";
    let cost = forecast(&read(&text)).unwrap().cost.unwrap();
    assert_eq!(cost.total.value, 2.0 * 5000.0 + 24.0 * 100.0);
    assert_eq!(cost.unpriced, ["controller controller", "link 100gbe"]);
    assert_eq!(cost.per_gbs_write.value, 12_400.0 / 6.4);
}

/// Goal: figures of a mirror and of parity when a drive fails.
#[test]
fn rebuilding() {
    let forecast = forecast(&read(SMALL)).unwrap();
    let rebuild = &forecast.rebuild[0];
    assert_eq!(rebuild.survives, 2);
    assert_eq!(rebuild.idle.as_ref().unwrap().value, 1e12 / 400e6);
    assert!(rebuild.loaded.as_ref().unwrap().value > rebuild.idle.as_ref().unwrap().value);
}

/// Goal: what is not known is left out instead of invented.
#[test]
fn unknown_stays_unknown() {
    let forecast =
        forecast(&read(&SMALL.replace("name = \"small\"", "name = \"small\"\nsoftware = \"lustre\"")))
            .unwrap();
    assert!(forecast.metadata.creates.is_none() && forecast.single_file.write.is_none());
    assert!(forecast.metadata.files.is_none(), "no metadata target");
}

/// Goal: rates of data sheets are not promised to programs; conservative and measured ones are taken as they are.
#[test]
fn data_sheets() {
    let data_sheet =
        SMALL.replace("drive = \"ssd\"", "drive = \"p5600\"").replace("kind = \"100gbe\"", "kind = \"ndr\"");
    let plain = |text: &str| forecast(&read(text)).unwrap().write;
    assert!((plain(&data_sheet).efficiency - 120.7 / 136.4).abs() < 1e-12);
    let measured = data_sheet.replace("raid = \"raid6\"", "raid = \"raid6\"\nmeasured_write = \"6 GB/s\"");
    assert_eq!((plain(&measured).efficiency, plain(&measured).limit), (1.0, Rate::gb(24.0)));
    assert_eq!(plain(SMALL).efficiency, 1.0);
    let own = data_sheet + "[catalogue]\nwrite_efficiency = 0.5\n";
    assert_eq!(plain(&own).efficiency, 0.5);
}

/// Goal: cores that no group uses are not promised: one thread serves all names, unless the cluster is made for more; then
/// the group with the root directory, where every path begins, is the bound, and a directory has one thread.
#[test]
fn one_metadata_thread() {
    let text = crate::systems::system("example").unwrap().text;
    let creates = |text: &str| forecast(&read(text)).unwrap().metadata.creates.unwrap().value;
    let one = crate::measured::shipped().unwrap();
    assert!((creates(text) - 1e6 / one.create).abs() < 1.0);
    let made_for = |servers: u32, groups: u32| {
        let words = format!("metadata_servers = {servers}\nmetadata_groups = {groups}\nsoftware = \"skep\"");
        text.replacen("software = \"skep\"", &words, 1)
    };
    let by = |threads: f64| 1e6 / (one.at_root + (one.create - one.at_root) / threads);
    for (servers, groups) in [(1, 8), (2, 1), (2, 4)] {
        let rate = creates(&made_for(servers, groups));
        assert!((rate / by(f64::from(servers * groups)) - 1.0).abs() < 1e-9, "{servers} {groups} {rate}");
    }
    let why = forecast(&read(&made_for(2, 4))).unwrap().metadata.creates.unwrap().why;
    assert!(why.contains("8 threads") && why.contains("one directory is of one group"), "{why}");
    // More groups than cores bring nothing more.
    let few = made_for(2, 4).replacen("memory =", "meta_cores = 2\nmemory =", 1);
    assert!((creates(&few) / by(4.0) - 1.0).abs() < 1e-9);
    let reading =
        |text: &str| forecast(&read(text)).unwrap().metadata.rows.unwrap().cold_stats.unwrap().value;
    assert!(reading(&made_for(2, 4)) > 4.0 * reading(text), "each group waits for its own reads only");
    for (wrong, field) in [(made_for(3, 1), "metadata_servers"), (made_for(1, 17), "metadata_groups")] {
        let faults = Hardware::from_toml("x", &wrong).unwrap_err();
        assert!(faults.iter().any(|fault| fault.field == field), "{faults:?}");
    }
    let other = made_for(2, 1).replacen("\"skep\"", "\"beegfs\"", 1);
    assert!(Hardware::from_toml("x", &other).is_err());
}

/// Goal: names fill the servers that the cluster is made for, however many there are: each counts as the one with least
/// space, as nobody knows which register first. With other software all count.
#[test]
fn names_on_one_server() {
    let text = crate::systems::system("example").unwrap().text;
    let names = |text: &str| forecast(&read(text)).unwrap().metadata;
    let one = names(text);
    assert_eq!(one.space.value, 960e9);
    assert!(one.space.why.contains("1 of 2 metadata servers"), "{}", one.space.why);
    let spread = text.replacen("software = \"skep\"", "metadata_servers = 2\nsoftware = \"skep\"", 1);
    assert_eq!(names(&spread).space.value, 2.0 * 960e9);
    let ratio = names(&spread).files.unwrap().value / one.files.unwrap().value;
    assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
    assert_eq!(names(&text.replacen("\"skep\"", "\"beegfs\"", 1)).space.value, 2.0 * 960e9);
}

/// Goal: nobody is advised to do what this release refuses.
#[test]
fn no_advice_to_mirror() {
    let plain = SMALL.replace("drives = 6", "drives = 1").replace("raid6", "none");
    let notes = |text: &str| forecast(&read(text)).unwrap().notes.join("\n");
    assert!(notes(&plain).contains("scratch data only, or a RAID level"), "{}", notes(&plain));
    let other = plain.replace("name = \"small\"", "name = \"small\"\nsoftware = \"beegfs\"");
    assert!(notes(&other).contains("or copies = 2"), "{}", notes(&other));
}

/// Goal: clients that need more connections than a server takes are warned of, as `skep plan scale` knows them.
#[test]
fn too_many_connections() {
    let many = |clients: u32| {
        let text = crate::systems::system("example").unwrap().text;
        forecast(&read(&text.replace("count = 16\n", &format!("count = {clients}\n"))))
            .unwrap()
            .notes
            .join("\n")
    };
    // Two servers with three services each connect to one another too.
    assert!(!many(127).contains("max_connections"), "{}", many(127));
    let warned = many(129);
    assert!(warned.contains("max_connections (4096)") && warned.contains("raise"), "{warned}");
}

/// Goal: a small read of a RAID 6 keeps one drive busy, one of a raidz all data drives: more drives in a raidz give no
/// more reads of hard disks, and drives that are fast are bound by the bytes of whole records.
#[test]
fn random_reads_by_raid() {
    let of = |raid: &str, drive: &str, drives: u32| {
        let zfs = if raid.starts_with("raidz") { "\nfile_system = \"zfs\"" } else { "" };
        let text = SMALL
            .replace("raid = \"raid6\"", &format!("raid = \"{raid}\"{zfs}"))
            .replace("drive = \"ssd\"", &format!("drive = \"{drive}\""))
            .replace("drives = 6", &format!("drives = {drives}"));
        let random = forecast(&read(&text)).unwrap().random;
        (random.read.unwrap(), random.write.unwrap())
    };
    // Four targets.
    let hdd = 79.0;
    assert_eq!(of("raid6", "hdd", 6).0.value, 24.0 * hdd);
    assert_eq!(of("raid6", "hdd", 12).0.value, 48.0 * hdd);
    assert_eq!(of("raid6", "hdd", 6).1.value, 24.0 * hdd / 6.0);
    for drives in [6, 12] {
        let (reads, writes) = of("raidz2", "hdd", drives);
        assert_eq!((reads.value, writes.value), (4.0 * hdd, 4.0 * hdd / 2.0), "{drives}");
        assert!(reads.why.contains("a record lies on all data drives"), "{}", reads.why);
    }
    // 4 x 400 MB/s move 12,207 records of 128 KiB, fewer than the 60,000 operations of one drive.
    let (reads, writes) = of("raidz2", "ssd", 6);
    assert_eq!(reads.value, 4.0 * 4.0 * 400e6 / 131_072.0);
    assert_eq!(writes.value, reads.value / 2.0);
    assert!(reads.why.contains("records of 128 KiB"), "{}", reads.why);
}

/// Goal: a controller that was measured passes that, each way by itself; one that was not, what the catalogue says.
#[test]
fn a_measured_controller() {
    let text = crate::systems::system("hp-apollo-p440").unwrap().text;
    let measured = text.replace("kind = \"p440\"\n", "kind = \"p440\"\nmeasured_write = \"1 GB/s\"\n");
    let forecast = forecast(&read(&measured)).unwrap();
    assert_eq!(
        (forecast.write.limit, &*forecast.write.bottleneck),
        (Rate::gb(1.0), &[Stage::Controllers][..])
    );
    assert_eq!((&*forecast.read.bottleneck, forecast.read.next_rate), (&[Stage::Drives][..], Rate::gb(2.5)));
}

/// Goal: the part of a data sheet that programs see belongs to the drives, not to whatever limits: better links never
/// lower the forecast, links that pass as much as the drives promise are not taken whole when the drives limit before,
/// and what is named is what to improve.
#[test]
fn better_links_beside_data_sheets() {
    let with = |links: f64| {
        let text = SMALL
            .replace("drive = \"ssd\"", "drive = \"p5600\"")
            .replace("kind = \"100gbe\"\n[[servers.targets]]", "kind = \"own\"\n[[servers.targets]]")
            + &format!("[catalogue.nics]\nown = \"{links} GB/s\"\n");
        forecast(&read(&text)).unwrap().write
    };
    // 2 servers of 2 x 4 x 1.7 GB/s.
    let (seen, part) = (27.2e9 * 120.7 / 136.4, 120.7 / 136.4);
    for links in [12.1, 13.5, 13.55, 14.0, 20.0] {
        let write = with(links);
        assert!((write.expected.0 / seen - 1.0).abs() < 1e-9, "{links}: {}", write.expected);
        assert_eq!(
            (&*write.bottleneck, &*write.next),
            (&[Stage::Drives][..], &[Stage::Links][..]),
            "{links}"
        );
        assert!((write.next_expected.0 / (2e9 * links) - 1.0).abs() < 1e-9, "links are taken whole");
        assert!((write.without_clients.0 / seen - 1.0).abs() < 1e-9, "{links}");
    }
    let (near, far, slow) = (with(13.5), with(14.0), with(12.0));
    assert_eq!((near.limit, far.limit), (Rate::gb(27.0), Rate::gb(27.2)), "without any efficiency");
    assert!((far.efficiency - part).abs() < 1e-9 && far.efficiency_source.starts_with("002"));
    assert!((near.efficiency - seen / 27e9).abs() < 1e-9, "expected over limit");
    assert!(near.efficiency_source.starts_with("88.5 % of drives"), "{}", near.efficiency_source);
    assert_eq!(
        (slow.expected, slow.efficiency, &*slow.bottleneck),
        (Rate::gb(24.0), 1.0, &[Stage::Links][..])
    );
}

/// Goal: of drives that are not alike only those of data sheets are taken in part.
#[test]
fn data_sheets_beside_measured_targets() {
    let group = "[[servers.targets]]\nrole = \"storage\"\ndrive = \"p5600\"\ndrives = 6\nsize = \"1 TB\"\n\
                 raid = \"raid6\"\nmeasured_write = \"3 GB/s\"\n[clients]";
    let text = SMALL
        .replace("drive = \"ssd\"", "drive = \"p5600\"")
        .replace("kind = \"100gbe\"", "kind = \"ndr\"")
        .replace("[clients]", group);
    let write = forecast(&read(&text)).unwrap().write;
    let sheets = 27.2e9 * 120.7 / 136.4;
    assert!((write.expected.0 / (sheets + 6e9) - 1.0).abs() < 1e-9, "{}", write.expected);
    assert!((write.limit.0 / 33.2e9 - 1.0).abs() < 1e-9, "{}", write.limit);
}

/// Goal: targets of one pool that are not alike share a link evenly, as files that are striped over them do: faster
/// drives in one do not slow the other.
#[test]
fn faster_neighbours() {
    let of = |faster: &str| {
        let group = format!(
            "[[servers.targets]]\nrole = \"storage\"\ndrive = \"ssd\"\ndrives = 6\nsize = \"1 TB\"\n\
             raid = \"raid6\"\nmeasured_write = \"{faster}\"\n[clients]"
        );
        let text = SMALL
            .replace("[clients]", &group)
            .replace("targets = 1", "targets = 2")
            .replace("kind = \"100gbe\"\n[[servers.targets]]", "kind = \"40gbe\"\n[[servers.targets]]");
        forecast(&read(&text)).unwrap().write
    };
    // Three targets of each server behind 4 GB/s, two of 1.6 and one that gets faster.
    for faster in ["1.6 GB/s", "3 GB/s", "30 GB/s"] {
        let write = of(faster);
        assert!((write.expected.0 / 8e9 - 1.0).abs() < 1e-9, "{faster}: {}", write.expected);
        assert_eq!(write.bottleneck, [Stage::Links], "{faster}");
    }
}

/// Goal: a cluster without a management service or without a metadata server is told so, one that has both is not.
#[test]
fn services_that_are_missing() {
    let notes = |hardware: &Hardware| forecast(hardware).unwrap().notes.join("\n");
    let example = read(crate::systems::system("example").unwrap().text);
    let whole = notes(&example);
    assert!(!whole.contains("no management service") && !whole.contains("no metadata server"), "{whole}");
    let mut unmanaged = example;
    unmanaged.servers[0].roles.retain(|role| *role != crate::hardware::Role::Mgmt);
    let told = notes(&unmanaged);
    assert!(told.contains("no management service") && !told.contains("no metadata server"), "{told}");
    let told = notes(&read(SMALL));
    assert!(told.contains("no management service") && told.contains("no metadata server"), "{told}");
}

/// Goal: parity of something else beneath ZFS is noted with what ZFS has for it; elsewhere it is not.
#[test]
fn parity_that_zfs_has_itself() {
    let notes = |text: &str| forecast(&read(text)).unwrap().notes.join("\n");
    let with = |raid: &str| {
        let zfs = format!("raid = \"{raid}\"\nfile_system = \"zfs\"");
        notes(&SMALL.replace("raid = \"raid6\"", &zfs))
    };
    assert!(with("raid6").contains("write raid = \"raidz2\""), "{}", with("raid6"));
    assert!(with("raid5").contains("write raid = \"raidz1\""), "{}", with("raid5"));
    assert!(!with("raidz2").contains("ZFS has"), "{}", with("raidz2"));
    assert!(!notes(SMALL).contains("ZFS has"), "{}", notes(SMALL));
}

/// Goal: what the example promises without its drives' limit is what it delivers with drives that fast.
#[test]
fn drives_of_the_example_made_fast() {
    let text = crate::systems::system("example").unwrap().text;
    let commented = "# [catalogue.drives.p5600]\n# write = \"1.9 GB/s\"";
    let fast = text.replace(commented, "[catalogue.drives.p5600]\nwrite = \"5 GB/s\"");
    assert_ne!(fast, text);
    let (slow, fast) = (forecast(&read(text)).unwrap().write, forecast(&read(&fast)).unwrap().write);
    assert_eq!((&*slow.bottleneck, &*slow.next), (&[Stage::Drives][..], &[Stage::Links][..]));
    assert_eq!(fast.bottleneck, [Stage::Links]);
    assert!((slow.next_expected.0 / 40e9 - 1.0).abs() < 1e-9, "{}", slow.next_expected);
    assert!((fast.expected.0 / slow.next_expected.0 - 1.0).abs() < 1e-9, "{}", fast.expected);
}

/// Goal: one figure of a drive that a description gives replaces that figure only: the other rate stays the data
/// sheet's, of which programs see a part, and keeps its source.
#[test]
fn one_own_figure_of_a_data_sheet() {
    let text =
        SMALL.replace("drive = \"ssd\"", "drive = \"p4600\"").replace("kind = \"100gbe\"", "kind = \"ndr\"");
    let parts = |own: &str| {
        let forecast = forecast(&read(&format!("{text}[catalogue.drives.p4600]\n{own}\n"))).unwrap();
        let source = |name: &str| {
            let part = forecast.components.iter().find(|part| part.name == name).unwrap();
            part.source.starts_with("002")
        };
        let sheets = (source("p4600 (write)"), source("p4600 (read)"));
        (forecast.write.efficiency, forecast.read.efficiency, sheets)
    };
    let (sheet_write, sheet_read) = (120.7 / 136.4, 132.4 / 136.4);
    for (own, write, read, sheets) in [
        ("read_iops = 1e5", sheet_write, sheet_read, (true, true)),
        ("write = \"1 GB/s\"", 1.0, sheet_read, (false, true)),
        ("read = \"3 GB/s\"", sheet_write, 1.0, (true, false)),
        ("read = \"3 GB/s\"\nwrite = \"1 GB/s\"", 1.0, 1.0, (false, false)),
    ] {
        let found = parts(own);
        assert!((found.0 - write).abs() < 1e-12 && (found.1 - read).abs() < 1e-12, "{own}: {found:?}");
        assert_eq!(found.2, sheets, "{own}");
    }
}

/// Two kinds of servers, each with two components that pass the same: 2.5 GB/s in one, 4 GB/s in the other.
const TWO_TIES: &str = r#"
name = "ties"
[[servers]]
name = "a"
roles = ["storage"]
memory = "64 GiB"
[[servers.nics]]
kind = "ndr"
[[servers.controllers]]
name = "c"
kind = "controller"
[[servers.targets]]
role = "storage"
drive = "hdd"
drives = 25
size = "1 TB"
raid = "none"
controller = "c"
[[servers]]
name = "b"
roles = ["storage"]
memory = "64 GiB"
[[servers.nics]]
kind = "ndr"
[[servers.pcie_switches]]
name = "s"
uplink = { generation = 1, lanes = 16 }
[[servers.targets]]
role = "storage"
drive = "nvme"
drives = 4
size = "1 TB"
raid = "none"
pcie_switch = "s"
pcie = { generation = 1, lanes = 4 }
[clients]
count = 100
nic = "ndr"
[striping]
targets = 1
"#;

/// Goal: where each kind of server has its own two components that allow the same, no single one frees anything and
/// none alone gives the sum. What limits is named all the same: those that must go together, and no more.
#[test]
fn two_kinds_of_servers_with_a_tie_each() {
    let write = forecast(&read(TWO_TIES)).unwrap().write;
    assert_eq!(write.expected, Rate::gb(6.5));
    assert_eq!(write.bottleneck, [Stage::Drives, Stage::Controllers]);
    assert_eq!((write.next_expected, write.next.is_empty()), (Rate::gb(48.0), false));
}

/// Goal: what drives do that nobody knows is neither nothing nor ignored: nothing is forecast then, unless the
/// processors allow less than the drives that are known.
#[test]
fn drives_whose_operations_nobody_knows() {
    let group = "[[servers.targets]]\nrole = \"storage\"\ndrive = \"mine\"\ndrives = 6\nsize = \"1 TB\"\n\
                 raid = \"raid6\"\n[clients]";
    let random = |text: &str, own: &str| {
        let own = format!("[catalogue.drives.mine]\nread = \"1 GB/s\"\nwrite = \"1 GB/s\"\n{own}\n");
        forecast(&read(&(text.to_owned() + &own))).unwrap().random
    };
    let all = SMALL.replace("drive = \"ssd\"", "drive = \"mine\"");
    let mixed = SMALL.replace("[clients]", group);
    let cores = |text: &str, cores: u32| {
        text.replace("memory = ", &format!("sockets = 1\ncores = {cores}\nmemory = "))
    };
    for text in [&all, &mixed, &cores(&all, 1), &cores(&mixed, 1000)] {
        let found = random(text, "write_iops = 0");
        assert_eq!((found.read, found.write), (None, None), "{text}");
    }
    let known = random(&mixed, "read_iops = 1e4");
    assert_eq!((known.read.unwrap().value, known.write), (24.0 * 60e3 + 12.0 * 1e4, None));
    let few = random(&cores(&mixed, 1), "").read.unwrap();
    assert!(few.value < 24.0 * 60e3 && few.why.contains("those drives whose IOPS are known"), "{}", few.why);
}

/// Goal: a target is copied back as fast as its server's links move it, in the slots they are in, and as fast as it
/// was measured to write.
#[test]
fn resync() {
    let mirrored =
        SMALL.replace("name = \"small\"", "name = \"small\"\nsoftware = \"beegfs\"") + "copies = 2\n";
    let seconds = |text: &str| forecast(&read(text)).unwrap().rebuild[0].resync.clone().unwrap().value;
    let slot = "kind = \"100gbe\"\npcie = { generation = 1, lanes = 4 }\n[[servers.targets]]";
    let slow = mirrored.replacen("kind = \"100gbe\"\n[[servers.targets]]", slot, 1);
    assert_eq!(seconds(&mirrored), 4e12 / 1.6e9);
    assert_eq!(seconds(&slow), 4e12 / 0.5e9, "two targets share 1 GB/s");
    let measured = mirrored.replace("raid = \"raid6\"", "raid = \"raid6\"\nmeasured_write = \"800 MB/s\"");
    assert_eq!(seconds(&measured), 4e12 / 0.8e9);
}

/// Goal: one shared file gets no more than the targets that it lies on deliver, whatever the whole system does; with all
/// targets it gets what it got.
#[test]
fn a_shared_file_is_bound_to_its_targets() {
    let written = |targets: u32| {
        let text = SMALL.replace("targets = 1", &format!("targets = {targets}"));
        forecast(&read(&text)).unwrap().single_file.write.unwrap()
    };
    let (one, two, four) = (written(1), written(2), written(4));
    // 6 drives in RAID 6, of which four hold data.
    assert!(one.value > 0.0 && one.value <= Rate::gb(1.6).0, "{one:?}");
    assert!((two.value / one.value - 2.0).abs() < 1e-9, "{two:?}");
    assert!(four.value >= two.value, "{four:?}");
    assert!(one.why.contains("1 target of the file"), "{one:?}");
}

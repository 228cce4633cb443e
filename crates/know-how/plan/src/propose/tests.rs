//! Proposals against the forward model.

use super::requirements::Models;
use super::*;
use crate::forward::forecast;
use crate::hardware::{Prices, Role, Software};
use crate::units::{Rate, Size};

/// SplitMix64: the same requirements in every run.
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Spread evenly over the orders of magnitude; now and then nothing is asked for.
    fn maybe(&mut self, least: f64, most: f64) -> Option<f64> {
        let (asked, share) = (self.share() < 0.6, self.share());
        asked.then(|| least * (most / least).powf(share))
    }

    fn requirements(&mut self) -> Requirements {
        let availability = [Availability::None, Availability::Raid, Availability::Mirror];
        let availability = availability[(self.share() * 3.0) as usize];
        // Only a file system that has mirrors is asked for them.
        let mirrored = availability == Availability::Mirror;
        let drives = KINDS_SETS[(self.share() * KINDS_SETS.len() as f64) as usize].to_vec();
        Requirements {
            write: self.maybe(0.1e9, 500e9).map(Rate),
            read: self.maybe(0.1e9, 500e9).map(Rate),
            iops: self.maybe(1e3, 5e6),
            write_iops: self.maybe(1e3, 1e6),
            files: self.maybe(1e6, 1e10),
            capacity: self.maybe(1e12, 20e15).map(|bytes| Size(bytes as u64)),
            // What many groups do at most is not far above this.
            metadata_rate: self.maybe(1e2, 4e4),
            software: if mirrored { Software::Beegfs } else { Software::Skep },
            availability,
            drives,
            show: requirements::SHOWN_MAX,
            ..Requirements::default()
        }
    }
}

const KINDS_SETS: [&[Kind]; 5] = [&[], &[Kind::Hdd], &[Kind::Ssd], &[Kind::Nvme], &[Kind::Hdd, Kind::Nvme]];

/// What a text of the description gives, as a user would run it through `skep plan`.
fn fed_back(proposal: &Proposal) -> Forecast {
    let text = toml::to_string(&proposal.hardware).expect("a description is TOML");
    let hardware = Hardware::from_toml("proposal.toml", &text).expect("a description that is accepted");
    forecast(&hardware).expect("possible hardware")
}

/// Goal: whatever is required, a proposal that is printed and fed back into the forward model meets it; nothing that
/// is asked for is forgotten; and without a lack of anything there are three alternatives or more.
#[test]
fn proposals_meet_their_requirements() {
    let mut random = Random(2026);
    let (mut proposed, mut refused) = (0, 0);
    for round in 0..80 {
        let requirements = random.requirements();
        let found = match propose(&requirements) {
            Ok(found) => found,
            Err(lines) => {
                refused += 1;
                assert!(!lines.is_empty() && lines.iter().all(|line| line.contains(':')), "{lines:?}");
                continue;
            }
        };
        proposed += 1;
        for proposal in &found.proposals {
            let forecast = fed_back(proposal);
            let missed = search::unmet(&requirements, &forecast);
            assert!(missed.is_empty(), "round {round}, {}: {missed:?}\n{requirements:?}", proposal.title);
            assert_eq!(forecast.write.expected, proposal.forecast.write.expected);
            assert!(!proposal.reasons.is_empty());
        }
        if found.rejected.is_empty() {
            assert!(found.proposals.len() >= 3, "round {round}: {}", found.proposals.len());
        }
    }
    assert!(proposed > 40, "{proposed} proposed, {refused} refused");
}

/// Goal: no server for contents too many: with one less something is missed, and that is what the proposal says.
#[test]
fn no_server_too_many() {
    let requirements = Requirements {
        write: Some(Rate::gb(120.0)),
        capacity: Some(Size(9_000_000_000_000_000)),
        ..Requirements::default()
    };
    for proposal in propose(&requirements).expect("proposals").proposals {
        assert!(!proposal.decided.is_empty() && proposal.servers.0 > 2, "{}", proposal.title);
        let mut less = proposal.hardware.clone();
        less.servers[0].count -= 1;
        let missed = search::unmet(&requirements, &forecast(&less).expect("possible"));
        assert_eq!(missed, proposal.decided, "{}", proposal.title);
    }
}

/// Goal: the design of 001 (6 GB/s, small writes, SSDs, metadata apart) comes out as the document draws it: SSDs in
/// RAID 6 of six, a few servers, dedicated metadata; and three alternatives with other drives or sizes.
#[test]
fn the_six_gigabyte_design() {
    let requirements = Requirements {
        write: Some(Rate::gb(6.0)),
        write_iops: Some(20e3),
        show: requirements::SHOWN_MAX,
        ..Requirements::default()
    };
    let found = propose(&requirements).expect("proposals");
    let kinds: BTreeSet<Kind> = found.proposals.iter().map(|proposal| proposal.kind).collect();
    assert_eq!(kinds.len(), 3, "one of each kind of drive");
    let ssd = found
        .proposals
        .iter()
        .find(|p| p.kind == Kind::Ssd && p.layout == Servers::Dedicated)
        .expect("SSDs with metadata apart");
    assert!(ssd.servers.0 <= 4, "{:?}", ssd.servers);
    assert!(ssd.reasons.iter().any(|reason| reason.contains("RAID 6 of 6 SSDs")), "{:?}", ssd.reasons);
}

/// Goal: impossible requirements are an error that says which.
#[test]
fn impossible_requirements_are_named() {
    let cases = [
        (Requirements { write: Some(Rate::gb(1e9)), ..Requirements::default() }, "write"),
        (Requirements { files: Some(1e18), ..Requirements::default() }, "files"),
        (Requirements { metadata_rate: Some(1e6), ..Requirements::default() }, "metadata_rate"),
        (
            Requirements {
                metadata_rate: Some(2e4),
                metadata_groups: Some(1),
                metadata_servers: Some(1),
                ..Requirements::default()
            },
            "metadata_rate",
        ),
        (
            Requirements { write_iops: Some(50e6), drives: vec![Kind::Hdd], ..Requirements::default() },
            "write_iops",
        ),
        (Requirements { read: Some(Rate::gb(100.0)), clients: Some(1), ..Requirements::default() }, "read"),
    ];
    for (requirements, named) in cases {
        let lines = propose(&requirements).expect_err(named);
        assert!(lines.iter().any(|line| line.starts_with(named)), "{named}: {lines:?}");
    }
}

fn prices() -> Prices {
    let named = |pairs: &[(&str, f64)]| pairs.iter().map(|(n, p)| ((*n).to_owned(), *p)).collect();
    Prices {
        currency: "EUR".into(),
        servers: named(&[
            ("hdd-60", 14e3),
            ("hdd-24", 6e3),
            ("ssd-24", 9e3),
            ("ssd-12", 6e3),
            ("nvme-24", 16e3),
            ("nvme-12", 9e3),
            ("metadata", 5e3),
        ]),
        drives: named(&[("hdd", 350.0), ("ssd", 900.0), ("nvme", 1_000.0)]),
        nics: named(&[("25gbe", 200.0), ("100gbe", 600.0), ("200gbe", 1_000.0), ("400gbe", 1_800.0)]),
        controllers: named(&[("controller", 600.0), ("hba", 300.0)]),
        network: 20e3,
    }
}

/// Goal: with prices the cheapest comes first, a budget rejects what is dearer, and one that is too small says what
/// the cheapest costs. A part without a price is named instead of counted as free.
#[test]
fn budget() {
    let free = Requirements {
        write: Some(Rate::gb(10.0)),
        capacity: Some(Size(2_000_000_000_000_000)),
        prices: Some(prices()),
        ..Requirements::default()
    };
    let cost = |proposal: &Proposal| proposal.forecast.cost.as_ref().map_or(0.0, |cost| cost.total.value);
    let all = propose(&free).expect("proposals").proposals;
    assert!(all.iter().all(|proposal| cost(proposal) >= cost(&all[0])));
    let dearest = all.iter().map(cost).fold(0.0, f64::max);
    assert!(dearest > cost(&all[0]), "something to choose from");
    let some = propose(&Requirements { budget: Some(cost(&all[0])), ..free.clone() }).expect("the cheapest");
    assert!(some.proposals.iter().all(|proposal| cost(proposal) <= cost(&all[0])));
    assert!(!some.rejected.is_empty());
    let lines = propose(&Requirements { budget: Some(1.0), ..free.clone() }).expect_err("too small");
    let named = format!("costs {:.0}", cost(&all[0]));
    assert!(lines.iter().any(|line| line.starts_with("budget") && line.contains(&named)), "{lines:?}");
    let mut unpriced = Requirements { budget: Some(1e9), ..free };
    if let Some(prices) = &mut unpriced.prices {
        prices.servers.clear();
    }
    let lines = propose(&unpriced).expect_err("no price");
    assert!(lines.iter().any(|line| line.contains("no price of server")), "{lines:?}");
}

/// Goal: what is restricted is kept: layout, drives, and the number shown.
#[test]
fn restrictions() {
    let requirements = Requirements {
        write: Some(Rate::gb(20.0)),
        drives: vec![Kind::Nvme],
        show: 3,
        ..Requirements::default()
    };
    let found = propose(&requirements).expect("proposals");
    assert_eq!(found.proposals.len(), 3);
    assert!(found.proposals.iter().all(|proposal| proposal.kind == Kind::Nvme));
    let combined = Requirements { servers: Some(Servers::Combined), ..requirements };
    let found = propose(&combined).expect("proposals");
    assert!(found.proposals.iter().all(|p| p.servers.1 == 0 && p.title.ends_with("combined")));
    assert!(found.text().contains("1. nvme-"), "{}", found.text());
}

/// Goal: without prices a small system is not answered with the fastest drives that happen to have the least raw space:
/// for 500 MB/s and 10 TB what fits comes first, and the output says by which rule.
#[test]
fn small_needs_get_small_servers() {
    let requirements = Requirements {
        write: Some(Rate::mb(500.0)),
        capacity: Some(Size(10_000_000_000_000)),
        ..Requirements::default()
    };
    let found = propose(&requirements).expect("proposals");
    let first = &found.proposals[0];
    assert_ne!(first.kind, Kind::Nvme, "{}", found.text());
    let over = |p: &Proposal| search::over_provision(&requirements, &p.forecast);
    let alike = found.proposals.iter().filter(|p| p.servers == first.servers);
    assert!(alike.clone().all(|p| over(p) >= over(first)), "{}", found.text());
    assert!(found.text().contains("Order: without prices, number of servers times over-provision"));
}

/// Goal: names that do not fit one metadata server get several, as few as hold them, and are refused by name where fewer are
/// given; what fits one is proposed with one; and mirrors are refused with what to do instead.
#[test]
fn this_release() {
    let files = |files: f64| Requirements { files: Some(files), ..Requirements::default() };
    for wanted in [3e11, 1e12] {
        let one = Requirements { metadata_servers: Some(1), ..files(wanted) };
        let lines = propose(&one).expect_err("too many names");
        assert!(lines[0].starts_with("files: ") && lines[0].contains("1 metadata servers"), "{lines:?}");
        for proposal in propose(&files(wanted)).expect("several").proposals {
            let servers = proposal.hardware.metadata_servers;
            assert!(servers > 1 && proposal.hardware.metadata_groups == 1, "{}", proposal.title);
            let fewer = Hardware { metadata_servers: servers - 1, ..proposal.hardware.clone() };
            assert!(
                forecast(&fewer).expect("possible").metadata.files.is_some_and(|files| files.value < wanted)
            );
            let said = format!("metas = {servers} of mgmtd");
            assert!(proposal.reasons.iter().any(|reason| reason.contains(&said)), "{:?}", proposal.reasons);
        }
    }
    for proposal in propose(&files(4e10)).expect("they fit").proposals {
        assert!(proposal.servers.1 <= 1, "{:?}", proposal.servers);
        let names = proposal.hardware.servers.iter().flat_map(|s| &s.targets);
        let names: Vec<_> = names.filter(|group| group.role == crate::hardware::Role::Meta).collect();
        assert!(names.iter().all(|group| group.count == 1 && group.raid == crate::raid::Raid::Raid10));
    }
    // Beyond what one server holds by the rule of 0.3 %: proposed, and said.
    let large = Requirements { capacity: Some(Size(300_000_000_000_000_000)), ..Requirements::default() };
    for proposal in propose(&large).expect("proposals").proposals {
        assert!(proposal.reasons.iter().any(|reason| reason.contains("less than the rule (001: 0.3 %")));
    }
    let mirror = Requirements { availability: Availability::Mirror, ..large };
    let lines = propose(&mirror).expect_err("no mirrors");
    assert!(lines[0].starts_with("availability: ") && lines[0].contains("write raid"), "{lines:?}");
    assert!(propose(&Requirements { software: Software::Beegfs, ..mirror }).is_ok());
}

fn drives(server: &crate::hardware::Server, role: crate::hardware::Role) -> u32 {
    let groups = server.targets.iter().filter(|group| group.role == role);
    groups.map(|group| group.count * group.drives + group.spares).sum()
}

/// Goal: no server has more drives than slots, whatever names take; only as many servers as hold names have drives for them,
/// and only they are paid for.
#[test]
fn drives_fit_their_slots() {
    use crate::hardware::Role;
    let mut fullest = 0;
    for (files, capacity, given) in
        [(1e6, 1e13, None), (4e10, 1e13, None), (1e9, 2e16, None), (3e9, 3e15, Some(3)), (1e12, 1e15, None)]
    {
        let requirements = Requirements {
            files: Some(files),
            capacity: Some(Size(capacity as u64)),
            metadata_servers: given,
            prices: Some(prices()),
            show: requirements::SHOWN_MAX,
            ..Requirements::default()
        };
        for proposal in propose(&requirements).expect("proposals").proposals {
            let block = BLOCKS.iter().find(|block| block.name == proposal.block).expect("a block");
            let of_block = || proposal.hardware.servers.iter().filter(|s| s.name.starts_with(block.name));
            for server in of_block() {
                let (names, contents) = (drives(server, Role::Meta), drives(server, Role::Storage));
                assert!(contents > 0 && names + contents <= block.slots, "{}: {server:?}", proposal.title);
                fullest = fullest.max(names);
            }
            let (storage, metadata) = proposal.servers;
            let number: u32 = of_block().map(|server| server.count).sum();
            assert_eq!(number, storage, "{}", proposal.title);
            let with = proposal.hardware.servers.iter().filter(|s| s.roles.contains(&Role::Meta));
            let with: Vec<_> = with.collect();
            let holders: u32 = with.iter().map(|server| server.count).sum();
            assert_eq!(holders, proposal.hardware.metadata_servers, "{}", proposal.title);
            assert!(holders > 1 || files < 1e12, "{}", proposal.title);
            assert_eq!(given.unwrap_or(holders), holders, "{}", proposal.title);
            assert_eq!(metadata, if proposal.layout == Servers::Dedicated { holders } else { 0 });
            let paid: u64 = proposal
                .hardware
                .servers
                .iter()
                .map(|s| u64::from(s.count) * u64::from(drives(s, Role::Meta) + drives(s, Role::Storage)))
                .sum();
            assert_eq!(paid, proposal.drives);
            let cost = proposal.forecast.cost.as_ref().expect("a cost");
            assert!(cost.unpriced.is_empty(), "{}: {:?}", proposal.title, cost.unpriced);
        }
    }
    assert!(fullest >= 14, "{fullest}: names that take many slots are among them");
}

/// Goal: the slots that names leave are used: by groups a little smaller when the server is alone, by groups as large as
/// the others' when it is not, because a striped file waits for the smallest target.
#[test]
fn shapes() {
    let block = |name: &str| BLOCKS.iter().find(|block| block.name == name).expect("a block");
    let requirements = Requirements { write: Some(Rate::gb(1.0)), ..Requirements::default() };
    let shape = |name: &str, pairs: u32, beside: bool| {
        let found = blocks::shape(block(name), pairs, beside, &requirements);
        (found.groups, found.drives)
    };
    assert_eq!(shape("nvme-12", 0, false), (2, 6));
    assert_eq!(shape("nvme-12", 1, false), (2, 5));
    assert_eq!(shape("nvme-12", 1, true), (1, 6));
    assert_eq!(shape("nvme-12", 4, true), (1, 4), "a whole group does not fit");
    assert_eq!(shape("hdd-60", 1, false), (5, 11));
    assert_eq!(shape("hdd-60", 8, true), (3, 12));
    let most = |name: &str, layout| blocks::pairs_max(block(name), layout, &requirements);
    assert_eq!(most("nvme-12", Servers::Combined), 4, "a raidz2 has four drives at least");
    assert_eq!(most("nvme-12", Servers::Dedicated), blocks::PAIRS_MAX);
    let text = propose(&requirements).expect("proposals").text();
    assert!(
        text.contains(
            "drives for names take 2 of the 12 slots of the server and leave 2 targets of 5 drives"
        ),
        "{text}"
    );
    let large = Requirements { capacity: Some(Size(10_000_000_000_000_000)), ..requirements };
    let text = propose(&large).expect("proposals").text();
    assert!(
        text.contains(
            "slots of one server, the others have none, and leave 1 target of 12 drives; 8 stay empty"
        ),
        "{text}"
    );
}

/// Goal: clients that nobody gave are named, and do not hide what servers deliver; those that were given count.
#[test]
fn assumed_clients() {
    let asked = Requirements { capacity: Some(Size(500_000_000_000_000_000)), ..Requirements::default() };
    let found = propose(&asked).expect("proposals");
    assert_eq!(
        (found.clients.count, found.clients.assumed, found.clients.carry),
        (16, true, Rate::gb(160.0))
    );
    let text = found.text();
    assert!(text.contains("Clients: 16 with one 100gbe link each, 160 GB/s together: assumed"), "{text}");
    let lines: Vec<&str> = text.lines().skip(1).take(found.proposals.len()).collect();
    for (proposal, line) in found.proposals.iter().zip(&lines) {
        let (write, read) = (&proposal.forecast.write, &proposal.forecast.read);
        assert_eq!(write.expected, Rate::gb(160.0), "the clients limit the forecast");
        // More than so many servers could not do less than a GB/s each.
        assert!(write.without_clients.0 > 400e9 && read.without_clients.0 > 400e9, "{proposal:?}");
        assert!(line.contains(&write.without_clients.to_string()) && !line.contains(" 160 GB/s"), "{line}");
        let reason = format!(
            "writing {} with clients enough; the 16 assumed ones see 160 GB/s",
            write.without_clients
        );
        assert!(proposal.reasons.contains(&reason), "{:?}", proposal.reasons);
    }
    let given = Requirements { clients: Some(20), ..asked };
    let text = propose(&given).expect("proposals").text();
    assert!(text.contains("Clients: 20 with one 100gbe link each, 200 GB/s together, as given"), "{text}");
    assert!(text.lines().nth(1).is_some_and(|line| line.contains(" 200 GB/s")), "{text}");
}

/// Goal: with clients that grow with what is asked for, what servers deliver too much still counts in the order; no
/// drives for names stand in servers that cannot use them, and the first proposal has the least servers times waste.
#[test]
fn fast_systems_are_ranked_by_their_servers() {
    // 001's drives, of which 24 in raidz2 of six write 24 GB/s.
    let models = Models { hdd: "hdd".to_owned(), ssd: "ssd".to_owned(), nvme: "nvme".to_owned() };
    let asked = Requirements { write: Some(Rate::gb(4000.0)), models, ..Requirements::default() };
    let found = propose(&asked).expect("proposals");
    assert_eq!((found.clients.count, found.clients.assumed), (400, true));
    let first = &found.proposals[0];
    let waste = |proposal: &Proposal| {
        let over = proposal.forecast.write.without_clients.0 / 4000e9;
        assert!(over >= 1.0, "{}", proposal.title);
        let ranked = search::over_provision(&asked, &proposal.forecast);
        assert!((ranked - over).abs() < 1e-9, "{}: {ranked}, not {over}", proposal.title);
        f64::from(proposal.servers.0 + proposal.servers.1) * over
    };
    let servers = f64::from(first.servers.0 + first.servers.1);
    assert!(waste(first) > servers && servers == 167.0, "more than was asked for counts: {}", waste(first));
    for other in &found.proposals {
        assert!(waste(first) <= waste(other) + 1e-3, "{} before {}", first.title, other.title);
        let holding: u32 =
            other.hardware.servers.iter().filter(|s| drives(s, Role::Meta) > 0).map(|s| s.count).sum();
        assert_eq!(holding, 1, "{}: one server holds all names", other.title);
    }
    // 167 servers of 24 carry contents; the names of all take the pairs of one.
    assert!(first.drives < 167 * 24 + 24, "{} drives", first.drives);
}

/// Goal: contents of small files are bought where they lie, on the drives of the metadata server: 5 billion files of 4 kB
/// are 42 TB there, not the 2.4 TB of their names; and what was said to be small is no part of the other drives.
#[test]
fn small_contents_are_bought_as_metadata() {
    let asked = Requirements {
        files: Some(5e9),
        capacity: Some(Size(20_000_000_000_000)),
        ..Requirements::default()
    };
    let by_mean = propose(&asked).expect("proposals");
    let said = propose(&Requirements { file_size: Some(Size(4_000)), ..asked.clone() }).expect("proposals");
    for (found, guessed) in [(&by_mean, true), (&said, false)] {
        for proposal in &found.proposals {
            let metadata = &proposal.forecast.metadata;
            assert!(
                metadata.space.value > 5e9 * (488.0 + 2.0 * 4_000.0),
                "{}: {:?}",
                proposal.title,
                metadata.space
            );
            assert!(metadata.files.as_ref().is_some_and(|files| files.value >= 5e9));
            let told =
                proposal.reasons.iter().find(|reason| reason.contains("of small files lie in the metadata"));
            let told = told.expect("the reason");
            assert_eq!(told.contains("by the mean"), guessed, "{told}");
            assert!(
                proposal.reasons.iter().any(|reason| reason.contains("are in memory")),
                "{:?}",
                proposal.reasons
            );
        }
    }
    let least = |found: &Proposals| {
        found.proposals.iter().map(|p| p.forecast.capacity.usable.value).fold(f64::MAX, f64::min)
    };
    assert!(least(&by_mean) >= 20e12 && asked.contents() == Some(20e12));
    assert_eq!(said.requirements.contents(), None, "all of it lies in the metadata");
    // More than the drives of one server hold.
    let many = Requirements { files: Some(20e9), ..said.requirements.clone() };
    for proposal in propose(&many).expect("several servers").proposals {
        assert!(proposal.hardware.metadata_servers > 1, "{}", proposal.title);
        assert!(proposal.forecast.metadata.files.is_some_and(|files| files.value >= 20e9));
    }
    let lines = propose(&Requirements { metadata_servers: Some(1), ..many }).expect_err("too many");
    assert!(lines[0].starts_with("files: ") && lines[0].contains("1 metadata servers"), "{lines:?}");
    let names = Requirements { files: Some(20e9), ..Requirements::default() };
    let found = propose(&names).expect("names alone fit");
    assert!(found.text().contains("no contents of small files are counted"), "{}", found.text());
}

/// Goal: opens of small files are a requirement: what one thread cannot is given to as few groups as can, what no number of
/// them can is refused by name; sizes of files that make no sense are refused with what to write.
#[test]
fn opens_and_sizes() {
    let opens = |opens: f64| Requirements { opens: Some(opens), ..Requirements::default() };
    assert!(propose(&opens(10e3)).is_ok());
    let lines = propose(&opens(1e6)).expect_err("too many");
    assert!(lines[0].starts_with("opens: ") && lines[0].contains("one thread"), "{lines:?}");
    for proposal in propose(&opens(25e3)).expect("by several groups").proposals {
        let enough = |hardware: &Hardware| {
            forecast(hardware).expect("possible").metadata.opens.is_some_and(|opens| opens.value >= 25e3)
        };
        assert!(enough(&proposal.hardware));
        let groups = proposal.hardware.metadata_groups;
        assert!(groups > 1 && proposal.hardware.metadata_servers == 1, "{}", proposal.title);
        assert!(!enough(&Hardware { metadata_groups: groups - 1, ..proposal.hardware.clone() }));
        assert!(proposal.reasons.iter().any(|reason| reason.contains("work in one has one thread")));
    }
    let files = || Requirements { files: Some(1e6), ..Requirements::default() };
    for (wrong, field) in [
        (Requirements { software: Software::Beegfs, ..opens(1e3) }, "opens: "),
        (Requirements { file_size: Some(Size(1 << 20)), files: None, ..opens(1e3) }, "file_size: "),
        (Requirements { small_part: Some(0.5), ..files() }, "small_part: "),
        (Requirements { small_part: Some(1.5), file_size: Some(Size(1 << 20)), ..files() }, "small_part: "),
        (
            Requirements { small_size: Some(Size(9 << 10)), file_size: Some(Size(1 << 20)), ..files() },
            "small_size: ",
        ),
        (Requirements { inline_limit: Some(Size(1 << 20)), ..files() }, "inline_limit: "),
    ] {
        let lines = propose(&wrong).expect_err(field);
        assert!(lines.iter().any(|line| line.starts_with(field)), "{field} {lines:?}");
    }
}

/// Goal: a proposal says what one lost server means, of each kind that it has, and how much is away.
#[test]
fn a_lost_server_is_told() {
    let asked = Requirements { capacity: Some(Size(2_000_000_000_000_000)), ..Requirements::default() };
    for proposal in propose(&asked).expect("proposals").proposals {
        let lost: Vec<&String> =
            proposal.reasons.iter().filter(|reason| reason.contains(" lost: ")).collect();
        assert_eq!(lost.len(), proposal.hardware.servers.len(), "{:?}", proposal.reasons);
        assert!(lost.iter().any(|said| said.contains("the whole file system stops")), "{lost:?}");
        assert!(lost.iter().any(|said| said.contains("one copy of each chunk")), "{lost:?}");
    }
}

/// Goal: proposals reckon with drives of today, and with others when they are named; rates of one's own count here as in
/// a description; what is no drive is refused with what to write; prices of a kind hold for its drives.
#[test]
fn drives_of_today() {
    let asked = Requirements {
        write: Some(Rate::gb(100.0)),
        drives: vec![Kind::Hdd],
        servers: Some(Servers::Dedicated),
        ..Requirements::default()
    };
    let drives = |requirements: &Requirements| propose(requirements).expect("proposals").proposals[0].clone();
    let today = drives(&asked);
    assert_eq!(today.hardware.servers[0].targets[0].drive, "hdd-24tb");
    let models = Models { hdd: "hdd".to_owned(), ..Models::default() };
    let old = drives(&Requirements { models: models.clone(), ..asked.clone() });
    assert!(old.drives as f64 > 1.6 * today.drives as f64, "{} {}", old.drives, today.drives);
    let text = "write = \"100 GB/s\"\ndrives = [\"hdd\"]\nservers = \"dedicated\"\nmodels = { hdd = \"mine\" }\n\
                [catalogue.drives.mine]\nread = \"250 MB/s\"\nwrite = \"250 MB/s\"\nread_iops = 80\nwrite_iops = 80\n";
    let mine = drives(&Requirements::parse("needs.toml", text).expect("requirements"));
    assert_eq!(mine.hardware.servers[0].targets[0].drive, "mine");
    assert!(mine.drives < old.drives, "{} {}", mine.drives, old.drives);
    assert_eq!(fed_back(&mine).write.expected, mine.forecast.write.expected);
    for (text, named) in [
        ("write = \"1 GB/s\"\nmodels = { hdd = \"dhd\" }", "models.hdd: "),
        ("write = \"1 GB/s\"\n[catalogue.drives.hdd]\nread = \"0 MB/s\"", "catalogue.drives.hdd.read: "),
        ("write = \"1 GB/s\"\nclient_cores = 0\nclients = 2", "client_cores: "),
    ] {
        let wrong = Requirements::parse("needs.toml", text).expect(text).check();
        assert!(wrong.iter().any(|line| line.starts_with(named)), "{named} {wrong:?}");
    }
    let priced = drives(&Requirements { prices: Some(prices()), ..asked });
    assert!(priced.forecast.cost.is_some_and(|cost| cost.unpriced.is_empty()));
    let fast = Models { nvme: "nvme-gen5".to_owned(), ..Models::default() };
    let fast = Requirements {
        read: Some(Rate::gb(100.0)),
        drives: vec![Kind::Nvme],
        models: fast,
        ..Requirements::default()
    };
    let slot = drives(&fast).hardware.servers[0].targets[0].pcie.expect("a slot");
    assert_eq!((slot.generation, slot.lanes), (5, 4));
}

/// Goal: few clients carry no more than their mounts, whatever their links: 100 GB/s through one mount of 400gbe are refused,
/// and clients that nobody gave are as many as mounts take.
#[test]
fn mounts_of_clients_count() {
    let asked = Requirements {
        write: Some(Rate::gb(300.0)),
        client_nic: "400gbe".to_owned(),
        ..Requirements::default()
    };
    let side = propose(&asked).expect("proposals").clients;
    assert_eq!((side.count, side.assumed), (22, true), "300 over 13.9 GB/s, not over 40");
    let lines = propose(&Requirements { clients: Some(8), ..asked.clone() }).expect_err("too few");
    assert!(lines[0].starts_with("write: ") && lines[0].contains("one mount"), "{lines:?}");
    let cores = Requirements { client_cores: Some(2), ..asked };
    assert_eq!(propose(&cores).expect("proposals").clients.count, 43, "300 over 2 cores at 3.55 GB/s");
}

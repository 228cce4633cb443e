use super::*;
use alloc::vec;
use core::iter::empty;
use skep_types::{Name, Term};
use skep_wire::meta::RecallKind;

const TERM_MS: u64 = 4_000;
/// A term, one in a hundred, and the margin.
const PATIENCE: u64 = 4_140;
const SHARD: ShardId = ShardId(3);
const MANY: u64 = 3_000;

struct Table {
    leases: Leases,
    now: Millis,
    next: u64,
    lapses: [u64; 4],
}

fn dir(serial: u64) -> Ino {
    Ino::new(SHARD, serial)
}

fn name(text: &str) -> What {
    What::Name(Name::new(text.as_bytes()).unwrap(), None)
}

impl Table {
    fn new() -> Self {
        let config = Config { lease_ms: TERM_MS, ..Config::default() };
        Self { leases: Leases::new(&config), now: Millis(10_000), next: 0, lapses: [0; 4] }
    }

    /// A question of this client, with its answer: what that lends, and whether it renews.
    fn ask(&mut self, client: u64, ino: Ino) -> (Option<Grant>, bool) {
        self.next += 1;
        let to = self.next;
        self.leases.asked(to, ClientId(client), self.lapses[client as usize], true, self.now);
        let grant = self.leases.grant(to, ino, self.now);
        let renews = self.leases.answered(to, self.now, |_| true).is_some();
        (grant, renews)
    }

    /// What the answer to this client says of ended terms.
    fn ended_of(&mut self, client: u64) -> Option<u64> {
        self.next += 1;
        let (to, lapses) = (self.next, self.lapses[client as usize]);
        self.leases.asked(to, ClientId(client), lapses, false, self.now);
        self.leases.answered(to, self.now, |_| true).map(|time| time.ended)
    }

    /// The client has dropped what is named, and gives the lease back if it is wanted.
    fn obeys(&mut self, client: u64, recall: &Recall) {
        self.leases.confirmed(ClientId(client), recall.number, self.now);
        if recall.wants_back == Some(true) {
            self.leases.give_back(ClientId(client), recall.ino, recall.number);
        }
    }

    fn recall(&mut self, to: u64, client: u64, items: &[(Ino, What)]) -> (Option<u64>, Vec<(u64, Recall)>) {
        let conflict = Conflict { to, client: ClientId(client), shard: SHARD, term: Term(5), now: self.now };
        let (wait, told) = self.leases.recall(conflict, &items.iter().cloned().collect());
        (wait, told.into_iter().map(|(client, recall)| (client.0, recall)).collect())
    }
}

/// Goal: what a change touches is taken back from all but the one who changes it, once, however many want to change it; there
/// are no grants until the last of them has its answer; what was confirmed is not asked for again meanwhile, and is after it.
#[test]
fn a_name_is_taken_back_and_the_lease_stays() {
    let mut table = Table::new();
    for client in [1, 2, 3] {
        table.ask(client, dir(7)).0.unwrap();
    }
    let items = [(dir(7), name("a"))];
    let (first, told) = table.recall(100, 1, &items);
    assert_eq!(told.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [2, 3]);
    let (second, more) = table.recall(101, 3, &items);
    assert_eq!(more.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [1], "2 was told, 3 asks");
    assert_eq!(table.ask(2, dir(7)), (None, true));
    table.leases.check();
    assert!(told.iter().all(|(_, recall)| (recall.kind, recall.ino) == (RecallKind::Name, dir(7))));
    table.leases.confirmed(ClientId(2), told[0].1.number, table.now);
    table.leases.confirmed(ClientId(2), told[0].1.number, table.now);
    assert!(table.leases.take_over().is_empty());
    table.leases.confirmed(ClientId(3), told[1].1.number, table.now);
    assert_eq!(table.leases.take_over(), [(SHARD, first.unwrap())]);
    assert_eq!(table.recall(100, 1, &items), (None, vec![]), "all have dropped it");
    table.leases.release(100);
    assert_eq!(table.ask(2, dir(7)).0, None, "the other one has not run");
    table.leases.confirmed(ClientId(1), more[0].1.number, table.now);
    assert_eq!(table.leases.take_over(), [(SHARD, second.unwrap())]);
    assert_eq!(table.recall(101, 3, &items), (None, vec![]));
    table.leases.release(101);
    table.leases.check();
    let (grant, _) = table.ask(2, dir(7));
    assert!(grant.unwrap().number > told[1].1.number);
    assert!(table.leases.has(ClientId(3), dir(7)), "the lease stayed");
    assert_eq!(table.recall(102, 1, &items).1.len(), 2, "they may have heard of it again");
}

/// Goal: a request that is given up takes its recalls with it only when they are confirmed; what goes as a whole ends the
/// lease; a lease given back stays when a newer grant is on its way.
#[test]
fn leases_end_by_everything_and_by_giving_back() {
    let mut table = Table::new();
    let grant = table.ask(2, dir(7)).0.unwrap();
    let (_, told) = table.recall(100, 1, &[(dir(7), What::Everything)]);
    table.leases.abandoned(100);
    assert_eq!(table.ask(2, dir(7)).0, None, "its recall is out");
    table.leases.confirmed(ClientId(2), told[0].1.number, table.now);
    table.leases.check();
    assert!(!table.leases.has(ClientId(2), dir(7)));
    let again = table.ask(2, dir(7)).0.unwrap();
    assert!(again.number > grant.number);
    table.leases.give_back(ClientId(2), dir(7), grant.number);
    assert!(table.leases.has(ClientId(2), dir(7)));
    table.leases.give_back(ClientId(2), dir(7), again.number);
    assert!(!table.leases.others(dir(7), ClientId(1)));
    table.leases.check();
}

/// Goal: who gives a lease back while some of it is taken back confirms that with it: having no lease it may never hear of it.
#[test]
fn giving_back_confirms() {
    let mut table = Table::new();
    let grant = table.ask(2, dir(7)).0.unwrap();
    let (wait, told) = table.recall(100, 1, &[(dir(7), name("a"))]);
    table.leases.give_back(ClientId(2), dir(7), grant.number - 1);
    assert!(table.leases.take_over().is_empty(), "it has not heard of a grant");
    table.leases.give_back(ClientId(2), dir(7), grant.number);
    assert_eq!(table.leases.take_over(), [(SHARD, wait.unwrap())]);
    table.leases.confirmed(ClientId(2), told[0].1.number, table.now);
    table.leases.release(100);
    table.leases.check();
    assert!(table.ask(2, dir(7)).0.is_some());
}

/// Goal: of many names of one directory the first are named; then the lease is wanted back, and the other changes wait for that
/// one, so no more is kept. Whether it is given back with it, or each of these is named when the one before it was confirmed:
/// all of them run, and nothing is left; who keeps it so is not one conflict more with each of them.
#[test]
fn recalls_of_one_inode_are_bounded() {
    for (keeps, many) in [(false, MANY), (true, 100)] {
        let mut table = Table::new();
        table.ask(2, dir(7)).0.unwrap();
        let (mut out, mut told) = (Vec::new(), 0);
        let mut waiting: Vec<u64> = (0..many).collect();
        let mut run = |table: &mut Table, n: u64, out: &mut Vec<Recall>| {
            let (waits, recalls) = table.recall(100 + n, 1, &[(dir(7), name(&alloc::format!("n{n}")))]);
            told += recalls.len();
            out.extend(recalls.into_iter().map(|(_, recall)| recall));
            if waits.is_none() {
                table.leases.release(100 + n);
            }
            waits.is_some()
        };
        while !waiting.is_empty() {
            waiting.retain(|n| run(&mut table, *n, &mut out));
            assert!(out.len() <= 9, "{}", out.len());
            table.leases.check();
            for recall in out.drain(..) {
                match keeps {
                    true => table.leases.confirmed(ClientId(2), recall.number, table.now),
                    false => table.obeys(2, &recall),
                }
            }
            table.leases.take_over();
        }
        assert_eq!(told, if keeps { many as usize } else { 9 });
        assert_eq!(table.leases.has(ClientId(2), dir(7)), keeps);
        assert_eq!(table.leases.counts(table.now).busy, 0);
        table.leases.check();
        assert!(table.ask(2, dir(7)).0.is_some());
    }
}

/// Goal: who is silent is waited for until nobody can use anything any more, and not longer; who comes late is neither
/// renewed nor lent anything before he says that he has dropped all.
#[test]
fn who_is_silent_is_passed_over() {
    let mut table = Table::new();
    table.ask(2, dir(7)).0.unwrap();
    table.now.0 += 1_000;
    assert!(table.ask(2, dir(8)).1);
    let (wait, told) = table.recall(100, 1, &[(dir(7), What::Attributes)]);
    assert!(table.leases.deadline().is_some());
    table.now.0 += PATIENCE - 1;
    assert!(table.leases.expire(table.now).is_empty());
    table.now.0 += 1;
    assert!(table.leases.deadline().is_some_and(|at| at <= table.now));
    assert_eq!(table.leases.expire(table.now), [ClientId(2)]);
    assert_eq!(table.leases.take_over(), [(SHARD, wait.unwrap())]);
    assert_eq!((table.leases.has(ClientId(2), dir(7)), table.leases.deadline()), (false, None));
    table.leases.release(100);
    table.leases.confirmed(ClientId(2), told[0].1.number, table.now);
    assert_eq!(table.ask(2, dir(7)), (None, false));
    table.lapses[2] = 1;
    table.leases.listens(ClientId(7));
    assert!(
        ![false, true].iter().any(|listens| table.leases.may_lend(ClientId(2), *listens)),
        "he might not hear"
    );
    table.leases.listens(ClientId(2));
    assert!(table.leases.may_lend(ClientId(2), false));
    assert!(matches!(table.ask(2, dir(7)), (Some(_), true)));
    assert!(!table.leases.may_lend(ClientId(2), false), "he has something, and does not listen");
    table.lapses[2] = 0;
    assert_eq!(table.ask(2, dir(8)), (None, false), "a late one");
    table.leases.check();
}

/// Goal: who talks and does not confirm is not renewed any more after a term, and is passed over after one more; what he
/// confirms before has him renewed.
#[test]
fn who_does_not_confirm_is_not_renewed() {
    let mut table = Table::new();
    table.ask(2, dir(7)).0.unwrap();
    let (wait, told) = table.recall(100, 1, &[(dir(7), What::Attributes)]);
    let begun = table.now;
    while table.leases.take_over().is_empty() {
        table.now.0 += 100;
        let due = table.now >= begun.plus(TERM_MS);
        assert_eq!(table.ask(2, dir(8)).1, !due);
        table.leases.expire(table.now);
    }
    assert!(wait.is_some() && table.now.since(begun) <= 2 * PATIENCE);
    table.leases.check();
    table.leases.confirmed(ClientId(2), told[0].1.number, table.now);
    table.leases.release(100);
    table.lapses[2] = 1;
    assert!(table.ask(2, dir(7)).0.is_some());
    let (_, told) = table.recall(101, 1, &[(dir(7), What::Attributes)]);
    table.now.0 += TERM_MS + 10;
    assert!(!table.ask(2, dir(7)).1);
    table.leases.confirmed(ClientId(2), told[0].1.number, table.now);
    assert!(table.ask(2, dir(7)).1, "in time");
}

/// Goal: who says that all has lapsed, while it was told to drop something and has not confirmed that, is lent nothing before it
/// listens: it talks, and may be unable to hear. Who lapses with nothing to confirm is.
#[test]
fn who_lapses_over_a_recall_listens_first() {
    let mut table = Table::new();
    let may_lend = |table: &Table| table.leases.may_lend(ClientId(2), false);
    for told in [false, true] {
        table.ask(2, dir(7)).0.unwrap();
        let wait = if told { table.recall(100, 1, &[(dir(7), What::Attributes)]).0 } else { None };
        table.lapses[2] += 1;
        assert!(table.ended_of(2).is_some());
        let over: Vec<(ShardId, u64)> = wait.into_iter().map(|wait| (SHARD, wait)).collect();
        assert_eq!((table.leases.take_over(), may_lend(&table)), (over, !told));
        table.leases.release(100);
    }
    table.lapses[2] += 1;
    assert!(table.ended_of(2).is_some() && !may_lend(&table), "it has not listened since");
    table.leases.listens(ClientId(2));
    assert!(may_lend(&table));
    table.leases.check();
}

/// Goal: with the end of a term its leases are gone, and renewals say that one has ended.
#[test]
fn a_term_takes_its_leases_with_it() {
    let mut table = Table::new();
    let elsewhere = Ino::new(ShardId(4), 7);
    table.ask(2, dir(7)).0.unwrap();
    table.ask(2, elsewhere).0.unwrap();
    table.recall(100, 1, &[(dir(7), What::Attributes)]);
    table.leases.end_shard(SHARD, empty());
    table.leases.release(100);
    table.leases.check();
    assert!(table.leases.take_over().is_empty(), "what waited has been answered");
    assert!(!table.leases.has(ClientId(2), dir(7)) && table.leases.has(ClientId(2), elsewhere));
    assert_eq!(table.ended_of(2), Some(1));
}

/// Goal: a term that ends has only those lapse who have leases of it; what anybody is told never goes back.
#[test]
fn who_had_nothing_of_a_term_keeps_what_he_has() {
    let mut table = Table::new();
    let elsewhere = Ino::new(ShardId(4), 7);
    table.ask(2, dir(7)).0.unwrap();
    table.ask(2, elsewhere).0.unwrap();
    table.ask(3, elsewhere).0.unwrap();
    let back = table.ask(3, dir(8)).0.unwrap();
    table.leases.give_back(ClientId(3), dir(8), back.number);
    table.leases.end_shard(SHARD, empty());
    assert_eq!([2, 3].map(|client| table.ended_of(client)), [Some(1), Some(0)]);
    table.lapses[2] = 1;
    assert_eq!(table.ended_of(2), Some(1), "a lapse of its own");
    table.leases.end_shard(SHARD, empty());
    assert_eq!([2, 3].map(|client| table.ended_of(client)), [Some(1), Some(0)], "nobody had anything");
    table.leases.end_shard(ShardId(4), empty());
    assert_eq!([2, 3].map(|client| table.ended_of(client)), [Some(1), Some(3)]);
    assert_eq!(table.ended_of(1), Some(3), "a new one");
    table.now.0 += 3 * PATIENCE;
    table.leases.expire(table.now);
    assert_eq!(table.ended_of(2), Some(3), "it was forgotten");
}

/// Goal: who holds files of a term that ends has all lapse as well, whether it has leases of it or not: it is heard of by another
/// server from then on.
#[test]
fn who_held_files_of_a_term_is_told() {
    let mut table = Table::new();
    let elsewhere = Ino::new(ShardId(4), 7);
    (1..4).for_each(|client| assert!(table.ask(client, elsewhere).0.is_some()));
    table.ask(2, dir(7)).0.unwrap();
    table.leases.end_shard(SHARD, [1, 2].map(ClientId).into_iter());
    assert_eq!([1, 2, 3].map(|client| table.ended_of(client)), [Some(1), Some(1), Some(0)]);
}

/// Goal: what ends together counts as nothing at once, is told to nobody and waited for by nobody; it is taken apart so many at
/// a time, and what was given anew stays.
#[test]
fn what_ends_together_is_swept_step_by_step() {
    let all = 3 * LEASES_SWEPT_PER_STEP as u64;
    for of_shard in [true, false] {
        let mut table = Table::new();
        for serial in 0..all {
            table.ask(2, dir(serial)).0.unwrap();
        }
        match of_shard {
            true => table.leases.end_shard(SHARD, empty()),
            false => table.lapses[2] = 1,
        }
        let anew = table.ask(2, dir(7)).0.unwrap();
        assert!(!table.leases.others(dir(8), ClientId(1)) && table.leases.others(dir(7), ClientId(1)));
        assert_eq!(table.recall(900_000, 1, &[(dir(8), What::Everything)]), (None, vec![]));
        assert_eq!(table.leases.gauges(table.now)[0], ("leases", 1));
        let mut steps = 0;
        while !table.leases.is_swept() {
            assert_eq!(table.leases.holders.kept() as u64, all - steps * LEASES_SWEPT_PER_STEP as u64 + 1);
            table.leases.sweep();
            table.leases.check();
            steps += 1;
        }
        assert_eq!((steps, table.leases.holders.kept()), (3, 1));
        assert_eq!(table.recall(900_001, 1, &[(dir(7), What::Everything)]).1.len(), 1);
        table.leases.give_back(ClientId(2), dir(7), anew.number);
        assert!(!table.leases.others(dir(7), ClientId(1)));
    }
}

/// Goal: a directory that somebody keeps changing which another one has is wanted back from that one, and lent to nobody
/// while they go on; changes cost nothing then.
#[test]
fn what_several_keep_changing_is_lent_to_nobody() {
    let mut table = Table::new();
    table.ask(2, dir(7)).0.unwrap();
    let mut told = 0;
    for n in 0..100 {
        table.now.0 += 20;
        let (wait, recalls) = table.recall(100 + n, 1, &[(dir(7), name(&alloc::format!("n{n}")))]);
        assert_eq!(wait.is_some(), !recalls.is_empty());
        recalls.iter().for_each(|(client, recall)| table.obeys(*client, recall));
        table.leases.take_over();
        table.leases.release(100 + n);
        told += recalls.len();
        table.ask(2, dir(7));
        table.leases.check();
    }
    assert!((8..12).contains(&told), "{told}");
    assert!(!table.leases.has(ClientId(2), dir(7)));
    table.now.0 += 10_000;
    assert!(table.ask(2, dir(7)).0.is_some(), "cached again within ten seconds of quiet");
}

/// Goal: who has looked at a directory once, and no more, is to give it back when somebody else changes it again and again;
/// that one has it all the time, and so has who comes back once.
#[test]
fn who_looks_no_more_loses_it_and_who_changes_keeps_it() {
    let mut table = Table::new();
    table.ask(2, dir(7)).0.unwrap();
    let mut told = 0;
    for n in 0..100 {
        let (_, recalls) = table.recall(100 + n, 1, &[(dir(7), name(&alloc::format!("n{n}")))]);
        recalls.iter().for_each(|(client, recall)| table.obeys(*client, recall));
        table.leases.take_over();
        table.leases.release(100 + n);
        told += recalls.len();
        assert!(table.ask(1, dir(7)).0.is_some(), "change {n}");
        if n == 50 {
            table.now.0 += 1_000;
            assert!(table.ask(2, dir(7)).0.is_some());
        }
    }
    assert_eq!(told, 8 + 1 + 2 + 1, "named, and wanted back, twice");
    assert!(!table.leases.has(ClientId(2), dir(7)));
    table.leases.check();
}

/// Goal: who goes on keeping what is wanted back is to give up all of it after a while, also when others come for it and give it
/// back; one who keeps it for long because nobody changed anything is asked as before.
#[test]
fn who_keeps_what_is_wanted_back_loses_it() {
    for others in [false, true] {
        let mut table = Table::new();
        table.ask(2, dir(7)).0.unwrap();
        let mut wanted = Vec::new();
        for n in 0..200 {
            let (_, recalls) = table.recall(100 + n, 1, &[(dir(7), name(&alloc::format!("n{n}")))]);
            for (client, recall) in recalls {
                if client == 2 {
                    wanted.extend(recall.wants_back.map(|_| (table.now, recall.kind)));
                    table.leases.confirmed(ClientId(2), recall.number, table.now);
                } else {
                    table.obeys(client, &recall);
                }
            }
            table.leases.take_over();
            table.leases.release(100 + n);
            table.leases.check();
            if others && n % 10 == 0 {
                table.ask(3, dir(7));
            }
            // Often at first, as it is wanted only then; and later often enough.
            table.now.0 += if n < 8 { 1 } else { 80 };
            if n == 20 {
                assert!(table.leases.has(ClientId(2), dir(7)));
                table.now.0 += 60_000;
                (0..7).for_each(|n| table.leases.busy.recalls(dir(7), ClientId(1), n, table.now));
            }
        }
        assert!(!table.leases.has(ClientId(2), dir(7)));
        let last = wanted.len() - 1;
        let all = wanted.iter().position(|(_, kind)| *kind == RecallKind::Everything);
        assert_eq!(all, Some(last), "{wanted:?}");
        let again = wanted.iter().find(|(at, _)| *at >= Millis(60_000)).unwrap();
        assert_eq!(again.1, RecallKind::Name);
        let kept = wanted[last].0.since(again.0);
        assert!((1_500..4_000).contains(&kept), "{kept}");
    }
}

/// Goal: it is told who keeps changes waiting for longest, for how long, and with what; nobody, when all have confirmed.
#[test]
fn who_holds_up_changes_is_told() {
    let mut table = Table::new();
    assert!(table.ask(3, dir(7)).0.is_some() && table.ask(2, dir(8)).0.is_some());
    let slowest = |table: &Table| {
        let gauges = table.leases.gauges(table.now);
        ["oldest_recall_ms", "oldest_recall_client", "oldest_recall_inode"]
            .map(|name| gauges.iter().find(|gauge| gauge.0 == name).unwrap().1)
    };
    assert_eq!(slowest(&table), [0, 0, 0]);
    let first = table.recall(100, 1, &[(dir(7), name("a"))]).1;
    table.now.0 += 1_500;
    let second = table.recall(101, 1, &[(dir(8), name("a"))]).1;
    table.now.0 += 500;
    assert_eq!(slowest(&table), [2_000, 3, dir(7).0]);
    table.leases.confirmed(ClientId(3), first[0].1.number, table.now);
    assert_eq!(slowest(&table), [500, 2, dir(8).0]);
    table.leases.confirmed(ClientId(2), second[0].1.number, table.now);
    assert_eq!(slowest(&table), [0, 0, 0]);
}

mod model;

/// Goal: each limit has its own say: with one more lease of the group, of the client, or of the directory there would be too many, so
/// the answer lends nothing, though who has one has it renewed; with one given back there is room again.
#[test]
fn no_limit_is_passed() {
    let limited = |limits: Limits| {
        let config = Config { lease_ms: TERM_MS, limits, ..Config::default() };
        Table { leases: Leases::new(&config), ..Table::new() }
    };
    let most = Limits::default;
    // Who has one of which directory before; who asks for one more, and for which; who gives one back.
    let cases = [
        ("group", Limits { leases: 3, ..most() }, [(1, 1), (1, 2), (2, 1)], (3, 9), (1, 2)),
        ("client", Limits { leases_per_client: 2, ..most() }, [(1, 1), (1, 2), (2, 1)], (1, 9), (1, 1)),
        ("directory", Limits { lease_holders: 2, ..most() }, [(1, 1), (1, 2), (2, 1)], (3, 1), (2, 1)),
    ];
    for (what, limits, before, (asks, of), (gives, back)) in cases {
        let mut table = limited(limits);
        let numbers = before.map(|(client, serial)| table.ask(client, dir(serial)).0.expect(what).number);
        assert_eq!(table.ask(asks, dir(of)), (None, true), "{what}");
        for (client, serial) in before {
            assert!(table.ask(client, dir(serial)).0.is_some(), "{what}: who has one keeps it");
        }
        assert_eq!(table.leases.counts(table.now).held, before.len(), "{what}");
        let newest = table.next.max(numbers[2]) + 1;
        table.leases.give_back(ClientId(gives), dir(back), newest);
        assert!(table.ask(asks, dir(of)).0.is_some(), "{what}: there is room again");
        assert_eq!(table.leases.counts(table.now).held, before.len(), "{what}");
        table.leases.check();
    }
    // Others are not bounded by what a client has, nor is another directory by who has this one.
    let mut table = limited(Limits { leases_per_client: 1, lease_holders: 1, ..most() });
    for client in 1..=3 {
        assert!(table.ask(client, dir(client)).0.is_some(), "client {client}");
    }
}

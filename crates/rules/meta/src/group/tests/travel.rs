//! Shards that move between servers: whole, whatever is lost on the way, and never away from the only copy.

mod gone;

use super::*;
use crate::store::{MemoryStore, Store};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::log::{EntryKind, Record};
use skep_types::{MapVersion, NodeId};
use skep_wire::meta::{
    AskHistory, AskHistoryReply, FetchRows, MetaRequest, Prepare, PrepareReply, RowsReply, TxnId, TxnOp,
    TxnRefused, TxnRetireDir, Vote,
};
use skep_wire::mgmt::{MapReply, ShardAt, ShardState};
use skep_wire::{Refusal, Status};

const THERE: NodeId = NodeId(9);
const SHARD: ShardId = ShardId(0);

fn config() -> Config {
    let mut config = Config::default();
    config.limits.travel_rows = 2;
    config
}

/// The server that a shard goes to.
struct Other {
    own: NodeId,
    server: Group<MemoryStore>,
    log: Vec<Record>,
    now: u64,
    tasks: Vec<Task>,
    warnings: Vec<String>,
}

impl Other {
    /// With what is left of its log.
    fn new(log: &[Record]) -> Self {
        let mut server = Group::new(config(), MemoryStore::default()).unwrap();
        log.iter().for_each(|record| server.replay(record).unwrap());
        server.start();
        Self { own: THERE, server, log: log.to_vec(), now: 50_000, tasks: vec![], warnings: vec![] }
    }

    fn step(&mut self, input: Input) -> Vec<Reply> {
        let mut out = Output::default();
        self.now += 10;
        self.server.step(Millis(self.now), Timestamp::default(), input, &mut out).unwrap();
        self.log.extend(out.records);
        self.tasks.extend(out.tasks);
        self.warnings.extend(out.warnings);
        out.replies
    }

    fn told(&mut self, map: &MapReply, bed: &Bed) {
        self.step(Input::Map { own: self.own, map: map.clone() });
        self.step(Input::Fences(bed.fences(&[1])));
    }

    /// Fetches until there is nothing more to do.
    fn fetch(&mut self, from: &mut Bed) {
        for _ in 0..200 {
            self.step(Input::Tick);
            for task in core::mem::take(&mut self.tasks) {
                let Job::Fetch { shard, epoch, message, .. } = task.job else { continue };
                let result = fetch(from, self.own, shard, epoch, message).map(JobReply::Rows);
                let result = result.map_err(|refusal| JobFailure(refusal.to_string()));
                self.step(Input::Courier { task: task.id, result });
            }
            self.step(Input::Durable(self.server.last_seq()));
        }
    }
}

/// Another server asks.
fn ask(
    bed: &mut Bed,
    by: NodeId,
    shard: ShardId,
    epoch: u64,
    message: MetaRequest,
) -> Result<Vec<u8>, Refusal> {
    let to = bed.next_reply;
    bed.next_reply += 1;
    let peer =
        PeerIdentity { role: Role::Server, client: ClientId(0), incarnation: Incarnation(1), node: by };
    let call = ShardCall { shard, epoch, ..ShardCall::default() };
    bed.step(Input::Request(Request { reply_to: to, peer, epoch: FenceEpoch(0), call, message }));
    bed.replies[&to].1.clone()
}

fn fetch(
    bed: &mut Bed,
    by: NodeId,
    shard: ShardId,
    epoch: u64,
    message: FetchRows,
) -> Result<RowsReply, Refusal> {
    ask(bed, by, shard, epoch, message.into()).map(|body| RowsReply::from_bytes(&body).unwrap())
}

/// A shard of another server wants to remove a directory of the first shard.
fn ask_for_vote(bed: &mut Bed, epoch: u64) -> Result<Vote, Status> {
    let txid = TxnId { shard: ShardId(5), term: Term(1), counter: 1 };
    let ops = vec![TxnOp::RetireDir(TxnRetireDir { ino: Ino::new(SHARD, 99), parent: Ino::ROOT })];
    let message = Prepare { txid, floor: txid, age: Timestamp::default(), ops };
    let answer = ask(bed, THERE, SHARD, epoch, message.into());
    answer.map(|body| PrepareReply::from_bytes(&body).unwrap().vote).map_err(|refusal| refusal.status)
}

/// The first part, for who has no copy.
fn first() -> FetchRows {
    FetchRows { behind: Bytes(vec![]), term: Term(0), index: LogIndex(0) }
}

/// The first shard, in this state, of these servers, led by the last.
fn placed(state: ShardState, members: &[NodeId], epoch: u64) -> MapReply {
    let mut map = MapReply { version: MapVersion(epoch + 10), ..map(2, 5) };
    let entry = &mut map.shards[0];
    (entry.members, entry.leader) = (members.to_vec(), *members.last().unwrap());
    (entry.state, entry.epoch) = (state, epoch);
    map
}

/// All rows of the shard but the header, which says where it is.
fn rows(store: &MemoryStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = vec![];
    let (from, until) = (crate::key::header(SHARD), crate::key::header(ShardId(1)));
    store
        .scan(&from, &until, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    rows.retain(|(key, _)| *key != from);
    rows
}

/// A server with two shards, of which the first is to go.
fn source() -> (Bed, MapReply) {
    source_with(config())
}

fn source_with(config: Config) -> (Bed, MapReply) {
    let mut bed = Bed::with(config, 2);
    let dir = bed.mkdir(Ino::ROOT, "d");
    for number in 0..5 {
        bed.create(ME, dir, &format!("f{number}"));
    }
    let (ino, _) = bed.grown("open", 1);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    let moving = placed(ShardState::Moving, &[OWN, THERE], 2);
    bed.step(Input::Map { own: OWN, map: moving.clone() });
    (bed, moving)
}

/// Goal: what is fetched is what was there; nobody is served until mgmtd has heard of it; whoever asks the old server is sent
/// on; the old server lets its rows go once the new one serves a later term, and keeps its other shard.
#[test]
fn a_shard_travels_whole() {
    let (mut bed, moving) = source();
    let mut other = Other::new(&[]);
    other.told(&moving, &bed);
    other.fetch(&mut bed);
    assert_eq!(other.server.formatted(), [ShardAt { shard: SHARD, epoch: 2 }]);
    assert_eq!(rows(other.server.store()), rows(bed.server.store()));
    assert!(!other.server.has_term(SHARD) && !bed.server.has_term(SHARD));
    assert_eq!(bed.call(ME, GetAttr { ino: Ino::ROOT }).unwrap_err(), Status::NOT_LEADER);
    let before = bed.term();
    let active = placed(ShardState::Active, &[THERE], 3);
    bed.courier_works = false;
    bed.step(Input::Map { own: OWN, map: active.clone() });
    let asked = |bed: &Bed| {
        let asks = |task: &&Task| matches!(task.job, Job::Shard { message: ShardMessage::AskHistory(_), .. });
        bed.tasks.iter().find(asks).map(|task| task.id)
    };
    let task = asked(&bed).unwrap();
    bed.step(Input::Courier { task, result: Ok(JobReply::History(false)) });
    assert!(bed.warnings.last().unwrap().contains("stay") && !rows(bed.server.store()).is_empty());
    // The same is found out with each newer map, and told once.
    let told = bed.warnings.len();
    bed.tasks.clear();
    bed.step(Input::Map { own: OWN, map: MapReply { version: MapVersion(19), ..active.clone() } });
    let task = asked(&bed).unwrap();
    bed.step(Input::Courier { task, result: Ok(JobReply::History(false)) });
    assert_eq!(bed.warnings.len(), told, "{:?}", bed.warnings);
    other.told(&active, &bed);
    other.step(Input::Durable(other.server.last_seq()));
    assert!(other.server.is_ready() && other.server.standing(SHARD).unwrap().term > before);
    let answer = |other: &mut Other, index| {
        let peer =
            PeerIdentity { role: Role::Server, client: ClientId(0), incarnation: Incarnation(1), node: OWN };
        let call = ShardCall { shard: SHARD, ..ShardCall::default() };
        let message = AskHistory { term: before, index }.into();
        let ask = Request { reply_to: 7, peer, epoch: FenceEpoch(0), call, message };
        let reply = other.step(Input::Request(ask)).pop().unwrap().result.unwrap();
        AskHistoryReply::from_bytes(&reply).unwrap().holds
    };
    let last = bed.last();
    assert!(answer(&mut other, last) && !answer(&mut other, LogIndex(last.0 + 1)));
    bed.tasks.clear();
    bed.step(Input::Map { own: OWN, map: MapReply { version: MapVersion(20), ..active } });
    let task = asked(&bed).unwrap();
    bed.step(Input::Courier { task, result: Ok(JobReply::History(true)) });
    assert_eq!(bed.server.shards().collect::<Vec<_>>(), [ShardId(1)]);
    while bed.server.moves_under_way() > 0 {
        bed.tick(10);
    }
    assert!(rows(bed.server.store()).is_empty());
    assert!(bed.server.has_term(ShardId(1)));
    for kept in 0..=bed.log.len() {
        let mut again = Group::new(config(), MemoryStore::default()).unwrap();
        bed.log[..kept].iter().for_each(|record| again.replay(record).unwrap());
    }
}

/// Goal: wherever the log of the new server ends after a power cut, the journey ends with the same rows.
#[test]
fn a_journey_goes_on_after_any_cut() {
    let (mut bed, moving) = source();
    let mut whole = Other::new(&[]);
    whole.told(&moving, &bed);
    whole.fetch(&mut bed);
    assert!(whole.log.len() > 8 && whole.log.iter().any(|record| record.kind == EntryKind::Rows));
    for kept in 0..=whole.log.len() {
        let mut other = Other::new(&whole.log[..kept]);
        other.told(&moving, &bed);
        other.fetch(&mut bed);
        assert_eq!(other.server.formatted(), [ShardAt { shard: SHARD, epoch: 2 }], "cut to {kept}");
        assert_eq!(rows(other.server.store()), rows(bed.server.store()), "cut to {kept}");
        // It goes back where it was, and comes once more.
        let back = placed(ShardState::Active, &[OWN], 3);
        other.told(&back, &bed);
        let again = MapReply { version: MapVersion(30), ..placed(ShardState::Moving, &[OWN, THERE], 5) };
        other.told(&again, &bed);
        assert!(other.server.formatted().is_empty(), "what came by an earlier order does not count");
    }
}

/// Goal: a part is told only to the server that the map names, at the epoch of the map, and only once all that was ever
/// answered is on stable storage.
#[test]
fn rows_are_told_to_nobody_else() {
    let (mut bed, _) = source();
    let ask =
        |bed: &mut Bed, by, epoch| fetch(bed, by, SHARD, epoch, first()).map_err(|refusal| refusal.status);
    assert_eq!(ask(&mut bed, NodeId(8), 2), Err(Status::NOT_READY));
    assert_eq!(ask(&mut bed, THERE, 1), Err(Status::NOT_READY));
    assert_eq!(ask(&mut bed, THERE, 3), Err(Status::NOT_READY));
    assert!(core::mem::take(&mut bed.wants_map));
    assert!(ask(&mut bed, THERE, 2).is_ok());
    assert!(fetch(&mut bed, THERE, ShardId(1), 1, first()).is_err(), "it does not move");
    let to = bed.send_as(ME, SHARD, 0, first().into());
    assert_eq!(bed.reply::<RowsReply>(to), Some(Err(Status::ROLE)));

    let mut bed = Bed::with(config(), 2);
    bed.auto_sync = false;
    bed.restart_term(SHARD);
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Moving, &[OWN, THERE], 2) });
    assert_eq!(ask(&mut bed, THERE, 2), Err(Status::NOT_READY), "a power cut could take a record");
    bed.sync();
    assert!(ask(&mut bed, THERE, 2).is_ok());
}

/// Goal: a copy that has all of what is to come, and more, is served as it is: mgmtd was put back from a backup. One that went
/// another way since is not touched, and nobody is served.
#[test]
fn the_newest_copy_stays() {
    for apart in [false, true] {
        let (mut old, moving) = source();
        let (mut bed, _) = source();
        // It goes back, and serves two terms more; the other one as well, if they went apart.
        for epoch in [3, 4] {
            bed.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[OWN], epoch) });
            bed.restart_term(SHARD);
        }
        let file = bed.create(ME, Ino::ROOT, "newer");
        if apart {
            old.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[OWN], 3) });
            old.create(ME, Ino::ROOT, "other");
        }
        let newest = rows(bed.server.store());
        // The old one, as another node, is said to have what is to come.
        let back = MapReply { version: MapVersion(40), ..placed(ShardState::Moving, &[THERE, OWN], 7) };
        bed.courier_works = false;
        bed.step(Input::Map { own: OWN, map: back });
        let fetches = |task: &crate::Task| match &task.job {
            Job::Fetch { message, .. } => Some((task.id, message.clone())),
            _ => None,
        };
        let (id, message) = bed.tasks.iter().find_map(fetches).unwrap();
        let epoch = if apart { 4 } else { 2 };
        let shards = placed(ShardState::Moving, &[OWN, THERE], epoch).shards;
        old.step(Input::Map { own: OWN, map: MapReply { version: MapVersion(41), shards, ..moving } });
        let part = fetch(&mut old, THERE, SHARD, epoch, message).unwrap();
        assert!(!part.holds);
        bed.step(Input::Courier { task: id, result: Ok(JobReply::Rows(part)) });
        bed.tick(10_000);
        let warned = bed.warnings.iter().any(|line| line.contains("Both stay"));
        assert_eq!(warned, apart, "{:?}", bed.warnings);
        assert_eq!(rows(bed.server.store()), newest);
        assert!(!bed.server.has_term(SHARD));
        if !apart {
            // mgmtd has heard that it is here.
            let active = MapReply { version: MapVersion(42), ..placed(ShardState::Active, &[OWN], 8) };
            bed.step(Input::Map { own: OWN, map: active });
            let to = bed.send_as(ME, SHARD, 0, GetAttr { ino: file }.into());
            assert!(bed.replies[&to].1.is_ok());
        }
    }
}

/// Goal: a shard that is given back before its rows were let go is fetched like any other.
#[test]
fn what_comes_back_early_is_fetched() {
    let (mut bed, _) = source();
    bed.courier_works = false;
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[THERE], 3) });
    bed.tasks.clear();
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Moving, &[THERE, OWN], 4) });
    let fetch = bed.tasks.pop().unwrap();
    assert!(matches!(fetch.job, Job::Fetch { .. }) && bed.tasks.is_empty());
    bed.step(Input::Courier { task: fetch.id, result: Err(JobFailure("away".into())) });
    bed.tick(1_000);
    assert_eq!(bed.tasks.pop().map(|task| task.job), Some(fetch.job), "it is asked for until it comes");
    // And gone again, it is let go as soon as who has it says so.
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[THERE], 5) });
    let ask = bed.tasks.pop().unwrap();
    assert!(matches!(ask.job, Job::Shard { message: ShardMessage::AskHistory(_), .. }));
    bed.step(Input::Courier { task: ask.id, result: Ok(JobReply::History(true)) });
    assert_eq!(bed.server.shards().collect::<Vec<_>>(), [ShardId(1)]);
}

/// Goal: a shard that is to be made where rows of an earlier stay are still swept is made as soon as those are gone, not only
/// when the next map comes. Over a restart it stays: what the log says was swept before it is none of it.
#[test]
fn a_shard_is_made_as_soon_as_what_was_left_is_gone() {
    let (mut bed, _) = source();
    bed.courier_works = false;
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[THERE], 3) });
    let ask = bed.tasks.pop().unwrap();
    bed.step(Input::Courier { task: ask.id, result: Ok(JobReply::History(true)) });
    bed.step(Input::Map { own: OWN, map: placed(ShardState::New, &[OWN], 5) });
    assert!(!bed.server.has_term(SHARD) && bed.server.moves_under_way() == 1);
    while bed.server.moves_under_way() > 0 {
        bed.tick(10);
    }
    assert_eq!(bed.server.formatted(), [ShardAt { shard: SHARD, epoch: 5 }]);
    assert!(bed.notes.iter().any(|line| line.contains("shard 0 is new")), "{:?}", bed.notes);
    let active = MapReply { version: MapVersion(16), ..placed(ShardState::Active, &[OWN], 5) };
    bed.step(Input::Map { own: OWN, map: active.clone() });
    bed.create(ME, Ino::ROOT, "f");
    bed.check();
    let count = rows(bed.server.store()).len();
    let mut again = Other::new(&bed.log);
    again.step(Input::Map { own: OWN, map: active });
    again.step(Input::Fences(bed.fences(&[1])));
    for _ in 0..50 {
        again.step(Input::Tick);
    }
    assert_eq!((rows(again.server.store()).len(), again.server.moves_under_way()), (count, 0));
    assert!(again.server.store().get(&crate::key::header(SHARD)).unwrap().is_some());
}

/// Goal: a map that is older than a move, from a backup, gives a shard to a server that has let it go. That one goes on with its
/// other shards, makes nothing anew, says once what to put back, and tells nobody rows that it does not have. A server that
/// has none of its shards ends.
#[test]
fn a_map_of_before_a_move_ends_nobody() {
    let (mut bed, _) = source();
    bed.courier_works = false;
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[THERE], 3) });
    let ask = bed.tasks.pop().unwrap();
    bed.step(Input::Courier { task: ask.id, result: Ok(JobReply::History(true)) });
    assert_eq!(bed.server.shards().collect::<Vec<_>>(), [ShardId(1)]);
    let records = bed.log.len();
    for version in 40..43 {
        let old = MapReply { version: MapVersion(version), ..placed(ShardState::Active, &[OWN], 1) };
        bed.step(Input::Map { own: OWN, map: old });
    }
    let warned: Vec<_> = bed.warnings.iter().filter(|line| line.contains("have no rows here")).collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("the first is 0") && warned[0].contains("put its newest copy back"));
    let to = bed.send_as(ME, SHARD, 0, GetAttr { ino: Ino::ROOT }.into());
    let refusal = bed.replies[&to].1.clone().unwrap_err();
    assert!(
        refusal.status == Status::NOT_READY && refusal.to_string().contains("no rows of shard 0"),
        "{refusal}"
    );
    assert!(bed.server.has_term(ShardId(1)) && bed.server.is_ready());
    assert!(bed.log[records..].iter().all(|record| record.shard != SHARD), "nothing is made");
    let moving = MapReply { version: MapVersion(50), ..placed(ShardState::Moving, &[OWN, THERE], 4) };
    bed.step(Input::Map { own: OWN, map: moving });
    let nothing = fetch(&mut bed, THERE, SHARD, 4, first()).unwrap();
    assert!(nothing.rows.is_empty() && !nothing.more && nothing.index == LogIndex(0));

    // Who has its newest rows goes on from them; who has none either serves nobody.
    let asks = |task: &crate::Task| matches!(task.job, Job::Fetch { .. }).then_some(task.id);
    for has_rows in [true, false] {
        let mut there = if has_rows { source().0 } else { Bed::with(config(), 2) };
        there.courier_works = false;
        if !has_rows {
            there.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[THERE], 3) });
            let ask = there.tasks.pop().unwrap();
            there.step(Input::Courier { task: ask.id, result: Ok(JobReply::History(true)) });
        }
        let moving = MapReply { version: MapVersion(50), ..placed(ShardState::Moving, &[THERE, OWN], 4) };
        there.step(Input::Map { own: OWN, map: moving });
        for _ in 0..100 {
            if let Some(id) = there.tasks.iter().find_map(asks) {
                there.tasks.clear();
                there.step(Input::Courier { task: id, result: Ok(JobReply::Rows(nothing.clone())) });
            }
            there.tick(100);
        }
        let said = if has_rows { "it is served from those that are here" } else { "it has no rows of it" };
        assert!(there.warnings.iter().any(|line| line.contains(said)), "{:?}", there.warnings);
        assert_eq!(there.server.formatted().iter().any(|at| at.shard == SHARD), has_rows);
    }

    // A group whose only shard has left it goes on beside the others of its process.
    let mut alone = Bed::with(config(), 1);
    alone.courier_works = false;
    let only = |state, members: &[NodeId], epoch, version| {
        let whole = placed(state, members, epoch);
        MapReply { version: MapVersion(version), shards: whole.shards[..1].to_vec(), ..whole }
    };
    alone.step(Input::Map { own: OWN, map: only(ShardState::Active, &[THERE], 3, 20) });
    let ask = alone.tasks.pop().unwrap();
    alone.step(Input::Courier { task: ask.id, result: Ok(JobReply::History(true)) });
    alone.step(Input::Map { own: OWN, map: only(ShardState::Active, &[OWN], 1, 40) });
    assert!(alone.warnings.iter().any(|line| line.contains("have no rows here")), "{:?}", alone.warnings);

    let mut empty = Group::new(config(), MemoryStore::default()).unwrap();
    empty.start();
    let map = placed(ShardState::Active, &[OWN], 3);
    let input = Input::Map { own: OWN, map };
    let ended = empty.step(Millis(1), Timestamp::default(), input, &mut Output::default()).unwrap_err();
    assert!(format!("{ended:?}").contains("2 shards of this server"), "{ended:?}");
}

/// Goal: the last part of a shard is told only once the rows say so, on stable storage. From then on a map that does not know of
/// it, of a mgmtd that was put back from a backup, has nobody served from these rows: others may have changed newer ones. mgmtd
/// that knows can give it back.
#[test]
fn a_map_of_before_a_move_serves_no_older_rows() {
    let (mut bed, _) = source();
    let whole = |bed: &mut Bed| -> Result<(), Refusal> {
        let mut ask = first();
        loop {
            let part = fetch(bed, THERE, SHARD, 2, ask.clone())?;
            let Some(row) = part.rows.last().filter(|_| part.more) else { return Ok(()) };
            ask.behind = row.key.clone();
        }
    };
    let started = |bed: &mut Bed, kept| {
        bed.log.truncate(kept);
        bed.server = Group::new(config(), MemoryStore::on_disk()).unwrap();
        bed.log.iter().for_each(|record| bed.server.replay(record).unwrap());
        bed.server.start();
        bed.warnings.clear();
        let fences = bed.fences(&[1]);
        bed.step(Input::Fences(fences));
    };
    let at = |bed: &mut Bed, epoch: u64, version| {
        let map = MapReply { version: MapVersion(version), ..placed(ShardState::Active, &[OWN], epoch) };
        bed.step(Input::Map { own: OWN, map });
        let to = bed.send_as(ME, SHARD, 0, GetAttr { ino: Ino::ROOT }.into());
        bed.replies[&to].1.clone().map(drop)
    };
    bed.auto_sync = false;
    let before = bed.log.len();
    let refused = whole(&mut bed).unwrap_err();
    assert!(refused.to_string().contains("being written down"), "{refused}");
    let refused = whole(&mut bed).unwrap_err();
    assert!(refused.to_string().contains("not on stable storage"), "{refused}");
    bed.auto_sync = true;
    bed.sync();
    assert_eq!(whole(&mut bed), Ok(()));
    let (after, jump) = (bed.log.len(), 1 << crate::limit::EPOCH_HISTORY_BITS);
    assert_eq!(after, before + 1, "it is written once");

    started(&mut bed, after);
    for (version, epoch) in [(20, 1), (21, 1), (22, 1 + jump)] {
        let refused = at(&mut bed, epoch, version).unwrap_err();
        assert!(
            refused.status == Status::NOT_READY && refused.to_string().contains("to node 9"),
            "{refused}"
        );
    }
    let warned = |bed: &Bed| bed.warnings.iter().filter(|line| line.contains("newest copy back")).count();
    assert_eq!(warned(&bed), 2, "{:?}", bed.warnings);
    assert!(bed.server.has_term(ShardId(1)) && !bed.server.has_term(SHARD) && bed.server.is_ready());
    assert!(bed.server.gauges().contains(&("unserved_shards", 1)));
    // Who asks for its vote is not kept waiting, unless he knows more than this server.
    let votes = [ask_for_vote(&mut bed, 1 + jump), ask_for_vote(&mut bed, 2 + jump)];
    let lost = Vote::No(TxnRefused { errno: Status::errno(Errno::EIO).0 });
    assert_eq!(votes, [Ok(lost), Err(Status::NOT_READY)]);
    assert!(bed.log[after..].iter().all(|record| record.shard != SHARD), "nothing of it is changed");
    assert_eq!(at(&mut bed, 3, 30), Ok(()), "it knows of it, and gives it back");
    let last = bed.log.len();
    started(&mut bed, last);
    assert_eq!((at(&mut bed, 3 + jump, 40), warned(&bed)), (Ok(()), 0), "these rows are the newest");
    bed.check();

    let (mut cut, _) = source();
    assert!(whole(&mut cut).is_err());
    started(&mut cut, before);
    assert_eq!(at(&mut cut, 1 + jump, 20), Ok(()), "nobody was told the last part");
}

/// Goal: where a shard has come it is served by a map that knows of that; by another one, from a backup, once it was served.
#[test]
fn a_map_that_does_not_know_of_the_last_move_serves_nothing() {
    for knows in [true, false] {
        let mut other = Other::new(&[]);
        let (mut bed, moving) = source();
        other.told(&moving, &bed);
        other.fetch(&mut bed);
        let at = |version, epoch| MapReply {
            version: MapVersion(version),
            ..placed(ShardState::Active, &[THERE], epoch)
        };
        let jump = 1 << crate::limit::EPOCH_HISTORY_BITS;
        other.told(&at(41, if knows { 3 } else { 3 + jump }), &bed);
        assert_eq!(other.server.has_term(SHARD), knows);
        assert_eq!(other.warnings.iter().any(|line| line.contains("were never served")), !knows);
        other.told(&at(42, 4 + 2 * jump), &bed);
        assert_eq!(other.server.has_term(SHARD), knows);
    }
}

/// Goal: a client that waits for events by a shard that goes to another server is answered at once, so that it asks there.
#[test]
fn who_waits_by_a_shard_that_goes_is_answered() {
    let mut bed = Bed::with(config(), 2);
    let ask =
        |bed: &mut Bed, shard| bed.send_as(ME, shard, 0, Events { received: 0, wait_ms: 15_000 }.into());
    let stays = ask(&mut bed, ShardId(1));
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Moving, &[OWN, THERE], 2) });
    assert!(!bed.replies.contains_key(&stays));
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Active, &[OWN], 3) });
    let waits = ask(&mut bed, SHARD);
    assert!(!bed.replies.contains_key(&waits) && bed.replies.contains_key(&stays), "one at a time");
    bed.step(Input::Map { own: OWN, map: placed(ShardState::Moving, &[OWN, THERE], 4) });
    assert!(bed.replies[&waits].1.is_ok());
    let sent_on = ask(&mut bed, SHARD);
    assert_eq!(bed.replies[&sent_on].1.clone().unwrap_err().status, Status::NOT_LEADER);
}

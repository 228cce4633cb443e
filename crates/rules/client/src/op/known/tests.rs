//! What a mount answers by itself: requests are counted, and what it says is compared with what is so.

use crate::limits::HOLES_MAX;
use crate::op::recalls::tests::{T, beside, cluster, holder, leased, listens, make};
use crate::testing::{Cluster, FakeLane, Fault, block_on, lane_beside, mount, mount_with, step};
use crate::{Listed, NewNode, RenameHow};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use skep_types::{Attr, Errno, Ino, Kind, SetAttr};
use skep_wire::Message;
use skep_wire::meta::{
    ChangeAttr, Create, GetAttr, List, Lookup, MakeNode, Open, OpenMode, RemoveDir, Rename, Unlink,
};

const ROOT: Ino = Ino::ROOT;
const DIR: NewNode = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 1, gid: 2, rdev: 0 };

/// How many requests it takes.
fn counted<T>(cluster: &RefCell<Cluster>, work: impl Future<Output = T>) -> (usize, T) {
    let before = cluster.borrow().total();
    let done = block_on(work);
    (cluster.borrow().total() - before, done)
}

async fn list(lane: &FakeLane, with_attr: bool) -> Result<Vec<Vec<u8>>, Errno> {
    let handle = lane.opendir(ROOT)?;
    let mut names = Vec::new();
    let mut sink = |line: Listed<'_>| {
        names.push(line.name.to_vec());
        true
    };
    let done = lane.readdir(handle, 0, with_attr, &mut sink).await;
    lane.releasedir(handle);
    done.map(|()| names.split_off(2))
}

/// Makes a file that nobody has open.
fn makes_closed(lane: &FakeLane, name: &[u8]) {
    let file = block_on(make(lane, name)).unwrap();
    block_on(lane.release(file.handle));
    block_on(lane.housekeeping());
}

/// Goal: what was asked once is not asked again under a lease: a name, one that is not there, a directory's attributes; what
/// somebody has open for writing is.
#[test]
fn a_warm_look_asks_nobody() {
    let cluster = cluster();
    let plain = mount(&cluster);
    makes_closed(&plain, b"f");
    block_on(plain.make_node(ROOT, b"d", DIR)).unwrap();
    let (lane, ear) = holder(&cluster);
    for name in [b"f", b"d"] {
        let (first, found) = counted(&cluster, lane.lookup(ROOT, name));
        assert_eq!((first, counted(&cluster, lane.lookup(ROOT, name))), (1, (0, found)));
    }
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"x")), (1, Err(Errno::ENOENT)));
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"x")), (0, Err(Errno::ENOENT)));
    assert_eq!(counted(&cluster, lane.getattr(ROOT)).0, 0);
    let dir = block_on(lane.lookup(ROOT, b"d")).unwrap();
    assert_eq!(counted(&cluster, lane.getattr(dir.ino)), (0, Ok(dir)));
    let long = [b'n'; 300];
    assert_eq!(counted(&cluster, lane.lookup(ROOT, &long)), (0, Err(Errno::ENAMETOOLONG)));
    // Another mount writes.
    let file = block_on(plain.lookup(ROOT, b"f")).unwrap();
    let opened = beside(plain.open(file.ino, crate::testing::BOTH), &[&ear]).unwrap();
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"f")).0, 1);
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"f")).0, 1);
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"d")).0, 0);
    block_on(plain.release(opened.handle));
    block_on(plain.housekeeping());
    assert_eq!([1, 0].map(|_| counted(&cluster, lane.lookup(ROOT, b"f")).0), [1, 0]);
    // By its number, and while it is open for reading, as well.
    assert_eq!(counted(&cluster, lane.getattr(file.ino)).0, 0);
    let reads = crate::OpenHow { mode: OpenMode::Read, ..crate::testing::BOTH };
    let opened = block_on(lane.open(file.ino, reads)).unwrap();
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"f")).0, 0);
    assert_eq!(counted(&cluster, lane.getattr(file.ino)).0, 0);
    assert_eq!(counted(&cluster, lane.listxattr(file.ino)).0, 0);
    block_on(lane.release(opened.handle));
    // This one writes.
    block_on(lane.open(file.ino, crate::testing::BOTH)).unwrap();
    assert_eq!([1, 1].map(|_| counted(&cluster, lane.lookup(ROOT, b"f")).0), [1, 1]);
    // Its time is over.
    cluster.borrow_mut().now += T;
    assert_eq!(counted(&cluster, lane.getattr(ROOT)).0, 1);
}

/// Goal: the attributes of a covered entry are told by its number, as `stat` asks for them, until another mount changes it, and
/// not beside a change of this mount to the directory by which its name could go.
#[test]
fn a_covered_entry_is_told_by_its_number() {
    let cluster = cluster();
    let plain = mount(&cluster);
    makes_closed(&plain, b"f");
    let (lane, ear) = holder(&cluster);
    let file = block_on(lane.lookup(ROOT, b"f")).unwrap();
    assert_eq!(counted(&cluster, lane.getattr(file.ino)), (0, Ok(file.clone())));
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    beside(plain.setattr(file.ino, mode), &[&ear]).unwrap();
    let (requests, changed) = counted(&cluster, lane.getattr(file.ino));
    assert_eq!((requests, changed.unwrap().mode & 0o777), (1, 0o600));
    block_on(lane.lookup(ROOT, b"f")).unwrap();
    assert_eq!(counted(&cluster, lane.getattr(file.ino)).0, 0);
    // The name is not known, and goes: whether it was that of the file, the answer says.
    lane.shared.borrow_mut().names.forget_name(ROOT, b"f");
    cluster.borrow_mut().fail(Unlink::KIND, &[Fault::LateAnswer]);
    let other = lane_beside(&cluster, &lane);
    let mut removes = pin!(lane.unlink(ROOT, b"f"));
    assert!(step(removes.as_mut()).is_pending() && step(removes.as_mut()).is_pending());
    assert_eq!(counted(&cluster, other.getattr(file.ino)).0, 1, "it is removed, and not answered");
    block_on(removes).unwrap();
    assert_eq!(counted(&cluster, other.getattr(file.ino)).0, 1);
}

/// Goal: in a directory that was listed, or made here, nobody is asked for a name that is not there, and each change is one
/// request, which tells the directory's attributes as well.
#[test]
fn a_create_is_one_request() {
    let cluster = cluster();
    let plain = mount(&cluster);
    makes_closed(&plain, b"f");
    let (lane, ear) = holder(&cluster);
    assert_eq!(counted(&cluster, list(&lane, false)), (1, Ok([b"f".to_vec()].into())));
    assert_eq!(counted(&cluster, list(&lane, false)), (0, Ok([b"f".to_vec()].into())));
    let work = async {
        assert_eq!(lane.lookup(ROOT, b"n").await, Err(Errno::ENOENT));
        let file = make(&lane, b"n").await.unwrap();
        lane.getattr(ROOT).await.unwrap();
        file
    };
    let (requests, file) = counted(&cluster, work);
    assert_eq!(requests, 1);
    block_on(lane.release(file.handle));
    block_on(ear.housekeeping());
    let root = cluster.borrow().shard.files[&ROOT].attr.clone();
    assert_eq!(counted(&cluster, lane.getattr(ROOT)), (0, Ok(root)));
    let work = async {
        lane.unlink(ROOT, b"n").await.unwrap();
        assert_eq!(lane.lookup(ROOT, b"n").await, Err(Errno::ENOENT));
        let dir = lane.make_node(ROOT, b"d", DIR).await.unwrap();
        assert_eq!(lane.lookup(dir.ino, b"x").await, Err(Errno::ENOENT));
        assert_eq!(lane.lookup(ROOT, b"d").await.map(|attr| attr.ino), Ok(dir.ino));
        lane.rmdir(ROOT, b"d").await.unwrap();
        assert_eq!(lane.lookup(ROOT, b"d").await, Err(Errno::ENOENT));
        dir
    };
    let (requests, dir) = counted(&cluster, work);
    assert_eq!(requests, 3);
    assert_eq!(block_on(lane.getattr(dir.ino)).map(|attr| attr.nlink), Ok(0), "a ghost");
    // Somebody else makes a name: one is not known, and is asked for once.
    beside(make(&plain, b"o"), &[&ear]).unwrap();
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"x")), (0, Err(Errno::ENOENT)));
    assert!(counted(&cluster, lane.lookup(ROOT, b"o")).1.is_ok());
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"x")), (0, Err(Errno::ENOENT)));
}

/// Goal: what this mount has made is known while it has it open for writing, until it writes, or another mount opens it too.
#[test]
fn what_is_new_is_known_while_it_is_open() {
    let cluster = cluster();
    let plain = mount(&cluster);
    let (lane, ear) = holder(&cluster);
    let asks = |ino| counted(&cluster, lane.getattr(ino)).0;
    let (requests, file) = counted(&cluster, make(&lane, b"f"));
    let file = file.unwrap();
    let ino = file.attr.ino;
    let (looks, found) = counted(&cluster, lane.lookup(ROOT, b"f"));
    assert_eq!((requests, asks(ino), looks, found.map(|attr| attr.ino)), (1, 0, 0, Ok(ino)));
    block_on(lane.write(file.handle, 0, b"data", crate::WriteHow::default())).unwrap();
    assert_eq!([asks(ino), asks(ino)], [1, 1], "it is written");
    let made = NewNode { kind: Kind::File, ..DIR };
    let ino = block_on(lane.make_node(ROOT, b"n", made)).unwrap().ino;
    assert_eq!(asks(ino), 0);
    beside(plain.open(ino, crate::testing::BOTH), &[&ear]).unwrap();
    assert_eq!([asks(ino), asks(ino)], [1, 1], "somebody else writes");
}

/// Goal: beside a change of the same mount nothing is told from memory that it may make another, nor what was asked for before
/// it was answered; one that was given up may still come.
#[test]
fn own_changes_are_not_overtaken() {
    let cluster = cluster();
    let (lane, _ear) = holder(&cluster);
    let beside = lane_beside(&cluster, &lane);
    block_on(list(&lane, false)).unwrap();
    cluster.borrow_mut().fail(Create::KIND, &[Fault::LateAnswer]);
    {
        let mut makes = pin!(make(&lane, b"n"));
        assert!(step(makes.as_mut()).is_pending() && step(makes.as_mut()).is_pending());
        assert!(block_on(beside.lookup(ROOT, b"n")).is_ok(), "it is made, and not answered");
        let root = cluster.borrow().shard.files[&ROOT].attr.clone();
        assert_eq!(block_on(beside.getattr(ROOT)), Ok(root));
        assert_eq!(counted(&cluster, beside.lookup(ROOT, b"m")), (0, Err(Errno::ENOENT)));
        block_on(makes).unwrap();
    }
    // Asked before, answered behind.
    cluster.borrow_mut().fail(Lookup::KIND, &[Fault::LateAnswer]);
    block_on(beside.unlink(ROOT, b"n")).unwrap();
    cluster.borrow_mut().restarts();
    cluster.borrow_mut().now += 2 * T;
    let mut slow = pin!(beside.lookup(ROOT, b"n"));
    assert!(step(slow.as_mut()).is_pending() && step(slow.as_mut()).is_pending());
    block_on(make(&lane, b"n")).unwrap();
    assert_eq!(block_on(slow), Err(Errno::ENOENT));
    assert!(block_on(lane.lookup(ROOT, b"n")).is_ok());
    // Given up.
    cluster.borrow_mut().fail(Unlink::KIND, &[Fault::LoseRequest]);
    {
        let mut removes = pin!(lane.unlink(ROOT, b"n"));
        assert!(step(removes.as_mut()).is_pending());
        cluster.borrow_mut().cancelled = true;
        assert_eq!(block_on(removes), Err(Errno::EINTR));
        cluster.borrow_mut().cancelled = false;
    }
    for _ in 0..3 {
        assert_eq!(counted(&cluster, beside.lookup(ROOT, b"n")).0, 1);
        assert_eq!(counted(&cluster, beside.getattr(ROOT)).0, 1);
    }
    block_on(lane.make_node(ROOT, b"d", DIR)).unwrap();
    assert_eq!(counted(&cluster, beside.getattr(ROOT)).0, 0);
    assert_eq!([1, 0].map(|_| counted(&cluster, beside.lookup(ROOT, b"x")).0), [1, 0]);
}

/// Goal: a new session knows nothing of before.
#[test]
fn a_new_session_knows_nothing() {
    let cluster = cluster();
    let (lane, ear) = holder(&cluster);
    assert_eq!([1, 0].map(|_| counted(&cluster, lane.lookup(ROOT, b"x")).0), [1, 0]);
    cluster.borrow_mut().fail(Lookup::KIND, &[Fault::Refuse(skep_wire::Status::FENCED)]);
    {
        let mut looks = pin!(lane.lookup(ROOT, b"y"));
        assert!(step(looks.as_mut()).is_pending() && step(looks.as_mut()).is_pending());
        block_on(ear.housekeeping());
        assert_eq!(block_on(looks), Err(Errno::ENOENT));
    }
    assert_eq!([1, 0].map(|_| counted(&cluster, lane.lookup(ROOT, b"x")).0), [1, 0]);
}

/// Goal: of a directory that this mount removes nothing is told from memory until that is answered, and of no directory if it
/// is not known which one goes.
#[test]
fn a_directory_on_its_way_out_is_asked_for() {
    let cluster = cluster();
    let (lane, _ear) = holder(&cluster);
    let beside = lane_beside(&cluster, &lane);
    let [dir, other] = [b"d", b"o"].map(|name| block_on(lane.make_node(ROOT, name, DIR)).unwrap().ino);
    let asks = |ino| counted(&cluster, beside.getattr(ino)).0;
    for is_known in [true, false] {
        assert_eq!([asks(dir), asks(other)], [0, 0]);
        if !is_known {
            lane.shared.borrow_mut().names.forget_name(ROOT, b"d");
        }
        cluster.borrow_mut().fail(RemoveDir::KIND, &[Fault::LoseRequest]);
        {
            let mut removes = pin!(lane.rmdir(ROOT, b"d"));
            assert!(step(removes.as_mut()).is_pending());
            assert_eq!([asks(dir), asks(other)], [1, usize::from(!is_known)]);
            cluster.borrow_mut().cancelled = true;
            assert_eq!(block_on(removes), Err(Errno::EINTR));
            cluster.borrow_mut().cancelled = false;
        }
        assert_eq!([asks(dir), asks(other)], [1, usize::from(!is_known)], "it may still be made");
        block_on(lane.lookup(ROOT, b"d")).unwrap();
        block_on(lane.make_node(ROOT, if is_known { b"1" } else { b"2" }, DIR)).unwrap();
        block_on(lane.lookup(ROOT, b"d")).unwrap();
        let _ = [dir, other].map(asks);
    }
}

/// Goal: a directory that this mount removed is not told from memory when the answer was lost and nobody waited for it, be its
/// name known or not.
#[test]
fn a_removal_that_was_given_up_may_have_been_made() {
    for is_known in [true, false] {
        let cluster = cluster();
        let (lane, _ear) = holder(&cluster);
        let beside = lane_beside(&cluster, &lane);
        let dir = block_on(lane.make_node(ROOT, b"d", DIR)).unwrap().ino;
        assert_eq!(counted(&cluster, beside.getattr(dir)).0, 0);
        if !is_known {
            lane.shared.borrow_mut().names.forget_name(ROOT, b"d");
        }
        cluster.borrow_mut().fail(RemoveDir::KIND, &[Fault::LoseAnswer]);
        {
            let mut removes = pin!(lane.rmdir(ROOT, b"d"));
            assert!(step(removes.as_mut()).is_pending());
            cluster.borrow_mut().cancelled = true;
            assert_eq!(block_on(removes), Err(Errno::EINTR));
            cluster.borrow_mut().cancelled = false;
        }
        block_on(lane.make_node(ROOT, b"1", DIR)).unwrap();
        assert!(counted(&cluster, beside.getattr(dir)).0 > 0);
    }
}

/// Goal: what was given up in a session that has ended since is not done any more, and is in nobody's way.
#[test]
fn a_new_session_ends_doubts() {
    let cluster = cluster();
    let (lane, ear) = holder(&cluster);
    let beside = lane_beside(&cluster, &lane);
    makes_closed(&lane, b"f");
    cluster.borrow_mut().fail(Unlink::KIND, &[Fault::LoseRequest]);
    {
        let mut removes = pin!(lane.unlink(ROOT, b"f"));
        assert!(step(removes.as_mut()).is_pending());
        cluster.borrow_mut().fail(Lookup::KIND, &[Fault::Refuse(skep_wire::Status::FENCED)]);
        let mut looks = pin!(beside.lookup(ROOT, b"y"));
        assert!(step(looks.as_mut()).is_pending() && step(looks.as_mut()).is_pending());
        block_on(ear.housekeeping());
        assert_eq!(block_on(looks), Err(Errno::ENOENT));
        assert!(block_on(removes).is_err());
    }
    block_on(list(&beside, false)).unwrap();
    assert_eq!([1, 0].map(|_| counted(&cluster, beside.lookup(ROOT, b"f")).0), [1, 0]);
}

/// Goal: an open for writing that was lost may still come, and then nobody is told of what others write: until the lane's next
/// change has been answered the file's attributes are asked for.
#[test]
fn a_lost_open_for_writing_is_in_doubt() {
    let cluster = cluster();
    makes_closed(&mount(&cluster), b"f");
    let (lane, _ear) = holder(&cluster);
    let looks = || counted(&cluster, lane.lookup(ROOT, b"f")).0;
    assert_eq!([looks(), looks()], [1, 0]);
    let file = block_on(lane.lookup(ROOT, b"f")).unwrap();
    cluster.borrow_mut().fail(Open::KIND, &[Fault::LoseRequest]);
    {
        let mut opens = pin!(lane.open(file.ino, crate::testing::BOTH));
        assert!(step(opens.as_mut()).is_pending());
        cluster.borrow_mut().cancelled = true;
        assert_eq!(block_on(opens).map(|_| ()), Err(Errno::EINTR));
        cluster.borrow_mut().cancelled = false;
    }
    assert_eq!([looks(), looks()], [1, 1]);
    block_on(lane.make_node(ROOT, b"d", DIR)).unwrap();
    assert_eq!([looks(), looks()], [1, 0]);
}

/// Goal: a rename says what its old name leads to, but for one between two names of one file, which leaves both.
#[test]
fn a_rename_that_moves_nothing_leaves_the_name() {
    let cluster = cluster();
    let (lane, _ear) = holder(&cluster);
    makes_closed(&lane, b"f");
    block_on(list(&lane, false)).unwrap();
    let renames = |to: &[u8]| block_on(lane.rename(ROOT, b"f", ROOT, to, RenameHow::default())).unwrap();
    renames(b"f");
    let file = block_on(lane.lookup(ROOT, b"f")).unwrap();
    renames(b"g");
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"f")), (0, Err(Errno::ENOENT)));
    assert_eq!(block_on(lane.lookup(ROOT, b"g")).map(|attr| attr.ino), Ok(file.ino));
}

/// Goal: what this mount gives another name to is known by it, so a directory stays known completely however many there are.
#[test]
fn renames_leave_no_holes() {
    let cluster = cluster();
    let (lane, ear) = holder(&cluster);
    block_on(list(&lane, false)).unwrap();
    for number in 0..HOLES_MAX + 8 {
        makes_closed(&lane, b"new");
        let to = alloc::format!("{number}");
        block_on(lane.rename(ROOT, b"new", ROOT, to.as_bytes(), RenameHow::default())).unwrap();
        block_on(ear.housekeeping());
    }
    assert_eq!(counted(&cluster, lane.lookup(ROOT, b"absent")), (0, Err(Errno::ENOENT)));
}

/// Goal: a listing with attributes asks nobody if the leases cover all of them.
#[test]
fn a_listing_with_attributes_asks_nobody() {
    let cluster = cluster();
    let plain = mount(&cluster);
    makes_closed(&plain, b"f");
    makes_closed(&plain, b"g");
    let (lane, ear) = holder(&cluster);
    for asks in [1, 0, 0] {
        assert_eq!(counted(&cluster, list(&lane, true)), (asks, Ok(vec![b"f".to_vec(), b"g".to_vec()])));
    }
    assert_eq!(counted(&cluster, list(&lane, false)).0, 0);
    beside(plain.make_node(ROOT, b"d", DIR), &[&ear]).unwrap();
    assert_eq!([1, 1].map(|_| counted(&cluster, list(&lane, true)).0), [1, 1], "its own lease covers d");
    block_on(lane.lookup(ROOT, b"d")).unwrap();
    assert_eq!(counted(&cluster, list(&lane, true)).0, 0);
    let file = block_on(lane.lookup(ROOT, b"f")).unwrap();
    let opened = block_on(lane.open(file.ino, crate::testing::BOTH)).unwrap();
    assert_eq!(counted(&cluster, list(&lane, true)).0, 1, "it is written");
    block_on(lane.release(opened.handle));
}

/// Goal: that something has no extended attributes is known with its attributes, be it a directory or an entry that is covered;
/// of what is open for writing the shard is asked.
#[test]
fn what_has_no_extended_attributes_is_known() {
    let cluster = cluster();
    let plain = mount(&cluster);
    makes_closed(&plain, b"f");
    let (lane, _ear) = holder(&cluster);
    let file = block_on(lane.lookup(ROOT, b"f")).unwrap().ino;
    let names: [&[u8]; 4] =
        [b"system.posix_acl_access", b"system.posix_acl_default", b"security.capability", b"user.a"];
    for ino in [ROOT, file] {
        for name in names {
            assert_eq!(counted(&cluster, lane.getxattr(ino, name)), (0, Err(Errno::ENODATA)));
        }
        assert_eq!(counted(&cluster, lane.listxattr(ino)), (0, Ok(Vec::new())));
        assert_eq!(counted(&cluster, lane.getxattr(ino, b"other.a")), (0, Err(Errno::EOPNOTSUPP)));
    }
    block_on(lane.open(file, crate::testing::BOTH)).unwrap();
    assert_eq!(counted(&cluster, lane.listxattr(file)).0, 1);
    assert_eq!(
        counted(&cluster, lane.getxattr(file, b"security.capability")).0,
        0,
        "the open's answer said it"
    );
    assert_eq!(counted(&cluster, lane.listxattr(ROOT)).0, 0);
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A mount with two lanes of programs, and one that takes in events.
type Mount = (FakeLane, FakeLane, FakeLane);

fn truth(cluster: &RefCell<Cluster>, name: &str) -> Option<Attr> {
    let cluster = cluster.borrow();
    let (_, ino) = cluster.shard.names.iter().find(|(known, _)| known.as_bytes() == name.as_bytes())?;
    Some(cluster.shard.files[ino].attr.clone())
}

/// Looks at something, and finds what is so.
fn looks(cluster: &RefCell<Cluster>, lane: &FakeLane, rng: &mut Rng) {
    let name = format!("n{}", rng.below(6));
    let shown = |attr: Attr| (attr.ino, attr.kind, attr.mode, attr.change);
    match rng.below(8) {
        0 => {
            let found = block_on(lane.getattr(ROOT)).unwrap();
            assert_eq!(shown(found), shown(cluster.borrow().shard.files[&ROOT].attr.clone()));
        }
        1 => {
            let mut found = block_on(list(lane, rng.below(2) == 0)).unwrap();
            found.sort();
            let names = &cluster.borrow().shard.names;
            assert!(names.keys().map(|name| name.as_bytes()).eq(found.iter().map(|name| &name[..])));
        }
        _ => {
            let found = block_on(lane.lookup(ROOT, name.as_bytes()));
            assert_eq!(found.ok().map(shown), truth(cluster, &name).map(shown), "{name}");
        }
    }
}

/// Changes something.
async fn changes(lane: &FakeLane, name: String, what: u64, known: Option<Attr>) {
    let name = name.as_bytes();
    match what {
        0..3 => {
            if let Ok(file) = make(lane, name).await {
                lane.release(file.handle).await;
            }
        }
        3 | 4 => drop(lane.make_node(ROOT, name, DIR).await),
        5..8 => match known.map(|attr| attr.kind) {
            Some(Kind::Dir) => drop(lane.rmdir(ROOT, name).await),
            _ => drop(lane.unlink(ROOT, name).await),
        },
        8..11 => {
            let to = [b'n', b'0' + what as u8 - 8];
            let how = RenameHow { exchange: what == 8, ..RenameHow::default() };
            let _ = lane.rename(ROOT, name, ROOT, &to, how).await;
        }
        _ => {
            let mode = SetAttr { mode: Some(0o600 + what as u32), ..SetAttr::default() };
            if let Some(attr) = known.filter(|attr| attr.kind == Kind::File) {
                drop(lane.setattr(attr.ino, mode).await);
            }
        }
    }
}

fn trouble(cluster: &RefCell<Cluster>, rng: &mut Rng) {
    let kinds = [
        Create::KIND,
        MakeNode::KIND,
        Unlink::KIND,
        RemoveDir::KIND,
        Rename::KIND,
        ChangeAttr::KIND,
        Lookup::KIND,
        GetAttr::KIND,
        List::KIND,
    ];
    let faults = [Fault::LoseAnswer, Fault::LoseRequest, Fault::Unreachable, Fault::LateAnswer];
    let kind = kinds[rng.below(9) as usize];
    match rng.below(60) {
        0 => {
            // The hold of a new term: by then all leases are over.
            cluster.borrow_mut().restarts();
            cluster.borrow_mut().now += 2 * T;
        }
        1 => cluster.borrow_mut().now += rng.below(2 * T),
        2..12 => cluster.borrow_mut().fail(kind, &[faults[rng.below(4) as usize]]),
        _ => {}
    }
}

/// Goal: three mounts that make, remove, change and look at the same names each see what is so at any moment, whatever is lost
/// or late, and also beside their own changes; and most looks ask nobody.
#[test]
fn what_mounts_say_is_so() {
    let (mut looked, mut asked) = (0, 0);
    for seed in 1..=25 {
        let mut rng = Rng(seed * 0x9e37_79b9);
        let cluster = cluster();
        let mounts: Vec<Mount> = (0..3).map(|_| three_lanes(&cluster)).collect();
        for _ in 0..120 {
            trouble(&cluster, &mut rng);
            let (lane, ..) = &mounts[rng.below(3) as usize];
            let name = format!("n{}", rng.below(6));
            let known = truth(&cluster, &name);
            let mut work = pin!(changes(lane, name, rng.below(13), known));
            let gives_up = |rng: &mut Rng| cluster.borrow_mut().cancelled = rng.below(20) == 0;
            gives_up(&mut rng);
            while step(work.as_mut()).is_pending() {
                cluster.borrow_mut().cancelled = false;
                if rng.below(2) == 0 {
                    looks(&cluster, &mounts[rng.below(3) as usize].1, &mut rng);
                }
                mounts.iter().for_each(|(.., ear)| listens(ear));
                gives_up(&mut rng);
            }
            cluster.borrow_mut().cancelled = false;
            for (.., ear) in &mounts {
                block_on(ear.housekeeping());
            }
            let before = cluster.borrow().total();
            for _ in 0..rng.below(12) {
                looks(&cluster, &mounts[rng.below(3) as usize].1, &mut rng);
                looked += 1;
            }
            asked += cluster.borrow().total() - before;
        }
    }
    assert!(asked < looked * 4 / 5, "{asked} of {looked}");
}

fn three_lanes(cluster: &Rc<RefCell<Cluster>>) -> Mount {
    let lane = mount_with(cluster, leased());
    let (beside, ear) = (lane_beside(cluster, &lane), lane_beside(cluster, &lane));
    block_on(ear.housekeeping());
    (lane, beside, ear)
}

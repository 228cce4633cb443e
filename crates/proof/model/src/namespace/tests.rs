use super::*;
use crate::fs::{Access, Handle};
use crate::rename::RenameHow;
use crate::xattr::XattrHow;
use alloc::vec;
use alloc::vec::Vec;
use skep_types::limits::{FILE_SIZE_MAX, XATTR_VALUE_MAX};
use skep_types::{SetAttr, SetTime};

pub(crate) fn time(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

pub(crate) fn call(ino: u64) -> Call {
    Call { now: time(1), ino: Ino(ino), uid: 10, gid: 20 }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn root() -> Fs {
    Fs::new(0o755, 0, 0, time(0))
}

const R: Ino = Ino::ROOT;
const READ: Access = Access { read: true, write: false, append: false };

fn later(ino: u64, secs: i64) -> Call {
    Call { now: time(secs), ..call(ino) }
}

/// (mtime, ctime) in seconds.
fn times(fs: &Fs, ino: Ino) -> (i64, i64) {
    let attr = fs.getattr(ino).unwrap();
    (attr.mtime.secs, attr.ctime.secs)
}

/// Goal: a new inode carries mode, owner and the four times; its directory's mtime and ctime move.
#[test]
fn create_sets_attributes() {
    let mut fs = root();
    let file = fs.create(R, &name("f"), 0o104_644, later(2, 7)).unwrap();
    let attr = fs.getattr(file).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.nlink), (0o4644, 10, 20, 1));
    assert!([attr.atime, attr.mtime, attr.ctime, attr.btime].iter().all(|at| *at == time(7)));
    assert_eq!(times(&fs, R), (7, 7));
    assert_eq!(fs.create(R, &name("f"), 0, call(3)), Err(Errno::EEXIST));
    assert_eq!(fs.create(file, &name("x"), 0, call(3)), Err(Errno::ENOTDIR));
    assert_eq!(fs.create(Ino(99), &name("x"), 0, call(3)), Err(Errno::ENOENT));
    assert_eq!(fs.create(R, &name("x"), 0, call(2)), Err(Errno::EIO), "a number is never reused");
    fs.unlink(R, &name("f"), time(8)).unwrap();
    assert_eq!(fs.create(R, &name("x"), 0, call(2)), Err(Errno::EIO), "nor after its inode is gone");
}

/// Goal: what is made in a setgid directory takes its group; directories take the bit as well.
#[test]
fn setgid_directories() {
    let mut fs = root();
    let dir = fs.mkdir(R, &name("d"), 0o7755, call(2)).unwrap();
    assert_eq!(fs.stat(dir).unwrap().mode, 0o1755, "mkdir drops suid and sgid");
    let set = SetAttr { mode: Some(0o2775), gid: Some(55), ..SetAttr::default() };
    fs.setattr(dir, &set, time(2)).unwrap();
    let sub = fs.mkdir(dir, &name("s"), 0o755, call(3)).unwrap();
    let file = fs.create(sub, &name("f"), 0o644, call(4)).unwrap();
    assert_eq!((fs.stat(sub).unwrap().gid, fs.stat(sub).unwrap().mode), (55, 0o2755));
    assert_eq!((fs.stat(file).unwrap().gid, fs.stat(file).unwrap().mode), (55, 0o644));
}

/// Goal: mknod makes each kind, keeps device numbers for devices only, refuses directories and links.
#[test]
fn mknod_kinds() {
    let mut fs = root();
    let kinds = [Kind::File, Kind::Fifo, Kind::Socket, Kind::CharDev, Kind::BlockDev];
    for (number, kind) in kinds.into_iter().enumerate() {
        let ino =
            fs.mknod(R, &name(&alloc::format!("{number}")), kind, 0o600, 7, call(number as u64 + 2)).unwrap();
        let device = matches!(kind, Kind::CharDev | Kind::BlockDev);
        assert_eq!(
            (fs.stat(ino).unwrap().kind, fs.stat(ino).unwrap().rdev),
            (kind, if device { 7 } else { 0 })
        );
    }
    assert_eq!(fs.mknod(R, &name("d"), Kind::Dir, 0, 0, call(20)), Err(Errno::EPERM));
    assert_eq!(fs.mknod(R, &name("l"), Kind::Symlink, 0, 0, call(20)), Err(Errno::EINVAL));
    fs.check().unwrap();
}

/// Goal: symbolic links keep their target within the limits; only they are read as links.
#[test]
fn symlinks() {
    let mut fs = root();
    let link = fs.symlink(R, &name("l"), &[b'x'; SYMLINK_MAX], call(2)).unwrap();
    assert_eq!(fs.readlink(link).unwrap().len(), SYMLINK_MAX);
    assert_eq!((fs.stat(link).unwrap().size, fs.stat(link).unwrap().mode), (SYMLINK_MAX as u64, 0o777));
    assert_eq!(fs.symlink(R, &name("m"), b"", call(3)), Err(Errno::ENOENT));
    assert_eq!(fs.symlink(R, &name("m"), &[b'x'; SYMLINK_MAX + 1], call(3)), Err(Errno::ENAMETOOLONG));
    assert_eq!(fs.readlink(R), Err(Errno::EINVAL));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(fs.setattr(link, &set, time(2)), Err(Errno::EOPNOTSUPP));
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(fs.setattr(link, &set, time(2)), Err(Errno::EINVAL));
}

/// Goal: hard links share the inode, count up to the limit, move its ctime and the directory's times.
#[test]
fn hard_links() {
    let mut fs = root();
    let dir = fs.mkdir(R, &name("d"), 0o755, call(2)).unwrap();
    let file = fs.create(R, &name("f"), 0o644, call(3)).unwrap();
    fs.link(file, dir, &name("g"), time(5)).unwrap();
    assert_eq!((times(&fs, file), times(&fs, dir), times(&fs, R)), ((1, 5), (5, 5), (1, 1)));
    assert_eq!((fs.lookup(dir, &name("g")), fs.stat(file).unwrap().nlink), (Ok(file), 2));
    assert_eq!(fs.link(dir, R, &name("x"), time(6)), Err(Errno::EPERM));
    assert_eq!(fs.link(dir, R, &name("f"), time(6)), Err(Errno::EEXIST));
    for number in 2..LINKS_MAX {
        fs.link(file, dir, &name(&alloc::format!("{number}")), time(6)).unwrap();
    }
    assert_eq!(fs.link(file, dir, &name("more"), time(7)), Err(Errno::EMLINK));
    fs.unlink(R, &name("f"), time(8)).unwrap();
    assert_eq!((times(&fs, file), times(&fs, R)), ((1, 8), (8, 8)));
    fs.check().unwrap();
}

/// Goal: an unlinked file lives until its last handle is closed; it cannot be linked again.
#[test]
fn unlinked_files_live_while_open() {
    let mut fs = root();
    let file = fs.create(R, &name("f"), 0o644, call(2)).unwrap();
    fs.open(Handle(1), file, READ).unwrap();
    fs.open(Handle(2), file, READ).unwrap();
    assert_eq!(fs.open(Handle(2), file, READ), Err(Errno::EMFILE));
    fs.unlink(R, &name("f"), time(2)).unwrap();
    fs.write(file, 0, b"abc", false, time(3)).unwrap();
    assert_eq!(fs.link(file, R, &name("g"), time(3)), Err(Errno::ENOENT));
    fs.close(Handle(1)).unwrap();
    assert_eq!(
        (fs.read(file, 0, 9).unwrap(), fs.stat(file).unwrap().nlink, fs.opens(file)),
        (b"abc".to_vec(), 0, Ok(1))
    );
    fs.check().unwrap();
    fs.close(Handle(2)).unwrap();
    assert_eq!((fs.getattr(file), fs.close(Handle(2))), (Err(Errno::ESTALE), Err(Errno::EBADF)));
}

/// Goal: rmdir wants an empty directory; an open one stays, and takes no entries.
#[test]
fn rmdir_rules() {
    let mut fs = root();
    let dir = fs.mkdir(R, &name("d"), 0o755, call(2)).unwrap();
    fs.create(dir, &name("f"), 0o644, call(3)).unwrap();
    assert_eq!(fs.rmdir(dir, &name("f"), time(2)), Err(Errno::ENOTDIR));
    assert_eq!(fs.rmdir(R, &name("d"), time(2)), Err(Errno::ENOTEMPTY));
    assert_eq!(fs.unlink(R, &name("d"), time(2)), Err(Errno::EISDIR));
    assert_eq!(fs.rmdir(R, &name("no"), time(2)), Err(Errno::ENOENT));
    fs.unlink(dir, &name("f"), time(2)).unwrap();
    fs.open(Handle(1), dir, READ).unwrap();
    fs.rmdir(R, &name("d"), time(3)).unwrap();
    assert_eq!((fs.stat(R).unwrap().nlink, fs.stat(dir).unwrap().nlink, times(&fs, R)), (2, 0, (3, 3)));
    assert_eq!(fs.create(dir, &name("x"), 0, call(4)), Err(Errno::ENOENT));
    assert!(fs.readdir(dir).unwrap().is_empty());
    fs.check().unwrap();
}

fn tree() -> (Fs, Ino, Ino, Ino, Ino) {
    let mut fs = root();
    let a = fs.mkdir(R, &name("a"), 0o755, call(2)).unwrap();
    let b = fs.mkdir(a, &name("b"), 0o755, call(3)).unwrap();
    let e = fs.mkdir(R, &name("e"), 0o755, call(4)).unwrap();
    let f = fs.create(R, &name("f"), 0o644, call(5)).unwrap();
    (fs, a, b, e, f)
}

/// Goal: each error of rename, and in the order in which Linux finds them.
#[test]
fn rename_errors() {
    use RenameHow::{Exchange, NoReplace, Replace};
    let (mut fs, a, b, _, file) = tree();
    fs.link(file, R, &name("g"), time(1)).unwrap();
    let before = fs.clone();
    let mut expect = |from: (Ino, &str), to: (Ino, &str), how, result| {
        let (from, to) = ((from.0, &name(from.1)), (to.0, &name(to.1)));
        assert_eq!(fs.rename(from, to, how, time(9)), result, "{from:?} {to:?} {how:?}");
    };
    expect((R, "no"), (R, "f"), Replace, Err(Errno::ENOENT));
    expect((R, "f"), (R, "e"), NoReplace, Err(Errno::EEXIST));
    expect((R, "f"), (R, "f"), NoReplace, Err(Errno::EEXIST));
    expect((R, "f"), (R, "no"), Exchange, Err(Errno::ENOENT));
    expect((R, "a"), (a, "x"), Replace, Err(Errno::EINVAL));
    expect((R, "a"), (b, "x"), Replace, Err(Errno::EINVAL));
    expect((R, "a"), (a, "b"), Replace, Err(Errno::EINVAL));
    expect((a, "b"), (R, "a"), Replace, Err(Errno::ENOTEMPTY));
    expect((a, "b"), (R, "a"), Exchange, Err(Errno::EINVAL));
    expect((R, "e"), (R, "f"), Replace, Err(Errno::ENOTDIR));
    expect((R, "f"), (R, "e"), Replace, Err(Errno::EISDIR));
    expect((R, "e"), (R, "a"), Replace, Err(Errno::ENOTEMPTY));
    expect((file, "x"), (R, "a"), Replace, Err(Errno::ENOTDIR));
    expect((R, "f"), (file, "x"), Replace, Err(Errno::ENOTDIR));
    // Two names of one inode: nothing happens, both stay.
    expect((R, "f"), (R, "g"), Replace, Ok(()));
    expect((R, "f"), (R, "g"), Exchange, Ok(()));
    expect((R, "a"), (R, "a"), Replace, Ok(()));
    assert_eq!(crate::diff(&before, &fs, crate::Compare::Everything), None);
}

/// Goal: a renamed directory takes its parent and the link counts along; times move where they should.
#[test]
fn rename_moves() {
    let (mut fs, a, b, e, file) = tree();
    fs.rename((a, &name("b")), (e, &name("c")), RenameHow::Replace, time(5)).unwrap();
    assert_eq!((fs.parent(b), fs.stat(a).unwrap().nlink, fs.stat(e).unwrap().nlink), (Ok(e), 2, 3));
    assert_eq!(
        (times(&fs, a), times(&fs, e), times(&fs, b), times(&fs, R)),
        ((5, 5), (5, 5), (1, 5), (1, 1))
    );
    // Over an empty directory, which is gone then.
    fs.rename((e, &name("c")), (R, &name("a")), RenameHow::Replace, time(6)).unwrap();
    assert_eq!((fs.lookup(R, &name("a")), fs.getattr(a)), (Ok(b), Err(Errno::ESTALE)));
    assert_eq!((fs.stat(R).unwrap().nlink, fs.stat(e).unwrap().nlink), (4, 2));
    // Over an open file: it lives on without a name.
    let other = fs.create(R, &name("o"), 0o644, call(9)).unwrap();
    fs.open(Handle(1), file, READ).unwrap();
    fs.rename((R, &name("o")), (R, &name("f")), RenameHow::Replace, time(7)).unwrap();
    assert_eq!((fs.lookup(R, &name("f")), fs.stat(file).unwrap().nlink), (Ok(other), 0));
    assert_eq!(times(&fs, file), (1, 7));
    fs.check().unwrap();
}

/// Goal: an exchange swaps a file and a directory between directories, parents and counts included.
#[test]
fn rename_exchanges() {
    let (mut fs, a, b, _, file) = tree();
    fs.rename((a, &name("b")), (R, &name("f")), RenameHow::Exchange, time(5)).unwrap();
    assert_eq!((fs.lookup(a, &name("b")), fs.lookup(R, &name("f"))), (Ok(file), Ok(b)));
    assert_eq!((fs.parent(b), fs.stat(a).unwrap().nlink, fs.stat(R).unwrap().nlink), (Ok(R), 2, 5));
    assert_eq!((times(&fs, file), times(&fs, b), times(&fs, a)), ((1, 5), (1, 5), (5, 5)));
    fs.check().unwrap();
}

/// Goal: chown and, when asked, writes clear suid, and sgid only where it means "run as the group".
#[test]
fn suid_and_sgid_are_cleared() {
    let mut fs = root();
    let file = fs.create(R, &name("f"), 0, call(2)).unwrap();
    let mut after = |mode, act: fn(&mut Fs, Ino)| {
        fs.setattr(file, &SetAttr { mode: Some(mode), ..SetAttr::default() }, time(2)).unwrap();
        act(&mut fs, file);
        fs.stat(file).unwrap().mode
    };
    let chown =
        |fs: &mut Fs, ino| fs.setattr(ino, &SetAttr { uid: Some(1), ..SetAttr::default() }, time(3)).unwrap();
    let kill = |fs: &mut Fs, ino| assert_eq!(fs.write(ino, 0, b"x", true, time(3)), Ok(1));
    let keep = |fs: &mut Fs, ino| assert_eq!(fs.write(ino, 0, b"x", false, time(3)), Ok(1));
    let empty = |fs: &mut Fs, ino| assert_eq!(fs.write(ino, 0, b"", true, time(3)), Ok(0));
    let cut = |fs: &mut Fs, ino| {
        fs.setattr(ino, &SetAttr { size: Some(0), kill_suidgid: true, ..SetAttr::default() }, time(3))
            .unwrap()
    };
    assert_eq!((after(0o6755, chown), after(0o6745, chown)), (0o755, 0o2745));
    assert_eq!((after(0o6755, kill), after(0o6745, kill)), (0o755, 0o2745));
    assert_eq!((after(0o6755, keep), after(0o6755, empty), after(0o6755, cut)), (0o6755, 0o6755, 0o755));
    fs.setattr(R, &SetAttr { mode: Some(0o6755), ..SetAttr::default() }, time(2)).unwrap();
    fs.setattr(R, &SetAttr { gid: Some(1), kill_suidgid: true, ..SetAttr::default() }, time(2)).unwrap();
    assert_eq!(fs.stat(R).unwrap().mode, 0o6755, "a directory keeps them");
}

/// Goal: which times move with truncate, utimens, chmod, write, punch, allocate and nothing at all.
#[test]
fn times_of_attribute_and_data_changes() {
    let mut fs = root();
    let file = fs.create(R, &name("f"), 0o644, call(2)).unwrap();
    let none = SetAttr::default();
    let set = |fs: &mut Fs, set: SetAttr, secs| {
        fs.setattr(file, &set, time(secs)).unwrap();
        times(fs, file)
    };
    assert_eq!(set(&mut fs, none.clone(), 2), (1, 1));
    assert_eq!(set(&mut fs, SetAttr { size: Some(0), ..none.clone() }, 3), (3, 3), "same size");
    assert_eq!(set(&mut fs, SetAttr { size: Some(9), ..none.clone() }, 4), (4, 4));
    assert_eq!(set(&mut fs, SetAttr { mode: Some(0o600), ..none.clone() }, 5), (4, 5));
    let at = Some(SetTime::At(time(77)));
    assert_eq!(set(&mut fs, SetAttr { mtime: at, ..none.clone() }, 6), (77, 6));
    assert_eq!(set(&mut fs, SetAttr { size: Some(1), mtime: Some(SetTime::Now), ..none.clone() }, 7), (7, 7));
    assert_eq!(set(&mut fs, SetAttr { atime: Some(SetTime::Now), ..none }, 8), (7, 8));
    assert_eq!(fs.getattr(file).unwrap().atime, time(8));
    fs.write(file, 0, b"", false, time(9)).unwrap();
    assert_eq!(times(&fs, file), (7, 8), "nothing written");
    fs.write(file, 0, b"x", false, time(10)).unwrap();
    assert_eq!(times(&fs, file), (10, 10));
    fs.punch(file, 0, 1, false, time(11)).unwrap();
    assert_eq!(times(&fs, file), (11, 11));
    fs.read(file, 0, 1).unwrap();
    fs.setxattr(file, b"user.a", b"", XattrHow::Set, time(12)).unwrap();
    assert_eq!(times(&fs, file), (11, 12));
}

/// Goal: reads, writes, appends and allocation at the ends of what Linux accepts.
#[test]
fn ranges_at_the_limits() {
    let mut fs = root();
    let file = fs.create(R, &name("f"), 0o644, call(2)).unwrap();
    let now = time(2);
    assert_eq!(fs.write(file, FILE_SIZE_MAX, b"x", false, now), Err(Errno::EINVAL));
    assert_eq!(fs.write(file, u64::MAX, b"x", false, now), Err(Errno::EINVAL));
    assert_eq!(fs.write(file, FILE_SIZE_MAX - 1, b"x", false, now), Ok(1));
    assert_eq!(fs.append(file, b"y", false, now), Err(Errno::EFBIG));
    assert_eq!(fs.read(file, FILE_SIZE_MAX - 1, 1), Ok(b"x".to_vec()));
    assert_eq!(fs.read(file, FILE_SIZE_MAX - 1, 2), Err(Errno::EINVAL));
    let cut = |fs: &mut Fs, size| fs.setattr(file, &SetAttr { size: Some(size), ..SetAttr::default() }, now);
    assert_eq!(cut(&mut fs, FILE_SIZE_MAX + 1), Err(Errno::EINVAL));
    cut(&mut fs, FILE_SIZE_MAX - 1).unwrap();
    assert_eq!(fs.append(file, b"yz", false, now), Ok(1), "as much as fits");
    assert_eq!(fs.punch(file, 0, 0, false, now), Err(Errno::EINVAL));
    assert_eq!(fs.punch(file, FILE_SIZE_MAX, 1, false, now), Err(Errno::EFBIG));
    cut(&mut fs, 5).unwrap();
    fs.allocate(file, (0, 100), true, false, now).unwrap();
    assert_eq!(fs.stat(file).unwrap().size, 5);
    fs.allocate(file, (0, 100), false, false, now).unwrap();
    assert_eq!(fs.stat(file).unwrap().size, 100);
    assert_eq!((fs.read(R, 0, 1), fs.write(R, 0, b"", false, now)), (Err(Errno::EISDIR), Err(Errno::EISDIR)));
    assert_eq!(fs.open(Handle(1), R, Access { write: true, ..READ }), Err(Errno::EISDIR));
    let fifo = fs.mknod(R, &name("p"), Kind::Fifo, 0, 0, call(3)).unwrap();
    assert_eq!(fs.punch(fifo, 0, 1, false, now), Err(Errno::ENODEV));
}

/// Goal: extended attributes: flags, namespaces, kinds of inode, and every limit at its edge.
#[test]
fn xattr_rules() {
    use XattrHow::{Create, Replace, Set};
    let mut fs = root();
    let now = time(2);
    let value: Vec<u8> = vec![1; XATTR_VALUE_MAX + 1];
    let long = [&b"user."[..], &[b'n'; 250]].concat();
    let mut set = |name: &[u8], value: &[u8], how| fs.setxattr(R, name, value, how, now);
    assert_eq!(set(b"user.a", b"1", Replace), Err(Errno::ENODATA));
    assert_eq!(set(b"user.a", b"1", Create), Ok(()));
    assert_eq!(set(b"user.a", b"2", Create), Err(Errno::EEXIST));
    assert_eq!(set(b"user.a", b"3", Replace), Ok(()));
    assert_eq!(set(&long, &value[1..], Set), Ok(()));
    assert_eq!(set(&[&long[..], b"n"].concat(), b"", Set), Err(Errno::ERANGE));
    assert_eq!(set(b"", b"", Set), Err(Errno::ERANGE));
    assert_eq!(set(b"user.b", &value, Set), Err(Errno::E2BIG));
    assert_eq!(set(b"user.", b"", Set), Err(Errno::EINVAL));
    assert_eq!(set(b"other.a", b"", Set), Err(Errno::EOPNOTSUPP));
    for number in 0..15 {
        set(alloc::format!("trusted.{number}").as_bytes(), &value[1..], Set).unwrap_or_else(|e| {
            assert_eq!(
                (number, e),
                (14, Errno::ENOSPC),
                "15 values of 64 KiB and their names do not fit beside the first"
            )
        });
    }
    assert_eq!(set(b"user.a", &value[1..], Set), Err(Errno::ENOSPC));
    assert_eq!(fs.getxattr(R, b"user.a"), Ok(b"3".to_vec()), "a refused value leaves the old one");
    fs.removexattr(R, &long, now).unwrap();
    assert_eq!(fs.getxattr(R, &long), Err(Errno::ENODATA));
    assert_eq!(fs.removexattr(R, &long, now), Err(Errno::ENODATA));
    assert_eq!(fs.listxattr(R).unwrap().len(), 15);
    fs.check().unwrap();
    let link = fs.symlink(R, &name("l"), b"x", call(2)).unwrap();
    assert_eq!(fs.setxattr(link, b"user.a", b"", Set, now), Err(Errno::EPERM));
    assert_eq!(fs.getxattr(link, b"user.a"), Err(Errno::ENODATA));
    assert_eq!(fs.setxattr(link, b"trusted.a", b"", Set, now), Ok(()));
}

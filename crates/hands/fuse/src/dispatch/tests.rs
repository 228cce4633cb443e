//! Every opcode's bytes against a file system that writes down what it was asked.

use std::cell::RefCell;
use std::pin::pin;
use std::task::{Poll, Waker};

use zerocopy::{FromBytes, IntoBytes};

use super::{Answer, dispatch};
use crate::abi::header::{IN_HEADER, InHeader, OUT_HEADER, OutHeader};
use crate::abi::{control::*, file::*, lock::*, namespace::*, node::*, opcode, xattr::*};
use crate::{
    Attr, AttrReply, Context, CopyRange, CreateRequest, DirSink, Entry, Errno, FallocateRequest, FileKind,
    FileLock, Filesystem, Forgets, Interrupt, IoctlRequest, LockKind, LockRequest, NoParking, OpenFlags,
    OpenRequest, Opened, ReadRequest, ReleaseRequest, ReplyBuffer, SetAttr, StatFs, Waited, WriteRequest,
};

/// A request with all its lengths right.
pub(super) fn request(opcode: u32, body: &[&[u8]]) -> Vec<u8> {
    let length = IN_HEADER + body.iter().map(|part| part.len()).sum::<usize>();
    let header = InHeader {
        len: length as u32,
        opcode,
        unique: 0x1234,
        nodeid: 7,
        uid: 1000,
        gid: 100,
        pid: 42,
        ..InHeader::default()
    };
    let mut bytes = header.as_bytes().to_vec();
    body.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// Polls once: none of the test file systems waits.
pub(super) fn run<F: Filesystem>(fs: &F, bytes: &[u8], reply: &mut ReplyBuffer) -> Answer {
    let mut future = pin!(dispatch(fs, bytes, Interrupt::never(), &NoParking, reply));
    match future.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("dispatch waits although the file system does not"),
    }
}

/// Writes calls down and gives fixed answers.
#[derive(Default)]
struct Recorder(RefCell<String>);

impl Recorder {
    fn note(&self, cx: &Context<'_>, text: String) {
        assert_eq!((cx.unique, cx.uid, cx.gid, cx.pid), (0x1234, 1000, 100, 42));
        self.0.replace(text);
    }
}

fn entry() -> Entry {
    Entry { ino: 11, attr: attr().attr, ..Entry::default() }
}

fn attr() -> AttrReply {
    AttrReply { attr: Attr { ino: 11, mode: 0o100_644, ..Attr::default() }, ..AttrReply::default() }
}

const OPENED: Opened = Opened { fh: 77, flags: OpenFlags::DIRECT_IO };

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Filesystem for Recorder {
    async fn lookup(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        self.note(cx, format!("lookup {parent} {}", text(name)));
        Ok(entry())
    }
    async fn forget(&self, forgets: Forgets<'_>) {
        self.0.replace(format!("forget {:?}", forgets.collect::<Vec<_>>()));
    }
    async fn getattr(&self, cx: &Context<'_>, ino: u64, fh: Option<u64>) -> Result<AttrReply, Errno> {
        self.note(cx, format!("getattr {ino} {fh:?}"));
        Ok(attr())
    }
    async fn setattr(&self, cx: &Context<'_>, ino: u64, set: &SetAttr) -> Result<AttrReply, Errno> {
        self.note(
            cx,
            format!("setattr {ino} {:?} {:?} {:?} {}", set.size, set.atime, set.mtime, set.kill_suidgid),
        );
        Ok(attr())
    }
    async fn readlink(&self, cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Result<usize, Errno> {
        self.note(cx, format!("readlink {ino}"));
        out[..3].copy_from_slice(b"a/b");
        Ok(3)
    }
    async fn mknod(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Entry, Errno> {
        self.note(cx, format!("mknod {parent} {} {mode:o} {rdev} {:o}", text(name), cx.umask));
        Ok(entry())
    }
    async fn mkdir(&self, cx: &Context<'_>, parent: u64, name: &[u8], mode: u32) -> Result<Entry, Errno> {
        self.note(cx, format!("mkdir {parent} {} {mode:o} {:o}", text(name), cx.umask));
        Ok(entry())
    }
    async fn unlink(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.note(cx, format!("unlink {parent} {}", text(name)));
        Ok(())
    }
    async fn rmdir(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.note(cx, format!("rmdir {parent} {}", text(name)));
        Err(Errno::ENOTEMPTY)
    }
    async fn symlink(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        self.note(cx, format!("symlink {parent} {} {}", text(name), text(target)));
        Ok(entry())
    }
    async fn rename(
        &self,
        cx: &Context<'_>,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        self.note(cx, format!("rename {} {} {} {} {flags}", from.0, text(from.1), to.0, text(to.1)));
        Ok(())
    }
    async fn link(&self, cx: &Context<'_>, ino: u64, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        self.note(cx, format!("link {ino} {parent} {}", text(name)));
        Ok(entry())
    }
    async fn open(&self, cx: &Context<'_>, ino: u64, request: &OpenRequest) -> Result<Opened, Errno> {
        self.note(cx, format!("open {ino} {:o} {}", request.flags, request.kill_suidgid));
        Ok(OPENED)
    }
    async fn create(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        request: &CreateRequest,
    ) -> Result<(Entry, Opened), Errno> {
        self.note(cx, format!("create {parent} {} {:o} {:o}", text(name), request.mode, cx.umask));
        Ok((entry(), OPENED))
    }
    async fn tmpfile(
        &self,
        cx: &Context<'_>,
        parent: u64,
        request: &CreateRequest,
    ) -> Result<(Entry, Opened), Errno> {
        self.note(cx, format!("tmpfile {parent} {:o}", request.mode));
        Ok((entry(), OPENED))
    }
    async fn read(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        self.note(
            cx,
            format!("read {ino} {} {} {} {:?}", request.fh, request.offset, out.len(), request.lock_owner),
        );
        out[..5].copy_from_slice(b"bytes");
        Ok(5)
    }
    async fn write(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &WriteRequest,
        data: &[u8],
    ) -> Result<usize, Errno> {
        self.note(
            cx,
            format!(
                "write {ino} {} {} {} {}",
                request.offset,
                text(data),
                request.from_cache,
                request.kill_suidgid
            ),
        );
        Ok(data.len())
    }
    async fn flush(&self, cx: &Context<'_>, ino: u64, fh: u64, lock_owner: u64) -> Result<(), Errno> {
        self.note(cx, format!("flush {ino} {fh} {lock_owner}"));
        Ok(())
    }
    async fn release(&self, cx: &Context<'_>, ino: u64, request: &ReleaseRequest) -> Result<(), Errno> {
        self.note(cx, format!("release {ino} {} {} {}", request.fh, request.flush, request.flock_unlock));
        Ok(())
    }
    async fn fsync(&self, cx: &Context<'_>, ino: u64, fh: u64, data_only: bool) -> Result<(), Errno> {
        self.note(cx, format!("fsync {ino} {fh} {data_only}"));
        Ok(())
    }
    async fn opendir(&self, cx: &Context<'_>, ino: u64, _request: &OpenRequest) -> Result<Opened, Errno> {
        self.note(cx, format!("opendir {ino}"));
        Ok(OPENED)
    }
    async fn readdir(
        &self,
        cx: &Context<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.note(cx, format!("readdir {ino} {fh} {offset}"));
        let mut next = 0;
        while sink.add(9, next, FileKind::Regular, b"12345678").is_ok() {
            next += 1;
        }
        Ok(())
    }
    async fn readdirplus(
        &self,
        cx: &Context<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.note(cx, format!("readdirplus {ino} {fh} {offset}"));
        let _ = sink.add_plus(&entry(), 1, b"12345678");
        Ok(())
    }
    async fn releasedir(&self, cx: &Context<'_>, ino: u64, request: &ReleaseRequest) -> Result<(), Errno> {
        self.note(cx, format!("releasedir {ino} {}", request.fh));
        Ok(())
    }
    async fn fsyncdir(&self, cx: &Context<'_>, ino: u64, fh: u64, data_only: bool) -> Result<(), Errno> {
        self.note(cx, format!("fsyncdir {ino} {fh} {data_only}"));
        Ok(())
    }
    async fn statfs(&self, cx: &Context<'_>, ino: u64) -> Result<StatFs, Errno> {
        self.note(cx, format!("statfs {ino}"));
        Ok(StatFs { blocks: 5, ..StatFs::default() })
    }
    async fn setxattr(
        &self,
        cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Result<(), Errno> {
        self.note(cx, format!("setxattr {ino} {} {} {flags} {kill_sgid}", text(name), text(value)));
        Ok(())
    }
    async fn getxattr(
        &self,
        cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        self.note(cx, format!("getxattr {ino} {} {}", text(name), out.len()));
        Ok(10)
    }
    async fn listxattr(&self, cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Result<usize, Errno> {
        self.note(cx, format!("listxattr {ino} {}", out.len()));
        Ok(10)
    }
    async fn removexattr(&self, cx: &Context<'_>, ino: u64, name: &[u8]) -> Result<(), Errno> {
        self.note(cx, format!("removexattr {ino} {}", text(name)));
        Ok(())
    }
    async fn fallocate(&self, cx: &Context<'_>, ino: u64, request: &FallocateRequest) -> Result<(), Errno> {
        self.note(cx, format!("fallocate {ino} {} {} {}", request.offset, request.length, request.mode));
        Ok(())
    }
    async fn lseek(
        &self,
        cx: &Context<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        whence: u32,
    ) -> Result<u64, Errno> {
        self.note(cx, format!("lseek {ino} {fh} {offset} {whence}"));
        Ok(4096)
    }
    async fn copy_file_range(&self, cx: &Context<'_>, ino: u64, request: &CopyRange) -> Result<u64, Errno> {
        self.note(cx, format!("copy {ino} {} {}", request.ino_out, request.length));
        Ok(request.length)
    }
    async fn getlk(&self, cx: &Context<'_>, ino: u64, request: &LockRequest) -> Result<FileLock, Errno> {
        self.note(cx, format!("getlk {ino} {}", request.owner));
        Ok(request.lock)
    }
    async fn setlk(&self, cx: &Context<'_>, ino: u64, request: &LockRequest) -> Result<(), Errno> {
        self.note(cx, format!("setlk {ino} {:?} {}", request.lock.kind, request.lock.end));
        Ok(())
    }
    async fn setlkw(&self, cx: &Context<'_>, ino: u64, request: &LockRequest) -> Result<Waited, Errno> {
        self.note(cx, format!("setlkw {ino} {:?}", request.lock.kind));
        // What no transport parks is no excuse for no answer.
        Ok(if request.lock.kind == LockKind::Read { Waited::Later } else { Waited::Now })
    }
    async fn flock(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &LockRequest,
        wait: bool,
    ) -> Result<Waited, Errno> {
        self.note(cx, format!("flock {ino} {:?} {wait}", request.lock.kind));
        assert_eq!(cx.park().unwrap_err(), Errno::ENOLCK);
        Ok(Waited::Now)
    }
    async fn ioctl(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &IoctlRequest,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<(i32, usize), Errno> {
        self.note(cx, format!("ioctl {ino} {} {} {}", request.command, text(input), out.len()));
        Ok((1, 4))
    }
    async fn poll(&self, cx: &Context<'_>, ino: u64, fh: u64, events: u32) -> Result<u32, Errno> {
        self.note(cx, format!("poll {ino} {fh} {events}"));
        Ok(events)
    }
    async fn access(&self, cx: &Context<'_>, ino: u64, mask: u32) -> Result<(), Errno> {
        self.note(cx, format!("access {ino} {mask}"));
        Err(Errno::EACCES)
    }
}

const READ: ReadIn = ReadIn {
    fh: 77,
    offset: 4096,
    size: 100,
    read_flags: READ_LOCKOWNER,
    lock_owner: 3,
    flags: 0,
    padding: 0,
};
const WRITE: WriteIn = WriteIn {
    fh: 77,
    offset: 8192,
    size: 4,
    write_flags: WRITE_CACHE | WRITE_KILL_SUIDGID,
    lock_owner: 0,
    flags: 0,
    padding: 0,
};
const RELEASE: ReleaseIn =
    ReleaseIn { fh: 77, flags: 0, release_flags: RELEASE_FLUSH | RELEASE_FLOCK_UNLOCK, lock_owner: 0 };
const FSYNC: FsyncIn = FsyncIn { fh: 77, fsync_flags: FSYNC_DATA, padding: 0 };
const CREATE: CreateIn = CreateIn { flags: 2, mode: 0o100_640, umask: 0o22, open_flags: 0 };
const COPY: CopyFileRangeIn =
    CopyFileRangeIn { fh_in: 1, off_in: 0, nodeid_out: 8, fh_out: 2, off_out: 0, len: 1 << 33, flags: 0 };
const LOCK: LkIn = LkIn {
    fh: 77,
    owner: 5,
    lk: RawFileLock { start: 0, end: 99, kind: F_WRLCK, pid: 42 },
    lk_flags: 0,
    padding: 0,
};

fn setattr() -> SetattrIn {
    SetattrIn {
        valid: fattr::SIZE | fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW | fattr::KILL_SUIDGID,
        size: 10,
        atime: 1,
        atimensec: 2,
        ..SetattrIn::default()
    }
}

/// One row: opcode, the body's parts, the call expected, the outcome expected (payload length, or error).
type Row<'a> = (u32, &'a [&'a [u8]], &'a str, Result<usize, Errno>);

fn check(rows: &[Row<'_>]) {
    let mut reply = ReplyBuffer::new(1 << 17).unwrap();
    for (opcode, body, call, outcome) in rows {
        let recorder = Recorder::default();
        let Answer::Reply(length) = run(&recorder, &request(*opcode, body), &mut reply) else {
            panic!("{call}: no reply")
        };
        assert_eq!(recorder.0.borrow().as_str(), *call);
        let (header, _) = OutHeader::read_from_prefix(reply.reply(length)).unwrap();
        assert_eq!((header.len as usize, header.unique), (length, 0x1234), "{call}");
        match outcome {
            Ok(payload) => assert_eq!((header.error, length), (0, OUT_HEADER + payload), "{call}"),
            Err(errno) => assert_eq!((header.error, length), (errno.to_wire(), OUT_HEADER), "{call}"),
        }
    }
}

/// Goal: requests on names are decoded field by field and answered with the right structure.
#[test]
fn names() {
    let mknod = MknodIn { mode: 0o010_644, rdev: 5, umask: 0o77, padding: 0 };
    let rename2 = Rename2In { newdir: 9, flags: 2, padding: 0 };
    check(&[
        (opcode::LOOKUP, &[b"name\0"], "lookup 7 name", Ok(128)),
        (opcode::LOOKUP, &[b"..\0"], "lookup 7 ..", Ok(128)),
        (opcode::LOOKUP, &[&[b'x'; 256], b"\0"], "", Err(Errno::ENAMETOOLONG)),
        (opcode::READLINK, &[], "readlink 7", Ok(3)),
        (opcode::SYMLINK, &[b"name\0", b"to/it\0"], "symlink 7 name to/it", Ok(128)),
        (opcode::SYMLINK, &[b"name\0", b"\0"], "", Err(Errno::ENOENT)),
        (opcode::MKNOD, &[mknod.as_bytes(), b"p\0"], "mknod 7 p 10644 5 77", Ok(128)),
        (
            opcode::MKDIR,
            &[MkdirIn { mode: 0o755, umask: 0o22 }.as_bytes(), b"d\0"],
            "mkdir 7 d 755 22",
            Ok(128),
        ),
        (opcode::MKDIR, &[MkdirIn { mode: 0o755, umask: 0o22 }.as_bytes(), b"d/e\0"], "", Err(Errno::EINVAL)),
        (opcode::UNLINK, &[b"f\0"], "unlink 7 f", Ok(0)),
        (opcode::UNLINK, &[b"f"], "", Err(Errno::EINVAL)),
        (opcode::RMDIR, &[b"f\0"], "rmdir 7 f", Err(Errno::ENOTEMPTY)),
        (opcode::RENAME, &[RenameIn { newdir: 9 }.as_bytes(), b"a\0b\0"], "rename 7 a 9 b 0", Ok(0)),
        (opcode::RENAME2, &[rename2.as_bytes(), b"a\0b\0"], "rename 7 a 9 b 2", Ok(0)),
        (opcode::RENAME2, &[Rename2In { flags: 4, ..rename2 }.as_bytes(), b"a\0b\0"], "", Err(Errno::EINVAL)),
        (opcode::LINK, &[LinkIn { oldnodeid: 6 }.as_bytes(), b"l\0"], "link 6 7 l", Ok(128)),
        (opcode::CREATE, &[CREATE.as_bytes(), b"c\0"], "create 7 c 100640 22", Ok(144)),
        (opcode::TMPFILE, &[CREATE.as_bytes(), b"/\0"], "tmpfile 7 100640", Ok(144)),
    ]);
}

/// Goal: requests on inodes and their attributes are decoded field by field.
#[test]
fn nodes() {
    let set = "setattr 7 Some(10) Some(At(Time { seconds: 1, nanos: 2 })) Some(Now) true";
    let late = SetattrIn { atimensec: 1_000_000_000, ..setattr() };
    let xattr = SetxattrIn { size: 3, flags: 1, setxattr_flags: 1, padding: 0 };
    let get = |size| GetxattrIn { size, padding: 0 };
    check(&[
        (
            opcode::GETATTR,
            &[GetattrIn { getattr_flags: 1, dummy: 0, fh: 4 }.as_bytes()],
            "getattr 7 Some(4)",
            Ok(104),
        ),
        (opcode::GETATTR, &[GetattrIn::default().as_bytes()], "getattr 7 None", Ok(104)),
        (opcode::SETATTR, &[setattr().as_bytes()], set, Ok(104)),
        (opcode::SETATTR, &[late.as_bytes()], "", Err(Errno::EINVAL)),
        (opcode::STATFS, &[], "statfs 7", Ok(80)),
        (opcode::ACCESS, &[AccessIn { mask: 4, padding: 0 }.as_bytes()], "access 7 4", Err(Errno::EACCES)),
        (opcode::SETXATTR, &[xattr.as_bytes(), b"user.a\0", b"val"], "setxattr 7 user.a val 1 true", Ok(0)),
        (opcode::SETXATTR, &[xattr.as_bytes(), b"user.a\0", b"va"], "", Err(Errno::EINVAL)),
        (opcode::GETXATTR, &[get(0).as_bytes(), b"user.a\0"], "getxattr 7 user.a 0", Ok(8)),
        (opcode::GETXATTR, &[get(9).as_bytes(), b"user.a\0"], "getxattr 7 user.a 9", Err(Errno::ERANGE)),
        (opcode::GETXATTR, &[get(10).as_bytes(), b"user.a\0"], "getxattr 7 user.a 10", Ok(10)),
        (opcode::LISTXATTR, &[get(0).as_bytes()], "listxattr 7 0", Ok(8)),
        (opcode::LISTXATTR, &[get(100).as_bytes()], "listxattr 7 100", Ok(10)),
        (opcode::REMOVEXATTR, &[b"user.a\0"], "removexattr 7 user.a", Ok(0)),
    ]);
}

/// Goal: requests on open files and directories are decoded field by field; sizes beyond the agreement are refused.
#[test]
fn files() {
    let huge = ReadIn { size: 1 << 20, ..READ };
    let falloc = FallocateIn { fh: 77, offset: 1, length: 2, mode: 3, padding: 0 };
    let seek = LseekIn { fh: 77, offset: 5, whence: 3, padding: 0 };
    check(&[
        (opcode::OPEN, &[OpenIn { flags: 0o2001, open_flags: 1 }.as_bytes()], "open 7 2001 true", Ok(16)),
        (opcode::READ, &[READ.as_bytes()], "read 7 77 4096 100 Some(3)", Ok(5)),
        (opcode::READ, &[huge.as_bytes()], "", Err(Errno::EINVAL)),
        (opcode::READ, &[&READ.as_bytes()[..39]], "", Err(Errno::EINVAL)),
        (opcode::WRITE, &[WRITE.as_bytes(), b"data"], "write 7 8192 data true true", Ok(8)),
        (opcode::WRITE, &[WRITE.as_bytes(), b"dat"], "", Err(Errno::EINVAL)),
        (
            opcode::FLUSH,
            &[FlushIn { fh: 77, lock_owner: 3, ..FlushIn::default() }.as_bytes()],
            "flush 7 77 3",
            Ok(0),
        ),
        (opcode::RELEASE, &[RELEASE.as_bytes()], "release 7 77 true true", Ok(0)),
        (opcode::FSYNC, &[FSYNC.as_bytes()], "fsync 7 77 true", Ok(0)),
        (opcode::FALLOCATE, &[falloc.as_bytes()], "fallocate 7 1 2 3", Ok(0)),
        (opcode::LSEEK, &[seek.as_bytes()], "lseek 7 77 5 3", Ok(8)),
        (opcode::COPY_FILE_RANGE, &[COPY.as_bytes()], "copy 7 8 4294963200", Ok(8)),
        (opcode::COPY_FILE_RANGE_64, &[COPY.as_bytes()], "copy 7 8 8589934592", Ok(8)),
        (opcode::OPENDIR, &[OpenIn::default().as_bytes()], "opendir 7", Ok(16)),
        (opcode::READDIR, &[READ.as_bytes()], "readdir 7 77 4096", Ok(96)),
        (opcode::READDIR, &[huge.as_bytes()], "readdir 7 77 4096", Ok(1 << 17)),
        (opcode::READDIRPLUS, &[READ.as_bytes()], "readdirplus 7 77 4096", Ok(0)),
        (opcode::READDIRPLUS, &[huge.as_bytes()], "readdirplus 7 77 4096", Ok(160)),
        (opcode::RELEASEDIR, &[RELEASE.as_bytes()], "releasedir 7 77", Ok(0)),
        (opcode::FSYNCDIR, &[FSYNC.as_bytes()], "fsyncdir 7 77 true", Ok(0)),
    ]);
}

/// Goal: locks go to the method their flag says; unknown operations and out-of-order INIT are errors.
#[test]
fn control() {
    let flock = LkIn { lk_flags: LK_FLOCK, ..LOCK };
    let never = LkIn { lk: RawFileLock { kind: F_RDLCK, ..LOCK.lk }, ..LOCK };
    let odd = LkIn { lk: RawFileLock { kind: 9, ..LOCK.lk }, ..LOCK };
    let ioctl = IoctlIn { fh: 77, flags: 0, cmd: 21, arg: 0, in_size: 2, out_size: 8 };
    let wide = IoctlIn { out_size: u32::MAX, ..ioctl };
    check(&[
        (opcode::GETLK, &[LOCK.as_bytes()], "getlk 7 5", Ok(24)),
        (opcode::SETLK, &[LOCK.as_bytes()], "setlk 7 Write 99", Ok(0)),
        (opcode::SETLK, &[odd.as_bytes()], "", Err(Errno::EINVAL)),
        (opcode::SETLKW, &[LOCK.as_bytes()], "setlkw 7 Write", Ok(0)),
        (opcode::SETLKW, &[never.as_bytes()], "setlkw 7 Read", Err(Errno::EIO)),
        (opcode::SETLK, &[flock.as_bytes()], "flock 7 Write false", Ok(0)),
        (opcode::SETLKW, &[flock.as_bytes()], "flock 7 Write true", Ok(0)),
        (opcode::IOCTL, &[ioctl.as_bytes(), b"in"], "ioctl 7 21 in 8", Ok(20)),
        (opcode::IOCTL, &[wide.as_bytes(), b"in"], "", Err(Errno::EINVAL)),
        (opcode::POLL, &[PollIn { fh: 77, events: 5, ..PollIn::default() }.as_bytes()], "poll 7 77 5", Ok(8)),
        (opcode::INIT, &[&[0; 64]], "", Err(Errno::EPROTO)),
        (opcode::DESTROY, &[], "", Ok(0)),
        (9999, &[], "", Err(Errno::ENOSYS)),
    ]);
}

/// Goal: one-way requests get no reply, whole or damaged.
#[test]
fn one_way() {
    let mut reply = ReplyBuffer::new(0).unwrap();
    let recorder = Recorder::default();
    let forget = request(opcode::FORGET, &[ForgetIn { nlookup: 3 }.as_bytes()]);
    assert_eq!(run(&recorder, &forget, &mut reply), Answer::NoReply);
    assert_eq!(recorder.0.take(), "forget [(7, 3)]");
    let one = |nodeid, nlookup| ForgetOne { nodeid, nlookup };
    let head = BatchForgetIn { count: 3, dummy: 0 };
    let batch = request(opcode::BATCH_FORGET, &[head.as_bytes(), one(1, 2).as_bytes(), one(3, 4).as_bytes()]);
    assert_eq!(run(&recorder, &batch, &mut reply), Answer::NoReply);
    assert_eq!(recorder.0.take(), "forget [(1, 2), (3, 4)]", "the count says more than there is");
    assert_eq!(run(&recorder, &forget[..44], &mut reply), Answer::NoReply);
    let interrupt = request(opcode::INTERRUPT, &[InterruptIn { unique: 10 }.as_bytes()]);
    assert_eq!(run(&recorder, &interrupt, &mut reply), Answer::Interrupt { unique: 10 });
    assert_eq!(run(&recorder, &[1, 2, 3], &mut reply), Answer::NoReply);
}

/// Goal: a header whose length is wrong is refused, and extensions at the end are not taken for the body.
#[test]
fn lengths_and_extensions() {
    let mut reply = ReplyBuffer::new(0).unwrap();
    let recorder = Recorder::default();
    let mut bytes = request(opcode::LOOKUP, &[b"abc\0", &[1; 8]]);
    bytes[36] = 1; // total_extlen
    assert_eq!(run(&recorder, &bytes, &mut reply), Answer::Reply(144));
    assert_eq!(recorder.0.take(), "lookup 7 abc");
    bytes[36] = 200;
    assert_eq!(run(&recorder, &bytes, &mut reply), Answer::Reply(16));
    bytes[36] = 0;
    bytes.push(0);
    assert_eq!(run(&recorder, &bytes, &mut reply), Answer::Reply(16));
    assert_eq!(recorder.0.take(), "");
}

//! Listing directories while they change, names of every byte, deep trees, many links.

use super::{Outcome, Script, at, hold};
use crate::errno::Errno;
use crate::sys::{self, Arg};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt, PermissionsExt};

/// Names in the big directory: the issue asks for a listing that takes many `getdents` calls.
const NAMES: usize = 5_000;

/// One raw directory entry.
struct Entry {
    name: Vec<u8>,
    next: i64,
    kind: u8,
    ino: u64,
}

/// One `getdents64` call; an empty list is the end.
fn entries(dir: &File, room: usize) -> Result<Vec<Entry>, Errno> {
    let mut buf = vec![0u8; room];
    let got = sys::call(
        libc::SYS_getdents64,
        &mut [Arg::Int(dir.as_raw_fd().into()), Arg::Out(&mut buf), Arg::Int(room as i64)],
    )?;
    let mut rest = &buf[..usize::try_from(got).unwrap_or(0)];
    let mut out = Vec::new();
    const FIXED: usize = 19; // d_ino, d_off, d_reclen, d_type
    while rest.len() > FIXED {
        let word = |at: usize| <[u8; 8]>::try_from(&rest[at..at + 8]).unwrap_or_default();
        let len = usize::from(u16::from_ne_bytes([rest[16], rest[17]])).clamp(FIXED, rest.len());
        let name = rest[FIXED..len].split(|b| *b == 0).next().unwrap_or_default().to_vec();
        out.push(Entry {
            name,
            next: i64::from_ne_bytes(word(8)),
            kind: rest[18],
            ino: u64::from_ne_bytes(word(0)),
        });
        rest = &rest[len..];
    }
    Ok(out)
}

fn seek(dir: &File, offset: i64) -> Result<i64, Errno> {
    let mut args = [Arg::Int(dir.as_raw_fd().into()), Arg::Int(offset), Arg::Int(libc::SEEK_SET.into())];
    sys::call(libc::SYS_lseek, &mut args)
}

fn name(n: usize) -> String {
    format!("d/entry-{n:05}")
}

/// Fills `d`; every third name is there to be removed later.
fn fill(count: usize) -> Outcome {
    at("mkdir d", fs::create_dir("d"))?;
    (0..count).try_for_each(|n| at("create", File::create(name(n))).map(drop))
}

/// Lists `d` with a small buffer while every third name goes and new ones come.
fn list_while_changing(room: usize) -> Outcome {
    fill(NAMES)?;
    let dir = at("open d", File::open("d"))?;
    let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let (mut gone, mut fresh) = (0, 0);
    loop {
        let batch = at("getdents", entries(&dir, room))?;
        if batch.is_empty() {
            break;
        }
        for entry in batch {
            *seen.entry(entry.name).or_default() += 1;
        }
        for _ in 0..40 {
            if gone < NAMES {
                at("unlink", fs::remove_file(name(gone)))?;
                gone += 3;
            }
            if fresh < NAMES {
                at("create", File::create(format!("d/new-{fresh:05}")))?;
                fresh += 1;
            }
        }
    }
    if let Some((twice, n)) = seen.iter().find(|(_, n)| **n > 1) {
        return Err(format!("{} was listed {n} times", twice.escape_ascii()));
    }
    for n in (0..NAMES).filter(|n| n % 3 != 0) {
        let name = format!("entry-{n:05}");
        hold(seen.contains_key(name.as_bytes()), || format!("{name}, never touched, was not listed"))?;
    }
    let strange = seen.keys().find(|n| {
        !(n.starts_with(b"entry-") || n.starts_with(b"new-") || n.as_slice() == b"." || n.as_slice() == b"..")
    });
    hold(strange.is_none(), || format!("listed names that never were: {strange:?}"))
}

pub(super) const COMPLETE: Script = Script {
    id: "directory/complete-while-changing",
    goal: "a listing of 5,000 names neither skips nor repeats a name nobody touched, while others come and go",
    needs: &[],
    run: || list_while_changing(1024),
};

pub(super) const COMPLETE_WIDE_BUFFER: Script = Script {
    id: "directory/complete-while-changing-wide-buffer",
    goal: "the same with the buffer size that libc uses",
    needs: &[],
    run: || list_while_changing(32 << 10),
};

pub(super) const TELLDIR: Script = Script {
    id: "directory/telldir-seekdir",
    goal: "after seeking to an offset the listing goes on with the entry that followed it",
    needs: &[],
    run: || {
        fill(600)?;
        let dir = at("open d", File::open("d"))?;
        let mut all = Vec::new();
        loop {
            let batch = at("getdents", entries(&dir, 4096))?;
            if batch.is_empty() {
                break;
            }
            all.extend(batch);
        }
        for pick in (0..all.len() - 1).step_by(37).chain([0, all.len() - 2]) {
            at("lseek", seek(&dir, all[pick].next))?;
            let batch = at("getdents", entries(&dir, 4096))?;
            let (want, got) = (&all[pick + 1].name, batch.first().map(|e| &e.name));
            hold(got == Some(want), || format!("after seeking behind entry {pick}: {got:?}, not {want:?}"))?;
        }
        at("lseek", seek(&dir, all[all.len() - 1].next))?;
        let tail = at("getdents", entries(&dir, 4096))?;
        hold(tail.is_empty(), || format!("{} entries after the last one", tail.len()))
    },
};

pub(super) const REWIND: Script = Script {
    id: "directory/rewind-sees-changes",
    goal: "after a rewind the listing shows the names of now",
    needs: &[],
    run: || {
        fill(10)?;
        let dir = at("open d", File::open("d"))?;
        at("getdents", entries(&dir, 32 << 10))?;
        at("unlink", fs::remove_file(name(3)))?;
        at("create", File::create("d/late"))?;
        at("rewind", seek(&dir, 0))?;
        let mut seen = BTreeSet::new();
        loop {
            let batch = at("getdents", entries(&dir, 32 << 10))?;
            if batch.is_empty() {
                break;
            }
            seen.extend(batch.into_iter().map(|e| e.name));
        }
        hold(seen.contains(b"late".as_slice()), || "the new name is missing".to_owned())?;
        hold(!seen.contains(b"entry-00003".as_slice()), || "the removed name is still listed".to_owned())?;
        hold(seen.len() == 12, || format!("{} names, not 12", seen.len()))
    },
};

pub(super) const TYPES: Script = Script {
    id: "directory/types-and-inodes",
    goal: "a listing gives the kind and inode number that lstat gives",
    needs: &[],
    run: || {
        fill(1)?;
        at("mkdir", fs::create_dir("d/sub"))?;
        at("symlink", std::os::unix::fs::symlink("x", "d/link"))?;
        let fifo = c"d/fifo".to_owned();
        let mode = i64::from(libc::S_IFIFO | 0o600);
        let mut args = [Arg::Int(libc::AT_FDCWD.into()), Arg::Text(&fifo), Arg::Int(mode), Arg::Int(0)];
        at("mkfifo", sys::call(libc::SYS_mknodat, &mut args))?;
        for entry in at("open d", fs::read_dir("d"))? {
            let entry = at("readdir", entry)?;
            let meta = at("lstat", fs::symlink_metadata(entry.path()))?;
            let kind = at("type", entry.file_type())?;
            let name = entry.file_name();
            hold(kind == meta.file_type(), || {
                format!("{name:?} is listed as another kind (fifo: {})", kind.is_fifo())
            })?;
            hold(entry.ino() == meta.ino(), || {
                format!("{name:?}: {} listed, {} by lstat", entry.ino(), meta.ino())
            })?;
        }
        let dots =
            at("getdents", at("open", File::open("d")).and_then(|d| at("read", entries(&d, 32 << 10))))?;
        let own = at("stat", fs::metadata("d"))?.ino();
        let dot = dots.iter().find(|e| e.name == b".");
        hold(dot.is_some_and(|e| e.ino == own && e.kind == libc::DT_DIR), || {
            "'.' is not the directory".to_owned()
        })?;
        hold(dots.iter().any(|e| e.name == b".."), || "'..' is missing".to_owned())
    },
};

pub(super) const REMOVED: Script = Script {
    id: "directory/removed-while-open",
    goal: "a removed directory that is still open lists nothing, takes no new names, has no links, and takes a mode",
    needs: &[],
    run: || {
        at("mkdir", fs::create_dir("d"))?;
        at("mkdir", fs::create_dir("other"))?;
        let dir = at("open", File::open("d"))?;
        at("open", File::open("other"))?;
        let (cwd, names) = (libc::AT_FDCWD.into(), [c"d".to_owned(), c"other".to_owned()]);
        let [d, other] = names.each_ref().map(Arg::Text);
        let mut swap = [Arg::Int(cwd), d, Arg::Int(cwd), other, Arg::Int(libc::RENAME_EXCHANGE.into())];
        let swapped = sys::call(libc::SYS_renameat2, &mut swap);
        hold(swapped.is_ok(), || format!("renameat2: {swapped:?}"))?;
        at("rmdir", fs::remove_dir("other"))?;
        match entries(&dir, 4096) {
            Ok(list) => {
                let named = list.iter().find(|e| e.name != b"." && e.name != b"..");
                hold(named.is_none(), || "it lists a name".to_owned())?;
            }
            Err(errno) => hold(errno == Errno(libc::ENOENT), || format!("getdents: {errno}"))?,
        }
        let new = c"new".to_owned();
        let mut args = [Arg::Int(dir.as_raw_fd().into()), Arg::Text(&new), Arg::Int(0o755)];
        let made = sys::call(libc::SYS_mkdirat, &mut args);
        hold(made == Err(Errno(libc::ENOENT)), || format!("mkdirat in it: {made:?}, not ENOENT"))?;
        let links = at("fstat", dir.metadata())?.nlink();
        hold(links == 0, || format!("it has {links} links"))?;
        at("fchmod", dir.set_permissions(Permissions::from_mode(0o711)))?;
        let mode = at("fstat", dir.metadata())?.mode() & 0o7777;
        hold(mode == 0o711, || format!("its mode is {mode:o}"))
    },
};

pub(super) const DEEP: Script = Script {
    id: "directory/deep-tree",
    goal: "a tree 300 levels deep, its path longer than PATH_MAX, can be made, walked and removed",
    needs: &[],
    run: || {
        const LEVELS: usize = 300;
        for level in 0..LEVELS {
            let name = format!("level-{level:010}");
            at("mkdir", fs::create_dir(&name))?;
            at("chdir", rustix::process::chdir(&*name))?;
        }
        at("write", fs::write("bottom", b"reached"))?;
        let back = at("read", fs::read("bottom"))?;
        hold(back == b"reached", || "another content at the bottom".to_owned())?;
        at("unlink", fs::remove_file("bottom"))?;
        for level in (0..LEVELS).rev() {
            at("chdir ..", rustix::process::chdir(".."))?;
            at("rmdir", fs::remove_dir(format!("level-{level:010}")))?;
        }
        let rest = at("list", fs::read_dir("."))?.count();
        hold(rest == 0, || format!("{rest} names left"))
    },
};

pub(super) const EVERY_BYTE: Script = Script {
    id: "names/every-byte",
    goal: "every byte but 0 and '/' may stand in a name, and the listing gives it back unchanged",
    needs: &[],
    run: || {
        let mut want = BTreeSet::new();
        at("mkdir", fs::create_dir("d"))?;
        for byte in (1..=255u8).filter(|b| *b != b'/') {
            for bytes in [vec![byte], vec![b'a', byte, b'z']] {
                if bytes == b"." {
                    continue;
                }
                let path = [b"d/".as_slice(), &bytes].concat();
                at("create", File::create(std::ffi::OsStr::from_bytes(&path)))?;
                want.insert(bytes);
            }
        }
        let mut found = BTreeSet::new();
        for entry in at("list", fs::read_dir("d"))? {
            found.insert(at("readdir", entry)?.file_name().as_bytes().to_vec());
        }
        let odd: Vec<_> = want.symmetric_difference(&found).take(4).collect();
        hold(odd.is_empty(), || format!("made and listed names differ in {odd:?}"))
    },
};

pub(super) const MANY_LINKS: Script = Script {
    id: "link/counts-to-1000",
    goal: "each of 1,000 links counts, each removal counts down, content stays",
    needs: &[],
    run: || {
        const LINKS: u64 = 1000;
        at("write", fs::write("f", b"kept"))?;
        for n in 1..LINKS {
            at("link", fs::hard_link("f", format!("l{n}")))?;
        }
        let count = |path: &str| at("stat", fs::metadata(path)).map(|m| m.nlink());
        let now = count("l7")?;
        hold(now == LINKS, || format!("{now} links counted"))?;
        at("unlink", fs::remove_file("f"))?;
        for n in 2..LINKS {
            at("unlink", fs::remove_file(format!("l{n}")))?;
        }
        let now = count("l1")?;
        hold(now == 1, || format!("{now} links counted at the end"))?;
        hold(at("read", fs::read("l1"))? == b"kept", || "the content changed".to_owned())
    },
};

pub(super) const REMOVE_WHILE_LISTING: Script = Script {
    id: "directory/remove-while-listing",
    goal: "removing every entry as it is listed, as rm -r does, leaves the directory empty in one pass",
    needs: &[],
    run: || {
        fill(NAMES)?;
        let dir = at("open d", File::open("d"))?;
        loop {
            let batch = at("getdents", entries(&dir, 2048))?;
            if batch.is_empty() {
                break;
            }
            for entry in batch.iter().filter(|e| e.name.starts_with(b"entry")) {
                let path = [b"d/".as_slice(), &entry.name].concat();
                at("unlink", fs::remove_file(std::ffi::OsStr::from_bytes(&path)))?;
            }
        }
        at("rmdir of the emptied directory", fs::remove_dir("d"))
    },
};

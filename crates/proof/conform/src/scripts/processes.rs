//! What takes more than one process.

use super::{Script, at, hold};
use crate::errno::Errno;
use crate::sys::{self, Arg};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Runs `body` in a forked child and returns its exit status. The child of a threaded process may only enter
/// the kernel: no allocation, no lock, no output.
#[allow(unsafe_code)]
pub(super) fn fork(body: impl FnOnce() -> i32) -> Result<i32, String> {
    // SAFETY: the child runs only `body`, which by this function's contract does nothing but system calls on
    // memory prepared before the fork, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(format!("fork: {}", sys::last()));
    }
    if pid == 0 {
        let status = body();
        // SAFETY: leaves without running anything of the parent's exit handlers.
        unsafe { libc::_exit(status) }
    }
    Ok(pid)
}

#[allow(unsafe_code)]
pub(super) fn wait(pid: i32) -> Result<i32, String> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is ours and lives through the call; the pid is a child we started.
        let got = unsafe { libc::waitpid(pid, &mut status, 0) };
        if got == pid {
            return if libc::WIFEXITED(status) {
                Ok(libc::WEXITSTATUS(status))
            } else {
                Err(format!("a child was ended by signal {}", libc::WTERMSIG(status)))
            };
        }
        if sys::last() != Errno(libc::EINTR) {
            return Err(format!("waitpid: {}", sys::last()));
        }
    }
}

fn write_all(fd: i64, bytes: &[u8]) -> Result<(), Errno> {
    let got = sys::call(libc::SYS_write, &mut [Arg::Int(fd), Arg::In(bytes), Arg::Int(bytes.len() as i64)])?;
    if got == bytes.len() as i64 { Ok(()) } else { Err(Errno(libc::EIO)) }
}

pub(super) const APPEND: Script = Script {
    id: "read_write/append-of-two-processes",
    goal: "records that two processes append at once stand whole, none lost, in the order of each writer",
    needs: &[],
    run: || {
        const RECORDS: usize = 400;
        const LEN: usize = 100;
        let files: Vec<File> = (0..2)
            .map(|_| at("open", OpenOptions::new().append(true).create(true).open("f")))
            .collect::<Result<_, _>>()?;
        let record = |who: usize, n: usize| {
            let mut text = format!("{who}:{n:05}:").into_bytes();
            text.resize(LEN - 1, b'a' + who as u8);
            text.push(b'\n');
            text
        };
        let mut children = Vec::new();
        for (who, file) in files.iter().enumerate() {
            let records: Vec<Vec<u8>> = (0..RECORDS).map(|n| record(who, n)).collect();
            let fd = file.as_raw_fd().into();
            children.push(fork(|| i32::from(records.iter().any(|r| write_all(fd, r).is_err())))?);
        }
        for child in children {
            let status = wait(child)?;
            hold(status == 0, || "a write failed or was cut short".to_owned())?;
        }
        let all = at("read", fs::read("f"))?;
        hold(all.len() == 2 * RECORDS * LEN, || format!("{} bytes, not {}", all.len(), 2 * RECORDS * LEN))?;
        let mut next = [0; 2];
        for found in all.chunks(LEN) {
            let who = usize::from(found[0] == b'1');
            hold(found == record(who, next[who]), || {
                format!("writer {who}: record {} is broken", next[who])
            })?;
            next[who] += 1;
        }
        Ok(())
    },
};

pub(super) const FILE_SIZE_LIMIT: Script = Script {
    id: "truncate/file-size-limit",
    goal: "beyond RLIMIT_FSIZE write and ftruncate give EFBIG, a write across it is cut short",
    needs: &[],
    run: || {
        const LIMIT: u64 = 10_000;
        let file = at("create", File::create("f"))?;
        let fd = i64::from(file.as_raw_fd());
        let data = vec![b'x'; 6000];
        let child = fork(|| limited(fd, LIMIT, &data))?;
        match wait(child)? {
            0 => {}
            1 => return Err("the limit could not be set".to_owned()),
            2 => return Err("the first write, below the limit, was not whole".to_owned()),
            3 => return Err("the write across the limit was not cut to what fits".to_owned()),
            4 => return Err("the write beyond the limit did not give EFBIG".to_owned()),
            5 => return Err("ftruncate beyond the limit did not give EFBIG".to_owned()),
            other => return Err(format!("the child ended with {other}")),
        }
        let size = at("fstat", file.metadata())?.len();
        hold(size == LIMIT, || format!("the file is {size} long, not {LIMIT}"))
    },
};

/// The child of [`FILE_SIZE_LIMIT`]: system calls only.
#[allow(unsafe_code)]
fn limited(fd: i64, limit: u64, data: &[u8]) -> i32 {
    let bound = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: both calls take plain values or a pointer to a local; they concern only this child process.
    let set = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &bound)
    };
    let write =
        || sys::call(libc::SYS_write, &mut [Arg::Int(fd), Arg::In(data), Arg::Int(data.len() as i64)]);
    let too_big = Err(Errno(libc::EFBIG));
    if set != 0 {
        1
    } else if write() != Ok(data.len() as i64) {
        2
    } else if write() != Ok(limit as i64 - data.len() as i64) {
        3
    } else if write() != too_big {
        4
    } else if sys::call(libc::SYS_ftruncate, &mut [Arg::Int(fd), Arg::Int(limit as i64 + 1)]) != too_big {
        5
    } else {
        0
    }
}

pub(super) const TEXT_BUSY: Script = Script {
    id: "open/text-busy",
    goal: "a program file that is open for writing cannot be started: ETXTBSY",
    needs: &["exec"],
    run: || {
        // of the same name: where it is busybox, the name says what it does
        at("copy", fs::copy("/bin/true", "true"))?;
        let held = at("open", OpenOptions::new().write(true).mode(0o755).open("true"))?;
        let busy = std::process::Command::new("./true").status();
        let code = busy.as_ref().err().and_then(std::io::Error::raw_os_error);
        hold(code == Some(libc::ETXTBSY), || format!("starting it gave {busy:?}"))?;
        drop(held);
        // a descriptor copied by another case's fork may live a moment longer: the kernel then says busy again
        let start = std::time::Instant::now();
        loop {
            match std::process::Command::new("./true").status() {
                Ok(status) => return hold(status.success(), || format!("it ended with {status}")),
                Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) && start.elapsed().as_secs() < 10 => {
                    std::thread::yield_now();
                }
                Err(e) => return Err(format!("starting it after the close: {e}")),
            }
        }
    },
};

pub(super) const SHARED_OFFSET: Script = Script {
    id: "read_write/offset-shared-with-child",
    goal: "a child's write moves the offset of the descriptor it inherited, and of no other one",
    needs: &[],
    run: || {
        let mut file = at("create", File::create_new("f"))?;
        let mut other = at("open", File::open("f"))?;
        let fd = file.as_raw_fd().into();
        let status = wait(fork(|| i32::from(write_all(fd, b"child").is_err()))?)?;
        hold(status == 0, || "the child could not write".to_owned())?;
        at("write", file.write_all(b"+parent"))?;
        let place = at("lseek", other.stream_position())?;
        hold(place == 0, || format!("another descriptor's offset moved to {place}"))?;
        let mut all = String::new();
        at("read", other.read_to_string(&mut all))?;
        hold(all == "child+parent", || format!("the file holds {all:?}"))
    },
};

pub(super) const INHERITED_UNLINKED: Script = Script {
    id: "unlink/child-keeps-open-file",
    goal: "an unlinked file stays readable and writable for a child that inherited its descriptor",
    needs: &[],
    run: || {
        let mut file = at("create", OpenOptions::new().read(true).write(true).create_new(true).open("f"))?;
        at("write", file.write_all(b"before-"))?;
        at("unlink", fs::remove_file("f"))?;
        let fd = file.as_raw_fd().into();
        let status = wait(fork(|| i32::from(write_all(fd, b"after").is_err()))?)?;
        hold(status == 0, || "the child could not write".to_owned())?;
        at("lseek", file.seek(SeekFrom::Start(0)))?;
        let mut all = String::new();
        at("read", file.read_to_string(&mut all))?;
        hold(all == "before-after", || format!("the file holds {all:?}"))
    },
};

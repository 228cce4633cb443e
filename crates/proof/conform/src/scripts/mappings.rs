//! Files mapped into memory.

use super::{Outcome, Script, at, hold};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Length of every mapping here: several pages of any page size.
const LEN: usize = 256 << 10;

/// A mapping of the first [`LEN`] bytes of a file.
struct Mapping {
    base: *mut u8,
}

#[allow(unsafe_code)]
impl Mapping {
    fn new(file: &File, sharing: i32) -> Result<Mapping, String> {
        // SAFETY: a fresh mapping at an address the kernel chooses touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                sharing,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            Err(format!("mmap: {}", crate::sys::last()))
        } else {
            Ok(Mapping { base: base.cast() })
        }
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= LEN);
        for (n, byte) in bytes.iter().enumerate() {
            // SAFETY: in bounds as asserted; volatile because other mappings of the file change it too.
            unsafe { self.base.add(offset + n).write_volatile(*byte) }
        }
    }

    fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= LEN);
        // SAFETY: in bounds as asserted; volatile because other mappings of the file change it too.
        (offset..offset + len).map(|at| unsafe { self.base.add(at).read_volatile() }).collect()
    }

    fn sync(&self) -> Outcome {
        // SAFETY: the range is exactly this mapping.
        let done = unsafe { libc::msync(self.base.cast(), LEN, libc::MS_SYNC) };
        hold(done == 0, || format!("msync: {}", crate::sys::last()))
    }
}

#[allow(unsafe_code)]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly this mapping and nothing points into it any more.
        unsafe { libc::munmap(self.base.cast(), LEN) };
    }
}

fn file() -> Result<File, String> {
    at("write", fs::write("f", vec![b'o'; LEN]))?;
    at("open", OpenOptions::new().read(true).write(true).open("f"))
}

fn expect(what: &str, got: &[u8], want: &[u8]) -> Outcome {
    hold(got == want, || format!("{what}: {} instead of {}", crate::step::show(got), crate::step::show(want)))
}

pub(super) const SHARED_TO_READ: Script = Script {
    id: "mmap/shared-write-reaches-read",
    goal: "what is stored into a shared mapping is what read returns, before and after msync, and after reopening",
    needs: &[],
    run: || {
        let f = file()?;
        let map = Mapping::new(&f, libc::MAP_SHARED)?;
        map.put(5000, b"mapped");
        let mut got = [0u8; 6];
        at("pread", f.read_exact_at(&mut got, 5000))?;
        expect("pread at once", &got, b"mapped")?;
        map.sync()?;
        drop((map, f));
        let all = at("read", fs::read("f"))?;
        hold(all.len() == LEN, || format!("{} bytes long", all.len()))?;
        expect("read after reopening", &all[4999..5007], b"omappedo")
    },
};

pub(super) const WRITE_TO_SHARED: Script = Script {
    id: "mmap/write-reaches-shared",
    goal: "what pwrite writes through the same descriptor shows in a mapping that was touched before",
    needs: &[],
    run: || {
        let f = file()?;
        let map = Mapping::new(&f, libc::MAP_SHARED)?;
        expect("before", &map.get(9000, 3), b"ooo")?;
        at("pwrite", f.write_all_at(b"new", 9000))?;
        expect("after", &map.get(9000, 3), b"new")
    },
};

pub(super) const PRIVATE: Script = Script {
    id: "mmap/private-is-not-written-back",
    goal: "what is stored into a private mapping never reaches the file",
    needs: &[],
    run: || {
        let f = file()?;
        let map = Mapping::new(&f, libc::MAP_PRIVATE)?;
        map.put(100, b"secret");
        expect("the mapping itself", &map.get(100, 6), b"secret")?;
        map.sync()?;
        drop(map);
        at("fsync", f.sync_all())?;
        let all = at("read", fs::read("f"))?;
        hold(all.iter().all(|b| *b == b'o'), || "the file changed".to_owned())
    },
};

pub(super) const TWO_MAPPINGS: Script = Script {
    id: "mmap/two-mappings-agree",
    goal: "two shared mappings of a file through two descriptors show the same bytes",
    needs: &[],
    run: || {
        let a = file()?;
        let b = at("open", OpenOptions::new().read(true).write(true).open("f"))?;
        let (one, two) = (Mapping::new(&a, libc::MAP_SHARED)?, Mapping::new(&b, libc::MAP_SHARED)?);
        one.put(70_000, b"here");
        expect("the other mapping", &two.get(70_000, 4), b"here")
    },
};

pub(super) const HOLE: Script = Script {
    id: "mmap/hole",
    goal: "a hole reads as zeros through a mapping and can be filled through it",
    needs: &[],
    run: || {
        let f = at("create", OpenOptions::new().read(true).write(true).create_new(true).open("f"))?;
        at("ftruncate", f.set_len(LEN as u64))?;
        let map = Mapping::new(&f, libc::MAP_SHARED)?;
        hold(map.get(0, LEN).iter().all(|b| *b == 0), || "a byte of the hole is not zero".to_owned())?;
        map.put(LEN - 2, b"xy");
        map.sync()?;
        drop(map);
        let all = at("read", fs::read("f"))?;
        expect("the end of the file", &all[LEN - 4..], b"\0\0xy")
    },
};

pub(super) const AFTER_UNLINK: Script = Script {
    id: "mmap/after-unlink",
    goal: "a mapping stays usable after its file was unlinked and closed",
    needs: &[],
    run: || {
        let f = file()?;
        let map = Mapping::new(&f, libc::MAP_SHARED)?;
        at("unlink", fs::remove_file("f"))?;
        drop(f);
        map.put(200_000, b"still");
        expect("the mapping", &map.get(199_999, 7), b"ostillo")
    },
};

pub(super) const BEYOND_LENGTH: Script = Script {
    id: "mmap/rest-of-last-page",
    goal: "bytes behind the end of the file in its last page read as zeros and are never stored",
    needs: &[],
    run: || {
        at("write", fs::write("f", b"short"))?;
        let f = at("open", OpenOptions::new().read(true).write(true).open("f"))?;
        let map = Mapping::new(&f, libc::MAP_SHARED)?;
        expect("behind the end", &map.get(0, 8), b"short\0\0\0")?;
        map.put(4, b"T!!");
        map.sync()?;
        drop(map);
        expect("the file", &at("read", fs::read("f"))?, b"shorT")
    },
};

pub(super) const GROWS_UNDER_MAPPING: Script = Script {
    id: "mmap/grows-under-mapping",
    goal: "a file that grows under a mapping can be stored into up to its new end, and keeps it",
    needs: &[],
    run: || {
        at("write", fs::write("f", b"short"))?;
        let f = at("open", OpenOptions::new().read(true).write(true).open("f"))?;
        let map = Mapping::new(&f, libc::MAP_SHARED)?;
        expect("before", &map.get(0, 5), b"short")?;
        at("ftruncate", f.set_len(LEN as u64))?;
        map.put(LEN - 3, b"end");
        map.put(4, b"T");
        map.sync()?;
        drop((map, f));
        let all = at("read", fs::read("f"))?;
        hold(all.len() == LEN, || format!("{} bytes long", all.len()))?;
        expect("the start", &all[..6], b"shorT\0")?;
        expect("the end", &all[LEN - 4..], b"\0end")
    },
};

pub(super) const TWO_PROCESSES: Script = Script {
    id: "mmap/two-processes-agree",
    goal: "what one process stores into its shared mapping another one sees in its own, and read returns it",
    needs: &[],
    run: || {
        let a = file()?;
        let b = at("open", OpenOptions::new().read(true).write(true).open("f"))?;
        let (one, two) = (Mapping::new(&a, libc::MAP_SHARED)?, Mapping::new(&b, libc::MAP_SHARED)?);
        expect("before", &two.get(150_000, 3), b"ooo")?;
        let child = super::processes::fork(|| {
            one.put(150_000, b"far");
            0
        })?;
        super::processes::wait(child)?;
        expect("the other mapping", &two.get(150_000, 3), b"far")?;
        let mut got = [0u8; 3];
        at("pread", b.read_exact_at(&mut got, 150_000))?;
        expect("pread", &got, b"far")
    },
};

//! Content under long or scattered sequences of calls.

use super::{Outcome, Script, at, hold};
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// A small fixed sequence generator (Lehmer): the same steps in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(48_271) % 0x7fff_ffff;
        self.0 % bound.max(1)
    }
}

fn both(name: &str) -> Result<File, String> {
    at("open", OpenOptions::new().read(true).write(true).create(true).truncate(false).open(name))
}

fn compare(what: &str, got: &[u8], want: &[u8]) -> Outcome {
    hold(got.len() == want.len(), || format!("{what}: {} bytes, not {}", got.len(), want.len()))?;
    let odd = got.iter().zip(want).position(|(a, b)| a != b);
    hold(odd.is_none(), || format!("{what}: byte {} differs", odd.unwrap_or(0)))
}

/// One step of [`AGAINST_MEMORY`] on the file and on its image in memory.
fn step(file: &mut File, image: &mut Vec<u8>, n: u64, dice: &mut Sequence) -> Outcome {
    const LONGEST: u64 = 400_000;
    let offset = dice.below(LONGEST);
    let len = dice.below(30_000);
    let (from, to) = (offset as usize, (offset + len) as usize);
    match dice.below(8) {
        0..=2 => {
            let data = vec![b'a' + (n % 26) as u8; len as usize];
            at("pwrite", file.write_all_at(&data, offset))?;
            // a write of nothing does not extend
            if len > 0 {
                image.resize(image.len().max(to), 0);
                image[from..to].copy_from_slice(&data);
            }
        }
        3 => {
            at("ftruncate", file.set_len(offset))?;
            image.resize(from, 0);
        }
        4 => {
            *file = both("f")?;
        }
        5 => at("fsync", file.sync_all())?,
        _ => {
            let mut got = vec![0u8; len as usize];
            let mut have = 0;
            while have < got.len() {
                match at("pread", file.read_at(&mut got[have..], offset + have as u64))? {
                    0 => break,
                    more => have += more,
                }
            }
            let end = image.len().min(to);
            compare(
                &format!("step {n}, pread at {offset}"),
                &got[..have],
                image.get(from..end).unwrap_or_default(),
            )?;
        }
    }
    let size = at("fstat", file.metadata())?.len();
    hold(size == image.len() as u64, || format!("step {n}: the file is {size} long, not {}", image.len()))
}

pub(super) const AGAINST_MEMORY: Script = Script {
    id: "read_write/against-memory",
    goal: "1,500 writes, truncates, reads and reopens agree with an image in memory",
    needs: &[],
    run: || {
        let mut dice = Sequence(20_240_731);
        let (mut file, mut image) = (both("f")?, Vec::new());
        for n in 0..1500 {
            step(&mut file, &mut image, n, &mut dice)?;
        }
        drop(file);
        compare("the whole file", &at("read", fs::read("f"))?, &image)
    },
};

pub(super) const SCATTERED_THREADS: Script = Script {
    id: "read_write/four-writers-one-file",
    goal: "four threads with descriptors of their own write every fourth block; nothing is lost",
    needs: &[],
    run: || {
        const BLOCK: usize = 5_000; // deliberately no multiple of a page
        const BLOCKS: usize = 200;
        let dir = at("cwd", std::env::current_dir())?;
        let path = dir.join("f");
        at("create", File::create(&path))?;
        let writer = |who: usize| -> Outcome {
            let file = at("open", OpenOptions::new().write(true).open(&path))?;
            for block in (who..BLOCKS).step_by(4) {
                at("pwrite", file.write_all_at(&[b'0' + who as u8; BLOCK], (block * BLOCK) as u64))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|who| scope.spawn(move || writer(who))).collect();
            threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a writer panicked".to_owned())?)
        })?;
        let want: Vec<u8> = (0..BLOCKS).flat_map(|b| [b'0' + (b % 4) as u8; BLOCK]).collect();
        compare("the whole file", &at("read", fs::read("f"))?, &want)
    },
};

pub(super) const VECTORS: Script = Script {
    id: "read_write/vectors",
    goal: "writev and readv move the pieces in order and advance the offset by their sum",
    needs: &[],
    run: || {
        let mut file = both("f")?;
        let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"three")];
        let wrote = at("writev", file.write_vectored(&parts))?;
        hold(wrote == 8, || format!("writev wrote {wrote}"))?;
        let place = at("lseek", file.stream_position())?;
        hold(place == 8, || format!("the offset is {place}"))?;
        at("lseek", file.seek(SeekFrom::Start(1)))?;
        let (mut a, mut b) = ([0u8; 3], [0u8; 10]);
        let got = at("readv", file.read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]))?;
        hold(got == 7, || format!("readv read {got}"))?;
        compare("the pieces", &[a.as_slice(), &b[..4]].concat(), b"nethree")
    },
};

pub(super) const COPY_RANGE: Script = Script {
    id: "read_write/copy-between-files",
    goal: "copying 3 MB from file to file as cp does gives the same bytes",
    needs: &[],
    run: || {
        let data: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        at("write", fs::write("a", &data))?;
        at("copy", fs::copy("a", "b"))?;
        compare("the copy", &at("read", fs::read("b"))?, &data)
    },
};

pub(super) const LARGE_BLOCKS: Script = Script {
    id: "read_write/large-calls",
    goal: "one write of 9 MB and one read of it give the same bytes, across every stripe boundary",
    needs: &[],
    run: || {
        let data: Vec<u8> = (0..9_000_001u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut file = both("f")?;
        at("write", file.write_all(&data))?;
        at("lseek", file.seek(SeekFrom::Start(0)))?;
        let mut back = Vec::new();
        at("read", file.read_to_end(&mut back))?;
        compare("through the same descriptor", &back, &data)?;
        at("fsync", file.sync_all())?;
        drop(file);
        compare("after reopening", &at("read", fs::read("f"))?, &data)
    },
};

pub(super) const TRUNCATE_TAIL: Script = Script {
    id: "truncate/no-old-bytes-return",
    goal: "shrinking to any length and growing again shows zeros, never the old bytes",
    needs: &[],
    run: || {
        const FULL: usize = 300_000;
        for keep in [0usize, 1, 100, 4095, 4096, 4097, 8191, 8192, 8193, 65_535, 65_536, 65_537, 262_144] {
            at("write", fs::write("f", vec![b'x'; FULL]))?;
            let file = both("f")?;
            at("shrink", file.set_len(keep as u64))?;
            at("grow", file.set_len(FULL as u64))?;
            let mut want = vec![0u8; FULL];
            want[..keep].fill(b'x');
            compare(&format!("shrunk to {keep}"), &at("read", fs::read("f"))?, &want)?;
        }
        Ok(())
    },
};

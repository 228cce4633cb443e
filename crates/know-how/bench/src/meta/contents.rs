//! What is in one small file.

use crate::engine::{Trouble, ground, mix, now_ns};
use crate::io::{Buffer, Supply, fill, first_wrong, read_all, stripe, write_all};
use crate::job::{Lookup, MetaJob, MetaPhase};
use rustix::fs::{Mode, OFlags};
use std::path::Path;

/// What the calls of a phase write from or read into.
pub(super) enum Memory {
    /// It moves no contents.
    None,
    /// Bytes that come once in a run: files that resemble each other would be packed by storage that can.
    Supply(Supply),
    /// What is read, or written to be compared.
    Words(Buffer),
}

impl Memory {
    /// That of a phase on files. `seed` tells workers apart.
    pub fn of(phase: MetaPhase, meta: &MetaJob, existing: bool, seed: u64) -> Result<Self, Trouble> {
        let bytes = match phase {
            MetaPhase::Create => meta.write_bytes,
            MetaPhase::OpenRead => meta.read_of_each(existing),
            _ => 0,
        };
        let call = call(meta, bytes);
        let memory = match phase {
            _ if call == 0 => Some(Self::None),
            // Two runs with the same seed must not write the same bytes either.
            MetaPhase::Create if !meta.verify => {
                Supply::new(call, mix(seed) ^ mix(now_ns())).map(Self::Supply)
            }
            _ => usize::try_from(call).ok().and_then(Buffer::new).map(Self::Words),
        };
        memory.ok_or_else(|| {
            Trouble::found("get memory for a transfer", Path::new(""), "there is not enough".to_owned())
        })
    }
}

/// Bytes of one call, of a file's so many.
fn call(meta: &MetaJob, bytes: u64) -> u64 {
    if meta.transfer == 0 { bytes } else { bytes.min(meta.transfer) }
}

/// The contents of one file of a metadata job.
pub(super) struct Contents<'a> {
    pub meta: &'a MetaJob,
    /// Names its words.
    pub key: u64,
    /// Files may be there from an earlier run.
    pub existing: bool,
}

impl Contents<'_> {
    fn flags(&self, flags: OFlags) -> OFlags {
        let flags = flags | OFlags::CLOEXEC;
        if self.meta.direct { flags | OFlags::DIRECT } else { flags }
    }

    /// Makes the file; returns the bytes written.
    pub fn create(&self, path: &Path, memory: &mut Memory) -> Result<u64, Trouble> {
        let (flags, mode) = match self.meta.lookup {
            // As mdtest does it.
            Lookup::Path => (OFlags::RDWR, 0o664),
            Lookup::Directory if self.existing => (OFlags::WRONLY, 0o644),
            Lookup::Directory => (OFlags::WRONLY | OFlags::EXCL, 0o644),
        };
        let file = ground::open(path, self.flags(OFlags::CREATE | flags), Mode::from_raw_mode(mode))
            .map_err(|errno| Trouble::call("create", path, errno))?;
        if let Some(striping) = &self.meta.striping {
            stripe(&file, path, striping)?;
        }
        let mut offset = 0;
        while offset < self.meta.write_bytes {
            let length = call(self.meta, self.meta.write_bytes - offset) as usize;
            let bytes = match memory {
                Memory::None => break,
                Memory::Supply(supply) => supply.next(length),
                Memory::Words(buffer) => {
                    let bytes = &mut buffer.bytes()[..length];
                    fill(bytes, self.key, offset);
                    bytes
                }
            };
            write_all(&file, bytes, offset)
                .map_err(|errno| Trouble::call("write", path, errno).at(offset))?;
            offset += length as u64;
        }
        if self.meta.fsync {
            rustix::fs::fsync(&file).map_err(|errno| Trouble::call("fsync", path, errno))?;
        }
        Ok(offset)
    }

    /// Opens, reads and closes the file; returns the bytes read.
    pub fn read(&self, path: &Path, memory: &mut Memory) -> Result<u64, Trouble> {
        let file = ground::open(path, self.flags(OFlags::RDONLY), Mode::empty())
            .map_err(|errno| Trouble::call("open", path, errno))?;
        let mut offset = 0;
        if let Memory::Words(buffer) = memory {
            let size = self.meta.read_of_each(self.existing);
            while offset < size {
                let all = buffer.bytes();
                let length = all.len().min((size - offset) as usize);
                let bytes = &mut all[..length];
                read_all(&file, bytes, offset, path)?;
                if let Some(at) = first_wrong(bytes, self.key, offset).filter(|_| self.meta.verify) {
                    let byte = bytes[at];
                    let reason =
                        format!("byte {byte:#04x} is not what was written (was it written with --verify?)");
                    return Err(Trouble::found("verify", path, reason).at(offset + at as u64));
                }
                offset += length as u64;
            }
        }
        Ok(offset)
    }
}

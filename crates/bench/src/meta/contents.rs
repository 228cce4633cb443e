//! What is in one small file.

use crate::engine::{Trouble, ground};
use crate::io::{Buffer, fill, first_wrong, read_all, stripe, write_all};
use crate::job::MetaJob;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

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
    pub fn create(&self, path: &Path, buffer: Option<&mut Buffer>) -> Result<u64, Trouble> {
        let exclusive = if self.existing { OFlags::empty() } else { OFlags::EXCL };
        let flags = self.flags(OFlags::CREATE | OFlags::WRONLY | exclusive);
        let file = ground::open(path, flags, Mode::from_raw_mode(0o644))
            .map_err(|errno| Trouble::call("create", path, errno))?;
        if let Some(striping) = &self.meta.striping {
            stripe(&file, path, striping)?;
        }
        let mut offset = 0;
        if let Some(buffer) = buffer {
            while offset < self.meta.write_bytes {
                let all = buffer.bytes();
                let length = all.len().min((self.meta.write_bytes - offset) as usize);
                let bytes = &mut all[..length];
                if self.meta.verify {
                    fill(bytes, self.key, offset);
                }
                write_all(&file, bytes, offset)
                    .map_err(|errno| Trouble::call("write", path, errno).at(offset))?;
                offset += length as u64;
            }
        }
        if self.meta.fsync {
            rustix::fs::fsync(&file).map_err(|errno| Trouble::call("fsync", path, errno))?;
        }
        Ok(offset)
    }

    /// Opens, reads and closes the file; returns the bytes read.
    pub fn read(&self, path: &Path, buffer: Option<&mut Buffer>) -> Result<u64, Trouble> {
        let file = ground::open(path, self.flags(OFlags::RDONLY), Mode::empty())
            .map_err(|errno| Trouble::call("open", path, errno))?;
        let mut offset = 0;
        if let Some(buffer) = buffer {
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

//! A shared mapping of a file: what a program stores into memory is in the file.

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;

/// The beginning of a file, mapped shared and writable. It may reach behind the file's end, where nothing may be touched:
/// the caller knows how long the file is.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: memory of the whole process; the pointer is only used through `&mut self` or for reading.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        let (access, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
        #[allow(unsafe_code)]
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, how, file, 0) }?;
        Ok(Self { start: start.cast(), len })
    }

    /// Stores `bytes` at `offset`. All of it must lie in the mapping and in the file.
    pub fn store(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len));
        // SAFETY: the range lies in the mapping (checked), which nothing else in this process borrows.
        #[allow(unsafe_code)]
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset), bytes.len());
        }
    }

    /// Reads `len` bytes at `offset` from memory. All of it must lie in the mapping and in the file.
    pub fn load(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        let mut found = vec![0; len];
        // SAFETY: the range lies in the mapping (checked); no reference into it is ever made, as others change it.
        #[allow(unsafe_code)]
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.add(offset), found.as_mut_ptr(), len);
        }
        found
    }

    /// Writes what was stored into the file, durably.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        #[allow(unsafe_code)]
        unsafe { rustix::mm::msync(self.start.cast::<c_void>(), self.len, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is this mapping, which nothing borrows.
        #[allow(unsafe_code)]
        let _ = unsafe { rustix::mm::munmap(self.start.cast::<c_void>(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Goal: stores are in the file, and what is written to the file is in memory.
    #[test]
    fn memory_is_the_file() {
        let scratch = crate::Scratch::new(None).unwrap();
        let file = std::fs::File::create_new(scratch.path().join("file")).unwrap();
        drop(file);
        let file =
            std::fs::OpenOptions::new().read(true).write(true).open(scratch.path().join("file")).unwrap();
        file.set_len(10_000).unwrap();
        let mut mapping = Mapping::new(&file, 20_000).unwrap();
        mapping.store(9_000, b"stored");
        mapping.sync().unwrap();
        let mut found = [0; 8];
        file.read_exact_at(&mut found, 8_999).unwrap();
        assert_eq!(&found, b"\0stored\0");
        file.write_all_at(b"written", 100).unwrap();
        assert_eq!(mapping.load(99, 9), b"\0written\0");
    }
}

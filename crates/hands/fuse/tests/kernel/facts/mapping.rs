//! A page of a file in memory.

use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const PAGE: usize = 4096;

/// The first page of a file, shared with it.
pub struct Mapping(NonNull<u8>);

#[allow(unsafe_code)] // maps memory
impl Mapping {
    pub fn new(file: impl AsFd) -> Mapping {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so nothing that is there already is mapped over.
        let place = unsafe { mmap(null_mut(), PAGE, flags, MapFlags::SHARED, file, 0) }.expect("a mapping");
        Mapping(NonNull::new(place.cast()).expect("not at 0"))
    }

    /// Its first byte.
    pub fn read(&self) -> u8 {
        // SAFETY: mapped for as long as `self` lives; volatile, as others change the file.
        unsafe { self.0.as_ptr().read_volatile() }
    }

    pub fn write(&self, byte: u8) {
        // SAFETY: as in `read`; nothing else in this process has a reference to it.
        unsafe { self.0.as_ptr().write_volatile(byte) }
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)] // unmaps it
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, with this length, and nobody has a reference to it.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

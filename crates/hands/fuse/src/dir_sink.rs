//! Filling the reply of READDIR and READDIRPLUS.

use core::mem::offset_of;
use core::time::Duration;

use zerocopy::IntoBytes;

use crate::abi::namespace::{DIRENT_ALIGN, Dirent};
use crate::abi::node::EntryOut;
use crate::{Entry, FileKind};

/// The reply has no room for this record: stop listing; the kernel continues from the last cookie added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Takes directory records until the reply is full.
pub struct DirSink<'a> {
    out: &'a mut [u8],
    used: usize,
    plus: bool,
    /// Where the attributes of each entry are.
    entries: Vec<usize>,
}

impl<'a> DirSink<'a> {
    pub(crate) fn new(out: &'a mut [u8], plus: bool) -> Self {
        DirSink { out, used: 0, plus, entries: Vec::new() }
    }

    /// Bytes used so far.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Adds a name. `next` is the offset from which a listing continues behind it (a cookie below 2^63, never 0).
    /// In a READDIRPLUS listing it adds the name without attributes: right for "." and "..".
    ///
    /// # Errors
    /// [`Full`]: nothing was added.
    pub fn add(&mut self, ino: u64, next: u64, kind: FileKind, name: &[u8]) -> Result<(), Full> {
        let bare = EntryOut::default();
        self.record(self.plus.then_some(&bare), ino, next, kind, name)
    }

    /// Adds a name with its attributes; it counts as a lookup of `entry.ino`. In a READDIR listing only the
    /// name is added, and nothing is counted.
    ///
    /// # Errors
    /// [`Full`]: nothing was added, nothing is counted.
    pub fn add_plus(&mut self, entry: &Entry, next: u64, name: &[u8]) -> Result<(), Full> {
        let kind = FileKind::from_mode(entry.attr.mode).unwrap_or(FileKind::Regular);
        let (wire, place) = (entry.to_wire(), self.used);
        self.record(self.plus.then_some(&wire), entry.attr.ino, next, kind, name)?;
        if self.plus {
            self.entries.push(place);
        }
        Ok(())
    }

    /// How long the name of each entry may be used, and its attributes, in the order in which they were added. Of a long listing
    /// that is better said when it is complete: it counts from then on.
    pub fn valid_for(&mut self, validity: impl IntoIterator<Item = (Duration, Duration)>) {
        for (place, (name, attributes)) in self.entries.iter().zip(validity) {
            let mut put = |at: usize, bytes: &[u8]| {
                self.out[place + at..place + at + bytes.len()].copy_from_slice(bytes);
            };
            put(offset_of!(EntryOut, entry_valid), &name.as_secs().to_ne_bytes());
            put(offset_of!(EntryOut, entry_valid_nsec), &name.subsec_nanos().to_ne_bytes());
            put(offset_of!(EntryOut, attr_valid), &attributes.as_secs().to_ne_bytes());
            put(offset_of!(EntryOut, attr_valid_nsec), &attributes.subsec_nanos().to_ne_bytes());
        }
    }

    fn record(
        &mut self,
        entry: Option<&EntryOut>,
        ino: u64,
        next: u64,
        kind: FileKind,
        name: &[u8],
    ) -> Result<(), Full> {
        let entry = entry.map_or(&[][..], IntoBytes::as_bytes);
        let length = entry.len() + size_of::<Dirent>() + name.len();
        let padded = length.next_multiple_of(DIRENT_ALIGN);
        let Some(out) = self.out.get_mut(self.used..self.used + padded) else { return Err(Full) };
        let namelen = u32::try_from(name.len()).map_err(|_| Full)?;
        let dirent = Dirent { ino, off: next, namelen, kind: kind as u32 };
        let (front, rest) = out.split_at_mut(entry.len());
        front.copy_from_slice(entry);
        let (head, rest) = rest.split_at_mut(size_of::<Dirent>());
        head.copy_from_slice(dirent.as_bytes());
        let (text, padding) = rest.split_at_mut(name.len());
        text.copy_from_slice(name);
        padding.fill(0);
        self.used += padded;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::{DirSink, Full};
    use crate::{Attr, Entry, FileKind};

    /// Goal: records are padded to 8 bytes and one that does not fit leaves no trace.
    #[test]
    fn plain_records() {
        let mut memory = [0xffu8; 64];
        let mut sink = DirSink::new(&mut memory, false);
        assert_eq!(sink.add(5, 1, FileKind::Regular, b"abc"), Ok(()));
        assert_eq!(sink.used(), 32);
        assert_eq!(sink.add(6, 2, FileKind::Directory, b"123456789"), Err(Full));
        assert_eq!(sink.add(6, 2, FileKind::Directory, b"12345678"), Ok(()));
        assert_eq!(sink.used(), 64);
        assert_eq!(memory[..8], 5u64.to_ne_bytes());
        assert_eq!(memory[16..20], 3u32.to_ne_bytes());
        assert_eq!(&memory[24..32], b"abc\0\0\0\0\0");
    }

    /// Goal: a READDIRPLUS record carries the entry, a bare one carries node id 0 so that nothing is counted.
    #[test]
    fn plus_records() {
        let mut memory = [0xffu8; 320];
        let mut sink = DirSink::new(&mut memory, true);
        let entry =
            Entry { ino: 9, attr: Attr { ino: 9, mode: 0o100_644, ..Attr::default() }, ..Entry::default() };
        assert_eq!(sink.add(1, 1, FileKind::Directory, b"."), Ok(()));
        assert_eq!(sink.add_plus(&entry, 2, b"f"), Ok(()));
        assert_eq!(sink.add_plus(&entry, 3, b"g"), Err(Full));
        assert_eq!(sink.used(), 320);
        assert_eq!(memory[..8], 0u64.to_ne_bytes());
        assert_eq!(memory[160..168], 9u64.to_ne_bytes());
        assert_eq!(memory[160 + 128 + 20..160 + 128 + 24], 8u32.to_ne_bytes());
    }

    /// Goal: validity that is said behind a listing comes to its entries, in order, and to nothing else.
    #[test]
    fn validity_is_said_at_the_end() {
        let said = |late: bool| {
            let mut memory = [0u8; 640];
            let mut sink = DirSink::new(&mut memory, true);
            sink.add(1, 1, FileKind::Directory, b".").unwrap();
            let valid = [Duration::from_millis(2_500), Duration::ZERO, Duration::from_nanos(7)];
            let valid = valid.map(|valid| (valid / 2, valid));
            for (ino, valid) in (9..).zip(valid) {
                let attr = Attr { ino, mode: 0o100_644, ..Attr::default() };
                let (entry_valid, attr_valid) = if late { Default::default() } else { valid };
                let entry = Entry { ino, attr, entry_valid, attr_valid, ..Entry::default() };
                sink.add_plus(&entry, ino, b"name").unwrap();
            }
            if late {
                sink.valid_for(valid);
            }
            memory
        };
        assert_eq!(said(true), said(false));
    }
}

//! Bytes of a file: sparse, up to 8 EiB.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use skep_types::limits::FILE_SIZE_MAX;

/// Unit in which bytes are kept. A page that is not kept reads as zeros.
pub const PAGE: usize = 4096;

type Page = [u8; PAGE];

/// Size and bytes of a file. Two contents are equal when every byte is: a page of zeros is never
/// kept, nor is a byte beyond the end, so there is one form only. A clone shares the pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

/// (page, offset in it) of an offset in the file.
fn locate(offset: u64) -> (u64, usize) {
    (offset / PAGE as u64, (offset % PAGE as u64) as usize)
}

impl Content {
    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Pages kept.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Bytes from `offset`: fewer than `len` at the end of the file.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = (len as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut data = vec![0; len];
        let mut at = 0;
        while at < len {
            let (number, within) = locate(offset + at as u64);
            let run = (PAGE - within).min(len - at);
            if let Some(page) = self.pages.get(&number) {
                data[at..at + run].copy_from_slice(&page[within..within + run]);
            }
            at += run;
        }
        data
    }

    /// Puts `data` at `offset`. The caller has checked that it ends within [`FILE_SIZE_MAX`].
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = 0;
        while at < data.len() {
            let (number, within) = locate(offset + at as u64);
            let run = (PAGE - within).min(data.len() - at);
            self.change(number, |page| page[within..within + run].copy_from_slice(&data[at..at + run]));
            at += run;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    /// Sets the size; what is cut off reads as zeros should the file grow again.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size - size);
        }
        self.size = size;
    }

    /// Makes a range read as zeros; the size stays.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let numbers: Vec<u64> =
            self.pages.range(offset / PAGE as u64..=end / PAGE as u64).map(|(number, _)| *number).collect();
        for number in numbers {
            let start = number * PAGE as u64;
            let from = offset.saturating_sub(start).min(PAGE as u64) as usize;
            let to = end.saturating_sub(start).min(PAGE as u64) as usize;
            self.change(number, |page| page[from..to].fill(0));
        }
    }

    /// The first byte at or after `from` that is not zero.
    pub fn next_data(&self, from: u64) -> Option<u64> {
        self.pages.range(from / PAGE as u64..).find_map(|(number, page)| {
            let start = number * PAGE as u64;
            let skip = from.saturating_sub(start) as usize;
            page.iter().skip(skip).position(|byte| *byte != 0).map(|at| start + (skip + at) as u64)
        })
    }

    /// Ranges that a comparison must read to see every byte that is not a hole, with a page of each
    /// neighbouring hole: (offset, length), in order, within the size.
    pub fn probes(&self) -> Vec<(u64, u64)> {
        let mut probes: Vec<(u64, u64)> = Vec::new();
        let page = PAGE as u64;
        let ends = [0, self.size.saturating_sub(1) / page];
        let mut numbers: Vec<u64> = self.pages.keys().copied().chain(ends).collect();
        numbers.sort_unstable();
        for number in numbers {
            let start = number.saturating_sub(1) * page;
            let end = ((number + 1) * page).saturating_add(page).min(self.size);
            match probes.last_mut() {
                Some((first, len)) if *first + *len >= start => *len = end.max(*first + *len) - *first,
                _ => probes.push((start, end.saturating_sub(start))),
            }
        }
        probes.retain(|(_, len)| *len > 0);
        probes
    }

    /// What is wrong with the form, if anything.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.size > FILE_SIZE_MAX {
            return Err("is larger than a file can be");
        }
        for (number, page) in &self.pages {
            let start = number * PAGE as u64;
            let used = self.size.saturating_sub(start).min(PAGE as u64) as usize;
            if page[used..].iter().any(|byte| *byte != 0) {
                return Err("has bytes beyond its end");
            }
            if page.iter().all(|byte| *byte == 0) {
                return Err("keeps a page of zeros");
            }
        }
        Ok(())
    }

    fn change(&mut self, number: u64, edit: impl FnOnce(&mut Page)) {
        let page = Arc::make_mut(self.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE])));
        edit(page);
        if page.iter().all(|byte| *byte == 0) {
            self.pages.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// Goal: agrees with a plain byte vector under random writes, truncates and punches.
    #[test]
    fn agrees_with_a_plain_vector() {
        let mut rng = Rng::new(7);
        let (mut content, mut plain) = (Content::default(), Vec::<u8>::new());
        for round in 0..2_000u32 {
            let (offset, len) = (rng.below(40_000) as usize, rng.below(9_000) as usize);
            match rng.below(4) {
                0 => {
                    let size = rng.below(50_000) as usize;
                    content.truncate(size as u64);
                    plain.resize(size, 0);
                }
                1 => {
                    content.punch(offset as u64, len as u64);
                    let end = plain.len();
                    plain[offset.min(end)..(offset + len).min(end)].fill(0);
                }
                _ => {
                    let data = vec![round as u8; len];
                    content.write(offset as u64, &data);
                    if len > 0 {
                        plain.resize(plain.len().max(offset + len), 0);
                        plain[offset..offset + len].copy_from_slice(&data);
                    }
                }
            }
            content.check().unwrap();
            assert_eq!(content.size(), plain.len() as u64);
            let end = plain.len();
            assert_eq!(content.read(offset as u64, len), plain[offset.min(end)..(offset + len).min(end)]);
        }
        assert_eq!(content.read(0, usize::MAX), plain);
    }

    /// Goal: the last byte that Linux can address is written and read back, beside a hole of 8 EiB.
    #[test]
    fn sparse_to_eight_exbibytes() {
        let mut content = Content::default();
        content.write(5, b"x");
        content.write(FILE_SIZE_MAX - 1, b"y");
        content.check().unwrap();
        assert_eq!((content.size(), content.pages()), (FILE_SIZE_MAX, 2));
        assert_eq!(content.read(FILE_SIZE_MAX - 1, 10), b"y");
        let probes = content.probes();
        assert_eq!(probes.first(), Some(&(0, 2 * PAGE as u64)));
        assert_eq!(probes.last().map(|(offset, len)| offset + len), Some(FILE_SIZE_MAX));
        content.punch(0, FILE_SIZE_MAX);
        assert_eq!((content.size(), content.pages()), (FILE_SIZE_MAX, 0));
    }

    /// Goal: bytes cut off do not come back when the file grows.
    #[test]
    fn growth_after_a_cut_shows_zeros() {
        let mut content = Content::default();
        content.write(0, &[1; 100]);
        content.truncate(10);
        content.truncate(100);
        assert_eq!(content.read(0, 100)[10..], [0; 90]);
    }
}

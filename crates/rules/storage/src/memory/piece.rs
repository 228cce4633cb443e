//! Content of one piece in memory: pages that were written, and ranges of pages that are reserved.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Bytes of a page of content.
pub(super) const PAGE: u64 = 4_096;

/// Sparse content of one piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Piece {
    pub size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
    /// Reserved and not written: first page, page behind the last. None of them meets another one or a written page.
    reserved: BTreeMap<u64, u64>,
}

impl Piece {
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inside = (at % PAGE) as usize;
            let run = rest.len().min(PAGE as usize - inside);
            self.give_up(at / PAGE, at / PAGE + 1);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| alloc::vec![0; PAGE as usize]);
            page[inside..inside + run].copy_from_slice(&rest[..run]);
            at += run as u64;
            rest = &rest[run..];
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let inside = (at % PAGE) as usize;
            let run = (len - done).min(PAGE as usize - inside);
            match self.pages.get(&(at / PAGE)) {
                Some(page) => into[done..done + run].copy_from_slice(&page[inside..inside + run]),
                None => into[done..done + run].fill(0),
            }
            done += run;
        }
        len
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        self.give_up(offset.div_ceil(PAGE), end / PAGE);
        let whole: Vec<u64> = self.pages.range(offset / PAGE..=end / PAGE).map(|(page, _)| *page).collect();
        for number in whole {
            let (first, last) = (offset.max(number * PAGE), end.min(number * PAGE + PAGE));
            if first >= last {
                continue;
            }
            if last - first == PAGE {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                page[(first - number * PAGE) as usize..(last - number * PAGE) as usize].fill(0);
            }
        }
    }

    /// Pages side by side from `from` on.
    pub fn next_data(&self, from: u64) -> Option<(u64, u64)> {
        let (first, _) = self.pages.range(from / PAGE..).next()?;
        let mut end = *first;
        while self.pages.contains_key(&end) {
            end += 1;
        }
        let run = ((first * PAGE).max(from), (end * PAGE).min(self.size));
        (run.0 < run.1).then_some(run)
    }

    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
            self.pages.split_off(&size.div_ceil(PAGE));
        }
        // As local file systems do, also when the length stays: what is allocated behind the end goes.
        if size <= self.size {
            self.give_up(size.div_ceil(PAGE), u64::MAX);
        }
        self.size = size;
    }

    pub fn reserve(&mut self, offset: u64, len: u64) {
        let (mut at, end) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        self.give_up(at, end);
        let written: Vec<u64> = self.pages.range(at..end).map(|(page, _)| *page).collect();
        for page in written.into_iter().chain([end]) {
            if at < page {
                self.reserved.insert(at, page);
            }
            at = page + 1;
        }
    }

    /// Pages from `first` to before `end` are not reserved any more.
    fn give_up(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let known = self.reserved.range(..end).map(|(from, to)| (*from, *to));
        let known: Vec<(u64, u64)> = known.filter(|(_, to)| *to > first).collect();
        for (from, to) in known {
            self.reserved.remove(&from);
            if from < first {
                self.reserved.insert(from, first);
            }
            if end < to {
                self.reserved.insert(end, to);
            }
        }
    }

    /// The page behind the reserved range that a page is in.
    fn reserved_until(&self, page: u64) -> Option<u64> {
        self.reserved.range(..=page).next_back().map(|(_, end)| *end).filter(|end| page < *end)
    }

    pub fn has(&self, page: u64) -> bool {
        self.pages.contains_key(&page) || self.reserved_until(page).is_some()
    }

    /// Pages of a range that take space when it is reserved.
    pub fn missing(&self, offset: u64, len: u64) -> u64 {
        let (first, end) = (offset / PAGE, (offset + len).div_ceil(PAGE));
        let written = self.pages.range(first..end).count() as u64;
        let reserved =
            self.reserved.range(..end).map(|(from, to)| (*to).min(end).saturating_sub((*from).max(first)));
        end - first - written - reserved.sum::<u64>()
    }

    /// Pages that were written.
    pub fn written(&self) -> usize {
        self.pages.len()
    }

    /// Pages that take space.
    pub fn taken(&self) -> u64 {
        self.pages.len() as u64 + self.reserved.iter().map(|(from, to)| to - from).sum::<u64>()
    }

    /// Pages side by side from `from` on that take space; data ends where the piece does.
    pub fn next_allocated(&self, from: u64) -> Option<(u64, u64)> {
        let mut page = from / PAGE;
        loop {
            let written = self.pages.range(page..).next().map(|(page, _)| *page);
            let inside = self.reserved_until(page).map(|_| page);
            let reserved = inside.or_else(|| self.reserved.range(page..).next().map(|(page, _)| *page));
            let first = [written, reserved].into_iter().flatten().min()?;
            let (mut end, mut in_data) = (first, false);
            loop {
                (end, in_data) = match self.reserved_until(end) {
                    Some(until) => (until, false),
                    None if self.pages.contains_key(&end) => (end + 1, true),
                    None => break,
                };
            }
            let last = if in_data { (end * PAGE).min(self.size) } else { end.saturating_mul(PAGE) };
            let run = ((first * PAGE).max(from), last);
            if run.0 < run.1 {
                return Some(run);
            }
            page = end;
        }
    }
}

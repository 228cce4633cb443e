//! The next records of programs that read at a constant distance, from all targets that have them at once. See
//! `docs/design/data-path.md`, section 4a.

use super::read::{Filled, copy_from, reading};
use super::write::transfers;
use crate::job::Job;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{AsOf, Guess, Handle, Shared, place_in};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Ino, Layout, Piece};
use skep_wire::storage::ReadChunkReply;

/// Why nothing comes of a guess.
enum Missed {
    /// Where the bytes are is not known any more.
    Unknown,
    /// Somebody who has a part of it did not answer, or refused.
    Trouble,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// What is asked for at `offset`, with what is guessed to be asked for next. `None`: it is to be read alone.
    pub(super) async fn read_strided(
        &self,
        (handle, ino): (Handle, Ino),
        offset: u64,
        out: &mut [u8],
        (guess, as_of): (Guess, AsOf),
    ) -> Option<usize> {
        let since = self.port.now();
        let fetched = self.fetch_guess(ino, &guess).await;
        let (now, boot) = (self.port.now(), self.port.boot());
        let end = offset.saturating_add(out.len() as u64).min(as_of.size);
        let (bytes, place) = match (fetched, place_in(&guess.spans, offset, end)) {
            (Ok((bytes, Filled::Wholly)), Some(place)) => (bytes, place),
            // As with windows: what was cut meanwhile is no hole.
            (Ok((bytes, Filled::WithHoles)), Some(place))
                if self.shared.with(|s| s.is_unchanged(ino, as_of, boot)) =>
            {
                (bytes, place)
            }
            (Err(Missed::Trouble), _) => {
                self.shared.with(|s| s.aheads.strays(handle));
                return None;
            }
            _ => {
                self.shared.with(|s| s.aheads.is_fetched(handle));
                return None;
            }
        };
        let n = copy_from(&bytes[place..place + (end - offset) as usize], out);
        let (first, _dropped) = self.shared.with(|s| {
            let first = s.aheads.put_strided(handle, (guess, n), Arc::new(bytes), as_of, (since, now));
            (first, s.aheads.take_dropped())
        });
        if first {
            self.port.work_waits();
        }
        Some(n)
    }

    /// All of it, if that goes without any trouble: it is asked for once, of targets that who asked for one record needs as well.
    async fn fetch_guess(&self, ino: Ino, guess: &Guess) -> Result<(Vec<u8>, Filled), Missed> {
        let end = guess.spans.last().ok_or(Missed::Unknown)?.end;
        let layout = self.shared.with(|s| {
            let inode = s.inodes.get(ino).filter(|inode| !inode.layout_old)?;
            inode.layout.clone().filter(|layout| end <= layout.covered())
        });
        let layout = layout.ok_or(Missed::Unknown)?;
        let mut bytes = alloc::vec![0; guess.bytes()];
        let pieces = pieces_of(&layout, guess);
        if pieces.iter().map(|piece| piece.len).sum::<u64>() < bytes.len() as u64 {
            // No extent has a part of it: a read alone says what is there.
            return Err(Missed::Unknown);
        }
        let mut rest = &mut bytes[..];
        let mut jobs: Vec<Job<'_>> = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let (part, later) = rest.split_at_mut(piece.len as usize);
            rest = later;
            jobs.push(reading(piece, part));
        }
        self.once_each(&mut jobs).await;
        let mut filled = Filled::Wholly;
        for (piece, job) in pieces.iter().zip(&mut jobs) {
            let reply = job.take().map_err(|_| Missed::Trouble)?;
            let found: ReadChunkReply = reply.read().map_err(|_| Missed::Trouble)?;
            if found.size < layout.floor(&piece.chunk) {
                return Err(Missed::Trouble);
            }
            // `bytes` has zeros where nothing was put.
            if (reply.payload_len as u64) < piece.len {
                filled = Filled::WithHoles;
            }
        }
        drop(jobs);
        Ok((bytes, filled))
    }
}

fn pieces_of(layout: &Layout, guess: &Guess) -> Vec<Piece> {
    let of_span =
        |span: &core::ops::Range<u64>| transfers(layout, span.start, (span.end - span.start) as usize);
    guess.spans.iter().flat_map(of_span).collect()
}

#[cfg(test)]
mod tests;

//! What lanes do to the files that have a number where seeds are about records at a constant distance: they are read forward, and
//! backward down to the end of the number, and cut under the lock. Nobody sees an old number, nor what was cut off, nor zeros where
//! it was.

use crate::moments::Moment;
use crate::paging::{LOOKS, NUMBER, Paged, READ, letter, wish};
use crate::program::{Actor, Failed, session_of};
use skep_client::Port;
use skep_client::limits::{AHEAD_FOR_MS, STRIDE_GAP};
use skep_types::limits::INLINE_DEFAULT;
use skep_types::{ClientId, Errno, Ino, SetAttr};
use skep_wire::meta::LockKind;
use std::future::poll_fn;
use std::pin::pin;

/// Bytes of a record.
const RECORD: usize = 2;
/// Distances: several in one request, and one in each.
const FARS: [u64; 2] = [16, STRIDE_GAP + 500];
/// Of a hundred handles so many read records that lie apart.
const APART: u64 = 75;
/// Of a hundred numbers so many come with a cut.
const CUT: u64 = 50;
/// Records, with the one that ends where the number does.
const RECORDS: u64 = 12;
/// Who cuts waits so long for somebody who reads, ...
const READS_MS: u64 = 1_000;
/// ... and looks so often.
const LOOK_MS: u64 = 10;
/// Until it was on its way so often.
const LOOKS_AT_IT: u64 = 4;
/// A cut takes up to so many of the far ones.
const CUT_OFF: u64 = 3;

impl Actor {
    /// Is the file, which ends there, to be cut where a number was written? So that records that lie apart go, not the first.
    pub(crate) fn cuts(&self, end: u64) -> bool {
        let hub = &mut *self.hub.borrow_mut();
        hub.is_about(Moment::Strided) && end > 2 * FARS[1] && hub.rng.percent(CUT)
    }

    /// As [`Actor::cut`], by who writes nothing, and so tells nobody before.
    pub(crate) async fn cut_only(&self, file: usize, ino: Ino) {
        let session = session_of(&self.shared);
        let Ok(opened) = self.lane.open(ino, READ).await else { return };
        let lock = wish(self.id.lane, Some(LockKind::Write));
        if self.lane.set_lock(opened.handle, lock).await.is_ok() && self.counts(session) {
            if self.cuts(self.end_of(file)) {
                self.cut(file, ino, opened.handle, session).await;
            }
            let _ = self.lane.set_lock(opened.handle, wish(self.id.lane, None)).await;
        }
        let _ = self.lane.flush(opened.handle, u64::from(self.id.lane) + 1).await;
        self.lane.release(opened.handle).await;
    }

    async fn record(&self, (file, handle): (usize, u64), at: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let mut reading = pin!(self.lane.read(handle, at, out));
        poll_fn(|context| {
            let polled = reading.as_mut().poll(context);
            self.guesses(file, polled.is_pending() && self.shared.borrow().aheads.is_reading(handle));
            polled
        })
        .await
    }

    fn guesses(&self, file: usize, guesses: bool) {
        let of_all = &mut self.hub.borrow_mut().fields.paged[file].guesses;
        if guesses || *of_all == Some(self.id) {
            *of_all = guesses.then_some(self.id);
        }
    }

    /// Waits until records have been on their way for a while: what is cut then may be cut before they are read.
    async fn somebody_guesses(&self, file: usize) {
        let mut looks = 0;
        for _ in 0..READS_MS / LOOK_MS {
            looks = if self.paged(file).guesses.is_some() { looks + 1 } else { 0 };
            if looks > LOOKS_AT_IT {
                break;
            }
            self.lane.port().pause(LOOK_MS).await;
        }
    }

    /// Under the lock: the file ends sooner from now on.
    pub(crate) async fn cut(&self, file: usize, ino: Ino, handle: u64, session: Option<ClientId>) {
        self.somebody_guesses(file).await;
        let end = self.end_of(file);
        let size = {
            let hub = &mut *self.hub.borrow_mut();
            let cut_off = hub.rng.below(CUT_OFF * FARS[1]);
            let paged = &mut hub.fields.paged[file];
            let size = end.saturating_sub(cut_off).max(NUMBER as u64);
            // Who is killed meanwhile may have it done later than others write.
            (paged.cuts, paged.is_in_doubt, paged.cut) = (paged.cuts + 1, true, None);
            (paged.acked.1, paged.full.0) = (paged.acked.1.min(size), paged.full.0.min(size));
            size
        };
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let is_cut = self.lane.setattr(ino, set).await.is_ok() && self.lane.fsync(handle).await.is_ok();
        if is_cut && self.counts(session) {
            let hub = &mut *self.hub.borrow_mut();
            hub.say(format_args!("{} cut paged file {file} at {size}", self.id));
            let paged = &mut hub.fields.paged[file];
            (paged.is_in_doubt, paged.cut) = (false, Some(size));
        }
    }

    /// Reads the same records again and again by one handle.
    pub(crate) async fn read_records(&self, file: usize, ino: Ino) -> Result<(), Failed> {
        let session = session_of(&self.shared);
        if self.paged(file).acked.1 <= u64::from(INLINE_DEFAULT) {
            return Ok(());
        }
        let Ok(opened) = self.lane.open(ino, READ).await else { return Ok(()) };
        let (looks, far) = {
            let rng = &mut self.hub.borrow_mut().rng;
            (rng.below(4 * LOOKS), FARS[usize::from(rng.percent(APART))])
        };
        let mut result = Ok(());
        for _ in 0..looks {
            let (ms, looks) = {
                let rng = &mut self.hub.borrow_mut().rng;
                let longest = if rng.percent(10) { 2 * AHEAD_FOR_MS } else { 60 };
                (rng.below(longest), rng.percent(50))
            };
            self.lane.port().pause(ms).await;
            // As the kernel, which comes by its name now and then: a lease covers what it leads to.
            if looks {
                let _ = self.lane.lookup(Ino::ROOT, format!("paged{file}").as_bytes()).await;
            }
            let used = |handle| self.shared.borrow().aheads.strided_used(handle);
            let (before, before_used) = (self.least(file), used(opened.handle));
            let found = match self.number_in_records((file, opened.handle), far, session).await {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(failed) => {
                    result = Err(failed);
                    break;
                }
            };
            if used(opened.handle) > before_used {
                let coverage = &mut self.hub.borrow_mut().coverage;
                coverage.hit("a number was read that had been read ahead at a distance");
            }
            if found < self.still_least(file, before) {
                result = self.fail(format!(
                    "{found} is read in records of paged file {file}, but {before} was written before that began"
                ));
                break;
            }
        }
        self.lane.release(opened.handle).await;
        result
    }

    /// `None`: nobody can tell.
    async fn number_in_records(
        &self,
        (file, handle): (usize, u64),
        far: u64,
        session: Option<ClientId>,
    ) -> Result<Option<u64>, Failed> {
        let last = (NUMBER - RECORD) as u64;
        let records = RECORDS.min((self.end_of(file) - last).div_ceil(far));
        let is_backward = self.hub.borrow_mut().rng.percent(60);
        let mut number = [0; NUMBER];
        for record in 0..records {
            let record = if is_backward { records - 1 - record } else { record };
            let (at, mut bytes) = (last + record * far, [0; RECORD]);
            let before = (self.paged(file), self.end_of(file));
            let read = self.record((file, handle), at, &mut bytes).await;
            let Ok(n) = read else { return Ok(None) };
            if !self.counts(session) {
                return Ok(None);
            }
            if record == 0 && n < RECORD {
                return self.fail(format!("{n} bytes of the number of paged file {file} are read"));
            }
            if record == 0 {
                number[NUMBER - RECORD..].copy_from_slice(&bytes);
            } else {
                self.record_is_right(file, before, at, &bytes[..n])?;
            }
        }
        let rest = &mut number[..NUMBER - RECORD];
        let read = self.lane.read(handle, 0, rest).await;
        let Some(n) = read.ok().filter(|_| self.counts(session)) else { return Ok(None) };
        let text = std::str::from_utf8(&number).ok().filter(|_| n == NUMBER - RECORD);
        match text.and_then(|text| text.parse().ok()) {
            Some(found) => Ok(Some(found)),
            None => {
                let wrong = number.escape_ascii();
                self.fail(format!("{n} bytes, \"{wrong}\", are read as the number of paged file {file}"))
            }
        }
    }

    /// `before`: what was known of the file when these were asked for, and up to where it was written.
    fn record_is_right(
        &self,
        file: usize,
        (before, end): (Paged, u64),
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Failed> {
        let after = self.paged(file);
        if before.is_in_doubt {
            return Ok(());
        }
        let is_synced = at + RECORD as u64 <= before.acked.1;
        let is_written =
            is_synced || (at + RECORD as u64 <= end && before.full.1 == self.hub.borrow().cuts.len());
        let (is_longer, has_zeros) = (before.grows || after.grown != before.grown, bytes.contains(&0));
        if is_written && has_zeros && !is_longer {
            return self.fail(format!(
                "{bytes:?} is read at {at} of paged file {file}, which was cut at most, and had no zeros"
            ));
        }
        if after.cuts != before.cuts {
            return Ok(());
        }
        if let Some(cut) = before.cut.filter(|cut| *cut <= at && after.cut == before.cut)
            && !bytes.is_empty()
        {
            return self.fail(format!("{bytes:?} is read at {at} of paged file {file}, which ends at {cut}"));
        }
        if is_synced && bytes != [letter(at), letter(at + 1)] {
            return self
                .fail(format!("{bytes:?} is read at {at} of paged file {file}, of which more was synced"));
        }
        Ok(())
    }
}

//! What lanes do to the files that all read through their kernels' pages: a number that goes up under a lock, and a
//! tail that grows. Nobody sees zeros where somebody wrote, nor an old number under the lock or after an open.

use crate::hub::LaneId;
use crate::kernel::{Found, PAGE, kernel};
use crate::moments::Moment;
use crate::program::{Actor, Failed, session_of};
use skep_client::limits::AHEAD_FOR_MS;
use skep_client::{OpenHow, Port, WriteHow};
use skep_types::limits::INLINE_DEFAULT;
use skep_types::{Errno, Ino};
use skep_wire::meta::{LockKind, LockSpace, LockWish, OpenMode};
use std::fmt;

/// Bytes of the number at the start.
pub(crate) const NUMBER: usize = 16;
/// Bytes that one step adds.
const LENGTHS: [u64; 5] = [0, 7, 90, 900, 5_000];
/// Where who reads at a constant distance is to find some records.
const LONG: [u64; 5] = [0, 7, 900, 15_000, 30_000];
/// Of a hundred programs that lengthen a file there so many leave it to the system to sync that.
const UNSYNCED: u64 = 50;
/// Where who reads in order is to find a file as it was, but for its number.
const FEW: [u64; 5] = [0, 0, 0, 7, 900];
/// The tail grows no longer than this: out of the metadata, over a few chunks.
pub(crate) const TAIL_MAX: u64 = 150_000;
/// Of a hundred programs so many read in order, where that is what a seed is about.
const IN_ORDER: u64 = 80;
/// The same of records.
const IN_RECORDS: u64 = 60;
/// Of a hundred READs of the kernel, and of answers to them, so many take up to so long, in milliseconds.
const TRAVELS: u64 = 30;
const TRAVELS_MS: u64 = 80;
/// Looks of one reader.
pub(crate) const LOOKS: u64 = 6;

/// What is known of such a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Paged {
    pub ino: Ino,
    /// Last number whose fsync was answered, and the end of the file then.
    pub(crate) acked: (u64, u64),
    /// Last number whose write was answered, and how many power cuts there had been when it began.
    written: (u64, usize),
    /// Last number that somebody began to write.
    tried: u64,
    /// Every byte up to there was written, synced or not, and how many power cuts there had been when that began.
    pub(crate) full: (u64, usize),
    /// Cuts that have begun, ...
    pub(crate) cuts: u64,
    /// ... of which the last one may have come, or come later.
    pub(crate) is_in_doubt: bool,
    /// Records for this lane, and what is guessed to be read next, are on their way.
    pub(crate) guesses: Option<LaneId>,
    /// It was cut there, and nobody has begun to lengthen it since.
    pub(crate) cut: Option<u64>,
    /// So often somebody began to lengthen it, ...
    pub(crate) grown: u64,
    /// ... of which the last one may not have, or later.
    pub(crate) grows: bool,
    /// Changes that have begun, and not ended well.
    doubts: u32,
}

impl Paged {
    /// Nothing was written to it.
    pub fn new(ino: Ino) -> Self {
        Self { ino, ..Self::default() }
    }

    /// Has a change of it failed, of which nobody knows what it has left, or is one under way?
    pub fn is_doubtful(&self) -> bool {
        self.doubts > 1
    }

    /// The last number and the end of the file, where no change is under way, nor has one failed.
    pub fn at_rest(&self) -> Option<(u64, u64)> {
        (self.doubts == 0).then_some(self.acked)
    }

    /// A change of it begins.
    pub fn begins(&mut self) {
        self.doubts += 1;
    }

    /// It has ended well: this number, and this end, are there.
    pub fn ends(&mut self, number: u64, end: u64) {
        self.doubts -= 1;
        self.acked = (number, end);
    }

    /// To be written next.
    pub fn next_number(&mut self) -> u64 {
        self.tried += 1;
        self.tried
    }
}

pub(crate) fn letter(at: u64) -> u8 {
    b'a' + (at % 23) as u8
}

pub(crate) fn wish(lane: u32, kind: Option<LockKind>) -> LockWish {
    let owner = u64::from(lane) + 1;
    LockWish { owner, pid: 0, space: LockSpace::Whole, kind, start: 0, last: u64::MAX }
}

pub(crate) const READ: OpenHow =
    OpenHow { mode: OpenMode::Read, truncate: false, sync: false, kill_suidgid: false };

/// The number that whoever reads a file from some moment on finds at least.
#[derive(Clone, Copy)]
pub(crate) struct Least {
    number: u64,
    synced: u64,
    /// Power cuts of targets until then.
    cuts: usize,
}

impl fmt::Display for Least {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl Actor {
    /// One of the things that programs do with such a file.
    pub(crate) async fn use_pages(&self) -> Result<(), Failed> {
        self.wait_while_dead().await;
        if let Some(result) = self.use_checked().await {
            return result;
        }
        let (file, what) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.at_step.insert(self.id, 0);
            let file = hub.rng.below(2) as usize;
            let reads_on = hub.is_about(Moment::InOrder) && hub.rng.percent(IN_ORDER);
            let reads_records = hub.is_about(Moment::Strided) && hub.rng.percent(IN_RECORDS);
            (
                file,
                if reads_records {
                    10
                } else if reads_on {
                    9
                } else {
                    hub.rng.below(10)
                },
            )
        };
        let Some(Paged { ino, .. }) = self.hub.borrow().fields.paged.get(file).copied() else {
            return Ok(());
        };
        match what {
            0..=3 => self.add_one(file, ino).await,
            // Where its end moves, nobody follows it.
            7..=8 if self.hub.borrow().is_about(Moment::Strided) => self.add_one(file, ino).await,
            5..=6 if self.hub.borrow().is_about(Moment::Strided) => {
                self.cut_only(file, ino).await;
                Ok(())
            }
            4..=6 => self.open_and_look(file, ino).await,
            7..=8 => self.follow(file, ino).await,
            9 => self.read_on(file, ino).await,
            _ => self.read_records(file, ino).await,
        }
    }

    pub(crate) fn paged(&self, file: usize) -> Paged {
        self.hub.borrow().fields.paged[file]
    }

    /// What this lane was told counts: its session lives, and is the one from before.
    pub(crate) fn counts(&self, session: Option<skep_types::ClientId>) -> bool {
        let living = session.is_some_and(|client| self.hub.borrow().fields.living.contains(&client));
        living && session_of(&self.shared) == session
    }

    /// The bytes of `page` within the file, through the kernel's cache.
    pub(crate) async fn page(&self, handle: u64, ino: Ino, page: u64) -> Result<Vec<u8>, Errno> {
        loop {
            let now = self.hub.borrow().now;
            let (found, asked) = kernel(&self.hub, self.id.life, |k| (k.read(ino, page, now), k.asks()));
            match found {
                Found::Bytes(bytes) => return Ok(bytes),
                Found::End => return Ok(Vec::new()),
                Found::Locked => self.lane.port().pause(1).await,
                Found::Nothing => {
                    let mut bytes = vec![0; PAGE as usize];
                    self.travels().await;
                    let filled = self.lane.fill(handle, page * PAGE, &mut bytes).await;
                    self.travels().await;
                    let got = filled.as_ref().ok().map(|n| &bytes[..*n]);
                    kernel(&self.hub, self.id.life, |k| k.filled(ino, page, got, asked));
                    filled?;
                }
            }
            if self.lane.port().cancelled() {
                return Err(Errno::EINTR);
            }
        }
    }

    /// A request of the kernel, or the answer to it, is on its way, now and then for long.
    async fn travels(&self) {
        let ms = {
            let rng = &mut self.hub.borrow_mut().rng;
            if rng.percent(TRAVELS) { rng.below(TRAVELS_MS) } else { 0 }
        };
        if ms > 0 {
            self.lane.port().pause(ms).await;
        }
    }

    /// The size, and whether the kernel believes in it as well: else a store behind the end that it knows is SIGBUS.
    async fn stat(&self, ino: Ino) -> Result<(u64, bool), Errno> {
        let asked = kernel(&self.hub, self.id.life, |k| k.asks());
        let attr = self.lane.getattr(ino).await?;
        let checks = self.checks();
        let (compared, believed) = kernel(&self.hub, self.id.life, |k| {
            (checks && k.compared(ino, &attr, asked), k.told(ino, attr.size, asked))
        });
        self.applied(ino, compared).await;
        Ok((attr.size, believed))
    }

    async fn number(&self, handle: u64, ino: Ino) -> Result<u64, Errno> {
        // As the kernel, which asks for the size before it reads to the end.
        self.stat(ino).await?;
        let bytes = self.page(handle, ino, 0).await?;
        let text = bytes.get(..NUMBER).and_then(|bytes| std::str::from_utf8(bytes).ok());
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// A write past the pages: the kernel drops them before, and believes the new end after it.
    pub(crate) async fn put(&self, handle: u64, ino: Ino, offset: u64, data: &[u8]) -> Result<(), Errno> {
        while !kernel(&self.hub, self.id.life, |k| k.drop_pages(ino, offset, data.len() as u64)) {
            self.lane.port().pause(1).await;
        }
        let n = self.lane.write(handle, offset, data, WriteHow::default()).await?;
        kernel(&self.hub, self.id.life, |k| k.written(ino, offset + n as u64));
        if n == data.len() { Ok(()) } else { Err(Errno::EIO) }
    }

    async fn add_one(&self, file: usize, ino: Ino) -> Result<(), Failed> {
        let session = session_of(&self.shared);
        let how = OpenHow { mode: OpenMode::ReadWrite, ..READ };
        let Ok(opened) = self.lane.open(ino, how).await else { return Ok(()) };
        let lock = wish(self.id.lane, Some(LockKind::Write));
        let mut result = Ok(());
        if self.lane.set_lock(opened.handle, lock).await.is_ok() && self.counts(session) {
            result = self.add_under_lock(file, ino, opened.handle, session).await;
            let _ = self.lane.set_lock(opened.handle, wish(self.id.lane, None)).await;
        }
        let _ = self.lane.flush(opened.handle, u64::from(self.id.lane) + 1).await;
        self.lane.release(opened.handle).await;
        result
    }

    async fn add_under_lock(
        &self,
        file: usize,
        ino: Ino,
        handle: u64,
        session: Option<skep_types::ClientId>,
    ) -> Result<(), Failed> {
        let Paged { acked: (acked, end), tried, .. } = self.paged(file);
        match self.number(handle, ino).await {
            Ok(found) if self.counts(session) && !(acked..=tried).contains(&found) => {
                return self.fail(format!(
                    "{found} is read under the lock of paged file {file}, but {acked} was written before"
                ));
            }
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
        if !self.counts(session) {
            return Ok(());
        }
        let cuts = self.cuts(self.end_of(file));
        let (number, len, syncs) = {
            let hub = &mut *self.hub.borrow_mut();
            let is_long = hub.is_about(Moment::InOrder) && end > u64::from(INLINE_DEFAULT);
            let len = hub.rng.pick(match () {
                () if hub.is_about(Moment::Strided) => &LONG,
                () if is_long => &FEW,
                () => &LENGTHS,
            });
            let paged = &mut hub.fields.paged[file];
            paged.tried += 1;
            let len = if cuts || end + len > TAIL_MAX { 0 } else { len };
            (paged.tried, len, !hub.is_about(Moment::Strided) || len == 0 || !hub.rng.percent(UNSYNCED))
        };
        let start = end.max(NUMBER as u64);
        let tail: Vec<u8> = (start..start + len).map(letter).collect();
        let written = async {
            let cuts = self.hub.borrow().cuts.len();
            self.put(handle, ino, 0, format!("{number:0NUMBER$}").as_bytes()).await?;
            self.is_written(file, (number, cuts), session);
            if len > 0 {
                self.lengthens(file);
                self.put(handle, ino, start, &tail).await?;
                self.is_longer(file, (start + len, cuts), session);
            }
            if syncs { self.lane.fsync(handle).await } else { Ok(()) }
        };
        let written = written.await;
        let counts = self.counts(session);
        self.hub.borrow_mut().say(format_args!(
            "{} wrote {number} and {len} bytes at {start} of paged file {file}: {written:?}",
            self.id
        ));
        if written.is_ok() && counts && syncs {
            let hub = &mut *self.hub.borrow_mut();
            hub.coverage.hit("a number went up under a lock");
            hub.fields.paged[file].acked = (number, start + len);
        }
        if written.is_ok() && counts && cuts {
            self.cut(file, ino, handle, session).await;
        }
        Ok(())
    }

    fn lengthens(&self, file: usize) {
        let paged = &mut self.hub.borrow_mut().fields.paged[file];
        (paged.cut, paged.grown, paged.grows) = (None, paged.grown + 1, true);
    }

    fn is_longer(&self, file: usize, (end, cuts): (u64, usize), session: Option<skep_types::ClientId>) {
        if self.counts(session) {
            let paged = &mut self.hub.borrow_mut().fields.paged[file];
            let before = if paged.full.1 == cuts { paged.full.0 } else { 0 };
            (paged.full, paged.grows) = ((end.max(before), cuts), false);
        }
    }

    /// Every byte up to there was written, and none of them was lost.
    pub(crate) fn end_of(&self, file: usize) -> u64 {
        let Paged { acked, full: (end, cuts), .. } = self.paged(file);
        acked.1.max(if cuts == self.hub.borrow().cuts.len() { end } else { 0 })
    }

    /// What a power cut took may be answered behind it.
    pub(crate) fn is_written(
        &self,
        file: usize,
        written: (u64, usize),
        session: Option<skep_types::ClientId>,
    ) {
        if self.counts(session) {
            self.hub.borrow_mut().fields.paged[file].written = written;
        }
    }

    /// The newest number that whoever opens the file from now on finds at least, also where its writer has died.
    pub(crate) fn newest(&self, file: usize) -> u64 {
        let Paged { acked, written: (written, cuts), .. } = self.paged(file);
        let is_there = cuts == self.hub.borrow().cuts.len();
        acked.0.max(if is_there { written } else { 0 })
    }

    /// Before somebody reads: what he finds at least.
    pub(crate) fn least(&self, file: usize) -> Least {
        let cuts = self.hub.borrow().cuts.len();
        Least { number: self.newest(file), synced: self.paged(file).acked.0, cuts }
    }

    /// The same when he has read. What a power cut took meanwhile counts no more, also where somebody has written since.
    pub(crate) fn still_least(&self, file: usize, before: Least) -> u64 {
        let is_there = before.cuts == self.hub.borrow().cuts.len();
        self.newest(file).min(if is_there { before.number } else { before.synced })
    }

    async fn open_and_look(&self, file: usize, ino: Ino) -> Result<(), Failed> {
        let (session, before) = (session_of(&self.shared), self.least(file));
        let Ok(opened) = self.lane.open(ino, READ).await else { return Ok(()) };
        let reads = self.hub.borrow_mut().rng.percent(60);
        let found = if reads { self.number(opened.handle, ino).await } else { Err(Errno::EINTR) };
        self.lane.release(opened.handle).await;
        match found {
            Ok(found) if found < self.still_least(file, before) && self.counts(session) => {
                self.fail(format!(
                    "{found} is read from paged file {file}, but {before} was written before it was opened"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Reads again and again by one handle, as the file grows.
    async fn follow(&self, file: usize, ino: Ino) -> Result<(), Failed> {
        let session = session_of(&self.shared);
        let Ok(opened) = self.lane.open(ino, READ).await else { return Ok(()) };
        let looks = self.hub.borrow_mut().rng.below(LOOKS);
        for _ in 0..looks {
            let ms = self.hub.borrow_mut().rng.below(120);
            self.lane.port().pause(ms).await;
            let end = self.paged(file).acked.1;
            let Ok((size, believed)) = self.stat(ino).await else { break };
            if !self.counts(session) {
                break;
            }
            if !believed {
                self.lane.release(opened.handle).await;
                return self.fail(format!(
                    "the kernel was told {size} of paged file {file}, and does not believe it"
                ));
            }
            if size < end {
                self.lane.release(opened.handle).await;
                return self.fail(format!("paged file {file} has {size} bytes, but {end} were synced"));
            }
            if let Some(at) = self.first_zero(opened.handle, ino, end).await
                && self.counts(session)
            {
                self.lane.release(opened.handle).await;
                return self.fail(format!("byte {at} of paged file {file} is not what was written there"));
            }
        }
        self.lane.release(opened.handle).await;
        Ok(())
    }

    /// Reads on and on past the pages, in pieces so small that half of the number is read ahead.
    async fn read_on(&self, file: usize, ino: Ino) -> Result<(), Failed> {
        let session = session_of(&self.shared);
        if self.paged(file).acked.1 <= u64::from(INLINE_DEFAULT) {
            return Ok(());
        }
        let Ok(opened) = self.lane.open(ino, READ).await else { return Ok(()) };
        let looks = self.hub.borrow_mut().rng.below(4 * LOOKS);
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
            let (before, spared) = (self.least(file), self.shared.borrow().spared.reads);
            if let Err(failed) = self.end_is_read(file, opened.handle, session).await {
                result = Err(failed);
                break;
            }
            let Ok(found) = self.number_in_pieces(opened.handle).await else { break };
            if !self.counts(session) {
                break;
            }
            if self.shared.borrow().spared.reads > spared {
                self.hub.borrow_mut().coverage.hit("a number was read that had been read ahead");
            }
            if found < self.still_least(file, before) {
                result = self.fail(format!(
                    "{found} is read from paged file {file}, but {before} was written before that began"
                ));
                break;
            }
        }
        self.lane.release(opened.handle).await;
        result
    }

    /// The last byte that was synced is read by who looks at nothing before.
    async fn end_is_read(
        &self,
        file: usize,
        handle: u64,
        session: Option<skep_types::ClientId>,
    ) -> Result<(), Failed> {
        let before = self.paged(file);
        let (end, mut byte) = (before.acked.1, [0]);
        let read = self.lane.read(handle, end.saturating_sub(1), &mut byte).await;
        if before.is_in_doubt || self.paged(file).cuts != before.cuts {
            return Ok(());
        }
        match read {
            Ok(n) if end > NUMBER as u64 && self.counts(session) && (n, byte[0]) != (1, letter(end - 1)) => {
                self.fail(format!(
                    "{n} bytes, {byte:?}, are read at the end of paged file {file}: {end} bytes were synced"
                ))
            }
            _ => Ok(()),
        }
    }

    async fn number_in_pieces(&self, handle: u64) -> Result<u64, Errno> {
        let mut bytes = [0; NUMBER];
        for (at, piece) in bytes.chunks_mut(NUMBER / 4).enumerate() {
            let wanted = piece.len();
            if self.lane.read(handle, (at * NUMBER / 4) as u64, piece).await? < wanted {
                return Err(Errno::EIO);
            }
        }
        let text = std::str::from_utf8(&bytes).ok();
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    async fn first_zero(&self, handle: u64, ino: Ino, end: u64) -> Option<u64> {
        for page in 0..end.div_ceil(PAGE) {
            let bytes = self.page(handle, ino, page).await.ok()?;
            let wrong = (page * PAGE..end)
                .zip(&bytes)
                .find(|(at, byte)| *at >= NUMBER as u64 && **byte != letter(*at));
            if let Some((at, _)) = wrong {
                return Some(at);
            }
        }
        self.hub.borrow_mut().coverage.hit("a growing file was followed");
        None
    }
}

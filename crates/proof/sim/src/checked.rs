//! What lanes do to files that are read through their kernels' pages by handles that programs keep, while others overwrite them, make
//! them longer, and cut them. The kernel asks before it reads from a page, unless it has valid attributes: nobody reads an older
//! number than was there when the read began, nor zeros, which nobody has written.

use crate::kernel::{PAGE, kernel};
use crate::moments::Moment;
use crate::paging::{NUMBER, Paged, READ, TAIL_MAX, letter, wish};
use crate::program::{Actor, Failed, session_of};
use skep_client::{AttrsBy, OpenHow, Port};
use skep_types::limits::INLINE_DEFAULT;
use skep_types::{Attr, ClientId, Errno, Ino, SetAttr};
use skep_wire::meta::{LockKind, OpenMode};

/// The first of these files.
const FIRST: usize = 2;
/// Of a hundred programs so many use them, where that is what a seed is about.
const MUCH: u64 = 85;
/// And so many of those read.
const READ_MUCH: u64 = 65;
/// Reads of one of them.
const LOOKS: u64 = 24;
/// Bytes that a step adds.
const LENGTHS: [u64; 5] = [0, 90, 900, 5_000, 20_000];
/// Of a hundred steps so many cut the file.
const CUTS: u64 = 35;
/// Of a thousand answers so many are applied late ...
const LATE: u64 = 150;
/// ... by so much at most. (Later ones: promises.)
const LATE_MS: u64 = 200;

/// A file as one program reads it.
#[derive(Clone, Copy)]
struct Reader {
    file: usize,
    ino: Ino,
    handle: u64,
    paged: bool,
    session: Option<ClientId>,
}

impl Actor {
    /// One of the things that programs do with such a file. `None`: another deed is to be done.
    pub(crate) async fn use_checked(&self) -> Option<Result<(), Failed>> {
        let (file, reads) = {
            let hub = &mut *self.hub.borrow_mut();
            if !(hub.is_about(Moment::Polled) && hub.rng.percent(MUCH)) {
                return None;
            }
            (FIRST + hub.rng.below(2) as usize, hub.rng.percent(READ_MUCH))
        };
        let Paged { ino, .. } = self.hub.borrow().fields.paged.get(file).copied()?;
        Some(if reads { self.poll(file, ino).await } else { self.change_checked(file, ino).await })
    }

    /// Does the kernel above ask before it reads from a page?
    pub(crate) fn checks(&self) -> bool {
        self.shared.borrow().limits.checks
    }

    /// The thread that asked applies the answer: by another time or size the kernel drops all pages, and waits for fills.
    pub(crate) async fn applied(&self, ino: Ino, compared: bool) {
        while compared && !kernel(&self.hub, self.id.life, |k| k.drop_pages(ino, 0, 0)) {
            self.lane.port().pause(1).await;
            if self.lane.port().cancelled() {
                return;
            }
        }
    }

    /// Reads again and again by one handle.
    async fn poll(&self, file: usize, ino: Ino) -> Result<(), Failed> {
        let session = session_of(&self.shared);
        // As the kernel, which comes by its name: a lease covers what it leads to.
        let asked = kernel(&self.hub, self.id.life, |k| k.asks());
        let found = self.lane.lookup(Ino::ROOT, format!("paged{file}").as_bytes()).await;
        if let Ok(attr) = found {
            kernel(&self.hub, self.id.life, |k| k.told(ino, attr.size, asked));
        }
        let Ok(opened) = self.lane.open(ino, READ).await else { return Ok(()) };
        let paged = opened.covered && self.checks();
        if paged {
            self.lane.write_through_pages(opened.handle);
            kernel(&self.hub, self.id.life, |k| k.opens(ino));
            self.hub.borrow_mut().coverage.hit("a covered file was opened to read through pages");
        }
        let reader = Reader { file, ino, handle: opened.handle, paged, session };
        // Where the kernel does not ask before it reads from a page, what is small is read as of its open.
        let is_old = opened.inline && !self.checks();
        let looks = if is_old { 0 } else { self.hub.borrow_mut().rng.below(LOOKS) };
        let mut result = Ok(());
        for _ in 0..looks {
            let (ms, looks) = {
                let rng = &mut self.hub.borrow_mut().rng;
                let longest = rng.pick(&[1, 10, 60, 400]);
                (rng.below(longest), rng.percent(30))
            };
            self.lane.port().pause(ms).await;
            if looks {
                let _ = self.lane.lookup(Ino::ROOT, format!("paged{file}").as_bytes()).await;
            }
            match self.read_once(reader).await {
                Some(Ok(())) => {}
                Some(Err(failed)) => {
                    result = Err(failed);
                    break;
                }
                None => break,
            }
        }
        self.lane.release(opened.handle).await;
        result
    }

    /// One `read` of the whole file. `None`: it could not be, or does not count.
    async fn read_once(&self, reader: Reader) -> Option<Result<(), Failed>> {
        let Reader { file, session, .. } = reader;
        let (before, ended) = (self.least(file), self.paged(file).at_rest());
        let bytes = match reader.paged {
            true => self.read_checked(reader).await.ok()?,
            false => self.read_past(reader.handle).await.ok()?,
        };
        if !self.counts(session) {
            return None;
        }
        let text = bytes.get(..NUMBER).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let found: u64 = text.and_then(|text| text.parse().ok()).unwrap_or(0);
        if found < self.still_least(file, before) {
            return Some(self.fail(format!(
                "{found} is read in {} bytes of checked file {file}, but {before} was written before that began",
                bytes.len()
            )));
        }
        // Nobody has changed it since before that began.
        let rested = ended.filter(|_| self.paged(file).at_rest() == ended);
        if let Some((_, end)) = rested
            && bytes.len() as u64 != end
        {
            return Some(self.fail(format!(
                "{} bytes are read of checked file {file}, which has {end}; through pages: {}",
                bytes.len(),
                reader.paged
            )));
        }
        let zero = bytes.iter().skip(NUMBER).position(|byte| *byte == 0);
        if let Some(at) = zero.filter(|_| !self.paged(file).is_doubtful()) {
            return Some(self.fail(format!(
                "byte {} of {} of checked file {file} is read as zero, which nobody wrote",
                NUMBER + at,
                bytes.len()
            )));
        }
        Some(Ok(()))
    }

    /// Past the pages a `read` may end where the file did a moment ago; who goes on until nothing comes has all of it.
    async fn read_past(&self, handle: u64) -> Result<Vec<u8>, Errno> {
        let (mut bytes, mut end) = (vec![0; TAIL_MAX as usize], 0);
        while end < bytes.len() {
            match self.lane.read(handle, end as u64, &mut bytes[end..]).await? {
                0 => break,
                n => end += n,
            }
        }
        bytes.truncate(end);
        Ok(bytes)
    }

    /// As the kernel does with AUTO_INVAL_DATA.
    async fn read_checked(&self, Reader { ino, handle, .. }: Reader) -> Result<Vec<u8>, Errno> {
        let jiffies = || self.hub.borrow().mono(crate::hub::Hub::host_of(self.id.life)).0;
        let now = jiffies();
        if kernel(&self.hub, self.id.life, |k| k.valid(ino, now)).is_none() {
            let asked = kernel(&self.hub, self.id.life, |k| k.asks());
            let attr = self.lane.getattr_open(handle).await?;
            let validity = self.lane.valid_for(&attr, AttrsBy::Question);
            self.apply_late().await;
            let now = jiffies();
            let compared = kernel(&self.hub, self.id.life, |k| {
                let compared = k.compared(ino, &attr, asked);
                k.answered(ino, &attr, crate::kernel::From::Inode(asked), validity, now);
                compared
            });
            self.applied(ino, compared).await;
        } else {
            self.hub.borrow_mut().coverage.hit("pages were read without a question");
        }
        let mut bytes = Vec::new();
        loop {
            let page = self.page(handle, ino, bytes.len() as u64 / PAGE).await?;
            bytes.extend_from_slice(&page);
            if (page.len() as u64) < PAGE {
                return Ok(bytes);
            }
        }
    }

    async fn apply_late(&self) {
        let ms = {
            let rng = &mut self.hub.borrow_mut().rng;
            if rng.below(1_000) < LATE { rng.below(LATE_MS) } else { 0 }
        };
        if ms > 0 {
            self.lane.port().pause(ms).await;
        }
    }

    /// Cuts it, or not; writes the number; makes it longer, or not.
    async fn change_checked(&self, file: usize, ino: Ino) -> Result<(), Failed> {
        let session = session_of(&self.shared);
        let how = OpenHow { mode: OpenMode::ReadWrite, ..READ };
        let Ok(opened) = self.lane.open(ino, how).await else { return Ok(()) };
        let lock = wish(self.id.lane, Some(LockKind::Write));
        if self.lane.set_lock(opened.handle, lock).await.is_ok() && self.counts(session) {
            let steps = 1 + self.hub.borrow_mut().rng.below(4);
            for _ in 0..steps {
                if !self.change_once(file, ino, opened.handle, session).await {
                    break;
                }
                let ms = self.hub.borrow_mut().rng.below(80);
                self.lane.port().pause(ms).await;
            }
            let _ = self.lane.set_lock(opened.handle, wish(self.id.lane, None)).await;
        }
        let _ = self.lane.flush(opened.handle, u64::from(self.id.lane) + 1).await;
        self.lane.release(opened.handle).await;
        Ok(())
    }

    /// `false`: it failed, or does not count.
    async fn change_once(&self, file: usize, ino: Ino, handle: u64, session: Option<ClientId>) -> bool {
        let Ok(Attr { size, .. }) = self.lane.getattr(ino).await else { return false };
        if !self.counts(session) {
            return false;
        }
        let (number, len, cut) = {
            let hub = &mut *self.hub.borrow_mut();
            let len = hub.rng.pick(&LENGTHS);
            let cuts = size > NUMBER as u64 && (hub.rng.percent(CUTS) || size + len > TAIL_MAX);
            // In chunks it stays in chunks.
            let least =
                if size > u64::from(INLINE_DEFAULT) { u64::from(INLINE_DEFAULT) + 1 } else { NUMBER as u64 };
            let cut = (cuts && least < size).then(|| least + hub.rng.below(size - least));
            let paged = &mut hub.fields.paged[file];
            paged.begins();
            (paged.next_number(), if size + len > TAIL_MAX { 0 } else { len }, cut)
        };
        let cuts = self.hub.borrow().cuts.len();
        let changed = async {
            let mut end = size;
            if let Some(cut) = cut {
                let set = SetAttr { size: Some(cut), ..SetAttr::default() };
                let attr = self.lane.setattr_open(handle, ino, set).await?;
                kernel(&self.hub, self.id.life, |k| k.told(ino, attr.size, k.asks()));
                end = cut;
            }
            self.put(handle, ino, 0, format!("{number:0NUMBER$}").as_bytes()).await?;
            self.is_written(file, (number, cuts), session);
            let start = end.max(NUMBER as u64);
            let tail: Vec<u8> = (start..start + len).map(letter).collect();
            if len > 0 {
                self.put(handle, ino, start, &tail).await?;
            }
            self.lane.fsync(handle).await.map(|()| start + len)
        };
        let changed: Result<u64, Errno> = changed.await;
        let counts = self.counts(session);
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!(
            "{} wrote {number} to checked file {file}, {len} bytes more, cut {cut:?}: {changed:?}",
            self.id
        ));
        match changed {
            Ok(end) if counts => {
                hub.fields.paged[file].ends(number, end);
                true
            }
            _ => false,
        }
    }
}

//! The kernel's pages of a file: filled, kept current, dropped before an answer would make them lie. See
//! `docs/design/data-path.md`.

use crate::lane::Lane;
use crate::limits::{COPY_DROPS_MAX, FILL_WAIT_MS, OWN_WAIT_MAX_MS, PAGES_PATIENCE_MS, SHORTEN_TRIES};
use crate::port::{Cell, Port};
use crate::state::{FileHandle, Filled, Handle, PageDrop, Pages, Shared};
use skep_types::{Attr, Errno, Ino, Millis};
use skep_wire::Refusal;
use skep_wire::meta::OpenMode;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// The kernel sends writes of this handle through its page cache.
    pub fn write_through_pages(&self, handle: Handle) {
        self.shared.with(|s| {
            if let Ok(file) = s.handles.file(handle) {
                file.cached = true;
            }
        });
    }

    /// Fills a page: as [`Lane::read`], for the kernel's cache instead of a program.
    pub async fn fill(&self, handle: Handle, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let (FileHandle { ino, mode, .. }, _going) = self.through_file(handle)?;
        if mode == OpenMode::Write {
            return Err(Errno::EBADF);
        }
        let end = offset.saturating_add(out.len() as u64);
        let (number, drops) =
            self.shared.with(|s| (s.inodes.entry(ino).pages.fill_begins(offset, end), s.inodes.drops));
        let filled = self.fill_numbered((number, offset, end), ino, out).await;
        self.shared.with(|s| {
            let inode = s.inodes.entry(ino);
            if filled.is_err() {
                inode.pages.fill_given_up(number);
            }
            // The kernel cuts the file there, unless a drop has outdated what it asked.
            let found = filled.as_ref().ok().map(|n| offset + *n as u64).filter(|found| *found < end);
            if let Some(found) = found.filter(|_| !inode.pages.is_disbelieved(drops)) {
                inode.believed.is_at_most(found);
            }
        });
        filled
    }

    async fn fill_numbered(
        &self,
        (number, offset, end): (u64, u64, u64),
        ino: Ino,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let (mut looked, mut tries) = (false, 0);
        loop {
            self.fill_enters(ino, offset, end).await?;
            let n = self.read_all(ino, offset, out, None).await?;
            if n < out.len() && !self.ends_for_kernel(ino, offset + n as u64).await {
                tries += 1;
                if tries == SHORTEN_TRIES || self.port.cancelled() {
                    return Err(self.pages_stay());
                }
                // What is known may be older than what was read, or the file may have grown meanwhile.
                self.port.pause(FILL_WAIT_MS).await;
                self.errno(self.fresh_attr(ino).await)?;
                continue;
            }
            match self.shared.with(|s| s.inodes.entry(ino).pages.fill_ends(number, n, out, looked)) {
                Filled::Done(n) => return Ok(n),
                Filled::Again => {
                    looked = true;
                    self.errno(self.fresh_attr(ino).await)?;
                }
                Filled::Later => {}
            }
        }
    }

    /// Waits for writes of which a page could not be given the right bytes. These wait for nothing that a fill holds.
    async fn fill_enters(&self, ino: Ino, offset: u64, end: u64) -> Result<(), Errno> {
        while self.shared.with(|s| s.inodes.entry(ino).pages.fill_waits(offset, end)) {
            if self.port.cancelled() {
                return Err(Errno::EINTR);
            }
            self.port.pause(FILL_WAIT_MS).await;
        }
        Ok(())
    }

    /// A page is about to be filled up to `end`, where the file ends, and the kernel shows zeros behind that up to where it takes the
    /// file to end. Not all that it is answered it believes, and so a smaller size may be unknown to it, whatever it was told: then
    /// it is made to ask. `false`: it may not know it.
    async fn ends_for_kernel(&self, ino: Ino, end: u64) -> bool {
        let begins = |s: &mut Shared| match s.limits.checks && !s.limits.canary_ends_unknown {
            true => s.inodes.get_mut(ino)?.pages.look_begins(end),
            false => None,
        };
        let Some(number) = self.shared.with(begins) else { return true };
        let settled = self.port.settle(ino).await;
        let done = settled && self.shared.with(|s| s.inodes.get(ino).is_none_or(|inode| inode.size() <= end));
        self.shared.with(|s| {
            if let Some(inode) = s.inodes.get_mut(ino) {
                inode.pages.look_ends(number, done);
                if done {
                    inode.believed.is_at_most(end);
                }
            }
        });
        done
    }

    /// See [`Shared::settles`].
    pub fn settles(&self, ino: Ino, known: u64) -> Option<Attr> {
        self.shared.with(|s| s.settles(ino, known))
    }

    /// A file is about to be opened, or its attributes told: a page that would show zeros that nobody wrote goes before.
    pub(crate) async fn before_shown(&self, attr: &Attr) -> Result<(), Errno> {
        self.drop_lying(attr.ino, None, |pages| pages.tell(attr.size)).await
    }

    /// As [`Lane::before_shown`], of an answer that the kernel believes whatever came since it asked.
    pub(crate) async fn before_told(&self, attr: &Attr) -> Result<(), Errno> {
        self.before_shown(attr).await?;
        self.is_told(attr);
        Ok(())
    }

    fn is_told(&self, attr: &Attr) {
        self.shared.with(|s| {
            if let Some(inode) = s.inodes.get_mut(attr.ino).filter(|_| s.limits.checks) {
                inode.believed.is_answered(attr, true);
            }
        });
    }

    /// The kernel asks for attributes: to be kept for [`Lane::answered`].
    pub(crate) fn asked(&self) -> u64 {
        self.shared.with(|s| s.inodes.drops)
    }

    /// As [`Lane::before_told`], for answers that the kernel does not believe when one of its pages was dropped since it
    /// asked (lookup, getattr): it is told of the size beside them.
    pub(crate) async fn answered(&self, attr: &Attr, asked: u64) -> Result<(), Errno> {
        self.before_shown(attr).await?;
        self.before_compared(attr, asked).await;
        let disbelieved = self.shared.with(|s| {
            let Some(inode) = s.inodes.get_mut(attr.ino) else { return false };
            let disbelieved = inode.pages.is_disbelieved(asked);
            if s.limits.checks {
                inode.believed.is_answered(attr, !disbelieved);
            }
            disbelieved
        });
        if !disbelieved || attr.size == 0 {
            return Ok(());
        }
        // An answer may be older than what the kernel has learned since: it is not to be made to believe it then.
        if !self.shared.with(|s| s.limits.checks) {
            let is_told = self.port.tell_size(attr.ino, attr.size).await;
            return if is_told { Ok(()) } else { Err(self.pages_stay()) };
        }
        for _ in 0..SHORTEN_TRIES {
            if self.is_taken_in(attr).await? && self.port.settle(attr.ino).await {
                return Ok(());
            }
            if self.port.cancelled() {
                break;
            }
            self.port.pause(OWN_WAIT_MAX_MS).await;
        }
        Err(self.pages_stay())
    }

    /// What is known is no older than this answer. That of a server which has ended since was not taken in: then another one is
    /// asked. `false`: that one has ended as well.
    async fn is_taken_in(&self, attr: &Attr) -> Result<bool, Errno> {
        let is_known = |s: &mut Shared| {
            let inode = s.inodes.get(attr.ino);
            inode.and_then(|inode| inode.attr.as_ref()).is_none_or(|known| known.change >= attr.change)
        };
        let told = self.shared.with(|s| (!is_known(s)).then_some(s.disbeliefs));
        let Some(told) = told else { return Ok(true) };
        self.errno(self.fresh_attr(attr.ino).await)?;
        Ok(self.shared.with(|s| s.disbeliefs == told))
    }

    /// The kernel would drop all pages by itself, one by one those that were stored into, and have whoever asked wait for fills.
    /// It does not compare what it does not believe: so the question is outdated first, by a drop where nobody writes here and
    /// the next answer may be valid, else without one.
    async fn before_compared(&self, attr: &Attr, asked: u64) {
        let boot = self.port.boot();
        match self.shared.with(|s| s.compared(attr, asked, boot)) {
            Compared::Same => {}
            Compared::Rested(drop) => {
                if !self.drop_begun(attr.ino, drop, Some(PAGES_PATIENCE_MS)).await {
                    self.outdate(attr.ino);
                }
            }
            Compared::Busy => self.outdate(attr.ino),
        }
    }

    /// No answer about this file that was asked for before now is believed.
    fn outdate(&self, ino: Ino) {
        self.port.drop_attributes(ino);
        self.shared.with(|s| {
            s.inodes.drops += 1;
            let count = s.inodes.drops;
            if let Some(inode) = s.inodes.get_mut(ino) {
                inode.pages.is_outdated(count);
            }
        });
    }

    /// The kernel asks because a program reads through its pages, and is about to be answered this: no page is older. `elsewhere`:
    /// others may be writing, which no change counter tells.
    pub(crate) async fn before_read(&self, attr: &Attr, elsewhere: bool) -> Result<(), Errno> {
        loop {
            match self.shared.with(|s| s.pages_for_read(attr, elsewhere)) {
                ForRead::Good => return Ok(()),
                // What is filled from now on is of now.
                ForRead::Old(drop) => {
                    let is_gone = self.drop_begun(attr.ino, drop, None).await;
                    return if is_gone { Ok(()) } else { Err(self.pages_stay()) };
                }
                ForRead::Later if self.port.cancelled() => return Err(Errno::EINTR),
                ForRead::Later => self.port.pause(FILL_WAIT_MS).await,
            }
        }
    }

    /// May these attributes be told without a wait?
    pub(crate) fn may_be_told(&self, attr: &Attr) -> bool {
        self.shared.with(|s| {
            let checks = s.limits.checks;
            s.inodes.get_mut(attr.ino).is_none_or(|inode| {
                let stays = !checks || !inode.pages.may_be_held() || !inode.believed.differs(attr);
                stays && inode.pages.may_tell(attr.size)
            })
        })
    }

    /// An open has emptied the file: the kernel cuts its pages by itself when it hears of it.
    pub(crate) fn is_emptied(&self, attr: &Attr) {
        self.shared.with(|s| {
            if let Some(inode) = s.inodes.get_mut(attr.ino) {
                inode.pages.may_tell(attr.size);
                inode.believed.is_exactly(attr.size);
            }
        });
    }

    /// As [`Lane::before_told`], of a size that an answer implies.
    pub(crate) async fn before_grown(&self, ino: Ino, size: u64, patience: Option<u64>) -> Result<(), Errno> {
        self.drop_lying(ino, patience, |pages| pages.tell_at_least(size)).await?;
        self.shared.with(|s| s.inodes.get_mut(ino).map(|inode| inode.believed.is_at_least(size)));
        Ok(())
    }

    async fn drop_lying(
        &self,
        ino: Ino,
        patience: Option<u64>,
        mut tell: impl FnMut(&mut Pages) -> Option<PageDrop>,
    ) -> Result<(), Errno> {
        while let Some(drop) = self.shared.with(|s| tell(&mut s.inodes.get_mut(ino)?.pages)) {
            if !self.drop_begun(ino, drop, patience).await {
                return Err(self.pages_stay());
            }
        }
        Ok(())
    }

    /// Why pages are not gone.
    pub(crate) fn pages_stay(&self) -> Errno {
        if self.port.cancelled() {
            return Errno::EINTR;
        }
        self.port.log(format_args!(
            "the kernel cannot be brought up to date about a file that another mount has changed: EIO"
        ));
        Errno::EIO
    }

    /// The change counter as known.
    pub(crate) fn known_change(&self, ino: Ino) -> u64 {
        self.shared
            .with(|s| s.inodes.get(ino).and_then(|inode| inode.attr.as_ref()).map_or(0, |attr| attr.change))
    }

    /// A program cut or lengthened the file. The kernel writes no page back before it has the answer, so that one
    /// that was stored into is not waited for.
    pub(crate) async fn resized(&self, attr: &Attr) {
        // What is not gone by then goes with the next answer that tells of the size.
        let _ = self.drop_lying(attr.ino, Some(PAGES_PATIENCE_MS), |pages| pages.tell(attr.size)).await;
        self.is_told(attr);
    }

    /// All pages that a program sees from now on are as of now. `elsewhere`: another mount writes, which no change
    /// counter tells. `false`: the program gave up.
    pub(crate) async fn freshen_pages(&self, ino: Ino, elsewhere: bool, patience: Option<u64>) -> bool {
        let drop = self.shared.with(|s| {
            let inode = s.inodes.get_mut(ino)?;
            let change = inode.attr.as_ref().map_or(0, |attr| attr.change);
            let good = inode.pages.are_as_of(change) && !(elsewhere && inode.pages.may_be_held());
            let needed = !good && inode.pages.may_be_held();
            needed.then(|| inode.pages.drop_all(change))
        });
        match drop {
            Some(drop) => self.drop_begun(ino, drop, patience).await,
            None => true,
        }
    }

    /// An operation failed that may have changed some of this range: no old page of it stays.
    pub(crate) async fn drop_changed(&self, ino: Ino, from: u64, len: u64) {
        let drop = self.shared.with(|s| {
            let inode = s.inodes.get_mut(ino).filter(|inode| inode.pages.may_be_held())?;
            Some(inode.pages.drop_range(from, len))
        });
        if let Some(drop) = drop {
            self.drop_begun(ino, drop, None).await;
        }
    }

    /// Begins a change of these bytes past the kernel's pages, once none of them is under way beside which a page could
    /// not be given what the targets will have (see [`Pages::write_waits`]). Those wait for their pages to go, and so for
    /// fills; fills wait for nobody who waits here, nor for pages.
    async fn alone<T>(
        &self,
        ino: Ino,
        (offset, end): (u64, u64),
        known: bool,
        mut begin: impl FnMut(&mut Pages) -> T,
    ) -> Result<T, Refusal> {
        loop {
            let begun = self.shared.with(|s| {
                let pages = &mut s.inodes.entry(ino).pages;
                (!pages.write_waits(offset, end, known)).then(|| begin(pages))
            });
            if let Some(begun) = begun {
                return Ok(begun);
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
            self.port.pause(FILL_WAIT_MS).await;
        }
    }

    /// Does a write of which the kernel's pages know nothing: those that a mapping has of these bytes go first, and what
    /// was stored into them with them. Pages filled from then on have what is written here. `landed`: how much of it.
    pub(crate) async fn past_pages<T>(
        &self,
        ino: Ino,
        (offset, data): (u64, &[u8]),
        write: impl Future<Output = Result<T, Refusal>>,
        landed: impl Fn(&T) -> usize,
    ) -> Result<T, Refusal> {
        let end = offset.saturating_add(data.len() as u64);
        let begin = |pages: &mut Pages| pages.write_begins(offset, data);
        let (number, drop) = self.alone(ino, (offset, end), false, begin).await?;
        let gone = self.goes_behind(ino, number, drop).await;
        let result = if gone { write.await } else { Err(self.pages_stay().into()) };
        let written = result.as_ref().map_or(0, &landed);
        let is_doubtful = self.shared.with(|s| s.inodes.entry(ino).pages.write_ends(number, written));
        if is_doubtful || drop.is_some() && written < data.len() {
            // Pages filled meanwhile have what did not land.
            let kept = if is_doubtful { 0 } else { written };
            let (from, len) = (offset + kept as u64, (data.len() - kept) as u64);
            let drop = self.shared.with(|s| s.inodes.entry(ino).pages.drop_range(from, len));
            self.drop_begun(ino, drop, None).await;
        }
        result
    }

    /// Drops what is to go before this write. `false`: it may still be there.
    async fn goes_behind(&self, ino: Ino, number: u64, drop: Option<PageDrop>) -> bool {
        let Some(drop) = drop else { return true };
        let gone = self.drop_begun(ino, drop, None).await;
        self.shared.with(|s| s.inodes.entry(ino).pages.write_goes(number));
        gone
    }

    /// As [`Lane::past_pages`], of a range that becomes zeros. After a failure the caller drops the pages.
    pub(crate) async fn clear_past_pages(
        &self,
        ino: Ino,
        (offset, end): (u64, u64),
        clear: impl Future<Output = Result<(), Refusal>>,
    ) -> Result<(), Refusal> {
        let begin = |pages: &mut Pages| pages.zeros_begin(offset, end);
        let (number, drop) = self.alone(ino, (offset, end), true, begin).await?;
        let gone = self.goes_behind(ino, number, drop).await;
        let result = if gone { clear.await } else { Err(self.pages_stay().into()) };
        if self.shared.with(|s| s.inodes.entry(ino).pages.zeros_end(number, result.is_ok())) {
            self.drop_changed(ino, offset, end - offset).await;
        }
        result
    }

    /// Notes a write whose bytes are not known here, once no page has any of its range. `None`: pages come again and again.
    pub(crate) async fn note_copy(
        &self,
        ino: Ino,
        (offset, end): (u64, u64),
    ) -> Result<Option<u64>, Refusal> {
        for _ in 0..COPY_DROPS_MAX {
            let begin = |pages: &mut Pages| pages.copy_begins(offset, end);
            match self.alone(ino, (offset, end), false, begin).await? {
                Ok(number) => return Ok(Some(number)),
                Err(drop) if self.drop_begun(ino, drop, None).await => {}
                Err(_) => return Err(self.pages_stay().into()),
            }
        }
        Ok(None)
    }

    pub(crate) async fn drop_begun(&self, ino: Ino, drop: PageDrop, patience: Option<u64>) -> bool {
        let done = self.port.drop_pages(ino, drop.from, drop.len, patience).await;
        self.shared.with(|s| {
            s.inodes.drops += 1;
            let count = s.inodes.drops;
            if let Some(inode) = s.inodes.get_mut(ino) {
                inode.pages.dropped(drop, done, count);
            }
        });
        done
    }

    /// Idle inodes beyond the limit, or forgotten: their pages go, so that nothing has to be remembered of them.
    /// Housekeeping.
    pub(crate) async fn drop_idle_pages(&self) {
        while let Some((ino, drop)) = self.shared.with(|s| {
            let ino = s.inodes.next_paged()?;
            let inode = s.inodes.get_mut(ino).filter(|inode| inode.uses() == 0);
            if inode.as_ref().is_some_and(|inode| inode.is_changing()) {
                s.inodes.still_paged(ino);
                return None;
            }
            Some((ino, inode.map(|inode| inode.pages.drop_all(0))))
        }) {
            let Some(drop) = drop else { continue };
            if !self.drop_begun(ino, drop, Some(PAGES_PATIENCE_MS)).await {
                self.shared.with(|s| s.inodes.still_paged(ino));
                return;
            }
            // Unless it was opened and filled meanwhile.
            self.shared.with(|s| s.inodes.forget(ino));
        }
    }
}

/// What an answer is compared with.
enum Compared {
    /// It drops nothing.
    Same,
    /// The pages are to go before it.
    Rested(PageDrop),
    /// They are to stay.
    Busy,
}

/// What is to be done before a program reads through pages.
enum ForRead {
    Good,
    Old(PageDrop),
    /// It is to be looked at again.
    Later,
}

impl Shared {
    /// What the kernel is to be answered when it asks because of [`Port::settle`]: what is known, as far as no page shows zeros in
    /// front of that. Nothing is waited for: a page waits for this. `known`: how long it takes the file to be. `None`: nothing is known.
    pub fn settles(&mut self, ino: Ino, known: u64) -> Option<Attr> {
        let inode = self.inodes.get_mut(ino)?;
        let mut attr = inode.with_mark(inode.attr.clone()?);
        attr.size = inode.pages.settles(attr.size.max(inode.size()), known);
        inode.believed.is_exactly(attr.size);
        Some(attr)
    }

    /// Would the kernel drop pages by this answer to a question from when the mount had counted `asked` drops?
    fn compared(&mut self, attr: &Attr, asked: u64, boot: Millis) -> Compared {
        let Some(inode) = self.inodes.get(attr.ino).filter(|_| self.limits.checks) else {
            return Compared::Same;
        };
        let is_held = inode.pages.may_be_held() && !inode.pages.is_disbelieved(asked);
        let is_written = inode.is_written() || inode.opening > 0;
        if !is_held || !inode.believed.differs(attr) {
            return Compared::Same;
        }
        let is_covered = self.covering(attr.ino, boot).is_some_and(|(_, known)| known.change == attr.change);
        let rested = self.inodes.get_mut(attr.ino).filter(|_| is_covered && !is_written).and_then(|inode| {
            let is_of_now = inode.pages.are_as_of(attr.change);
            is_of_now.then(|| inode.pages.drop_all(attr.change))
        });
        rested.map_or(Compared::Busy, Compared::Rested)
    }

    fn pages_for_read(&mut self, attr: &Attr, elsewhere: bool) -> ForRead {
        let leaves = self.limits.canary_leaves_pages;
        let Some(inode) = self.inodes.get_mut(attr.ino).filter(|_| !leaves) else { return ForRead::Good };
        let is_of_now = inode.pages.are_as_of(attr.change) && !elsewhere;
        if is_of_now || !inode.pages.may_be_held() {
            return ForRead::Good;
        }
        if inode.pages.are_dropped() {
            return ForRead::Later;
        }
        ForRead::Old(inode.pages.drop_all(attr.change))
    }
}

#[cfg(test)]
mod tests;

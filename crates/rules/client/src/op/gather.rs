//! Small writes of a file that this mount holds wait for one another: when they go to their targets. See
//! `docs/design/gathering.md`.

use super::write::{StripeWrite, transfers};
use crate::lane::Lane;
use crate::limits::{DETACH_SYNC_MS, OWN_WAIT_MAX_MS, OWN_WAIT_MIN_MS, STALE_ROUNDS_MAX};
use crate::port::{Cell, Port};
use crate::state::{Asking, Heard, Pieces, Put, Shared, Stay};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::pin::pin;
use skep_types::{ClientId, Errno, Generation, Ino};
use skep_wire::{Refusal, Status};

/// While it lives nothing of a file stays with the mount.
pub(crate) struct Stopped<'a, C: Cell<Shared>> {
    shared: &'a C,
    ino: Ino,
    is_held: bool,
}

impl<C: Cell<Shared>> Drop for Stopped<'_, C> {
    fn drop(&mut self) {
        if self.is_held {
            self.shared.with(|s| s.gathers_again(self.ino));
        }
    }
}

/// While it lives no append to a file stays with the mount: where the file ends may be about to change.
pub(crate) struct Writing<'a, C: Cell<Shared>> {
    shared: &'a C,
    ino: Ino,
}

impl<C: Cell<Shared>> Drop for Writing<'_, C> {
    fn drop(&mut self) {
        self.shared.with(|s| {
            if let Some(inode) = s.inodes.get_mut(self.ino) {
                inode.writing = inode.writing.saturating_sub(1);
            }
        });
    }
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// A write is about to look where it goes.
    pub(crate) fn begin_writing(&self, ino: Ino) -> Writing<'_, C> {
        self.shared.with(|s| {
            let inode = s.inodes.entry(ino);
            inode.writing = inode.writing.saturating_add(1);
        });
        Writing { shared: &self.shared, ino }
    }

    /// Whoever tells of the file has brought all of it to its targets.
    pub(crate) fn stop_gathering(&self, ino: Ino) -> Stopped<'_, C> {
        let is_held = self.shared.with(|s| s.stops_gathering(ino));
        Stopped { shared: &self.shared, ino, is_held }
    }

    /// `true`: the write stays here, and its program goes on.
    pub(crate) async fn gather(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<bool, Refusal> {
        let now = (self.port.boot(), self.port.wall());
        let stay = self.shared.with(|s| s.gathers(ino, offset, data, now));
        self.has_stayed(ino, stay).await
    }

    /// The same of an append: where it lands is decided in the step in which it stays, so nothing else of this mount is there. (What
    /// the kernel may have of that place is looked after first; who comes in between has it looked for anew.)
    pub(crate) async fn gather_append(&self, ino: Ino, data: &[u8]) -> Result<bool, Refusal> {
        for _ in 0..STALE_ROUNDS_MAX {
            let now = self.port.boot();
            let Some(at) = self.shared.with(|s| s.append_stays_at(ino, now)) else { return Ok(false) };
            let write = pin!(async {
                let now = (self.port.boot(), self.port.wall());
                let stay = self.shared.with(|s| s.gathers_at_end(ino, at, data, now));
                self.has_stayed(ino, stay).await
            });
            let landed = |stays: &bool| if *stays { data.len() } else { 0 };
            if self.past_pages(ino, (at, data), write, landed).await? {
                return Ok(true);
            }
            let now = self.port.boot();
            if self.shared.with(|s| s.append_stays_at(ino, now)) == Some(at) {
                // There is no room for it.
                return Ok(false);
            }
        }
        Ok(false)
    }

    async fn has_stayed(&self, ino: Ino, stay: Stay) -> Result<bool, Refusal> {
        match stay {
            Stay::Here => Ok(true),
            Stay::Goes => Ok(false),
            Stay::Full => match Box::pin(self.put_gathered(ino)).await {
                // It stays all the same; who comes next tries again.
                Err(refusal) if stays(refusal.status) => Ok(true),
                put => put.map(|()| true),
            },
        }
    }

    /// Brings what waits of the file to its targets: in front of all that looks at them, changes them, or tells of them.
    pub(crate) async fn put_gathered(&self, ino: Ino) -> Result<(), Refusal> {
        for _ in 0..STALE_ROUNDS_MAX {
            let now = self.port.boot();
            // It lives until nobody needs the lock of the mount's state to free it.
            let put = self.shared.with(|s| s.begin_put(ino, now));
            let (pieces, result) = match &put {
                Put::Nothing => return Ok(()),
                Put::Busy => {
                    self.wait_until(|s| !s.inodes.get(ino).is_some_and(|inode| inode.run_is_put())).await?;
                    continue;
                }
                Put::Unheard => {
                    Box::pin(self.ask_whether_held(ino)).await?;
                    continue;
                }
                Put::Run { pieces, of, so_far } => {
                    // What this lane's own file has lost is no reason: the bytes may be another program's.
                    let _going = self.through([None, None]);
                    (pieces, self.put_run(ino, pieces, *of, *so_far).await)
                }
            };
            match &result {
                Err(refusal) if refusal.status == Status::TOO_LATE => {
                    self.shared.with(|s| s.was_late(ino, pieces))
                }
                Err(refusal) if !stays(refusal.status) => {
                    if self.shared.with(|s| s.has_these(ino, pieces)) {
                        self.run_is_lost(ino, refusal);
                    }
                }
                _ => self.shared.with(|s| s.was_put(ino, pieces, result.is_ok())),
            }
            // The shard is to be asked first.
            let asks = |refusal: &Refusal| [Status::NOT_READY, Status::TOO_LATE].contains(&refusal.status);
            if !result.as_ref().is_err_and(asks) {
                return result;
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(ino))
    }

    /// The mount ends: from now on nothing stays, and what waits goes while the mount is heard still.
    pub(crate) async fn put_all(&self) {
        let waiting = self.shared.with(|s| {
            s.limits.gathers = false;
            s.waiting()
        });
        self.port.wanted_for(Some(DETACH_SYNC_MS));
        for ino in waiting {
            if let Err(refusal) = self.put_gathered(ino).await {
                self.port.log(format_args!(
                    "unmount: inode {ino}: what was written last is not written: {refusal}"
                ));
            }
        }
        self.port.wanted_for(None);
    }

    async fn put_run(
        &self,
        ino: Ino,
        pieces: &Arc<Pieces>,
        (session, heard, generation): (ClientId, Heard, Generation),
        (mut done, mut is_slow): (usize, bool),
    ) -> Result<(), Refusal> {
        let mut in_vain = 0;
        while let Some((at, mut data)) = pieces.behind(done) {
            if in_vain == STALE_ROUNDS_MAX {
                return Err(super::unsettled(ino));
            }
            in_vain += 1;
            let view = self.shared.with(|s| s.write_view(ino));
            let Some(layout) = view.layout.clone() else {
                self.fetch_layout(ino).await?;
                continue;
            };
            if layout.generation != generation {
                return Err(Status::STALE_GENERATION.into());
            }
            if is_slow {
                // What goes to one node is served there one after the other, and all of it would count until one moment.
                data =
                    &data[..transfers(&layout, at, data.len()).first().map_or(0, |piece| piece.len as usize)];
            }
            let (later, waited) = (true, Some((session, heard)));
            let write = StripeWrite { later, waited, ..StripeWrite::new(&layout, at, data, view.owner) };
            self.shared.with(|s| s.inodes.entry(ino).change_begins());
            let round = self.land(ino, &write).await;
            self.shared.with(|s| s.inodes.entry(ino).change_ends());
            match round {
                Err(refusal) if refusal.status == Status::LOST_CHUNK => {
                    // By an old layout perhaps. (A commit, as in front of other writes, would wait for this very run.)
                    self.find_loss(ino, at, at + data.len() as u64).await?.map_or(Ok(()), Err)?;
                }
                round => {
                    let landed = round?.landed();
                    done += landed;
                    in_vain = if landed > 0 { 0 } else { in_vain };
                    is_slow |= landed < data.len();
                    self.shared.with(|s| s.put_so_far(ino, pieces, (done, is_slow)));
                }
            }
            if pieces.behind(done).is_some() && self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Ok(())
    }

    fn run_is_lost(&self, ino: Ino, why: &Refusal) {
        self.port.log(format_args!(
            "inode {ino}: what was written last, and waited for more, is lost, its next fsync fails: {why}"
        ));
        self.shared.with(|s| s.holds_no_more(ino));
    }

    /// The mount was not heard for so long that others may have been shown the file, and have changed it: what waits goes nowhere
    /// before its shard has said that it is held still, or once more. Who has just come back is not lent anything for a moment,
    /// until its server has heard it listen: that is waited for.
    pub(crate) async fn ask_whether_held(&self, ino: Ino) -> Result<(), Refusal> {
        let mut pause = OWN_WAIT_MIN_MS;
        loop {
            let asked = self.port.boot();
            let nothing = match self.shared.with(|s| s.begin_asking(ino, asked)) {
                Asking::Busy => {
                    self.until_told(ino).await?;
                    continue;
                }
                Asking::Known => return Ok(()),
                Asking::NotHeld => {
                    self.run_is_lost(ino, &Status::NOT_HELD.into());
                    return Ok(());
                }
                Asking::Begun(nothing) => nothing,
            };
            let told = self.tell_file(ino, &nothing.tell(ino, None)).await;
            let now = self.port.boot();
            match told {
                // An older answer says nothing: others may have been waiting since.
                Ok((_, true)) if self.shared.with(|s| s.holds_still(ino, asked, now)) => return Ok(()),
                Ok((_, is_held)) => {
                    if self.shared.with(|s| s.is_denied(ino, is_held, now)) {
                        self.run_is_lost(ino, &Status::HOLD_PASSED.into());
                        return Ok(());
                    }
                }
                Err(refusal) if stays(refusal.status) => {
                    self.shared.with(|s| {
                        if let Some(inode) = s.inodes.get_mut(ino) {
                            inode.was_asked();
                        }
                        s.waits.call();
                    });
                    return Err(refusal);
                }
                Err(refusal) => {
                    self.run_is_lost(ino, &refusal);
                    let _ = self.news_told(ino, Err(refusal), asked);
                    return Ok(());
                }
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
            self.port.pause(pause).await;
            pause = (2 * pause).min(OWN_WAIT_MAX_MS);
        }
    }
}

/// Does it wait on, whole, for the next who tries?
fn stays(status: Status) -> bool {
    status.is_transient() || status.is_misdirected() || status.as_errno() == Some(Errno::EINTR)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_late;
#[cfg(test)]
mod tests_looks;

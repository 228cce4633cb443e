//! Files that this mount would like to hold, though it did not just make them: a program writes small pieces to them, in order.
//! See `docs/design/gathering.md`, section 6.

use super::{Inode, Shared};
use crate::limits::{GATHER_WRITE_MAX, WISH_AFTER, WISH_AGAIN_MAX_MS, WISH_AGAIN_MIN_MS, WISH_WITHIN_MS};
use skep_types::{Ino, Millis};
use skep_wire::meta::AttrReply;

/// Of a file that is written to in small pieces.
#[derive(Debug, Default)]
pub struct Wish {
    /// Where the newest of these ended.
    reaches: u64,
    /// So many came in a row, since then.
    in_row: u32,
    since: Millis,
    /// It is not asked for before.
    not_before: Millis,
    /// For so long it was not, last.
    pause: u64,
    asking: Asking,
    /// It was held since, because it was asked for, and nobody has asked this mount for it.
    held_since: Option<Millis>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Asking {
    #[default]
    No,
    /// The tellers are to ask.
    Soon,
    /// One does. Somebody `looks` at the file since, or the mount has said that it holds nothing.
    Now { looks: bool },
}

impl Wish {
    /// One more small write. `true`: the tellers are to ask.
    fn counts(&mut self, (at, end): (Option<u64>, u64), now: Millis) -> bool {
        let goes_on = at.is_none_or(|at| at == self.reaches) && now.since(self.since) < WISH_WITHIN_MS;
        if !goes_on {
            (self.in_row, self.since) = (0, now);
        }
        (self.in_row, self.reaches) = (self.in_row + 1, end);
        let asks = self.in_row >= WISH_AFTER && now >= self.not_before && self.asking == Asking::No;
        if asks {
            (self.in_row, self.asking) = (0, Asking::Soon);
        }
        asks
    }

    /// Is it not to be asked for yet?
    pub fn is_put_off(&self, now: Millis) -> bool {
        now < self.not_before
    }

    /// Nobody has the file open: what is to be remembered.
    pub fn park(&mut self) {
        let Self { not_before, pause, held_since, .. } = *self;
        *self = Self { not_before, pause, held_since, ..Self::default() };
    }

    /// It is asked for.
    fn begins(&mut self, now: Millis) {
        if let Some(since) = self.held_since.take() {
            // The mount itself ended that hold.
            let lasted = now.since(since) >= self.pause;
            self.pause = if lasted { 0 } else { self.pause / 2 };
        }
        self.asking = Asking::Now { looks: false };
        self.not_before = now.plus(self.pause.max(WISH_AGAIN_MIN_MS));
    }

    /// An answer gives nothing. Who looked meanwhile has had it counted.
    fn ends_in_vain(&mut self, asking: Option<Asking>, now: Millis) {
        if asking != Some(Asking::Now { looks: true }) {
            self.is_in_vain(now);
        }
    }

    /// It was refused, or somebody else looks at it.
    fn is_in_vain(&mut self, now: Millis) {
        let lasted = self.held_since.take().is_some_and(|since| now.since(since) >= self.pause);
        let pause = if lasted { 0 } else { 2 * self.pause };
        self.pause = pause.clamp(WISH_AGAIN_MIN_MS, WISH_AGAIN_MAX_MS);
        self.not_before = now.plus(self.pause);
    }
}

/// A wish that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Wished {
    pub ino: Ino,
    /// The number of the hold.
    pub hold: u64,
    /// When it was asked.
    pub asked: Millis,
    /// So many own changes of names there had been.
    names: u64,
}

/// What an answer says to a wish.
pub struct Given {
    pub reply: AttrReply,
    /// It says that the file is held, in the term and the session of now.
    pub holds: bool,
    pub is_current: bool,
}

impl Inode {
    /// Could what is written to it stay if it was held?
    fn may_be_wished(&self) -> bool {
        const SETID: u32 = 0o6000;
        self.hold.is_none()
            && self.writers > 0
            && self.layout.as_ref().is_some_and(|layout| !layout.is_inline())
            && self.mode_now().is_some_and(|mode| mode & SETID == 0)
            && self.cutting == 0
            && self.truncating == 0
            && !self.mark_is_doubtful()
    }

    /// Somebody waits for it. It is held, or asked for: as soon as that is over it is not asked for again.
    pub(crate) fn is_looked_at(&mut self, now: Millis) {
        let is_asking = |wish: &Wish| matches!(wish.asking, Asking::Now { .. });
        if self.hold.is_some() || self.wish.as_deref().is_some_and(is_asking) {
            self.wish.get_or_insert_default().is_in_vain(now);
        }
        self.wish_is_off();
    }

    /// An answer to a wish that is under way means nothing any more.
    pub(crate) fn wish_is_off(&mut self) {
        if let Some(Wish { asking: Asking::Now { looks }, .. }) = self.wish.as_deref_mut() {
            *looks = true;
        }
    }

    /// Is all that this mount writes marked?
    pub(super) fn is_marked(&self) -> bool {
        self.changing == 0 && self.writing == 0
    }
}

impl Shared {
    /// A small write, or append where `at` is not given, went to its targets. `true`: the file is to be asked for
    /// ([`crate::Lane::tell_held`]).
    pub(crate) fn small_write_went(&mut self, ino: Ino, at: Option<u64>, len: usize, now: Millis) -> bool {
        let gathers = self.limits.gathers && len <= GATHER_WRITE_MAX;
        if !gathers || self.leases.heard_by(ino.shard(), now).is_none() {
            return false;
        }
        let Some(inode) = self.inodes.get_mut(ino).filter(|inode| inode.may_be_wished()) else {
            return false;
        };
        let end = at.map_or_else(|| inode.size(), |at| at + len as u64);
        let asks = inode.wish.get_or_insert_default().counts((at, end), now);
        if asks {
            self.holds.wish(ino);
        }
        asks
    }

    /// A teller is about to ask for it. `None`: it is not to be asked for any more.
    pub(crate) fn wish_begins(&mut self, ino: Ino, asked: Millis) -> Option<Wished> {
        let may = self.limits.gathers && self.leases.heard_by(ino.shard(), asked).is_some();
        let (hold, names) = (self.next_open_seq(), self.holds.names());
        let inode = self.inodes.get_mut(ino)?;
        let may = may && inode.may_be_wished();
        let wish = inode.wish.as_mut().filter(|wish| wish.asking == Asking::Soon)?;
        if !may {
            wish.asking = Asking::No;
            return None;
        }
        wish.begins(asked);
        self.spared.holds_asked += 1;
        Some(Wished { ino, hold, asked, names })
    }

    /// It was answered, or it is not known what became of it. `false`: the shard may say that the file is held, which it is not, and
    /// is to be told.
    pub(crate) fn wish_ends(&mut self, wished: Wished, given: Option<Given>, now: Millis) -> bool {
        let Wished { ino, hold, asked, names } = wished;
        let good_until = self.hold_until(ino.shard(), asked);
        let Some(inode) = self.inodes.get_mut(ino) else { return !given.is_none_or(|given| given.holds) };
        let asking = inode.wish.as_mut().map(|wish| core::mem::take(&mut wish.asking));
        let Some(Given { reply, holds, is_current }) = given else {
            inode.wish.get_or_insert_default().ends_in_vain(asking, now);
            return false;
        };
        if !holds {
            inode.wish.get_or_insert_default().ends_in_vain(asking, now);
            return true;
        }
        // Nobody has looked since, so what the answer says is so.
        let counts = is_current && asking == Some(Asking::Now { looks: false }) && now < good_until;
        if !counts || reply.live.is_some() || !inode.may_be_wished() {
            return false;
        }
        self.inodes.merge(reply.attr);
        let Some(inode) = self.inodes.get_mut(ino) else { return false };
        // When it was opened others may have written to it still.
        (inode.live, inode.live_size) = (false, 0);
        let is_beside = !inode.is_marked();
        inode.begin_hold(0, good_until);
        inode.held_as_of(names);
        if let Some(held) = &mut inode.hold {
            held.number = hold;
            held.is_beside = is_beside;
        }
        inode.wish.get_or_insert_default().held_since = Some(asked);
        self.holds.goes_on(ino, asked);
        self.spared.holds_given += 1;
        true
    }
}

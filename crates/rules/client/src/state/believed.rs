//! What the kernel takes for a file's time and size, where it drops all pages of its own accord when an answer that it believes
//! says otherwise, and `read` asks before it uses one. See `docs/design/data-path.md`, section 6.
//!
//! That comparison comes too late to count on, and waits for fills where nobody should. So what is known here is for sparing
//! pages, and whoever waits; that no old page is read does not depend on it.

use crate::limits::APPLIED_MS;
use alloc::boxed::Box;
use skep_types::{Attr, Millis, Timestamp};

/// An answer said that the file had become shorter.
#[derive(Debug, Clone, Copy)]
struct Cut {
    size: u64,
    /// The last thing that may have to be applied yet: that answer, or a fill that found the new end.
    at: Millis,
}

/// What of it is kept.
#[derive(Debug, Default)]
struct Known {
    shown: Option<(Timestamp, u64)>,
    cut: Option<Cut>,
}

/// See the module. Kept apart: of files that were never open nothing is.
#[derive(Debug, Default)]
pub struct Believed(Option<Box<Known>>);

impl Believed {
    /// An answer with these attributes goes out. `is_believed`: nothing has outdated its question.
    pub fn is_answered(&mut self, attr: &Attr, is_believed: bool, now: Millis) {
        let shrinks = self.shrinks(attr.size);
        let known = self.0.get_or_insert_default();
        if shrinks {
            known.cut = Some(Cut { size: attr.size, at: now });
        }
        if is_believed {
            known.shown = Some((attr.mtime, attr.size));
        }
    }

    /// It is opened, and nothing is known: the kernel has asked for its name, or its attributes, just before.
    pub fn is_opened(&mut self, attr: &Attr) {
        let known = self.0.get_or_insert_default();
        known.shown = known.shown.or(Some((attr.mtime, attr.size)));
    }

    /// The kernel takes the file for at least this long.
    pub fn is_at_least(&mut self, size: u64) {
        if let Some((_, shown)) = self.0.as_mut().and_then(|known| known.shown.as_mut()) {
            *shown = size.max(*shown);
        }
    }

    /// Or no longer.
    pub fn is_at_most(&mut self, size: u64) {
        if let Some((_, shown)) = self.0.as_mut().and_then(|known| known.shown.as_mut()) {
            *shown = size.min(*shown);
        }
    }

    /// It takes it for just so long, whatever its time is.
    pub fn is_exactly(&mut self, size: u64) {
        if let Some((_, shown)) = self.0.as_mut().and_then(|known| known.shown.as_mut()) {
            *shown = size;
        }
    }

    fn shown(&self) -> Option<(Timestamp, u64)> {
        self.0.as_ref()?.shown
    }

    /// Would it learn that the file has become shorter?
    pub fn shrinks(&self, size: u64) -> bool {
        self.shown().is_some_and(|(_, shown)| size < shown)
    }

    /// Would it drop all pages by itself, if it believed these, and not because the file has become shorter?
    pub fn differs(&self, attr: &Attr) -> bool {
        self.shown() != Some((attr.mtime, attr.size)) && !self.shrinks(attr.size)
    }

    /// A fill that reaches to `end` has been answered, or will not be.
    pub fn is_filled(&mut self, end: u64, now: Millis) {
        let cut = self.0.as_mut().and_then(|known| known.cut.as_mut());
        if let Some(cut) = cut.filter(|cut| cut.size < end) {
            cut.at = now;
        }
    }

    /// For how many milliseconds no page may be dropped: a drop outdates whatever was asked before, so the kernel would go on
    /// taking the file for longer than it is, and a fill that ends at its end would be shown with zeros behind that.
    /// `fills_behind`: is one under way that reaches behind this size?
    pub fn settles_in(&mut self, now: Millis, fills_behind: impl FnOnce(u64) -> bool) -> Option<u64> {
        let known = self.0.as_mut()?;
        let cut = known.cut?;
        if fills_behind(cut.size) {
            return Some(1);
        }
        let left = APPLIED_MS.saturating_sub(now.since(cut.at));
        if left == 0 {
            known.cut = None;
        }
        (left > 0).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attr;

    const NOW: Millis = Millis(1_000);

    fn at(secs: i64, size: u64) -> Attr {
        Attr { mtime: Timestamp { secs, nanos: 0 }, ..attr(7, 1, size) }
    }

    /// Goal: what the kernel would drop pages by is known: another time, or another size, of the last answer that it believed, or
    /// one of which it is not known; a size that it has learned otherwise is none.
    #[test]
    fn what_would_drop_pages_is_known() {
        let mut believed = Believed::default();
        assert!(believed.differs(&at(1, 10)), "nothing is known");
        believed.is_opened(&at(9, 10));
        assert!(!believed.differs(&at(9, 10)));
        believed.is_answered(&at(1, 10), true, NOW);
        assert!(
            !believed.differs(&at(1, 10)) && believed.differs(&at(2, 10)) && believed.differs(&at(1, 11))
        );
        believed.is_answered(&at(2, 11), false, NOW);
        believed.is_opened(&at(2, 11));
        assert!(!believed.differs(&at(1, 10)), "not believed");
        believed.is_at_least(11);
        believed.is_at_least(5);
        assert!(!believed.differs(&at(1, 11)) && believed.differs(&at(1, 12)));
        assert!(believed.shrinks(10) && !believed.differs(&at(1, 10)), "that is told, whatever goes by it");
    }

    /// Goal: after a smaller size was told nothing is dropped before that can have been applied, nor beside fills that may find the
    /// new end, nor before these can have been.
    #[test]
    fn a_smaller_size_settles() {
        let mut believed = Believed::default();
        believed.is_answered(&at(1, 10_000), true, NOW);
        assert_eq!(believed.settles_in(NOW, |_| true), None);
        believed.is_answered(&at(2, 5_000), false, NOW);
        assert_eq!(believed.settles_in(NOW.plus(1), |_| false), Some(APPLIED_MS - 1));
        let late = NOW.plus(APPLIED_MS);
        assert_eq!(believed.settles_in(late, |size| size == 5_000), Some(1));
        believed.is_filled(5_000, late);
        assert_eq!(believed.settles_in(late, |_| false), None, "that one is not behind it");
        believed.is_answered(&at(2, 5_000), true, NOW);
        believed.is_filled(8_192, late);
        assert_eq!(believed.settles_in(late, |_| false), Some(APPLIED_MS));
        assert_eq!(believed.settles_in(late.plus(APPLIED_MS), |_| false), None);
        assert!(!believed.shrinks(5_000));
    }
}

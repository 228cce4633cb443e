//! What the kernel takes for a file's time and size, where it drops all pages of its own accord when an answer that it believes
//! says otherwise, and `read` asks before it uses one. See `docs/design/data-path.md`, section 6.
//!
//! That comparison comes too late to count on, and waits for fills where nobody should. So what is known here is for sparing
//! pages, and whoever waits; that no old page is read does not depend on it.

use alloc::boxed::Box;
use skep_types::{Attr, Timestamp};

/// What of it is kept.
#[derive(Debug, Default)]
struct Known {
    shown: Option<(Timestamp, u64)>,
}

/// See the module. Kept apart: of files that were never open nothing is.
#[derive(Debug, Default)]
pub struct Believed(Option<Box<Known>>);

impl Believed {
    /// An answer with these attributes goes out. `is_believed`: nothing has outdated its question.
    pub fn is_answered(&mut self, attr: &Attr, is_believed: bool) {
        let known = self.0.get_or_insert_default();
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attr;

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
        believed.is_answered(&at(1, 10), true);
        assert!(
            !believed.differs(&at(1, 10)) && believed.differs(&at(2, 10)) && believed.differs(&at(1, 11))
        );
        believed.is_answered(&at(2, 11), false);
        believed.is_opened(&at(2, 11));
        assert!(!believed.differs(&at(1, 10)), "not believed");
        believed.is_at_least(11);
        believed.is_at_least(5);
        assert!(!believed.differs(&at(1, 11)) && believed.differs(&at(1, 12)));
        assert!(believed.shrinks(10) && !believed.differs(&at(1, 10)), "that is told, whatever goes by it");
    }
}

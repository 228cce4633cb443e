//! Writes to chunks that the shard has not been told of, and what a foreign truncate makes of their end.
//!
//! The shard counts the cuts of a file. A write that was begun and answered at the same number lies in front of
//! every later cut as far as this mount knows: its end counts. When the number moves, the file may have been
//! cut below it, or before it: the end is in doubt until the targets have told how long the chunk files are.

use super::Inode;
use skep_types::{Attr, Generation, Timestamp};

/// Writes to chunks that the shard has not been told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// End of the furthest write that no cut has come behind.
    pub size: u64,
    /// End of the furthest write that a cut may have come behind; 0 = none.
    pub doubtful: u64,
    /// Moves with every write in doubt.
    pub doubts: u32,
    /// Time of the last one.
    pub mtime: Timestamp,
    /// The most times that were given to the file before one of them began, as far as was known.
    pub time_sets: u64,
    /// Generation written to.
    pub generation: Generation,
    /// An ordinary user wrote: suid and sgid are to be cleared.
    pub kill_suidgid: bool,
    /// Moves with every write.
    pub serial: u64,
    /// Foreign truncates that were known when the first of them was answered.
    pub foreign_cuts: u32,
}

/// What was known of a file when a write to it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Begun {
    cuts_seen: u32,
    time_sets: u64,
}

impl Mark {
    fn doubt(&mut self) {
        if self.size > 0 {
            self.doubtful = self.doubtful.max(self.size);
            self.doubts += 1;
            self.size = 0;
        }
    }
}

impl Inode {
    /// A write begins.
    pub fn begin(&self) -> Begun {
        let time_sets = self.attr.as_ref().map_or(0, |attr| attr.time_sets);
        Begun { cuts_seen: self.cuts_seen, time_sets }
    }

    /// A write that ends at `end` is to be committed. `true`: what was marked before is lost.
    #[must_use]
    pub fn wrote_to(
        &mut self,
        end: u64,
        mtime: Timestamp,
        generation: Generation,
        kill_suidgid: bool,
        begun: Begun,
    ) -> bool {
        self.serial += 1;
        let (serial, time_sets) = (self.serial, begun.time_sets);
        let foreign_cuts = self.foreign_cuts;
        let mark = self.mark.get_or_insert(Mark {
            size: 0,
            doubtful: 0,
            doubts: 0,
            mtime,
            time_sets,
            generation,
            kill_suidgid,
            serial,
            foreign_cuts,
        });
        let mut lost = false;
        if mark.generation != generation {
            // What was written to an older generation is gone with it. An own truncate leaves no mark, a foreign one is
            // counted: without either, it is lost.
            lost = mark.foreign_cuts == foreign_cuts;
            (mark.size, mark.doubtful, mark.generation) = (0, 0, generation);
            mark.foreign_cuts = foreign_cuts;
        }
        if begun.cuts_seen == self.cuts_seen {
            mark.size = mark.size.max(end);
        } else if end > 0 {
            mark.doubtful = mark.doubtful.max(end);
            mark.doubts += 1;
        }
        mark.mtime = mark.mtime.max(mtime);
        mark.time_sets = mark.time_sets.max(time_sets);
        mark.kill_suidgid |= kill_suidgid;
        mark.serial = serial;
        self.wrote_last = self.wrote_last.max(mtime);
        self.outdate_given_time();
        lost
    }

    /// The shard's count of cuts is `cuts`: when that is news, no end that was known before is sure.
    pub fn learn_cuts(&mut self, cuts: u64) {
        if cuts > self.cuts {
            self.foreign_cuts += u32::from(self.cuts_known);
            self.cuts = cuts;
            self.ends_in_doubt();
        }
        self.cuts_known = true;
    }

    /// The shard may have lost its newest changes: its next count of cuts is believed, whatever it is.
    pub fn forget_cuts(&mut self) {
        self.cuts = 0;
        self.cuts_known = false;
        self.ends_in_doubt();
    }

    /// What was marked may not be there.
    pub fn end_is_in_doubt(&mut self) {
        if let Some(mark) = &mut self.mark {
            mark.doubt();
        }
    }

    fn ends_in_doubt(&mut self) {
        self.cuts_seen = self.cuts_seen.wrapping_add(1);
        self.live_size = 0;
        if let Some(mark) = &mut self.mark {
            mark.doubt();
        }
    }

    /// The doubt that an answer of the targets, asked from now on, will settle; `None`: there is none.
    pub fn doubt(&mut self) -> Option<u32> {
        let known = self.layout.as_ref().map(|layout| layout.generation);
        let mark = self.mark.as_mut().filter(|mark| mark.doubtful > 0)?;
        if known.is_some_and(|generation| generation != mark.generation) {
            // Gone with its generation.
            mark.doubtful = 0;
            return None;
        }
        Some(mark.doubts)
    }

    /// Is it unknown where the file ends?
    pub fn end_is_open(&self) -> bool {
        self.live || self.mark_is_doubtful()
    }

    /// Was something written that a cut may have come behind?
    pub fn mark_is_doubtful(&self) -> bool {
        self.mark.is_some_and(|mark| mark.doubtful > 0)
    }

    /// What had waited is with its targets, and nobody was let past this mount before: its end is sure, whatever they were asked
    /// before that.
    pub fn has_landed(&mut self, end: u64) {
        if let Some(mark) = &mut self.mark {
            mark.size = mark.size.max(mark.doubtful.min(end));
        }
    }

    /// The chunk files, asked after `doubt`, end here: what was marked beyond was cut by another mount, and must
    /// not be committed.
    pub fn settle(&mut self, doubt: u32, end: u64) {
        // They do not know of what waits.
        let end = self.run().map_or(end, |(_, reaches)| end.max(reaches));
        if let Some(mark) = self.mark.as_mut().filter(|mark| mark.doubts == doubt) {
            mark.size = mark.size.max(mark.doubtful.min(end));
            mark.doubtful = 0;
        }
    }

    /// `attr` with this mount's own uncommitted writes, and with what it holds. Its change time is not older than that of any own write, for
    /// programs may have been shown that: what was written can go without a commit, when the file is cut.
    pub fn with_mark(&self, mut attr: Attr) -> Attr {
        attr.ctime = attr.ctime.max(self.wrote_last);
        if let Some(mark) = &self.mark {
            attr.size = attr.size.max(mark.size);
            let given_since = attr.is_mtime_given() && mark.time_sets < attr.time_sets;
            if !given_since && (attr.is_mtime_given() || mark.mtime > attr.mtime) {
                attr.mtime = mark.mtime;
            }
            attr.blocks = attr.blocks.max(self.blocks.values().sum());
        }
        self.with_news(attr)
    }

    /// The same, of what was told before something was waited for: what was written by then may have been told meanwhile, and is in
    /// newer attributes instead of the mark.
    pub fn newest_with_mark(&self, attr: Attr) -> Attr {
        let newer = self.attr.as_ref().filter(|known| known.change > attr.change);
        let Some(newer) = newer else { return self.with_mark(attr) };
        // What targets said of others' writes, no cut has taken.
        let size = if newer.cuts == attr.cuts { newer.size.max(attr.size) } else { newer.size };
        self.with_mark(Attr { size, ..newer.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attr;

    const TIME: Timestamp = Timestamp { secs: 9, nanos: 0 };

    fn write(inode: &mut Inode, end: u64, begun: Begun) {
        assert!(!inode.wrote_to(end, TIME, Generation(1), false, begun));
    }

    fn sizes(inode: &Inode) -> (u64, u64) {
        inode.mark.map_or((0, 0), |mark| (mark.size, mark.doubtful))
    }

    /// Goal: an end is sure as long as no cut is known to have come since its write began; then the targets
    /// decide, unless something else came into doubt while they were asked.
    #[test]
    fn a_cut_puts_ends_in_doubt() {
        let mut inode = Inode::default();
        inode.learn_cuts(1);
        let begun = inode.begin();
        write(&mut inode, 100, begun);
        assert_eq!((sizes(&inode), inode.doubt()), ((100, 0), None));
        inode.learn_cuts(1);
        assert_eq!(sizes(&inode), (100, 0), "no news");
        let (slow, doubt) = (inode.begin(), {
            inode.learn_cuts(2);
            inode.doubt().unwrap()
        });
        assert_eq!((sizes(&inode), inode.size()), ((0, 100), 0));
        let begun = inode.begin();
        write(&mut inode, 30, begun);
        write(&mut inode, 200, slow);
        inode.settle(doubt, 60);
        assert_eq!(sizes(&inode), (30, 200), "the slow write was not in the answer");
        let doubt = inode.doubt().unwrap();
        inode.settle(doubt, 60);
        assert_eq!((sizes(&inode), inode.end_is_open()), ((60, 0), false));
        inode.forget_cuts();
        assert_eq!(sizes(&inode), (0, 60), "a power cut may have taken cuts back");
    }

    /// Goal: what was written to a generation that is gone is not asked for.
    #[test]
    fn a_dead_generation_is_no_doubt() {
        let mut inode = Inode { layout: Some(Default::default()), ..Inode::default() };
        let begun = inode.begin();
        write(&mut inode, 100, begun);
        inode.learn_cuts(5);
        assert_eq!((inode.doubt(), sizes(&inode)), (None, (0, 0)));
    }

    /// Goal: a time that was given hides own writes from before, not those from after it; ctime never falls.
    #[test]
    fn given_times_are_shown() {
        let mut inode = Inode { attr: Some(attr(9, 1, 0)), ..Inode::default() };
        let begun = inode.begin();
        write(&mut inode, 100, begun);
        let given = |secs, time_sets| Attr {
            mtime: Timestamp { secs, nanos: 0 },
            time_sets,
            flags: Attr::MTIME_GIVEN,
            ..attr(9, 2, 0)
        };
        for secs in [5, 50] {
            let shown = inode.with_mark(given(secs, 1));
            assert_eq!((shown.mtime.secs, shown.ctime), (secs, TIME));
        }
        inode.attr = Some(given(50, 1));
        let begun = inode.begin();
        write(&mut inode, 100, begun);
        assert_eq!(inode.with_mark(given(50, 1)).mtime, TIME, "written after it was given");
        assert_eq!(inode.with_mark(given(50, 2)).mtime.secs, 50, "given once more");
        inode.truncating = 1;
        inode.truncated();
        let shown = inode.with_mark(Attr { flags: 0, ..given(5, 2) });
        assert_eq!((shown.mtime.secs, shown.ctime), (5, TIME), "what was written is cut off, and was seen");
    }
}

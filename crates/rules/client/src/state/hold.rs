//! New files that a mount holds: nobody else is told anything of one before its shard was told what became of it. So what
//! programs do to it is kept here, over what the shard says, and told in one request. See `docs/design/leases.md`,
//! section 9.

use super::Inode;
use crate::limits::{HOLD_MS, LOOK_WORTH, LOOKS_IDLE, LOOKS_MAX, LOOKS_WITHIN_MS};
use alloc::boxed::Box;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::{Attr, Ino, Millis, Mode, SetAttr, SetTime, Timestamp};
use skep_wire::meta::{Commit, Content, Tell};

/// The suid and sgid bits.
const SETID: Mode = 0o6000;

/// What the shard is to be told of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// All of its content.
    content: Option<Vec<u8>>,
    /// When that was last written to.
    wrote: Timestamp,
    mode: Option<Mode>,
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<Timestamp>,
    /// Given by a program, after all that was written.
    mtime: Option<Timestamp>,
    /// When the last of these was changed.
    at: Timestamp,
    /// The mount wishes to go on holding the file.
    pub keeps: bool,
    /// As [`Hold::number`], where it is told.
    hold: u64,
    /// It is the word for those who only look, who wait behind this question.
    answers: Option<u64>,
}

impl News {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Is nothing lost with it? Content that was brought to chunks leaves its moments.
    fn is_none(&self) -> bool {
        let Self { content, mode, uid, gid, atime, mtime, .. } = self;
        let is_owned = mode.is_some() || uid.is_some() || gid.is_some();
        content.is_none() && !is_owned && atime.is_none() && mtime.is_none()
    }

    /// Is it the word for those who only look?
    pub fn answers(&self) -> bool {
        self.answers.is_some()
    }

    /// Nothing, of a file that is to be held still.
    pub fn nothing_yet(hold: u64) -> Self {
        Self { keeps: true, hold, ..Self::default() }
    }

    /// Nothing, of this hold, or of one before it.
    pub fn of_hold(hold: u64) -> Self {
        Self { hold, ..Self::default() }
    }

    /// The request that tells it, and how far chunk files were written.
    pub fn tell(&self, ino: Ino, commit: Option<Commit>) -> Tell {
        let content = self.content.as_ref();
        let set = SetAttr {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            atime: self.atime.map(SetTime::At),
            mtime: self.mtime.map(SetTime::At),
            ..SetAttr::default()
        };
        Tell {
            ino,
            content: content.map(|data| Content { data: Bytes(data.clone()), mtime: self.wrote }),
            commit,
            set,
            at: self.at,
            keeps: self.keeps.then_some(true),
            wishes: None,
            hold: (self.hold > 0).then_some(self.hold),
            answers: self.answers,
        }
    }

    /// `attr` as programs of this mount see it.
    fn over(&self, mut attr: Attr) -> Attr {
        if let Some(content) = &self.content {
            let len = content.len() as u64;
            (attr.size, attr.blocks) = (attr.size.max(len), attr.blocks.max(len.div_ceil(512)));
            attr.mtime = attr.mtime.max(self.wrote);
        }
        attr.mode = self.mode.unwrap_or(attr.mode);
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        attr.atime = self.atime.unwrap_or(attr.atime);
        attr.mtime = self.mtime.unwrap_or(attr.mtime);
        attr.ctime = attr.ctime.max(self.at);
        attr
    }
}

/// A file that is held.
#[derive(Debug)]
pub struct Hold {
    /// Until then all that is so of it is known here: what others may be told without this mount is told later.
    good_until: Millis,
    /// Since then its shard does not say that it is held.
    pub denied: Option<Millis>,
    /// Where the last small write ended.
    pub written_to: Option<u64>,
    /// So many bytes of its content may stay here.
    room: usize,
    news: News,
    /// A lane is telling it, or brings its content to chunks.
    is_being_told: bool,
    /// The latter.
    is_moving: bool,
    /// It is to be told before anything else, or may have been told already: nothing more is kept, and nobody is answered by
    /// what is.
    is_ending: bool,
    /// A lane has begun to tell it: from then on others may be shown it as told, and owner and mode are not kept.
    is_told: bool,
    /// So often has a lane begun to tell it: whether the shard heard the earlier ones may not be known.
    tries: u32,
    /// Which hold it is, if it was asked for: what is said of an earlier one, and comes late, is none about this one. 0: it is so
    /// since the create.
    pub number: u64,
    /// Its attributes were told after so many own changes of names: which files those are about is not always known.
    names: u64,
    /// Since then others have looked at it so often, without much to tell.
    looks: (Millis, u32),
    /// So many small writes stayed since the last look.
    stayed: u32,
    /// So many looks since there was something to tell.
    idle_looks: u32,
    /// It began beside writes, which are not marked and which others may have seen at the targets: while one may be under way still,
    /// a word of this mount would show the file without it.
    pub is_beside: bool,
}

/// What is to become of a hold with what is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It ends.
    Ends,
    /// It goes on, if something was written to chunk files.
    GoesOn,
    /// It goes on, also if there is nothing to tell: others wait behind this question, who only look.
    Answers(u64),
}

impl Word {
    /// What is to be told behind one that has been: who looked is answered once.
    pub fn said(self, answers: bool) -> Self {
        if answers { Self::GoesOn } else { self }
    }
}

impl Hold {
    /// Is all that is so known here? For a second at most: whatever becomes of its mount, what programs are shown is not older.
    fn is_good(&self, now: Millis) -> bool {
        !self.is_being_told && !self.is_ending && now < self.good_until
    }
}

impl Inode {
    /// Its attributes were told after so many own changes of names.
    pub fn held_as_of(&mut self, names: u64) {
        if let Some(hold) = &mut self.hold {
            hold.names = names;
        }
    }

    /// Is that as many as there were?
    pub fn is_held_as_of(&self, names: u64) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.names == names)
    }

    /// It is held from now on; that is good until then.
    pub fn begin_hold(&mut self, room: u32, good_until: Millis) {
        let (room, news) = (room as usize, News::default());
        let (is_being_told, is_moving, is_ending, denied, written_to) = (false, false, false, None, None);
        let (tries, number, names, looks, stayed) = (0, 0, 0, (Millis(0), 0), 0);
        self.hold = Some(Box::new(Hold {
            good_until,
            denied,
            written_to,
            room,
            news,
            is_being_told,
            is_moving,
            is_ending,
            is_told: false,
            tries,
            number,
            names,
            looks,
            stayed,
            idle_looks: 0,
            is_beside: false,
        }));
    }

    /// Is all that is so of it known here, and nowhere else?
    pub fn is_held(&self, now: Millis) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_good(now))
    }

    /// Is it held, and to be told before anybody is answered by what is kept?
    pub fn is_untold(&self, now: Millis) -> bool {
        self.hold.is_some() && !self.is_held(now)
    }

    /// Is something of it to be told, which nobody else may learn otherwise?
    pub fn has_news(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| !hold.news.is_empty())
    }

    /// Is something lost if it is told to nobody?
    pub fn has_changes(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| !hold.news.is_none())
    }

    /// Does a lane tell it now, or bring its content to chunks?
    pub fn is_being_told(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_being_told)
    }

    /// Is nothing more of it kept, and that is to be told?
    pub fn is_ending(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_ending)
    }

    /// Could a write be taken for older than a time that a program gave before it, and that may have been told?
    pub fn may_have_told_a_time(&self) -> bool {
        self.is_ending() && !self.is_being_told() && self.given_time().is_some()
    }

    /// Does another lane tell of a time that a program gave, or bring content to chunks? What is written meanwhile must come
    /// behind that.
    pub fn is_to_wait_for(&self) -> bool {
        self.is_being_told() && (self.given_time().is_some() || self.held_content().is_some())
    }

    /// It has chunks, and content that is kept is not in them yet.
    pub fn has_content_to_move(&self) -> bool {
        self.held_content().is_some() && self.layout.as_ref().is_some_and(|layout| !layout.is_inline())
    }

    /// A lane is to bring its content to chunks; what comes of it is given to [`Inode::was_moved`] or [`Inode::was_asked`].
    pub fn begin_moving(&mut self) -> Option<Vec<u8>> {
        let hold = self.hold.as_mut().filter(|hold| !hold.is_being_told)?;
        let content = hold.news.content.clone()?;
        (hold.is_being_told, hold.is_moving) = (true, true);
        Some(content)
    }

    /// Does a lane bring its content to chunks?
    pub fn is_moving(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_moving)
    }

    /// The content is in chunks. `given`: the time that was given before, which is that of the file.
    pub fn was_moved(&mut self, given: Option<Timestamp>) {
        if let Some(hold) = &mut self.hold {
            (hold.is_being_told, hold.is_moving) = (false, false);
            hold.news.content = None;
            hold.news.mtime = given;
        }
    }

    /// The time that a program gave, which is not told.
    pub fn given_time(&self) -> Option<Timestamp> {
        self.hold.as_ref().and_then(|hold| hold.news.mtime)
    }

    /// Nothing more of it is kept. `false`: it is not held.
    pub fn end_keeping(&mut self) -> bool {
        self.hold.as_mut().map(|hold| hold.is_ending = true).is_some()
    }

    /// A lane begins to tell it, if there is something to tell, or to commit, or that is waited for, and gives what came of it to
    /// [`Inode::was_told`], [`Inode::is_held_still`] or [`Inode::was_not_told`]. Whether the shard heard it may never be known,
    /// so nothing more is kept, unless the answer says that it is held still: `word` may wish so.
    pub fn begin_telling(&mut self, word: Word) -> Option<News> {
        let commits = self.mark.is_some();
        let (goes_on, answers) = match word {
            Word::Ends => (false, None),
            Word::GoesOn => (commits, None),
            Word::Answers(question) => (true, Some(question)),
        };
        let is_due =
            |hold: &&mut Box<Hold>| commits || answers.is_some() || hold.is_ending || !hold.news.is_empty();
        let hold = self.hold.as_mut().filter(is_due)?;
        debug_assert!(!hold.is_being_told, "two lanes tell it");
        let keeps = goes_on && !hold.is_ending;
        (hold.is_being_told, hold.is_told) = (true, true);
        hold.is_ending |= !keeps;
        hold.tries += 1;
        Some(News { keeps, hold: hold.number, answers: answers.filter(|_| keeps), ..hold.news.clone() })
    }

    /// Somebody looks at it from elsewhere, and only looks. `true`: it is told, and held on. Not where that happens too often
    /// for what stays between: each word costs its programs something. Content that is in the metadata ends with its word.
    pub fn may_be_shown(&mut self, now: Millis) -> bool {
        let is_in_chunks = self.layout.as_ref().is_some_and(|layout| !layout.is_inline());
        if !is_in_chunks || self.held_content().is_some() {
            return false;
        }
        let (commits, is_marked) = (self.mark.is_some(), self.is_marked());
        let Some(hold) = self.hold.as_mut().filter(|hold| !hold.is_ending) else { return false };
        hold.is_beside &= !is_marked;
        if hold.is_beside {
            return false;
        }
        let stayed = core::mem::take(&mut hold.stayed);
        if stayed >= LOOK_WORTH {
            hold.idle_looks = 0;
            return true;
        }
        // One that nobody writes to ends by that, however often it is looked at.
        let is_idle = stayed == 0 && !commits && hold.news.is_empty();
        hold.idle_looks = if is_idle { hold.idle_looks + 1 } else { 0 };
        if hold.idle_looks > LOOKS_IDLE {
            return false;
        }
        let (since, looks) = &mut hold.looks;
        if now.since(*since) >= LOOKS_WITHIN_MS {
            (*since, *looks) = (now, 0);
        }
        *looks += 1;
        *looks <= LOOKS_MAX
    }

    /// A lane asks whether it is held still, as if it told it: with which question.
    pub fn begin_asking(&mut self) -> Option<News> {
        let hold = self.hold.as_mut()?;
        hold.is_being_told = true;
        Some(News::nothing_yet(hold.number))
    }

    /// Nothing came of that, and nothing is told by it.
    pub fn was_asked(&mut self) {
        if let Some(hold) = &mut self.hold {
            (hold.is_being_told, hold.is_moving) = (false, false);
        }
    }

    /// Others may have been let past its mount: its shard is asked before anything is believed of it.
    pub fn may_be_others(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.good_until = Millis(0);
        }
    }

    /// The shard says so, which is good until then.
    pub fn is_held_still(&mut self, good_until: Millis) {
        let is_marked = self.is_marked();
        if let Some(hold) = &mut self.hold {
            // Others may have been let past it in between.
            hold.is_beside |= !is_marked && good_until.since(hold.good_until) > HOLD_MS;
            (hold.good_until, hold.is_being_told) = (hold.good_until.max(good_until), false);
            hold.denied = None;
        }
    }

    /// What is told is known to the shard.
    pub fn knows_news(&mut self) {
        if let Some(hold) = &mut self.hold {
            (hold.news, hold.tries) = (News::default(), 0);
        }
    }

    /// A small write stays with the mount.
    pub(super) fn stays(&mut self) {
        let is_marked = self.is_marked();
        if let Some(hold) = &mut self.hold {
            hold.stayed = hold.stayed.saturating_add(1);
            hold.is_beside &= !is_marked;
        }
    }

    /// Does it go on being held, as far as is known here?
    pub fn may_go_on(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| !hold.is_ending) && self.held_content().is_none()
    }

    /// Has it been told before the try that is under way, and is not known what became of that?
    pub fn may_have_been_told(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.tries > 1)
    }

    /// Was something written to its chunk files that its shard is to know, while it goes on being held?
    pub fn goes_on(&self) -> bool {
        let is_good = self.hold.as_ref().is_some_and(|hold| !hold.is_ending && !hold.is_being_told);
        is_good && self.mark.is_some() && self.held_content().is_none()
    }

    /// The mode as programs of this mount see it.
    pub fn mode_now(&self) -> Option<Mode> {
        let kept = self.hold.as_ref().and_then(|hold| hold.news.mode);
        kept.or(self.attr.as_ref().map(|attr| attr.mode))
    }

    /// The shard has heard it, and the mount does not hold it any more. Gives the content that was told.
    pub fn was_told(&mut self) -> Option<Vec<u8>> {
        self.hold.take().and_then(|hold| hold.news.content)
    }

    /// It has not, or nobody knows: what comes next ends the hold, so that this cannot be carried out behind it.
    pub fn was_not_told(&mut self) {
        if let Some(hold) = &mut self.hold {
            (hold.is_being_told, hold.is_ending) = (false, true);
        }
    }

    /// The shard has said that it did not hear it so.
    pub fn was_refused(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.tries = hold.tries.saturating_sub(1);
        }
        self.was_not_told();
    }

    /// What is held of its content.
    pub fn held_content(&self) -> Option<&[u8]> {
        self.hold.as_ref().and_then(|hold| hold.news.content.as_deref())
    }

    /// `attr` with what is held.
    pub(super) fn with_news(&self, attr: Attr) -> Attr {
        match &self.hold {
            Some(hold) => hold.news.over(attr),
            None => attr,
        }
    }

    /// Keeps a change of attributes, if it is one that may be kept: all that has to do with rights beyond the mode (set-id
    /// bits, ACLs, capabilities) is the shard's to decide. Gives the attributes after it.
    pub fn keep_attr(&mut self, set: &SetAttr, (now, wall): (Millis, Timestamp)) -> Option<Attr> {
        let attr = self.with_mark(self.attr.clone().filter(|_| !self.end_is_open())?);
        let hold = self.hold.as_mut().filter(|hold| hold.is_good(now))?;
        const PLAIN: u32 = Attr::NO_ACL | Attr::NO_CAPABILITY;
        let modes = attr.mode | set.mode.unwrap_or(0);
        if set.size.is_some() || modes & SETID != 0 || attr.flags & PLAIN != PLAIN {
            return None;
        }
        let SetAttr { mode, uid, gid, atime, mtime, .. } = *set;
        let is_owned = mode.is_some() || uid.is_some() || gid.is_some();
        if is_owned && (hold.is_told || hold.number > 0) {
            return None;
        }
        if !is_owned && atime.is_none() && mtime.is_none() {
            return Some(attr);
        }
        let time = |set: SetTime| match set {
            SetTime::Now => wall,
            SetTime::At(time) => time,
        };
        let news = &mut hold.news;
        news.mode = mode.or(news.mode);
        news.uid = uid.or(news.uid);
        news.gid = gid.or(news.gid);
        news.atime = atime.map(time).or(news.atime);
        news.mtime = mtime.map(time).or(news.mtime);
        news.at = attr.ctime.max(wall);
        Some(self.with_mark(attr))
    }

    /// Keeps what is written, if all of the content is here and there is room for it.
    pub fn keep_content(&mut self, offset: u64, data: &[u8], (now, wall): (Millis, Timestamp)) -> bool {
        let Some(attr) = self.attr.clone().map(|attr| self.with_mark(attr)) else { return false };
        let is_bare = attr.mode & SETID == 0 && self.mark.is_none();
        let is_here = self.layout.as_ref().is_some_and(|layout| layout.is_inline());
        let Some(hold) = self.hold.as_mut().filter(|hold| hold.is_good(now)) else { return false };
        let end = offset.saturating_add(data.len() as u64);
        let is_all = hold.news.content.is_some() || attr.size == 0;
        if !is_bare || !is_here || !is_all || end > hold.room as u64 {
            return false;
        }
        let (start, end) = (offset as usize, end as usize);
        let news = &mut hold.news;
        let content = news.content.get_or_insert_default();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(data);
        (news.wrote, news.mtime) = (wall, None);
        news.at = attr.ctime.max(wall);
        true
    }

    /// Chunks were written: a time that was given before counts no more.
    pub(super) fn outdate_given_time(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.news.mtime = None;
        }
    }
}

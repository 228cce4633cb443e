//! New files that a mount holds: nobody else is told anything of one before its shard was told what became of it. So what
//! programs do to it is kept here, over what the shard says, and told in one request. See `docs/design/leases.md`,
//! section 9.

use super::Inode;
use crate::limits::{HOLD_AGAIN_MS, HOLD_TELL_MS, HOLDS_ASKED_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::{Attr, Ino, Millis, Mode, NodeId, SetAttr, SetTime, ShardId, Timestamp};
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
    /// So often has a lane begun to tell it: whether the shard heard the earlier ones may not be known.
    tries: u32,
    /// Which hold it is, if it was asked for: what is said of an earlier one, and comes late, is none about this one. 0: it is so
    /// since the create.
    pub number: u64,
    /// Its attributes were told after so many own changes of names: which files those are about is not always known.
    names: u64,
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
        let (tries, number, names) = (0, 0, 0);
        self.hold = Some(Box::new(Hold {
            good_until,
            denied,
            written_to,
            room,
            news,
            is_being_told,
            is_moving,
            is_ending,
            tries,
            number,
            names,
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
    /// so nothing more is kept, unless the answer says that it is held still: `keeps` wishes so.
    pub fn begin_telling(&mut self, keeps: bool) -> Option<News> {
        let commits = self.mark.is_some();
        let hold = self.hold.as_mut().filter(|hold| commits || hold.is_ending || !hold.news.is_empty())?;
        debug_assert!(!hold.is_being_told, "two lanes tell it");
        let keeps = keeps && commits && !hold.is_ending;
        hold.is_being_told = true;
        hold.is_ending |= !keeps;
        hold.tries += 1;
        Some(News { keeps, hold: hold.number, ..hold.news.clone() })
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
        if let Some(hold) = &mut self.hold {
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

/// A file that is to be told, and to whom.
#[derive(Debug)]
pub struct ToTell {
    pub ino: Ino,
    pub node: NodeId,
    pub why: Why,
}

/// Why it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Somebody waits for it.
    Asked,
    /// It has been held for long enough.
    Old,
    /// It is not held, and asked for.
    Wished,
}

/// Of all files: which are to be told.
#[derive(Debug, Default)]
pub struct Holds {
    /// Held since, the oldest first; some are not held any more.
    by_age: VecDeque<(Millis, Ino)>,
    /// How many of these there are, by shard: it may have a question.
    shards: BTreeMap<ShardId, usize>,
    /// Somebody waits for these.
    questions: VecDeque<Ino>,
    /// Somebody has asked for these before it was known here that they are held, if they are: they are not.
    asked: BTreeSet<Ino>,
    /// The mount would like to hold these.
    wishes: VecDeque<Ino>,
    /// A lane asks for one.
    wishing: bool,
    /// Servers that are being told something.
    telling: BTreeSet<NodeId>,
    /// Creates on their way whose answers may give holds.
    creating: usize,
    /// Removals of names and renames of this mount: each counts when it is sent, and when it has been answered.
    names: u64,
}

impl Holds {
    /// A create is about to be sent. `false`: its answer must give no hold.
    pub fn create_begins(&mut self) -> bool {
        let has_room = self.asked.len() < HOLDS_ASKED_MAX;
        self.creating += usize::from(has_room);
        has_room
    }

    /// It was answered, or given up. With a file that it made: may that be held?
    /// `canary`: *holds-what-was-asked*.
    pub fn create_ends(&mut self, made: Option<Ino>, canary: bool) -> bool {
        let may_hold = made.is_some_and(|ino| canary || !self.asked.contains(&ino));
        self.creating = self.creating.saturating_sub(1);
        if self.creating == 0 {
            self.asked.clear();
        }
        may_hold
    }

    pub fn began(&mut self, ino: Ino, now: Millis) {
        let behind = self.by_age.iter().rposition(|(since, _)| *since <= now).map_or(0, |at| at + 1);
        self.by_age.insert(behind, (now, ino));
        *self.shards.entry(ino.shard()).or_default() += 1;
    }

    /// It goes on being held; it may be listed already.
    pub fn goes_on(&mut self, ino: Ino, now: Millis) {
        if !self.by_age.iter().any(|(_, listed)| *listed == ino) {
            self.began(ino, now);
        }
    }

    /// Where something is held.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> {
        self.shards.keys().copied()
    }

    /// A name is about to be removed, or moved; or was.
    pub fn names_change(&mut self) {
        self.names += 1;
    }

    pub fn names(&self) -> u64 {
        self.names
    }

    /// Somebody waits for it.
    pub fn ask(&mut self, ino: Ino, is_held: bool) {
        if !is_held && self.creating > 0 {
            self.asked.insert(ino);
        }
        if !self.questions.contains(&ino) {
            self.questions.push_back(ino);
        }
    }

    /// The mount would like to hold it.
    pub fn wish(&mut self, ino: Ino) {
        self.wishes.push_back(ino);
    }

    /// So many are waited for.
    pub fn asked_count(&self) -> usize {
        self.questions.len()
    }

    /// What is to be told next: what somebody waits for first. `node`: of which server a file is, if that can be told now.
    pub fn next(&mut self, now: Millis, node: impl Fn(Ino) -> Option<NodeId>) -> Option<ToTell> {
        let free = |ino: &Ino| node(*ino).filter(|node| !self.telling.contains(node));
        let asked = self.questions.iter().position(|ino| free(ino).is_some());
        let mut old = self.by_age.iter().take_while(|(since, _)| now.since(*since) >= HOLD_TELL_MS);
        let old = if asked.is_some() { None } else { old.position(|(_, ino)| free(ino).is_some()) };
        let (ino, why) = match (asked, old) {
            (Some(at), _) => (self.questions.remove(at)?, Why::Asked),
            (None, Some(at)) => (self.by_age.remove(at)?.1, Why::Old),
            (None, None) => return self.next_wish(node),
        };
        if why == Why::Old {
            self.shards.entry(ino.shard()).and_modify(|count| *count -= 1);
            self.shards.retain(|_, count| *count > 0);
        }
        let node = node(ino)?;
        self.telling.insert(node);
        Some(ToTell { ino, node, why })
    }

    /// What is to be asked for next: by one lane at most, so that the others tell what somebody waits for, and beside what is told
    /// to the same server.
    fn next_wish(&mut self, node: impl Fn(Ino) -> Option<NodeId>) -> Option<ToTell> {
        if self.wishing {
            return None;
        }
        let at = self.wishes.iter().position(|ino| node(*ino).is_some())?;
        let ino = self.wishes.remove(at)?;
        self.wishing = true;
        Some(ToTell { ino, node: node(ino)?, why: Why::Wished })
    }

    /// It was told, or is to be told again.
    pub fn tried(&mut self, tried: &ToTell, again: bool, now: Millis) {
        match tried.why {
            Why::Wished => self.wishing = false,
            Why::Asked | Why::Old => _ = self.telling.remove(&tried.node),
        }
        match (again, tried.why) {
            (true, Why::Asked) => self.ask(tried.ino, true),
            (true, Why::Old) => {
                // It is the oldest still.
                self.by_age.push_front((Millis(now.0.saturating_sub(HOLD_TELL_MS)), tried.ino));
                *self.shards.entry(tried.ino.shard()).or_default() += 1;
            }
            _ => {}
        }
    }

    /// In how many milliseconds there is one.
    pub fn next_ms(&self, now: Millis) -> Option<u64> {
        let (since, _) = self.by_age.front()?;
        // One that is old enough waits for its server, which another lane tells something.
        let left = HOLD_TELL_MS.saturating_sub(now.since(*since));
        Some(if left == 0 { HOLD_AGAIN_MS } else { left })
    }

    /// Those that are held for less than [`HOLD_TELL_MS`], with some that are held no longer.
    pub fn young(&self) -> impl Iterator<Item = Ino> {
        self.by_age.iter().map(|(_, ino)| *ino)
    }

    /// Has somebody asked for a file of which it is not known here whether it is held?
    pub fn is_asked_early(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The session that held them has ended.
    pub fn clear(&mut self) {
        let telling = core::mem::take(&mut self.telling);
        let Self { creating, names, wishing, .. } = *self;
        *self = Self { creating, telling, names, wishing, ..Self::default() };
    }
}

//! A fake shard: a flat directory of files, with the protocol of growth, truncates and lanes.

mod names;

use super::attr;
use super::holds::FakeHolds;
use super::leases::{FakeLeases, Touched};
use super::locks::FakeLocks;
use super::target::Targets;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::INLINE_DEFAULT;
use skep_types::{
    Attr, ChunkId, Code, Decode, Encode, Errno, Extent, Floors, Generation, Ino, Kind, Layout, LogIndex,
    Name, Reader, Seq, SetTime, ShardId, Slot, Stripe, TargetId, Term, Timestamp,
};
use skep_wire::meta::{
    AttrReply, Closed, Create, DirEntry, FoundChunk, Grow, GrowReply, InlineCopy, LayoutReply, ListReply,
    MetaRequest, OpenMode, OpenReply, ReclaimReply, ReserveEnd, ReserveEndReply, SealExtent, ShardCall,
    ShardStamp, WriteInline,
};
use skep_wire::{Empty, Refusal, Status};

/// Chunks and extents are tiny, so that a small file uses all of them.
const CHUNK: u32 = 4096;
const ENDS: [(u64, u64, u32); 3] = [(0, 16 << 10, 1), (16 << 10, 64 << 10, 2), (64 << 10, u64::MAX, 3)];

#[derive(Debug, Clone)]
pub struct File {
    pub attr: Attr,
    pub inline: Vec<u8>,
    pub version: u64,
    pub layout: Layout,
    pub next: u32,
    pub intent: Option<Layout>,
}

/// The body of an answer.
type Reply = Result<Vec<u8>, Refusal>;

#[derive(Default)]
pub struct Shard {
    pub id: ShardId,
    pub files: BTreeMap<Ino, File>,
    pub names: BTreeMap<Name, Ino>,
    pub lanes: BTreeMap<(u64, Slot), (Seq, Reply)>,
    pub index: u64,
    pub durable: u64,
    pub term: u64,
    pub opens: BTreeMap<Ino, u64>,
    /// Those of them that were opened for writing since they were last closed.
    pub written: BTreeSet<Ino>,
    pub reclaims: usize,
    /// Of one batch of requests: none of it is answered yet.
    pub claims_under_way: bool,
    /// Answers say that others are writing.
    pub live: bool,
    pub executed: usize,
    /// A sync finds that the term's tail is gone.
    pub lost_term: Option<Term>,
    pub locks: FakeLocks,
    /// Of so many seals more the targets are not reached: their chunk files stay open.
    pub left_open: usize,
    /// Ends of reserved ranges, and the last reservation of each lane.
    pub reserved: BTreeMap<Ino, u64>,
    reservations: BTreeMap<(u64, Slot), (u64, u64)>,
    serial: u64,
    /// Chunk files that a mount told to be too short.
    pub told_lost: usize,
    /// Targets that mounts called full.
    pub full: BTreeSet<TargetId>,
    pub leases: FakeLeases,
    pub holds: FakeHolds,
    /// Who asks, and what he wishes.
    asker: (u64, Option<u8>),
    /// Directories that the present change touches, as its answer tells them.
    touched: Vec<Attr>,
}

impl Shard {
    pub fn new(id: ShardId) -> Self {
        Self { id, term: 1, ..Self::default() }
    }

    /// A new term.
    pub fn begins(&mut self) {
        self.term += 1;
        self.leases.restart();
        self.holds.restart();
    }

    /// It gives leases from now on, and has a root.
    pub fn gives_leases(&mut self, ms: u64) {
        (self.leases.on, self.leases.ms) = (true, ms);
        self.new_dir(Ino::ROOT);
    }

    /// Who gives leases says what there is not.
    fn flags(&self) -> u32 {
        if self.leases.on { Attr::NO_ACL | Attr::NO_CAPABILITY | Attr::NO_OTHER_XATTR } else { 0 }
    }

    fn new_dir(&mut self, ino: Ino) {
        let attr = Attr { kind: Kind::Dir, nlink: 2, flags: self.flags(), ..attr(ino.0, 1, 0) };
        let (inline, layout) = (Vec::new(), Layout::default());
        self.files.insert(ino, File { attr, inline, version: 1, layout, next: 1, intent: None });
    }

    /// An answer with the stamp before it.
    pub fn stamped<T: Encode>(&self, reply: &T) -> Vec<u8> {
        let mut body = Vec::new();
        let mut stamp = ShardStamp::new(Term(self.term), LogIndex(self.index), LogIndex(self.durable));
        self.leases.stamp(&mut stamp);
        self.holds.stamp(&mut stamp);
        stamp.keeps = self.leases.on.then_some(true);
        stamp.touched = Some(self.touched.clone()).filter(|touched| !touched.is_empty());
        stamp.encode(&mut body);
        reply.encode(&mut body);
        body
    }

    pub fn request(
        &mut self,
        (mount, call): (u64, ShardCall),
        request: &MetaRequest,
        targets: &mut Targets,
    ) -> Reply {
        self.touched.clear();
        self.holds.hears();
        self.asker = (mount, call.wish);
        if let Some((by, question)) = self.question(mount, request) {
            self.locks.tell(by, question.into());
            return Err(Status::BUSY.into());
        }
        (self.leases.id, self.leases.term) = (self.id, self.term);
        let is_new =
            call.seq == Seq(0) || self.lanes.get(&(mount, call.slot)).is_none_or(|(seq, _)| *seq < call.seq);
        let touches = if is_new { self.touches(request) } else { Vec::new() };
        let (runs, told) = self.leases.hears((mount, &call), &touches);
        told.into_iter().for_each(|(mount, event)| self.locks.tell(mount, event));
        if !runs {
            return Err(Status::BUSY.into());
        }
        self.grants(request);
        call.closed.into_iter().for_each(|closed| self.close(&closed));
        if matches!(request, MetaRequest::Events(_)) {
            self.leases.listens(mount);
        }
        if let MetaRequest::Recalled(m) = request {
            self.leases.recalled(mount, m);
            return Ok(self.stamped(&Empty {}));
        }
        if call.seq == Seq(0) {
            return match request {
                MetaRequest::ReserveEnd(m) => self.reserve_end((mount, call.slot), m),
                _ => match self.locks.request(mount, Term(self.term), request) {
                    Some(reply) => reply.map(|reply| self.stamped(&reply)),
                    None => self.execute(request, targets),
                },
            };
        }
        match self.lanes.get(&(mount, call.slot)) {
            Some((seq, reply)) if *seq == call.seq => return reply.clone(),
            Some((seq, _)) if *seq > call.seq => return Err(Status::OLD_SEQUENCE.into()),
            _ => {}
        }
        self.index += 1;
        self.executed += 1;
        let reply = self.execute(request, targets);
        // A repeated answer gives nothing.
        let kept = reply.clone().map(|body| {
            let mut r = Reader::new(&body);
            let stamp = ShardStamp::decode(&mut r).unwrap();
            let rest = body[body.len() - r.remaining()..].to_vec();
            let mut kept =
                ShardStamp { grants: None, keeps: None, touched: None, holds: None, ..stamp }.to_bytes();
            kept.extend(rest);
            kept
        });
        self.lanes.insert((mount, call.slot), (call.seq, kept));
        reply
    }

    pub fn file(&mut self, ino: Ino) -> Result<&mut File, Refusal> {
        self.files.get_mut(&ino).ok_or_else(|| Errno::ENOENT.into())
    }

    fn open_reply(&self, ino: Ino, created: bool) -> Result<OpenReply, Refusal> {
        let file = self.files.get(&ino).ok_or(Refusal::from(Errno::ENOENT))?;
        let inline = file.layout.is_inline().then(|| Bytes(file.inline.clone()));
        Ok(OpenReply {
            attr: file.attr.clone(),
            layout: file.layout.clone(),
            inline,
            live: self.live && !file.layout.is_inline(),
            created,
        })
    }

    pub fn attr_reply(&self, ino: Ino) -> Reply {
        let file = self.files.get(&ino).ok_or(Refusal::from(Errno::ENOENT))?;
        let live = (self.live && !file.layout.is_inline()).then(|| file.layout.clone());
        Ok(self.stamped(&AttrReply { attr: file.attr.clone(), live }))
    }

    fn execute(&mut self, request: &MetaRequest, targets: &mut Targets) -> Reply {
        match request {
            MetaRequest::Create(m) => self.create(m, targets),
            MetaRequest::CreateTemp(m) => {
                let ino = self.new_file(m.mode & !m.umask);
                self.opens.insert(ino, m.open_seq);
                Ok(self.stamped(&self.open_reply(ino, true)?))
            }
            MetaRequest::Open(m) => {
                if m.truncate {
                    self.truncate(m.ino, 0, targets)?;
                }
                self.opened(m.ino, m.mode, m.open_seq);
                Ok(self.stamped(&self.open_reply(m.ino, false)?))
            }
            MetaRequest::Close(m) => {
                m.opens.iter().for_each(|closed| self.close(closed));
                Ok(self.stamped(&Empty {}))
            }
            MetaRequest::Reclaim(m) if m.term != Some(Term(self.term)) => Err(Status::NOT_READY.into()),
            MetaRequest::Reclaim(m) => {
                self.claims_under_way |= !m.locks.is_empty();
                assert!(
                    !(self.claims_under_way && m.last),
                    "which locks are lost is not known to the mount yet"
                );
                self.holds.told_again(self.asker.0, m);
                self.opens.extend(m.opens.iter().map(|open| (open.ino, open.open_seq)));
                self.reserved.extend(m.opens.iter().map(|open| (open.ino, open.reserved)));
                self.reclaims += usize::from(m.last);
                let lost = core::mem::take(&mut self.locks.lost);
                Ok(self.stamped(&ReclaimReply { lost: (!lost.is_empty()).then_some(lost) }))
            }
            MetaRequest::ReadInline(m) => {
                self.told_lost += m.short.len();
                Ok(self.stamped(&self.open_reply(m.ino, false)?))
            }
            MetaRequest::SealExtent(m) => self.seal_extent(m, targets),
            MetaRequest::Repair(m) => {
                let file = self.file(m.ino)?;
                let moved = |found: &FoundChunk| file.layout.floor(&found.chunk) != found.floor;
                if m.trims != file.layout.trims || m.found.iter().any(moved) {
                    return Err(Status::CUT_SINCE.into());
                }
                for found in &m.found {
                    file.layout.lower_floor(&found.chunk, found.size);
                }
                file.attr.change += 1;
                let reply = LayoutReply { attr: file.attr.clone(), layout: file.layout.clone() };
                Ok(self.stamped(&reply))
            }
            MetaRequest::GetAttr(m) => self.attr_reply(m.ino),
            MetaRequest::List(m) => Ok(self.stamped(&self.list(m.after, m.max as usize, m.with_attr))),
            _ => self.with_names(request, targets),
        }
    }

    fn opened(&mut self, ino: Ino, mode: OpenMode, seq: u64) {
        self.opens.insert(ino, seq);
        if mode.writes() {
            self.written.insert(ino);
        }
    }

    fn close(&mut self, closed: &Closed) {
        if closed.is_untold() {
            self.opens.retain(|_, seq| *seq != closed.open_seq);
        }
        if self.opens.get(&closed.ino).is_some_and(|seq| *seq < closed.open_seq) {
            self.opens.remove(&closed.ino);
            self.written.remove(&closed.ino);
            self.holds.by.remove(&closed.ino);
        }
    }

    pub fn change_content(&mut self, request: &MetaRequest, targets: &mut Targets) -> Reply {
        match request {
            MetaRequest::ChangeAttr(m) => {
                let before = self.file(m.ino)?.attr.clone();
                match m.set.size {
                    Some(size) if m.set.grow_only => {
                        let file = self.file(m.ino)?;
                        file.attr.size = file.attr.size.max(size);
                    }
                    Some(size) => self.truncate(m.ino, size, targets)?,
                    None => {}
                }
                let file = self.file(m.ino)?;
                file.attr.mode = m.set.mode.unwrap_or(file.attr.mode);
                if m.set.kill_suidgid {
                    file.attr.mode &= 0o1777;
                }
                if let Some(SetTime::At(time)) = m.set.mtime {
                    file.attr.mtime = time;
                    file.attr.time_sets += 1;
                    file.attr.flags |= Attr::MTIME_GIVEN;
                }
                // As the server: what is true already is no change.
                let may_be_none = m.set.grow_only || m.set.kill_suidgid;
                let is_none = may_be_none && file.attr == before;
                file.attr.change += u64::from((m.set.size.is_none() || m.set.grow_only) && !is_none);
                self.attr_reply(m.ino)
            }
            MetaRequest::Commit(m) => self.commit(m),
            MetaRequest::Tell(m) => self.is_told(self.asker.0, m, targets),
            MetaRequest::WriteInline(m) => self.write_inline(m),
            MetaRequest::Grow(m) => self.grow(m),
            MetaRequest::Switch(m) => {
                let file = self.file(m.ino)?;
                let intent = file.intent.take().filter(|intent| intent.generation == m.generation);
                let Some(layout) = intent.filter(|_| file.version == m.inline_version) else {
                    return Err(Status::STALE_GENERATION.into());
                };
                file.layout = layout;
                file.layout.raise_floors_to(m.copied);
                let layout = file.layout.clone();
                file.attr.generation = layout.generation;
                file.inline.clear();
                let reply = LayoutReply { attr: file.attr.clone(), layout };
                Ok(self.stamped(&reply))
            }
            MetaRequest::Sync(m) => {
                if self.lost_term == Some(m.term) && m.index > LogIndex(0) {
                    return Err(Status::LOST_HISTORY.into());
                }
                self.durable = self.durable.max(m.index.0);
                Ok(self.stamped(&Empty {}))
            }
            _ => Err(Errno::ENOSYS.into()),
        }
    }

    fn write_inline(&mut self, m: &WriteInline) -> Reply {
        let file = self.file(m.ino)?;
        if !file.layout.is_inline() {
            return Err(Status::STALE_GENERATION.into());
        }
        let offset = if m.append { file.attr.size } else { m.offset };
        let mut end = offset as usize + m.data.0.len();
        if m.within == Some(true) {
            end = end.min(file.attr.size as usize);
            if end <= offset as usize {
                return self.attr_reply(m.ino);
            }
        }
        if end > INLINE_DEFAULT as usize {
            return Err(Status::MUST_GROW.into());
        }
        file.inline.resize(file.inline.len().max(end), 0);
        file.inline[offset as usize..end].copy_from_slice(&m.data.0[..end - offset as usize]);
        file.version += 1;
        file.attr.size = file.attr.size.max(end as u64);
        file.attr.change += 1;
        self.attr_reply(m.ino)
    }

    fn create(&mut self, m: &Create, targets: &mut Targets) -> Reply {
        let known = self.names.get(&m.name).copied();
        let ino = match known {
            Some(_) if m.exclusive => return Err(Errno::EEXIST.into()),
            Some(ino) => {
                if m.truncate {
                    self.truncate(ino, 0, targets)?;
                }
                ino
            }
            None => {
                let ino = self.new_file(m.mode & !m.umask);
                self.names.insert(m.name.clone(), ino);
                self.changed(m.parent);
                self.made(ino);
                let (mount, wish) = self.asker;
                self.holds.made(mount, wish, ino);
                ino
            }
        };
        if let Some(mode) = m.open {
            self.opened(ino, mode, m.open_seq);
        }
        Ok(self.stamped(&self.open_reply(ino, known.is_none())?))
    }

    fn new_file(&mut self, mode: u32) -> Ino {
        self.serial += 1;
        let ino = Ino::new(self.id, 100 + self.serial);
        let mut attr = attr(ino.0, 1, 0);
        (attr.mode, attr.flags) = (mode, self.flags());
        let (inline, layout) = (Vec::new(), Layout::default());
        self.files.insert(ino, File { attr, inline, version: 1, layout, next: 1, intent: None });
        ino
    }

    fn reserve_end(&mut self, lane: (u64, Slot), m: &ReserveEnd) -> Reply {
        let (live, term) = (self.live, self.term);
        let file = self.file(m.ino)?;
        if file.layout.is_inline() {
            return Err(Status::MUST_GROW.into());
        }
        let (generation, size, trims) = (file.layout.generation, file.attr.size, file.layout.trims);
        let is_old = m.cuts.is_some_and(|cuts| cuts < file.attr.cuts);
        if live && m.looked != Term(term) || is_old {
            return Ok(self.stamped(&ReserveEndReply { offset: None, generation, trims }));
        }
        let reserved = self.reserved.entry(m.ino).or_default();
        let known = self.reservations.get(&lane).filter(|(number, _)| *number == m.number);
        let offset = match known {
            Some((_, offset)) => *offset,
            None => {
                let offset = (*reserved).max(size).max(m.at_least);
                *reserved = offset + m.len;
                offset
            }
        };
        self.reservations.insert(lane, (m.number, offset));
        Ok(self.stamped(&ReserveEndReply { offset: Some(offset), generation, trims }))
    }

    pub fn commit(&mut self, m: &skep_wire::meta::Commit) -> Reply {
        let file = self.file(m.ino)?;
        if file.layout.is_inline() || file.layout.generation != m.generation {
            return Err(Status::STALE_GENERATION.into());
        }
        if let Some(held) = &m.held {
            if held.trims != file.layout.trims {
                return Err(Status::CUT_SINCE.into());
            }
            file.layout.raise_floors(&held.extents);
            if held.alone {
                return self.attr_reply(m.ino);
            }
        }
        if m.size > file.attr.size && m.cuts < file.attr.cuts {
            return Err(Status::STALE_SIZE.into());
        }
        let before = file.attr.clone();
        file.attr.size = file.attr.size.max(m.size);
        if !file.attr.is_mtime_given() || m.time_sets >= file.attr.time_sets {
            file.attr.mtime = m.mtime;
            file.attr.flags &= !Attr::MTIME_GIVEN;
        }
        file.attr.blocks = m.blocks.unwrap_or(file.attr.blocks);
        file.attr.change += u64::from(before.mtime != m.mtime || file.attr != before);
        self.attr_reply(m.ino)
    }

    fn truncate(&mut self, ino: Ino, size: u64, targets: &mut Targets) -> Result<(), Refusal> {
        let file = self.file(ino)?;
        file.attr.change += 1;
        file.attr.cuts += 1;
        file.attr.mtime = Timestamp { secs: 1, nanos: 0 };
        file.attr.flags &= !Attr::MTIME_GIVEN;
        if file.layout.is_inline() {
            file.inline.truncate(size as usize);
            file.version += 1;
        } else if size == 0 {
            for (chunk, _) in file.layout.chunks() {
                targets.delete(chunk);
            }
            file.layout = Layout::default();
            file.attr.generation = Generation(0);
            file.version += 1;
        } else {
            file.layout.cut_floors(size);
            file.layout.trims.1.0 += 1;
            for (chunk, target) in file.layout.chunks() {
                let extent = file.layout.extent_of(&chunk).unwrap();
                targets.trim(target, chunk, extent.local_size(chunk.stripe.into(), size));
            }
        }
        file.attr.size = size;
        self.reserved.remove(&ino);
        Ok(())
    }

    /// At once; the file goes on over the targets that have room.
    fn seal_extent(&mut self, m: &SealExtent, targets: &mut Targets) -> Reply {
        self.full.extend(m.full);
        if self.left_open > 0 {
            self.left_open -= 1;
            return Ok(self.stamped(&Empty {}));
        }
        let rest: Vec<TargetId> =
            (1..=3).map(TargetId).filter(|target| !self.full.contains(target)).collect();
        let file = self.file(m.ino)?;
        if file.layout.is_inline() || file.layout.generation != m.generation {
            return Err(Status::STALE_GENERATION.into());
        }
        let extent = file.layout.extent_of(&m.chunk).cloned();
        if let Some(extent) = extent.filter(|extent| extent.cut(m.chunk.stripe.into()) >= m.end) {
            if rest.is_empty() {
                return Err(Errno::ENOSPC.into());
            }
            let mut seal = |(chunk, stripe): (ChunkId, &Stripe)| Some(targets.seal(stripe.first(), chunk));
            let limits: Vec<Option<u64>> = extent.named().map(&mut seal).collect();
            file.layout.close(extent.number, &limits, &Stripe::each(&rest));
            assert!(file.layout.is_covered());
            file.attr.change += 1;
        }
        Ok(self.stamped(&Empty {}))
    }

    fn grow(&mut self, m: &Grow) -> Reply {
        let usable: Vec<TargetId> =
            (1..=3).map(TargetId).filter(|target| !self.full.contains(target)).collect();
        if usable.is_empty() {
            return Err(Errno::ENOSPC.into());
        }
        let file = self.file(m.ino)?;
        let inline = file.layout.is_inline();
        let mut layout = file.layout.clone();
        if inline {
            layout.generation = Generation(file.next);
            file.next += 1;
        }
        while layout.covered() < m.end {
            let (_, end, width) = *ENDS.iter().find(|(_, end, _)| *end > layout.covered()).unwrap();
            let start = layout.covered();
            let first = layout.extents.len() as u32;
            layout.extents.push(Extent {
                number: layout.next_number(),
                cuts: Vec::new(),
                start,
                end,
                origin: m.ino,
                generation: layout.generation,
                code: Code::Copies,
                chunk_size: CHUNK,
                stripes: (0..width.min(usable.len() as u32))
                    .map(|n| Stripe::on(usable[(first + n) as usize % usable.len()]))
                    .collect(),
                floors: Floors::default(),
            });
        }
        let copy = (inline && !file.inline.is_empty())
            .then(|| InlineCopy { data: Bytes(file.inline.clone()), version: file.version });
        match copy {
            Some(_) => file.intent = Some(layout.clone()),
            None => {
                file.layout = layout.clone();
                file.attr.generation = layout.generation;
            }
        }
        let reply = GrowReply { attr: file.attr.clone(), layout, copy };
        Ok(self.stamped(&reply))
    }

    fn list(&self, after: u64, max: usize, with_attr: bool) -> ListReply {
        let mut entries: Vec<DirEntry> = self
            .names
            .iter()
            .map(|(name, ino)| DirEntry {
                cookie: ino.0 << 8,
                name: name.clone(),
                ino: *ino,
                kind: self.files.get(ino).map_or(Kind::File, |file| file.attr.kind),
                attr: self.files.get(ino).filter(|_| with_attr).and_then(|_| self.shown(*ino)),
                live: None,
            })
            .filter(|entry| entry.cookie > after)
            .collect();
        entries.sort_by_key(|entry| entry.cookie);
        let end = entries.len() <= max;
        entries.truncate(max);
        ListReply { entries, end, parent: Ino(77) }
    }
}

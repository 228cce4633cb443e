//! The context in which an operation runs: rows through a transaction, time, choices.

use crate::choose::{Choose, Holder, Plan};
use crate::command::{Caller, Decided};
use crate::config::HashFn;
use crate::fail::{Fail, Need, corrupt};
use crate::key::{self, Table};
use crate::limit::GRANTS_PER_ANSWER;
use crate::row::deletion::Deletion;
use crate::row::growth::Growth;
use crate::row::header::{Header, Keys};
use crate::row::inode::MAY_BE_HELD;
use crate::row::seal::Seal;
use crate::row::slot::{Gate, SlotRow};
use crate::row::trim::Trim;
use crate::row::txn::{Decision, Prepared};
use crate::row::{Inode, LinkRef};
use crate::store::{Key, Store, StoreError, Txn};
use alloc::format;
use alloc::vec::Vec;
use core::cell::Cell;
use skep_types::{
    Attr, ChunkId, ClientId, Decode, Encode, Errno, Ino, Kind, Layout, LogIndex, LogPlace, Mode, ShardId,
    Slot, TargetId, Term, Timestamp,
};
use skep_wire::meta::TxnId;
use skep_wire::{Refusal, Status};

/// What the server must know of a change once it is in the log. Rows hold all of it too: after a
/// restart the server finds it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A row of the deletion queue.
    Deletion(u64, Vec<(TargetId, ChunkId)>),
    /// A truncate that targets must be told of.
    Trim(Ino),
    /// No longer, or done.
    TrimGone(Ino, u64),
    /// An extent is being closed: targets must be told.
    Seal(Ino),
    /// No longer.
    SealGone(Ino, u64),
    /// A transaction is committed: these participants are to hear of it.
    Decided(TxnId, Vec<ShardId>),
    /// All have.
    Finished(TxnId),
    /// Another shard's transaction has locked these inodes.
    Prepared(TxnId, Timestamp, Vec<Ino>),
    /// No longer.
    Released(TxnId),
    /// It is committed, and this copy of the shard, which was put back, does not know what it promised.
    PromiseLost(TxnId),
    /// A layout is new: nobody may see it before it is durable.
    Settling(Ino),
    /// A growth intent.
    Growth(Ino),
    /// No longer.
    GrowthGone(Ino),
    /// A growth was given up that this lane may be copying.
    GrowthDead(ClientId, Slot),
    /// It is not any more.
    GrowthOver(ClientId, Slot),
    /// A client may write to the chunks of a file.
    Writer(Ino, ClientId),
    /// No longer.
    WriterGone(Ino, ClientId),
    /// An inode without names that may be open.
    Orphan(Ino),
    /// An orphan got a name.
    OrphanNamed(Ino),
    /// What its chunk files had lost was given up, or cut off with all of them.
    Repaired(Ino),
    /// The inode is gone.
    Gone(Ino),
}

/// Second deletions are numbered by their log record, in a range of their own: logs of releases that
/// knew none, and their numbers from [`Ctx::next_id`], stay as they are.
const AGAIN: u64 = 1 << 63;

/// The suid and sgid bits.
const SETID: Mode = 0o6000;

/// How an operation ended.
pub struct Done {
    /// Body of the answer.
    pub body: Vec<u8>,
    /// What the answer waits for.
    pub gate: Gate,
    /// The inode that the caller has open now.
    pub opened: Option<Ino>,
    /// He holds it, and may keep so many bytes of its content to himself.
    pub holds: Option<u32>,
}

impl Done {
    /// With an answer.
    pub fn reply(reply: &impl Encode) -> Self {
        Self { body: reply.to_bytes(), gate: Gate::Open, opened: None, holds: None }
    }

    /// With an answer that waits.
    pub fn gated(reply: &impl Encode, gate: Gate) -> Self {
        Self { gate, ..Self::reply(reply) }
    }

    /// An answer that shows a layout waits until that is durable.
    pub fn behind_its_gate(self, ctx: &Ctx<'_>) -> Self {
        let gate = if ctx.shows_undurable && self.gate == Gate::Open { Gate::Durable } else { self.gate };
        Self { gate, ..self }
    }
}

/// Everything that is fixed while one command runs.
pub struct Scene {
    pub shard: ShardId,
    /// Keys of its cookies.
    pub keys: Keys,
    pub hash: HashFn,
    /// The time.
    pub at: Timestamp,
    /// Term of the log.
    pub term: Term,
    /// Index that the command gets if it writes.
    pub index: LogIndex,
    /// The lane that asked.
    pub caller: Option<Caller>,
    /// The client that asked, with a lane or without; 0 = the server itself.
    pub client: ClientId,
    /// Largest inline content where no policy says otherwise.
    pub inline_limit: u32,
    /// Is this a replay? Then checks that read other shards are skipped: they were made.
    pub replay: bool,
}

/// The first directories that an operation looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dirs {
    inos: [Ino; GRANTS_PER_ANSWER],
    count: usize,
}

impl Dirs {
    fn add(&mut self, dir: Ino) {
        if self.count < GRANTS_PER_ANSWER && !self.list().contains(&dir) {
            self.inos[self.count] = dir;
            self.count += 1;
        }
    }

    /// In the order in which it did.
    pub fn list(&self) -> &[Ino] {
        &self.inos[..self.count]
    }
}

pub struct Ctx<'a> {
    /// Rows.
    pub txn: Txn<'a, dyn Store + 'a>,
    /// What is fixed.
    pub scene: Scene,
    /// Choices.
    pub choose: &'a mut dyn Choose,
    /// What the server must know.
    pub effects: Vec<Effect>,
    /// The answer shows something that is not durable yet.
    pub shows_undurable: bool,
    /// Directories that it looked at, or made: the answer may lend them.
    dirs: Cell<Dirs>,
}

impl<'a> Ctx<'a> {
    /// Starts without writes.
    pub fn new(store: &'a (dyn Store + 'a), scene: Scene, choose: &'a mut dyn Choose) -> Self {
        Self {
            txn: Txn::new(store),
            scene,
            choose,
            effects: Vec::new(),
            shows_undurable: false,
            dirs: Cell::default(),
        }
    }

    /// The row at `key`.
    pub fn row<T: Decode>(&self, key: &[u8], what: &str) -> Result<Option<T>, StoreError> {
        match self.txn.get(key)? {
            None => Ok(None),
            Some(bytes) => {
                T::from_bytes(&bytes).map(Some).map_err(|e| corrupt(&format!("{what} row {key:02x?}"), e))
            }
        }
    }

    /// Writes a row.
    pub fn put(&mut self, key: Key, row: &impl Encode) {
        self.txn.put(key, row.to_bytes());
    }

    /// Is the inode's home this shard?
    pub fn is_home(&self, ino: Ino) -> bool {
        ino.shard() == self.scene.shard
    }

    /// The inode row, if there is one.
    pub fn find_inode(&self, ino: Ino) -> Result<Option<Inode>, StoreError> {
        self.row(&key::inode(ino), "inode")
    }

    /// The inode, or ESTALE. Of one that somebody else holds, as far as it was told.
    pub fn told_inode(&self, ino: Ino) -> Result<Inode, Fail> {
        if !self.is_home(ino) {
            return Err(astray(ino, self.scene.shard));
        }
        self.require_unlocked(ino)?;
        let inode = self.find_inode(ino)?.ok_or(Errno::ESTALE)?;
        if inode.is_dir() {
            self.looks_at(ino);
        }
        Ok(inode)
    }

    /// The inode as it is, or ESTALE.
    pub fn inode(&self, ino: Ino) -> Result<Inode, Fail> {
        let inode = self.told_inode(ino)?;
        if inode.flags & MAY_BE_HELD != 0 || self.choose.may_be_held_again(ino) {
            self.require_not_held(ino)?;
        }
        Ok(inode)
    }

    /// What somebody else holds is not looked at before he has told what became of it.
    fn require_not_held(&self, ino: Ino) -> Result<(), Fail> {
        match self.choose.holder(ino) {
            Holder::NoOther => Ok(()),
            Holder::Other(client) => Err(Fail::Wait(Need::Holder { ino, client })),
            Holder::Unknown => Err(untold(ino).into()),
        }
    }

    /// A directory, whose state the answer may show.
    pub fn looks_at(&self, dir: Ino) {
        let mut dirs = self.dirs.get();
        dirs.add(dir);
        self.dirs.set(dirs);
    }

    /// Those that it looked at, or made.
    pub fn take_dirs(&self) -> Dirs {
        self.dirs.take()
    }

    /// What a transaction has locked is not looked at: whether it is as its row says is not known here.
    fn require_unlocked(&self, ino: Ino) -> Result<(), Fail> {
        self.choose.inode_lock(ino).map_or(Ok(()), |txid| Err(Fail::Wait(Need::Txn(txid))))
    }

    /// A directory in which a transaction has locked a name does not go.
    pub fn require_no_locked_name(&self, dir: Ino) -> Result<(), Fail> {
        self.choose.dir_lock(dir).map_or(Ok(()), |txid| Err(Fail::Wait(Need::Txn(txid))))
    }

    /// A directory in which a name is looked for, or ENOTDIR; ENOENT if it was removed, whoever did it: that is what a local file
    /// system says of all names in it.
    pub fn dir(&self, ino: Ino) -> Result<Inode, Fail> {
        let inode = self.dir_or_removed(ino)?;
        if inode.nlink == 0 { Err(Errno::ENOENT.into()) } else { Ok(inode) }
    }

    /// The same, also one that was removed and is open still.
    pub fn dir_or_removed(&self, ino: Ino) -> Result<Inode, Fail> {
        if !self.is_home(ino) {
            return Err(astray(ino, self.scene.shard));
        }
        self.require_unlocked(ino)?;
        let inode = self.find_inode(ino)?.ok_or(Errno::ENOENT)?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.looks_at(ino);
        Ok(inode)
    }

    /// A regular file; EISDIR or EINVAL otherwise.
    pub fn file(&self, ino: Ino) -> Result<Inode, Fail> {
        let inode = self.inode(ino)?;
        match inode.kind {
            Kind::File => Ok(inode),
            Kind::Dir => Err(Errno::EISDIR.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Writes the inode row.
    pub fn put_inode(&mut self, ino: Ino, inode: &Inode) {
        if inode.is_dir() {
            self.looks_at(ino);
        }
        self.put(key::inode(ino), inode);
    }

    /// The shard's header.
    pub fn header(&self) -> Result<Header, Fail> {
        let shard = self.scene.shard;
        self.row(&key::header(shard), "header")?.ok_or_else(|| {
            Fail::Store(StoreError::Corrupt(format!("shard {shard} has no header; restore it from a backup")))
        })
    }

    /// A name got, or lost, an inode on another shard.
    pub fn count_away(&mut self, change: impl Fn(u64) -> u64) -> Result<(), Fail> {
        let mut header = self.header()?;
        header.away = change(header.away);
        self.put(key::header(self.scene.shard), &header);
        Ok(())
    }

    /// A number for a deletion or trim.
    pub fn next_id(&mut self) -> Result<u64, Fail> {
        let mut header = self.header()?;
        let id = header.next_id;
        header.next_id += 1;
        self.put(key::header(self.scene.shard), &header);
        Ok(id)
    }

    /// Queues chunk files for deletion.
    pub fn queue_deletion(&mut self, layouts: &[&Layout]) -> Result<(), Fail> {
        let chunks: Vec<(TargetId, ChunkId)> = layouts
            .iter()
            .flat_map(|layout| layout.chunks())
            .map(|(chunk, target)| (target, chunk))
            .collect();
        if chunks.is_empty() {
            return Ok(());
        }
        let id = self.next_id()?;
        self.queue_as(id, chunks);
        Ok(())
    }

    fn queue_as(&mut self, id: u64, chunks: Vec<(TargetId, ChunkId)>) {
        let row = Deletion { index: self.scene.index, chunks };
        self.put(key::numbered(self.scene.shard, Table::Deletion, id), &row);
        self.effects.push(Effect::Deletion(id, row.chunks));
    }

    /// The pending truncate of a file.
    pub fn trim(&self, ino: Ino) -> Result<Option<Trim>, StoreError> {
        self.row(&key::of_ino(Table::Trim, ino), "trim")
    }

    /// The growth intent of a file.
    pub fn growth(&self, ino: Ino) -> Result<Option<Growth>, StoreError> {
        self.row(&key::of_ino(Table::Growth, ino), "growth")
    }

    /// Gives up the pending truncate of a file: its chunks go.
    pub fn drop_trim(&mut self, ino: Ino) -> Result<(), Fail> {
        if let Some(trim) = self.trim(ino)? {
            self.txn.delete(key::of_ino(Table::Trim, ino));
            self.effects.push(Effect::TrimGone(ino, trim.id));
        }
        Ok(())
    }

    /// The seal of an extent of a file that is under way.
    pub fn seal(&self, ino: Ino) -> Result<Option<Seal>, StoreError> {
        self.row(&key::of_ino(Table::Seal, ino), "seal")
    }

    /// It is over.
    pub fn drop_seal(&mut self, ino: Ino) -> Result<(), Fail> {
        if let Some(seal) = self.seal(ino)? {
            self.txn.delete(key::of_ino(Table::Seal, ino));
            self.effects.push(Effect::SealGone(ino, seal.id));
        }
        Ok(())
    }

    /// Gives up a growth: its chunks go, its generation is never used again. When its owner may be
    /// copying, they go a second time once it cannot be: see [`Ctx::lane_is_over`].
    pub fn cancel_growth(&mut self, ino: Ino) -> Result<(), Fail> {
        if let Some(growth) = self.growth(ino)? {
            self.txn.delete(key::of_ino(Table::Growth, ino));
            self.effects.push(Effect::GrowthGone(ino));
            if self.may_be_copying(&growth)? {
                let generation = growth.layout.generation;
                self.put(key::dead_growth(growth.client, growth.slot, ino, generation), &growth);
                self.effects.push(Effect::GrowthDead(growth.client, growth.slot));
            }
            self.queue_deletion(&[&growth.layout])?;
        }
        Ok(())
    }

    /// Has the owner of a growth asked for nothing since? Its session and its lane live then, as far as the
    /// rows tell, and it may send its copy again to a target that has forgotten the deletion by a restart.
    fn may_be_copying(&self, growth: &Growth) -> Result<bool, Fail> {
        let (client, slot) = (growth.client, growth.slot);
        if self.scene.caller.is_some_and(|caller| (caller.client, caller.slot) == (client, slot)) {
            return Ok(false);
        }
        let last: Option<SlotRow> = self.row(&key::slot(self.scene.shard, client, slot), "slot")?;
        Ok(last.is_some_and(|last| growth.index.is_none_or(|index| index == last.index)))
    }

    /// A lane copies no growth any more that was given up before: what its copies may have brought back
    /// goes again. Once at most in a command.
    pub fn lane_is_over(&mut self, client: ClientId, slot: Slot) -> Result<(), Fail> {
        let (from, until) = key::dead_growths_of(self.scene.shard, client, slot);
        let mut rows = Vec::new();
        self.txn.scan(&from, &until, &mut |key, bytes| {
            rows.push((key.to_vec(), bytes.to_vec()));
            true
        })?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut chunks = Vec::new();
        for (key, bytes) in rows {
            let growth = Growth::from_bytes(&bytes).map_err(|e| corrupt("dead growth row", e))?;
            chunks.extend(growth.layout.chunks().map(|(chunk, target)| (target, chunk)));
            self.txn.delete(key);
        }
        self.queue_as(AGAIN | self.scene.index.0, chunks);
        self.effects.push(Effect::GrowthOver(client, slot));
        Ok(())
    }

    /// Clients may write to the chunks of `ino` from now on. The row tells after any crash whose
    /// uncommitted writes the size must be recovered from, should the client be gone by then.
    /// `true`: somebody was not known to.
    pub fn add_writers(&mut self, ino: Ino, clients: &[ClientId]) -> Result<bool, Fail> {
        self.add_writers_as(ino, clients, &[])
    }

    /// The same of one who reports while what an earlier term has lent may cover `ino`. His row says so as long as it
    /// stands: the next term must not take the file for one that nobody knows.
    pub fn add_held_writer(&mut self, ino: Ino, client: ClientId) -> Result<bool, Fail> {
        self.add_writers_as(ino, &[client], &[1])
    }

    fn add_writers_as(&mut self, ino: Ino, clients: &[ClientId], value: &[u8]) -> Result<bool, Fail> {
        let mut news = false;
        for client in clients {
            let row = key::writer(ino, *client);
            if self.txn.get(&row)?.is_none() {
                self.txn.put(row, value.to_vec());
                self.effects.push(Effect::Writer(ino, *client));
                news = true;
            }
        }
        Ok(news)
    }

    /// A client writes to the chunks of `ino` no longer.
    pub fn remove_writer(&mut self, ino: Ino, client: ClientId) {
        self.txn.delete(key::writer(ino, client));
        self.effects.push(Effect::WriterGone(ino, client));
    }

    /// Nobody does any longer: the chunks go.
    pub fn remove_writers(&mut self, ino: Ino) -> Result<(), Fail> {
        let (from, until) = key::range_of_ino(Table::Writer, ino);
        let mut clients = Vec::new();
        self.txn.scan(&from, &until, &mut |key, _| {
            clients.push(ClientId(key::last_u64(key)));
            true
        })?;
        for client in clients {
            self.remove_writer(ino, client);
        }
        Ok(())
    }

    /// The last name of `ino` is gone: it stays as an orphan while it may be open.
    pub fn bury(&mut self, ino: Ino, inode: &mut Inode) -> Result<(), Fail> {
        inode.nlink = 0;
        inode.links.clear();
        if self.choose.held(ino) {
            inode.touch(self.scene.at);
            self.put_inode(ino, inode);
            self.txn.put(key::of_ino(Table::Orphan, ino), Vec::new());
            self.effects.push(Effect::Orphan(ino));
            return Ok(());
        }
        self.erase(ino, inode)
    }

    /// A file that was made without a name: an orphan from its birth.
    pub fn bear_nameless(&mut self, ino: Ino) {
        self.txn.put(key::of_ino(Table::Orphan, ino), Vec::new());
        self.effects.push(Effect::Orphan(ino));
    }

    /// An orphan gets a name.
    pub fn unbury(&mut self, ino: Ino) {
        self.txn.delete(key::of_ino(Table::Orphan, ino));
        self.effects.push(Effect::OrphanNamed(ino));
    }

    /// Deletes everything of an inode; its chunks go to the deletion queue.
    pub fn erase(&mut self, ino: Ino, inode: &Inode) -> Result<(), Fail> {
        self.txn.delete(key::inode(ino));
        if inode.inline_len > 0 {
            self.txn.delete(key::of_ino(Table::Inline, ino));
        }
        if inode.xattr_bytes > 0 {
            let (from, until) = key::range_of_ino(Table::Xattr, ino);
            let mut keys = Vec::new();
            self.txn.scan(&from, &until, &mut |key, _| {
                keys.push(key.to_vec());
                true
            })?;
            for key in keys {
                self.txn.delete(key);
            }
        }
        if inode.kind == Kind::File {
            if inode.layout.is_inline() {
                self.cancel_growth(ino)?;
            } else {
                self.drop_trim(ino)?;
                self.drop_seal(ino)?;
                self.remove_writers(ino)?;
                self.queue_deletion(&[&inode.layout])?;
            }
        }
        self.effects.push(Effect::Gone(ino));
        Ok(())
    }

    /// Decides a transaction over shards, if all participants have promised their part. What they promised, in the order
    /// of the plan.
    pub fn decide(&mut self, plan: Plan) -> Result<Decided, Fail> {
        let participants: Vec<ShardId> = plan.parts.iter().map(|(shard, _)| *shard).collect();
        let decided = self.choose.decided(plan)?;
        let txid = TxnId { shard: self.scene.shard, term: self.scene.term, counter: decided.counter };
        self.put(key::decision(txid), &Decision { participants: participants.clone() });
        self.effects.push(Effect::Decided(txid, participants));
        Ok(decided)
    }

    /// What this shard has promised to a coordinator.
    pub fn prepared(&self, txid: TxnId) -> Result<Option<Prepared>, StoreError> {
        self.row(&key::prepared(self.scene.shard, txid), "prepared")
    }

    /// The layout to be shown for a file that others write to; marks the answer when that layout
    /// is not durable yet.
    pub fn live(&mut self, ino: Ino, inode: &Inode) -> Option<Layout> {
        if inode.layout.is_inline() || !self.choose.live(ino) {
            return None;
        }
        self.show(ino, inode);
        Some(inode.layout.clone())
    }

    /// Attributes as the caller may believe them. Set-id bits are not in force while another client may write to
    /// the chunks: it need not have seen them, and what it writes would be run with the owner's rights. Its commit
    /// or its end clears them if an ordinary user wrote.
    pub fn attr(&self, ino: Ino, inode: &Inode) -> Result<Attr, Fail> {
        let mut attr = inode.attr(ino);
        if inode.kind == Kind::File
            && inode.mode & SETID != 0
            && !inode.layout.is_inline()
            && self.others_may_write(ino)?
        {
            attr.mode &= !SETID;
        }
        Ok(attr)
    }

    fn others_may_write(&self, ino: Ino) -> Result<bool, Fail> {
        let own = key::writer(ino, self.scene.client);
        let (from, until) = key::range_of_ino(Table::Writer, ino);
        let mut others = false;
        self.txn.scan(&from, &until, &mut |key, _| {
            others = own.as_slice() != key;
            !others
        })?;
        Ok(others)
    }

    /// The answer holds the layout of `inode`.
    pub fn show(&mut self, ino: Ino, inode: &Inode) {
        if !inode.layout.is_inline() && self.choose.settling(ino) {
            self.shows_undurable = true;
        }
    }

    /// Largest content of `inode` that stays in the metadata.
    pub fn inline_limit(&self, inode: &Inode) -> u32 {
        inode.policy.and_then(|policy| policy.inline_limit).unwrap_or(self.scene.inline_limit)
    }

    /// The record that this command becomes.
    pub fn record(&self) -> LogPlace {
        (self.scene.term, self.scene.index)
    }

    /// The name of `ino` at `old` is now at `new`.
    pub fn relink(inode: &mut Inode, old: LinkRef, new: LinkRef) {
        match inode.links.iter_mut().find(|link| **link == old) {
            Some(link) => *link = new,
            None => inode.links.push(new),
        }
    }
}

/// Not everybody has told yet which files he holds.
pub fn untold(ino: Ino) -> Refusal {
    Refusal::with(Status::GRACE, format!("clients are still telling whether one of them holds file {ino}"))
}

/// The request names an inode of another shard.
fn astray(ino: Ino, shard: ShardId) -> Fail {
    Refusal::with(
        Status::MALFORMED,
        format!("inode {ino} belongs to shard {}, the request went to shard {shard}", ino.shard()),
    )
    .into()
}

//! A mount that measures the network without the disks (`skep bench net`): contents of what is made through it are
//! dropped. The rules know nothing of it: between them and the connections, requests for such chunk files become the
//! messages by which a network is measured, and their answers those of an empty chunk file.

use skep_client::{Answer, Call, Outcome};
use skep_types::{ChunkId, Decode, Encode, Errno, Ino, Reader};
use skep_wire::instrument::{Discard, Fabricate};
use skep_wire::meta::{
    Commit, Create, CreateTemp, EntryReply, MakeNode, MakeSymlink, OpenReply, ShardCall, ShardStamp, Switch,
};
use skep_wire::storage::{
    ChunkReply, CopyChunk, PunchChunk, ReadChunk, ReadChunkReply, ReserveChunk, StorageRequest, SyncChunks,
    SyncChunksReply, WriteChunk, WriteChunkReply,
};
use skep_wire::{Message, Refusal, Status};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files and directories remembered; contents of files beyond go to the disks, which the mount's log says.
const MADE_MAX: usize = 1 << 20;
/// Life of a target that nothing was written to: syncs of what was dropped are known by it.
const NO_LIFE: u64 = u64::MAX;

#[derive(Default)]
pub struct Netbench {
    /// What was made through this mount.
    made: Mutex<BTreeSet<Ino>>,
    over: AtomicBool,
}

/// What goes out instead of a call.
struct Instead {
    kind: u16,
    body: Vec<u8>,
    /// Status and body of the answer that the rules see, if it is accepted; `None`: the one that comes.
    answer: Option<(Status, Vec<u8>)>,
}

impl Instead {
    fn discard(reply: &impl Encode) -> Self {
        let answer = Some((Status(0), reply.to_bytes()));
        Self { kind: Discard::KIND, body: Discard {}.to_bytes(), answer }
    }

    fn fabricate(len: u32, reply: &impl Encode) -> Self {
        let answer = Some((Status(0), reply.to_bytes()));
        Self { kind: Fabricate::KIND, body: Fabricate { len }.to_bytes(), answer }
    }

    fn refusal(errno: Errno) -> Self {
        let answer = Some((Status::errno(errno), Refusal::from(errno).to_bytes()));
        Self { kind: Discard::KIND, body: Discard {}.to_bytes(), answer }
    }

    fn put(&self, call: &mut Call<'_>) {
        let Outcome::Answer(answer) = &mut call.outcome else { return };
        if answer.status != Status(0) {
            return;
        }
        if let Some((status, body)) = &self.answer {
            (answer.status, answer.body) = (*status, body.clone());
        }
        // Zeros, not what the server's buffer held: that may be another user's.
        if let Some(payload) = call.into.get_mut(..answer.payload_len) {
            payload.fill(0);
        }
    }
}

impl Netbench {
    fn made(&self) -> MutexGuard<'_, BTreeSet<Ino>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Was it made through this mount?
    pub fn has(&self, ino: Ino) -> bool {
        self.made().contains(&ino)
    }

    /// From now on contents are kept, whatever they are of.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }

    /// Does `ask` with what is to be sent.
    pub async fn around(&self, calls: &mut [Call<'_>], ask: impl AsyncFnOnce(&mut [Call<'_>])) {
        let instead: Vec<Option<Instead>> = calls.iter().map(|call| self.instead(call)).collect();
        let mut sent: Vec<Call<'_>> = Vec::with_capacity(calls.len());
        for (call, instead) in calls.iter_mut().zip(&instead) {
            let (kind, body) = instead.as_ref().map_or((call.kind, call.body), |one| (one.kind, &one.body));
            let (node, client, epoch, changing) = (call.node, call.client, call.epoch, call.changing);
            let (payload, into) = (call.payload, &mut *call.into);
            let outcome = Outcome::Unreachable;
            sent.push(Call { node, client, kind, epoch, body, payload, into, changing, outcome });
        }
        ask(&mut sent).await;
        let outcomes: Vec<Outcome> = sent.into_iter().map(|call| call.outcome).collect();
        for ((call, instead), outcome) in calls.iter_mut().zip(instead).zip(outcomes) {
            call.outcome = outcome;
            match instead {
                Some(instead) => instead.put(call),
                None => self.learn(call),
            }
        }
    }

    fn instead(&self, call: &Call<'_>) -> Option<Instead> {
        if matches!(call.kind, Switch::KIND | Commit::KIND) {
            return self.without_chunks(call);
        }
        let request = StorageRequest::decode(call.kind, &mut Reader::new(call.body)).ok()??;
        let drops = |chunk: &ChunkId| self.drops(chunk.ino);
        let nothing = ChunkReply { size: 0, blocks: 0, life: NO_LIFE };
        Some(match request {
            StorageRequest::ReadChunk(ReadChunk { chunk, offset, len, .. }) if drops(&chunk) => {
                Instead::fabricate(len, &ReadChunkReply { size: offset.saturating_add(len.into()) })
            }
            StorageRequest::WriteChunk(WriteChunk { chunk, uncut, .. }) if drops(&chunk) => {
                Instead::discard(&WriteChunkReply {
                    size: 0,
                    blocks: 0,
                    life: NO_LIFE,
                    cuts: uncut,
                    room: None,
                    clock: None,
                })
            }
            StorageRequest::PunchChunk(PunchChunk { chunk, .. })
            | StorageRequest::ReserveChunk(ReserveChunk { chunk, .. })
                if drops(&chunk) =>
            {
                Instead::discard(&nothing)
            }
            // As between daemons: the mount reads and writes.
            StorageRequest::CopyChunk(CopyChunk { chunk, from_chunk, .. })
                if drops(&chunk) || drops(&from_chunk) =>
            {
                Instead::refusal(Errno::EXDEV)
            }
            StorageRequest::SyncChunks(SyncChunks { chunks, life: NO_LIFE, .. }) => {
                Instead::discard(&SyncChunksReply { sizes: vec![0; chunks.len()] })
            }
            _ => return None,
        })
    }

    /// No chunk file of it holds a byte: the shard is told of none, or other mounts would miss it.
    fn without_chunks(&self, call: &Call<'_>) -> Option<Instead> {
        let mut r = Reader::new(call.body);
        let mut body = ShardCall::decode(&mut r).ok()?.to_bytes();
        if call.kind == Switch::KIND {
            let switch = Switch::decode(&mut r).ok().filter(|m| self.drops(m.ino))?;
            Switch { copied: 0, ..switch }.encode(&mut body);
        } else {
            let commit = Commit::decode(&mut r).ok().filter(|m| self.drops(m.ino))?;
            Commit { held: None, ..commit }.encode(&mut body);
        }
        Some(Instead { kind: call.kind, body, answer: None })
    }

    fn drops(&self, ino: Ino) -> bool {
        !self.over.load(Relaxed) && self.has(ino)
    }

    /// Remembers what an answer says was made.
    fn learn(&self, call: &Call<'_>) {
        let Outcome::Answer(Answer { status: Status(0), body, .. }) = &call.outcome else { return };
        let mut r = Reader::new(body);
        let made = match call.kind {
            Create::KIND | CreateTemp::KIND => after_stamp::<OpenReply>(&mut r)
                .and_then(|reply| (reply.created || call.kind == CreateTemp::KIND).then_some(reply.attr.ino)),
            MakeNode::KIND | MakeSymlink::KIND => after_stamp::<EntryReply>(&mut r).map(|reply| reply.ino),
            _ => None,
        };
        let Some(ino) = made else { return };
        let mut all = self.made();
        match all.len() {
            MADE_MAX => warning!(
                "netbench: contents of inode {ino} are kept on disks, for more than {MADE_MAX} files were made: make \
                 fewer, or the figures are not of the network alone"
            ),
            _ => drop(all.insert(ino)),
        }
    }
}

fn after_stamp<T: Decode>(r: &mut Reader<'_>) -> Option<T> {
    ShardStamp::decode(r).ok()?;
    T::decode(r).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_client::MGMTD;
    use skep_types::codec::{Draw, Example};
    use skep_types::{ClientId, FenceEpoch, Generation, Held, Incarnation, Kind, Name, TargetId};
    use skep_wire::storage::Owner;

    const MADE: Ino = Ino(10);

    fn chunk(ino: Ino) -> ChunkId {
        ChunkId { ino, generation: Generation(1), extent: 0, stripe: 0 }
    }

    /// Sends one call, to a server that accepts everything with an answer of its own; the number and the body that it
    /// got, the answer that the rules see, and what was read.
    fn send<M: Message>(netbench: &Netbench, message: &M, reply: &[u8]) -> (u16, Vec<u8>, Answer, Vec<u8>) {
        send_bytes(netbench, M::KIND, &message.to_bytes(), reply)
    }

    fn send_bytes(
        netbench: &Netbench,
        kind: u16,
        body: &[u8],
        reply: &[u8],
    ) -> (u16, Vec<u8>, Answer, Vec<u8>) {
        let mut into = vec![7; 8];
        let (client, epoch, incarnation) = (ClientId(1), FenceEpoch(0), Incarnation(1));
        let outcome = Outcome::Unreachable;
        let call = Call {
            node: MGMTD,
            client,
            kind,
            epoch,
            body,
            payload: &[],
            into: &mut into,
            changing: false,
            outcome,
        };
        let (mut calls, mut got) = ([call], (0, Vec::new()));
        let ask = async |calls: &mut [Call<'_>]| {
            got = (calls[0].kind, calls[0].body.to_vec());
            let payload_len = if calls[0].kind == Fabricate::KIND { 4 } else { 0 };
            let (status, body) = (Status(0), reply.to_vec());
            calls[0].outcome = Outcome::Answer(Answer { status, body, payload_len, incarnation, epoch });
        };
        crate::mount::drive(netbench.around(&mut calls, ask));
        let [Call { outcome: Outcome::Answer(answer), .. }] = calls else { panic!("no answer") };
        (got.0, got.1, answer, into)
    }

    fn write(ino: Ino) -> WriteChunk {
        let (owner, target) = (Owner::default(), TargetId(1));
        WriteChunk {
            target,
            chunk: chunk(ino),
            offset: 5,
            owner,
            floor: 0,
            sync: true,
            uncut: Some(3),
            later: None,
            until: None,
        }
    }

    /// With one inode that was made through it.
    fn measuring() -> Netbench {
        let netbench = Netbench::default();
        let made = MakeNode {
            parent: Ino(1),
            name: Name::new(b"n").unwrap(),
            kind: Kind::Dir,
            mode: 0,
            umask: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
        };
        let mut reply = ShardStamp::default().to_bytes();
        reply.extend(EntryReply { ino: MADE, kind: Kind::Dir, attr: None, live: None }.to_bytes());
        send(&netbench, &made, &reply);
        netbench
    }

    /// Goal: of what was made through the mount nothing goes to a disk or comes from one, its chunk files seem empty
    /// and none is ever missed; requests for anything else pass as they are, and so does all when it is over, but for
    /// syncs of what was dropped.
    #[test]
    fn only_what_was_made_is_dropped() {
        let netbench = measuring();
        assert!(netbench.has(MADE) && !netbench.has(Ino(11)));
        let other = send(&netbench, &write(Ino(11)), b"real");
        assert_eq!(
            (other.0, other.1, &other.2.body[..]),
            (WriteChunk::KIND, write(Ino(11)).to_bytes(), &b"real"[..])
        );
        let written = send(&netbench, &write(MADE), b"");
        assert_eq!(written.0, Discard::KIND);
        let reply =
            WriteChunkReply { size: 0, blocks: 0, life: NO_LIFE, cuts: Some(3), room: None, clock: None };
        assert_eq!(WriteChunkReply::from_bytes(&written.2.body), Ok(reply));
        let read = |ino| ReadChunk { target: TargetId(1), chunk: chunk(ino), offset: 5, len: 4 };
        let (kind, body, answer, into) = send(&netbench, &read(MADE), b"");
        assert_eq!((kind, body), (Fabricate::KIND, Fabricate { len: 4 }.to_bytes()));
        assert_eq!(ReadChunkReply::from_bytes(&answer.body), Ok(ReadChunkReply { size: 9 }));
        assert_eq!(into, [0, 0, 0, 0, 7, 7, 7, 7], "zeros, and nothing behind them");
        let switch = Switch { ino: MADE, generation: Generation(1), inline_version: 1, copied: 100 };
        let on_shard =
            |message: &[u8]| [&ShardCall { epoch: 7, ..ShardCall::default() }.to_bytes(), message].concat();
        let sent = send_bytes(&netbench, Switch::KIND, &on_shard(&switch.to_bytes()), b"x");
        let expected = on_shard(&Switch { copied: 0, ..switch }.to_bytes());
        assert_eq!((sent.1, &sent.2.body[..]), (expected, &b"x"[..]));
        for (ino, held) in [(MADE, None), (Ino(11), Some(Held::default()))] {
            let commit = Commit { ino, held: Some(Held::default()), ..Commit::example(Draw::BARE) };
            let sent = send_bytes(&netbench, Commit::KIND, &on_shard(&commit.to_bytes()), b"x");
            assert_eq!(sent.1, on_shard(&Commit { held, ..commit }.to_bytes()));
        }
        let sync = |life| SyncChunks { target: TargetId(1), chunks: vec![chunk(MADE)], life };
        assert_eq!(send(&netbench, &sync(4), b"").0, SyncChunks::KIND);
        netbench.end();
        let synced = send(&netbench, &sync(NO_LIFE), b"");
        assert_eq!(synced.0, Discard::KIND);
        assert_eq!(SyncChunksReply::from_bytes(&synced.2.body), Ok(SyncChunksReply { sizes: vec![0] }));
        assert_eq!(send(&netbench, &write(MADE), b"").0, WriteChunk::KIND);
        assert_eq!(send(&netbench, &read(MADE), b"").0, ReadChunk::KIND);
    }

    /// Goal: no daemon copies what is nowhere: the mount does, as between two daemons.
    #[test]
    fn copies_go_through_the_mount() {
        let netbench = measuring();
        let copy = |to, from| CopyChunk {
            target: TargetId(1),
            chunk: chunk(to),
            offset: 0,
            from_target: TargetId(1),
            from_chunk: chunk(from),
            from_offset: 0,
            len: 9,
            owner: Owner::default(),
            floor: 0,
            from_floor: 0,
        };
        for (to, from) in [(MADE, Ino(11)), (Ino(11), MADE)] {
            let (kind, _, answer, _) = send(&netbench, &copy(to, from), b"");
            assert_eq!((kind, answer.status), (Discard::KIND, Status::errno(Errno::EXDEV)));
            Refusal::from_bytes(&answer.body).unwrap();
        }
        assert_eq!(send(&netbench, &copy(Ino(11), Ino(12)), b"").0, CopyChunk::KIND);
    }
}

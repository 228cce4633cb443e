//! Who may speak for a shard: a target that has heard of a later term refuses the messages of earlier ones.
//!
//! A metadata server that another one took a shard over from may have a message on its way still: a truncate that lands
//! behind the other's, and behind what a client wrote then, would take data. See `docs/design/storage.md`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use core::slice;
use skep_types::limits::SHARDS_MAX;
use skep_types::{ChunkId, Role, ShardId, Term, record};
use skep_wire::storage::{ShardTerm, StorageRequest};
use skep_wire::{Refusal, Status};

record! {
    /// The highest terms that a target has heard of, as it keeps them over restarts.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct KeptTerms {
        /// One for each shard that ever spoke to the target.
        pub terms: Vec<ShardTerm>,
    }
}

/// What becomes of a message of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is carried out now, and counts as in work until [`Terms::ended`].
    Now,
    /// First [`Terms::to_keep`] must be on stable storage; then ask again.
    Keep,
    /// Work of an earlier term is not over; then ask again.
    Wait,
}

#[derive(Debug, Default)]
struct Place {
    /// The highest term heard of: earlier ones are refused from then on.
    heard: Term,
    /// As far as it is on stable storage.
    kept: Term,
    in_work: BTreeMap<Term, u32>,
}

/// The terms that one target has heard of: [`SHARDS_MAX`] at most.
#[derive(Debug, Default)]
pub struct Terms {
    shards: BTreeMap<ShardId, Place>,
}

impl Terms {
    /// As they were kept.
    pub fn new(kept: &KeptTerms) -> Self {
        let place = |by: &ShardTerm| (by.shard, Place { heard: by.term, kept: by.term, ..Place::default() });
        Self { shards: kept.terms.iter().map(place).collect() }
    }

    /// A message of this term wants to be carried out.
    pub fn ask(&mut self, by: ShardTerm) -> Result<Turn, Refusal> {
        self.turn(by, true)
    }

    /// As [`Terms::ask`], of a message that [`makes_room`], where there is no room to keep its term: it is not kept, and
    /// earlier ones are refused only until a restart.
    pub fn ask_unkept(&mut self, by: ShardTerm) -> Result<Turn, Refusal> {
        self.turn(by, false)
    }

    fn turn(&mut self, by: ShardTerm, must_be_kept: bool) -> Result<Turn, Refusal> {
        let place = self.shards.entry(by.shard).or_default();
        if by.term < place.heard {
            let text = format!("shard {} is in term {}, this is of term {}", by.shard, place.heard, by.term);
            return Err(Refusal { term: Some(place.heard), ..Refusal::with(Status::OLD_TERM, text) });
        }
        place.heard = by.term;
        if must_be_kept && place.kept < by.term {
            return Ok(Turn::Keep);
        }
        if place.in_work.keys().any(|term| *term < by.term) {
            return Ok(Turn::Wait);
        }
        *place.in_work.entry(by.term).or_default() += 1;
        Ok(Turn::Now)
    }

    /// A message that was carried out is done.
    pub fn ended(&mut self, by: ShardTerm) {
        let Some(place) = self.shards.get_mut(&by.shard) else { return };
        if let Some(count) = place.in_work.get_mut(&by.term) {
            *count -= 1;
            if *count == 0 {
                place.in_work.remove(&by.term);
            }
        }
    }

    /// What is to be put on stable storage, unless it is there: all at once, for many shards begin terms together.
    pub fn to_keep(&self) -> Option<KeptTerms> {
        let news = self.shards.values().any(|place| place.kept < place.heard);
        news.then(|| {
            let all = self.shards.iter().filter(|(_, place)| place.heard > Term(0));
            let all = all.map(|(shard, place)| ShardTerm { shard: *shard, term: place.heard });
            KeptTerms { terms: all.collect() }
        })
    }

    /// It is there.
    pub fn kept(&mut self, kept: &KeptTerms) {
        for by in &kept.terms {
            let place = self.shards.entry(by.shard).or_default();
            place.kept = place.kept.max(by.term);
        }
    }
}

/// May it be carried out though its term cannot be kept for lack of room? A chunk file that was deleted never comes
/// again, so nothing that an earlier term does after a restart can spoil it: see `docs/design/storage.md`.
pub fn makes_room(request: &StorageRequest) -> bool {
    matches!(request, StorageRequest::DeleteChunks(_))
}

/// In whose name a request comes that shards send: `None` for all others, and for those of clients and administrators,
/// who have no term.
pub fn speaker(role: Role, request: &StorageRequest) -> Result<Option<ShardTerm>, Refusal> {
    let (by, chunks): (_, &[ChunkId]) = match request {
        StorageRequest::TrimChunk(m) => (m.by, slice::from_ref(&m.chunk)),
        StorageRequest::SealChunk(m) => (Some(m.by), slice::from_ref(&m.chunk)),
        StorageRequest::DeleteChunks(m) => (m.by, &m.chunks),
        StorageRequest::StatChunks(m) => (m.by, &m.chunks),
        _ => return Ok(None),
    };
    let malformed = |text: &str| Err(Refusal::with(Status::MALFORMED, text));
    match by {
        None if role == Role::Server => {
            malformed("a metadata server must say in which term of which shard it asks")
        }
        None => Ok(None),
        // Else a client could depose a shard.
        Some(_) if role != Role::Server => malformed("only metadata servers speak in the term of a shard"),
        Some(by) if by.shard.0 >= SHARDS_MAX || by.term == Term(0) => {
            malformed("there is no such shard or term")
        }
        Some(by) if chunks.iter().any(|chunk| chunk.ino.shard() != by.shard) => {
            malformed("a chunk file of another shard than the one that asks")
        }
        Some(by) => Ok(Some(by)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skep_types::{Generation, Ino, TargetId};
    use skep_wire::storage::{DeleteChunks, SealChunk, StatChunks, TrimChunk};

    const TARGET: TargetId = TargetId(101);

    fn by(shard: u16, term: u64) -> ShardTerm {
        ShardTerm { shard: ShardId(shard), term: Term(term) }
    }

    fn chunk(shard: u16) -> ChunkId {
        let ino = Ino::new(ShardId(shard), 7);
        ChunkId { ino, generation: Generation(1), extent: 0, stripe: 0 }
    }

    /// The four messages that shards send.
    fn messages(by: ShardTerm, shard: u16) -> [StorageRequest; 4] {
        let (target, chunk, chunks) = (TARGET, chunk(shard), vec![chunk(shard)]);
        let (size, keeps_reserved) = (0, None);
        [
            TrimChunk { target, by: Some(by), chunk, size, keeps_reserved }.into(),
            DeleteChunks { target, by: Some(by), chunks: chunks.clone() }.into(),
            StatChunks { target, by: Some(by), chunks }.into(),
            SealChunk { target, by, chunk, floor: 0 }.into(),
        ]
    }

    /// As the hands do, with a disk that keeps at once.
    fn ask(terms: &mut Terms, by: ShardTerm) -> Result<Turn, Status> {
        match terms.ask(by) {
            Ok(Turn::Keep) => {
                let table = terms.to_keep().unwrap();
                terms.kept(&table);
                terms.ask(by).map_err(|refusal| refusal.status)
            }
            turn => turn.map_err(|refusal| refusal.status),
        }
    }

    /// Goal: a late truncate, deletion, seal or question of a server that was deposed is refused by a status of its own,
    /// also after a restart; the term that is in force and every later one is served, and other shards are not touched.
    #[test]
    fn late_messages_of_an_old_term_are_refused() {
        let mut terms = Terms::default();
        for message in messages(by(2, 6), 2) {
            let of = speaker(Role::Server, &message).unwrap().unwrap();
            assert_eq!(ask(&mut terms, of), Ok(Turn::Now), "{message:?}");
            terms.ended(of);
        }
        let kept = KeptTerms { terms: vec![by(2, 6)] };
        for mut terms in [terms, Terms::new(&kept)] {
            for message in messages(by(2, 5), 2) {
                let old = speaker(Role::Server, &message).unwrap().unwrap();
                assert_eq!(ask(&mut terms, old), Err(Status::OLD_TERM), "{message:?}");
            }
            assert_eq!(ask(&mut terms, by(2, 6)), Ok(Turn::Now));
            assert_eq!(ask(&mut terms, by(3, 1)), Ok(Turn::Now), "another shard's terms are its own");
            terms.ended(by(2, 6));
            assert_eq!(ask(&mut terms, by(2, 9)), Ok(Turn::Now));
            assert_eq!(ask(&mut terms, by(2, 8)), Err(Status::OLD_TERM));
            terms.ended(by(2, 9));
            assert_eq!(ask(&mut terms, by(2, 8)), Err(Status::OLD_TERM), "also when nothing is in work");
        }
    }

    /// Goal: a later term waits until all that earlier ones have in work is done, and nothing of theirs begins any more
    /// meanwhile; what other shards have in work holds up nobody.
    #[test]
    fn a_later_term_waits_for_work_of_earlier_ones() {
        let mut terms = Terms::default();
        assert_eq!(ask(&mut terms, by(2, 5)), Ok(Turn::Now));
        assert_eq!(ask(&mut terms, by(2, 5)), Ok(Turn::Now), "one term has many messages in work");
        assert_eq!(ask(&mut terms, by(3, 1)), Ok(Turn::Now));
        assert_eq!(ask(&mut terms, by(2, 6)), Ok(Turn::Wait));
        assert_eq!(ask(&mut terms, by(2, 5)), Err(Status::OLD_TERM), "a later one has come");
        terms.ended(by(2, 5));
        assert_eq!(ask(&mut terms, by(2, 6)), Ok(Turn::Wait), "one is in work still");
        assert_eq!(ask(&mut terms, by(3, 2)), Ok(Turn::Wait));
        terms.ended(by(2, 5));
        assert_eq!(ask(&mut terms, by(2, 6)), Ok(Turn::Now));
        terms.ended(by(3, 1));
        assert_eq!(ask(&mut terms, by(3, 2)), Ok(Turn::Now));
    }

    /// Goal: nothing of a term is carried out before the term is on stable storage, or a restart would forget whom it
    /// deposed; one write keeps the terms of all shards that have begun new ones.
    #[test]
    fn a_term_is_kept_before_it_acts() {
        let mut terms = Terms::new(&KeptTerms { terms: vec![by(1, 4)] });
        assert_eq!(terms.to_keep(), None);
        assert_eq!(terms.ask(by(1, 4)), Ok(Turn::Now));
        assert_eq!(terms.ask(by(1, 5)), Ok(Turn::Keep));
        assert_eq!(terms.ask(by(2, 3)), Ok(Turn::Keep));
        let table = terms.to_keep().unwrap();
        assert_eq!(table.terms, [by(1, 5), by(2, 3)]);
        assert_eq!(terms.ask(by(2, 4)), Ok(Turn::Keep), "the write is under way, of an older one");
        terms.kept(&table);
        assert_eq!(terms.ask(by(2, 4)), Ok(Turn::Keep));
        let refusal = terms.ask(by(2, 3)).unwrap_err();
        assert_eq!(
            (refusal.status, refusal.term),
            (Status::OLD_TERM, Some(Term(4))),
            "it says which is in force"
        );
        assert_eq!(terms.ask(by(1, 5)), Ok(Turn::Wait), "kept, but its predecessor is in work");
        let table = terms.to_keep().unwrap();
        assert_eq!(table.terms, [by(1, 5), by(2, 4)]);
        terms.kept(&table);
        assert_eq!(terms.ask(by(2, 4)), Ok(Turn::Now));
        assert_eq!(terms.to_keep(), None);
    }

    /// Goal: on a full disk deletions go on, and only they; they too wait for earlier terms and are refused in one of
    /// those, and do not count as kept.
    #[test]
    fn deletions_go_on_where_nothing_can_be_kept() {
        assert_eq!(messages(by(2, 5), 2).map(|message| makes_room(&message)), [false, true, false, false]);
        let mut terms = Terms::new(&KeptTerms { terms: vec![by(2, 4)] });
        assert_eq!(terms.ask(by(2, 4)), Ok(Turn::Now));
        assert_eq!(terms.ask_unkept(by(2, 5)), Ok(Turn::Wait));
        terms.ended(by(2, 4));
        assert_eq!(terms.ask_unkept(by(2, 5)), Ok(Turn::Now));
        assert_eq!(terms.ask(by(2, 5)), Ok(Turn::Keep), "others wait for room");
        assert_eq!(terms.ask_unkept(by(2, 4)).unwrap_err().status, Status::OLD_TERM);
        assert_eq!(terms.to_keep().unwrap().terms, [by(2, 5)], "as soon as there is room");
    }

    /// Goal: a server's message names its shard and is of that shard's chunk files alone; nobody else can speak in a
    /// term, or a client could depose a shard; clients and administrators are served without one.
    #[test]
    fn who_speaks_is_checked() {
        let refused = |role, message: &StorageRequest| match speaker(role, message) {
            Err(refusal) => refusal.status == Status::MALFORMED,
            Ok(_) => false,
        };
        for message in messages(by(2, 5), 2) {
            assert_eq!(speaker(Role::Server, &message), Ok(Some(by(2, 5))));
            assert!(refused(Role::Client, &message) && refused(Role::Admin, &message), "{message:?}");
        }
        for wrong in
            [messages(by(2, 5), 3), messages(by(2, 0), 2), messages(by(SHARDS_MAX, 5), SHARDS_MAX - 1)]
        {
            assert!(wrong.iter().all(|message| refused(Role::Server, message)), "{wrong:?}");
        }
        let chunks = vec![chunk(2), chunk(3)];
        let mixed = DeleteChunks { target: TARGET, by: Some(by(2, 5)), chunks: chunks.clone() }.into();
        assert!(refused(Role::Server, &mixed));
        let nobody = StatChunks { target: TARGET, by: None, chunks }.into();
        assert!(refused(Role::Server, &nobody));
        assert_eq!((speaker(Role::Client, &nobody), speaker(Role::Admin, &nobody)), (Ok(None), Ok(None)));
    }
}

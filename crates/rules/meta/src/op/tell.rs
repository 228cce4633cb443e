//! `Tell`: what became of a file that its mount holds.

use super::get_attr::attr_reply;
use super::{change_attr, commit, write_inline};
use crate::choose::Teller;
use crate::ctx::{Ctx, Done};
use crate::fail::{Fail, Need};
use crate::row::Inode;
use crate::row::inode::{MAY_BE_HELD, believed};
use crate::row::slot::Gate;
use skep_types::limits::INLINE_MAX;
use skep_types::{SetAttr, Timestamp};
use skep_wire::meta::Tell;
use skep_wire::{Refusal, Status};

/// Content, then the commit, then attributes, each as of its time: in one change, and as of when programs made it. So the
/// change time is not the server's present, unless the clock of the mount is not believed.
pub fn run(ctx: &mut Ctx<'_>, m: &Tell) -> Result<Done, Fail> {
    if m.set.size.is_some() || m.commit.as_ref().is_some_and(|commit| commit.ino != m.ino) {
        let text = "a size is set, or another file is committed, by a request of its own";
        return Err(Refusal::with(Status::MALFORMED, text).into());
    }
    let mut inode = ctx.file(m.ino)?;
    let teller = ctx.choose.teller(m.ino, inode.change, m.hold.unwrap_or(0));
    let asks = m.keeps == Some(true) && only_asks(m);
    // Nobody has looked into it: he holds it once more, before he brings what he has for it.
    let again = teller == Teller::PassedOver && m.keeps == Some(true) && ctx.choose.holds_again(m.ino);
    // Content that is in the metadata is not kept by a hold that begins late.
    let is_wished = m.wishes == Some(true) && is_empty(m) && !inode.layout.is_inline();
    let keeps = match teller {
        _ if is_wished && ctx.choose.holds_as_wished() => true,
        // He is being passed over. As one who was, he may hold the file once more.
        Teller::Holder if asks && ctx.choose.may_be_held_again(m.ino) => {
            return Err(Fail::Wait(Need::Gate(Gate::Durable)));
        }
        Teller::Holder => ctx.choose.keeps(),
        Teller::PassedOver if again => true,
        // Who has bytes for the file, and asks whether it may bring them, is not answered as if it still might.
        Teller::TooLate if asks || !is_empty(m) => return Err(Status::HOLD_PASSED.into()),
        // An earlier try has told it, and others may have changed it since; or it was asked for before its create was answered.
        Teller::PassedOver | Teller::TooLate | Teller::Other if is_empty(m) => {
            return Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)?));
        }
        Teller::PassedOver => false,
        Teller::TooLate | Teller::Other => return Err(Status::NOT_HELD.into()),
    };
    let (before, now) = (inode.clone(), ctx.scene.at);
    let mut at = believed(m.at, now);
    let mut changed = false;
    let mut wrote = |inode: &mut Inode, time: Timestamp, time_sets: u64| {
        inode.wrote(time, time_sets, now);
        at = at.max(believed(time, now));
    };
    if let Some(content) = &m.content {
        write_inline::require_inline(&inode)?;
        if write_inline::put(ctx, m.ino, &mut inode, 0, &content.data.0, false)? {
            // Who tells knows of all times that were given, and tells those that came after the content.
            let time_sets = inode.time_sets;
            wrote(&mut inode, content.mtime, time_sets);
            changed = true;
        }
    }
    if let Some(commit) = &m.commit {
        let committed = commit::apply(ctx, &mut inode, commit)?;
        if committed.wrote {
            wrote(&mut inode, commit.mtime, commit.time_sets);
        }
        changed |= committed.wrote;
    }
    changed |= change_attr::owner_and_mode(ctx, m.ino, &mut inode, &m.set)?;
    changed |= change_attr::times(&mut inode, &m.set, believed(m.at, now));
    inode.flags = if keeps { inode.flags | MAY_BE_HELD } else { inode.flags & !MAY_BE_HELD };
    // Once, however much of it is told: its mount counts changes.
    (inode.ctime, inode.change) = (before.ctime, before.change);
    if changed {
        inode.touch(at);
    }
    if inode != before {
        ctx.put_inode(m.ino, &inode);
    }
    // Content in chunks goes to these.
    let most = if inode.layout.is_inline() { ctx.inline_limit(&inode).min(INLINE_MAX) } else { 0 };
    // A power cut must not take back that it is held by who was told so. (Read off the row: a replay finds the same.)
    let is_new = keeps && before.flags & MAY_BE_HELD == 0;
    let gate = if is_new { Gate::Durable } else { Gate::Open };
    Ok(Done { holds: keeps.then_some(most), ..Done::gated(&attr_reply(ctx, m.ino, &inode)?, gate) })
}

/// Is nothing told by it?
pub fn is_empty(m: &Tell) -> bool {
    m.content.is_none() && m.commit.is_none() && m.set == SetAttr::default()
}

/// Does it only ask whether the file is held still? Who answers those that look says with nothing that there is nothing to tell.
pub fn only_asks(m: &Tell) -> bool {
    is_empty(m) && m.answers.is_none()
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::codec::Bytes;
    use skep_types::{Errno, Generation, Ino, SetAttr, SetTime, Timestamp};
    use skep_wire::Status;
    use skep_wire::meta::{AttrReply, ChangeAttr, Commit, Content, ReadInline, Tell};

    fn nothing(ino: Ino) -> Tell {
        Tell {
            ino,
            content: None,
            commit: None,
            set: SetAttr::default(),
            at: Timestamp::default(),
            keeps: None,
            wishes: None,
            hold: None,
            answers: None,
        }
    }

    fn content(data: &[u8], mtime: Timestamp) -> Option<Content> {
        Some(Content { data: Bytes(data.to_vec()), mtime })
    }

    /// Told by who holds the file.
    fn tell(bed: &mut Bed, wish: Tell) -> Result<AttrReply, Status> {
        bed.server.makes_held(wish.ino, skep_types::ClientId(ME.client));
        bed.call(ME, wish)
    }

    fn later(time: Timestamp, secs: i64) -> Timestamp {
        Timestamp { secs: time.secs + secs, ..time }
    }

    fn read(bed: &mut Bed, ino: Ino) -> alloc::vec::Vec<u8> {
        let read = ReadInline { ino, short: alloc::vec![], trims: Default::default() };
        bed.call(ME, read).unwrap().inline.unwrap().0
    }

    /// A file that was made ten seconds ago.
    fn made(bed: &mut Bed) -> (Ino, skep_types::Attr) {
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.tick(10_000);
        (ino, bed.attr(ino).unwrap())
    }

    /// Goal: content, mode, owner and times are told in one change and one record, as of when they were made; the change time
    /// is not the server's present; sent again it is answered again; a restart reads the same.
    #[test]
    fn all_of_it_is_one_change() {
        let mut bed = Bed::new();
        let (ino, before) = made(&mut bed);
        let at = later(before.ctime, 3);
        let given = Timestamp { secs: 77, nanos: 7 };
        let set = SetAttr {
            mode: Some(0o600),
            uid: Some(5),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::At(given)),
            ..SetAttr::default()
        };
        let wish = Tell { content: content(b"told", later(before.ctime, 2)), set, at, ..nothing(ino) };
        let records = bed.log.len();
        let told = tell(&mut bed, wish.clone()).unwrap().attr;
        assert_eq!(bed.log.len(), records + 1);
        assert_eq!((told.size, told.mode, told.uid, told.blocks), (4, 0o600, 5, 1));
        assert_eq!((told.ctime, told.atime, told.mtime, told.is_mtime_given()), (at, at, given, true));
        assert_eq!((told.change, told.time_sets), (before.change + 1, 1));
        let again = bed.resend(ME, wish);
        assert_eq!(bed.reply::<AttrReply>(again).unwrap().unwrap().attr, told);
        assert_eq!(bed.log.len(), records + 1);
        for _ in 0..2 {
            assert_eq!((bed.attr(ino).unwrap(), read(&mut bed, ino)), (told.clone(), b"told".to_vec()));
            bed.check();
            bed.restart(&[]);
        }
    }

    /// Goal: times of a mount whose clock is ahead are believed up to a minute; those of one that is behind take no time back.
    #[test]
    fn clocks_are_believed_as_for_writes() {
        for (ahead, believed) in [(50, true), (100, false), (-100, true)] {
            let mut bed = Bed::new();
            let (ino, before) = made(&mut bed);
            let (mtime, at) = (later(bed.wall(), ahead), later(bed.wall(), ahead + 1));
            let set = SetAttr { atime: Some(SetTime::Now), ..SetAttr::default() };
            let told = tell(&mut bed, Tell { content: content(b"x", mtime), set, at, ..nothing(ino) });
            let told = told.unwrap().attr;
            let now = bed.wall();
            assert_eq!(told.atime == at, believed, "{ahead}");
            match ahead {
                50 => assert_eq!((told.mtime, told.ctime), (mtime, at)),
                100 => assert!(told.mtime == told.ctime && told.ctime <= now && told.ctime > before.ctime),
                _ => assert_eq!((told.mtime, told.ctime), (before.mtime, before.ctime)),
            }
            assert_eq!(told.change, before.change + 1);
        }
    }

    /// Goal: a change time covers what was written, also where the message says less; a file that was written to takes no
    /// time that was given before.
    #[test]
    fn what_was_written_has_its_time() {
        let mut bed = Bed::new();
        let (ino, before) = made(&mut bed);
        let given = SetAttr { mtime: Some(SetTime::At(Timestamp::default())), ..SetAttr::default() };
        bed.call(ME, ChangeAttr { ino, set: given }).unwrap();
        let ctime = bed.attr(ino).unwrap().ctime;
        let mtime = later(ctime, 2);
        let told = tell(&mut bed, Tell { content: content(b"x", mtime), ..nothing(ino) }).unwrap().attr;
        assert_eq!((told.mtime, told.ctime, told.is_mtime_given()), (mtime, mtime, false));
        assert!(told.btime == before.btime && told.ctime > ctime);
    }

    /// Goal: the commit of chunk files is told with the attributes, and both count once.
    #[test]
    fn chunk_files_are_committed() {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 100);
        bed.tick(10_000);
        let before = bed.attr(ino).unwrap();
        let mtime = later(before.ctime, 2);
        let commit = Commit {
            ino,
            generation: layout.generation,
            size: 900,
            cuts: before.cuts,
            mtime,
            time_sets: 0,
            blocks: Some(8),
            kill_suidgid: false,
            held: None,
        };
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let at = later(before.ctime, 1);
        let wish = Tell { commit: Some(commit.clone()), set, at, ..nothing(ino) };
        let told = tell(&mut bed, wish.clone()).unwrap().attr;
        assert_eq!((told.size, told.blocks, told.mode, told.mtime), (900, 8, 0o600, mtime));
        assert_eq!((told.ctime, told.change), (mtime, before.change + 1));
        let old = Commit { size: 1_000, cuts: 0, ..commit.clone() };
        assert_eq!(
            tell(&mut bed, Tell { commit: Some(old), ..wish.clone() }).err(),
            Some(Status::STALE_SIZE)
        );
        let gone = Commit { generation: Generation(9), ..commit };
        let refused = tell(&mut bed, Tell { commit: Some(gone), ..wish }).err();
        assert_eq!((refused, bed.attr(ino).unwrap()), (Some(Status::STALE_GENERATION), told));
        bed.check();
    }

    /// Goal: what cannot be told changes nothing; where there is nothing to tell nothing is written.
    #[test]
    fn refusals() {
        let mut bed = Bed::new();
        let (ino, before) = made(&mut bed);
        let (grown, _) = bed.grown("g", 9);
        let records = bed.log.len();
        let big = alloc::vec![7; 8_193];
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let size = SetAttr { size: Some(1), ..SetAttr::default() };
        let commit = |ino| Commit {
            ino,
            generation: Generation(1),
            size: 9,
            cuts: 1,
            mtime: Timestamp::default(),
            time_sets: 0,
            blocks: None,
            kill_suidgid: false,
            held: None,
        };
        let time = Timestamp::default();
        for (wish, expected) in [
            (Tell { set: size, ..nothing(ino) }, Status::MALFORMED),
            (Tell { commit: Some(commit(grown)), ..nothing(ino) }, Status::MALFORMED),
            (Tell { content: content(&big, time), set: mode.clone(), ..nothing(ino) }, Status::MUST_GROW),
            (Tell { content: content(b"x", time), set: mode, ..nothing(grown) }, Status::STALE_GENERATION),
            (Tell { commit: Some(commit(ino)), ..nothing(ino) }, Status::STALE_GENERATION),
            (nothing(Ino::ROOT), errno(Errno::EISDIR)),
            (nothing(Ino(999)), errno(Errno::ESTALE)),
        ] {
            assert!(tell(&mut bed, wish.clone()).err() == Some(expected), "{expected:?}");
        }
        assert_eq!(bed.call(ME, nothing(ino)).unwrap().attr, before);
        assert_eq!(
            tell(&mut bed, Tell { content: content(b"", time), ..nothing(ino) }).unwrap().attr,
            before
        );
        assert_eq!(bed.log.len(), records);
        bed.check();
    }

    /// Goal: what was told is not told a second time, by a repetition of who did not hear the answer: others may have changed it
    /// since.
    #[test]
    fn only_who_holds_it_tells() {
        let mut bed = Bed::new();
        let (ino, _) = made(&mut bed);
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let wish = Tell { content: content(b"told", bed.wall()), set, ..nothing(ino) };
        tell(&mut bed, wish.clone()).unwrap();
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        let changed = bed.call(OTHER, ChangeAttr { ino, set }).unwrap().attr;
        for who in [ME, OTHER] {
            assert_eq!(bed.call(who, wish.clone()).err(), Some(Status::NOT_HELD));
            assert_eq!(bed.call(who, nothing(ino)).unwrap().attr, changed, "nothing is nothing");
        }
        bed.check();
    }
}

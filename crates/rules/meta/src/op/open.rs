//! `Open`: opens a file (or a directory, to pin it).

use super::size;
use crate::choose::CutBy;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use crate::row::slot::Gate;
use skep_types::codec::Bytes;
use skep_types::{Errno, Ino, Kind};
use skep_wire::meta::{Open, OpenMode, OpenReply};

/// Runs it. Who has what open is not in rows: the server notes it.
pub fn run(ctx: &mut Ctx<'_>, m: &Open) -> Result<Done, Fail> {
    let mut inode = ctx.inode(m.ino)?;
    if inode.is_dir() && (m.mode.writes() || m.truncate) {
        return Err(Errno::EISDIR.into());
    }
    let mut gate = Gate::Open;
    if !m.truncate {
        wait_when_live(ctx, m.ino, &inode)?;
    } else {
        if inode.kind != Kind::File {
            return Err(Errno::EINVAL.into());
        }
        let by = CutBy::Open { shared: m.shared, seq: m.open_seq };
        gate = truncate(ctx, m.ino, &mut inode, by, m.kill_suidgid)?;
    }
    let gate = note_writer(ctx, m.ino, &inode, m.mode, gate)?;
    let reply = open_reply(ctx, m.ino, &size::behind(&inode, gate))?;
    Ok(Done { opened: Some(m.ino), ..Done::gated(&reply, gate) })
}

/// Cuts to 0 at open.
pub fn truncate(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, by: CutBy, kill: bool) -> Result<Gate, Fail> {
    let gate = size::set(ctx, ino, inode, 0, by)?;
    super::xattr::kill_privileges(ctx, ino, inode, kill)?;
    inode.touch_content(ctx.scene.at);
    ctx.put_inode(ino, inode);
    Ok(gate)
}

/// Whoever opens chunks for writing is noted in the rows, durably before it writes: after a power cut that took the note, a
/// writer which cannot be reached would leave bytes that nobody looks for, and others would append over them.
pub fn note_writer(
    ctx: &mut Ctx<'_>,
    ino: Ino,
    inode: &Inode,
    mode: OpenMode,
    gate: Gate,
) -> Result<Gate, Fail> {
    if inode.layout.is_inline() || !mode.writes() {
        return Ok(gate);
    }
    let writers = ctx.choose.writers(ino, false);
    let news = ctx.add_writers(ino, &writers)?;
    Ok(if news && gate == Gate::Open { Gate::Durable } else { gate })
}

/// Who is about to be sent to the targets for the size must not find there what is being cut.
pub fn wait_when_live(ctx: &mut Ctx<'_>, ino: Ino, inode: &Inode) -> Result<(), Fail> {
    if inode.layout.is_inline() || !ctx.choose.live(ino) { Ok(()) } else { size::wait_for_trim(ctx, ino) }
}

/// The answer: attributes, layout, inline content.
pub fn open_reply(ctx: &mut Ctx<'_>, ino: Ino, inode: &Inode) -> Result<OpenReply, Fail> {
    ctx.show(ino, inode);
    let inline = inode.kind == Kind::File && inode.layout.is_inline();
    let inline = if inline { Some(Bytes(size::content(ctx, ino, inode)?)) } else { None };
    let live = ctx.choose.live(ino);
    Ok(OpenReply { attr: ctx.attr(ino, inode)?, layout: inode.layout.clone(), inline, live, created: false })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::{Errno, Ino, SetAttr};
    use skep_wire::meta::{ChangeAttr, Open, OpenMode};

    /// Goal: open gives content and layout; O_TRUNC cuts and clears suid for ordinary users; a
    /// directory opens for reading only.
    #[test]
    fn opens_and_truncates() {
        let mut bed = Bed::new();
        let file = bed.create(ME, Ino::ROOT, "f");
        bed.write(file, 0, b"data").unwrap();
        bed.call(ME, ChangeAttr { ino: file, set: SetAttr { mode: Some(0o4755), ..SetAttr::default() } })
            .unwrap();
        assert_eq!(bed.open(ME, file, OpenMode::Read, 1).unwrap().inline.unwrap().0, b"data");
        let wish = Open {
            ino: file,
            mode: OpenMode::Write,
            truncate: true,
            shared: false,
            kill_suidgid: true,
            open_seq: 2,
        };
        let cut = bed.call(ME, wish.clone()).unwrap();
        assert_eq!((cut.attr.size, cut.attr.mode, cut.inline.unwrap().0.len()), (0, 0o755, 0));
        assert!(bed.open(ME, Ino::ROOT, OpenMode::Read, 3).is_ok());
        assert_eq!(bed.open(ME, Ino::ROOT, OpenMode::Write, 4).err(), Some(errno(Errno::EISDIR)));
        assert_eq!(bed.call(ME, Open { ino: Ino(99), ..wish }).err(), Some(errno(Errno::ESTALE)));
    }

    /// Goal: who opens chunks for writing for the first time is told when that is on stable storage; who is known already,
    /// reads, or opens content without chunks, does not wait.
    #[test]
    fn writers_are_known_before_they_write() {
        let mut bed = Bed::new();
        let (ino, _) = bed.grown("f", 9);
        let small = bed.create(ME, Ino::ROOT, "small");
        bed.open(OTHER, Ino::ROOT, OpenMode::Read, 1).unwrap();
        bed.auto_sync = false;
        let open =
            |ino, mode| Open { ino, mode, truncate: false, shared: false, kill_suidgid: false, open_seq: 9 };
        for (wish, at_once) in [
            (open(ino, OpenMode::Read), true),
            (open(small, OpenMode::Write), true),
            (open(ino, OpenMode::Write), false),
        ] {
            let to = bed.send(OTHER, wish);
            assert_eq!(bed.replies.contains_key(&to), at_once);
            bed.sync();
            assert!(bed.replies.contains_key(&to));
        }
        let again = bed.send(OTHER, open(ino, OpenMode::ReadWrite));
        assert!(bed.replies.contains_key(&again));
        bed.check();
    }

    /// Goal: O_TRUNC of a file that the same mount writes to leaves its chunk files in place (seed 396 of the simulator: a
    /// write that was on its way made a deleted one again, for ever), also when that open came later. Of one that it reads,
    /// or that is closed, though the shard has not heard of it, it makes the content anew.
    #[test]
    fn a_write_beside_a_truncating_open_leaks_nothing() {
        for (open, shared, kept) in [
            (Some((OpenMode::Write, 9)), true, true),
            (Some((OpenMode::Write, 9)), false, false),
            (Some((OpenMode::Write, 11)), false, true),
            (Some((OpenMode::Read, 11)), false, false),
            (None, false, false),
        ] {
            let mut bed = Bed::new();
            let (ino, layout) = bed.grown("f", 9);
            bed.close(ME, ino, 8);
            open.map(|(mode, seq)| bed.open(ME, ino, mode, seq).unwrap());
            let wish = Open {
                ino,
                mode: OpenMode::Write,
                truncate: true,
                shared,
                kill_suidgid: false,
                open_seq: 10,
            };
            let cut = bed.call(ME, wish).unwrap();
            assert_eq!(cut.layout.generation == layout.generation, kept, "{open:?} {shared}");
            assert_eq!((cut.attr.size, bed.deleted.is_empty()), (0, kept));
            bed.check();
        }
    }

    /// Goal: the limit of open files per client is an error that names the setting.
    #[test]
    fn opens_are_limited() {
        let mut bed = Bed::with(crate::Config { opens_per_client: 1, ..crate::Config::default() }, 1);
        let (a, b) = (bed.create(ME, Ino::ROOT, "a"), bed.create(ME, Ino::ROOT, "b"));
        bed.open(ME, a, OpenMode::Read, 1).unwrap();
        let wish = Open {
            ino: b,
            mode: OpenMode::Read,
            truncate: false,
            shared: false,
            kill_suidgid: false,
            open_seq: 2,
        };
        let to = bed.send(ME, wish);
        let refusal = bed.replies[&to].1.clone().unwrap_err();
        assert_eq!(refusal.status, errno(Errno::ENFILE));
        assert!(refusal.detail.contains("max_opens_per_client"));
        bed.close(ME, a, 3);
        bed.open(ME, b, OpenMode::Read, 4).unwrap();
    }
}

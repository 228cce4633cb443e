//! Opens that a mount keeps though no program needs them.

use super::*;

fn reads(ino: Ino, open_seq: u64) -> Open {
    Open { ino, mode: OpenMode::Read, truncate: false, shared: false, kill_suidgid: false, open_seq }
}

fn keeps(bed: &mut Bed, who: Who, message: Open) -> bool {
    let to = bed.send(who, message);
    assert!(bed.replies[&to].1.is_ok());
    bed.replies[&to].0.keeps == Some(true)
}

/// Goal: who wishes for leases may keep what it opened, while less than half of either limit is in use; who does not wish, and
/// an open that its own close has overtaken, may not.
#[test]
fn opens_may_be_kept_while_there_is_room() {
    for (opens_per_client, opens) in [(8, 1_000), (1_000, 8)] {
        let mut bed = Bed::with(Config { opens_per_client, opens, ..Config::default() }, 1);
        let files: Vec<Ino> = (0..6).map(|n| bed.create(ME, Ino::ROOT, &format!("{n}"))).collect();
        assert!(!keeps(&mut bed, OTHER, reads(files[0], 1)), "it does not wish");
        bed.close(OTHER, files[0], 2);
        let _ear = Ear::new(&mut bed, OTHER);
        bed.close(OTHER, files[5], 9);
        assert!(!keeps(&mut bed, OTHER, reads(files[5], 8)), "closed by now");
        let kept: Vec<bool> =
            (0..5).map(|n| keeps(&mut bed, OTHER, reads(files[n], 10 + n as u64))).collect();
        assert_eq!(kept, [true, true, true, false, false]);
    }
}

/// Goal: the last name of a file that its mount only kept open goes with the file; not where another open has come since,
/// another mount has it open, or what is said to be closed is another shard's. Said again it changes nothing.
#[test]
fn a_removal_closes_what_was_kept() {
    #[derive(Debug, PartialEq, Clone, Copy)]
    enum Case {
        Kept,
        OpenedSince,
        OfOthers,
        Elsewhere,
        Unsaid,
    }
    for case in [Case::Kept, Case::OpenedSince, Case::OfOthers, Case::Elsewhere, Case::Unsaid] {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 9);
        bed.close(ME, ino, 20);
        bed.call(ME, reads(ino, 21)).unwrap();
        if case == Case::OfOthers {
            bed.call(OTHER, reads(ino, 1)).unwrap();
        }
        let open_seq = if case == Case::OpenedSince { 20 } else { 22 };
        let closed = if case == Case::Elsewhere { Ino::new(ShardId(9), ino.serial()) } else { ino };
        bed.closing = (case != Case::Unsaid).then_some(Closed { ino: closed, open_seq });
        bed.call(ME, Unlink { parent: Ino::ROOT, name: name("f") }).unwrap();
        let is_gone = bed.attr(ino).is_err();
        assert_eq!(is_gone, case == Case::Kept, "{case:?}");
        assert_eq!(bed.deleted.len(), if is_gone { layout.chunks().count() } else { 0 }, "{case:?}");
        bed.check();
        // The batch says it again.
        bed.close(ME, ino, 22);
        assert_eq!(bed.attr(ino).is_err(), case != Case::OfOthers, "{case:?}");
        bed.close(OTHER, ino, 22);
        assert!(bed.attr(ino).is_err());
        bed.check();
    }
}

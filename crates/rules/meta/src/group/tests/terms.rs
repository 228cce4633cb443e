//! Targets refuse what comes in a term that is over.

use super::*;
use crate::key::Table;
use crate::store::Store;
use alloc::vec::Vec;
use skep_wire::storage::ShardTerm;

fn trims(bed: &mut Bed) -> Vec<Task> {
    let all = core::mem::take(&mut bed.tasks);
    all.into_iter().filter(|task| matches!(task.job, Job::Trim { .. })).collect()
}

/// Goal: every message to a target says in which term of which shard it is sent. What a target refuses because it has
/// heard of a later term is not repeated, and one warning says so, however many are refused. Whoever answers for the shard
/// in the next term tells the targets again, in that term.
#[test]
fn errands_of_a_deposed_server_end() {
    let mut bed = Bed::new();
    let (ino, layout) = bed.grown("f", 64 << 20);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.tasks.clear();
    let term = bed.term();
    let waits = bed.truncate_later(ino, 100);
    let sent = trims(&mut bed);
    assert_eq!(sent.len(), layout.chunks().count());
    assert!(sent.len() > 1 && sent.iter().all(|task| task.by == ShardTerm { shard: ino.shard(), term }));
    bed.warnings.clear();
    for task in &sent {
        bed.step(Input::Courier { task: task.id, result: Ok(JobReply::Deposed("a later term".into())) });
    }
    assert_eq!(bed.warnings.len(), 1, "{:?}", bed.warnings);
    assert!(bed.warnings[0].contains("a later term"), "{:?}", bed.warnings);
    bed.tick(600_000);
    assert_eq!(trims(&mut bed), [], "refused for ever");
    assert_eq!(bed.reply::<Empty>(waits), Some(Err(Status::BUSY)), "who waits has the other server to ask");
    bed.restart_term(ino.shard());
    let next = bed.term();
    let again = trims(&mut bed);
    assert!(next > term && again.len() == sent.len());
    assert!(again.iter().all(|task| task.by == ShardTerm { shard: ino.shard(), term: next }));
    // What was sent in the old term concerns nobody any more.
    bed.step(Input::Courier { task: sent[0].id, result: Ok(JobReply::Deposed("late".into())) });
    assert_eq!(bed.warnings.len(), 1);
    for task in again {
        bed.step(Input::Courier { task: task.id, result: Ok(JobReply::Trimmed(0)) });
    }
    assert_eq!(bed.server.store().get(&crate::key::of_ino(Table::Trim, ino)).unwrap(), None);
}

/// Goal: a target that fails and is asked again is asked in the same term.
#[test]
fn repetitions_keep_their_term() {
    let mut bed = Bed::new();
    let (ino, _) = bed.grown("f", 1 << 20);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.tasks.clear();
    bed.truncate_later(ino, 100);
    let sent = trims(&mut bed);
    bed.step(Input::Courier { task: sent[0].id, result: Err(JobFailure("away".into())) });
    bed.tick(1_000);
    assert_eq!(trims(&mut bed), [sent[0].clone()]);
}

//! `List`: lists a directory.

use super::lookup::entry_reply;
use crate::ctx::{Ctx, Done};
use crate::fail::{Fail, corrupt};
use crate::key;
use crate::limit::LIST_BYTES_MAX;
use crate::row::entry::{Entry, Target};
use crate::store::StoreError;
use alloc::vec::Vec;
use skep_types::limits::READDIR_MAX;
use skep_types::{Decode, Encode, Ino};
use skep_wire::Status;
use skep_wire::meta::{DirEntry, List, ListReply};

pub fn run(ctx: &mut Ctx<'_>, m: &List) -> Result<Done, Fail> {
    let dir = ctx.dir_or_removed(m.dir)?;
    let max = m.max.clamp(1, READDIR_MAX) as usize;
    let (found, mut end) = read(ctx, m.dir, m.after, max)?;
    let mut entries = Vec::with_capacity(found.len());
    let mut bytes = 0;
    for (cookie, target) in found {
        let (attr, live) = if m.with_attr {
            match entry_reply(ctx, (target.ino, target.kind), m.as_told == Some(true)) {
                Ok(reply) => (reply.attr, reply.live),
                // A truncate of it is on its way to the targets: who wants to know its size asks for it, and
                // the listing waits for no target.
                Err(Fail::Wait(_)) => (None, None),
                // Nor for who holds it, or may.
                Err(Fail::Refused(refusal)) if refusal.status == Status::GRACE => (None, None),
                // Nobody is told of this listing. It goes on, to find all that it lacks.
                Err(Fail::Store(StoreError::Away)) => (None, None),
                Err(fail) => return Err(fail),
            }
        } else {
            (None, None)
        };
        let entry = DirEntry { cookie, name: target.name, ino: target.ino, kind: target.kind, attr, live };
        bytes += entry.to_bytes().len();
        if bytes > LIST_BYTES_MAX {
            end = false;
            break;
        }
        entries.push(entry);
    }
    Ok(Done::reply(&ListReply { entries, end, parent: dir.parent() }))
}

/// Up to `max` names behind the cookie `after`, and whether that is the end.
fn read(ctx: &Ctx<'_>, dir: Ino, after: u64, max: usize) -> Result<(Vec<(u64, Target)>, bool), Fail> {
    let from = key::entry(dir, after.saturating_add(1));
    let (_, until) = key::range_of_ino(key::Table::Entry, dir);
    let mut found = Vec::new();
    let mut end = true;
    let mut failed: Option<StoreError> = None;
    ctx.txn.scan(&from, &until, &mut |key, bytes| {
        if found.len() >= max {
            end = false;
            return false;
        }
        match Entry::from_bytes(bytes) {
            Ok(Entry { target: Some(target), .. }) => {
                found.push((key::last_u64(key), target));
                true
            }
            Ok(_) => true,
            Err(e) => {
                failed = Some(corrupt("entry", e));
                false
            }
        }
    })?;
    match failed {
        Some(e) => Err(e.into()),
        None => Ok((found, end)),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::String;
    use skep_types::{Errno, Ino};
    use skep_wire::meta::List;

    fn all(
        bed: &mut Bed,
        dir: Ino,
        max: u32,
        mut between: impl FnMut(&mut Bed, usize),
    ) -> alloc::vec::Vec<String> {
        let (mut after, mut names, mut round) = (0, alloc::vec![], 0);
        loop {
            let part = bed.call(ME, List { dir, after, max, with_attr: true, as_told: None }).unwrap();
            names.extend(part.entries.iter().map(|entry| entry.name.display()));
            if part.end {
                return names;
            }
            after = part.entries.last().unwrap().cookie;
            between(bed, round);
            round += 1;
        }
    }

    /// Goal: names that nobody touches are listed exactly once while others come and go.
    #[test]
    fn a_changing_directory_neither_skips_nor_repeats() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        for n in 0..200 {
            bed.create(ME, dir, &format!("stays{n}"));
            bed.create(ME, dir, &format!("goes{n}"));
        }
        let names = all(&mut bed, dir, 7, |bed, round| {
            let _ = bed.unlink(ME, dir, &format!("goes{round}"));
            bed.create(ME, dir, &format!("comes{round}"));
        });
        let stays: alloc::vec::Vec<_> = names.iter().filter(|name| name.starts_with("stays")).collect();
        assert_eq!(stays.len(), 200);
        assert_eq!(stays.into_iter().collect::<BTreeSet<_>>().len(), 200);
        bed.check();
    }

    /// Goal: offsets stay clear of 0 (start), 1 and 2 (. and ..); attributes and the parent come
    /// along; only directories are listed.
    #[test]
    fn offsets_attributes_parent() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        let file = bed.create(ME, dir, "f");
        let part = bed.call(ME, List { dir, after: 2, max: 1, with_attr: true, as_told: None }).unwrap();
        assert_eq!((part.parent, part.end), (Ino::ROOT, true));
        assert!(part.entries[0].cookie > 2 && part.entries[0].cookie < 1 << 63);
        assert_eq!(part.entries[0].attr.as_ref().unwrap().ino, file);
        let wrong = List { dir: file, after: 0, max: 1, with_attr: false, as_told: None };
        assert_eq!(bed.call(ME, wrong).err(), Some(errno(Errno::ENOTDIR)));
    }
}

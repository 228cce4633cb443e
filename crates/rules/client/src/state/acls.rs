//! Access ACLs that kernels ask for at every step of a path, of everybody but the owner.
//!
//! The kernel drops what it knows of an ACL whenever it has looked a name up, and asks again. An ACL moves the
//! inode's change counter, so an answer may be given again as long as the counter is the one it was got under.
//! Each lookup allows one such answer: a program that asks by a descriptor, without a lookup, is told the shard's.

use crate::limits::ACLS_MAX;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{Ino, Millis, ShardId};

/// An allowance that was not used ends after this long.
const FRESH_MS: u64 = 1_000;

/// `None` = it has no ACL.
pub type Acl = Option<Vec<u8>>;

#[derive(Debug, Default)]
struct Known {
    /// Change counter when attributes were seen last.
    change: u64,
    at: Millis,
    /// Answers that may be given without asking.
    allowed: u32,
    /// The ACL, and the change counter under which it was got.
    acl: Option<(u64, Acl)>,
}

/// Those that were asked for.
#[derive(Debug, Default)]
pub struct Acls {
    known: BTreeMap<Ino, Known>,
}

impl Acls {
    /// Attributes of `ino` came from its shard.
    pub fn seen(&mut self, ino: Ino, change: u64, now: Millis) {
        if self.known.is_empty() {
            return;
        }
        // An older answer that comes late says nothing.
        if let Some(known) = self.known.get_mut(&ino).filter(|known| known.change <= change) {
            known.change = change;
            known.at = now;
            known.allowed += 1;
        }
    }

    /// The ACL, if it may be told without asking; otherwise the change counter to give to [`Acls::got`].
    pub fn ask(&mut self, ino: Ino, now: Millis) -> Result<Acl, u64> {
        if !self.known.contains_key(&ino) && self.known.len() >= ACLS_MAX {
            self.known.clear();
        }
        let known = self.known.entry(ino).or_default();
        match &known.acl {
            Some((change, acl))
                if *change == known.change && known.allowed > 0 && now.since(known.at) <= FRESH_MS =>
            {
                known.allowed -= 1;
                Ok(acl.clone())
            }
            _ => {
                known.allowed = 0;
                Err(known.change)
            }
        }
    }

    /// The shard's answer to a question that began at `change`.
    pub fn got(&mut self, ino: Ino, change: u64, acl: Acl) {
        if let Some(known) = self.known.get_mut(&ino)
            && known.change == change
            && change != 0
        {
            known.acl = Some((change, acl));
        }
    }

    /// Change counters of `shard` may have gone back.
    pub fn forget_shard(&mut self, shard: ShardId) {
        self.known.retain(|ino, _| ino.shard() != shard);
    }

    /// This mount changed something of it.
    pub fn forget(&mut self, ino: Ino) {
        self.known.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an ACL is told without asking once for each lookup that shows the same change counter, never
    /// after another one, and not late; the number kept is bounded.
    #[test]
    fn one_answer_for_each_lookup() {
        let (mut acls, ino) = (Acls::default(), Ino(7));
        let at = Millis;
        assert_eq!(acls.ask(ino, at(0)), Err(0));
        acls.got(ino, 0, None);
        acls.seen(ino, 5, at(1));
        assert_eq!(acls.ask(ino, at(1)), Err(5));
        acls.got(ino, 5, Some(Vec::from([1])));
        assert_eq!(acls.ask(ino, at(2)), Err(5), "no lookup since");
        acls.seen(ino, 5, at(3));
        acls.seen(ino, 5, at(3));
        assert_eq!(acls.ask(ino, at(4)), Ok(Some(Vec::from([1]))));
        assert_eq!(acls.ask(ino, at(5_000)), Err(5), "late");
        acls.seen(ino, 6, at(5_000));
        assert_eq!(acls.ask(ino, at(5_000)), Err(6), "it may have changed");
        acls.seen(ino, 5, at(5_000));
        assert_eq!(acls.ask(ino, at(5_000)), Err(6), "an older answer that came late");
        for number in 0..2 * ACLS_MAX as u64 {
            let _ = acls.ask(Ino(number), at(0));
        }
        assert!(acls.known.len() <= ACLS_MAX);
    }
}

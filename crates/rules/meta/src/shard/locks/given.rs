//! Files on which this life of the server gave locks: a lock from before it that is claimed late may have been another's
//! meanwhile.

use crate::limit::LOCKS_GIVEN_MAX;
use alloc::collections::BTreeMap;
use skep_types::{ClientId, Ino};

/// See the module.
#[derive(Debug, Default)]
pub struct Given {
    /// To whom; `None`: to several.
    files: BTreeMap<Ino, Option<ClientId>>,
    /// There were more than are remembered.
    is_full: bool,
}

impl Given {
    /// A lock was given, not claimed.
    pub fn note(&mut self, ino: Ino, client: ClientId) {
        if let Some(to) = self.files.get_mut(&ino) {
            *to = to.filter(|to| *to == client);
        } else if self.files.len() < LOCKS_GIVEN_MAX {
            self.files.insert(ino, Some(client));
        } else {
            self.is_full = true;
        }
    }

    /// May somebody else have held a lock on this file in this life?
    pub fn to_others(&self, ino: Ino, client: ClientId) -> bool {
        self.files.get(&ino).map_or(self.is_full, |to| *to != Some(client))
    }

    /// The file is gone.
    pub fn forget(&mut self, ino: Ino) {
        self.files.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who alone was given locks on a file lost none by that; beyond the limit nobody can be sure.
    #[test]
    fn doubts_end_with_the_only_owner() {
        let (mut given, me, other) = (Given::default(), ClientId(1), ClientId(2));
        assert!(!given.to_others(Ino(5), me));
        given.note(Ino(5), me);
        assert!(!given.to_others(Ino(5), me) && given.to_others(Ino(5), other));
        given.note(Ino(5), other);
        assert!(given.to_others(Ino(5), me) && given.to_others(Ino(5), other));
        for ino in 0..LOCKS_GIVEN_MAX as u64 {
            given.note(Ino(100 + ino), me);
        }
        assert!(given.to_others(Ino(6), me), "it may be one of those that are not remembered");
        assert!(!given.to_others(Ino(100), me));
    }
}

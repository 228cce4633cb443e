//! The order of a client's lock requests: one that others have overtaken must not take a lock again.

use crate::limit::LOCK_ORDERS_MAX;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_wire::meta::LockSpace;

#[derive(Debug, Clone, Copy)]
struct Newest {
    order: u64,
    /// It was taken back, or ended: its repetition is late too.
    spent: bool,
}

/// Of one client on one file.
#[derive(Debug, Default)]
pub struct Orders {
    newest: BTreeMap<(LockSpace, u64), Newest>,
}

impl Orders {
    /// May a request with this number be carried out? Then it is the newest of its owner.
    pub fn admit(&mut self, space: LockSpace, owner: u64, order: u64) -> bool {
        if self.is_overtaken(space, owner, order) {
            return false;
        }
        self.make_room(space, owner);
        self.newest.insert((space, owner), Newest { order, spent: false });
        true
    }

    /// May everything that was asked for up to this number be given up? Then all that has it is late.
    pub fn admit_end(&mut self, space: LockSpace, owner: u64, order: u64) -> bool {
        let is_admitted = self.newest.get(&(space, owner)).is_none_or(|newest| newest.order <= order);
        if is_admitted {
            self.make_room(space, owner);
            self.newest.insert((space, owner), Newest { order, spent: true });
        }
        is_admitted
    }

    /// A request with this number was carried out in an earlier life of the server: what is older is late.
    pub fn reclaim(&mut self, space: LockSpace, owner: u64, order: u64) {
        if self.newest.get(&(space, owner)).is_none_or(|newest| newest.order < order) {
            self.admit(space, owner, order);
        }
    }

    /// Was a newer request of the owner carried out, or this one taken back?
    pub fn is_overtaken(&self, space: LockSpace, owner: u64, order: u64) -> bool {
        let newest = self.newest.get(&(space, owner));
        newest.is_some_and(|newest| newest.order > order || (newest.order == order && newest.spent))
    }

    /// At the limit the older half is forgotten: nobody repeats requests that are so long ago.
    fn make_room(&mut self, space: LockSpace, owner: u64) {
        if self.newest.len() < LOCK_ORDERS_MAX || self.newest.contains_key(&(space, owner)) {
            return;
        }
        let mut orders: Vec<u64> = self.newest.values().map(|newest| newest.order).collect();
        orders.sort_unstable();
        let middle = orders.get(orders.len() / 2).copied().unwrap_or(0);
        self.newest.retain(|_, newest| newest.order >= middle);
    }

    /// The request with this number was taken back.
    pub fn spend(&mut self, space: LockSpace, owner: u64, order: u64) {
        if let Some(newest) = self.newest.get_mut(&(space, owner)).filter(|newest| newest.order == order) {
            newest.spent = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: older requests are refused, repetitions are not, unless taken back; memory is bounded.
    #[test]
    fn late_requests_are_refused() {
        let mut orders = Orders::default();
        let space = LockSpace::Range;
        assert!(orders.admit(space, 1, 5) && orders.admit(space, 1, 5) && !orders.admit(space, 1, 4));
        assert!(orders.admit(space, 2, 4) && orders.admit(LockSpace::Whole, 1, 4));
        orders.spend(space, 1, 4);
        assert!(orders.admit(space, 1, 5));
        orders.spend(space, 1, 5);
        assert!(!orders.admit(space, 1, 5) && orders.admit(space, 1, 6));
        for owner in 10..3 * LOCK_ORDERS_MAX as u64 {
            assert!(orders.admit(space, owner, owner));
        }
        assert!(orders.newest.len() <= LOCK_ORDERS_MAX);
    }
}

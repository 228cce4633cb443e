//! statfs: the space of all targets, from the map.

use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use skep_types::Capacity;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Space of the cluster as mgmtd last told.
    pub fn statfs(&self) -> Capacity {
        self.shared.with(|s| s.map.capacity())
    }
}

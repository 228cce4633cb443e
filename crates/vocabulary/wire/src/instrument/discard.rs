//! `Discard`: the payload goes nowhere.

use crate::Empty;

crate::message! {
    /// Takes the payload and forgets it: what the network alone carries in this direction.
    Discard = 0x0402 -> Empty {
    }
}

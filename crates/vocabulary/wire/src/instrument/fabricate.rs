//! `Fabricate`: a payload out of nothing.

use crate::Empty;

crate::message! {
    /// Answers with a payload of this length: what the network alone carries in this direction.
    Fabricate = 0x0403 -> Empty {
        /// Bytes wanted.
        pub len: u32,
    }
}

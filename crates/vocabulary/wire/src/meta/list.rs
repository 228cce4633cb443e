//! `List`: lists a directory.

use super::ListReply;
use skep_types::Ino;

crate::message! {
    /// Lists a directory.
    List = 0x020c -> ListReply {
        /// The directory.
        pub dir: Ino,
        /// Continue after this cookie; 0 = from the start.
        pub after: u64,
        /// Most entries wanted.
        pub max: u32,
        /// Attributes too.
        pub with_attr: bool,
    } tags {
        /// As [`super::Lookup::as_told`]. (Otherwise they are left out.)
        1 => pub as_told: Option<bool>,
    }
}

//! The growth intent: chunks are allotted to a file whose content is still inline.

use skep_types::{ClientId, Layout, LogIndex, Slot, Timestamp, record};

record! {
    /// Chunks that a client copies the inline content to.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Growth {
        pub layout: Layout,
        /// Who copies.
        pub client: ClientId,
        /// In which lane.
        pub slot: Slot,
        /// Since when.
        pub since: Timestamp,
    } tags {
        /// The log record that it began with. Rows of older releases do not say.
        1 => pub index: Option<LogIndex>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{Decode, Encode};

    record! {
        /// As older releases write and read it.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Old {
            /// As above.
            pub layout: Layout,
            /// As above.
            pub client: ClientId,
            /// As above.
            pub slot: Slot,
            /// As above.
            pub since: Timestamp,
        }
    }

    /// Goal: rows of older releases are read, and those of this one by them.
    #[test]
    fn rows_of_both_releases() {
        let (layout, since) = (Layout::default(), Timestamp::default());
        let old = Old { layout: layout.clone(), client: ClientId(7), slot: Slot(2), since };
        let row = Growth::from_bytes(&old.to_bytes()).unwrap();
        assert_eq!(row, Growth { layout, client: ClientId(7), slot: Slot(2), since, index: None });
        let new = Growth { index: Some(LogIndex(9)), ..row };
        assert_eq!(Old::from_bytes(&new.to_bytes()).unwrap(), old);
        assert_eq!(Growth::from_bytes(&new.to_bytes()).unwrap(), new);
    }
}

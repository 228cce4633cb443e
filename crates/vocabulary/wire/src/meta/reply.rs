//! Answers that several requests share.

use skep_types::codec::Bytes;
use skep_types::{Attr, Ino, Kind, Layout, Name, record};

record! {
    /// An entry and its inode.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EntryReply {
        /// Inode number.
        pub ino: Ino,
        /// What it is.
        pub kind: Kind,
        /// Its attributes; absent when another shard holds the inode (ask there).
        pub attr: Option<Attr>,
        /// Present when other clients have the file open for writing: the size is the greater of
        /// the committed one and what the chunk files of this layout say.
        pub live: Option<Layout>,
    }
}

record! {
    /// Attributes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AttrReply {
        /// The attributes.
        pub attr: Attr,
        /// As in [`EntryReply`].
        pub live: Option<Layout>,
    }
}

record! {
    /// A file that is now open.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OpenReply {
        /// The attributes.
        pub attr: Attr,
        /// Where its chunks are.
        pub layout: Layout,
        /// The whole content, when it is inline.
        pub inline: Option<Bytes>,
        /// Other clients have it open for writing: ask the targets for its size.
        pub live: bool,
        /// `Create` made it (and did not merely open it).
        pub created: bool,
    }
}

record! {
    /// A layout that may be written to.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LayoutReply {
        /// The attributes.
        pub attr: Attr,
        /// The layout.
        pub layout: Layout,
    }
}

record! {
    /// Bytes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DataReply {
        /// The bytes.
        pub data: Bytes,
    }
}

record! {
    /// One entry of a listing.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DirEntry {
        /// Offset to continue after this entry.
        pub cookie: u64,
        /// Its name.
        pub name: Name,
        /// Its inode.
        pub ino: Ino,
        /// What it is.
        pub kind: Kind,
        /// As [`EntryReply::attr`], when asked for.
        pub attr: Option<Attr>,
        /// As [`EntryReply::live`].
        pub live: Option<Layout>,
    }
}

record! {
    /// A part of a listing.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ListReply {
        /// In cookie order.
        pub entries: alloc::vec::Vec<DirEntry>,
        /// Nothing follows the last one.
        pub end: bool,
        /// Parent of the directory.
        pub parent: Ino,
    }
}

//! INIT: what the kernel offers and what the file system takes.

kernel! {
    /// The kernel's offer.
    struct InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    }

    /// The file system's choice.
    struct InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        unused: [u32; 7],
    }
}

/// The part of [`InitIn`] sent by kernels without extended flags.
pub const INIT_IN_SHORT: usize = 16;

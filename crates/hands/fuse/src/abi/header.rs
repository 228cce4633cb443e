//! The headers of requests and replies.

kernel! {
    /// Precedes every request. `total_extlen`: length of the extensions at its end, in units of 8 bytes.
    struct InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }

    /// Precedes every reply and every notification (which have `unique` 0 and the code in `error`).
    struct OutHeader {
        len: u32,
        error: i32,
        unique: u64,
    }
}

/// Size of [`InHeader`].
pub const IN_HEADER: usize = size_of::<InHeader>();
/// Size of [`OutHeader`].
pub const OUT_HEADER: usize = size_of::<OutHeader>();
/// Set in the `unique` of an INTERRUPT request itself.
pub const INTERRUPT_BIT: u64 = 1;

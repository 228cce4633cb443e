//! Requests and replies through `io_uring` (Linux 6.14).
//!
//! An entry has two pieces of memory. The headers: 128 bytes for the request's or reply's header, 128 for the fixed
//! part of the request, then [`RingInOut`]. The payload: what follows the fixed part of a request; the reply.

kernel! {
    /// The third part of an entry's headers: `payload_sz` bytes are in the payload.
    struct RingInOut { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }

    /// The command's own bytes in a submission. `commit_id` names the request that is answered.
    struct RingCommand { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

/// Hands the memory of an entry to the kernel; completes with the first request.
pub const REGISTER: u32 = 1;
/// Answers a request; completes with the next one.
pub const COMMIT_AND_FETCH: u32 = 2;
/// Where the fixed part of the request is in the headers.
pub const OP_AT: usize = 128;
/// Room for the fixed part.
pub const OP_ROOM: usize = 128;
/// Where [`RingInOut`] is in the headers.
pub const IN_OUT_AT: usize = 256;
/// Length of the headers.
pub const RING_HEADERS: usize = IN_OUT_AT + size_of::<RingInOut>();
/// Parts of the address vector that REGISTER passes: headers and payload.
pub const RING_PARTS: u32 = 2;

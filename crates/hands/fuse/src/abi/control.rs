//! Access checks, interrupts, ioctl and poll.

kernel! {
    struct AccessIn { mask: u32, padding: u32 }

    /// INTERRUPT: the `unique` of the request to give up.
    struct InterruptIn { unique: u64 }

    /// IOCTL; `in_size` bytes follow.
    struct IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }

    /// Reply to IOCTL; the data follows.
    struct IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }

    struct PollIn { fh: u64, kh: u64, flags: u32, events: u32 }

    /// Reply to POLL.
    struct PollOut { revents: u32, padding: u32 }
}

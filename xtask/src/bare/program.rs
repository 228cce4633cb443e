//! The smallest program without `std` and without a system below it: `cargo xtask bare` links the pure crates into it. Whoever
//! brings `std` brings a second panic handler and a second allocator, which the compiler refuses.
#![no_std]
#![no_main]

use core::alloc::{GlobalAlloc, Layout};

/// Shows that the check can fail.
#[cfg(with_std)]
extern crate std;

struct NoMemory;

// SAFETY: it gives nothing, and so gets nothing back.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _pointer: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static NO_MEMORY: NoMemory = NoMemory;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Named by `core` and `alloc` as they were built for targets with a system; nothing is ever unwound.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Where a program without a library starts.
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    loop {}
}

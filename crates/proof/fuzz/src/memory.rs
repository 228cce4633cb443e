//! How much memory an input takes: an allocator that counts, each thread for itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes in use. What another thread took is given back here below zero.
    static USED: Cell<isize> = const { Cell::new(0) };
    /// Most of them since [`begin`].
    static MOST: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator as it came; the counters need no memory.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.get() + layout.size() as isize;
        USED.set(used);
        MOST.set(MOST.get().max(used));
        // SAFETY: see above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.set(USED.get() - layout.size() as isize);
        // SAFETY: see above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Begins to measure; gives what is in use.
pub fn begin() -> isize {
    MOST.set(USED.get());
    USED.get()
}

/// Most bytes in use beside what there was at the beginning.
pub fn most_since(begin: isize) -> usize {
    MOST.get().saturating_sub(begin).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was taken counts even when it was given back.
    #[test]
    fn what_was_taken_counts() {
        let before = begin();
        drop(std::hint::black_box(vec![0_u8; 5_000_000]));
        assert!((5_000_000..6_000_000).contains(&most_since(before)));
    }
}

//! How often each edge of the instrumented code was taken. `cargo xtask fuzz` has the compiler put a byte at every edge
//! (`-sanitizer-coverage-inline-8bit-counters`) and a call at the start of the program that says where the bytes are.

use std::sync::Mutex;

/// Address and length of each run of counters: one for each unit of code.
static RANGES: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called by instrumented code before `main`.
// The compiler asks for it by this name.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    if let Ok(mut ranges) = RANGES.lock() {
        let range = (start as usize, (stop as usize).saturating_sub(start as usize));
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
}

fn ranges() -> Vec<(usize, usize)> {
    RANGES.lock().map(|ranges| ranges.clone()).unwrap_or_default()
}

/// Counters there are; 0 in a program without instruments.
pub fn count() -> usize {
    ranges().iter().map(|(_, length)| length).sum()
}

/// All counters, and what inputs have reached so far.
pub struct Counters {
    ranges: Vec<(usize, usize)>,
    /// A copy of them after a run.
    now: Vec<u8>,
    /// For each counter the classes of numbers that it has shown.
    seen: Vec<u8>,
}

impl Counters {
    /// Nothing reached.
    pub fn new() -> Self {
        Self { ranges: ranges(), now: vec![0; count()], seen: vec![0; count()] }
    }

    /// Sets them to zero.
    pub fn clear(&mut self) {
        for (start, length) in &self.ranges {
            // SAFETY: the range holds counters of this program, which live as long as it does; one thread runs.
            #[allow(unsafe_code)]
            unsafe {
                std::ptr::write_bytes(*start as *mut u8, 0, *length);
            }
        }
    }

    /// Whether what ran since they were zero reached something new.
    pub fn news(&mut self) -> bool {
        let mut at = 0;
        for (start, length) in &self.ranges {
            let into = &mut self.now[at..at + length];
            // SAFETY: as above, and the copy is as long as the range.
            #[allow(unsafe_code)]
            unsafe {
                std::ptr::copy_nonoverlapping(*start as *const u8, into.as_mut_ptr(), *length);
            }
            at += length;
        }
        let mut news = false;
        for (seen, now) in self.seen.iter_mut().zip(&self.now).filter(|(_, now)| **now != 0) {
            let class = class(*now);
            news |= *seen & class == 0;
            *seen |= class;
        }
        news
    }

    /// Edges that were taken at least once.
    pub fn reached(&self) -> usize {
        self.seen.iter().filter(|seen| **seen != 0).count()
    }
}

/// Eight classes: once, twice, thrice, and by powers of two, so that a loop counts anew when it runs much longer.
fn class(number: u8) -> u8 {
    match number {
        0..=3 => number.next_power_of_two().min(4),
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        _ => 128,
    }
}

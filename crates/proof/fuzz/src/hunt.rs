//! The hunt: run, look at the counters, keep what is new.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::counters::Counters;
use crate::memory;
use crate::mutate::{Dice, changed};
use crate::target::Target;

/// Memory for any input, however short.
const MEMORY_BASE: usize = 64 << 10;
/// And for each of its bytes: a list of the largest structure, each from one byte of input, in a buffer that has just
/// doubled.
const MEMORY_PER_BYTE: usize = 1 << 10;
/// With a time instead of a number of inputs: how often the clock is looked at.
const LOOK_EVERY: u64 = 256;

/// An input that broke something.
pub struct Broken {
    /// Its bytes.
    pub input: Vec<u8>,
    /// What it broke.
    pub what: String,
}

/// One input.
pub fn once(target: &Target, input: &[u8]) -> Result<(), Broken> {
    let broken = |what| Err(Broken { input: input.to_vec(), what });
    let begin = memory::begin();
    let done = catch_unwind(AssertUnwindSafe(|| (target.read)(input)));
    let most = memory::most_since(begin);
    match done {
        Err(_) => return broken("it panicked (see above)".to_owned()),
        Ok(Err(what)) => return broken(what),
        Ok(Ok(())) => {}
    }
    let room = MEMORY_BASE + input.len() * MEMORY_PER_BYTE;
    if most > room {
        return broken(format!("{} bytes took {most} bytes of memory; {room} would be much", input.len()));
    }
    Ok(())
}

/// So many inputs, or so much time.
pub fn run(target: &Target, seed: u64, runs: u64, time: Option<Duration>) -> Result<(), Broken> {
    let begin = Instant::now();
    let mut counters = Counters::new();
    let mut kept = Vec::new();
    for input in &target.seeds {
        counters.clear();
        once(target, input)?;
        counters.news();
        kept.push(input.clone());
    }
    let from_seeds = counters.reached();
    let mut dice = Dice(seed);
    let mut done = 0;
    let over = |done: u64| match time {
        Some(time) => done.is_multiple_of(LOOK_EVERY) && begin.elapsed() >= time,
        None => done >= runs.div_ceil(target.one_in),
    };
    while !over(done) {
        let input = changed(&mut dice, &kept, target.fixed);
        counters.clear();
        once(target, &input)?;
        if counters.news() {
            kept.push(input);
        }
        done += 1;
    }
    println!(
        "ok {:9} {done} inputs in {:.1} s: {} edges of code, {from_seeds} by the {} examples; {} inputs kept",
        target.name,
        begin.elapsed().as_secs_f64(),
        counters.reached(),
        target.seeds.len(),
        kept.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each kind of fault is found, with the input that shows it.
    #[test]
    fn faults_are_found() {
        fn panics(input: &[u8]) -> Result<(), String> {
            assert!(input.first() != Some(&0xff));
            Ok(())
        }
        fn hoards(input: &[u8]) -> Result<(), String> {
            let memory = if input.len() > 4 { 200 << 20 } else { 0 };
            drop(std::hint::black_box(vec![0_u8; memory]));
            Ok(())
        }
        fn lies(input: &[u8]) -> Result<(), String> {
            if input.len() == 2 { Err("two bytes are three".to_owned()) } else { Ok(()) }
        }
        for (read, word) in [(panics as fn(&[u8]) -> _, "panicked"), (hoards, "memory"), (lies, "three")] {
            let target = Target {
                name: "t",
                seeds: vec![b"seed".to_vec()],
                fixed: 0,
                one_in: 1,
                read: Box::new(read),
            };
            let broken = run(&target, 1, 100_000, None).expect_err(word);
            assert!(broken.what.contains(word), "{}", broken.what);
            assert!(once(&target, &broken.input).is_err(), "{word}: its input shows nothing");
        }
    }
}

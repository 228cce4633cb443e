//! Whole runs. Here and not in the library, whose own tests then need not compile the world (20 s of every build).

use skep_sim::{Options, run};

/// Goal: a seed gives exactly the same run again, and another seed another one.
#[test]
fn a_seed_is_a_run() {
    let options = Options { steps: 15, ..Options::default() };
    let (one, again, other) = (run(1, options), run(1, options), run(2, options));
    assert_eq!((one.hash, one.lines, one.events), (again.hash, again.lines, again.events));
    assert_ne!(one.hash, other.hash);
}

//! K5: answers about an inode that the kernel had when it was told to drop it, and let go before they came.

use std::path::Path;
use std::time::Duration;

use skep_fuse::abi::opcode;
use skep_fuse::{Dropped, Transport};

use super::mounted::{Mounted, list, walk};
use super::script::LONG;
use super::{D, E, X, kernel, seen};

/// Kernels that count evictions, so that they notice one between a question and its answer.
const COUNTS_EVICTIONS: (u32, u32) = (6, 13);
/// Before these none does; between, some were taught it later.
const MAY_COUNT_EVICTIONS: (u32, u32) = (6, 12);

/// `/d/x` is asked for; the kernel knows the inode as `/e/x` only, drops its attributes, and lets it go; then comes the
/// answer, whose attributes are `valid`. What the kernel shows then, the truth, and what it asks.
fn shown(
    transport: Transport,
    opcode: u32,
    valid: Duration,
    let_go: fn(&Mounted),
) -> (u64, u64, Vec<String>) {
    let mounted = Mounted::new(transport);
    mounted.script.name(E, "x", X);
    mounted.look("e/x");
    mounted.look("d");
    mounted.script.valid(opcode, LONG, valid);
    let gate = mounted.hold(opcode, D, if opcode == opcode::LOOKUP { "x" } else { "" });
    let program = mounted.program(move |root: &Path| match opcode {
        opcode::LOOKUP => walk(root, "d/x"),
        _ => list(root, "d"),
    });
    gate.arrived();
    assert_eq!(mounted.drop_attributes(X), Dropped::Done);
    let truth = mounted.script.change(X);
    let_go(&mounted);
    // The look-up that is under way is not among those that it takes back.
    mounted.script.until_looked_up(X, 1);
    assert_eq!(mounted.drop_attributes(X), Dropped::Unknown, "evicted");
    gate.open();
    program.done();
    let (shown, asked) = mounted.look("d/x");
    (shown, truth, asked)
}

on_both! {
    /// Goal: where the kernel counts evictions, it does not believe an answer to a question from before the eviction of an
    /// inode; older ones do.
    fn k5_answers_from_before_an_eviction_are_not_believed_where_it_is_counted(transport) {
        for opcode in [opcode::LOOKUP, opcode::READDIRPLUS] {
            let (shown, truth, asked) = shown(transport, opcode, LONG, |mounted| {
                assert_eq!(mounted.drop_name(E, "x"), Dropped::Done);
            });
            if kernel() >= COUNTS_EVICTIONS {
                assert_eq!((shown, asked), (truth, vec!["GETATTR 10".to_owned()]), "{opcode}");
            } else if kernel() < MAY_COUNT_EVICTIONS {
                assert_eq!((shown, asked), (truth - 1, vec![]), "{opcode}");
            }
        }
    }
}

on_both! {
    /// Goal: it does not count an eviction of what had, as far as it knew, no name left: an own unlink of one name while
    /// another one, of which it does not know, is looked up. Attributes without a validity are asked for.
    fn k5_the_eviction_of_an_inode_without_names_is_not_counted(transport) {
        let unlinks = |mounted: &Mounted| rustix::fs::unlink(mounted.path("e/x")).unwrap();
        for opcode in [opcode::LOOKUP, opcode::READDIRPLUS] {
            if seen() {
                let (shown, truth, asked) = shown(transport, opcode, LONG, unlinks);
                assert_eq!((shown, asked), (truth - 1, vec![]), "{opcode}");
            }
            let (shown, truth, asked) = shown(transport, opcode, Duration::ZERO, unlinks);
            assert_eq!((shown, asked), (truth, vec!["GETATTR 10".to_owned()]), "{opcode}");
        }
    }
}

//! Tests of the server: lanes, waits, sessions, grace, crashes.

use crate::testing::*;
use crate::*;
use skep_types::*;
use skep_wire::Status;
use skep_wire::meta::*;

/// Goal: the smallest whole life of a file works and leaves consistent rows.
#[test]
fn a_file_lives() {
    let mut bed = Bed::new();
    let dir = bed.mkdir(Ino::ROOT, "d");
    let ino = bed.create(ME, dir, "f");
    assert_eq!(bed.lookup(dir, "f"), Ok(ino));
    bed.write(ino, 0, b"hello").unwrap();
    assert_eq!(bed.attr(ino).unwrap().size, 5);
    bed.check();
    bed.unlink(ME, dir, "f").unwrap();
    assert_eq!(bed.attr(ino), Err(errno(Errno::ESTALE)));
    bed.check();
}

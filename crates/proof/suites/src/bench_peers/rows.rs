//! What is measured, and what is to be reached: the table of `docs/bench/peers.md`.

use super::systems::{DISK, EMPTY, PAGES};
use crate::bench::system::LOCAL;
use crate::bench::worker::STRIDE;
use Target::{Before, Ceiling, CeilingOf, OneRpc, Peer, Row as Beside, Rpcs, Seconds, Shared, System};

/// How a row is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Operations per second.
    Rate,
    /// MiB per second.
    Stream,
    /// Seconds of the whole.
    Seconds,
}

/// One thing to be reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At most 1.2 x (the empty file system + one RPC + so many microseconds).
    OneRpc(f64),
    /// Speed against the best peer.
    Peer(f64),
    /// Speed against another system of the run.
    System(&'static str, f64),
    /// Share of the composed ceiling.
    Ceiling(f64),
    /// The same for requests of so many bytes.
    CeilingOf(usize, f64),
    /// Speed against another row of the same system.
    Row(&'static str, f64),
    /// Speed of one file for all against a file for each, or against the empty file system if that is less.
    Shared(&'static str, f64),
    /// Seconds at most.
    Seconds(f64),
    /// RPCs of an operation.
    Rpcs(f64),
    /// Speed against another build (`--beside`).
    Before(f64),
}

/// One row.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// How it is shown.
    pub unit: Unit,
    /// What is to be reached.
    pub targets: &'static [Target],
}

macro_rules! rows {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $unit:ident, [$($target:expr),*];)*) => {
        $($(#[$doc])* pub const $id: &str = $name;)*
        /// All, in the order of the table.
        pub const ROWS: &[Row] = &[$(Row {
            name: $name,
            unit: Unit::$unit,
            targets: &[$($target),*],
        }),*];
    };
}

rows! {
    CREATE = "create + close", Rate, [OneRpc(10.0), Peer(2.0), Rpcs(1.0)];
    STAT = "stat, made by another mount", Rate, [OneRpc(3.0), Peer(1.5), Rpcs(1.0)];
    STAT_WARM = "stat, warm", Rate, [System(LOCAL, 0.5), System(EMPTY, 0.9), Rpcs(0.0)];
    OPEN_WARM = "open-read-close, warm", Rate, [System(LOCAL, 0.5), System(EMPTY, 0.9), Rpcs(0.0)];
    REMOVE = "remove", Rate, [OneRpc(10.0), Peer(2.0), Rpcs(1.0)];
    TINY_WRITE = "write 512 bytes in order", Rate, [System(PAGES, 0.5)];
    TINY_READ = "read 512 bytes in order", Rate, [System(PAGES, 0.5)];
    SMALL_WRITE = "write 4 KiB in order", Rate, [System(PAGES, 0.5)];
    SMALL_READ = "read 4 KiB in order", Rate, [System(PAGES, 0.5)];
    WRITE = "write 1 MiB, file per process", Stream, [Ceiling(0.8), Peer(2.0)];
    READ = "read 1 MiB, file per process, other mount", Stream, [Ceiling(0.8), Peer(2.0)];
    OWN = "write 1 MiB, a file for each of four", Stream, [];
    ONE = "write 1 MiB, one file of four", Stream, [Shared(OWN, 0.95)];
    ONE_AGAIN = "write 1 MiB, one file of four, again", Stream, [Beside(OWN, 0.95)];
    ONE_MOUNTS = "write 1 MiB, one file of four mounts", Stream, [Beside(OWN, 0.95)];
    STRIDE_WRITE = "write 47,008 bytes in turn, four", Rate, [CeilingOf(STRIDE, 0.75)];
    STRIDE_READ = "read 47,008 bytes in turn, four, other mount", Rate, [CeilingOf(STRIDE, 0.75)];
    MANY_WRITE = "write 4 KiB anywhere, 16 at once", Rate, [CeilingOf(4_096, 0.75)];
    MANY_READ = "read 4 KiB anywhere, 16 at once", Rate, [CeilingOf(4_096, 0.75)];
    SYNC_SMALL = "create, write 4 KiB, fsync, eight", Rate, [System(DISK, 0.7)];
    SYNC_LARGE = "create, write 64 KiB, fsync, eight", Rate, [System(DISK, 0.7)];
    IN_TURN = "write to 1,000 files in turn", Rate, [];
    IN_TURN_LISTED = "the same beside `ls -l` once a second", Rate, [Beside(IN_TURN, 0.95)];
    TOGETHER = "two mounts create in one directory", Rate, [Before(0.95)];
    SEE = "create here, stat there", Rate, [Before(0.95)];
    APPEND = "two mounts append to one file", Rate, [Before(0.95)];
    UNTAR = "untar", Seconds, [Peer(4.0)];
    COPY = "cp -a", Seconds, [Peer(2.0)];
    CLONE = "git clone", Seconds, [Peer(2.0)];
    DELETE = "rm -rf", Seconds, [Peer(2.0)];
    LS = "ls -lR, first", Seconds, [];
    LS_AGAIN = "ls -lR, again", Seconds, [System(DISK, 0.5)];
    LS_LATER = "ls -lR, after 10 s", Seconds, [System(DISK, 0.5)];
    FIND = "find, first", Seconds, [];
    FIND_AGAIN = "find, again", Seconds, [System(DISK, 0.5)];
    FIND_LATER = "find, after 10 s", Seconds, [System(DISK, 0.5)];
    GREP = "grep -r, first", Seconds, [];
    GREP_AGAIN = "grep -r, again", Seconds, [System(DISK, 0.5)];
    GREP_LATER = "grep -r, after 10 s", Seconds, [System(DISK, 0.5)];
    STATUS = "git status, first", Seconds, [];
    STATUS_AGAIN = "git status, again", Seconds, [System(DISK, 0.5)];
    STATUS_LATER = "git status, after 10 s", Seconds, [System(DISK, 0.5)];
    LISTING = "ls -l of a large directory, cold", Seconds, [Seconds(3.0), Peer(5.0)];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a result is found by its row's name.
    #[test]
    fn names_differ() {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}

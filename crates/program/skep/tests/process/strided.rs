//! Records at a constant distance: what it costs to read them, and that nobody is shown old ones.

use super::fresh::answered_by;
use super::http::{metrics, ports};
use super::{Running, bytes, plan, start};
use skep_rig::{PATIENCE, until};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const FAR: usize = 64 << 10;
const RECORDS: usize = 512;

/// Bytes that the first mount has fetched for who reads so, and those that were used.
fn ahead(cluster: &Running) -> (u64, u64) {
    let page = metrics(ports(cluster)["mount"]);
    let of = |what| {
        page.value("skep_mount_ahead_bytes_total", &[("how", "strided"), ("what", what)]).unwrap() as u64
    };
    (of("fetched"), of("used"))
}

fn requests(cluster: &Running) -> u64 {
    answered_by(cluster, "storaged").get("ReadChunk").copied().unwrap_or(0)
}

fn reads(file: &File, all: &[u8], places: impl Iterator<Item = usize>, len: usize) {
    let mut record = vec![0; len];
    for at in places {
        let n = file.read_at(&mut record, at as u64).unwrap();
        assert!(record[..n] == all[at..all.len().min(at + len)], "{at}");
    }
}

/// Goal: who reads records at a constant distance has most of them read before, forward and backward, and nothing that is not used;
/// small ones near each other are a request for several; and what another mount writes and cuts meanwhile is seen by the next
/// read.
#[test]
fn records_at_a_distance_come_ahead() {
    let cluster = start(plan());
    let there = cluster.second_mount("mnt1", &[]).unwrap();
    let here = cluster.mount().join("f");
    let mut all = bytes(1, RECORDS * FAR);
    fs::write(there.join("f"), &all).unwrap();
    // A lease has to cover the file first: others have just written it. What is ahead is the handle's, for a second, so each try
    // has its own: another one would find some of it.
    until("records come ahead", PATIENCE, || {
        let (before, file) = (ahead(&cluster), File::open(&here).unwrap());
        reads(&file, &all, (0..RECORDS).map(|record| record * FAR), 4_096);
        let (fetched, used) = (ahead(&cluster).0 - before.0, ahead(&cluster).1 - before.1);
        let most = (RECORDS as u64 - 80) * 4_096;
        if used >= most && fetched == used { Ok(()) } else { Err(format!("{used} bytes of {fetched}")) }
    })
    .unwrap();
    until("they do backward", PATIENCE, || {
        let (before, file) = (ahead(&cluster), File::open(&here).unwrap());
        reads(&file, &all, (0..RECORDS).rev().map(|record| record * FAR + 5), 4_096);
        let used = ahead(&cluster).1 - before.1;
        if used >= (RECORDS as u64 - 80) * 4_096 { Ok(()) } else { Err(format!("{used} bytes")) }
    })
    .unwrap();
    until("near ones come together", PATIENCE, || {
        let (before, file) = (requests(&cluster), File::open(&here).unwrap());
        reads(&file, &all, (0..RECORDS * 8).map(|record| record * 4_096), 512);
        let cost = requests(&cluster) - before;
        if cost < RECORDS as u64 { Ok(()) } else { Err(format!("{cost} requests")) }
    })
    .unwrap();

    let file = ahead_of_somebody(&cluster, &here, &all);
    // What is ahead is old from now on, for the records 10 to 39 as well.
    let theirs = OpenOptions::new().write(true).open(there.join("f")).unwrap();
    for record in 10..40 {
        let at = record * FAR;
        all[at..at + 100].copy_from_slice(&bytes(record as u32, 100));
        theirs.write_all_at(&all[at..at + 100], at as u64).unwrap();
        reads(&file, &all, [at].into_iter(), 4_096);
    }
    drop(theirs);
    let file = ahead_of_somebody(&cluster, &here, &all);
    let cut = 10 * FAR + 1_000;
    OpenOptions::new().write(true).open(there.join("f")).unwrap().set_len(cut as u64).unwrap();
    all.truncate(cut);
    reads(&file, &all, [10 * FAR].into_iter(), 4_096);
    assert_eq!(file.read_at(&mut [0; 10], 11 * FAR as u64).unwrap(), 0);
}

/// Reads the first ten records so that the next ones are in memory, through a handle of which nothing is known before.
fn ahead_of_somebody(cluster: &Running, here: &Path, all: &[u8]) -> File {
    until("records are ahead of who reads", PATIENCE, || {
        let before = ahead(cluster);
        let file = File::open(here).unwrap();
        reads(&file, all, (0..10).map(|record| record * FAR), 4_096);
        let (fetched, used) = ahead(cluster);
        let left = (fetched - before.0) as i64 - (used - before.1) as i64;
        if left > 0 { Ok(file) } else { Err(format!("{left} bytes")) }
    })
    .unwrap()
}

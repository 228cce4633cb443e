//! What rows take on disk while they are written. `cargo run --release -p skep-disk --example row_space [dir]`
//!
//! Creates of files whose contents lie in the rows (bytes that no compression shortens), until the row store has written
//! several GiB; prints the most that the directory took meanwhile, and what it took at the end, for each byte of content.

use skep_disk::disk::RealDisk;
use skep_disk::log::{CommandLog, Head, LogOptions, Record, SyncPolicy, SyncThread};
use skep_disk::rows::{RowOptions, RowStore};
use skep_rows::{Batch, Store};
use skep_types::{LogIndex, LogSeq, ShardId, Term, Uuid};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

type Outcome = Result<(), Box<dyn Error>>;

const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of all contents together.
const WRITTEN: u64 = 3 << 30;
/// The directory is looked at after so many bytes.
const LOOK: u64 = 32 << 20;

/// Bytes of xorshift: what lz4 cannot shorten.
fn noise(state: &mut u64, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Rows of a small file: its name (spread), its inode, its content.
fn small(n: u64, state: &mut u64, size: usize) -> Batch {
    let row = |tag: u8, id: u64, value| {
        let mut key = vec![0, 3, tag];
        key.extend(id.to_be_bytes());
        (key, Some(value))
    };
    let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let content = noise(state, size);
    [row(3, spread, vec![n as u8; 60]), row(2, n, vec![n as u8; 160]), row(5, n, content)].into()
}

/// Of the only shard.
fn head(n: u64) -> Head {
    Head { shard: ShardId(3), term: Term(1), index: LogIndex(n) }
}

fn taken(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => taken(&entry.path()),
        Ok(found) => found.len(),
        // A run that a merge has just removed.
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

fn measure(root: &Path, size: usize) -> Outcome {
    let options = LogOptions { preallocate: true, ..LogOptions::new(Uuid([9; 16])) };
    let mut log = CommandLog::open(Arc::new(RealDisk), &root.join(format!("log{size}")), options)?.0;
    let thread = SyncThread::start(log.syncer(), SyncPolicy::default(), Box::new(|_, _| ()))?;
    let dir = root.join(format!("rows{size}"));
    let mut store = RowStore::open(&dir, RowOptions::default(), Arc::new(thread.handle()), Box::new(|| ()))?;
    let (files, every) = (WRITTEN / size as u64, LOOK / size as u64);
    let (mut state, mut most) = (88_172_645_463_325_252, 0.0f64);
    for n in 1..=files {
        log.append(&[Record::command(LogSeq(n), head(n), vec![7; 64])])?;
        store.apply(LogSeq(n), &[head(n)], small(n, &mut state, size))?;
        store.make_room(LIMIT)?;
        if let Some(done) = store.poll()? {
            log.release_before(LogSeq(done.0 + 1))?;
        }
        // What is only in memory yet is no space: the ratio means something when much is written.
        if n % every == 0 && n > files / 4 {
            most = most.max(taken(&dir) as f64 / (n * size as u64) as f64);
        }
    }
    store.flush(LIMIT)?;
    let end = taken(&dir) as f64 / (files * size as u64) as f64;
    println!(
        "contents of {size} bytes, {files} files: at most {most:.2}, at the end {end:.2} bytes for each"
    );
    Ok(())
}

fn main() -> Outcome {
    let root = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let root = root.join(format!("row_space.{}", std::process::id()));
    std::fs::create_dir_all(&root)?;
    let done = [1024, 4096, 8192].into_iter().try_for_each(|size| measure(&root, size));
    std::fs::remove_dir_all(&root)?;
    done
}

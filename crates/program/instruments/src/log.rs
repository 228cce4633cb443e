//! What the disk under a metadata server's log takes: small records, each durable before the next, and one stream. The
//! file has no name, so nothing of it stays, however the daemon ends.

use super::jobs::Control;
use super::question::{Findings, Flow, LogFound, LogTest};
use super::service::LogPlace;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// What one record of the log takes at least.
const RECORD: usize = 4 << 10;
/// A stream is written in these.
const BLOCK: usize = 1 << 20;
const RECORDS_MAX: u32 = 1_000;
/// Most bytes of a stream.
const BYTES_MAX: u64 = 1 << 30;
/// Either measurement ends after this time: a slow disk has told enough by then.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

pub fn measure(place: &LogPlace, test: &LogTest, control: &Control) -> Result<Findings, String> {
    let mut found = LogFound::default();
    if test.records > 0 || test.bytes > 0 {
        let file = unnamed(&place.directory).map_err(|e| format!("{}: {e}", place.directory.display()))?;
        found.records_us =
            records(&file, test.records.min(RECORDS_MAX), control).map_err(|e| e.to_string())?;
        found.stream = stream(&file, test.bytes.min(BYTES_MAX), control).map_err(|e| e.to_string())?;
    }
    (found.syncs, found.sync_ns) = (place.spent)();
    Ok(Findings::Log(found))
}

/// A file that nobody finds.
fn unnamed(directory: &Path) -> std::io::Result<File> {
    let path = directory.join(format!("measure-{}.tmp", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn records(mut file: &File, count: u32, control: &Control) -> std::io::Result<Vec<f64>> {
    let (began, record) = (Instant::now(), [0x5a; RECORD]);
    let mut all = Vec::new();
    for _ in 0..count {
        if control.is_stopped() || began.elapsed() > LONG_ENOUGH {
            break;
        }
        let at = Instant::now();
        file.write_all(&record)?;
        file.sync_data()?;
        all.push(at.elapsed().as_secs_f64() * 1e6);
    }
    Ok(all)
}

fn stream(mut file: &File, bytes: u64, control: &Control) -> std::io::Result<Flow> {
    let (began, block) = (Instant::now(), vec![0xa5; BLOCK]);
    let mut written = 0;
    while written < bytes && !control.is_stopped() && began.elapsed() <= LONG_ENOUGH {
        file.write_all(&block)?;
        written += block.len() as u64;
        // Not all of it in memory first: a slow disk would take long beyond the limit.
        file.sync_data()?;
    }
    Ok(Flow { bytes: written, seconds: began.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: as many records and bytes as asked for, what the log took is told, and no file stays.
    #[test]
    fn the_disk_of_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let place = LogPlace { directory: dir.path().to_owned(), spent: Box::new(|| (7, 900)) };
        let test = LogTest { records: 3, bytes: 2 << 20 };
        let Ok(Findings::Log(found)) = measure(&place, &test, &Control::default()) else { panic!() };
        assert!(!found.records_us.is_empty() && found.records_us.iter().all(|us| *us > 0.0), "{found:?}");
        assert!(found.stream.bytes > 0 && found.stream.rate() > 0.0);
        assert_eq!((found.syncs, found.sync_ns), (7, 900));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let none = measure(&place, &LogTest::default(), &Control::default());
        assert_eq!(none, Ok(Findings::Log(LogFound { syncs: 7, sync_ns: 900, ..LogFound::default() })));
        let gone = LogPlace { directory: dir.path().join("gone"), spent: Box::new(|| (0, 0)) };
        assert!(measure(&gone, &test, &Control::default()).unwrap_err().contains("gone"));
    }
}

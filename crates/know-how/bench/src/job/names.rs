//! The names of what a job makes: fixed by the job and the worker's number, so that any worker finds
//! any other's files and whoever cleans up needs no list.

use super::{IoJob, Share};
use std::path::PathBuf;

/// The file worker `worker` writes.
pub fn io_file(job: &IoJob, worker: u32) -> PathBuf {
    let at = |index: u32| job.paths.get(index as usize % job.paths.len().max(1)).cloned().unwrap_or_default();
    match (job.listed, job.share) {
        (true, Share::PerWorker) => PathBuf::from(at(worker)),
        (true, _) => PathBuf::from(at(0)),
        (false, Share::PerWorker) => PathBuf::from(at(worker)).join(format!("{}.{worker:08}", job.name)),
        (false, _) => PathBuf::from(at(0)).join(&job.name),
    }
}

/// The directory a job on trees makes, as worker `worker` uses it.
pub fn root(paths: &[String], name: &str, worker: u32) -> PathBuf {
    let path = paths.get(worker as usize % paths.len().max(1)).cloned().unwrap_or_default();
    PathBuf::from(path).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Goal: files of their own, shared files and listed ones are where the job says.
    #[test]
    fn places() {
        let mut job = IoJob::new("/a");
        job.paths.push("/b".to_owned());
        assert_eq!(io_file(&job, 3), Path::new("/b/skep-bench-io.00000003"));
        job.share = Share::Segmented;
        assert_eq!(io_file(&job, 3), Path::new("/a/skep-bench-io"));
        job.listed = true;
        assert_eq!(io_file(&job, 3), Path::new("/a"));
        job.share = Share::PerWorker;
        assert_eq!(io_file(&job, 1), Path::new("/b"));
        assert_eq!(root(&job.paths, "x", 2), Path::new("/a/x"));
    }
}

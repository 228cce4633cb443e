//! The places a job works in: whether they are free before, and empty again after.

use super::{Start, Trouble};
use crate::job::{IoKind, Job, Share, Work, io_file, root};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Room that must stay on the file system, percent of what the job needs (metadata, rounding).
const RESERVE_PERCENT: u64 = 2;

/// What the workers make themselves, at the highest level.
fn made_by(job: &Job, workers: &[u32]) -> BTreeSet<PathBuf> {
    match &job.work {
        // The one shared file is worker 0's.
        Work::Io(io) if io.share.is_shared() => {
            workers.iter().filter(|worker| **worker == 0).map(|worker| io_file(io, *worker)).collect()
        }
        Work::Io(io) => workers.iter().map(|worker| io_file(io, *worker)).collect(),
        Work::Meta(meta) => workers.iter().map(|worker| root(&meta.paths, &meta.name, *worker)).collect(),
        Work::Files(files) => workers.iter().map(|worker| root(&files.paths, &files.name, *worker)).collect(),
    }
}

/// Checks places, names and room before anything is made. Returns warnings.
pub(super) fn preflight(start: &Start) -> Result<Vec<String>, Trouble> {
    let job = &start.job;
    job.check().map_err(|error| Trouble::found("check the job", Path::new(""), error.0))?;
    let threads = job.workers.threads;
    let mut workers: Vec<u32> = (0..threads).map(|thread| start.process * threads + thread).collect();
    if start.first_on_host {
        // Shared files and directories are looked for on every host.
        workers.push(0);
    }
    directories(job)?;
    for path in made_by(job, &workers) {
        free_name(job, &path)?;
    }
    if start.first_on_host { room(start) } else { Ok(Vec::new()) }
}

fn listed(job: &Job) -> bool {
    matches!(&job.work, Work::Io(io) if io.listed)
}

fn directories(job: &Job) -> Result<(), Trouble> {
    for path in job.paths().iter().map(Path::new) {
        let dir = if listed(job) { path.parent().unwrap_or(Path::new("/")) } else { path };
        let stat = rustix::fs::stat(dir).map_err(|errno| match errno {
            Errno::NOENT => {
                Trouble::found("look at", dir, "there is no such directory; make it first".to_owned())
            }
            errno => Trouble::call("look at", dir, errno),
        })?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(Trouble::found("look at", dir, "it is not a directory; name one".to_owned()));
        }
    }
    Ok(())
}

fn free_name(job: &Job, path: &Path) -> Result<(), Trouble> {
    let stat = match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return missing(job, path),
        Err(errno) => return Err(Trouble::call("look at", path, errno)),
        Ok(stat) => stat,
    };
    if !job.existing {
        let reason = "it exists already and is not this run's; remove it, choose another name, or say that existing files may be used";
        return Err(Trouble::found("make", path, reason.to_owned()));
    }
    let kind = FileType::from_raw_mode(stat.st_mode);
    let right = match &job.work {
        Work::Io(io) if io.phases.iter().any(|phase| phase.kind.writes()) => kind == FileType::RegularFile,
        Work::Io(_) => matches!(kind, FileType::RegularFile | FileType::BlockDevice),
        Work::Meta(_) | Work::Files(_) => kind == FileType::Directory,
    };
    if right {
        return Ok(());
    }
    Err(Trouble::found("use", path, format!("it is a {kind:?}, which this job must not touch")))
}

/// Whether a job that begins with reading finds its file.
fn missing(job: &Job, path: &Path) -> Result<(), Trouble> {
    let reads_first = matches!(&job.work, Work::Io(io) if io.phases[0].kind.needs_data());
    if reads_first {
        let reason =
            "there is no such file, and the job begins with reading; write first, and keep the files";
        return Err(Trouble::found("read", path, reason.to_owned()));
    }
    Ok(())
}

/// Whether there is room. Hosts that share a file system each check their part; that the whole fits is a
/// warning only, as hosts may as well have file systems of their own.
fn room(start: &Start) -> Result<Vec<String>, Trouble> {
    let job = &start.job;
    let writes = match &job.work {
        Work::Io(io) => io.phases.iter().any(|phase| phase.kind == IoKind::Write),
        Work::Meta(_) | Work::Files(_) => true,
    };
    if job.existing || !writes {
        return Ok(Vec::new());
    }
    let need = job.footprint();
    let one_place = matches!(&job.work, Work::Io(io) if io.share != Share::PerWorker);
    let places = if one_place { 1 } else { job.paths().len() as u64 };
    let processes = u64::from(job.workers.processes.max(1));
    let mut warnings = Vec::new();
    for path in job.paths().iter().take(places as usize).map(Path::new) {
        let dir = if listed(job) { path.parent().unwrap_or(path) } else { path };
        let volume =
            rustix::fs::statvfs(dir).map_err(|errno| Trouble::call("ask the room on", dir, errno))?;
        let free = volume.f_bavail.saturating_mul(volume.f_frsize);
        // Paths on one file system add up.
        let same = job.paths().iter().take(places as usize).filter(|other| {
            let other = Path::new(other.as_str());
            let other = if listed(job) { other.parent().unwrap_or(other) } else { other };
            rustix::fs::statvfs(other).is_ok_and(|theirs| theirs.f_fsid == volume.f_fsid)
        });
        let share = same.count().max(1) as u64;
        let whole = u128::from(need.bytes) * u128::from(share) / u128::from(places);
        let whole = (whole * u128::from(100 + RESERVE_PERCENT) / 100).min(u128::from(u64::MAX)) as u64;
        let part = (u128::from(whole) * u128::from(start.host_processes) / u128::from(processes)) as u64;
        if part > free {
            let reason = format!(
                "the job needs {} here and {} are free; make room or make the job smaller",
                mib(part),
                mib(free)
            );
            return Err(Trouble::found("find room on", dir, reason));
        }
        if whole > free {
            warnings.push(format!(
                "{}: all hosts together need {}, {} are free; that is too little if they share it",
                dir.display(),
                mib(whole),
                mib(free)
            ));
        }
        // File systems without a fixed number of inodes say 0.
        if volume.f_files > 0 && need.inodes * share / places > volume.f_favail {
            let reason = format!(
                "the job needs {} inodes here and {} are free; make the job smaller",
                need.inodes * share / places,
                volume.f_favail
            );
            return Err(Trouble::found("find room on", dir, reason));
        }
    }
    Ok(warnings)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// Removes what these workers made. Returns what could not be removed, with the reason.
pub fn clean(job: &Job, workers: &[u32]) -> Vec<String> {
    let mut left = Vec::new();
    match &job.work {
        Work::Io(_) => {
            for path in made_by(job, workers) {
                if let Err(errno) = unlink_regular(&path) {
                    left.push(format!("{} ({})", path.display(), std::io::Error::from(errno)));
                }
            }
        }
        Work::Meta(meta) => {
            for worker in workers {
                let root = root(&meta.paths, &meta.name, *worker);
                if meta.own_tree {
                    remove_into(&root.join(crate::meta::own_tree(*worker)), &mut left);
                } else if *worker < meta.paths.len() as u32 {
                    remove_into(&root.join(crate::meta::SHARED_TREE), &mut left);
                }
                remove_when_empty(&root);
            }
        }
        Work::Files(files) => {
            for worker in workers {
                let root = root(&files.paths, &files.name, *worker);
                remove_into(&root.join(crate::files::own_tree(*worker)), &mut left);
                if *worker < files.paths.len() as u32 {
                    remove_into(&root.join(crate::files::SAMPLES), &mut left);
                }
                remove_when_empty(&root);
            }
        }
    }
    left
}

/// Only plain files are ever removed: a device that was read stays.
pub(crate) fn unlink_regular(path: &Path) -> Result<(), Errno> {
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => Ok(()),
        Ok(_) => match rustix::fs::unlink(path) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(errno) => Err(errno),
        },
    }
}

fn remove_when_empty(dir: &Path) {
    // The last one removes it; before that it is not empty.
    let _ = rustix::fs::rmdir(dir);
}

fn remove_into(dir: &Path, left: &mut Vec<String>) {
    if let Err(trouble) = remove_tree(dir) {
        left.push(trouble.to_string());
    }
}

/// Removes a directory and all below it; nothing is there: done. Never follows a link.
pub(crate) fn remove_tree(dir: &Path) -> Result<(), Trouble> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(dir, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(Trouble::call("open", dir, errno)),
        Ok(fd) => fd,
    };
    // Listed before anything is removed: some file systems skip entries otherwise.
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(&fd).map_err(|errno| Trouble::call("list", dir, errno))? {
        let entry = entry.map_err(|errno| Trouble::call("list", dir, errno))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            entries.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    for (name, kind) in entries {
        let path = dir.join(std::ffi::OsStr::new(&*name.to_string_lossy()));
        let gone = match kind {
            FileType::Directory => None,
            _ => match rustix::fs::unlinkat(&fd, &name, AtFlags::empty()) {
                Err(Errno::ISDIR) => None,
                other => Some(other),
            },
        };
        match gone {
            None => remove_tree(&path)?,
            Some(Ok(()) | Err(Errno::NOENT)) => {}
            Some(Err(errno)) => return Err(Trouble::call("remove", &path, errno)),
        }
    }
    match rustix::fs::rmdir(dir) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Trouble::call("remove", dir, errno)),
    }
}

//! The places a job works in: whether they are free before, and empty again after.

use super::{Made, Start, Trouble, ground};
use crate::job::{IoKind, Job, Share, Work, io_file, root};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Room that must stay on the file system, percent of what the job needs (metadata, rounding).
const RESERVE_PERCENT: u64 = 2;

/// Said of a name that a run would give and that is there already. Whoever gave the job adds which of his options
/// name another.
pub const TAKEN: &str = "it exists already and is not this run's; remove it";

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
    targets(job)?;
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

/// A file over more targets than there are would be a file over fewer, and the figures those of another load.
fn targets(job: &Job) -> Result<(), Trouble> {
    let striping = match &job.work {
        Work::Io(io) => io.striping,
        Work::Meta(meta) => meta.striping,
        Work::Files(_) => None,
    };
    let Some(wanted) = striping.and_then(|striping| striping.targets) else { return Ok(()) };
    job.paths().iter().map(Path::new).try_for_each(|path| {
        crate::io::there_are(wanted, if listed(job) { path.parent().unwrap_or(path) } else { path })
    })
}

fn free_name(job: &Job, path: &Path) -> Result<(), Trouble> {
    let stat = match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return missing(job, path),
        Err(errno) => return Err(Trouble::call("look at", path, errno)),
        Ok(stat) => stat,
    };
    if !job.existing {
        return Err(Trouble::found("make", path, TAKEN.to_owned()));
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

/// Whether what the run made stays at its end: as the job says, and always for trees that were there before,
/// in which nobody can tell whose is what. Phases that remove do so by name.
pub fn keeps(job: &Job) -> bool {
    job.keep || (job.existing && !matches!(job.work, Work::Io(_)))
}

/// Frees the job's paths of links, once, before anything is checked. From then on no link is followed.
pub(super) fn settle(job: &mut Job) {
    let listed = listed(job);
    let paths = match &mut job.work {
        Work::Io(io) => &mut io.paths,
        Work::Meta(meta) => &mut meta.paths,
        Work::Files(files) => &mut files.paths,
    };
    for path in paths {
        // What cannot be found is told by the check of places.
        if let Some(real) =
            real(Path::new(path.as_str()), listed).and_then(|real| real.to_str().map(str::to_owned))
        {
            *path = real;
        }
    }
}

fn real(path: &Path, file: bool) -> Option<PathBuf> {
    if !file {
        return path.canonicalize().ok();
    }
    // Devices have names that are links; a file that is one is refused.
    let device = rustix::fs::stat(path)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice);
    if device {
        return path.canonicalize().ok();
    }
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

/// The places where a job makes something that is claimed: a file, a tree, or the directory around trees.
enum Role {
    File,
    Tree,
    Root,
}

fn role(job: &Job, path: &Path) -> Option<Role> {
    let workers = job.workers.count();
    let below = |paths: &[String], name: &str, trees: &dyn Fn(&str) -> bool| {
        let root = |path: &Path| paths.iter().any(|dir| Path::new(dir).join(name) == path);
        if root(path) {
            return Some(Role::Root);
        }
        // One level down, or two.
        let mut rest = Vec::new();
        let mut here = path;
        for _ in 0..2 {
            rest.insert(0, here.file_name()?.to_str()?);
            here = here.parent()?;
            if root(here) {
                return trees(&rest.join("/")).then_some(Role::Tree);
            }
        }
        None
    };
    let own = |name: &str| name.strip_prefix('w').is_some_and(|rest| digits(rest.as_bytes()));
    match &job.work {
        Work::Io(io) if io.listed => {
            io.paths.iter().any(|file| Path::new(file) == path).then_some(Role::File)
        }
        Work::Io(io) => {
            let suffix =
                path.file_name()?.to_str()?.rsplit_once('.').and_then(|(_, worker)| worker.parse().ok());
            let worker = if io.share.is_shared() { 0 } else { suffix? };
            (worker < workers && io_file(io, worker) == path).then_some(Role::File)
        }
        Work::Meta(meta) => {
            below(&meta.paths, &meta.name, &|rest| rest == crate::meta::SHARED_TREE || own(rest))
        }
        Work::Files(files) => below(&files.paths, &files.name, &|rest| {
            let (worker, tree) = rest.split_once('/').unwrap_or((rest, "tree"));
            rest == crate::files::SAMPLES || (own(worker) && matches!(tree, "tree" | "copy"))
        }),
    }
}

fn digits(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// Whether a name below a job's trees is one that such jobs give.
fn own_name(job: &Job, name: &[u8]) -> bool {
    match &job.work {
        Work::Io(_) => false,
        Work::Meta(_) => crate::meta::is_branch(name) || crate::meta::is_item(name),
        Work::Files(_) => crate::files::own_name(name),
    }
}

/// Removes what was made, and nothing else: what bears the name now must be the same inode, and lie where this
/// job makes things. Returns what could not be removed, with the reason. Directories around trees that are
/// not empty yet stay without a word: others may still have to clean up there.
pub fn clean(job: &Job, made: &[Made]) -> Vec<String> {
    let mut job = job.clone();
    settle(&mut job);
    let mut order: Vec<&Made> = made.iter().collect();
    // What lies deepest first.
    order.sort_by_key(|made| std::cmp::Reverse(Path::new(&made.path).components().count()));
    let mut left = Vec::new();
    ground::forget();
    for made in order {
        let path = Path::new(&made.path);
        match role(&job, path) {
            None => left.push(format!("{} (not a place of this job)", path.display())),
            Some(role) => {
                if let Err(errno) = remove(&job, made, role, &mut left) {
                    left.push(format!("{} ({})", path.display(), std::io::Error::from(errno)));
                }
            }
        }
    }
    ground::forget();
    left
}

/// Whether this is a directory around trees, and there still.
pub(super) fn waits(job: &Job, made: &Made) -> bool {
    let path = Path::new(&made.path);
    matches!(role(job, path), Some(Role::Root)) && rustix::fs::lstat(path).is_ok_and(|stat| made.is(&stat))
}

fn remove(job: &Job, made: &Made, role: Role, left: &mut Vec<String>) -> Result<(), Errno> {
    let path = Path::new(&made.path);
    let (dir, name) = match ground::parent(path) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    // Somebody put another thing there: it is theirs.
    if !made.is(&stat) {
        return Ok(());
    }
    let done = match role {
        Role::File => rustix::fs::unlinkat(&dir, name, AtFlags::empty()),
        Role::Root => rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR),
        Role::Tree => return remove_tree(job, &dir, name, path, stat.st_dev, left),
    };
    match done {
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) if matches!(role, Role::Root) => Ok(()),
        other => other,
    }
}

/// Removes a tree that was made: names that such jobs give, on one file system. Anything else stays.
fn remove_tree(
    job: &Job,
    at: &OwnedFd,
    name: &OsStr,
    path: &Path,
    dev: u64,
    left: &mut Vec<String>,
) -> Result<(), Errno> {
    let fd = match ground::open_at(at, Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    if rustix::fs::fstat(&fd)?.st_dev != dev {
        left.push(format!("{} (another file system is mounted there)", path.display()));
        return Ok(());
    }
    let before = left.len();
    for (name, kind) in entries(&fd)? {
        let inner = path.join(OsStr::from_bytes(name.to_bytes()));
        if !own_name(job, name.to_bytes()) {
            left.push(format!("{} (not of this job, so it stays)", inner.display()));
            continue;
        }
        let gone = match kind {
            FileType::Directory => Err(Errno::ISDIR),
            _ => rustix::fs::unlinkat(&fd, &name, AtFlags::empty()),
        };
        match gone {
            Err(Errno::ISDIR) => {
                remove_tree(job, &fd, OsStr::from_bytes(name.to_bytes()), &inner, dev, left)?
            }
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => left.push(format!("{} ({})", inner.display(), std::io::Error::from(errno))),
        }
    }
    match rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // Said above, in detail.
        Err(Errno::NOTEMPTY | Errno::EXIST) if left.len() > before => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What is in a directory. Listed before anything is removed: some file systems skip entries otherwise.
pub(crate) fn entries(fd: &OwnedFd) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(fd)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            entries.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    Ok(entries)
}

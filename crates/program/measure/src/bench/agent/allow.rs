//! Below which directories an agent lets jobs work.

use super::refused;
use skep_bench::job::{IoJob, Job, Work};
use skep_types::Errno;
use skep_wire::Refusal;
use std::path::{Path, PathBuf};

/// The directories that were allowed, without links.
#[derive(Debug, Clone)]
pub struct Allowed(Vec<PathBuf>);

impl Allowed {
    /// Of the directories that the command line names.
    pub fn new(directories: &[PathBuf]) -> Result<Self, String> {
        let real = |directory: &PathBuf| {
            let real =
                directory.canonicalize().map_err(|e| format!("--allow {}: {e}", directory.display()))?;
            if real.is_dir() {
                return Ok(real);
            }
            Err(format!("--allow {}: it is no directory", directory.display()))
        };
        directories.iter().map(real).collect::<Result<_, _>>().map(Self)
    }

    /// The job with its paths free of links, if all of them lie below one of the directories. Workers follow no
    /// link on these paths nor below them, so that whoever may write there leads them nowhere else later.
    pub fn settle(&self, mut job: Job) -> Result<Job, Refusal> {
        let listed = matches!(&job.work, Work::Io(IoJob { listed: true, .. }));
        let paths = match &mut job.work {
            Work::Io(io) => &mut io.paths,
            Work::Meta(meta) => &mut meta.paths,
            Work::Files(files) => &mut files.paths,
        };
        for path in paths {
            *path = self.real(Path::new(path.as_str()), listed)?;
        }
        Ok(job)
    }

    fn real(&self, path: &Path, file: bool) -> Result<String, Refusal> {
        let refused = |errno, why: String| Err(refused(errno, format!("{}: {why}", path.display())));
        // A file may be missing yet; its directory is not.
        let real = match (file, path.parent(), path.file_name()) {
            (false, ..) => path.canonicalize(),
            (true, Some(parent), Some(name)) => parent.canonicalize().map(|parent| parent.join(name)),
            (true, ..) => return refused(Errno::EINVAL, "names no file".to_owned()),
        };
        let real = match real {
            Ok(real) => real,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let host = super::worker::host_name();
                return refused(Errno::ENOENT, format!("is not there: make it first on {host}"));
            }
            Err(e) => return refused(Errno::EACCES, e.to_string()),
        };
        if file && is_link(&real) {
            return refused(Errno::EACCES, "it is a link: name the file itself".to_owned());
        }
        if !self.0.iter().any(|allowed| real.starts_with(allowed)) {
            let allowed: Vec<_> = self.0.iter().map(|allowed| allowed.display().to_string()).collect();
            return refused(
                Errno::EACCES,
                format!(
                    "is not below what this agent allows ({}): start it with --allow",
                    allowed.join(", ")
                ),
            );
        }
        real.into_os_string().into_string().or_else(|_| refused(Errno::EINVAL, "is not in UTF-8".to_owned()))
    }
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_bench::job::MetaJob;

    /// Goal: only what really lies below an allowed directory passes: no `..`, no link that leads out.
    #[test]
    fn nothing_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir_all(inside.join("deep")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.join("file"), inside.join("file-link")).unwrap();
        let allowed = Allowed::new(std::slice::from_ref(&inside)).unwrap();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let tree = |path: PathBuf| allowed.settle(Job::new(Work::Meta(MetaJob::new(&text(&path)))));
        tree(inside.clone()).unwrap();
        std::os::unix::fs::symlink(inside.join("deep"), inside.join("good")).unwrap();
        let settled = tree(inside.join("good")).unwrap();
        assert_eq!(Path::new(&settled.paths()[0]), inside.canonicalize().unwrap().join("deep"));
        for path in [
            outside.clone(),
            inside.join("link"),
            inside.join("deep/../../out"),
            inside.join("missing"),
            dir.path().join("inside-by-name-only"),
        ] {
            assert!(tree(path.clone()).is_err(), "{}", path.display());
        }
        let listed = |path: PathBuf| {
            let io = IoJob { listed: true, ..IoJob::new(&text(&path)) };
            allowed.settle(Job::new(Work::Io(io)))
        };
        listed(inside.join("new-file")).unwrap();
        for path in [outside.join("new-file"), inside.join("link/new-file"), inside.join("file-link")] {
            assert!(listed(path.clone()).is_err(), "{}", path.display());
        }
        let refusal = |path: PathBuf| {
            let refusal = tree(path).unwrap_err();
            (refusal.status.as_errno(), refusal.detail)
        };
        let (errno, text) = refusal(outside);
        assert!(errno == Some(Errno::EACCES) && text.contains("start it with --allow"), "{text}");
        // The reason beside the words is the same one.
        let (errno, text) = refusal(inside.join("missing"));
        assert!(errno == Some(Errno::ENOENT) && text.contains("make it first"), "{text}");
        assert!(Allowed::new(&[dir.path().join("nowhere")]).is_err());
    }
}

//! Below which directories an agent lets jobs work.

use skep_bench::job::{IoJob, Job, Work};
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

    /// Does everything that the job would touch lie below one of them? Links in the paths are followed first.
    /// Who may write there can still exchange a directory for a link later: agents run as a user who may do no
    /// harm elsewhere.
    pub fn check(&self, job: &Job) -> Result<(), String> {
        let listed = matches!(&job.work, Work::Io(IoJob { listed: true, .. }));
        job.paths().iter().try_for_each(|path| self.check_path(Path::new(path), listed))
    }

    fn check_path(&self, path: &Path, file: bool) -> Result<(), String> {
        let refused = |why: String| Err(format!("{}: {why}", path.display()));
        // A file may be missing yet: then its directory decides.
        let (real, rest) = match path.canonicalize() {
            Ok(real) => (real, false),
            Err(e) if file && e.kind() == std::io::ErrorKind::NotFound && !is_link(path) => {
                match path.parent().map(Path::canonicalize) {
                    Some(Ok(parent)) => (parent, true),
                    _ => return refused(e.to_string()),
                }
            }
            Err(e) => return refused(e.to_string()),
        };
        if rest && path.file_name().is_none() {
            return refused("names no file".to_owned());
        }
        if self.0.iter().any(|allowed| real.starts_with(allowed)) {
            return Ok(());
        }
        let allowed: Vec<_> = self.0.iter().map(|allowed| allowed.display().to_string()).collect();
        refused(format!(
            "is not below what this agent allows ({}): start it with --allow",
            allowed.join(", ")
        ))
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
        let tree = |path: PathBuf| allowed.check(&Job::new(Work::Meta(MetaJob::new(&text(&path)))));
        tree(inside.clone()).unwrap();
        tree(inside.join("deep")).unwrap();
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
            allowed.check(&Job::new(Work::Io(io)))
        };
        listed(inside.join("new-file")).unwrap();
        for path in [outside.join("new-file"), inside.join("link/new-file"), inside.join("file-link")] {
            assert!(listed(path.clone()).is_err(), "{}", path.display());
        }
        assert!(tree(outside).unwrap_err().contains("start it with --allow"));
        assert!(Allowed::new(&[dir.path().join("nowhere")]).is_err());
    }
}

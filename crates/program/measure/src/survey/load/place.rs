//! Where load runs: a directory of its own on a mount of the cluster.

use super::super::{Run, RunArgs, commands};
use crate::bench::scratch::own_name;
use skep_base::access::{CLUSTER_FILE, mount_of};
use skep_base::cluster_file::ClusterFile;
use skep_base::deadline;
use skep_base::mount_table::{self, MountEntry};
use skep_base::mounted::{self, Link};
use skep_base::{Failure, Outcome};
use skep_types::ClusterId;
use std::path::{Path, PathBuf};

/// Longest text of a layout.
const LAYOUT_MAX: usize = 4 << 10;

/// Names of such directories begin so.
pub const PREFIX: &str = "skep-survey-";

/// A directory on a mount, removed in the end.
pub struct Place {
    pub mount: PathBuf,
    /// The directory in which this one was made.
    pub above: PathBuf,
    /// Type of the mount, what was mounted, and how.
    pub options: String,
    /// How new files are striped.
    pub layout: String,
    pub dir: PathBuf,
}

impl Place {
    /// The mount that was named; that of `skep up`; the only one of this machine, if it is of this cluster. None is a remark.
    pub fn find(args: &RunArgs, cluster: ClusterId, run: &mut Run<'_>) -> Outcome<Option<Self>> {
        let layers = [
            super::super::LayerName::Log,
            super::super::LayerName::Client,
            super::super::LayerName::Clients,
            super::super::LayerName::Metadata,
        ];
        if !args.only.is_empty() && !layers.iter().any(|layer| args.only.contains(layer)) {
            return Ok(None);
        }
        let named = match (&args.mount, &args.access.cluster) {
            (Some(directory), _) => Some(directory.clone()),
            (None, Some(file)) if file.file_name().is_some_and(|name| name == CLUSTER_FILE) => {
                Some(ClusterFile::read(file)?.mount_point).filter(|point| is_mount(point))
            }
            _ => None,
        };
        let entry = match &named {
            Some(directory) => mount_of(directory, deadline::ANSWER_LIMIT)?,
            None => only_mount()?,
        };
        // One that does not say whose it is is no place for a load.
        let is_of_another = |entry: &MountEntry| {
            let found = mounted::look(&entry.point, Link::Followed, deadline::ANSWER_LIMIT);
            !found.is_ok_and(|found| found.is_none_or(|found| found.cluster == cluster))
        };
        let entry = entry.filter(|entry| !is_of_another(entry));
        match (entry, args.mount.as_ref()) {
            (Some(entry), _) => {
                super::super::interrupt::sweep(named.as_deref().unwrap_or(&entry.point), run);
                Self::make(&entry, named.as_deref()).map(Some)
            }
            (None, Some(directory)) => {
                let text = format!(
                    "{}: is not on a mount of this cluster; mount it there first",
                    directory.display()
                );
                Err(Failure::new(text))
            }
            (None, None) => {
                run.remark("no mount of the cluster was found here, so nothing above the daemons was measured: name one by --mount DIR");
                Ok(None)
            }
        }
    }

    fn make(entry: &MountEntry, named: Option<&Path>) -> Outcome<Self> {
        let above = named.unwrap_or(&entry.point);
        Self::below(above, entry.point.clone(), entry.describe())
    }

    /// A directory below `above`.
    pub fn below(above: &Path, mount: PathBuf, options: String) -> Outcome<Self> {
        let dir = above.join(own_name(PREFIX));
        std::fs::create_dir(&dir).map_err(|e| Failure::local(dir.display(), e))?;
        let mut text = vec![0; LAYOUT_MAX];
        let layout = match rustix::fs::getxattr(&dir, "skep.layout", &mut text[..]) {
            Ok(len) => String::from_utf8_lossy(&text[..len]).into_owned(),
            Err(_) => "not told".to_owned(),
        };
        Ok(Self { mount, above: above.to_owned(), options, layout, dir })
    }

    /// Where a reader can measure again: the directory itself is removed in the end.
    pub fn shown(&self) -> String {
        commands::path(&self.above)
    }

    /// The directory, as jobs want it.
    pub fn path(&self) -> String {
        self.dir.display().to_string()
    }

    /// Removes it now. Is it gone?
    pub fn removed(mut self) -> bool {
        self.remove()
    }

    fn remove(&mut self) -> bool {
        // Once only.
        let dir = std::mem::take(&mut self.dir);
        let removed = if dir.as_os_str().is_empty() { Ok(()) } else { std::fs::remove_dir_all(&dir) };
        removed
            .inspect_err(|e| eprintln!("  note: {}: is left behind: {e}; remove it", dir.display()))
            .is_ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}

fn is_mount(point: &Path) -> bool {
    mount_table::at(point).is_ok_and(|entry| entry.is_some_and(|entry| entry.is_skep()))
}

fn only_mount() -> Outcome<Option<MountEntry>> {
    let all = mount_table::read().map_err(|e| Failure::local("list of mounts", e))?;
    let mut own: Vec<MountEntry> = all.into_iter().filter(MountEntry::is_skep).collect();
    match own.len() {
        0 | 1 => Ok(own.pop()),
        count => Err(Failure::new(format!("{count} mounts of skep are here: say by --mount which one"))),
    }
}

/// The layers above the daemons need a mount.
pub fn need(place: Option<&Place>) -> Outcome<&Place> {
    place.ok_or_else(|| Failure::new("there is no mount"))
}

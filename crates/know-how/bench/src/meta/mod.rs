//! Files and directories as such: one worker's part of a [`crate::job::MetaJob`].

mod calls;
mod contents;
mod tree;

use crate::engine::{Load, Meter, Next, Part, Place, Side, Step, StepKind, Trouble, mix, now_ns, reader_of};
use crate::engine::{Permutation, entries, ground};
use crate::job::{Lookup, MetaJob, MetaPhase, root};
use contents::{Contents, Memory};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use tree::Tree;
pub(crate) use tree::{is_branch, is_item};

/// Name of the tree all workers share, below the job's directory.
pub(crate) const SHARED_TREE: &str = "shared";

/// Name of a worker's own tree.
pub(crate) fn own_tree(worker: u32) -> String {
    format!("w{worker:08}")
}

/// One worker of a metadata job.
pub(crate) struct MetaLoad {
    place: Place,
    meta: MetaJob,
    memory: Memory,
    /// Which items (`true`: directories) are all there, as far as the steps so far say.
    present: Option<bool>,
    pass: Option<Pass>,
}

/// The pass that is prepared.
struct Pass {
    tree: Tree,
    owner: u32,
    count: u64,
    order: Option<Permutation>,
}

impl MetaLoad {
    pub fn new(place: &Place, meta: &MetaJob) -> Self {
        let (place, meta) = (place.clone(), meta.clone());
        Self { place, meta, memory: Memory::None, present: None, pass: None }
    }

    fn base(&self, worker: u32) -> PathBuf {
        let root = root(&self.meta.paths, &self.meta.name, worker);
        if self.meta.own_tree { root.join(own_tree(worker)) } else { root.join(SHARED_TREE) }
    }

    /// Whether this worker makes and removes directories: its own tree, or the shared one of a path.
    fn is_builder(&self) -> bool {
        self.meta.own_tree || (self.place.worker as usize) < self.meta.paths.len()
    }

    fn make_tree(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        if !self.is_builder() {
            return Ok(());
        }
        let root = root(&self.meta.paths, &self.meta.name, self.place.worker);
        // Several workers may make it at the same time; it is whose mkdir succeeds.
        match self.place.claims.directory(&root) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Trouble::call("mkdir", &root, errno)),
        }
        meter.restart();
        let existing = self.place.job.existing;
        let base = self.base(self.place.worker);
        let tree = Tree::new(&base, &self.meta);
        let mut now = meter.now();
        for (done, path) in tree.directories().iter().enumerate() {
            if meter.next(done as u64, u64::MAX, now)? == Next::Over {
                break;
            }
            let here = Path::new(path);
            let made = match done {
                0 => self.place.claims.directory(here),
                _ => calls::mkdir(self.meta.lookup, here),
            };
            match made {
                Err(Errno::EXIST) if existing => {}
                other => other.map_err(|errno| Trouble::call("mkdir", here, errno))?,
            }
            now = meter.record(Side::First, 0, now);
        }
        Ok(())
    }

    fn remove_directories(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        if !self.is_builder() {
            return Ok(());
        }
        let tree = Tree::new(&self.base(self.place.worker), &self.meta);
        let mut now = meter.now();
        for path in tree.directories().iter().rev() {
            calls::rmdir(self.meta.lookup, Path::new(path))
                .map_err(|errno| Trouble::call("remove", Path::new(path), errno))?;
            now = meter.record(Side::First, 0, now);
        }
        // The last one removes what is around the trees; before that it is not empty.
        let _ = ground::rmdir(&root(&self.meta.paths, &self.meta.name, self.place.worker));
        Ok(())
    }

    fn items(
        &mut self,
        phase: MetaPhase,
        directories: bool,
        renames: u32,
        meter: &mut Meter,
    ) -> Result<(), Trouble> {
        let Some(pass) = &self.pass else { return Ok(()) };
        let (mut path, mut other) = (String::with_capacity(256), String::with_capacity(256));
        let lookup = self.meta.lookup;
        let mut now = meter.now();
        let mut done = 0;
        while meter.next(done, pass.count, now)? == Next::Go {
            let item = pass.order.map_or(done, |order| order.at(done));
            pass.tree.item(&mut path, directories, renames, pass.owner, item);
            let key = mix(self.place.job.seed ^ mix(u64::from(pass.owner)) ^ item);
            let contents = Contents { meta: &self.meta, key, existing: self.place.job.existing };
            let mut moved = 0;
            let here = Path::new(path.as_str());
            match (phase, directories) {
                (MetaPhase::Create, true) => make_directory(lookup, here, self.place.job.existing)?,
                (MetaPhase::Create, false) => {
                    moved = contents.create(here, &mut self.memory)?;
                }
                (MetaPhase::Stat, _) => {
                    calls::stat(lookup, here).map_err(|errno| Trouble::call("stat", here, errno))?;
                }
                (MetaPhase::OpenRead, true) => {
                    open_directory(here)?;
                }
                (MetaPhase::OpenRead, false) => moved = contents.read(here, &mut self.memory)?,
                (MetaPhase::Rename, _) => {
                    pass.tree.item(&mut other, directories, renames + 1, pass.owner, item);
                    calls::rename(lookup, here, Path::new(&other))
                        .map_err(|errno| Trouble::call("rename", here, errno))?;
                }
                (MetaPhase::Remove, true) => {
                    calls::rmdir(lookup, here).map_err(|errno| Trouble::call("remove", here, errno))?;
                }
                (MetaPhase::Remove, false) => {
                    calls::unlink(lookup, here).map_err(|errno| Trouble::call("remove", here, errno))?;
                }
                (MetaPhase::Readdir, _) => {}
            }
            now = meter.record(Side::First, moved, now);
            done += 1;
        }
        Ok(())
    }

    /// Workers whose items lie in the same directories as that one's.
    fn sharers(&self, owner: u32) -> u64 {
        if self.meta.own_tree {
            return 1;
        }
        let (workers, paths) = (self.place.job.workers.count(), self.meta.paths.len() as u32);
        u64::from(workers / paths + u32::from(owner % paths < workers % paths))
    }

    fn list(&mut self, directories: bool, meter: &mut Meter) -> Result<(), Trouble> {
        let Some(pass) = &self.pass else { return Ok(()) };
        let job = &self.place.job;
        let known = self.present == Some(directories) && job.stonewall.is_none();
        let (kind, sharers) = (if directories { b'd' } else { b'f' }, self.sharers(pass.owner));
        let holders = pass.tree.holders();
        let mut now = meter.now();
        let mut done = 0;
        while meter.next(done, holders.len() as u64, now)? == Next::Go {
            let here = Path::new(&holders[done as usize]);
            let began = now;
            let fd = open_directory(here)?;
            let (mut entries, mut items) = (0, 0);
            for entry in
                rustix::fs::Dir::read_from(&fd).map_err(|errno| Trouble::call("list", here, errno))?
            {
                let entry = entry.map_err(|errno| Trouble::call("list", here, errno))?;
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b"..") {
                    entries += 1;
                    items += u64::from(name.first() == Some(&kind) && is_item(name));
                }
            }
            let should = pass.tree.items_in(done) * sharers;
            // An earlier run may have left more than this one has.
            if known && (items < should || (items > should && !job.existing)) {
                let reason = format!("the listing has {items} of {should} entries");
                return Err(Trouble::found("list", here, reason));
            }
            now = now_ns();
            meter.latency(Side::First, now - began);
            meter.count(Side::First, 0, entries, now);
            done += 1;
        }
        Ok(())
    }

    /// Removes what phases before left in the tree, its directories excepted: items that bear this job's
    /// names, on the tree's file system. What else is there stays, and then the tree does, too.
    fn sweep(&self) -> Result<(), Trouble> {
        if !self.is_builder() {
            return Ok(());
        }
        let mut device = None;
        for path in Tree::new(&self.base(self.place.worker), &self.meta).directories() {
            let here = Path::new(path);
            let fd = open_directory(here)?;
            let stat = rustix::fs::fstat(&fd).map_err(|errno| Trouble::call("stat", here, errno))?;
            if *device.get_or_insert(stat.st_dev) != stat.st_dev {
                let reason = "another file system is mounted here, so it is left alone".to_owned();
                return Err(Trouble::found("remove", here, reason));
            }
            for (name, _) in entries(&fd).map_err(|errno| Trouble::call("list", here, errno))? {
                if !is_item(name.to_bytes()) {
                    continue;
                }
                let flags = match name.to_bytes().first() {
                    Some(b'd') => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                rustix::fs::unlinkat(&fd, &name, flags)
                    .map_err(|errno| Trouble::call("remove", &here.join(&*name.to_string_lossy()), errno))?;
            }
        }
        Ok(())
    }
}

impl Load for MetaLoad {
    fn prepare(&mut self, step: &Step, repetition: u32, reach: &[u64]) -> Result<(), Trouble> {
        // Two trees would take twice the memory, and so would what two phases move.
        (self.pass, self.memory) = (None, Memory::None);
        let StepKind::Meta(phase, directories, _) = step.kind else {
            if step.kind == StepKind::TreeRemove {
                self.sweep()?;
            }
            self.present = None;
            return Ok(());
        };
        let readers = self.meta.readers_of(phase);
        let owner = reader_of(&self.place.job, readers, self.place.worker, self.place.hosts, repetition);
        let mut count = self.meta.items.per_worker(&self.meta.tree);
        if phase != MetaPhase::Create {
            count = count.min(reach.get(owner as usize).copied().unwrap_or(u64::MAX));
        }
        if !directories {
            let seed = self.place.job.seed ^ u64::from(self.place.worker);
            self.memory = Memory::of(phase, &self.meta, self.place.job.existing, seed)?;
        }
        let shuffled = self.meta.random_order
            && matches!(phase, MetaPhase::Stat | MetaPhase::OpenRead | MetaPhase::Rename);
        let seed = mix(self.place.job.seed ^ mix(u64::from(step.index) << 32 | u64::from(repetition)));
        let order = shuffled.then(|| Permutation::new(count, seed ^ u64::from(self.place.worker)));
        self.pass = Some(Pass { tree: Tree::new(&self.base(owner), &self.meta), owner, count, order });
        Ok(())
    }

    fn part(&mut self, step: &Step, _part: Part, meter: &mut Meter) -> Result<(), Trouble> {
        match step.kind {
            StepKind::TreeMake => self.make_tree(meter),
            StepKind::TreeRemove => self.remove_directories(meter),
            StepKind::Meta(MetaPhase::Readdir, directories, _) => self.list(directories, meter),
            StepKind::Meta(phase, directories, renames) => {
                self.items(phase, directories, renames, meter)?;
                match phase {
                    MetaPhase::Create => self.present = Some(directories),
                    MetaPhase::Remove => self.present = None,
                    _ => {}
                }
                Ok(())
            }
            StepKind::SharedFile | StepKind::Io(_) | StepKind::Files(_) => Ok(()),
        }
    }

    fn tidy(&mut self, repetition: u32) -> Result<Vec<String>, Trouble> {
        self.pass = None;
        // Kept are the last repetition's; those before must make room for it.
        if self.place.job.keep && repetition + 1 < self.place.job.repetitions && self.is_builder() {
            // Those that were there before stay, and are used again.
            self.place.claims.remove(&self.place.job, &self.base(self.place.worker))?;
        }
        Ok(Vec::new())
    }
}

fn make_directory(lookup: Lookup, path: &Path, may_exist: bool) -> Result<(), Trouble> {
    match calls::mkdir(lookup, path) {
        Err(Errno::EXIST) if may_exist => Ok(()),
        other => other.map_err(|errno| Trouble::call("mkdir", path, errno)),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Trouble> {
    ground::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .map_err(|errno| Trouble::call("open", path, errno))
}

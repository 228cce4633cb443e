//! `cargo xtask power`: power is cut under real daemons that write, and comes back.
//!
//! The servers' directories lie on disks of their own (ext4 or XFS in a file), which are shut down so that everything
//! that was only in memory is lost, while all processes of that server are killed. Programs on two mounts go on through
//! that, and keep book: what a good fsync vouched for must be there, on either mount; what came after may be there, be
//! what was before, or be an error, and never anything else.

mod book;
mod disk;
mod writer;

use crate::crash::{leaks, seed_of_the_clock};
use crate::program::built;
use disk::{Disk, Kind};
use skep_model::Rng;
use skep_rig::{Cluster, Plan, Runner};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use writer::Writer;

/// Set for the process that has mounts of its own.
const INSIDE: &str = "SKEP_POWER_INSIDE";
/// Writers on each mount.
const WRITERS: u64 = 2;
/// Longest time that programs work before a cut, in milliseconds.
const WORK_MAX: u64 = 2_500;
/// Longest time that they work on afterwards.
const AFTER_MAX: u64 = 800;

/// How much of it.
#[derive(clap::Args)]
pub struct Arguments {
    /// Cuts.
    #[arg(long, default_value_t = 10)]
    cuts: u32,
    /// Seed; absent: the clock's.
    #[arg(long)]
    seed: Option<u64>,
    /// The file system of the disks; absent: both, in turns.
    #[arg(long)]
    kind: Option<Kind>,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Whose power goes.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// That of all servers.
    Servers,
    /// That of the disk with the metadata and the cluster's state.
    Metadata,
    /// That of one storage server's targets.
    Storage(usize),
    /// That of all servers and clients.
    Site,
}

/// Runs it in mounts of its own: a file system is let go when nobody has it mounted any more, and whoever makes mounts of
/// his own meanwhile (other tests do) would have ours among them.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    if std::env::var_os(INSIDE).is_some() {
        return run_inside(root, arguments);
    }
    let own = std::env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(own).args(std::env::args_os().skip(1));
    let status = command.env(INSIDE, "1").status();
    Ok(status.map_err(|e| format!("unshare: {e}; it is in the package util-linux"))?.success())
}

/// True when nothing was lost that must not be.
fn run_inside(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", false)?,
    };
    let seed = arguments.seed.unwrap_or_else(seed_of_the_clock);
    let kinds = arguments.kind.map_or(vec![Kind::Ext4, Kind::Xfs], |kind| vec![kind]);
    let mut good = 0;
    for (number, kind) in kinds.iter().enumerate() {
        let share = arguments.cuts / kinds.len() as u32
            + u32::from((number as u32) < arguments.cuts % kinds.len() as u32);
        println!("power: {share} cuts, {kind:?}, --seed {seed}");
        let plan = Plan::new(&program).with("SKEP_MGMTD_SESSION_TIMEOUT", "20s");
        let mut scene = Scene::start(plan, *kind, seed)?;
        match scene.play(share) {
            Ok(()) => good += share,
            Err(e) => {
                scene.cluster.show_logs();
                println!("FAILED {kind:?}: {e}\n{good} passed, 1 failed");
                return Ok(false);
            }
        }
    }
    println!("{good} passed, 0 failed");
    Ok(true)
}

/// A cluster on disks, and programs on its mounts. Fields in the order in which they go: nobody has files open then.
struct Scene {
    writers: Vec<Writer>,
    cluster: Cluster,
    state: Disk,
    /// The targets' disks, with the numbers of their directories.
    targets: Vec<(usize, Disk)>,
    points: Vec<PathBuf>,
    rng: Rng,
}

impl Scene {
    fn start(plan: Plan, kind: Kind, seed: u64) -> Result<Self, String> {
        let (count, servers) = (plan.targets as usize, plan.servers as usize);
        let runner = Arc::new(Runner::start()?);
        let cluster = Cluster::start(plan)?;
        cluster.down()?;
        let disk =
            |point: PathBuf, name: &str| Disk::under(&point, cluster.beside(name), kind, runner.clone());
        let state = disk(cluster.dir().join("state"), "state.img")?;
        let targets: Result<Vec<_>, String> = (1..=count)
            .map(|number| {
                let point = cluster.dir().join("targets").join(number.to_string());
                Ok(((number - 1) % servers + 1, disk(point, &format!("target-{number}.img"))?))
            })
            .collect();
        let targets = targets?;
        cluster.up()?;
        let points = vec![cluster.mount().to_owned(), cluster.second_mount("mnt1", &[])?];
        let mut writers = Vec::new();
        for number in 0..WRITERS * points.len() as u64 {
            let point = &points[number as usize % points.len()];
            writers.push(Writer::new(number, seed, point).map_err(|e| format!("{}: {e}", point.display()))?);
        }
        Ok(Self { writers, cluster, state, targets, points, rng: Rng::new(seed) })
    }

    fn play(&mut self, cuts: u32) -> Result<(), String> {
        let begun = Instant::now();
        for number in 1..=cuts {
            let cut = match self.rng.below(6) {
                0 | 1 => Cut::Servers,
                2 => Cut::Metadata,
                3 => Cut::Storage(1),
                4 => Cut::Storage(2),
                _ => Cut::Site,
            };
            self.round(cut).map_err(|e| format!("cut {number}, {cut:?}: {e}"))?;
            let (changes, synced, told) =
                self.writers.iter().fold((0, 0, 0), |(changes, synced, told), writer| {
                    let counts = writer.counts;
                    (changes + counts.changes, synced + counts.synced, told + counts.told)
                });
            println!(
                "{:6.1} s: cut {number}, {cut:?}; {changes} changes, {synced} good syncs, {told} errors told",
                begun.elapsed().as_secs_f32()
            );
        }
        for (number, writer) in self.writers.iter_mut().enumerate() {
            writer.clear(&self.points[number % self.points.len()])?;
        }
        leaks::check(&self.cluster, &self.points)
    }

    /// Programs work, power goes and comes back, they go on; then everything is looked at.
    fn round(&mut self, cut: Cut) -> Result<(), String> {
        let before = Duration::from_millis(self.rng.below(WORK_MAX));
        let after = Duration::from_millis(self.rng.below(AFTER_MAX));
        let stop = AtomicBool::new(false);
        let (cluster, points, disks) = (&self.cluster, &self.points, (&self.state, &self.targets[..]));
        std::thread::scope(|scope| {
            for (number, writer) in self.writers.iter_mut().enumerate() {
                let (stop, point) = (&stop, &points[number % points.len()]);
                scope.spawn(move || writer.work(point, stop));
            }
            std::thread::sleep(before);
            if matches!(cut, Cut::Site) {
                // Programs of a site go with it: what they had open is closed.
                stop.store(true, Ordering::Relaxed);
                return Ok(());
            }
            let went = strike(cluster, disks, cut).and_then(|()| cluster.up());
            if went.is_err() {
                // Programs would wait for servers that do not come.
                cluster.of("mount").iter().try_for_each(skep_rig::Daemon::kill)?;
            }
            std::thread::sleep(after);
            stop.store(true, Ordering::Relaxed);
            went
        })?;
        if matches!(cut, Cut::Site) {
            self.site()?;
        }
        self.writers.iter_mut().for_each(Writer::sync_all);
        for writer in &mut self.writers {
            for point in &self.points {
                writer.verify(point)?;
            }
            writer.forget_missing(&self.points[0]);
        }
        Ok(())
    }

    /// Servers and clients, a moment after the programs' last change.
    fn site(&mut self) -> Result<(), String> {
        for daemon in self.cluster.of("mount") {
            daemon.kill()?;
        }
        self.writers.iter_mut().for_each(Writer::closed);
        strike(&self.cluster, (&self.state, &self.targets), Cut::Site)?;
        self.cluster.up()?;
        self.cluster.mount_again(&self.points[1])
    }
}

/// Kills who works on these disks, and the disks.
fn strike(cluster: &Cluster, (state, targets): (&Disk, &[(usize, Disk)]), cut: Cut) -> Result<(), String> {
    let of_server = |name: &str| format!("storaged-{name}.toml");
    let hit = |daemon: &skep_rig::Daemon| match cut {
        Cut::Storage(server) => {
            let config = of_server(&server.to_string());
            daemon.words.iter().any(|word| word.to_string_lossy().ends_with(&config))
        }
        _ => daemon.service != "mount",
    };
    for daemon in cluster.daemons().iter().filter(|daemon| hit(daemon)) {
        daemon.kill()?;
    }
    let mut disks: Vec<&Disk> = Vec::new();
    if !matches!(cut, Cut::Storage(_)) {
        disks.push(state);
    }
    if !matches!(cut, Cut::Metadata) {
        let lost = |server: &usize| !matches!(cut, Cut::Storage(only) if only != *server);
        disks.extend(targets.iter().filter(|(server, _)| lost(server)).map(|(_, disk)| disk));
    }
    disks.iter().try_for_each(|disk| disk.cut())?;
    disks.iter().try_for_each(|disk| disk.start())
}

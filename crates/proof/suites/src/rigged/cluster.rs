//! The set-up: a cluster on four hosts that are network namespaces, its targets on disks that can be made slow.

use super::disk::IMAGE;
use super::progress;
use crate::hosts::host::Network;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Size of a disk in MiB.
const DISK_SIZE: u64 = 768;
/// Longest wait for a service or a mount.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between looks.
const PAUSE: Duration = Duration::from_millis(50);
/// Length of the period in which the kernel shares out processor time.
const PERIOD_US: u32 = 100_000;
/// Bytes a second that a healthy disk moves: less than this machine can, so that disks are alike whatever else it does.
const DISK_RATE: u64 = 500_000_000;
/// Megabits a second that a healthy link carries, for the same reason.
const LINK_RATE: u32 = 2_000;
/// Bytes of a packet on any network ...
const PACKETS: u32 = 1_500;
/// ... and on one that was set up for large ones.
const LARGE_PACKETS: u32 = 9_000;
/// Packets that a host hands to a device uncut at most, if nothing says otherwise.
const SEGMENTS: u32 = 65_535;
/// Bytes that a shaped link lets pass at once, at least.
const BURST: u32 = 128 << 10;
/// Bytes for each megabit a second that pass at once: two milliseconds' worth.
const BURST_PER_MEGABIT: u32 = 250;
/// Numbers of the busy neighbours on a host.
const CROWD: &str = "/run/neighbours.pid";
/// Where the cluster is mounted on the first host.
pub const MOUNT: &str = "/mnt/skep";
/// What a survey says while it runs, in the directory that hosts share with this process.
const SAID: &str = "survey.said";
/// The control group of a starved daemon.
const GROUP: &str = "skep-rigged";

/// A host and the daemon on it that is drawn for network and processor.
pub struct Daemon {
    /// Its host.
    pub host: &'static str,
    /// Number of the host on the network, from 1.
    pub port: usize,
    /// Name in the cluster.
    pub alias: &'static str,
    service: &'static str,
    instance: &'static str,
}

/// A target and where it is.
pub struct Target {
    /// Name in the cluster.
    pub alias: &'static str,
    host: &'static str,
    path: &'static str,
}

/// Those that may be rigged. The management service is on the first host, too.
pub const DAEMONS: [Daemon; 4] = [
    Daemon { host: "alpha", port: 1, alias: "meta-1", service: "metad", instance: "m1" },
    Daemon { host: "beta", port: 2, alias: "beta", service: "storaged", instance: "s1" },
    Daemon { host: "gamma", port: 3, alias: "gamma", service: "storaged", instance: "s1" },
    Daemon { host: "delta", port: 4, alias: "delta", service: "storaged", instance: "s1" },
];

/// All targets.
pub const TARGETS: [Target; 4] = [
    Target { alias: "beta-0", host: "beta", path: "/data/skep0" },
    Target { alias: "beta-1", host: "beta", path: "/data/skep1" },
    Target { alias: "gamma-0", host: "gamma", path: "/data/skep0" },
    Target { alias: "delta-0", host: "delta", path: "/data/skep0" },
];

/// One disk: the process that serves its file, and the loop device on it.
struct Disk {
    child: Child,
    at: PathBuf,
    rate: PathBuf,
    device: String,
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The loop device goes with its last mount, which went with the hosts.
        let _ = Command::new("losetup").args(["-d", &self.device]).stderr(Stdio::null()).status();
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running cluster. Fields are dropped in order: hosts, then what they stand on.
pub struct Cluster {
    network: Network,
    program: PathBuf,
    /// What a survey says while it runs, seen from here.
    said: PathBuf,
    disks: Vec<Disk>,
    group: Group,
}

fn wait(what: &str, mut look: impl FnMut() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !look() {
        if began.elapsed() > PATIENCE {
            return Err(format!("{what} is not there after {PATIENCE:?}"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn done(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Disk {
    fn start(scratch: &Path, number: usize) -> Result<Self, String> {
        let put = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        let (at, rate) = (scratch.join(format!("disk{number}")), scratch.join(format!("rate{number}")));
        std::fs::create_dir(&at).map_err(|e| format!("{}: {e}", at.display()))?;
        put(&rate, "0")?;
        let own = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
        // Killed or not, whoever started it takes it along.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(own);
        command.arg("rigged-disk").arg("--at").arg(&at).arg("--rate").arg(&rate);
        let child = command.args(["--size", &DISK_SIZE.to_string()]).stdin(Stdio::null()).spawn();
        let child = child.map_err(|e| format!("rigged-disk: {e}"))?;
        let mut disk = Self { child, at, rate, device: String::new() };
        let image = disk.at.join(IMAGE);
        wait("a disk", || image.exists())?;
        disk.device = done(Command::new("losetup").args(["-f", "--show"]).arg(&image))?;
        // Inode tables and journal are written now, not by the kernel while something is measured. Blocks of files
        // stay holes of the memory below until they are written: that costs far less than the disk's rate.
        done(Command::new("mkfs.ext4").args([
            "-q",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
            &disk.device,
        ]))?;
        Ok(disk)
    }
}

impl Cluster {
    /// Starts everything.
    pub fn start(program: &Path, scratch: &Path) -> Result<Self, String> {
        let disks: Vec<Disk> =
            (0..TARGETS.len()).map(|number| Disk::start(scratch, number)).collect::<Result<_, _>>()?;
        let hosts: Vec<&str> = DAEMONS.iter().map(|daemon| daemon.host).collect();
        let network = Network::start(&hosts, scratch)?;
        let (program, said) = (program.to_owned(), scratch.join("exchange").join(SAID));
        let cluster = Self { network, program, said, disks, group: Group::new()? };
        match cluster.configure().and_then(|()| cluster.begin()) {
            Ok(()) => Ok(cluster),
            Err(why) => Err(format!("{why}\n{}", cluster.logs())),
        }
    }

    fn skep(&self) -> String {
        self.program.display().to_string()
    }

    fn configure(&self) -> Result<(), String> {
        let skep = self.skep();
        self.network.run(
            "alpha",
            &format!("{skep} key generate /etc/skep/cluster.key && cp /etc/skep/cluster.key /exchange/key"),
        )?;
        self.network.write("alpha", "/etc/skep/mgmtd/m.toml", "shards = 8\n")?;
        for daemon in &DAEMONS {
            let own: Vec<&str> = TARGETS.iter().filter(|t| t.host == daemon.host).map(|t| t.path).collect();
            let targets = if own.is_empty() { String::new() } else { format!("targets = {own:?}\n") };
            let text = format!("alias = \"{}\"\nmgmtd = [\"10.77.0.1\"]\n{targets}", daemon.alias);
            let path = format!("/etc/skep/{}/{}.toml", daemon.service, daemon.instance);
            self.network.write(daemon.host, &path, &text)?;
            self.network.run(
                daemon.host,
                "[ -f /etc/skep/cluster.key ] || install -m 400 /exchange/key /etc/skep/cluster.key",
            )?;
        }
        for (disk, target) in self.disks.iter().zip(&TARGETS) {
            self.network.run(
                target.host,
                &format!("mkdir -p {0} && mount {1} {0} && rmdir {0}/lost+found", target.path, disk.device),
            )?;
            // Gone with its last mount, however this ends.
            done(Command::new("losetup").args(["-d", &disk.device]))?;
        }
        Ok(())
    }

    fn begin(&self) -> Result<(), String> {
        let service = |host: &str, service: &str, instance: &str, more: &str| {
            let own = format!("{} {service} --instance {instance} {more}", self.skep());
            let log = format!("/var/log/skep-{service}-{instance}.log");
            let script = format!("bash -c 'echo $$ > /run/{service}-{instance}.pid; exec {own} 2> {log}'");
            self.network.begin(host, &script)
        };
        service("alpha", "mgmtd", "m", "")?;
        for daemon in &DAEMONS {
            let more = if daemon.service == "storaged" { "--init" } else { "" };
            service(daemon.host, daemon.service, daemon.instance, more)?;
        }
        let skep = self.skep();
        let targets = format!("{skep} target list -O ndjson | grep -c '\"reachability\":\"online\"'");
        let expected = TARGETS.len().to_string();
        wait("the cluster", || {
            self.network.run("alpha", &targets).is_ok_and(|said| said.trim() == expected)
        })?;
        self.name_targets()?;
        self.level()
    }

    /// Gives every target the name by which it is known here.
    fn name_targets(&self) -> Result<(), String> {
        for target in &TARGETS {
            let number = format!("sed -n 's/^target = //p' {}/skep-target.toml", target.path);
            let number = self.network.run(target.host, &number)?;
            let rename = format!("{} target set-alias {} {}", self.skep(), number.trim(), target.alias);
            self.network.run("alpha", &rename)?;
        }
        Ok(())
    }

    /// All disks and links at their common rates.
    fn level(&self) -> Result<(), String> {
        (0..TARGETS.len()).try_for_each(|index| self.disk_rate(index, 100))?;
        (0..DAEMONS.len()).try_for_each(|index| self.shape(index, 100))
    }

    /// Gives a disk so many per cent of the rate of a healthy one.
    pub fn disk_rate(&self, index: usize, percent: u32) -> Result<(), String> {
        let rate = DISK_RATE * u64::from(percent) / 100;
        // Of one length, so that a reader never sees half of a new number behind half of an old one.
        let path = &self.disks[index].rate;
        std::fs::write(path, format!("{rate:<20}")).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Gives the network of a host so many per cent of the rate of a healthy one, both ways.
    pub fn shape(&self, index: usize, percent: u32) -> Result<(), String> {
        let daemon = &DAEMONS[index];
        let rate = LINK_RATE * percent / 100;
        let burst = BURST.max(rate * BURST_PER_MEGABIT);
        let change = |device: &str| {
            format!("tc qdisc replace dev {device} root tbf rate {rate}mbit burst {burst} latency 50ms")
        };
        self.network.run(daemon.host, &change("eth0"))?;
        self.network.at_switch(&change(&format!("port{}", daemon.port)))
    }

    /// Has every host send large packets, and the switch drop those from and to one host, without a word; or takes both
    /// back. The kernel must cut packets before they leave a host, for what is cut later passes any port.
    pub fn packets(&self, dropped: Option<usize>) -> Result<(), String> {
        let (mtu, segments) = if dropped.is_some() { (LARGE_PACKETS, 1) } else { (PACKETS, SEGMENTS) };
        for (index, daemon) in DAEMONS.iter().enumerate() {
            let own = if dropped == Some(index) { PACKETS } else { mtu };
            self.network.at_switch(&format!("ip link set dev port{} mtu {own}", daemon.port))?;
            let change = format!("ip link set dev eth0 mtu {mtu} gso_max_segs {segments}");
            self.network.run(daemon.host, &change)?;
        }
        Ok(())
    }

    /// Keeps a daemon on one processor, and puts busy neighbours there.
    pub fn crowd(&self, index: usize, processor: usize, count: u32, nice: i32) -> Result<(), String> {
        let daemon = &DAEMONS[index];
        // Each neighbour is a session: where the kernel shares out time among sessions first, it is theirs that
        // has the level, as with anything that was started by somebody else.
        let script = format!(
            "taskset -a -c -p {processor} $(cat /run/{}-{}.pid) > /dev/null
             for neighbour in $(seq {count}); do
                 setsid nice -n {nice} taskset -c {processor} sh -c 'while :; do :; done' < /dev/null > /dev/null 2>&1 &
                 pid=$!
                 echo $pid >> {CROWD}
                 until [ \"$(ps -o sid= -p $pid | tr -d ' ')\" = $pid ]; do :; done
                 [ ! -w /proc/$pid/autogroup ] || echo {nice} > /proc/$pid/autogroup
             done",
            daemon.service, daemon.instance
        );
        self.network.run(daemon.host, &script).map(drop)
    }

    /// Takes the neighbours away, and lets the daemon run everywhere.
    pub fn alone(&self, index: usize) -> Result<(), String> {
        let daemon = &DAEMONS[index];
        let script = format!(
            "kill $(cat {CROWD}); rm {CROWD}
             taskset -a -c -p 0-$(($(nproc --all) - 1)) $(cat /run/{}-{}.pid) > /dev/null",
            daemon.service, daemon.instance
        );
        self.network.run(daemon.host, &script).map(drop)
    }

    /// Limits the processor time of a daemon, or takes the limit away.
    pub fn starve(&self, index: usize, percent: Option<u32>) -> Result<(), String> {
        let daemon = &DAEMONS[index];
        let into = match percent {
            Some(percent) => self.group.limited(percent)?,
            None => self.group.free(),
        };
        let pid = format!("/run/{}-{}.pid", daemon.service, daemon.instance);
        // Whoever writes there names processes as its own namespace numbers them.
        self.network.run(daemon.host, &format!("cat {pid} > {}/cgroup.procs", into.display())).map(drop)
    }

    /// Mounts the cluster on the first host, where surveys run.
    pub fn mount(&self) -> Result<(), String> {
        let skep = self.skep();
        let script = format!(
            "mkdir -p {MOUNT}
             mountpoint -q {MOUNT} || {skep} mount 10.77.0.1:/ {MOUNT} < /dev/null > /var/log/skep-mount.log 2>&1 \
             || {{ cat /var/log/skep-mount.log; exit 1; }}"
        );
        self.network.run("alpha", &script).map(drop)
    }

    /// Surveys it; gives the JSON that came of it. Meanwhile `told` gets each line that the survey says.
    pub fn survey(
        &self,
        more: &str,
        limit: Duration,
        told: impl FnMut(&str) + Send,
    ) -> Result<String, String> {
        let skep = self.skep();
        let script = format!(
            "rm -rf /tmp/survey && {skep} survey {more} --out /tmp/survey > /tmp/survey.txt 2> /exchange/{SAID}"
        );
        std::fs::write(&self.said, "").map_err(|e| format!("{}: {e}", self.said.display()))?;
        let ended = progress::followed(&self.said, told, || self.network.run_within("alpha", &script, limit));
        // What it said is the only trace of one that took too long.
        ended.map_err(|why| {
            let said = std::fs::read_to_string(&self.said).unwrap_or_default();
            format!("{}\n{said}", why.lines().next().unwrap_or_default())
        })?;
        self.network.run("alpha", "cat /tmp/survey/survey.json")
    }

    /// The last lines of what the services said.
    pub fn logs(&self) -> String {
        self.network.logs()
    }
}

/// The control group in which a daemon starves: of the first or the second version, as the machine has it.
struct Group {
    root: PathBuf,
    first: bool,
}

impl Group {
    fn new() -> Result<Self, String> {
        let first = Path::new("/sys/fs/cgroup/cpu/cgroup.procs").exists();
        let root = PathBuf::from(if first { "/sys/fs/cgroup/cpu" } else { "/sys/fs/cgroup" });
        let group = Self { root, first };
        let own = group.own();
        if !own.exists() {
            std::fs::create_dir(&own).map_err(|e| format!("{}: {e}", own.display()))?;
        }
        Ok(group)
    }

    fn own(&self) -> PathBuf {
        self.root.join(GROUP)
    }

    fn free(&self) -> PathBuf {
        self.root.clone()
    }

    fn limited(&self, percent: u32) -> Result<PathBuf, String> {
        let quota = PERIOD_US * percent / 100;
        let own = self.own();
        let files = match self.first {
            true => {
                vec![("cpu.cfs_period_us", PERIOD_US.to_string()), ("cpu.cfs_quota_us", quota.to_string())]
            }
            false => vec![("cpu.max", format!("{quota} {PERIOD_US}"))],
        };
        for (name, text) in files {
            let path = own.join(name);
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(own)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(self.own());
    }
}

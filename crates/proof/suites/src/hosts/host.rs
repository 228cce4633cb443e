//! Machines that are none: namespaces with a tree, a name, processes and a network of their own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a host takes to be there.
const BOOT: Duration = Duration::from_secs(120);
/// Pause between looks at what is awaited.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest time of one block of commands.
const BLOCK: Duration = Duration::from_secs(120);

const INIT: &str = include_str!("shim/init.sh");
/// Programs that a host has in the place of others: name, text.
const SHIMS: [(&str, &str); 4] = [
    ("systemctl", include_str!("shim/systemctl")),
    ("scp", include_str!("shim/scp")),
    ("skep-load", include_str!("shim/skep-load")),
    ("skep-archive", include_str!("shim/skep-archive")),
];

/// A process that holds namespaces; they end with it, and everything that runs in them.
struct Holder {
    child: Child,
    /// The first process inside.
    pid: u32,
}

impl Holder {
    fn start(unshare: &[&str], words: &[&str]) -> Result<Self, String> {
        // Killed or not, whoever started it takes it along.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare"]);
        command.args(unshare).args(["--fork", "--kill-child"]).args(words).stdin(Stdio::null());
        let child = command.spawn().map_err(|e| format!("unshare: {e}"))?;
        let mut holder = Self { child, pid: 0 };
        let list = format!("/proc/{0}/task/{0}/children", holder.child.id());
        holder.pid = wait("a namespace", || {
            std::fs::read_to_string(&list).ok().and_then(|text| text.split(' ').next()?.parse().ok())
        })?;
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
    let began = Instant::now();
    loop {
        match look() {
            Some(found) => return Ok(found),
            None if began.elapsed() > BOOT => return Err(format!("{what} is not there after {BOOT:?}")),
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Hosts on one network, and a directory that all of them see.
pub struct Network {
    hosts: Vec<(String, Holder)>,
    switch: Holder,
    exchange: PathBuf,
}

impl Network {
    /// Starts hosts of these names.
    pub fn start(names: &[&str], scratch: &Path) -> Result<Self, String> {
        let exchange = scratch.join("exchange");
        let shims = exchange.join("shim");
        let put = |path: PathBuf, text: &str| {
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        std::fs::create_dir_all(&shims).map_err(|e| format!("{}: {e}", shims.display()))?;
        for (name, text) in SHIMS {
            put(shims.join(name), text)?;
        }
        let switch = Holder::start(&["--net"], &["sleep", "infinity"])?;
        let network = Self { hosts: Vec::new(), switch, exchange };
        network.cable(&["link", "add", "name", "bridge0", "type", "bridge"])?;
        network.cable(&["link", "set", "bridge0", "up"])?;
        network.with(names, scratch)
    }

    fn with(mut self, names: &[&str], scratch: &Path) -> Result<Self, String> {
        for (at, name) in names.iter().enumerate() {
            let own = scratch.join(name);
            std::fs::create_dir_all(&own).map_err(|e| format!("{}: {e}", own.display()))?;
            let (number, own) = ((at + 1).to_string(), own.display().to_string());
            let exchange = self.exchange.display().to_string();
            let spaces = ["--mount", "--uts", "--net", "--pid", "--ipc"];
            let host = Holder::start(&spaces, &["bash", "-c", INIT, "init", name, &number, &own, &exchange])?;
            let port = format!("port{number}");
            let pid = host.pid.to_string();
            self.cable(&[
                "link", "add", "name", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid,
            ])?;
            self.cable(&["link", "set", &port, "master", "bridge0"])?;
            self.cable(&["link", "set", &port, "up"])?;
            self.hosts.push(((*name).to_owned(), host));
            let up = self.exchange.join(format!("{name}.up"));
            wait(name, || up.exists().then_some(()))?;
        }
        Ok(self)
    }

    fn cable(&self, words: &[&str]) -> Result<(), String> {
        let pid = self.switch.pid.to_string();
        let output = Command::new("nsenter").args(["-t", &pid, "-n", "ip"]).args(words).output();
        let output = output.map_err(|e| format!("nsenter: {e}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Runs a command where the other ends of all cables are: `port1` is that of the first host.
    pub fn at_switch(&self, script: &str) -> Result<(), String> {
        let pid = self.switch.pid.to_string();
        let output = Command::new("nsenter").args(["-t", &pid, "-n", "sh", "-c", script]).output();
        let output = output.map_err(|e| format!("nsenter: {e}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn enter(&self, host: &str) -> Result<Command, String> {
        let known = self.hosts.iter().find(|(name, _)| name == host);
        let (_, holder) = known.ok_or_else(|| format!("there is no host {host}"))?;
        let mut command = Command::new("nsenter");
        command.args(["-t", &holder.pid.to_string(), "--mount", "--uts", "--net", "--pid", "--ipc", "--"]);
        command.env_clear().env("HOME", "/root").env("LANG", "C.UTF-8");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        Ok(command)
    }

    /// Runs commands of a shell on a host; each must succeed. Gives what they printed.
    pub fn run(&self, host: &str, script: &str) -> Result<String, String> {
        self.run_within(host, script, BLOCK)
    }

    /// As [`Network::run`], with another limit of time.
    pub fn run_within(&self, host: &str, script: &str, limit: Duration) -> Result<String, String> {
        let mut command = self.enter(host)?;
        let limit = limit.as_secs().to_string();
        command.args(["timeout", &limit, "bash", "-euo", "pipefail", "-c", script]);
        let output = command.stdin(Stdio::null()).output().map_err(|e| format!("nsenter: {e}"))?;
        let said = said(&output);
        if !output.status.success() {
            return Err(format!("{host}: {}\n{}\n{said}", output.status, script.trim_end()));
        }
        self.deliver()?;
        Ok(said)
    }

    /// Starts a program on a host that goes on by itself.
    pub fn begin(&self, host: &str, script: &str) -> Result<(), String> {
        self.run(host, &format!("setsid {script} < /dev/null > /dev/null 2>&1 &")).map(drop)
    }

    /// Writes a file of a host.
    pub fn write(&self, host: &str, path: &str, text: &str) -> Result<(), String> {
        let mut command = self.enter(host)?;
        command.args(["bash", "-euc", "mkdir -p \"$(dirname \"$1\")\" && cat > \"$1\"", "write", path]);
        let failed = |e: std::io::Error| format!("{host}: {path}: {e}");
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes()).map_err(failed)?;
        }
        match child.wait().map_err(failed)?.success() {
            true => Ok(()),
            false => Err(format!("{host}: {path} cannot be written")),
        }
    }

    /// What `scp` sent is put where it belongs.
    fn deliver(&self) -> Result<(), String> {
        for (name, _) in &self.hosts {
            let post = self.exchange.join(name);
            if !post.exists() {
                continue;
            }
            let mut command = self.enter(name)?;
            let put = format!("cp -a /exchange/{name}/. / && rm -r /exchange/{name}");
            let output = command.args(["bash", "-euc", &put]).output().map_err(|e| e.to_string())?;
            if !output.status.success() {
                return Err(format!("{name}: scp: {}", said(&output)));
            }
        }
        Ok(())
    }

    /// The last lines of what the services of every host say.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for (name, _) in &self.hosts {
            let tail = "tail -n 25 /var/log/skep-*.log /run/skep/*.log 2> /dev/null || true";
            text += &format!("--- {name}\n{}", self.run(name, tail).unwrap_or_else(|e| e));
        }
        text
    }
}

fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

//! Facts of this machine for `skep health bundle`: configuration, logs, metrics, kernel, processes.

use super::bundle::Part;
use skep_base::cli::MOUNT_HELPERS;
use skep_base::cluster_file::ClusterFile;
use skep_base::config::{CONFIG_DIR, MetadConfig, MgmtdConfig, MountConfig, Service, StoragedConfig};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// So much of the end of each log.
const LOG_BYTES: u64 = 1 << 20;
/// Lines of the journal of each machine.
const JOURNAL_LINES: &str = "5000";
/// Largest configuration file that is read.
const CONFIG_BYTES: u64 = 256 << 10;
/// A daemon shows its metrics within this time.
const METRICS_LIMIT: Duration = Duration::from_secs(5);
/// Files that say what this machine is.
const FACTS: [&str; 9] = [
    "/proc/version",
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/sys/fs/file-max",
    "/proc/sys/vm/dirty_background_bytes",
    "/sys/module/fuse/parameters/enable_uring",
    "/sys/module/fuse/parameters/max_user_bgreq",
    "/etc/os-release",
];

/// The end of a text file; none when it cannot be read.
fn end_of(path: &Path, bytes: u64) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(bytes))).ok()?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Files of a directory, and of those below it, whose names end so.
fn files(dir: &Path, ends: &str, deep: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && deep {
            found.extend(files(&path, ends, false));
        } else if path.to_string_lossy().ends_with(ends) && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Every configuration file of this machine, and cluster.toml.
pub fn configuration(up_dir: Option<&Path>) -> Vec<Part> {
    let mut all = files(Path::new(CONFIG_DIR), ".toml", true);
    if let Some(dir) = up_dir {
        all.extend(files(&dir.join("etc"), ".toml", false));
        all.extend(files(dir, ".toml", false));
    }
    named("config", all, CONFIG_BYTES)
}

/// Ends of all logs that are files, and the journal where there is one.
pub fn logs(up_dir: Option<&Path>, run_dir: &Path) -> Vec<Part> {
    let mut all = files(run_dir, ".log", false);
    if let Some(dir) = up_dir {
        all.extend(files(&dir.join("log"), ".log", false));
    }
    let mut parts = named("log", all, LOG_BYTES);
    let journal = Command::new("journalctl")
        .args(["--no-pager", "--quiet", "--lines", JOURNAL_LINES, "--unit", "skep-*"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    if let Ok(journal) = journal
        && journal.status.success()
        && !journal.stdout.is_empty()
    {
        parts.push(Part::text("log/journal.log", String::from_utf8_lossy(&journal.stdout)));
    }
    parts
}

fn named(top: &str, files: Vec<PathBuf>, bytes: u64) -> Vec<Part> {
    let part = |path: PathBuf| {
        let name = path.to_string_lossy().trim_start_matches('/').replace('/', "-");
        Some(Part::text(format!("{top}/{name}"), end_of(&path, bytes)?))
    };
    files.into_iter().filter_map(part).collect()
}

/// What the daemons of this machine show at `/metrics`.
pub fn metrics(cluster_file: Option<&Path>) -> Vec<Part> {
    let addresses: Vec<(String, SocketAddr)> = match cluster_file {
        Some(file) => ClusterFile::read(file).map(|cluster| cluster.http_addresses()).unwrap_or_default(),
        None => installed(),
    };
    let part = |(name, address): (String, SocketAddr)| {
        let text = skep_base::http::get(address, "/metrics", METRICS_LIMIT)
            .unwrap_or_else(|e| format!("{address}: {e}\n"));
        Part::text(format!("metrics/{name}.txt"), text)
    };
    addresses.into_iter().map(part).collect()
}

/// Services and instances with a configuration here, and where they show their metrics.
fn installed() -> Vec<(String, SocketAddr)> {
    let mut found = Vec::new();
    add::<MgmtdConfig>(&mut found, |config| config.http);
    add::<MetadConfig>(&mut found, |config| config.http);
    add::<StoragedConfig>(&mut found, |config| config.http);
    add::<MountConfig>(&mut found, |config| config.http);
    found
}

fn add<S: Service>(found: &mut Vec<(String, SocketAddr)>, http: fn(&S) -> Option<SocketAddr>) {
    for (name, source) in skep_base::config::installed::<S>(Path::new(CONFIG_DIR)) {
        if let Ok(loaded) = skep_base::config::load::<S>(skep_base::config::Source::Given(&source), &[], &[])
            && let Some(address) = http(&loaded.config)
        {
            found.push((name, address));
        }
    }
}

/// Kernel, memory, mounts, processes.
pub fn machine() -> Vec<Part> {
    let mut parts = Vec::new();
    let uname = rustix::system::uname();
    let mut text = format!(
        "skep {}\n{} {} {} {}\n",
        env!("CARGO_PKG_VERSION"),
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        uname.version().to_string_lossy(),
        uname.machine().to_string_lossy()
    );
    for path in FACTS {
        let value = end_of(Path::new(path), CONFIG_BYTES).unwrap_or_else(|| "(not there)\n".to_owned());
        text.push_str(&format!("\n== {path}\n{value}"));
    }
    parts.push(Part::text("machine/kernel.txt", text));
    let mounts = end_of(Path::new("/proc/self/mountinfo"), CONFIG_BYTES).unwrap_or_default();
    parts.push(Part::text("machine/mounts.txt", mounts));
    parts.push(Part::text("machine/processes.txt", processes()));
    parts
}

/// Is this the name of a process of this program?
fn is_ours(name: &str) -> bool {
    name == "skep" || MOUNT_HELPERS.contains(&name)
}

/// Every process of this program: number, state, memory, arguments.
fn processes() -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let dir = entry.path();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        if !is_ours(read("comm").trim()) {
            continue;
        }
        let pid = entry.file_name();
        text.push_str(&format!("== {}: {}\n", pid.to_string_lossy(), read("cmdline").replace('\0', " ")));
        let wanted = ["State", "VmRSS", "VmHWM", "Threads", "Cpus_allowed_list", "Mems_allowed_list"];
        for line in read("status").lines().filter(|line| wanted.iter().any(|key| line.starts_with(key))) {
            text.push_str(&format!("   {line}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: configuration files are found in both depths, keys never, and of a long log the end is taken.
    #[test]
    fn files_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("metad.toml", "a");
        write("storaged/s1.toml", "b");
        write("cluster.key", "secret");
        write("x.log", &format!("{}end", "x".repeat(100)));
        let found = files(dir.path(), ".toml", true);
        assert_eq!(found.len(), 2);
        assert_eq!(end_of(&dir.path().join("x.log"), 5).as_deref(), Some("xxend"));
        let parts = named("config", found, 10);
        assert!(parts.iter().all(|part| part.name.starts_with("config/") && !part.name[7..].contains('/')));
        assert!(machine().iter().any(|part| part.text.contains("Linux")));
    }
}

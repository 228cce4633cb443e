//! The run in namespaces of its own: peers are started there by this program, nothing of theirs is left behind, and no
//! packet leaves the machine.
//!
//! MooseFS's chunkservers refuse a master on 127.0.0.0/8, so the loopback device has another address there.

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::path::Path;
use std::process::Command;

/// Set in the environment of the run inside.
const INSIDE: &str = "SKEP_BENCH_APART";
/// The address of the peers' servers, on the loopback device: one that is for documentation and routed nowhere.
pub const ADDRESS: &str = "192.0.2.1";
/// The shell stays, as the first process: it waits for daemons whose parents have ended.
const SCRIPT: &str = "ip link set lo up && ip address add \"$1\"/32 dev lo && shift && \"$@\"; exit $?";

/// Is this the run inside?
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program with the same arguments inside; gives whether it succeeded. All that it started ends with it.
pub fn run_inside() -> Result<bool, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-c", SCRIPT, "sh", ADDRESS]).arg(program).args(std::env::args_os().skip(1));
    let status = command.env(INSIDE, "1").status();
    let status = status.map_err(|e| format!("unshare (util-linux): {e}"))?;
    Ok(status.success())
}

/// What a peer writes into the directory `outside`, whatever it is told, goes below `home`.
pub fn keep_in(home: &Path, outside: &str) -> Result<(), String> {
    if !Path::new(outside).is_dir() {
        return Ok(());
    }
    let inside = home.join(outside.trim_start_matches('/').replace('/', "-"));
    std::fs::create_dir_all(&inside).map_err(|e| format!("{}: {e}", inside.display()))?;
    // What the place before this one has put there is gone. Only in this run's namespace is it unmounted.
    let _ = unmount(outside, UnmountFlags::DETACH);
    mount_bind(&inside, outside).map_err(|e| format!("{outside}: {e}"))
}

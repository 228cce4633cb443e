//! GlusterFS as Debian installs it: glusterd, one brick for each target in a distributed volume, two mounts.

use super::apart::{ADDRESS, keep_in};
use super::systems::{Member, Running, installed};
use crate::bench::system::TARGETS;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PROGRAMS: [(&str, &str); 4] = [
    ("glusterd", "glusterfs-server"),
    ("glusterfsd", "glusterfs-server"),
    ("gluster", "glusterfs-cli"),
    ("glusterfs", "glusterfs-client"),
];
const VOLUME: &str = "bench";
/// Longest time until glusterd answers.
const LIMIT: Duration = Duration::from_secs(30);
/// Where it writes whatever it is told.
const OUTSIDE: [&str; 2] = ["/var/run/gluster", "/var/log/glusterfs"];

/// Starts it below `home` and mounts it twice.
pub fn start(member: &Member, home: &Path, running: &mut Vec<Running>) -> Result<(), String> {
    installed(&PROGRAMS)?;
    for directory in OUTSIDE {
        keep_in(home, directory)?;
    }
    for directory in ["state", "run"] {
        let path = home.join(directory);
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let file = home.join("glusterd.vol");
    std::fs::write(&file, management(home)).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut command = Command::new("glusterd");
    command.arg("-N").arg("-f").arg(&file).arg("-l").arg(home.join("glusterd.log"));
    command.arg("-p").arg(home.join("run/glusterd.pid"));
    running.push(Running::start(&mut command, &home.join("glusterd.out"), None)?);
    wait(home)?;
    let bricks: Vec<String> = (0..TARGETS).map(|n| brick(home, n)).collect();
    for number in 0..TARGETS {
        let path = home.join(format!("target-{number}"));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let mut words = vec!["volume", "create", VOLUME];
    words.extend(bricks.iter().map(String::as_str));
    words.push("force");
    ask(home, &words)?;
    ask(home, &["volume", "start", VOLUME])?;
    for (log, target) in [("here.log", &member.here), ("there.log", &member.there)] {
        let mut command = Command::new("glusterfs");
        command.args(["-N", "--process-name", "fuse", "--volfile-server", ADDRESS, "--volfile-id", VOLUME]);
        command.arg("-l").arg(home.join(log)).arg(target);
        running.push(Running::start(&mut command, &home.join(format!("{log}.out")), Some(target))?);
    }
    Ok(())
}

fn brick(home: &Path, number: usize) -> String {
    format!("{ADDRESS}:{}/target-{number}", home.display())
}

/// The package's own file, but for where it is and what it listens on.
fn management(home: &Path) -> String {
    let home = home.display();
    let options = [
        format!("working-directory {home}/state"),
        format!("run-directory {home}/run"),
        format!("glusterd-sockfile {home}/run/glusterd.sock"),
        "transport-type socket".to_owned(),
        "transport.address-family inet".to_owned(),
        "transport.socket.keepalive-time 10".to_owned(),
        "transport.socket.keepalive-interval 2".to_owned(),
        "transport.socket.read-fail-log off".to_owned(),
        "transport.socket.listen-port 24007".to_owned(),
        format!("transport.socket.bind-address {ADDRESS}"),
        "ping-timeout 0".to_owned(),
        "event-threads 1".to_owned(),
        "max-port 60999".to_owned(),
    ];
    let lines: String = options.iter().map(|option| format!("    option {option}\n")).collect();
    format!("volume management\n    type mgmt/glusterd\n{lines}end-volume\n")
}

fn command(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("gluster");
    command.arg(format!("--glusterd-sock={}/run/glusterd.sock", home.display()));
    command.arg(format!("--log-file={}/cli.log", home.display())).arg("--mode=script").args(words);
    command
}

fn ask(home: &Path, words: &[&str]) -> Result<(), String> {
    let output = command(home, words).output().map_err(|e| format!("gluster: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("gluster {}: {}", words.join(" "), String::from_utf8_lossy(&said).trim()))
}

fn wait(home: &Path) -> Result<(), String> {
    let started = Instant::now();
    while let Err(why) = ask(home, &["volume", "info"]) {
        if started.elapsed() > LIMIT {
            return Err(format!("{why}; see {}/glusterd.log", home.display()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: state, sockets and the address are the run's own.
    #[test]
    fn nothing_of_the_machine_is_used() {
        let text = management(Path::new("/x"));
        for part in ["working-directory /x/state\n", "glusterd-sockfile /x/run/", "bind-address 192.0.2.1\n"]
        {
            assert!(text.contains(part), "{part}");
        }
        assert_eq!(brick(Path::new("/x"), 3), "192.0.2.1:/x/target-3");
    }
}

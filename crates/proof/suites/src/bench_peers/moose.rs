//! MooseFS as Debian installs it: a master, one chunkserver for each target, two mounts, goal 1.

use super::apart::ADDRESS;
use super::systems::{Member, Running, installed};
use crate::bench::system::TARGETS;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PROGRAMS: [(&str, &str); 4] = [
    ("mfsmaster", "moosefs-master"),
    ("mfschunkserver", "moosefs-chunkserver"),
    ("mfsmount", "moosefs-client"),
    ("mfssetgoal", "moosefs-client"),
];
/// What a master without files starts from, beside the package's own directory of state.
const NO_FILES: &str = "/var/lib/mfs/metadata.mfs.empty";
/// Ports of the master, for metaloggers, chunkservers and mounts.
const PORTS: [u16; 3] = [9419, 9420, 9421];
/// The port of the first chunkserver.
const CHUNKSERVER: u16 = 9430;
/// Longest time until all chunkservers have told the master of themselves.
const LIMIT: Duration = Duration::from_secs(30);

/// Starts it below `home` and mounts it twice.
pub fn start(member: &Member, home: &Path, running: &mut Vec<Running>) -> Result<(), String> {
    installed(&PROGRAMS)?;
    let state = home.join("master");
    std::fs::create_dir_all(&state).map_err(|e| format!("{}: {e}", state.display()))?;
    std::fs::copy(NO_FILES, state.join("metadata.mfs")).map_err(|e| format!("{NO_FILES}: {e}"))?;
    write(home, "exports.cfg", "* / rw,alldirs,admin,maproot=0:0\n")?;
    write(home, "topology.cfg", "")?;
    write(home, "master.cfg", &master(home))?;
    daemon("mfsmaster", "master", home, running)?;
    // Mounts give up at once without it, and chunkservers come again only after 5 s.
    wait_for_master(home)?;
    for number in 0..TARGETS {
        for directory in ["chunkserver", "target"] {
            let path = home.join(format!("{directory}-{number}"));
            std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let target = home.join(format!("target-{number}"));
        write(home, &format!("targets-{number}.cfg"), &format!("{}\n", target.display()))?;
        let name = format!("chunkserver-{number}");
        write(home, &format!("{name}.cfg"), &chunkserver(home, number))?;
        daemon("mfschunkserver", &name, home, running)?;
    }
    for (log, target) in [("here.log", &member.here), ("there.log", &member.there)] {
        let mut command = Command::new("mfsmount");
        command.args(["-f", "-H", ADDRESS, "-P", &PORTS[2].to_string()]).arg(target);
        running.push(Running::start(&mut command, &home.join(log), Some(target))?);
    }
    wait_for_space(&member.here, home)?;
    let output = Command::new("mfssetgoal").args(["-r", "1"]).arg(&member.here).output();
    let output = output.map_err(|e| format!("mfssetgoal: {e}"))?;
    if !output.status.success() {
        return Err(format!("mfssetgoal: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

fn write(home: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = home.join(name);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn daemon(program: &str, name: &str, home: &Path, running: &mut Vec<Running>) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg("-f").arg("-c").arg(home.join(format!("{name}.cfg"))).arg("start");
    running.push(Running::start(&mut command, &home.join(format!("{name}.log")), None)?);
    Ok(())
}

/// Who it runs as and where its state is; everything else is as the package has it.
fn master(home: &Path) -> String {
    let home = home.display();
    let [loggers, chunkservers, mounts] = PORTS;
    format!(
        "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {home}/master\n\
         EXPORTS_FILENAME = {home}/exports.cfg\nTOPOLOGY_FILENAME = {home}/topology.cfg\n\
         MATOML_LISTEN_HOST = {ADDRESS}\nMATOML_LISTEN_PORT = {loggers}\n\
         MATOCS_LISTEN_HOST = {ADDRESS}\nMATOCS_LISTEN_PORT = {chunkservers}\n\
         MATOCL_LISTEN_HOST = {ADDRESS}\nMATOCL_LISTEN_PORT = {mounts}\n"
    )
}

fn chunkserver(home: &Path, number: usize) -> String {
    let (home, port) = (home.display(), usize::from(CHUNKSERVER) + number);
    format!(
        "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {home}/chunkserver-{number}\n\
         HDD_CONF_FILENAME = {home}/targets-{number}.cfg\nMASTER_HOST = {ADDRESS}\nMASTER_PORT = {}\n\
         CSSERV_LISTEN_HOST = {ADDRESS}\nCSSERV_LISTEN_PORT = {port}\n",
        PORTS[1]
    )
}

fn wait_for_master(home: &Path) -> Result<(), String> {
    let started = Instant::now();
    for port in PORTS {
        while let Err(e) = TcpStream::connect((ADDRESS, port)) {
            if started.elapsed() > LIMIT {
                return Err(format!("mfsmaster, {ADDRESS}:{port}: {e}; see {}/master.log", home.display()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Each chunkserver tells of the room that is left where its target lies.
fn wait_for_space(mount: &Path, home: &Path) -> Result<(), String> {
    let here = rustix::fs::statvfs(home).map_err(|e| format!("{}: {e}", home.display()))?;
    let (each, started) = (here.f_bavail * here.f_frsize, Instant::now());
    let size = || rustix::fs::statvfs(mount).map_or(0, |all| all.f_blocks * all.f_frsize);
    // A bit of each is kept free.
    while size() < each / 10 * 9 * TARGETS as u64 {
        if started.elapsed() > LIMIT {
            return Err(format!("not all chunkservers came; see {}", home.display()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no two chunkservers share a port or a directory, and all find the master.
    #[test]
    fn every_chunkserver_has_its_own() {
        let home = Path::new("/x");
        let of = |number| chunkserver(home, number);
        for number in 0..TARGETS {
            assert!(of(number).contains(&format!("CSSERV_LISTEN_PORT = {}\n", 9_430 + number)));
            assert!(of(number).contains(&format!("/x/chunkserver-{number}\n")));
            assert!(of(number).contains("MASTER_PORT = 9420\n"));
        }
        assert!(master(home).contains("MATOCS_LISTEN_PORT = 9420\n"));
    }
}

//! fsstress: four processes on two mounts. It checks nothing itself, so this does: no process fails or hangs,
//! both mounts show the same tree and the same bytes afterwards, everything can be removed, and nothing is left
//! on any target or in the metadata.

use crate::crash::leaks;
use skep_rig::Cluster;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Operations of each process.
const OPERATIONS: u32 = 4_000;
/// Processes on each mount.
const PROCESSES: u32 = 2;
/// Longest time of all of it.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs it on a tree that both mounts share, then on one for each.
pub fn run(program: &Path, cluster: &Cluster) -> Result<(), String> {
    let program = program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?;
    let second = cluster.second_mount("second", &[])?;
    let points = [cluster.mount().to_path_buf(), second];
    for (name, seed) in [("shared", 1), ("apart", 100)] {
        let dirs: Vec<PathBuf> = points
            .iter()
            .enumerate()
            .map(|(at, point)| {
                point.join(if name == "shared" { name.to_owned() } else { format!("{name}-{at}") })
            })
            .collect();
        let mut crew = Vec::new();
        for (at, dir) in dirs.iter().enumerate() {
            std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            crew.push(start(&program, dir, seed + at as u32)?);
        }
        wait(crew)?;
        for dir in &dirs {
            let name = dir.file_name().ok_or("a directory without a name")?;
            let (one, two) = (fingerprint(&points[0].join(name))?, fingerprint(&points[1].join(name))?);
            if one != two {
                return Err(format!("{}: the two mounts differ:\n{one}\n{two}", dir.display()));
            }
        }
        for dir in &dirs {
            if dir.exists() {
                std::fs::remove_dir_all(dir).map_err(|e| format!("removing {}: {e}", dir.display()))?;
            }
        }
    }
    // What other suites left.
    for entry in std::fs::read_dir(cluster.mount()).map_err(|e| e.to_string())?.flatten() {
        let path = entry.path();
        let gone = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        gone.map_err(|e| format!("removing {}: {e}", path.display()))?;
    }
    leaks::check(cluster, &points)
}

fn start(program: &Path, dir: &Path, seed: u32) -> Result<Child, String> {
    Command::new(program)
        .arg("-d")
        .arg(dir)
        .args(["-p", &PROCESSES.to_string(), "-n", &OPERATIONS.to_string(), "-s", &seed.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("{}: {e}", program.display()))
}

fn wait(mut crew: Vec<Child>) -> Result<(), String> {
    let begun = Instant::now();
    while !crew.is_empty() {
        if begun.elapsed() > LIMIT {
            for child in &mut crew {
                let _ = child.kill();
            }
            return Err(format!("fsstress still runs after {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
        let mut left = Vec::new();
        for mut child in crew {
            match child.try_wait().map_err(|e| e.to_string())? {
                None => left.push(child),
                Some(status) if status.success() => {}
                Some(status) => return Err(format!("fsstress ended with {status}")),
            }
        }
        crew = left;
    }
    Ok(())
}

/// Every name with its attributes, and the bytes of every file: by cksum, as sha256sum takes minutes for what is mostly
/// holes.
fn fingerprint(dir: &Path) -> Result<String, String> {
    let script = "find . -printf '%P %y %m %n %U %G %s %T@ %l\\n' | sort | sha256sum; \
                  find . -type f -print0 | sort -z | xargs -0 -r cksum | sha256sum";
    let output =
        Command::new("sh").args(["-c", script]).current_dir(dir).output().map_err(|e| e.to_string())?;
    if output.status.success() && output.stderr.is_empty() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{}: {}", dir.display(), String::from_utf8_lossy(&output.stderr)))
    }
}

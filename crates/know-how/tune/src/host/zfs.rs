//! What `zfs get` says of the datasets that are mounted; the kernel shows no properties.

use super::Mount;
use crate::Root;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Properties that rules look at.
const ASKED: &str = "compression,dedup,atime,xattr,dnodesize,recordsize";
/// Where the program is.
const PROGRAMS: [&str; 3] = ["/usr/sbin/zfs", "/sbin/zfs", "/usr/local/sbin/zfs"];
/// A pool that is suspended never answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks at the program.
const PAUSE: Duration = Duration::from_millis(10);

/// Of each dataset lines of `property` TAB `value`; none where nobody can be asked.
pub fn properties(root: &Root, mounts: &[Mount]) -> BTreeMap<String, String> {
    let datasets = mounts.iter().filter(|mount| mount.kind == "zfs").map(|mount| &mount.source);
    let ask = |dataset: &str| PROGRAMS.iter().find_map(|program| asked(Path::new(program), dataset));
    datasets.filter_map(|one| Some((one.clone(), root.answer(&format!("zfs/{one}"), || ask(one))?))).collect()
}

/// Runs the program; none when it is not there, fails, or does not answer in time.
fn asked(program: &Path, dataset: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(["get", "-Hp", "-o", "property,value", ASKED, dataset]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let began = Instant::now();
    // Six short lines: they fit into the pipe, so the program ends without a reader.
    let status = loop {
        match child.try_wait().ok()? {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE => {
                let _ = child.kill();
                return None;
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    let mut text = String::new();
    child.stdout.take()?.take(crate::root::TEXT_MAX).read_to_string(&mut text).ok()?;
    status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Goal: the program is asked as documented and its answer taken; one that fails or is not there is no answer.
    #[test]
    fn the_program_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("zfs");
        let write = |end: &str| {
            let text = format!("#!/bin/sh\nprintf 'atime\\t%s\\n' \"$*\"\nexit {end}\n");
            std::fs::write(&program, text).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("0");
        let said = asked(&program, "tank/a b");
        assert_eq!(said.as_deref(), Some(&*format!("atime\tget -Hp -o property,value {ASKED} tank/a b\n")));
        write("1");
        assert_eq!(asked(&program, "tank"), None);
        assert_eq!(asked(&dir.path().join("none"), "tank"), None);
    }
}

//! Checks what `make install` installs.

use crate::cli::{self, Cli};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::Command;

const SERVICES: [&str; 4] = ["mgmtd", "metad", "storaged", "mount"];

fn unit(service: &str) -> (PathBuf, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let path = root.join(format!("packaging/systemd/skep-{service}@.service"));
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

fn value<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// Goal: the command line of each unit is one that the program takes, with the instance where it belongs,
/// and the unit waits for the word that the daemon sends.
#[test]
fn units_start_what_there_is() {
    for service in SERVICES {
        let (_, text) = unit(service);
        let [command] = value(&text, "ExecStart")[..] else { panic!("{service}: not one ExecStart") };
        let words: Vec<String> = command.split_whitespace().map(|word| word.replace("%i", "s1")).collect();
        let parsed = Cli::try_parse_from(&words).unwrap_or_else(|e| panic!("{command}: {e}"));
        let cli::Command::Service(parsed) = parsed.command else { panic!("{command}: no service") };
        let shown = format!("{parsed:?}");
        assert!(shown.contains("instance: Some(\"s1\")"), "{shown}");
        assert!(shown.to_lowercase().starts_with(service), "{shown}");
        assert_eq!(value(&text, "Type"), ["notify"], "{service}");
        assert_eq!(value(&text, "Restart"), ["always"], "{service}");
        let path = format!("/etc/skep/{service}/%i.toml");
        assert_eq!(value(&text, "AssertPathExists"), [path], "the file that --instance reads");
    }
}

/// Goal: what the servers keep can be read by them alone.
#[test]
fn state_is_private() {
    for service in ["mgmtd", "metad", "storaged"] {
        let (_, text) = unit(service);
        assert_eq!(value(&text, "StateDirectoryMode"), ["0700"], "{service}");
        assert_eq!(value(&text, "UMask"), ["0077"], "{service}");
    }
}

/// Goal: a mount must be seen by everybody, so nothing may give its unit a tree of its own.
#[test]
fn mounts_are_seen_by_all() {
    let (_, text) = unit("mount");
    for key in ["Private", "Protect", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "RootDirectory"]
    {
        assert!(!text.lines().any(|line| line.starts_with(key)), "{key}... makes a mount name space");
    }
}

/// Goal: systemd itself finds nothing wrong. Where it is not installed, there is nobody to find it wrong.
#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for service in SERVICES {
        let (path, text) = unit(service);
        // The program that is named must be there.
        let copy = dir.path().join(path.file_name().unwrap());
        std::fs::write(&copy, text.replace("/usr/local/bin/skep", "/bin/true")).unwrap();
        let found = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output().unwrap();
        let said = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success() && !said.contains(service), "{said}");
    }
}

//! `skep health bundle`: everything that somebody who helps asks for first, in one file, without keys.

use super::{Findings, facts, look, run_dir, sorted};
use crate::{df, node, session, stats, target};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use skep_base::access::{AccessArgs, CLUSTER_FILE};
use skep_base::{Failure, Outcome};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Hexadecimal digits in a row that could be a secret: no more of them leave the machine.
const SECRET_DIGITS: usize = 64;
/// Parts of a bundle; one directory with this name and that of the machine.
const PREFIX: &str = "skep-bundle";

/// Arguments of `skep health bundle`.
#[derive(Debug, Args)]
pub struct BundleArgs {
    /// Where to write it [default: skep-bundle-HOST-TIME.tar.gz here]
    file: Option<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
}

/// A part of the bundle.
pub struct Part {
    /// Its path in it.
    pub name: String,
    pub text: String,
}

impl Part {
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    fn json(name: &str, value: &impl Serialize) -> Self {
        let text = serde_json::to_string_pretty(value).unwrap_or_else(|e| e.to_string());
        Self::text(name, text + "\n")
    }
}

/// The text without anything that could be a secret.
fn without_secrets(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, run) = rest.split_at(at);
        let end = run.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(run.len());
        out.push_str(before);
        match end >= SECRET_DIGITS {
            true => out.push_str("[left out: it could be a key]"),
            false => out.push_str(&run[..end]),
        }
        rest = &run[end..];
    }
    out + rest
}

fn state(access: &AccessArgs) -> Vec<Part> {
    let Findings { checks, .. } = look(access, None);
    let mut parts = vec![Part::json("health.json", &sorted(checks))];
    let status = access.connect(None).and_then(|mut cluster| Ok((cluster.status()?, cluster)));
    let (status, cluster) = match status {
        Ok(found) => found,
        Err(failure) => {
            parts.push(Part::text("state/missing.txt", format!("{failure}\n")));
            return parts;
        }
    };
    parts.push(Part::json("state/nodes.json", &node::rows(&status)));
    parts.push(Part::json("state/targets.json", &target::rows(&status)));
    parts.push(Part::json("state/sessions.json", &session::rows(&status)));
    parts.push(Part::json("state/df.json", &df::rows(&status)));
    parts.push(Part::json("state/map.json", &crate::api::MapDocument::of(&status)));
    let (rows, failures) = stats::collect(&cluster, &status, &|_| true);
    parts.push(Part::json("state/stats.json", &rows));
    parts.extend(
        failures
            .iter()
            .enumerate()
            .map(|(n, e)| Part::text(format!("state/stats-missing-{}.txt", n + 1), format!("{e}\n"))),
    );
    parts
}

fn contents(parts: &[Part]) -> String {
    let mut text = format!(
        "What `skep health bundle` of skep {} found on this machine. There is no key in it: files with keys are not \
         read, and every row of {SECRET_DIGITS} hexadecimal digits is left out. Names of hosts, addresses and paths are in \
         it: look through it before you give it away.\n\n",
        env!("CARGO_PKG_VERSION")
    );
    for (what, prefix) in [
        ("findings", "health.json"),
        ("state of the cluster", "state/"),
        ("configuration", "config/"),
        ("ends of logs", "log/"),
        ("metrics", "metrics/"),
        ("this machine", "machine/"),
    ] {
        let of: Vec<_> = parts.iter().filter(|part| part.name.starts_with(prefix)).collect();
        let bytes: usize = of.iter().map(|part| part.text.len()).sum();
        text.push_str(&format!("{what:<22} {:>3} files {bytes:>9} bytes\n", of.len()));
    }
    text
}

fn pack(parts: &[Part], top: &str, file: File) -> std::io::Result<()> {
    let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for part in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(part.text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now.as_secs());
        header.set_cksum();
        tar.append_data(&mut header, Path::new(top).join(&part.name), part.text.as_bytes())?;
    }
    tar.into_inner()?.finish()?.sync_all()
}

pub fn run(args: &BundleArgs) -> Outcome {
    let place = args.access.place(None).ok();
    let up_dir = place.as_ref().and_then(|place| place.cluster.as_ref()?.parent());
    let mut parts = state(&args.access);
    parts.extend(facts::configuration(up_dir));
    parts.extend(facts::logs(up_dir, &run_dir(place.as_ref())));
    parts.extend(facts::metrics(up_dir.map(|dir| dir.join(CLUSTER_FILE)).as_deref()));
    parts.extend(facts::machine());
    for part in &mut parts {
        part.text = without_secrets(&part.text);
    }
    parts.insert(0, Part::text("README.txt", contents(&parts)));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let time: String = skep_base::log::format_time(SystemTime::now())
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(15)
        .collect();
    let top = format!("{PREFIX}-{host}-{time}");
    let file = args.file.clone().unwrap_or_else(|| PathBuf::from(format!("{top}.tar.gz")));
    let opened = File::options().write(true).create_new(true).mode(0o600).open(&file);
    let opened = opened.map_err(|e| Failure::local(file.display(), e))?;
    pack(&parts, &top, opened).map_err(|e| Failure::local(file.display(), e))?;
    // To people: what they are about to give away.
    let _ = std::io::stderr().write_all(parts[0].text.as_bytes());
    writeln!(std::io::stdout(), "{}", file.display()).map_err(|e| Failure::local("standard output", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_net::{KeyFile, Keyring};

    /// Goal: whatever a file holds, no key and no token gets through; everything else does.
    #[test]
    fn no_secret_gets_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k");
        let key = KeyFile::generate().unwrap();
        key.write(&path).unwrap();
        let file = std::fs::read_to_string(&path).unwrap();
        let secret = file.split_whitespace().last().unwrap().to_owned();
        let token = Keyring::new(&key).http_token().unwrap();
        let text = format!("a = \"{secret}\" b{token} deadbeef {}\nend", "0".repeat(SECRET_DIGITS - 1));
        let clean = without_secrets(&text);
        assert!(!clean.contains(&secret) && !clean.contains(&token[..32]), "{clean}");
        assert!(
            clean.contains("deadbeef") && clean.ends_with(&format!("{}\nend", "0".repeat(63))),
            "{clean}"
        );
        assert_eq!(without_secrets("plain\u{e9} text 12"), "plain\u{e9} text 12");
    }

    /// Goal: the archive is one that tar reads, with all parts under one directory.
    #[test]
    fn tar_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.tar.gz");
        let long = format!("log/{}.log", "x".repeat(150));
        let parts = [Part::text("README.txt", "hello\n"), Part::text(long.clone(), "y")];
        pack(&parts, "top", File::create(&path).unwrap()).unwrap();
        let listed = std::process::Command::new("tar").arg("-tzf").arg(&path).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&listed.stdout), format!("top/README.txt\ntop/{long}\n"));
    }
}

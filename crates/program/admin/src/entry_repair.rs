//! `skep entry repair`: gives up what chunk files have lost.

use super::lost;
use clap::Args;
use rustix::fs::{FileType, Mode, OFlags, XattrFlags, fstat, getxattr, open, setxattr};
use skep_base::access::{AccessArgs, mount_of};
use skep_base::deadline::{self, Way};
use skep_base::namespace::Namespace;
use skep_base::{Failure, Outcome};
use skep_client::LostChunk;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Extended attribute of a mount: what is lost of a file, one line each; set to [`ZERO`] it is given up.
pub const LOST: &str = "skep.lost";
/// The only thing that can be done with what is lost.
pub const ZERO: &str = "zero";
/// Longest list that is shown.
const VALUE_MAX: usize = 64 << 10;

/// Arguments of `skep entry repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// Files, as for `entry info`; the owner of a file may repair it on a mount
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// What is lost shall read as zeros from now on. Without it: only show what is lost, and exit with 1 if anything is
    #[arg(long)]
    zero: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// As long as a target is away the mount goes on trying, also to give up what this command waits for no longer.
fn on_mount(args: &RepairArgs, path: &Path) -> Outcome<Vec<String>> {
    let zero = args.zero;
    let repair = move |path: &Path| {
        // One file from the look to the repair, whatever becomes of its name.
        let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        // What is below a directory is not looked at.
        if FileType::from_raw_mode(fstat(&file)?.st_mode).is_dir() {
            return Err(rustix::io::Errno::ISDIR);
        }
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut value = vec![0; VALUE_MAX];
        let len = getxattr(&file, LOST, &mut value[..])?;
        let lines: Vec<String> = String::from_utf8_lossy(&value[..len]).lines().map(str::to_owned).collect();
        if zero && !lines.is_empty() {
            setxattr(&file, LOST, ZERO.as_bytes(), XattrFlags::empty())?;
        }
        Ok(lines)
    };
    let done: rustix::io::Result<_> =
        deadline::of_path(path, Way::Entry, args.access.timeout.duration(), repair)?;
    done.map_err(|e| match e {
        rustix::io::Errno::IO => Failure::new(format!(
            "{}: {e}: it cannot be looked at; was a target with a part of it removed from the cluster? See skep entry info \
             and the log of the mount",
            path.display()
        )),
        e => Failure::local(format_args!("{}: {LOST}", path.display()), e),
    })
}

/// What is told of a chunk file, with or without a mount.
pub fn line(lost: &LostChunk) -> String {
    let (extent, stripe) = (lost.chunk.extent, lost.chunk.stripe);
    format!("extent {extent}, stripe {stripe} on target {}: {lost}", lost.target)
}

/// What is lost, and what cannot be said of the rest.
fn in_namespace(args: &RepairArgs, path: &Path) -> Outcome<(Vec<String>, Option<Failure>)> {
    let named = |e: Failure| Failure::new(format!("{}: {e}", path.display()));
    let mut namespace = Namespace::connect(&args.access, path)?;
    let ino = namespace.resolve(path)?;
    let found = match args.zero {
        true => lost::give_up(&mut namespace, ino),
        false => lost::look(&mut namespace, ino, |_| true).map(|found| (found.lost(), found.obstacle())),
    };
    let (lost, obstacle) = found.map_err(named)?;
    Ok((lost.iter().map(line).collect(), obstacle.map(named)))
}

/// Does it: every path, also after one failed.
pub fn run(args: &RepairArgs, out: &mut dyn Write) -> Outcome {
    let mut failures = Vec::new();
    let mut lost = 0;
    for path in &args.paths {
        let mount = match args.access.is_explicit() {
            true => Ok(None),
            false => mount_of(path, args.access.timeout.duration()),
        };
        let found = mount.and_then(|mount| match mount {
            Some(_) => on_mount(args, path).map(|lines| (lines, None)),
            None => in_namespace(args, path),
        });
        let (lines, obstacle) = found.unwrap_or_else(|failure| (Vec::new(), Some(failure)));
        let is_unsure = obstacle.is_some();
        failures.extend(obstacle);
        let text = match lines.is_empty() {
            true if is_unsure => continue,
            true => "nothing is lost",
            false if args.zero => "given up, reads as zeros from now on",
            false => {
                lost += 1;
                "something is lost, reads give EIO; --zero gives it up"
            }
        };
        let written = writeln!(out, "{}: {text}", path.display());
        let written = written.and_then(|()| lines.iter().try_for_each(|line| writeln!(out, "  {line}")));
        written.map_err(|e| Failure::local("standard output", e))?;
    }
    if lost > 0 {
        failures.push(Failure::new(format!("something is lost of {lost} of {} files", args.paths.len())));
    }
    match failures.split_last() {
        None => Ok(()),
        Some((last, before)) => {
            before.iter().for_each(|failure| eprintln!("skep: {failure}"));
            Err(last.clone())
        }
    }
}

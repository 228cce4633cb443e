//! Mounts the empty file system, the baseline of the benchmarks: `empty_mount DIR [--ttl SECONDS] [--direct-io] [--flush]
//! [--like-skep BYTES] [--pages] [--threads N] [--idle N] [--transport dev|uring|auto]`. It serves until it is unmounted.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use skep_fuse::empty::{EmptyConfig, EmptyMount};
use skep_fuse::{Fuse, FuseOptions, InitFlags, MountOptions, OpenFlags, Transport, replace_stale};

const USAGE: &str = "usage: empty_mount DIR [--ttl SECONDS] [--direct-io] [--flush] [--like-skep BYTES] \
    [--pages] [--threads N] [--idle N] [--transport dev|uring|auto]";

fn value<T: std::str::FromStr>(name: &str, text: Option<String>) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("{name} needs a value; {USAGE}"))?;
    text.parse().map_err(|_| format!("{name}: \"{text}\" is not a number; {USAGE}"))
}

/// INIT, open flags, messages and validities as Skep's mount has them on a kernel that knows epochs. Its files of at most
/// so many bytes are in the metadata.
fn like_skep(config: &mut EmptyConfig, options: &mut FuseOptions, inline: u64) {
    // Nothing here is locked; but a mount that wants locks is told of every close.
    options.init.wanted = (InitFlags::DEFAULT & !InitFlags::AUTO_INVAL_DATA) | InitFlags::EXPLICIT_INVAL_DATA;
    config.open_flags = OpenFlags::KEEP_CACHE | OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES;
    config.pages_up_to = inline;
    config.flush = true;
    (config.names, config.attributes) = (Duration::from_millis(500), Duration::from_millis(3_750));
}

fn run() -> Result<(), String> {
    let mut target = None;
    let mut config = EmptyConfig::default();
    let mut options = FuseOptions { transport: Transport::Dev, ..FuseOptions::default() };
    // The empty file system has no locks of its own.
    options.init.wanted = options.init.wanted & !(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--ttl" => {
                let seconds: f64 = value("--ttl", arguments.next())?;
                let valid =
                    Duration::try_from_secs_f64(seconds).map_err(|error| format!("--ttl: {error}"))?;
                (config.names, config.attributes, config.attributes_changed) = (valid, valid, valid);
            }
            "--direct-io" => config.open_flags = OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES,
            "--pages" => config.open_flags = OpenFlags::KEEP_CACHE,
            "--flush" => config.flush = true,
            "--like-skep" => like_skep(&mut config, &mut options, value("--like-skep", arguments.next())?),
            "--threads" => options.dev.workers = value("--threads", arguments.next())?,
            "--idle" => options.dev.idle_workers = value("--idle", arguments.next())?,
            "--transport" => {
                options.transport = arguments
                    .next()
                    .unwrap_or_default()
                    .parse()
                    .map_err(|error| format!("{error}; {USAGE}"))?;
            }
            flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}; {USAGE}")),
            directory => target = Some(PathBuf::from(directory)),
        }
    }
    let target = target.ok_or_else(|| USAGE.to_string())?;
    replace_stale(&target).map_err(|error| error.to_string())?;
    let mut mount = MountOptions::new(target);
    mount.source = "empty".into();
    mount.subtype = "skep-empty".into();
    let device = Fuse::mount(&mount, options).map_err(|error| error.to_string())?;
    let ending = device.run(&EmptyMount::new(config)).map_err(|error| error.to_string())?;
    eprintln!("empty_mount: {ending:?}");
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("empty_mount: {error}");
            ExitCode::FAILURE
        }
    }
}

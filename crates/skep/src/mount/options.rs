//! Arguments of a mount: `mgmt1,mgmt2:/ /mnt -o OPTIONS`, as fstab and mount(8) write them.

use crate::cli::MountArgs;
use crate::config::mount::MountConfig;
use skep_fuse::MountFlags;
use std::path::PathBuf;

/// What the kernel gets beside the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// ro, nodev, nosuid, noexec, noatime ...
    pub flags: MountFlags,
}

/// What the arguments say.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// For the kernel.
    pub wishes: Wishes,
    /// Keys of the configuration, as `key=value`.
    pub sets: Vec<String>,
    /// Configuration file named by `-o config=FILE`.
    pub config: Option<PathBuf>,
}

/// Options that mean something to mount(8), systemd or the boot, and nothing here.
const GENERIC: [&str; 19] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "async",
    "loud",
    "silent",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "lazytime",
];

/// Reads spec, directory and options.
pub fn parse(args: &MountArgs) -> Result<Parsed, String> {
    let mut parsed = Parsed {
        wishes: Wishes { flags: MountFlags::NODEV | MountFlags::NOSUID },
        sets: Vec::new(),
        config: None,
    };
    if let Some(spec) = &args.spec {
        let spec = spec.to_str().ok_or("the mount source is no text; write mgmt1,mgmt2:/")?;
        parsed.sets.push(format!("mgmtd={}", addresses(spec)?));
    }
    if let Some(directory) = &args.directory {
        let text = directory.to_str().ok_or("the mount point must be UTF-8")?;
        parsed.sets.push(format!("mount_point={text}"));
    }
    for option in args.options.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty()) {
        one(option, args.sloppy, &mut parsed)?;
    }
    if args.read_only {
        parsed.wishes.flags |= MountFlags::RDONLY;
    }
    if args.verbose {
        parsed.sets.push("log=debug".to_owned());
    }
    Ok(parsed)
}

/// `mgmt1,mgmt2:/` as the list of addresses; `:/` alone leaves them to the configuration.
fn addresses(spec: &str) -> Result<String, String> {
    let list = spec.strip_suffix(":/").ok_or_else(|| {
        format!("{spec:?} is no mount source: write mgmt1,mgmt2:/ (sub-directories cannot be mounted yet)")
    })?;
    let list: Vec<String> = list.split(',').map(|one| format!("{:?}", one.trim())).collect();
    Ok(format!("[{}]", list.join(", ")))
}

fn one(option: &str, sloppy: bool, parsed: &mut Parsed) -> Result<(), String> {
    let flag = match option {
        "ro" => MountFlags::RDONLY,
        "nodev" => MountFlags::NODEV,
        "nosuid" => MountFlags::NOSUID,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        "strictatime" => MountFlags::STRICTATIME,
        "sync" => MountFlags::SYNCHRONOUS,
        "dirsync" => MountFlags::DIRSYNC,
        "dev" => return clear(parsed, MountFlags::NODEV),
        "suid" => return clear(parsed, MountFlags::NOSUID),
        "exec" => return clear(parsed, MountFlags::NOEXEC),
        "atime" => return clear(parsed, MountFlags::NOATIME),
        "insecure" => {
            parsed.sets.push("insecure=true".to_owned());
            return Ok(());
        }
        "remount" => return Err("a Skep mount cannot be remounted: unmount it and mount it again".to_owned()),
        _ => return named(option, sloppy, parsed),
    };
    parsed.wishes.flags |= flag;
    Ok(())
}

fn clear(parsed: &mut Parsed, flag: MountFlags) -> Result<(), String> {
    parsed.wishes.flags.remove(flag);
    Ok(())
}

fn named(option: &str, sloppy: bool, parsed: &mut Parsed) -> Result<(), String> {
    let generic = GENERIC.contains(&option)
        || option.starts_with("x-")
        || option.starts_with("X-")
        || option.starts_with("comment=");
    match option.split_once('=') {
        _ if generic => Ok(()),
        Some(("config", file)) => {
            parsed.config = Some(PathBuf::from(file));
            Ok(())
        }
        Some((key, _)) if is_key(key) => {
            parsed.sets.push(option.to_owned());
            Ok(())
        }
        None if matches!(option, "allow_other") => {
            parsed.sets.push("allow_other=true".to_owned());
            Ok(())
        }
        _ if sloppy => Ok(()),
        _ => Err(format!(
            "unknown mount option {option:?}; Skep's own are the keys of mount.toml, such as retry=10min, \
             io=direct, key_file=FILE, and config=FILE"
        )),
    }
}

/// Is it a key of `mount.toml`? The configuration itself knows, and checks the value.
fn is_key(key: &str) -> bool {
    let defaults = toml::Table::try_from(MountConfig::default());
    defaults.is_ok_and(|table| table.contains_key(&key.replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parse_line(line: &str) -> Result<Parsed, String> {
        let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())?;
        match cli.command {
            Command::Mount(args) => parse(&args),
            _ => Err("not a mount".to_owned()),
        }
    }

    /// Goal: the line of an fstab comes out as flags for the kernel and keys for the configuration.
    #[test]
    fn fstab() {
        let line = "skep mount m1,m2:7721:/ /mnt -o _netdev,noauto,nofail,x-systemd.automount,ro,noexec,dev,retry=5s";
        let parsed = parse_line(line).unwrap();
        let flags = MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOSUID;
        assert_eq!(parsed.wishes.flags, flags);
        assert_eq!(parsed.sets, ["mgmtd=[\"m1\", \"m2:7721\"]", "mount_point=/mnt", "retry=5s"]);
    }

    /// Goal: what cannot be done is refused with advice, unless mount(8) asks for tolerance.
    #[test]
    fn refusals() {
        assert!(parse_line("skep mount m1:/sub /mnt").unwrap_err().contains("mgmt1,mgmt2:/"));
        assert!(parse_line("skep mount m1:/ /mnt -o nonsense").unwrap_err().contains("nonsense"));
        assert!(parse_line("skep mount m1:/ /mnt -o remount,ro").unwrap_err().contains("again"));
        assert!(parse_line("skep mount m1:/ /mnt -s -o nonsense").is_ok());
        assert!(parse_line("skep mount m1:/ /mnt -r").unwrap().wishes.flags.contains(MountFlags::RDONLY));
    }
}

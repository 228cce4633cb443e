//! Arguments of a mount: `mgmt1,mgmt2:/ /mnt -o OPTIONS`, as fstab and mount(8) write them.

use crate::cli::MountArgs;
use crate::config::mount::MountConfig;
use skep_fuse::MountFlags;
use std::path::PathBuf;

/// What the kernel gets beside the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// ro, nodev, nosuid, noexec, noatime ...
    set: MountFlags,
    /// rw, dev, suid, exec, atime.
    cleared: MountFlags,
    /// Those of an existing mount are changed.
    pub remount: bool,
    /// mount(8) asks. It takes `suid` and `dev` off the options, because they are what every file system begins with.
    by_mount: bool,
}

impl Wishes {
    /// Flags of a new mount: `skep mount` by hand gives neither suid nor devices unless asked to.
    pub fn flags(&self) -> MountFlags {
        let begin = match self.by_mount {
            true => MountFlags::empty(),
            false => MountFlags::NODEV | MountFlags::NOSUID,
        };
        self.changed(begin)
    }

    /// Flags of an existing mount that had these.
    pub fn changed(&self, before: MountFlags) -> MountFlags {
        (before - self.cleared) | self.set
    }

    fn set(&mut self, flag: MountFlags) {
        self.set |= flag;
        self.cleared -= flag;
    }

    fn clear(&mut self, flag: MountFlags) {
        self.cleared |= flag;
        self.set -= flag;
    }
}

/// The flags that a mount of the kernel's list has.
pub fn flags_of(options: &str) -> MountFlags {
    options.split(',').filter_map(flag).fold(MountFlags::empty(), |all, flag| all | flag)
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
const GENERIC: [&str; 18] = [
    "defaults",
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

/// Options of the kernel's own list of mounts, which mount(8) reads when a mount without a line in fstab is changed. They
/// stay as they are.
const KERNELS: [&str; 8] =
    ["user_id", "group_id", "default_permissions", "allow_other", "max_read", "blksize", "rootmode", "fd"];

fn is_kernels(option: &str) -> bool {
    KERNELS.contains(&option.split('=').next().unwrap_or(option))
}

/// Reads spec, directory and options.
pub fn parse(args: &MountArgs) -> Result<Parsed, String> {
    let mut parsed = Parsed {
        wishes: Wishes {
            set: MountFlags::empty(),
            cleared: MountFlags::empty(),
            remount: false,
            by_mount: args.by_mount,
        },
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
    let all = || args.options.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty());
    let remount = all().any(|option| option == "remount");
    for option in all().filter(|option| !remount || !is_kernels(option)) {
        one(option, args.sloppy, &mut parsed)?;
    }
    if args.read_only {
        parsed.wishes.set(MountFlags::RDONLY);
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

/// The flag that an option sets.
fn flag(option: &str) -> Option<MountFlags> {
    Some(match option {
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
        _ => return None,
    })
}

fn one(option: &str, sloppy: bool, parsed: &mut Parsed) -> Result<(), String> {
    let wishes = &mut parsed.wishes;
    match option {
        "rw" => wishes.clear(MountFlags::RDONLY),
        "dev" => wishes.clear(MountFlags::NODEV),
        "suid" => wishes.clear(MountFlags::NOSUID),
        "exec" => wishes.clear(MountFlags::NOEXEC),
        "atime" => wishes.clear(MountFlags::NOATIME),
        "remount" => wishes.remount = true,
        "insecure" => parsed.sets.push("insecure=true".to_owned()),
        "leases" => parsed.sets.push("leases=on".to_owned()),
        "noleases" => parsed.sets.push("leases=off".to_owned()),
        _ => match flag(option) {
            Some(flag) => wishes.set(flag),
            None => return named(option, sloppy, parsed),
        },
    }
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
    use crate::cli::{ServiceCommand, ServiceLine};
    use clap::Parser;

    fn parse_line(line: &str) -> Result<Parsed, String> {
        let line = ServiceLine::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())?;
        match line.command {
            ServiceCommand::Mount(args) => parse(&args),
            _ => Err("not a mount".to_owned()),
        }
    }

    /// Goal: the line of an fstab comes out as flags for the kernel and keys for the configuration.
    #[test]
    fn fstab() {
        let line = "skep mount m1,m2:7721:/ /mnt -o _netdev,noauto,nofail,x-systemd.automount,ro,noexec,dev,retry=5s";
        let parsed = parse_line(line).unwrap();
        let flags = MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOSUID;
        assert_eq!(parsed.wishes.flags(), flags);
        assert_eq!(parsed.sets, ["mgmtd=[\"m1\", \"m2:7721\"]", "mount_point=/mnt", "retry=5s"]);
    }

    /// Goal: mount(8) says neither suid nor dev, because they are what every file system begins with: it gets them,
    /// unless fstab says otherwise; by hand they are to be asked for.
    #[test]
    fn suid_and_dev() {
        let flags = |line: &str| parse_line(line).unwrap().wishes.flags();
        let none = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(flags("skep mount --by-mount m1:/ /mnt -o rw"), MountFlags::empty());
        assert_eq!(flags("skep mount --by-mount m1:/ /mnt -o rw,nosuid,nodev"), none);
        assert_eq!(flags("skep mount m1:/ /mnt"), none);
        assert_eq!(flags("skep mount m1:/ /mnt -o suid"), MountFlags::NODEV);
    }

    /// Goal: a remount changes what it names and keeps the rest; of two words the last one counts.
    #[test]
    fn remounts() {
        let parsed = parse_line("skep mount --by-mount m1:/ /mnt -o remount,ro,suid,rw,ro").unwrap();
        assert!(parsed.wishes.remount);
        let before = flags_of("rw,nosuid,nodev,noatime,user_id=0");
        assert_eq!(before, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME);
        let after = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOATIME;
        assert_eq!(parsed.wishes.changed(before), after);
        let back = parse_line("skep mount m1:/ /mnt -o remount,rw").unwrap();
        assert_eq!(back.wishes.changed(after), MountFlags::NODEV | MountFlags::NOATIME);
    }

    /// Goal: what mount(8) finds in the kernel's list and passes on at a remount is passed over, and only there, and nothing
    /// else is.
    #[test]
    fn options_of_the_kernel() {
        let listed = "rw,nosuid,user_id=0,group_id=0,rootmode=40000,fd=5,default_permissions,allow_other,max_read=9,blksize=1";
        let remount = parse_line(&format!("skep mount --by-mount m1:/ /mnt -o {listed},remount,ro")).unwrap();
        assert_eq!(remount.sets, ["mgmtd=[\"m1\"]", "mount_point=/mnt"]);
        assert_eq!(remount.wishes.changed(MountFlags::NOSUID), MountFlags::NOSUID | MountFlags::RDONLY);
        assert!(parse_line("skep mount m1:/ /mnt -o user_id=0").unwrap_err().contains("user_id"));
        assert!(parse_line("skep mount m1:/ /mnt -o remount,user=1").unwrap_err().contains("user"));
        assert!(parse_line("skep mount -t fuse.skep m1:/ /mnt -o remount,ro").is_ok());
    }

    /// Goal: leases are asked for, or not, by a word alone, and by a word with a value.
    #[test]
    fn leases_by_a_word() {
        let line = |options: &str| format!("skep mount m1:/ /mnt -o {options}");
        let sets = |options: &str| parse_line(&line(options)).unwrap().sets.split_off(2);
        assert_eq!(sets("leases"), ["leases=on"]);
        assert_eq!(sets("noleases"), ["leases=off"]);
        assert_eq!(sets("leases=off,ro,leases"), ["leases=off", "leases=on"]);
    }

    /// Goal: what cannot be done is refused with advice, unless mount(8) asks for tolerance.
    #[test]
    fn refusals() {
        assert!(parse_line("skep mount m1:/sub /mnt").unwrap_err().contains("mgmt1,mgmt2:/"));
        assert!(parse_line("skep mount m1:/ /mnt -o nonsense").unwrap_err().contains("nonsense"));
        assert!(parse_line("skep mount m1:/ /mnt -s -o nonsense").is_ok());
        assert!(parse_line("skep mount m1:/ /mnt -r").unwrap().wishes.flags().contains(MountFlags::RDONLY));
    }
}

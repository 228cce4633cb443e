//! What can be changed and taken back: values of the running kernel, and files that bring them back at boot.

mod apply;
#[cfg(test)]
mod failures;
mod hands;
mod journal;
#[cfg(test)]
mod others;
mod plan;
mod undo;

pub use apply::{Applied, apply};
pub use hands::{Hands, RealHands};
pub use journal::{Journal, UNDO_FILE};
pub use plan::{Plan, Step};
pub use undo::{SAVED, Undone, undo};

use crate::host::{Disk, Identity};
use serde::{Deserialize, Serialize};

/// File of kernel values.
pub const SYSCTL_FILE: &str = "/etc/sysctl.d/90-skep.conf";
/// File of values of disks' queues.
pub const UDEV_FILE: &str = "/etc/udev/rules.d/90-skep.rules";
/// File of values below /sys that neither of the others can set.
pub const TMPFILES_FILE: &str = "/etc/tmpfiles.d/skep.conf";
/// File of parameters of kernel modules.
pub const MODPROBE_FILE: &str = "/etc/modprobe.d/skep.conf";
/// Name of the drop-ins of services.
pub const DROP_IN: &str = "90-skep-tune.conf";

/// What remains to do where a mount reads a value once only.
const MOUNT_AGAIN: &str = "mount again: mounts that are there stay as they are";
/// Where the drop-ins of services are.
const UNITS_DIR: &str = "/etc/systemd/system/";

/// What remains to do after these files and values were changed. Values of the kernel count at once, and the files that
/// bring them back at boot (sysctl.d, udev, tmpfiles.d, modprobe.d) are read then: nothing is to be told to anybody.
fn remaining<'p>(changed: impl Iterator<Item = &'p str>) -> Vec<String> {
    let (mut units, mut mounts) = (Vec::new(), false);
    for path in changed {
        let drop_in = path.strip_prefix(UNITS_DIR).and_then(|rest| rest.split_once(".d/"));
        units.extend(drop_in.map(|(unit, _)| unit));
        // Parameters of the fuse module; configurations of a mount, of which tune auto changes lines.
        mounts |= path.starts_with("/sys/module/") || path.ends_with(".toml");
    }
    units.sort_unstable();
    units.dedup();
    let services = (!units.is_empty())
        .then(|| format!("systemctl daemon-reload; systemctl restart {}", units.join(" ")));
    services.into_iter().chain(mounts.then(|| MOUNT_AGAIN.to_owned())).collect()
}

/// How one setting is changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Values of the running kernel, in the order in which they are set.
    pub live: Vec<Live>,
    /// Lines that keep them.
    pub keep: Vec<Keep>,
}

/// A value of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    pub path: String,
    /// What is written; none: it is only remembered, because the kernel changes it along with another.
    pub value: Option<String>,
    /// The disk that it is a value of.
    pub disk: Option<Owner>,
}

/// A disk by the name that it has now and by one that stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// `sda`: where its files are now.
    pub name: String,
    /// How it is found when it has another name.
    pub identity: Identity,
}

impl Live {
    /// This is written.
    pub fn set(path: impl Into<String>, value: &str) -> Self {
        Self { path: path.into(), value: Some(value.to_owned()), disk: None }
    }

    /// This changes along.
    pub fn along(path: impl Into<String>) -> Self {
        Self { path: path.into(), value: None, disk: None }
    }
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    pub file: String,
    /// The section that it stands in; empty: the file has none.
    pub section: &'static str,
    /// What the line begins with: another line that begins so is replaced.
    pub stem: String,
    /// The rest of the line.
    pub value: String,
}

/// What a file of the kernel says: of `a [b] c` the chosen word, else the words with one blank between.
pub fn reading(text: &str) -> String {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen {
        Some((word, _)) => word.to_owned(),
        None => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

impl Change {
    /// The line of sysctl.d alone.
    pub fn kept_sysctl(key: &str, value: &str) -> Keep {
        Keep { file: SYSCTL_FILE.to_owned(), section: "", stem: format!("{key} = "), value: value.to_owned() }
    }

    /// A value of a disk's queue, kept by a udev rule that finds the disk by a name that stays. A disk without one is
    /// changed until the next boot only; one that could not be found again by undo is not changed.
    pub fn queue(disk: &Disk, attribute: &str, value: &str) -> Self {
        let Some(identity) = &disk.identity else { return Self::default() };
        let owner = Owner { name: disk.name.clone(), identity: identity.clone() };
        let keep = identity.udev().map(|found| Keep {
            file: UDEV_FILE.to_owned(),
            section: "",
            stem: format!(
                "ACTION==\"add|change\", SUBSYSTEM==\"block\", {found}, ATTR{{queue/{attribute}}}="
            ),
            value: format!("\"{value}\""),
        });
        Self {
            live: vec![Live { disk: Some(owner), ..Live::set(disk.queue(attribute), value) }],
            keep: keep.into_iter().collect(),
        }
    }

    /// A value below /sys, kept by tmpfiles.d; `pattern` is how it is found at boot.
    pub fn sysfs(paths: &[String], pattern: &str, value: &str) -> Self {
        Self {
            live: paths.iter().map(|path| Live::set(path.clone(), value)).collect(),
            keep: vec![Keep {
                file: TMPFILES_FILE.to_owned(),
                section: "",
                stem: format!("w {pattern} - - - - "),
                value: value.to_owned(),
            }],
        }
    }

    /// A parameter of a kernel module.
    pub fn module(module: &str, parameter: &str, live: &str, kept: &str) -> Self {
        Self {
            live: vec![Live::set(format!("/sys/module/{module}/parameters/{parameter}"), live)],
            keep: vec![Keep {
                file: MODPROBE_FILE.to_owned(),
                section: "",
                stem: format!("options {module} {parameter}="),
                value: kept.to_owned(),
            }],
        }
    }

    /// Lines of a service's drop-in.
    pub fn drop_in(unit: &str, lines: &[(&str, String)]) -> Self {
        let file = format!("{UNITS_DIR}{unit}.d/{DROP_IN}");
        let keep = |(key, value): &(&str, String)| Keep {
            file: file.clone(),
            section: "[Service]",
            stem: format!("{key}="),
            value: value.clone(),
        };
        Self { live: Vec::new(), keep: lines.iter().map(keep).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only what the changed files and values need is said: services by name, once; mounts; else nothing.
    #[test]
    fn what_remains() {
        let of = |paths: &[&str]| remaining(paths.iter().copied());
        let kept = [SYSCTL_FILE, UDEV_FILE, TMPFILES_FILE, MODPROBE_FILE, "/proc/sys/vm/dirty_ratio"];
        assert_eq!(of(&kept), Vec::<String>::new());
        let [one, two] = ["skep-metad@m1.service", "skep-storaged@s1.service"];
        let file = |unit: &str| format!("/etc/systemd/system/{unit}.d/{DROP_IN}");
        assert_eq!(
            of(&[&file(one), SYSCTL_FILE, &file(two)]),
            [format!("systemctl daemon-reload; systemctl restart {one} {two}")]
        );
        let all = of(&["/sys/module/fuse/parameters/enable_uring", &file(one), "/etc/skep/mount.toml"]);
        assert_eq!(
            all,
            [format!("systemctl daemon-reload; systemctl restart {one}"), MOUNT_AGAIN.to_owned()]
        );
        let drop_in = Change::drop_in(one, &[("LimitNOFILE", "5".to_owned())]);
        assert_eq!(of(&[&drop_in.keep[0].file]), all[..1]);
    }

    /// Goal: what the kernel shows as a choice or with tabs is read as what one would write.
    #[test]
    fn readings() {
        assert_eq!(reading("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(reading("4096\t131072\t6291456\n"), "4096 131072 6291456");
        assert_eq!(reading(""), "");
    }
}

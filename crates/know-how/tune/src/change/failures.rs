//! Tests of apply and undo: what they do, and that every step may fail or be the last before a crash.

use super::hands::{Hands, RealHands, UNFINISHED};
use super::{Applied, Plan, SAVED, UNDO_FILE, apply, reading, undo};
use crate::host::Identity;
use crate::testing::{HDD, NVME, SSD, nvme_part, read, storage_and_meta, unpacked};
use crate::{Root, Verdict, check, host::Part};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Hands below which a kernel does what the real one does: a share puts the bytes to 0 and the other way round, a
/// scheduler is chosen among those offered and brings a depth of its own. They do the first `left` changing steps and fail from then on: for ever, as after a crash, or once.
struct Failing<'a> {
    hands: RealHands<'a>,
    left: usize,
    for_ever: bool,
    done: usize,
}

impl<'a> Failing<'a> {
    fn never(root: &'a Root) -> Self {
        Self { hands: RealHands(root), left: usize::MAX - 1, for_ever: true, done: 0 }
    }

    fn kernel(&mut self, path: &str, value: &str) -> io::Result<()> {
        let Some((dir, name)) = path.rsplit_once('/') else { return Ok(()) };
        let other = match name {
            "dirty_ratio" => "dirty_bytes",
            "dirty_bytes" => "dirty_ratio",
            "dirty_background_ratio" => "dirty_background_bytes",
            "dirty_background_bytes" => "dirty_background_ratio",
            "nr_requests" if value.parse::<u64>().is_ok_and(|depth| depth > 5093) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            "scheduler" => {
                let offered = self.hands.0.text(path).unwrap_or_default().replace(['[', ']'], "");
                if !offered.split(' ').any(|one| one == value) {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let chosen = |one: &str| if one == value { format!("[{one}]") } else { one.to_owned() };
                let list: Vec<String> = offered.split(' ').map(chosen).collect();
                self.hands.set(&format!("{dir}/nr_requests"), "77")?;
                return self.hands.set(path, &list.join(" "));
            }
            _ => return self.hands.set(path, value),
        };
        if name.ends_with("_bytes") && value == "0" {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.hands.set(&format!("{dir}/{other}"), "0")?;
        self.hands.set(path, value)
    }

    fn step(&mut self) -> io::Result<()> {
        self.done += 1;
        let failed = if self.for_ever { self.done > self.left } else { self.done == self.left + 1 };
        if failed { Err(io::Error::other("the test says so")) } else { Ok(()) }
    }
}

impl Hands for Failing<'_> {
    fn read(&mut self, path: &str) -> io::Result<Option<String>> {
        if self.for_ever && self.done > self.left {
            return Err(io::Error::other("the machine is down"));
        }
        self.hands.read(path)
    }
    fn disks(&mut self) -> io::Result<Vec<(String, Vec<Identity>)>> {
        self.hands.disks()
    }
    fn names_of(&mut self, disk: &str) -> io::Result<Vec<Identity>> {
        self.hands.names_of(disk)
    }
    fn set(&mut self, path: &str, value: &str) -> io::Result<()> {
        self.step()?;
        self.kernel(path, value)
    }
    fn make_dir(&mut self, path: &str) -> io::Result<bool> {
        self.step()?;
        self.hands.make_dir(path)
    }
    fn write_unfinished(&mut self, path: &str, content: &str) -> io::Result<()> {
        // A failure leaves half a file, as a crash or a full disk does.
        if let Err(e) = self.step() {
            let place = self.hands.0.path(&format!("{path}{UNFINISHED}"));
            let _ = std::fs::write(place, &content[..content.len() / 2]);
            return Err(e);
        }
        self.hands.write_unfinished(path, content)
    }
    fn finish(&mut self, path: &str) -> io::Result<()> {
        self.step()?;
        self.hands.finish(path)
    }
    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.step()?;
        self.hands.remove(path)
    }
    fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        self.step()?;
        self.hands.remove_dir(path)
    }
}

/// Everything below a directory: files with their content (those of the kernel as they read), directories, links.
fn snapshot(dir: &Path) -> BTreeMap<String, String> {
    fn walk(top: &Path, dir: &Path, all: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            let kind = entry.file_type().unwrap();
            let held = match () {
                () if kind.is_symlink() => format!("-> {}", std::fs::read_link(&path).unwrap().display()),
                () if kind.is_dir() => "directory".to_owned(),
                () => {
                    let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                    let of_kernel = name.starts_with("sys/") || name.starts_with("proc/sys/");
                    if of_kernel { reading(&text) } else { text }
                }
            };
            if kind.is_dir() {
                walk(top, &path, all);
            }
            all.insert(name, held);
        }
    }
    let mut all = BTreeMap::new();
    walk(dir, dir, &mut all);
    all
}

fn plan(root: &Root, part: &Part) -> Plan {
    Plan::of(root, &check(&read(root, part.clone()))).unwrap()
}

fn machines() -> [(&'static str, Part); 3] {
    [(HDD, storage_and_meta()), (SSD, storage_and_meta()), (NVME, nvme_part())]
}

/// Goal: after apply, a check finds nothing left that apply could change, and a second apply does nothing; after undo,
/// everything is as it was, to the byte; undoing twice is harmless.
#[test]
fn there_and_back() {
    for (text, part) in machines() {
        let dir = unpacked(text);
        let root = Root::new(dir.path()).unwrap();
        let before = snapshot(dir.path());
        let first = plan(&root, &part);
        let done = apply(&first, &mut Failing::never(&root)).unwrap();
        assert!(done.values > 5 && done.files >= 3, "{done:?}");
        assert_ne!(snapshot(dir.path()), before);
        let left = check(&read(&root, part.clone()));
        let left: Vec<_> = left
            .iter()
            .filter(|one| one.verdict == Verdict::Change)
            .filter(|one| one.change.as_ref().is_some_and(|change| !change.live.is_empty()))
            .collect();
        assert!(left.is_empty(), "{left:#?}");
        let second = plan(&root, &part);
        assert!(second.is_empty(), "{}", second.diff());
        let undone = undo(&mut Failing::never(&root), false).unwrap().unwrap();
        assert_eq!(undone.files, done.files);
        assert_eq!(undone.notes, Vec::<String>::new());
        assert_eq!(snapshot(dir.path()), before);
        assert_eq!(undo(&mut Failing::never(&root), false).unwrap(), None);
        assert_eq!(snapshot(dir.path()), before);
    }
}

/// Goal: what is written is what each reader of it expects.
#[test]
fn files_for_the_next_boot() {
    // Limits in bytes that are too small: the shares take their place.
    let small = NVME.replace("dirty_bytes = 536870912", "dirty_bytes = 1048576");
    let dir = unpacked(&small.replace("background_bytes = 134217728", "background_bytes = 1048577"));
    let root = Root::new(dir.path()).unwrap();
    apply(&plan(&root, &nvme_part()), &mut Failing::never(&root)).unwrap();
    let text = |path: &str| std::fs::read_to_string(root.path(path)).unwrap();
    let sysctl = text("/etc/sysctl.d/90-skep.conf");
    assert!(
        sysctl.contains("\nvm.dirty_ratio = 20\n") && sysctl.contains("\nkernel.numa_balancing = 0\n"),
        "{sysctl}"
    );
    let udev = text("/etc/udev/rules.d/90-skep.rules");
    let line = "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", \
                ATTRS{wwid}==\"eui.0100000001000000e4d25c0000000002\", ATTR{queue/scheduler}=\"none\"";
    assert!(udev.lines().any(|one| one == line), "{udev}");
    let raid = "KERNEL==\"md*\", ENV{MD_UUID}==\"5c0ffee0:00000000:00000000:00000001\", ATTR{queue/read_ahead_kb}=\"4096\"";
    assert!(udev.contains(raid), "{udev}");
    assert!(!udev.contains("KERNEL==\"md1") && !udev.contains("KERNEL==\"nvme"), "{udev}");
    let unit = text("/etc/systemd/system/skep-storaged@n1.service.d/90-skep-tune.conf");
    assert!(unit.ends_with("\n[Service]\nNUMAPolicy=preferred\nNUMAMask=1\nCPUAffinity=numa\n"), "{unit}");
    assert!(text("/etc/modprobe.d/skep.conf").contains("\noptions fuse enable_uring=1\n"));
    let governor = "w /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor - - - - performance";
    assert!(text("/etc/tmpfiles.d/skep.conf").lines().any(|one| one == governor));
    // An undo file that says what was there.
    let undo_file = text(UNDO_FILE);
    assert!(undo_file.contains("1048577") && undo_file.contains("/proc/sys/vm/dirty_background_bytes"));
}

/// Goal: what an administrator wrote into the same file stays beside the new lines, and is back after undo.
#[test]
fn files_of_others() {
    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let path = root.path("/etc/sysctl.d/90-skep.conf");
    let before = std::fs::read_to_string(&path).unwrap();
    apply(&plan(&root, &storage_and_meta()), &mut Failing::never(&root)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("# by hand\nvm.swappiness = 1\n") && text.contains("vm.dirty_background_ratio = 5")
    );
    // Somebody changes the file and a value afterwards: undo says so, keeps the text, and puts back what was there first.
    std::fs::write(&path, "# other\n").unwrap();
    std::fs::write(root.path("/proc/sys/vm/vfs_cache_pressure"), "7\n").unwrap();
    let undone = undo(&mut Failing::never(&root), false).unwrap().unwrap();
    assert_eq!(undone.notes.len(), 2, "{:?}", undone.notes);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let saved =
        |n: &str| std::fs::read_to_string(root.path(&format!("/etc/sysctl.d/90-skep.conf{SAVED}{n}")));
    assert!(undone.notes[1].contains(SAVED) && saved("").unwrap() == "# other\n", "{:?}", undone.notes);
    // Another time: what was saved first stays.
    apply(&plan(&root, &storage_and_meta()), &mut Failing::never(&root)).unwrap();
    std::fs::write(&path, "# third\n").unwrap();
    undo(&mut Failing::never(&root), false).unwrap();
    assert_eq!((saved("").unwrap(), saved("-2").unwrap()), ("# other\n".to_owned(), "# third\n".to_owned()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
}

/// Goal: whichever step fails, apply puts everything back and says what failed; whichever is the last before a crash,
/// undo puts everything back, at once and a second time.
#[test]
fn every_step_may_fail() {
    for (text, part) in [(SSD, storage_and_meta()), (NVME, nvme_part())] {
        let dir = unpacked(text);
        let root = Root::new(dir.path()).unwrap();
        let before = snapshot(dir.path());
        let steps = {
            let mut hands = Failing::never(&root);
            apply(&plan(&root, &part), &mut hands).unwrap();
            undo(&mut Failing::never(&root), false).unwrap();
            hands.done
        };
        assert!(steps > 20, "{steps}");
        for left in 0..steps {
            for for_ever in [false, true] {
                let mut hands = Failing { hands: RealHands(&root), left, for_ever, done: 0 };
                let error = apply(&plan(&root, &part), &mut hands).unwrap_err();
                assert!(error.contains("the test says so"), "{left}: {error}");
                if for_ever {
                    undo(&mut Failing::never(&root), false).unwrap();
                } else {
                    assert!(
                        error.contains("as it was before") || error.contains("nothing was changed"),
                        "{error}"
                    );
                }
                assert_eq!(snapshot(dir.path()), before, "step {left}, crash {for_ever}: {error}");
                assert_eq!(undo(&mut Failing::never(&root), false).unwrap(), None);
            }
        }
    }
}

/// Goal: a crash at any step of undo itself is made good by another undo.
#[test]
fn undo_may_crash_too() {
    let dir = unpacked(NVME);
    let root = Root::new(dir.path()).unwrap();
    let before = snapshot(dir.path());
    for left in 0.. {
        apply(&plan(&root, &nvme_part()), &mut Failing::never(&root)).unwrap();
        let mut hands = Failing { hands: RealHands(&root), left, for_ever: true, done: 0 };
        let crashed = undo(&mut hands, false).is_err();
        undo(&mut Failing::never(&root), false).unwrap();
        assert_eq!(snapshot(dir.path()), before, "step {left}");
        if !crashed {
            assert!(left > 20, "{left}");
            return;
        }
    }
}

/// Goal: a second apply that fails puts back its own steps only; undo then goes all the way back.
#[test]
fn a_second_apply_that_fails() {
    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let before = snapshot(dir.path());
    let all = check(&read(&root, storage_and_meta()));
    let (memory, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.area == "memory");
    let first = Plan::of(&root, &memory).unwrap();
    let Applied { values, .. } = apply(&first, &mut Failing::never(&root)).unwrap();
    assert!(values > 1);
    let between = snapshot(dir.path());
    let second = Plan::of(&root, &rest).unwrap();
    for left in 0..30 {
        let mut hands = Failing { hands: RealHands(&root), left, for_ever: false, done: 0 };
        if apply(&second, &mut hands).is_ok() {
            break;
        }
        assert_eq!(snapshot(dir.path()), between, "step {left}");
    }
    undo(&mut Failing::never(&root), false).unwrap();
    assert_eq!(snapshot(dir.path()), before);
}

/// Goal: a damaged undo file is an error that names it, and nothing is changed or removed.
#[test]
fn a_damaged_undo_file() {
    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let plan = plan(&root, &storage_and_meta());
    std::fs::create_dir_all(root.path(UNDO_FILE).parent().unwrap()).unwrap();
    for text in ["", "{", "{\"format\":99,\"live\":[],\"files\":[],\"made_dirs\":[]}"] {
        std::fs::write(root.path(UNDO_FILE), text).unwrap();
        let before = snapshot(dir.path());
        assert!(undo(&mut Failing::never(&root), false).unwrap_err().contains(UNDO_FILE));
        assert!(apply(&plan, &mut Failing::never(&root)).unwrap_err().contains(UNDO_FILE));
        assert_eq!(snapshot(dir.path()), before);
    }
}

/// Goal: a check of this machine itself, and the plan of an apply, change nothing of it.
#[test]
fn looking_changes_nothing() {
    let root = Root::new(Path::new("/")).unwrap();
    let roles = [crate::Role::Mgmt, crate::Role::Meta, crate::Role::Storage, crate::Role::Client];
    let part = Part { roles: roles.into(), directories: vec!["/".to_owned()], ..Part::default() };
    let settings = || {
        let mut all = BTreeMap::new();
        for dir in ["/proc/sys/vm", "/proc/sys/kernel", "/proc/sys/net/core", "/proc/sys/fs"] {
            for name in root.names(dir) {
                let path = format!("{dir}/{name}");
                all.insert(path.clone(), root.text(&path));
            }
        }
        for disk in root.names("/sys/block") {
            for name in root.names(&format!("/sys/block/{disk}/queue")) {
                let path = format!("/sys/block/{disk}/queue/{name}");
                all.insert(path.clone(), root.text(&path));
            }
        }
        // Counters move by themselves.
        all.retain(|path, _| {
            ![
                "dentry-state",
                "file-nr",
                "inode-nr",
                "inode-state",
                "random",
                "entropy",
                "pty",
                "ns_last_pid",
                "aio-nr",
                "io_poll",
            ]
            .iter()
            .any(|word| path.contains(word))
        });
        all
    };
    let before = settings();
    assert!(before.len() > 50);
    let found = check(&read(&root, part));
    let plan = Plan::of(&root, &found).unwrap();
    let _ = plan.diff();
    // Disks may come and go meanwhile.
    let after = settings();
    let changed: Vec<_> =
        before.iter().filter(|(path, text)| after.get(*path).is_some_and(|now| now != *text)).collect();
    assert!(changed.is_empty(), "{changed:?}");
    assert!(found.len() > 30);
}

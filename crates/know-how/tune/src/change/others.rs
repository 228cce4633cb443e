//! Tests of apply and undo on a machine that does not hold still: others change things meanwhile, disks change names.

use super::hands::{Hands, RealHands};
use super::{Plan, Step, UNDO_FILE, apply, undo};
use crate::host::{Identity, IdentityKind};
use crate::testing::{HDD, NVME, SSD, read, storage_and_meta, unpacked};
use crate::{Root, Verdict, check};
use std::io;

/// Hands beside which somebody else writes `text` to `path` before the changing step with number `at`.
struct Beside<'a> {
    hands: RealHands<'a>,
    at: usize,
    done: usize,
    path: String,
    text: &'static str,
}

impl Beside<'_> {
    fn step(&mut self) {
        if self.done == self.at {
            std::fs::write(self.hands.0.path(&self.path), self.text).unwrap();
        }
        self.done += 1;
    }
}

impl Hands for Beside<'_> {
    fn read(&mut self, path: &str) -> io::Result<Option<String>> {
        self.hands.read(path)
    }
    fn disks(&mut self) -> io::Result<Vec<(String, Vec<Identity>)>> {
        self.hands.disks()
    }
    fn names_of(&mut self, disk: &str) -> io::Result<Vec<Identity>> {
        self.hands.names_of(disk)
    }
    fn set(&mut self, path: &str, value: &str) -> io::Result<()> {
        self.step();
        self.hands.set(path, value)
    }
    fn make_dir(&mut self, path: &str) -> io::Result<bool> {
        self.hands.make_dir(path)
    }
    fn write_unfinished(&mut self, path: &str, content: &str) -> io::Result<()> {
        self.step();
        self.hands.write_unfinished(path, content)
    }
    fn finish(&mut self, path: &str) -> io::Result<()> {
        self.hands.finish(path)
    }
    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.hands.remove(path)
    }
    fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        self.hands.remove_dir(path)
    }
}

fn plan(root: &Root) -> Plan {
    Plan::of(root, &check(&read(root, storage_and_meta()))).unwrap()
}

fn text(root: &Root, path: &str) -> String {
    std::fs::read_to_string(root.path(path)).unwrap_or_default()
}

/// What a step changes, and what is there before.
fn thing(step: &Step) -> (String, Option<String>) {
    match step {
        Step::File { path, before, .. } => (path.clone(), before.clone()),
        Step::Live { path, before, .. } => (path.clone(), Some(before.clone())),
    }
}

/// Goal: whatever the plan changes, an edit of it between the diff and apply is found, stays, and nothing is changed.
#[test]
fn an_edit_while_the_prompt_waits() {
    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let plan = plan(&root);
    for (path, before) in plan.steps.iter().map(thing) {
        let all = |root: &Root| plan.steps.iter().map(|step| text(root, &thing(step).0)).collect::<Vec<_>>();
        let was = text(&root, &path);
        std::fs::create_dir_all(root.path(&path).parent().unwrap()).unwrap();
        std::fs::write(root.path(&path), "4711\n").unwrap();
        let held = all(&root);
        let error = apply(&plan, &mut RealHands(&root)).unwrap_err();
        assert!(error.contains(&path) && error.contains("nothing was changed"), "{error}");
        assert_eq!(all(&root), held);
        assert!(!root.exists(UNDO_FILE));
        match before {
            None => std::fs::remove_file(root.path(&path)).unwrap(),
            Some(_) => std::fs::write(root.path(&path), was).unwrap(),
        }
    }
    assert!(plan.steps.len() > 10);
}

/// Goal: an edit of the last thing while the others are being changed, at whichever step, is found at the moment of its
/// own change: it stays, all others are as before, and there is nothing left to undo.
#[test]
fn an_edit_in_the_middle() {
    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let whole = plan(&root);
    // A kernel that couples values is the business of another test: steps that follow are left out.
    let alone = |step: &Step| matches!(step, Step::File { .. } | Step::Live { follows: false, .. });
    let mut steps: Vec<Step> = whole.steps.iter().filter(|step| alone(step)).cloned().collect();
    steps.retain(|step| !thing(step).0.ends_with("/scheduler") && !thing(step).0.ends_with("/nr_requests"));
    let (path, _) = thing(steps.last().unwrap());
    let plan = Plan { steps, ..whole };
    // As it reads: choices of the kernel are marked differently by a mere file.
    let held = |path: &str| {
        if path.starts_with("/etc") { text(&root, path) } else { super::reading(&text(&root, path)) }
    };
    let before: Vec<String> = plan.steps.iter().map(|step| held(&thing(step).0)).collect();
    let was = text(&root, &path);
    let files = plan.steps.iter().filter(|step| matches!(step, Step::File { .. })).count();
    assert!(files > 1 && plan.steps.len() > files + 2);
    // The first writing step is the undo file; the set of the last thing itself would be number `steps.len()`.
    for at in 1..plan.steps.len() {
        let mut hands = Beside { hands: RealHands(&root), at, done: 0, path: path.clone(), text: "4711\n" };
        let error = apply(&plan, &mut hands).unwrap_err();
        assert!(error.contains(&path) && error.contains("by somebody else"), "{at}: {error}");
        let after: Vec<String> = plan.steps.iter().map(|step| held(&thing(step).0)).collect();
        assert_eq!(after[..after.len() - 1], before[..before.len() - 1], "{at}");
        assert_eq!((after.last().unwrap().as_str(), root.exists(UNDO_FILE)), ("4711", false), "{at}");
        std::fs::write(root.path(&path), &was).unwrap();
    }
    // A file, too: it is looked at after its new text is written, right before the name changes.
    let (file, _) = thing(&plan.steps[files - 1]);
    let was = text(&root, &file);
    let mut hands =
        Beside { hands: RealHands(&root), at: files, done: 0, path: file.clone(), text: "# mine\n" };
    let error = apply(&plan, &mut hands).unwrap_err();
    assert!(error.contains(&file), "{error}");
    assert_eq!(text(&root, &file), "# mine\n", "not {was}");
}

/// The two disks of the machine exchange their names, as after a reboot: `/sys/block/sda` is what sdb was.
fn exchange(root: &Root) {
    let (a, b) = (root.path("/sys/block/sda"), root.path("/sys/block/sdb"));
    let (to_a, to_b) = (std::fs::read_link(&a).unwrap(), std::fs::read_link(&b).unwrap());
    for (link, target) in [(a, to_b), (b, to_a)] {
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
    }
}

/// Every queue value of the disk with this wwid, whatever it is called.
fn queues(root: &Root, wwid: &str) -> Vec<String> {
    let is_it = |name: &&str| text(root, &format!("/sys/block/{name}/device/wwid")).trim() == wwid;
    let name = ["sda", "sdb"].into_iter().find(is_it).unwrap();
    let value = |of: &str| super::reading(&text(root, &format!("/sys/block/{name}/queue/{of}")));
    ["scheduler", "nr_requests", "read_ahead_kb", "max_sectors_kb"].map(value).to_vec()
}

const FIRST: &str = "naa.61866da0a1b2c3002b9f1d2e3f405162";
const SECOND: &str = "t10.ATA     INTEL SSDSC2KB960G8                      PHYF1234";

/// The plan without the schedulers: here is no kernel that knows their names.
fn queue_plan(root: &Root) -> Plan {
    let found = check(&read(root, storage_and_meta()));
    let queues = found.into_iter().filter(|one| one.area == "queue" && one.setting != "scheduler");
    Plan::of(root, &queues.collect::<Vec<_>>()).unwrap()
}

/// Goal: undo puts values back on the disk that they came from, when names changed places since; a disk that is gone is
/// an error that changes nothing, unless its values shall be left.
#[test]
fn disks_that_change_places() {
    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let before = (queues(&root, FIRST), queues(&root, SECOND));
    assert_ne!(before.0, before.1);
    let plan = queue_plan(&root);
    // Exchanged while the prompt waits: nothing is changed.
    exchange(&root);
    let error = apply(&plan, &mut RealHands(&root)).unwrap_err();
    assert!(error.contains("is no longer the disk with wwid") && !root.exists(UNDO_FILE), "{error}");
    exchange(&root);
    apply(&plan, &mut RealHands(&root)).unwrap();
    let changed = (queues(&root, FIRST), queues(&root, SECOND));
    assert!(changed.0 != before.0 && changed.1 != before.1);
    exchange(&root);
    // Without the first disk.
    let link = root.path("/sys/block/sdb");
    let target = std::fs::read_link(&link).unwrap();
    std::fs::remove_file(&link).unwrap();
    let error = undo(&mut RealHands(&root), false).unwrap_err();
    assert!(error.contains(FIRST) && root.exists(UNDO_FILE), "{error}");
    // The command that is named means this root.
    assert!(error.ends_with(&format!("skep tune undo{} --leave-missing", root.flag())), "{error}");
    assert_eq!(super::reading(&text(&root, "/sys/block/sda/queue/read_ahead_kb")), changed.1[2]);
    std::os::unix::fs::symlink(target, &link).unwrap();
    let undone = undo(&mut RealHands(&root), false).unwrap().unwrap();
    assert_eq!((queues(&root, FIRST), queues(&root, SECOND)), before, "{undone:?}");
    // Left out when that is said.
    exchange(&root);
    apply(&queue_plan(&root), &mut RealHands(&root)).unwrap();
    std::fs::remove_file(&link).unwrap();
    let undone = undo(&mut RealHands(&root), true).unwrap().unwrap();
    assert!(undone.notes.iter().any(|one| one.contains(SECOND) && one.contains("stay")), "{undone:?}");
    assert_eq!(super::reading(&text(&root, "/sys/block/sda/queue/read_ahead_kb")), before.0[2]);
    assert!(!root.exists(UNDO_FILE));
}

/// Goal: a disk without a name that stays is changed in the running kernel only, and that is said; one that could not
/// even be found again until the next boot is not changed at all.
#[test]
fn disks_without_a_name() {
    for (sequence, changed) in [(true, true), (false, false)] {
        let dir = unpacked(&SSD.replace("/device/wwid", "/device/nothing"));
        let root = Root::new(dir.path()).unwrap();
        if sequence {
            std::fs::create_dir_all(root.path("/proc/sys/kernel/random")).unwrap();
            std::fs::write(root.path("/proc/sys/kernel/random/boot_id"), "boot-1\n").unwrap();
            for (at, disk) in ["sda", "sdb", "sdc"].into_iter().enumerate() {
                let path = format!("{}/diskseq", root.real(&format!("/sys/block/{disk}")).unwrap());
                std::fs::write(root.path(&path), format!("{at}\n")).unwrap();
            }
        }
        let found = check(&read(&root, storage_and_meta()));
        let queues = found.iter().filter(|one| one.area == "queue" && one.verdict == Verdict::Change);
        let word = if changed { "does not persist" } else { "by hand" };
        assert!(queues.clone().count() > 2);
        for one in queues {
            assert!(one.note.contains(word) && one.change.is_some() == changed, "{one:?}");
            assert!(one.change.iter().all(|change| change.keep.is_empty()), "{one:?}");
        }
        if changed {
            apply(&queue_plan(&root), &mut RealHands(&root)).unwrap();
            assert!(!root.exists(super::UDEV_FILE));
            // After a boot the count means other disks: the values went with the boot, nothing is written.
            std::fs::write(root.path("/proc/sys/kernel/random/boot_id"), "boot-2\n").unwrap();
            let undone = undo(&mut RealHands(&root), false).unwrap().unwrap();
            assert_eq!(undone.values, 0, "{undone:?}");
            assert!(undone.notes.iter().any(|one| one.contains("last boot")), "{undone:?}");
        }
    }
    let past = Identity { kind: IdentityKind::Wwid, value: "a b".to_owned() };
    assert!(!past.is_past(Some("c")));
}

/// Goal: a value that one change sets is not set again, nor shown again, by the next: a new scheduler brings the depth of
/// the queue along.
#[test]
fn nothing_is_set_twice() {
    let mut shared = 0;
    for tree in [HDD, SSD, NVME] {
        let dir = unpacked(tree);
        let root = Root::new(dir.path()).unwrap();
        let all = check(&read(&root, storage_and_meta()));
        let wanted: Vec<_> = all.iter().filter(|one| one.verdict == Verdict::Change).collect();
        let lives = wanted.iter().flat_map(|one| &one.change).flat_map(|change| &change.live);
        let asked: Vec<_> =
            lives.filter(|live| live.value.is_some()).map(|live| (&live.path, &live.value)).collect();
        let plan = Plan::of(&root, &all).unwrap();
        let set = plan.steps.iter().filter_map(|step| match step {
            Step::Live { path, after: Some(after), .. } => Some((path, after)),
            _ => None,
        });
        let set: Vec<_> = set.collect();
        let once: std::collections::BTreeSet<_> = set.iter().collect();
        assert_eq!(once.len(), set.len(), "{set:?}");
        shared += asked.len() - set.len();
    }
    assert!(shared > 0, "no machine has both");
}

/// Goal: undo says what the files need that it put back, by name of the service, and nothing when it put back no more
/// than values and files that the kernel and udev read by themselves.
#[test]
fn undo_tells_what_remains() {
    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let undone = |settings: &[&str]| {
        let all = check(&read(&root, storage_and_meta()));
        let chosen: Vec<_> = all.into_iter().filter(|one| settings.contains(&one.setting)).collect();
        let plan = Plan::of(&root, &chosen).unwrap();
        let applied = apply(&plan, &mut RealHands(&root)).unwrap();
        let undone = undo(&mut RealHands(&root), false).unwrap().unwrap();
        assert_eq!((undone.values, undone.files), (applied.values, applied.files), "{undone:?}");
        (undone, plan.after)
    };
    let (values, of_apply) = undone(&["vm.vfs_cache_pressure", "read_ahead_kb"]);
    assert!(values.values > 0 && values.files > 0, "{values:?}");
    assert_eq!((values.after, of_apply), (vec![], vec![]));
    let (bound, of_apply) = undone(&["LimitNOFILE", "bind-numa", "vm.vfs_cache_pressure"]);
    let units = "skep-metad@metad.service skep-storaged@storaged.service";
    assert_eq!(bound.after, [format!("systemctl daemon-reload; systemctl restart {units}")]);
    assert_eq!(of_apply, bound.after);
}

/// Goal: what an administrator wrote into a file between two applies goes with undo, but not without a copy.
#[test]
fn an_edit_between_two_applies() {
    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let file = super::SYSCTL_FILE;
    let before = text(&root, file);
    let apply_one = |setting: &str| {
        let all = check(&read(&root, storage_and_meta()));
        let chosen: Vec<_> = all.into_iter().filter(|one| one.setting == setting).collect();
        let plan = Plan::of(&root, &chosen).unwrap();
        assert!(plan.text_of(file).is_some());
        apply(&plan, &mut RealHands(&root)).unwrap();
    };
    apply_one("vm.vfs_cache_pressure");
    std::fs::write(root.path(file), text(&root, file) + "# mine\n").unwrap();
    apply_one("vm.dirty_background_ratio");
    let held = text(&root, file);
    assert!(held.contains("# mine\n"), "{held}");
    let undone = undo(&mut RealHands(&root), false).unwrap().unwrap();
    assert_eq!(text(&root, file), before);
    assert_eq!(text(&root, &format!("{file}{}", super::SAVED)), held);
    assert!(undone.notes.iter().any(|one| one.contains(super::SAVED)), "{undone:?}");
}

/// Goal: an undo file that apply writes is one that undo reads, with thousands of drives too; one that it would not read is
/// refused before anything is touched.
#[test]
fn undo_files_of_many_drives() {
    use super::hands::FILE_MAX;
    use super::{Journal, Owner, journal::OldValue};
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("var/lib/skep")).unwrap();
    let root = Root::new(dir.path()).unwrap();
    let value = |disk: usize| {
        let (name, value) = (format!("sd{disk}"), format!("naa.5000c500{disk:08x}"));
        let identity = Identity { kind: IdentityKind::Wwid, value };
        OldValue {
            path: format!("/sys/block/{name}/queue/max_sectors_kb"),
            disk: Some(Owner { name, identity }),
            before: "1280".to_owned(),
            after: Some("4096".to_owned()),
        }
    };
    let mut journal = Journal::default();
    journal.live = (0..4000).map(value).collect();
    journal.write(&mut RealHands(&root)).unwrap();
    assert!(text(&root, UNDO_FILE).len() > 1 << 20);
    assert_eq!(Journal::read(&mut RealHands(&root)).unwrap(), Some(journal));

    let dir = unpacked(SSD);
    let root = Root::new(dir.path()).unwrap();
    let mut plan = plan(&root);
    let path = "/etc/long".to_owned();
    let after = "x".repeat(FILE_MAX as usize);
    plan.steps.insert(0, Step::File { path, before: None, after });
    let error = apply(&plan, &mut RealHands(&root)).unwrap_err();
    assert!(error.contains("nothing was changed") && error.contains("--setting"), "{error}");
    assert!(!root.exists("/var/lib/skep/tune") && !root.exists("/etc/long.skep-new"));
}

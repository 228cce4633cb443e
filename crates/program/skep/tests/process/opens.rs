//! Who may open what, and how a mount is changed while it is in use.

use super::{plan, start};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Some user who is not root, and a group that he is in beside his own.
const USER: u32 = 4711;

/// Goal: a create opens no file that another mount made at the same moment, unless its program may open it; and no
/// program is told of the race.
#[test]
fn a_create_opens_nobody_elses_file() {
    const NAMES: usize = 1_000;
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let directory = cluster.mount().join("open to all");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", include_str!("opens.py")]).arg(second.join("open to all")).arg(&directory);
    let told = command.arg(NAMES.to_string()).output().expect("python3 is missing: apt-get install python3");
    let (said, errors) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    let mut made: Vec<usize> = Vec::new();
    for line in said.lines() {
        let count = line.strip_prefix("made ").and_then(|rest| rest.split_once(' ')?.1.parse().ok());
        made.push(count.unwrap_or_else(|| panic!("{said}{errors}")));
    }
    assert!(told.status.success() && errors.is_empty(), "{errors}");
    // Root opens what the user made, and counts its own only.
    assert_eq!(made.iter().sum::<usize>(), NAMES, "{said}");
}

fn as_user(path: &Path, groups: &[u32], script: &str) {
    let gids = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new("python3");
    let words = format!(
        "import os, sys; os.chdir(sys.argv[1]); path = sys.argv[2]; \
         os.setgroups([{gids}]); os.setgid({USER}); os.setuid({USER}); {script}"
    );
    let (directory, name) = (path.parent().unwrap(), path.file_name().unwrap());
    let done = command
        .args(["-c", &words])
        .arg(directory)
        .arg(name)
        .output()
        .expect("python3 is missing: apt-get install python3");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Goal: who changes a file and is not in its group takes the set-group-id bit off it, as on Linux since 6.2, also where
/// the group may not run it; a member keeps it there, root everywhere.
#[test]
fn set_group_id_goes_with_a_foreign_change() {
    const GROUP: u32 = 815;
    let cluster = start(plan());
    let path = cluster.mount().join("file");
    fs::write(&path, b"content").unwrap();
    std::os::unix::fs::chown(&path, Some(0), Some(GROUP)).unwrap();
    let mode = |wanted: u32| fs::set_permissions(&path, Permissions::from_mode(wanted)).unwrap();
    let changes = [
        "os.pwrite(os.open(path, os.O_WRONLY), b'x', 0)",
        "os.pwrite(os.open(path, os.O_WRONLY), bytes(100000), 0)",
        "os.truncate(path, 3)",
        "os.open(path, os.O_WRONLY | os.O_TRUNC)",
        "os.posix_fallocate(os.open(path, os.O_WRONLY), 0, 5000)",
    ];
    for change in changes {
        for (before, groups, after) in [
            (0o6666, &[][..], 0o666),
            (0o2666, &[], 0o666),
            (0o2676, &[], 0o676),
            (0o2666, &[GROUP][..], 0o2666),
            (0o6676, &[GROUP], 0o676),
        ] {
            mode(before);
            as_user(&path, groups, change);
            let found = fs::metadata(&path).unwrap().mode() & 0o7777;
            assert_eq!(found, after, "{before:o} after {change} by a member of {groups:?}: {found:o}");
        }
        mode(0o2666);
        fs::write(&path, b"by root").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o2666);
    }
}

/// Goal: a mount becomes read-only and writable again while programs are in it, and keeps its other flags; with a file
/// open for writing that is refused; mount(8) gets suid and dev, which it does not say.
#[test]
fn remounting() {
    let cluster = start(plan());
    let second = cluster.beside("mnt1");
    fs::create_dir(&second).unwrap();
    let mount = |options: &str| {
        let mut words = cluster.mount_words(&second, &[]);
        words.extend(["-o".into(), options.into()]);
        cluster.run(words).unwrap()
    };
    assert!(mount("noatime").status.success());
    let file = second.join("file");
    fs::write(&file, b"content").unwrap();
    let options = || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let point = format!(" {} ", second.display());
        mounts.lines().find(|line| line.contains(&point)).unwrap().split(' ').nth(3).unwrap().to_owned()
    };
    assert!(mount("remount,ro").status.success());
    assert!(options().starts_with("ro,nosuid,nodev,") && options().contains("noatime"), "{}", options());
    assert_eq!(fs::read(&file).unwrap(), b"content");
    assert_eq!(Errno::from_io_error(&File::create(&file).unwrap_err()), Some(Errno::ROFS));
    assert!(mount("remount,rw,suid").status.success());
    assert!(options().starts_with("rw,nodev,") && options().contains("noatime"), "{}", options());
    let open = File::create(&file).unwrap();
    let refused = mount("remount,ro");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("in use"), "{said}");
    drop(open);
    // As mount(8) does it without a line in fstab: by the type and the options of the kernel's list.
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(second.to_str().unwrap())).unwrap();
    let source = line.split(' ').next().unwrap();
    for (helper, wish) in [("mount.fuse.skep", "ro"), ("mount.skep", "rw")] {
        let mut command = cluster.command([source.as_ref(), second.as_os_str()]);
        let done =
            command.arg0(helper).args(["-o", &format!("{},remount,{wish}", options())]).output().unwrap();
        assert!(done.status.success(), "{helper}: {done:?}");
        assert!(
            options().starts_with(&format!("{wish},nodev,")) && options().contains("user_id=0"),
            "{}",
            options()
        );
    }
}

/// Goal: a file that another mount replaces over and over is opened and read whole, however the opens fall between.
#[test]
fn a_file_that_is_replaced_can_be_opened() {
    const READS: usize = 1_500;
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let (name, new, theirs) = (cluster.mount().join("name"), second.join("new"), second.join("name"));
    fs::write(&theirs, b"whole").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::write(&new, b"whole").unwrap();
                fs::rename(&new, &theirs).unwrap();
            }
        });
        let readers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..READS).try_for_each(|_| read_whole(&name)))).collect();
        let read: Result<Vec<()>, String> =
            readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        read.unwrap();
    });
}

fn read_whole(path: &Path) -> Result<(), String> {
    let content = fs::read(path).map_err(|e| e.to_string())?;
    if content == b"whole" { Ok(()) } else { Err(format!("{content:?}")) }
}

//! Several mounts, several processes.

use super::{Running, bytes, plan, start};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

fn two_mounts() -> (Running, PathBuf, PathBuf) {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let first = cluster.mount().to_owned();
    (cluster, first, second)
}

/// Goal: what was closed on one mount is what an open on the other reads, whatever it had cached:
/// inline, grown, striped, overwritten in place, cut.
#[test]
fn close_to_open_between_two_mounts() {
    let (_cluster, first, second) = two_mounts();
    for round in 0..12u32 {
        let (writer, reader) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        for (name, len) in [("inline", 4_000), ("grown", 9_000 + 40 * round as usize), ("large", 3 << 20)] {
            let content = bytes(round, len);
            let mut file = File::create(writer.join(name)).unwrap();
            file.write_all(&content).unwrap();
            drop(file);
            assert_eq!(fs::metadata(reader.join(name)).unwrap().len(), len as u64);
            assert!(fs::read(reader.join(name)).unwrap() == content, "round {round}, {name}");
        }
        // The size stays: only the content tells.
        let file = fs::OpenOptions::new().write(true).open(writer.join("large")).unwrap();
        file.write_all_at(b"changed", 2_000_000).unwrap();
        drop(file);
        assert_eq!(fs::read(reader.join("large")).unwrap()[2_000_000..][..7], *b"changed");
        fs::OpenOptions::new().write(true).open(reader.join("large")).unwrap().set_len(100_000).unwrap();
        assert_eq!(fs::read(writer.join("large")).unwrap(), bytes(round, 3 << 20)[..100_000]);
    }
}

/// Goal: names and attributes changed on one mount are seen by the other's next call.
#[test]
fn names_are_exact_between_two_mounts() {
    let (_cluster, first, second) = two_mounts();
    for (here, there) in [(&first, &second), (&second, &first)] {
        fs::create_dir(here.join("d")).unwrap();
        assert!(there.join("d").is_dir());
        fs::write(here.join("d/a"), b"1").unwrap();
        fs::rename(there.join("d/a"), there.join("d/b")).unwrap();
        assert!(!here.join("d/a").exists() && here.join("d/b").exists());
        fs::hard_link(here.join("d/b"), here.join("d/c")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&fs::metadata(there.join("d/b")).unwrap()), 2);
        fs::remove_file(there.join("d/b")).unwrap();
        fs::remove_file(there.join("d/c")).unwrap();
        assert_eq!(fs::read_dir(here.join("d")).unwrap().count(), 0);
        fs::remove_dir(there.join("d")).unwrap();
        assert!(!here.join("d").exists());
    }
}

/// A file that is being written on one mount shows its size on the other.
///
/// Goal: the size of a file open for writing elsewhere is the live one.
#[test]
fn the_size_of_an_open_file_is_live() {
    let (_cluster, first, second) = two_mounts();
    let file = File::create(first.join("growing")).unwrap();
    for end in [1u64 << 20, 5 << 20, 9 << 20] {
        file.write_all_at(b"x", end - 1).unwrap();
        assert_eq!(fs::metadata(second.join("growing")).unwrap().len(), end);
    }
}

/// Goal: of four processes on two mounts that create the same name exclusively, one wins, each time.
#[test]
fn exclusive_creates_have_one_winner() {
    const NAMES: usize = 100;
    let (_cluster, first, second) = two_mounts();
    let race = |mount: &Path, number: usize| {
        // `set -C` makes the shell open with O_EXCL.
        let script = format!(
            "set -C; i=0; while [ $i -lt {NAMES} ]; do {{ echo {number} > name-$i; }} 2>/dev/null && echo $i; i=$((i+1)); done; exit 0"
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(mount).stdout(Stdio::piped()).spawn().unwrap()
    };
    let racers: Vec<_> =
        (0..4).map(|number| race(if number % 2 == 0 { &first } else { &second }, number)).collect();
    let mut winners = vec![Vec::new(); NAMES];
    for (number, racer) in racers.into_iter().enumerate() {
        let output = racer.wait_with_output().unwrap();
        assert!(output.status.success());
        for name in String::from_utf8(output.stdout).unwrap().lines() {
            winners[name.parse::<usize>().unwrap()].push(number);
        }
    }
    for (name, winners) in winners.iter().enumerate() {
        let [winner] = winners[..] else { panic!("name-{name} was created by {winners:?}") };
        let content = fs::read_to_string(first.join(format!("name-{name}"))).unwrap();
        assert_eq!(content.trim(), winner.to_string());
    }
}

/// Goal: a listing of 5,000 names shows each exactly once, while others come and go on both mounts.
#[test]
fn listing_while_others_create_and_remove() {
    const NAMES: usize = 5_000;
    let (_cluster, first, second) = two_mounts();
    let directory = first.join("many");
    fs::create_dir(&directory).unwrap();
    let names: BTreeSet<String> = (0..NAMES).map(|number| format!("stays-{number}")).collect();
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (directory, names) = (&directory, &names);
            scope.spawn(move || {
                for name in names.iter().skip(part).step_by(2) {
                    File::create(directory.join(name)).unwrap();
                }
            });
        }
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, mount) in [&first, &second].into_iter().enumerate() {
            let (done, directory) = (&done, mount.join("many"));
            scope.spawn(move || {
                for round in 0.. {
                    if done.load(Ordering::SeqCst) {
                        return;
                    }
                    let path = directory.join(format!("goes-{number}-{}", round % 400));
                    if fs::remove_file(&path).is_err() {
                        File::create(&path).unwrap();
                    }
                }
            });
        }
        let listings = || {
            for round in 0..6 {
                let listed = fs::read_dir([&first, &second][round % 2].join("many")).unwrap();
                let listed: Vec<String> =
                    listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
                let unique: BTreeSet<&String> = listed.iter().collect();
                assert_eq!(unique.len(), listed.len(), "round {round}: a name was shown twice");
                let missing = names.iter().find(|name| !unique.contains(name));
                assert_eq!(missing, None, "round {round}");
            }
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(listings));
        done.store(true, Ordering::SeqCst);
        result.unwrap();
    });
}

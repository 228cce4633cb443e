//! What is lost says so: chunk files that are gone, short or of another target are EIO, never zeros.

use super::deletion::chunk_files;
use super::{Running, bytes, plan, refusal, start};
use skep_rig::until;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is told to a server again is told within this time.
const ANSWER: Duration = Duration::from_secs(60);
/// Long enough for several chunks.
const LEN: usize = 6 << 20;

fn restart_storage(cluster: &Running) {
    for daemon in cluster.of("storaged") {
        daemon.kill().unwrap();
    }
    cluster.up().unwrap();
}

/// An fsynced file of [`LEN`] bytes in a directory whose files lie on two targets.
fn stored(cluster: &Running, name: &str) -> PathBuf {
    let path = cluster.mount().join(name);
    let file = File::create_new(&path).unwrap();
    file.write_all_at(&bytes(7, LEN), 0).unwrap();
    file.sync_all().unwrap();
    path
}

/// Reads past the page cache of the mount's kernel.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    let mut all = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut all, 0).map(|()| all)
}

fn assert_lost(path: &Path) {
    let error = read(path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
}

/// Goal: a chunk file that is removed, cut short, or of another target is EIO, in a copy as well; put back, the file
/// is whole. `entry info` and `health` name it; `entry repair --zero` of the owner makes the lost part zeros, and
/// only that; a stranger may not.
#[test]
fn lost_chunk_files_are_errors() {
    let cluster = start(plan());
    let directory = cluster.mount().join("wide");
    fs::create_dir(&directory).unwrap();
    cluster
        .must(["entry".as_ref(), "set".as_ref(), "--targets".as_ref(), "2".as_ref(), directory.as_os_str()])
        .unwrap();
    let path = stored(&cluster, "wide/file");
    let files = chunk_files(&cluster);
    assert_eq!(files.len(), 2, "{files:?}");
    let content: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let put_back = |number: usize| fs::write(&files[number], &content[number]).unwrap();
    let info = || cluster.must(["entry".as_ref(), "info".as_ref(), path.as_os_str()]).unwrap();
    assert!(!info().contains("LOST"), "{}", info());

    fs::remove_file(&files[0]).unwrap();
    restart_storage(&cluster);
    assert_lost(&path);
    let copy =
        Command::new("cp").arg("--sparse=always").arg(&path).arg(cluster.mount().join("copy")).output();
    assert!(!copy.unwrap().status.success(), "cp took what is lost for a hole");
    assert!(info().contains("LOST") && info().contains("missing or empty"), "{}", info());
    let shown = cluster.run(["entry".as_ref(), "repair".as_ref(), path.as_os_str()]).unwrap();
    assert_eq!(shown.status.code(), Some(1), "{}", String::from_utf8_lossy(&shown.stdout));
    let health = cluster.run(cluster.admin_words(["health"])).unwrap();
    let told = String::from_utf8_lossy(&health.stdout).into_owned();
    assert!(!health.status.success() && told.contains("chunk file"), "{told}");
    // The server forgets it with its life; the mount tells it again.
    cluster.one("metad").unwrap().kill().unwrap();
    cluster.up().unwrap();
    fs::metadata(&path).unwrap();
    let health = || {
        let health = cluster.run(cluster.admin_words(["health"])).unwrap();
        String::from_utf8_lossy(&health.stdout).into_owned()
    };
    until("health tells of the loss again", ANSWER, || match health() {
        told if told.contains("chunk file") => Ok(()),
        told => Err(told),
    })
    .unwrap();
    put_back(0);
    restart_storage(&cluster);
    assert!(read(&path).unwrap() == bytes(7, LEN), "put back");
    let repaired = cluster.must(["entry".as_ref(), "repair".as_ref(), path.as_os_str()]).unwrap();
    assert!(repaired.contains("nothing is lost"), "{repaired}");
    until("health forgets what was put back", ANSWER, || match health() {
        told if told.contains("chunk file") => Err(told),
        _ => Ok(()),
    })
    .unwrap();

    File::options().write(true).open(&files[1]).unwrap().set_len(1 << 20).unwrap();
    restart_storage(&cluster);
    assert_lost(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    chown(&path, Some(1234), None).unwrap();
    let stranger = setpriv(&cluster, 4321, &path);
    assert!(!stranger.0, "{}", stranger.1);
    let owner = setpriv(&cluster, 1234, &path);
    assert!(owner.0 && owner.1.contains("given up"), "{}", owner.1);
    let logs = cluster.logs();
    let told = &logs.iter().find(|(name, _)| name.starts_with("metad")).unwrap().1;
    let inode = format!("inode {}: ", fs::metadata(&path).unwrap().ino());
    for what in ["something of it is lost", "was given up by the mount"] {
        let line = told.lines().find(|line| line.contains(&inode) && line.contains(what));
        assert!(line.is_some_and(|line| line.contains("WARN")), "{what}: {told}");
    }
    let found = read(&path).unwrap();
    let expected = bytes(7, LEN);
    let differ = (0..LEN).filter(|at| found[*at] != expected[*at]);
    assert!(differ.clone().count() > 0 && differ.clone().all(|at| found[at] == 0));
    assert!(!info().contains("LOST"), "{}", info());
    fs::write(&path, bytes(8, LEN)).unwrap();
    assert!(read(&path).unwrap() == bytes(8, LEN), "written anew");
}

/// Goal: a chunk file that somebody removes while its server has it open is noticed: a write to it, or the fsync of what
/// was written before, is EIO, and so is every read; `entry info` and `health` name it. Nothing is restarted.
#[test]
fn a_chunk_file_removed_beneath_its_server_is_noticed() {
    let cluster = start(plan());
    let path = stored(&cluster, "synced");
    let files = chunk_files(&cluster);
    files.iter().for_each(|file| fs::remove_file(file).unwrap());
    let file = File::options().write(true).open(&path).unwrap();
    let done = file.write_all_at(&bytes(8, 4096), 0).and_then(|()| file.sync_all());
    assert_eq!(done.unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert_lost(&path);

    let unsynced = cluster.mount().join("unsynced");
    let file = File::create_new(&unsynced).unwrap();
    file.write_all_at(&bytes(7, LEN), 0).unwrap();
    chunk_files(&cluster).iter().for_each(|file| fs::remove_file(file).unwrap());
    assert!(file.sync_all().is_err(), "nothing of it is on stable storage");
    assert_lost(&unsynced);
    for path in [&path, &unsynced] {
        let info = cluster.must(["entry".as_ref(), "info".as_ref(), path.as_os_str()]).unwrap();
        assert!(info.contains("LOST"), "{info}");
    }
    let health = cluster.run(cluster.admin_words(["health"])).unwrap();
    let told = String::from_utf8_lossy(&health.stdout).into_owned();
    assert!(!health.status.success() && told.contains("chunk file"), "{told}");
}

fn setpriv(cluster: &Running, uid: u32, path: &Path) -> (bool, String) {
    let words = ["entry".as_ref(), "repair".as_ref(), "--zero".as_ref(), path.as_os_str()];
    let mut command = cluster.command(words);
    std::os::unix::process::CommandExt::uid(&mut command, uid);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Goal: a mount that waits for a target keeps nobody waiting who asks what is lost.
#[test]
fn repair_has_a_deadline() {
    let cluster = start(plan());
    let path = stored(&cluster, "file");
    for daemon in cluster.of("storaged") {
        daemon.kill().unwrap();
    }
    let words = ["entry", "repair", "--timeout", "1s", path.to_str().unwrap()];
    let mut asking = cluster.command(words).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let ended = skep_rig::patiently("entry repair ends", || asking.try_wait().unwrap().is_some());
    let _ = asking.kill();
    ended.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    let output = asking.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("did not answer within 1 s"), "{said}");
    cluster.up().unwrap();
}

/// Goal: targets that got each other's `chunks/` give EIO for every file, and all of it when they have their own
/// again; sparse files, punched and truncated ones stay zeros throughout.
#[test]
fn swapped_chunks_are_errors_and_holes_are_zeros() {
    let cluster = start(plan());
    let paths: Vec<PathBuf> = (0..6).map(|number| stored(&cluster, &format!("file-{number}"))).collect();
    let sparse = cluster.mount().join("sparse");
    let file = File::create_new(&sparse).unwrap();
    file.write_all_at(b"end", 40 << 20).unwrap();
    file.set_len(50 << 20).unwrap();
    file.sync_all().unwrap();
    let mut expected = vec![0; 50 << 20];
    expected[40 << 20..(40 << 20) + 3].copy_from_slice(b"end");
    assert!(read(&sparse).unwrap() == expected);
    file.set_len(1 << 20).unwrap();
    file.set_len(50 << 20).unwrap();
    file.sync_all().unwrap();
    restart_storage(&cluster);
    assert!(read(&sparse).unwrap() == vec![0; 50 << 20]);
    let mut roots: Vec<PathBuf> = chunk_files(&cluster)
        .iter()
        .filter_map(|file| file.ancestors().find(|path| path.ends_with("chunks")).map(Path::to_owned))
        .collect();
    roots.sort();
    roots.dedup();
    assert!(roots.len() >= 2, "{roots:?}");
    // Each gets those of the next one, so none has its own.
    let swap = |roots: &[PathBuf]| {
        let aside = roots[0].with_file_name("aside");
        fs::rename(&roots[0], &aside).unwrap();
        for pair in roots.windows(2) {
            fs::rename(&pair[1], &pair[0]).unwrap();
        }
        fs::rename(&aside, roots.last().unwrap()).unwrap();
    };
    for daemon in cluster.of("storaged") {
        daemon.kill().unwrap();
    }
    swap(&roots);
    cluster.up().unwrap();
    paths.iter().for_each(|path| assert_lost(path));
    assert!(read(&sparse).unwrap() == vec![0; 50 << 20], "a hole is not lost");
    for daemon in cluster.of("storaged") {
        daemon.kill().unwrap();
    }
    roots.reverse();
    swap(&roots);
    cluster.up().unwrap();
    assert!(paths.iter().all(|path| read(path).unwrap() == bytes(7, LEN)));
    let nothing = cluster.must(["entry".as_ref(), "repair".as_ref(), sparse.as_os_str()]).unwrap();
    assert!(nothing.contains("nothing is lost"), "{nothing}");
    let wrong = refusal(&cluster, &["entry", "repair", "/nowhere/at/all"]);
    assert!(wrong.contains("/nowhere"), "{wrong}");
}

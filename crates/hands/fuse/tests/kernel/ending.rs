//! How mounts end, and what becomes of those whose daemon died.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use skep_fuse::empty::{EmptyConfig, EmptyMount};
use skep_fuse::{Ending, Fuse, FuseOptions, MountError, MountOptions, Transport, replace_stale, unmount};

use crate::served::{Directory, Served, mounts_on, options};
use crate::watched::Watched;

/// Tells a child of this test program which directory to mount on.
const CHILD: &str = "SKEP_FUSE_TEST_MOUNT";
/// And with which transport.
const TRANSPORT: &str = "SKEP_FUSE_TEST_TRANSPORT";
const DEADLINE: Duration = Duration::from_secs(120);

on_both! {
    /// Goal: a lazily unmounted file system serves its open files to the end, then `run` returns.
    fn lazy_unmount(transport) {
        let (watched, seen, _entered) = Watched::new(Duration::ZERO);
        let served = Served::new(watched, options(transport));
        let file = fs::File::open(served.path().join("pattern")).unwrap();
        assert!(unmount(served.path(), false, false).is_err(), "busy");
        unmount(served.path(), true, false).unwrap();
        assert_eq!(mounts_on(served.path()), 0);
        assert!(file.metadata().unwrap().is_file(), "still served");
        assert_eq!(seen.destroyed.load(SeqCst), 0);
        drop(file);
        assert_eq!(served.ended().0, Ending::Unmounted);
        assert_eq!(seen.destroyed.load(SeqCst), 1);
    }
}

on_both! {
    /// Goal: an unmount is told from an abort also when it comes while the kernel hands requests out: here, the closes
    /// of files.
    fn unmounted_while_files_close(transport) {
        for round in 0..100 {
            let (watched, _seen, _entered) = Watched::new(Duration::from_secs(60));
            let served = Served::new(watched, options(transport));
            let open = |_| fs::File::open(served.path().join("pattern")).unwrap();
            drop((0..64).map(open).collect::<Vec<_>>());
            unmount(served.path(), false, false).unwrap();
            assert_eq!(served.ended().0, Ending::Unmounted, "round {round}");
        }
    }
}

on_both! {
    /// Goal: a busy mount that was aborted, but stayed in the mount table, is removed by its own daemon.
    fn abort_of_a_busy_mount(transport) {
        let (watched, _seen, _entered) = Watched::new(Duration::ZERO);
        let served = Served::new(watched, options(transport));
        let file = fs::File::open(served.path().join("pattern")).unwrap();
        let _ = unmount(served.path(), false, true);
        let (_, directory) = served.ended();
        assert_eq!(mounts_on(directory.path()), 0);
        assert!(file.metadata().is_err());
    }
}

on_both! {
    /// Goal: a worker that panics ends the mount, instead of leaving its caller waiting for ever.
    fn panic_of_a_worker(transport) {
        let (watched, _seen, _entered) = Watched::new(Duration::ZERO);
        let served = Served::new(watched, options(transport));
        assert!(fs::read(served.path().join("broken")).is_err());
        let directory = served.panicked();
        assert_eq!(mounts_on(directory.path()), 0);
    }
}

on_both! {
    /// Goal: a device that is dropped before it is served leaves no mount behind.
    fn dropped_before_run(transport) {
        let directory = Directory::new();
        let device = Fuse::mount(&MountOptions::new(directory.path()), options(transport)).unwrap();
        assert_eq!(mounts_on(directory.path()), 1);
        drop(device);
        assert_eq!(mounts_on(directory.path()), 0);
    }
}

/// Goal: mounting on something that is no directory says where and what to do.
#[test]
fn no_such_directory() {
    let options = MountOptions::new("/nonexistent/skep");
    let Err(error) = Fuse::mount(&options, FuseOptions::default()) else { panic!("mounted") };
    assert!(matches!(error, MountError::Mount(..)));
    let text = error.to_string();
    assert!(text.contains("/nonexistent/skep") && text.contains("directory"), "{text}");
}

pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Run by itself, with the variable set, this test is a daemon that somebody will kill.
#[test]
fn daemon_to_be_killed() {
    let Some(target) = std::env::var_os(CHILD) else { return };
    let transport = std::env::var(TRANSPORT).unwrap().parse().unwrap();
    let device = Fuse::mount(&MountOptions::new(target), options(transport)).unwrap();
    let config = EmptyConfig::valid_for(Duration::from_secs(3600));
    device.run(&EmptyMount::new(config)).unwrap();
}

/// Starts one. Names and attributes that it tells are valid for longer than the test takes.
pub fn daemon_on(directory: &Path, transport: Transport) -> Child {
    let daemon = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ending::daemon_to_be_killed"])
        .env(CHILD, directory)
        .env(TRANSPORT, transport.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the child mounts", || mounts_on(directory) == 1);
    daemon
}

on_both! {
    /// Goal: the mount that a killed daemon left is found dead and replaced; a living one is left alone.
    fn stale_mount_is_replaced(transport) {
        let directory = Directory::new();
        assert!(!replace_stale(directory.path()).unwrap(), "nothing mounted");
        let mut daemon = daemon_on(directory.path(), transport);
        fs::write(directory.path().join("file"), b"1").unwrap();
        assert!(!replace_stale(directory.path()).unwrap(), "its daemon lives");
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        // The kernel takes rings down after their process has gone; what is asked meanwhile is aborted.
        let refused = || fs::write(directory.path().join("other"), b"1").unwrap_err().raw_os_error();
        wait_until("the connection is dead", || refused() == Some(107));
        assert!(replace_stale(directory.path()).unwrap());
        assert_eq!(mounts_on(directory.path()), 0);
        let served = Served::on(directory, EmptyMount::new(EmptyConfig::default()), options(transport));
        fs::write(served.path().join("file"), b"2").unwrap();
    }
}

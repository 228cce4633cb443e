//! K14 and K15: what is valid when a connection has ended, and notifications beside an umount.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, AtFlags, Mode, OFlags, fadvise, lstat, open, statat};
use skep_fuse::abi::opcode;
use skep_fuse::{Dropped, Errno, unmount};

use super::X;
use super::mounted::{ATTRIBUTES, Mounted};
use crate::ending::{daemon_on, wait_until};
use crate::served::Directory;

on_both! {
    /// Goal: what is valid is used without the file system: names, attributes, pages. What is not is an error.
    fn k14_what_is_valid_is_used_when_the_connection_has_ended(transport) {
        let mounted = Mounted::warm(transport);
        let directory = open(mounted.path("d"), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let file = File::open(mounted.path("d/x")).unwrap();
        assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 10);
        mounted.look("d/x");
        let path = mounted.path("");
        unmount(&path, true, true).unwrap();
        drop(mounted.ended());
        let stat = |name| statat(&directory, name, AtFlags::empty());
        assert_eq!(stat("x").unwrap().st_size, 100);
        assert_eq!(stat("y").unwrap().st_size, 100);
        assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 10);
        let refused = stat("z").unwrap_err();
        assert!([rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED].contains(&refused), "{refused}");
    }
}

on_both! {
    /// Goal: the same where the file system was killed, by whoever walks there.
    fn k14_what_is_valid_is_used_when_the_file_system_was_killed(transport) {
        let directory = Directory::new();
        let mut daemon = daemon_on(directory.path(), transport);
        let path = directory.path().join("file");
        fs::write(&path, b"content").unwrap();
        assert_eq!(lstat(&path).unwrap().st_size, 7);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        wait_until("the connection is dead", || {
            lstat(directory.path().join("other")).err() == Some(rustix::io::Errno::NOTCONN)
        });
        assert_eq!(lstat(&path).unwrap().st_size, 7);
    }
}

on_both! {
    /// Goal: an umount waits for a notification that waits for a page, and notifications behind it wait as well, also those
    /// that would wait for nothing; with the page all of them end.
    fn k15_notifications_wait_behind_an_umount(transport) {
        let mounted = Mounted::warm(transport);
        let gate = mounted.hold(opcode::READ, X, "");
        // Read ahead: nobody waits for it, so nothing keeps the file system from being unmounted.
        let file = File::open(mounted.path("d/x")).unwrap();
        fadvise(&file, 0, None, Advice::WillNeed).unwrap();
        gate.arrived();
        drop(file);
        let mut first = mounted.notice(|notifier| notifier.inval_inode(X, 0, 0));
        assert!(first.waits_in("fuse_reverse_inval_inode"));
        let mut umount = mounted.program(|root| unmount(root, false, false));
        assert!(umount.waits_in("fuse_"));
        let mut second = mounted.notice(|notifier| notifier.inval_inode(X, ATTRIBUTES, 0));
        assert!(second.waits_in("fuse_dev"));
        gate.open();
        assert_eq!(first.done(), Ok(Dropped::Done));
        umount.done().unwrap();
        let second = second.done();
        assert!([Ok(Dropped::Unknown), Err(Errno::ENOTCONN)].contains(&second), "{second:?}");
        drop(mounted.ended());
    }
}

//! Invalidating what the kernel caches.

use std::fs;
use std::io::{Seek, SeekFrom};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use skep_fuse::{Dropped, Errno, unmount};

use crate::served::{Served, options};
use crate::watched::{PATTERN, Watched};

const ROOT: u64 = 1;

on_both! {
    /// Goal: cached attributes and names are used until a notification drops them, and only those.
    fn notifications(transport) {
        let (watched, seen, _entered) = Watched::new(Duration::from_secs(3600));
        let served = Served::new(watched, options(transport));
        let path = served.path().join("pattern");
        let size = || fs::metadata(&path).unwrap().len();
        let counts = || (seen.lookups.load(SeqCst), seen.getattrs.load(SeqCst));
        let before = size();
        let start = counts();
        seen.size.store(5, SeqCst);
        assert_eq!(size(), before, "cached");
        assert_eq!(counts(), start);

        assert_eq!(served.notifier.inval_inode(PATTERN.0, 0, 0), Ok(Dropped::Done));
        assert_eq!(size(), 5);
        assert_eq!(counts(), (start.0, start.1 + 1), "attributes were asked for, the name was not");

        assert_eq!(served.notifier.inval_entry(ROOT, PATTERN.1), Ok(Dropped::Done));
        assert_eq!(size(), 5);
        // The kernel drops the directory's attributes with the name.
        assert_eq!(counts(), (start.0 + 1, start.1 + 2), "the name was asked for");

        assert_eq!(served.notifier.expire_entry(ROOT, PATTERN.1), Ok(Dropped::Done));
        assert_eq!(size(), 5);
        assert_eq!(counts().0, start.0 + 2);

        // What the kernel never saw is nothing to drop, and it says so.
        assert_eq!(served.notifier.inval_inode(999, 0, 0), Ok(Dropped::Unknown));
        assert_eq!(served.notifier.inval_entry(ROOT, b"unknown"), Ok(Dropped::Unknown));
        assert_eq!(served.notifier.inval_entry(999, PATTERN.1), Ok(Dropped::Unknown));
        assert_eq!(served.notifier.inval_entry(ROOT, &[b'x'; 256]), Err(Errno::ENAMETOOLONG));
        let negotiated = seen.negotiated.lock().unwrap().unwrap();
        let bumped = if negotiated.has_epochs() { Ok(()) } else { Err(Errno::EINVAL) };
        assert_eq!(served.notifier.inc_epoch(), bumped);
        let notifier = served.notifier.clone();
        unmount(served.path(), false, false).unwrap();
        served.ended();
        assert_eq!(notifier.inval_inode(PATTERN.0, 0, 0), Err(Errno::ENOTCONN));
    }
}

on_both! {
    /// Goal: a deleted name is gone from the cache.
    fn deletion(transport) {
        let (watched, seen, _entered) = Watched::new(Duration::from_secs(3600));
        let served = Served::new(watched, options(transport));
        let path = served.path().join("pattern");
        fs::metadata(&path).unwrap();
        let lookups = seen.lookups.load(SeqCst);
        served.notifier.delete(ROOT, PATTERN.0, PATTERN.1).unwrap();
        fs::metadata(&path).unwrap();
        assert_eq!(seen.lookups.load(SeqCst), lookups + 1);
    }
}

on_both! {
    /// Goal: a kernel whose pages were dropped while it asked for attributes does not believe the size that it is answered
    /// (the program that asked sees it all the same); told of the size beside the answer, it does. What it is told so makes
    /// no file shorter.
    fn sizes_that_are_not_believed(transport) {
        let (watched, seen, _entered) = Watched::new(Duration::ZERO);
        seen.size.store(100, SeqCst);
        let served = Served::new(watched, options(transport));
        let mut file = fs::File::open(served.path().join("pattern")).unwrap();
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 100);
        seen.size.store(6_000, SeqCst);
        *seen.drops.lock().unwrap() = Some((served.notifier.clone(), false));
        assert_eq!(file.metadata().unwrap().len(), 6_000);
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 100, "dropped by a drop");
        seen.drops.lock().unwrap().as_mut().unwrap().1 = true;
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 6_000);
        *seen.drops.lock().unwrap() = None;
        served.notifier.lengthen_inode(PATTERN.0, 10).unwrap();
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 6_000);
        assert_eq!(served.notifier.lengthen_inode(999, 10), Ok(()));
    }
}

//! Names and data through the mount.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use skep_fuse::empty::{EmptyConfig, EmptyMount};
use skep_fuse::{InitFlags, OpenFlags, Transport, unmount};

use crate::served::{Served, options};
use crate::watched::{Watched, pattern};

fn empty(transport: Transport, valid: Duration) -> Served {
    Served::new(EmptyMount::new(EmptyConfig::valid_for(valid)), options(transport))
}

fn names_life(transport: Transport, valid: Duration) {
    let served = empty(transport, valid);
    let root = served.path();
    let file = root.join("file");
    fs::write(&file, b"content").unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), 7);
    fs::hard_link(&file, root.join("other")).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
    symlink("file", root.join("link")).unwrap();
    assert_eq!(fs::read_link(root.join("link")).unwrap().to_str(), Some("file"));
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::rename(root.join("a/b"), root.join("moved")).unwrap();
    assert!(root.join("moved/c").is_dir());
    assert_eq!(
        fs::rename(root.join("moved"), root.join("moved/c/x")).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(fs::remove_dir(root.join("moved")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs::rename(root.join("other"), &file).unwrap();
    let handle = fs::File::open(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(
        fs::metadata(root.join("other")).unwrap().nlink(),
        1,
        "rename onto another name of itself does nothing"
    );
    assert_eq!(handle.metadata().unwrap().len(), 7);
    fs::remove_file(root.join("other")).unwrap();
    assert_eq!(handle.metadata().unwrap().nlink(), 0);
    assert!(!file.exists());
}

on_both! {
    /// Goal: files, directories, links and renames behave as a local file system's, without and with kernel caches.
    fn names(transport) {
        names_life(transport, Duration::ZERO);
        names_life(transport, Duration::from_secs(60));
    }
}

on_both! {
    /// Goal: a listing longer than one reply gives each name once, attributes included.
    fn long_listing(transport) {
        const NAMES: usize = 3000;
        let served = empty(transport, Duration::ZERO);
        for number in 0..NAMES {
            fs::File::create(served.path().join(format!("a-file-with-number-{number}"))).unwrap();
        }
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(served.path()).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().is_file());
            assert!(seen.insert(entry.file_name()));
        }
        assert_eq!(seen.len(), NAMES);
    }
}

on_both! {
    /// Goal: a name of 255 bytes works, one of 300 is ENAMETOOLONG whoever refuses it.
    fn name_lengths(transport) {
        let served = empty(transport, Duration::ZERO);
        fs::write(served.path().join("x".repeat(255)), b"").unwrap();
        for length in [256, 300] {
            let name = served.path().join("x".repeat(length));
            assert_eq!(fs::write(&name, b"").unwrap_err().raw_os_error(), Some(36));
            assert_eq!(fs::metadata(&name).unwrap_err().raw_os_error(), Some(36));
        }
    }
}

on_both! {
    /// Goal: direct reads and writes of 1 MiB arrive as one request with every byte in its place.
    fn large_direct_requests(transport) {
        let (watched, seen, _entered) = Watched::new(Duration::ZERO);
        let served = Served::new(watched, options(transport));
        let mut file = fs::File::options().read(true).write(true).open(served.path().join("pattern")).unwrap();
        // On a page boundary: memory that touches 257 pages is cut, since the kernel allows 256 in a request.
        let mut memory = vec![0; (1 << 20) + 4096];
        let start = memory.as_ptr().align_offset(4096);
        let memory = &mut memory[start..start + (1 << 20)];
        for offset in [0u64, 1 << 20, 12_345] {
            file.read_exact_at(memory, offset).unwrap();
            assert!(memory.iter().zip(offset..).all(|(byte, at)| *byte == pattern(at)), "read at {offset}");
            file.seek(SeekFrom::Start(offset)).unwrap();
            file.write_all(memory).unwrap();
        }
        assert_eq!(seen.largest_read.load(SeqCst), 1 << 20);
        assert_eq!(seen.largest_write.load(SeqCst), 1 << 20);
        let mut small = [0; 3];
        file.seek(SeekFrom::Start(777)).unwrap();
        file.read_exact(&mut small).unwrap();
        assert_eq!(small, [pattern(777), pattern(778), pattern(779)]);
    }
}

on_both! {
    /// Goal: O_DIRECT and O_APPEND of the empty file system keep sizes right.
    fn open_flags(transport) {
        let config = EmptyConfig {
            open_flags: OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES,
            ..EmptyConfig::default()
        };
        let served = Served::new(EmptyMount::new(config), options(transport));
        let path = served.path().join("file");
        let mut file = fs::File::options().create(true).append(true).open(&path).unwrap();
        file.write_all(&[1; 1000]).unwrap();
        file.write_all(&[1; 1000]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 2000);
        /// O_DIRECT on x86-64 and arm64 differ.
        const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let file = fs::File::options().write(true).custom_flags(O_DIRECT).open(&path).unwrap();
        file.write_all_at(&vec![0; 1 << 20], 1 << 20).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 2 << 20);
        fs::File::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
}

on_both! {
    /// Goal: eight threads at once, in one directory, lose nothing, and the mount ends cleanly afterwards.
    fn eight_threads(transport) {
        let served = empty(transport, Duration::ZERO);
        let root = served.path();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for number in 0..300 {
                        let path = root.join(format!("{thread}-{number}"));
                        fs::write(&path, vec![0; number]).unwrap();
                        assert_eq!(fs::metadata(&path).unwrap().len(), number as u64);
                        if number % 2 == 0 {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(root).unwrap().count(), 8 * 150);
        unmount(root, false, false).unwrap();
        assert_eq!(served.ended().0, skep_fuse::Ending::Unmounted);
    }
}

on_both! {
    /// Goal: the file system learns what this kernel granted; what it lacks is named and nothing needed is missing.
    fn negotiation(transport) {
        let (watched, seen, _entered) = Watched::new(Duration::ZERO);
        let mut options = options(transport);
        options.init.wanted = InitFlags::DEFAULT | InitFlags(1 << 63);
        let served = Served::new(watched, options);
        fs::metadata(served.path()).unwrap();
        let negotiated = seen.negotiated.lock().unwrap().expect("init was called");
        assert!(negotiated.minor >= 36);
        assert_eq!(negotiated.max_write, 1 << 20);
        assert!(negotiated.granted.contains(InitFlags::REQUIRED | InitFlags::PARALLEL_DIROPS));
        assert!(!negotiated.granted.contains(InitFlags(1 << 63)));
        assert!(negotiated.losses().all(|name| ["DIRECT_IO_ALLOW_MMAP", "HAS_EXPIRE_ONLY"].contains(&name)));
        let rings = negotiated.granted.contains(InitFlags::OVER_IO_URING);
        assert_eq!(rings, transport == Transport::Uring);
    }
}

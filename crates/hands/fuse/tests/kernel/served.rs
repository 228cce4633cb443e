//! A file system mounted in this process for the length of a test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use skep_fuse::{Ending, Fuse, FuseOptions, Mount, MountError, MountOptions, Notifier, Transport, unmount};

static NEXT: AtomicU32 = AtomicU32::new(0);

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Default options on a transport; switches the kernel's part of it on.
pub fn options(transport: Transport) -> FuseOptions {
    if transport != Transport::Dev {
        let state = std::fs::read_to_string(PARAMETER).expect("FUSE over io_uring needs Linux 6.14");
        if state.trim() != "Y" {
            std::fs::write(PARAMETER, "Y").expect("switching FUSE over io_uring on needs root");
            eprintln!("{PARAMETER} was switched on");
        }
    }
    FuseOptions { transport, ..FuseOptions::default() }
}

/// A directory of its own under the system's temporary one, removed when dropped.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("skep-fuse-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh directory for the mount");
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Also after a failed test: whatever is still mounted here goes first.
        while unmount(&self.0, true, true).is_ok() {}
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A mount served by a thread of this process.
pub struct Served {
    pub notifier: Notifier,
    thread: Option<JoinHandle<Result<Ending, MountError>>>,
    directory: Directory,
}

impl Served {
    pub fn new<M: Mount + Send + 'static>(mount: M, options: FuseOptions) -> Served {
        Served::on(Directory::new(), mount, options)
    }

    pub fn on<M: Mount + Send + 'static>(directory: Directory, mount: M, options: FuseOptions) -> Served {
        let device = Fuse::mount(&MountOptions::new(directory.path()), options)
            .expect("these tests need /dev/fuse and the right to mount");
        let notifier = device.notifier();
        let thread = Some(std::thread::spawn(move || device.run(&mount)));
        Served { notifier, thread, directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Waits for `run` to end in a panic.
    pub fn panicked(mut self) -> Directory {
        assert!(self.thread.take().expect("ended once").join().is_err());
        std::mem::replace(&mut self.directory, Directory::new())
    }

    /// Waits for the end of `run`.
    pub fn ended(mut self) -> (Ending, Directory) {
        let ending = self.thread.take().expect("ended once").join().expect("no panic").expect("no error");
        let directory = std::mem::replace(&mut self.directory, Directory::new());
        (ending, directory)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        while unmount(self.path(), true, true).is_ok() {}
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.expect("no panic").expect("no error");
            }
        }
    }
}

/// Lines of the mount table that name `path`.
pub fn mounts_on(path: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let path = path.to_str().expect("text");
    table.lines().filter(|line| line.split(' ').nth(4) == Some(path)).count()
}

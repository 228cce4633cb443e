//! Which transport it becomes, and what is said of it.

use std::fs;
use std::time::Duration;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::UnshareFlags;
use skep_fuse::{Fuse, MountError, MountOptions, Serving, Transport, unmount};

use crate::served::{Directory, Served, options};
use crate::watched::Watched;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Where this is called, the parameter seems to be off: other tests need it on.
#[allow(unsafe_code)] // rustix calls it unsafe because of threads that share descriptors, which is not asked for
fn switched_off(directory: &Directory) {
    // SAFETY: a mount namespace of its own for this thread; no descriptor table is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.expect("root");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    let no = directory.path().join("no");
    fs::write(&no, "N\n").unwrap();
    mount_bind(&no, PARAMETER).unwrap();
}

/// Goal: without io_uring `auto` serves through the device and says why and what to do; `uring` refuses.
#[test]
fn switched_off_rings() {
    std::thread::spawn(|| {
        let directory = Directory::new();
        switched_off(&directory);
        let (watched, seen, _entered) = Watched::new(Duration::ZERO);
        let wish = skep_fuse::FuseOptions::default();
        assert_eq!(wish.transport, Transport::Auto);
        let served = Served::new(watched, wish);
        assert!(fs::metadata(served.path().join("pattern")).unwrap().is_file());
        let serving = seen.serving.lock().unwrap().clone().unwrap();
        let Serving::Dev { instead: Some(why) } = &serving else { panic!("{serving:?}") };
        assert!(why.contains(PARAMETER) && why.contains("echo Y"), "{why}");
        unmount(served.path(), false, false).unwrap();
        served.ended();

        let (watched, seen, _entered) = Watched::new(Duration::ZERO);
        let wish = skep_fuse::FuseOptions { transport: Transport::Uring, ..wish };
        let target = Directory::new();
        let refused = Fuse::mount(&MountOptions::new(target.path()), wish).unwrap().run(&watched);
        assert!(matches!(&refused, Err(MountError::NoRing(why)) if why.contains("echo Y")), "{refused:?}");
        assert!(seen.negotiated.lock().unwrap().is_none());
        assert_eq!(crate::served::mounts_on(target.path()), 0);
        fs::remove_file(directory.path().join("no")).unwrap();
    })
    .join()
    .unwrap();
}

/// Goal: where it can be had, `auto` is io_uring, with a queue for each CPU.
#[test]
fn automatic() {
    let (watched, seen, _entered) = Watched::new(Duration::ZERO);
    let served = Served::new(watched, options(Transport::Auto));
    assert!(fs::metadata(served.path().join("pattern")).unwrap().is_file());
    // It is told when all queues are up; the first one serves already.
    let start = std::time::Instant::now();
    let serving = loop {
        if let Some(serving) = seen.serving.lock().unwrap().clone() {
            break serving;
        }
        assert!(start.elapsed() < Duration::from_secs(120));
        std::thread::yield_now();
    };
    let Serving::Uring { queues, depth, threads } = serving else { panic!("{serving:?}") };
    assert!(queues >= threads && threads >= 1 && depth == 32);
    assert!(serving.to_string().contains("io_uring"));
    drop(served);
}

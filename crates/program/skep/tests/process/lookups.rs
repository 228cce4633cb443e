//! How many names a mount is asked for by loads that go by full path, and by those that hold a directory open. The mount
//! lets the kernel keep no name here, so each is asked for.

use super::http::lookups;
use super::{plan, start};
use skep_rig::Cluster;
use std::fs;
use std::path::PathBuf;

/// Files of each load: so many that what a load does besides is little.
const ITEMS: usize = 200;

/// Names that are asked for meanwhile.
fn asked(cluster: &Cluster, work: impl FnOnce()) -> f64 {
    let before = lookups(cluster);
    work();
    lookups(cluster) - before
}

/// Names that the calls of mdtest ask for in a directory as deep as that of the loads: create, stat, open, unlink.
fn of_calls(cluster: &Cluster, deep: &str) -> [f64; 4] {
    let tree = cluster.mount().join(deep).join("plain/tree");
    fs::create_dir_all(&tree).unwrap();
    let paths: Vec<PathBuf> = (0..ITEMS).map(|item| tree.join(format!("f{item}"))).collect();
    let each = |call: &dyn Fn(&PathBuf)| asked(cluster, || paths.iter().for_each(call));
    [
        each(&|path| {
            fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        }),
        each(&|path| assert!(fs::symlink_metadata(path).unwrap().is_file())),
        each(&|path| drop(fs::File::open(path).unwrap())),
        each(&|path| fs::remove_file(path).unwrap()),
    ]
}

/// Goal: mdtest's line asks a network file system for as many names as mdtest's own calls do, in every phase; `bench meta`
/// asks for one at each stat and unlink, and does the same as mdtest when it is told to go by the path.
#[test]
fn full_paths_are_looked_up() {
    let cluster = start(plan().with("SKEP_MOUNT_KERNEL_ANSWERS", "off"));
    let deep = "a/b/c";
    let at = cluster.mount().join(deep);
    fs::create_dir_all(&at).unwrap();
    let (at, items) = (at.to_string_lossy().into_owned(), ITEMS.to_string());
    let plain = of_calls(&cluster, deep);
    assert!(plain[1] > 4.0 * ITEMS as f64, "the kernel keeps names: {plain:?}");

    let mdtest = |phase: &str| {
        asked(&cluster, || {
            let words = ["bench", "mdtest", "--", phase, "-F", "-u", "-n", &items, "-d", &at];
            cluster.run(words).map(|output| assert!(output.status.success(), "{output:?}")).unwrap();
        })
    };
    let like = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.25;
    for (phase, expected) in ["-C", "-T", "-E", "-r"].into_iter().zip(plain) {
        let found = mdtest(phase);
        assert!(like(found, expected), "mdtest {phase}: {found} names, its calls {expected}");
    }

    let meta = |more: &[&str]| {
        asked(&cluster, || {
            let words = [&["bench", "meta", "-n", &items, &at], more].concat();
            cluster.run(&words).map(|output| assert!(output.status.success(), "{output:?}")).unwrap();
        })
    };
    meta(&["--phases", "create", "--keep"]);
    let again = ["--existing", "--keep", "--phases", "stat"];
    let (held, by_path) = (meta(&again), meta(&[&again[..], &["--lookup", "path"]].concat()));
    assert!(held < plain[1] / 2.0, "by the directory: {held} names, by path {}", plain[1]);
    assert!(like(by_path, plain[1]), "by path: {by_path} names, the calls {}", plain[1]);
    let removed = meta(&["--existing", "--phases", "remove"]);
    assert!(removed < plain[3] / 2.0, "by the directory: {removed} names, by path {}", plain[3]);
}

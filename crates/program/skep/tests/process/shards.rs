//! Several metadata shards.

use super::{bytes, plan, start};
use rustix::io::Errno;
use skep_rig::Cluster;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Home shard of an inode, as its number says.
fn shard_of(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino() >> 48
}

fn create_on(cluster: &Cluster, path: &Path, shard: u64) -> Result<String, String> {
    cluster.must(["dir", "create", path.to_str().unwrap(), "--shard", &shard.to_string()])
}

/// Goal: a subtree put on a shard stays there, files and directories below it too; what works across
/// shards works, rename and link give EXDEV and change nothing.
#[test]
fn a_subtree_on_another_shard() {
    let cluster = start(plan());
    let mount = cluster.mount();
    for shard in 0..4 {
        let top = mount.join(format!("s{shard}"));
        create_on(&cluster, &top, shard).unwrap();
        assert_eq!(shard_of(&top), shard);
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/b/small"), b"small").unwrap();
        fs::write(top.join("a/b/large"), bytes(1, 2 << 20)).unwrap();
        assert_eq!(shard_of(&top.join("a/b/large")), shard);
        assert!(fs::read(top.join("a/b/large")).unwrap() == bytes(1, 2 << 20));
    }
    let listed = fs::read_dir(mount).unwrap().count();
    assert_eq!((listed, fs::metadata(mount).unwrap().nlink()), (4, 2 + 4));
    let crosses = |result: std::io::Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::XDEV), "{error}");
    };
    let (here, there) = (mount.join("s1/a/b/small"), mount.join("s2/a/b/small-too"));
    crosses(fs::rename(&here, &there));
    crosses(fs::hard_link(&here, &there));
    crosses(fs::rename(mount.join("s1/a"), mount.join("s2/moved")));
    assert!(here.exists() && !there.exists());
    // The entry of an off-shard directory may get another name in its own directory.
    fs::rename(mount.join("s3"), mount.join("renamed")).unwrap();
    assert_eq!(fs::read(mount.join("renamed/a/b/small")).unwrap(), b"small");
    assert_eq!(
        fs::remove_dir(mount.join("renamed")).unwrap_err().kind(),
        std::io::ErrorKind::DirectoryNotEmpty
    );
    let said = create_on(&cluster, &mount.join("nowhere"), 4).unwrap_err();
    assert!(said.contains('4'), "{said}");
    let said = create_on(&cluster, &mount.join("s1"), 2).unwrap_err();
    assert!(said.contains("exist") || said.contains("EEXIST"), "{said}");
    for name in ["s0", "s1", "s2", "renamed"] {
        fs::remove_dir_all(mount.join(name)).unwrap();
    }
    assert_eq!((fs::read_dir(mount).unwrap().count(), fs::metadata(mount).unwrap().nlink()), (0, 2));
    super::deletion::nothing_left(&cluster);
}

/// Goal: an ordinary user and a client's key cannot put subtrees on shards.
#[test]
fn only_the_administrator_chooses_shards() {
    let cluster = start(plan());
    let path = cluster.mount().join("d");
    let client = cluster.dir().join("client.key");
    let words = ["dir", "create", path.to_str().unwrap(), "--shard", "1", "--key", client.to_str().unwrap()];
    let said = super::refusal(&cluster, &words);
    assert!(said.contains("cluster key"), "{said}");
    assert!(!path.exists());
}

/// Kills while directories are made and removed.
const KILLS: u32 = 12;
/// Directories in play.
const DIRECTORIES: u32 = 5;

/// Goal: kill -9 of the metadata server at any moment while subtrees are made on other shards and
/// removed: each is there whole or not at all, and can be used or made again.
#[test]
fn subtrees_are_made_and_removed_whole() {
    let cluster = start(plan());
    let mount = cluster.mount();
    let mut rng = skep_model::Rng::new(4);
    for kill in 0..KILLS {
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                for number in 0..DIRECTORIES {
                    let path = mount.join(format!("d{number}"));
                    if path.exists() {
                        fs::remove_dir(&path).map_err(|e| e.to_string())?;
                    } else {
                        match create_on(&cluster, &path, u64::from(1 + (kill + number) % 3)) {
                            Ok(_) => {}
                            // Its answer was lost with the server; whether it happened shows below.
                            Err(said) if said.contains("panicked") => return Err(said),
                            Err(_) => {}
                        }
                    }
                }
                Ok(())
            });
            // A moment of the work, by chance; nothing depends on which.
            std::thread::sleep(std::time::Duration::from_millis(rng.below(120)));
            cluster.one("metad").unwrap().kill().unwrap();
            cluster.up().unwrap();
            work.join().unwrap().unwrap();
        });
        whole(mount, kill);
    }
    for entry in fs::read_dir(mount).unwrap() {
        fs::remove_dir(entry.unwrap().path()).unwrap();
    }
    assert_eq!(fs::metadata(mount).unwrap().nlink(), 2);
}

/// Every directory that is listed works, every other one is wholly absent; the root counts them.
fn whole(mount: &Path, kill: u32) {
    let mut there = 0;
    for number in 0..DIRECTORIES {
        let path = mount.join(format!("d{number}"));
        // Asked first: this waits for what was begun and whose answer was lost; a list shows what is there.
        let exists = path.exists();
        let listed = fs::read_dir(mount).unwrap().any(|entry| entry.unwrap().path() == path);
        assert_eq!(exists, listed, "kill {kill}, {}", path.display());
        if listed {
            there += 1;
            assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
            fs::write(path.join("f"), b"1").unwrap();
            fs::remove_file(path.join("f")).unwrap();
        }
    }
    assert_eq!(fs::metadata(mount).unwrap().nlink(), 2 + there, "kill {kill}");
}

//! POSIX ACLs, and extended attributes of the other namespaces.

use super::{plan, start};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Ordinary users.
const ALICE: u32 = 61_001;
const BOB: u32 = 61_002;

fn run(words: &[&str], path: &Path) -> Result<String, String> {
    let mut command = Command::new(words[0]);
    let output = command.args(&words[1..]).arg(path).output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e} (apt-get install acl util-linux)", words[0]));
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn as_user(user: u32, words: &[&str], path: &Path) -> Result<String, String> {
    let ids = [format!("--reuid={user}"), format!("--regid={user}")];
    let mut all = vec!["setpriv", &ids[0], &ids[1], "--clear-groups"];
    all.extend(words);
    run(&all, path)
}

fn acl(path: &Path) -> String {
    let text = run(&["getfacl", "--numeric", "--omit-header", "--absolute-names"], path).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Goal: an entry for a user lets this user in and nobody else, on each mount; the mask limits it; chmod
/// moves the mask; without entries only the mode is left.
#[test]
fn entries_are_enforced() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &["allow_other=true"]).unwrap();
    fs::set_permissions(cluster.mount(), fs::Permissions::from_mode(0o755)).unwrap();
    let (path, there) = (cluster.mount().join("secret"), second.join("secret"));
    fs::write(&path, b"text").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(as_user(ALICE, &["cat"], &there).is_err());
    run(&["setfacl", "-m", &format!("u:{ALICE}:r")], &path).unwrap();
    assert_eq!(as_user(ALICE, &["cat"], &there), Ok("text".to_owned()));
    assert_eq!(as_user(ALICE, &["cat"], &path), Ok("text".to_owned()));
    assert!(as_user(BOB, &["cat"], &there).is_err());
    assert!(as_user(ALICE, &["truncate", "-s", "0"], &there).is_err());
    assert_eq!(acl(&there), format!("user::rw- user:{ALICE}:r-- group::--- mask::r-- other::---"));
    assert_eq!(mode(&there), 0o640, "the mask is the group's part of the mode");
    fs::set_permissions(&there, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(as_user(ALICE, &["cat"], &path).is_err(), "chmod took the mask");
    assert!(acl(&path).contains("mask::---"));
    run(&["setfacl", "-b"], &path).unwrap();
    assert_eq!(acl(&there), "user::rw- group::--- other::---");
    assert!(rustix::fs::getxattr_query(&there, "system.posix_acl_access").is_err());
}

/// Goal: what is made in a directory with a default ACL inherits it, whatever the umask; elsewhere the
/// umask counts.
#[test]
fn defaults_are_inherited() {
    let cluster = start(plan());
    let directory = cluster.mount().join("d");
    fs::create_dir(&directory).unwrap();
    run(&["setfacl", "-d", "-m", &format!("u::rwx,g::r-x,o::---,u:{ALICE}:rwx")], &directory).unwrap();
    let make = |script: &str, at: &Path| {
        let output = Command::new("sh").args(["-c", script]).current_dir(at).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    make("umask 077; echo text > file; mkdir below; mkdir below/deep; echo x > below/deep/file", &directory);
    let file =
        format!("user::rw- user:{ALICE}:rwx #effective:rw- group::r-x #effective:r-- mask::rw- other::---");
    assert_eq!(acl(&directory.join("file")), file);
    assert_eq!(mode(&directory.join("file")), 0o660);
    assert_eq!(acl(&directory.join("below/deep/file")), file);
    assert!(acl(&directory.join("below")).contains(&format!("default:user:{ALICE}:rwx")));
    assert_eq!(mode(&directory.join("below")), 0o770);
    make("umask 027; echo text > plain; mkdir plaindir", cluster.mount());
    assert_eq!(
        (mode(&cluster.mount().join("plain")), mode(&cluster.mount().join("plaindir"))),
        (0o640, 0o750)
    );
    assert!(run(&["setfacl", "-d", "-m", "u::rwx"], &directory.join("file")).is_err());
}

/// Goal: trusted. and security. attributes are kept, only privileged users may write the first, user. is
/// for files and directories, skep.layout says what it is and is set by owner and root only.
#[test]
fn namespaces() {
    let cluster = start(plan());
    fs::set_permissions(cluster.mount(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = cluster.mount().join("f");
    fs::write(&path, b"").unwrap();
    for name in ["trusted.skep", "security.skep", "user.skep"] {
        rustix::fs::setxattr(&path, name, b"value", XattrFlags::empty()).unwrap();
        let mut value = [0; 10];
        assert_eq!(rustix::fs::getxattr(&path, name, &mut value[..]).unwrap(), 5);
    }
    assert_eq!(rustix::fs::setxattr(&path, "other.x", b"1", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    let set = |value: &str| rustix::fs::setxattr(&path, "skep.layout", value.as_bytes(), XattrFlags::empty());
    let shown = || {
        let mut value = [0; 200];
        let len = rustix::fs::getxattr(&path, "skep.layout", &mut value[..]).unwrap();
        String::from_utf8(value[..len].to_vec()).unwrap()
    };
    assert!(shown().starts_with("chunk=1M targets=auto pool=default inline=8K"), "{}", shown());
    assert_eq!(set("chunk=7"), Err(Errno::INVAL));
    set("chunk=256K targets=2 inline=0").unwrap();
    assert!(shown().starts_with("chunk=256K targets=2 pool=default inline=0"), "{}", shown());
    fs::write(&path, b"in chunks").unwrap();
    assert!(set("targets=1").is_err(), "it has chunks by now");
    let layout = ["setfattr", "-n", "skep.layout", "-v", "targets=1"];
    assert!(as_user(ALICE, &layout, &path).is_err());
    let mut names = vec![0; 1_000];
    let len = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
    let names = String::from_utf8_lossy(&names[..len]).into_owned();
    assert!(names.contains("trusted.skep") && !names.contains("skep.layout"), "{names}");
}

/// Goal: an ordinary user without the key learns of files and space through the mount, and of no file that
/// the user cannot reach.
#[test]
fn users_without_the_key() {
    let cluster = start(plan());
    fs::set_permissions(cluster.mount(), fs::Permissions::from_mode(0o755)).unwrap();
    let (open, hidden) = (cluster.mount().join("open"), cluster.mount().join("hidden"));
    fs::write(&open, vec![1; 3 << 20]).unwrap();
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join("file"), b"x").unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
    let skep = env!("CARGO_BIN_EXE_skep");
    let told = as_user(ALICE, &[skep, "entry", "info", "--output", "json"], &open).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let info = if told.is_array() { &told[0] } else { &told };
    assert_eq!((&info["size"], &info["path"]), (&(3 << 20).into(), &open.to_str().unwrap().into()));
    assert!(info["extents"][0]["stripes"][0]["targets"][0]["alias"].is_string(), "{info}");
    let text = as_user(ALICE, &[skep, "entry", "info"], &open).unwrap();
    assert!(text.contains("3.00 MiB"), "{text}");
    let space = as_user(ALICE, &[skep, "df"], cluster.mount()).unwrap();
    assert!(space.contains("total") && space.contains("target-101"), "{space}");
    assert!(as_user(ALICE, &[skep, "entry", "info"], &hidden.join("file")).is_err());
}

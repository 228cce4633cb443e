//! ACLs through the whole server: setting, chmod, inheritance, capabilities.

use super::*;
use crate::acl::{ACCESS, DEFAULT};
use skep_types::codec::Bytes;

/// `tag, permissions, id` of each entry.
fn value(entries: &[(u16, u16, u32)]) -> Bytes {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Bytes(value)
}

const NOBODY: u32 = u32::MAX;

/// rwx for the owner and user 5, r-x for the group, mask rwx, nothing for others.
fn named() -> Bytes {
    value(&[(1, 7, NOBODY), (2, 7, 5), (4, 5, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)])
}

fn set(bed: &mut Bed, ino: Ino, name: &[u8], value: Bytes) -> Result<(), Status> {
    let (name, kill_sgid) = (Bytes(name.to_vec()), true);
    bed.call(ME, SetXattr { ino, name, value, create: false, replace: false, kill_sgid }).map(|_| ())
}

fn get(bed: &mut Bed, ino: Ino, name: &[u8]) -> Result<Bytes, Status> {
    bed.call(ME, GetXattr { ino, name: Bytes(name.to_vec()) }).map(|reply| reply.data)
}

fn mode(bed: &mut Bed, ino: Ino) -> u32 {
    bed.attr(ino).unwrap().mode
}

fn chmod(bed: &mut Bed, ino: Ino, mode: u32) {
    bed.call(ME, ChangeAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }).unwrap();
}

/// Goal: an access ACL sets the mode (and clears sgid for a caller outside the group), chmod sets its mask,
/// one that the mode says all of is not kept; nonsense is refused.
#[test]
fn access_acls_and_modes_agree() {
    let mut bed = Bed::new();
    let file = bed.create(ME, Ino::ROOT, "f");
    chmod(&mut bed, file, 0o6755);
    set(&mut bed, file, ACCESS, named()).unwrap();
    assert_eq!(mode(&mut bed, file), 0o4770);
    bed.check();
    chmod(&mut bed, file, 0o640);
    let masked = value(&[(1, 6, NOBODY), (2, 7, 5), (4, 5, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)]);
    assert_eq!(get(&mut bed, file, ACCESS), Ok(masked));
    bed.check();
    let minimal = value(&[(1, 6, NOBODY), (4, 4, NOBODY), (0x20, 4, NOBODY)]);
    set(&mut bed, file, ACCESS, minimal).unwrap();
    assert_eq!((mode(&mut bed, file), get(&mut bed, file, ACCESS)), (0o644, Err(errno(Errno::ENODATA))));
    set(&mut bed, file, ACCESS, named()).unwrap();
    set(&mut bed, file, ACCESS, value(&[])).unwrap();
    assert_eq!((mode(&mut bed, file), get(&mut bed, file, ACCESS)), (0o770, Err(errno(Errno::ENODATA))));
    assert_eq!(set(&mut bed, file, ACCESS, value(&[(1, 7, NOBODY)])), Err(errno(Errno::EINVAL)));
    assert_eq!(set(&mut bed, file, DEFAULT, named()), Err(errno(Errno::EACCES)));
    let names = bed.call(ME, ListXattr { ino: file }).unwrap().data.0;
    assert!(names.is_empty());
    bed.check();
}

/// Goal: below a default ACL everything but a symbolic link gets it, cut to the mode asked for; the umask
/// counts only where there is none; directories hand it on, over shards and by O_TMPFILE too.
#[test]
fn default_acls_are_inherited() {
    let mut bed = Bed::with(Config::default(), 2);
    let dir = bed.mkdir(Ino::ROOT, "d");
    let ask = |mode| Create { mode, umask: 0o077, ..create(dir, "before") };
    let made = bed.call(ME, ask(0o666)).unwrap();
    assert_eq!(made.attr.mode, 0o600, "the umask");
    set(&mut bed, dir, DEFAULT, named()).unwrap();
    assert_eq!(mode(&mut bed, dir), 0o755, "a default ACL is not the directory's own");
    let made = bed.call(ME, Create { name: name("f"), ..ask(0o644) }).unwrap();
    assert_eq!(made.attr.mode, 0o640, "no umask");
    let own = value(&[(1, 6, NOBODY), (2, 7, 5), (4, 5, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)]);
    assert_eq!(get(&mut bed, made.attr.ino, ACCESS), Ok(own));
    let sub = bed.mkdir(dir, "s");
    assert_eq!((get(&mut bed, sub, DEFAULT), mode(&mut bed, sub)), (Ok(named()), 0o750));
    assert!(get(&mut bed, sub, ACCESS).is_ok());
    let (open, uid, gid) = (OpenMode::Write, 1, 1);
    let temp = CreateTemp { parent: sub, mode: 0o600, umask: 0o777, uid, gid, open, open_seq: 1 };
    let temp = bed.call(ME, temp).unwrap();
    assert_eq!((temp.attr.mode, get(&mut bed, temp.attr.ino, ACCESS).is_ok()), (0o600, true));
    let target = Bytes(b"x".to_vec());
    let link = bed.call(ME, MakeSymlink { parent: dir, name: name("l"), target, uid, gid }).unwrap();
    assert_eq!((link.attr.unwrap().mode, get(&mut bed, link.ino, ACCESS).is_ok()), (0o777, false));
    let on = MakeDirOn { parent: dir, name: name("far"), mode: 0o755, umask: 0, uid, gid, on: ShardId(1) };
    let far = bed.admin(on).unwrap().ino;
    assert_eq!((far.shard(), get(&mut bed, far, DEFAULT)), (ShardId(1), Ok(named())));
    assert_eq!(mode(&mut bed, far), 0o750);
    bed.check();
}

/// Goal: whatever changes the content or the owner of a file takes `security.capability` along, and nothing
/// else does.
#[test]
fn capabilities_go_with_changes() {
    const CAPABILITY: &[u8] = b"security.capability";
    let mut bed = Bed::new();
    let (grown, layout) = bed.grown("g", 100);
    let file = bed.create(ME, Ino::ROOT, "f");
    for ino in [file, grown] {
        let has = |bed: &mut Bed| get(bed, ino, CAPABILITY).is_ok();
        let give = |bed: &mut Bed| set(bed, ino, CAPABILITY, Bytes(vec![1; 20])).unwrap();
        give(&mut bed);
        chmod(&mut bed, ino, 0o711);
        assert!(has(&mut bed));
        bed.truncate(ME, ino, 5).unwrap();
        assert!(!has(&mut bed));
        give(&mut bed);
        let owner = SetAttr { uid: Some(3), ..SetAttr::default() };
        bed.call(ME, ChangeAttr { ino, set: owner }).unwrap();
        assert!(!has(&mut bed));
        give(&mut bed);
        let mtime = bed.wall();
        let (generation, size, blocks) = (layout.generation, 7, None);
        match ino == file {
            true => drop(bed.write(ino, 0, b"x").unwrap()),
            false => drop(
                bed.call(
                    ME,
                    Commit {
                        ino,
                        generation,
                        size,
                        mtime,
                        blocks,
                        kill_suidgid: false,
                        cuts: u64::MAX,
                        time_sets: 0,
                        held: None,
                    },
                )
                .unwrap(),
            ),
        }
        assert!(!has(&mut bed));
        bed.check();
    }
}

//! The users of the table, and the switch of one thread's credentials to one of them.
//!
//! Linux keeps credentials per thread; libc's wrappers spread a change over the process, the raw calls used
//! here do not. So every case thread changes user on its own, and concurrent cases do not disturb each other.

use crate::errno::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// One user of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Name in the table.
    pub name: &'static str,
    /// Numeric user id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

/// The superuser.
pub const ROOT: User = User { name: "root", uid: 0, gid: 0, groups: &[] };

/// Everybody who appears in the table. `u1` owns what the cases look at.
pub const USERS: &[User] = &[
    ROOT,
    User { name: "u1", uid: 61_001, gid: 61_001, groups: &[] },
    User { name: "u2", uid: 61_002, gid: 61_002, groups: &[] },
    // u3: u1's group is the primary one
    User { name: "u3", uid: 61_003, gid: 61_001, groups: &[] },
    // u4: u1's group is a supplementary one
    User { name: "u4", uid: 61_004, gid: 61_004, groups: &[61_001] },
    // u5: u1 itself, but also a member of group g2
    User { name: "u5", uid: 61_001, gid: 61_001, groups: &[61_002] },
];

impl User {
    /// The user of that name.
    pub fn named(name: &str) -> Option<User> {
        USERS.iter().copied().find(|u| u.name == name)
    }
}

/// Numeric id of `root`, `u1`, `g1`, `keep` (-1), or a plain number.
pub fn id(text: &str) -> Option<u32> {
    match text {
        "keep" => Some(u32::MAX),
        "root" => Some(0),
        _ => {
            if let Some(digits) = text.strip_prefix('u').or_else(|| text.strip_prefix('g')) {
                digits.parse::<u32>().ok().filter(|n| (1..100).contains(n)).map(|n| 61_000 + n)
            } else {
                text.parse().ok()
            }
        }
    }
}

/// Makes the calling thread act as `user`. Saved user id stays 0, so that [`restore`] works.
pub fn assume(user: User) -> Result<(), Errno> {
    let groups: Vec<Gid> = user.groups.iter().map(|&g| Gid::from_raw(g)).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&groups)
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, Uid::ROOT))
        .map_err(|e| Errno(e.raw_os_error()))
}

/// Makes the calling thread root again.
pub fn restore() -> Result<(), Errno> {
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
        .and_then(|()| set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT))
        .and_then(|()| set_thread_groups(&[]))
        .map_err(|e| Errno(e.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the ids used in the table resolve, and nonsense does not.
    #[test]
    fn ids_resolve() {
        assert_eq!(id("u1"), Some(61_001));
        assert_eq!(id("g2"), Some(61_002));
        assert_eq!(id("keep"), Some(u32::MAX));
        assert_eq!(id("root"), Some(0));
        assert_eq!(id("7"), Some(7));
        assert_eq!(id("ux"), None);
        assert!(User::named("u3").is_some_and(|u| u.gid == 61_001));
    }
}

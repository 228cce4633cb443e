//! POSIX ACLs in the form in which Linux hands them on as extended attributes: `u32 version`, then
//! `u16 tag, u16 permissions, u32 id` for each entry, little-endian.
//!
//! The rules are those of POSIX.1e as Linux has them. Who may do what is decided by the kernels of
//! the clients; here the ACLs are kept in agreement with the mode, and inherited.

use alloc::vec::Vec;
use skep_types::{Errno, Mode};

/// Extended attribute that holds the access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Extended attribute that holds the ACL that new entries of a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The only version there is.
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// Bytes of one entry.
const ENTRY_LEN: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A well-formed ACL: owner, users, owning group, groups, mask (when there are users or groups), others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Reads the value of an extended attribute. `None`: a header alone, which takes the ACL away.
    pub fn parse(value: &[u8]) -> Result<Option<Self>, Errno> {
        let (version, rest) = value.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        let (entries, rest) = rest.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            return Err(Errno::EINVAL);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let read = |raw: &[u8; ENTRY_LEN]| Entry {
            tag: u16::from_le_bytes([raw[0], raw[1]]),
            perm: u16::from_le_bytes([raw[2], raw[3]]),
            id: u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]),
        };
        let acl = Self { entries: entries.iter().map(read).collect() };
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Errno::EINVAL) }
    }

    /// The order that Linux demands; a mask where it is needed.
    fn is_valid(&self) -> bool {
        let mut expected = USER_OBJ;
        let mut needs_mask = false;
        for entry in &self.entries {
            if entry.perm & !7 != 0 {
                return false;
            }
            expected = match (entry.tag, expected) {
                (USER_OBJ, USER_OBJ) => USER,
                (USER, USER) => {
                    needs_mask = true;
                    USER
                }
                (GROUP_OBJ, USER) => GROUP,
                (GROUP, GROUP) => {
                    needs_mask = true;
                    GROUP
                }
                (MASK, GROUP) => OTHER,
                (OTHER, OTHER) => 0,
                (OTHER, GROUP) if !needs_mask => 0,
                _ => return false,
            };
        }
        expected == 0
    }

    /// As the value of an extended attribute.
    pub fn to_value(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(4 + self.entries.len() * ENTRY_LEN);
        value.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.entries {
            value.extend_from_slice(&entry.tag.to_le_bytes());
            value.extend_from_slice(&entry.perm.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    /// The mode says all that it says: it need not be kept.
    pub fn is_minimal(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    fn entry(&self, tag: u16) -> Option<usize> {
        self.entries.iter().position(|entry| entry.tag == tag)
    }

    /// The entry that the group bits of the mode stand for.
    fn group_class(&self) -> Option<usize> {
        self.entry(MASK).or_else(|| self.entry(GROUP_OBJ))
    }

    fn perm(&self, at: Option<usize>) -> u32 {
        at.and_then(|at| self.entries.get(at)).map_or(0, |entry| u32::from(entry.perm))
    }

    /// The nine permission bits of a file that has this ACL.
    pub fn mode(&self) -> Mode {
        let (owner, other) = (self.perm(self.entry(USER_OBJ)), self.perm(self.entry(OTHER)));
        owner << 6 | self.perm(self.group_class()) << 3 | other
    }

    fn set_perm(&mut self, at: Option<usize>, change: impl Fn(u32) -> u32) {
        if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
            entry.perm = (change(u32::from(entry.perm)) & 7) as u16;
        }
    }

    fn each_class(&mut self, mode: Mode, change: impl Fn(u32, u32) -> u32) {
        let places = [(self.entry(USER_OBJ), 6), (self.group_class(), 3), (self.entry(OTHER), 0)];
        for (at, shift) in places {
            self.set_perm(at, |perm| change(perm, mode >> shift));
        }
    }

    /// `chmod`: owner, mask (without one: owning group) and others get the bits of `mode`.
    pub fn chmod(&mut self, mode: Mode) {
        self.each_class(mode, |_, bits| bits);
    }

    /// What a new entry created with `mode` gets from this default ACL: its access ACL (unless the
    /// mode says it all) and its mode.
    pub fn inherit(&self, mode: Mode) -> (Option<Self>, Mode) {
        let mut acl = self.clone();
        acl.each_class(mode, |perm, bits| perm & bits);
        let mode = mode & !0o777 | acl.mode();
        (Some(acl).filter(|acl| !acl.is_minimal()), mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn acl(entries: &[(u16, u16)]) -> Acl {
        Acl { entries: entries.iter().map(|(tag, perm)| Entry { tag: *tag, perm: *perm, id: 1 }).collect() }
    }

    const MINIMAL: [(u16, u16); 3] = [(USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 4)];
    const FULL: [(u16, u16); 6] =
        [(USER_OBJ, 7), (USER, 6), (GROUP_OBJ, 5), (GROUP, 7), (MASK, 6), (OTHER, 1)];

    /// Goal: values read back; a header alone is no ACL; every damaged length, version, bit and
    /// order is refused.
    #[test]
    fn values() {
        for entries in [&MINIMAL[..], &FULL[..]] {
            let acl = acl(entries);
            assert_eq!(Acl::parse(&acl.to_value()), Ok(Some(acl.clone())));
            for len in (0..acl.to_value().len()).filter(|len| *len != 4) {
                assert_eq!(Acl::parse(&acl.to_value()[..len]), Err(Errno::EINVAL), "{len} bytes");
            }
        }
        assert_eq!(Acl::parse(&VERSION.to_le_bytes()), Ok(None));
        assert_eq!(Acl::parse(&3u32.to_le_bytes()), Err(Errno::EOPNOTSUPP));
        let wrong: [&[(u16, u16)]; 8] = [
            &[(USER_OBJ, 8), (GROUP_OBJ, 5), (OTHER, 4)],
            &[(USER_OBJ, 7), (OTHER, 4)],
            &[(GROUP_OBJ, 7), (USER_OBJ, 7), (OTHER, 4)],
            &[(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 5), (OTHER, 4)],
            &[(USER_OBJ, 7), (GROUP_OBJ, 5), (GROUP, 5), (OTHER, 4)],
            &[(USER_OBJ, 7), (USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 4)],
            &[(USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 4), (MASK, 4)],
            &[(USER_OBJ, 7), (GROUP_OBJ, 5), (0x40, 4)],
        ];
        for entries in wrong {
            assert_eq!(Acl::parse(&acl(entries).to_value()), Err(Errno::EINVAL), "{entries:?}");
        }
        let masked = vec![(USER_OBJ, 7), (GROUP_OBJ, 5), (MASK, 7), (OTHER, 4)];
        assert!(Acl::parse(&acl(&masked).to_value()).is_ok(), "a mask that nobody needs is allowed");
    }

    /// Goal: the mode's group bits are the mask's, without one the owning group's.
    #[test]
    fn modes() {
        assert_eq!((acl(&MINIMAL).mode(), acl(&MINIMAL).is_minimal()), (0o754, true));
        assert_eq!((acl(&FULL).mode(), acl(&FULL).is_minimal()), (0o761, false));
        let mut changed = acl(&FULL);
        changed.chmod(0o2640);
        assert_eq!(changed.mode(), 0o640);
        assert_eq!(changed.entries[2].perm, 5, "the owning group keeps its bits behind a mask");
        assert_eq!(changed.entries[4].perm, 4);
        let mut changed = acl(&MINIMAL);
        changed.chmod(0o123);
        assert_eq!((changed.mode(), changed.entries[1].perm), (0o123, 2));
    }

    /// Goal: POSIX.1e, creation: the intersection of the default ACL and the mode asked for, in
    /// owner, mask (or owning group) and others; named entries stay; special bits of the mode stay.
    #[test]
    fn inheritance() {
        let (access, mode) = acl(&FULL).inherit(0o644);
        let access = access.unwrap();
        assert_eq!((mode, access.mode()), (0o640, 0o640));
        let perms: Vec<u16> = access.entries.iter().map(|entry| entry.perm).collect();
        assert_eq!(perms, [6, 6, 5, 7, 4, 0]);
        let (access, mode) = acl(&MINIMAL).inherit(0o4666);
        assert_eq!((access, mode), (None, 0o4644), "what the mode says all of is not kept");
        let (access, mode) = acl(&FULL).inherit(0);
        assert_eq!((access.unwrap().mode(), mode), (0, 0));
    }
}

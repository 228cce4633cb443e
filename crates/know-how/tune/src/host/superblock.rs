//! What XFS and ext4 wrote when they were made: the first bytes of the device tell.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// `xfs` or `ext4`.
    pub kind: &'static str,
    /// Bytes of an inode.
    pub inode_size: u64,
    /// Bytes of a sector as the file system takes them; 0: it does not say.
    pub sector: u64,
    /// Bytes that one drive gets of each stripe (su); 0: not told.
    pub unit: u64,
    /// Bytes of a stripe (su x sw); 0: not told.
    pub width: u64,
}

fn be<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field: [u8; N] = bytes.get(at..at + N)?.try_into().ok()?;
    Some(field.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn le<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field: [u8; N] = bytes.get(at..at + N)?.try_into().ok()?;
    Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

impl Superblock {
    /// From the first bytes of a device.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Self::xfs(bytes).or_else(|| Self::ext4(bytes))
    }

    /// The bytes that `parse` looks at, all others 0: no name, no identity, no content leaves the machine with them.
    pub fn essence(bytes: &[u8]) -> Option<Vec<u8>> {
        let fields: &[(usize, usize)] = match Self::parse(bytes)?.kind {
            "xfs" => &[(0, 8), (102, 4), (184, 8)],
            _ => {
                &[(1024 + 0x18, 4), (1024 + 0x38, 2), (1024 + 0x58, 2), (1024 + 0x164, 2), (1024 + 0x170, 4)]
            }
        };
        let mut kept = vec![0; fields.iter().map(|(at, len)| at + len).max().unwrap_or(0)];
        for (at, len) in fields {
            kept.get_mut(*at..at + len)?.copy_from_slice(bytes.get(*at..at + len)?);
        }
        Some(kept)
    }

    fn xfs(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..4)? != b"XFSB" {
            return None;
        }
        let block = be::<4>(bytes, 4)?;
        Some(Self {
            kind: "xfs",
            sector: be::<2>(bytes, 102)?,
            inode_size: be::<2>(bytes, 104)?,
            unit: be::<4>(bytes, 184)?.checked_mul(block)?,
            width: be::<4>(bytes, 188)?.checked_mul(block)?,
        })
    }

    fn ext4(bytes: &[u8]) -> Option<Self> {
        // The superblock begins at 1024.
        if le::<2>(bytes, 1024 + 0x38)? != 0xef53 {
            return None;
        }
        let shift = le::<4>(bytes, 1024 + 0x18)?;
        let block = 1024u64.checked_shl(u32::try_from(shift).ok()?)?;
        Some(Self {
            kind: "ext4",
            sector: 0,
            inode_size: le::<2>(bytes, 1024 + 0x58)?,
            unit: le::<2>(bytes, 1024 + 0x164)?.checked_mul(block)?,
            width: le::<4>(bytes, 1024 + 0x170)?.checked_mul(block)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ext4_superblock, xfs_superblock};

    /// Goal: both kinds are told apart and their numbers read; anything else, or a short one, is none.
    #[test]
    fn superblocks() {
        let xfs = Superblock::parse(&xfs_superblock(512, 256 << 10, 10)).unwrap();
        assert_eq!(
            xfs,
            Superblock { kind: "xfs", inode_size: 512, sector: 4096, unit: 256 << 10, width: 2560 << 10 }
        );
        let ext4 = Superblock::parse(&ext4_superblock(256, 0, 0)).unwrap();
        assert_eq!(ext4, Superblock { kind: "ext4", inode_size: 256, sector: 0, unit: 0, width: 0 });
        assert_eq!(Superblock::parse(&[0; 4096]), None);
        // What is recorded says the same, and nothing else.
        for mut bytes in [xfs_superblock(512, 256 << 10, 10), ext4_superblock(256, 4, 32)] {
            bytes[32..48].copy_from_slice(b"a name of a disk");
            let kept = Superblock::essence(&bytes).unwrap();
            assert_eq!(Superblock::parse(&kept), Superblock::parse(&bytes));
            assert_eq!(kept[32..48], [0; 16]);
        }
        for len in 0..200 {
            assert_eq!(Superblock::parse(&xfs_superblock(512, 4096, 1)[..len]).is_some(), len >= 192);
        }
    }
}

//! Numbers that name things. Each is a type of its own, so that one cannot stand for another.

use crate::codec::{Buffer, Decode, DecodeError, Draw, Encode, Example, Reader};
use core::fmt;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($t:ty)) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $t);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl Example for $name {
            fn example(draw: Draw) -> Self {
                Self(Example::example(draw))
            }
        }

        impl Encode for $name {
            fn encode(&self, out: &mut Buffer) {
                self.0.encode(out);
            }
        }

        impl Decode for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self(<$t>::decode(r)?))
            }
        }
    };
}

id! {
    /// A piece of the namespace, owned by one metadata server at a time.
    ShardId(u16)
}
id! {
    /// A registered server process (mgmtd, metad or storaged).
    NodeId(u32)
}
id! {
    /// A storage target: one directory on one disk. 0 names none.
    TargetId(u32)
}
id! {
    /// A storage pool: targets that files are put on together. 0 = no wish, 1 = the default pool.
    PoolId(u32)
}
id! {
    /// A client of the cluster (one mount). Given by mgmtd, never reused.
    ClientId(u64)
}
id! {
    /// One life of a client or server: higher is newer.
    Incarnation(u64)
}
id! {
    /// A lane of a client: at most one changing request is in flight in it.
    Slot(u32)
}
id! {
    /// Position of a request in its slot. 0 = the request changes nothing and is not remembered.
    Seq(u64)
}
id! {
    /// Layout generation of a file: raised when its old chunks must not be read or written again.
    Generation(u32)
}
id! {
    /// Counts evictions. A request from before its client's eviction is refused.
    FenceEpoch(u64)
}
id! {
    /// Version of the cluster map (nodes, targets, shards).
    MapVersion(u64)
}
id! {
    /// Term of a shard: raised whenever somebody begins to answer for it.
    Term(u64)
}
id! {
    /// Place of a record among those of its shard, from 1.
    LogIndex(u64)
}
id! {
    /// Place of a record in a log that several shards share, from 1.
    LogSeq(u64)
}
id! {
    /// Project that space is accounted to. 0 = none.
    ProjectId(u32)
}

/// Sixteen random bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Names the cluster; written into every identity file.
pub type ClusterId = Uuid;

impl Uuid {
    /// Reads 32 hexadecimal digits (dashes are skipped).
    pub fn parse(text: &str) -> Option<Self> {
        let mut raw = [0u8; 16];
        let mut digits = text.bytes().filter(|b| *b != b'-');
        for byte in &mut raw {
            let high = (digits.next()? as char).to_digit(16)?;
            let low = (digits.next()? as char).to_digit(16)?;
            *byte = (high << 4 | low) as u8;
        }
        digits.next().is_none().then_some(Self(raw))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for Uuid {
    fn encode(&self, out: &mut Buffer) {
        self.0.encode(out);
    }
}

impl Decode for Uuid {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(<[u8; 16]>::decode(r)?))
    }
}

/// Inode number: home shard (15 bits, so that it stays positive) and serial (48 bits).
/// Never changes, never reused; the FUSE node id and the NFS file handle.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory: shard 0, serial 1.
    pub const ROOT: Self = Self(1);
    /// Bits of the serial.
    pub const SERIAL_BITS: u32 = 48;
    /// The highest serial.
    pub const SERIAL_MAX: u64 = (1 << Self::SERIAL_BITS) - 1;

    /// The inode `serial` of `shard`.
    pub fn new(shard: ShardId, serial: u64) -> Self {
        assert!(shard.0 < 1 << 15 && serial <= Self::SERIAL_MAX, "inode number out of range");
        Self(u64::from(shard.0) << Self::SERIAL_BITS | serial)
    }

    /// Where its row lives for ever. (A number with the sign bit set names no shard that exists.)
    pub fn shard(self) -> ShardId {
        ShardId((self.0 >> Self::SERIAL_BITS) as u16)
    }

    /// Its number within the shard.
    pub fn serial(self) -> u64 {
        self.0 & Self::SERIAL_MAX
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ino:{:x}.{}", self.shard().0, self.serial())
    }
}

impl Encode for Ino {
    fn encode(&self, out: &mut Buffer) {
        self.0.encode(out);
    }
}

impl Decode for Ino {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(u64::decode(r)?))
    }
}

/// Where a record stands in a shard's log, its term first: no other record ever had the same place or will, power cuts
/// included.
pub type LogPlace = (Term, LogIndex);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Goal: shard and serial survive the packing at both ends of their ranges.
    #[test]
    fn ino_packs_shard_and_serial() {
        let ino = Ino::new(ShardId(0x7fff), Ino::SERIAL_MAX);
        assert_eq!((ino.shard(), ino.serial()), (ShardId(0x7fff), Ino::SERIAL_MAX));
        assert!(ino.0 as i64 > 0);
        assert_eq!((Ino::ROOT.shard(), Ino::ROOT.serial()), (ShardId(0), 1));
    }

    /// Goal: a uuid reads back what it prints, and refuses anything else.
    #[test]
    fn uuid_text_round_trip() {
        let uuid = Uuid([7; 16]);
        assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
        assert_eq!(Uuid::parse("07"), None);
        assert_eq!(Uuid::parse(&(uuid.to_string() + "0")), None);
    }
}

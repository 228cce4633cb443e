//! Cookies: the place of a name in the listing of its directory, for ever. Page: docs/design/shard.md, "Cookies".
//!
//! `0 | route 10 | hash 45 | index 8`, from the highest bit to the lowest.

use crate::codec::{Buffer, Decode, DecodeError, Draw, Encode, Example, Reader};
use crate::id::Ino;
use core::fmt;
use core::hash::Hasher;

/// Bits that say where in a wide directory a name lies. Whoever has the map can compute them.
pub const ROUTE_BITS: u32 = 10;
/// Bits of the hash under the key of the directory's shard.
pub const HASH_BITS: u32 = 45;
/// Bits of the collision index.
pub const INDEX_BITS: u32 = 8;
/// All cookies lie above. Offsets of a listing below are its start (0), `.` (1) and `..` (2).
pub const LOWEST: u64 = 1 << INDEX_BITS;
/// All cookies lie below; the offset behind every name. It is the highest `off_t`.
pub const END: u64 = i64::MAX as u64;

/// The cluster's key of routes: made with the cluster, never changed, shown to servers and mounts with the map.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct NamesKey(pub [u8; 16]);

impl fmt::Debug for NamesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NamesKey(..)")
    }
}

impl Example for NamesKey {
    fn example(draw: Draw) -> Self {
        Self(Example::example(draw))
    }
}

impl Encode for NamesKey {
    fn encode(&self, out: &mut Buffer) {
        self.0.encode(out);
    }
}

impl Decode for NamesKey {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(<[u8; 16]>::decode(r)?))
    }
}

/// SipHash-2-4 of the directory's number (eight bytes, little-endian) and the name.
pub fn hash(key: &[u8; 16], dir: Ino, name: &[u8]) -> u64 {
    let mut hasher = siphasher::sip::SipHasher24::new_with_key(key);
    hasher.write(&dir.0.to_le_bytes());
    hasher.write(name);
    hasher.finish()
}

/// The route in the hash under the cluster's key.
pub fn route_in(hash: u64) -> u16 {
    (hash >> (64 - ROUTE_BITS)) as u16
}

/// Where in its directory a name lies, below 2^[`ROUTE_BITS`].
pub fn route(key: &NamesKey, dir: Ino, name: &[u8]) -> u16 {
    route_in(hash(&key.0, dir, name))
}

/// The fragment of a directory of 2^`width` fragments: a part of the listing without gaps.
pub fn fragment(route: u16, width: u32) -> u16 {
    route >> ROUTE_BITS.saturating_sub(width).min(ROUTE_BITS)
}

/// The cookie of collision index `index` among the names with this route and (secret) hash.
pub fn cookie(route: u16, hash: u64, index: u32) -> u64 {
    const ALL: u64 = (1 << HASH_BITS) - 1;
    // Neither the first offsets nor the last one are anybody's.
    let hash = (hash & ALL).clamp(1, ALL - 1);
    let route = u64::from(route) & ((1 << ROUTE_BITS) - 1);
    route << (HASH_BITS + INDEX_BITS) | hash << INDEX_BITS | u64::from(index) & (LOWEST - 1)
}

/// The route in a cookie.
pub fn route_of(cookie: u64) -> u16 {
    (cookie >> (HASH_BITS + INDEX_BITS)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const KEY: NamesKey = NamesKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    /// Goal: hashes and routes are for ever (values of another implementation, tried with the vectors of the paper).
    #[test]
    fn hashes_of_today_are_those_of_ever() {
        let long = [b'x'; 255];
        let known: [(u64, &[u8], u64, u16); 4] = [
            (1, b"a", 0x74f5_885e_4e23_5d27, 467),
            (1, b"file.0001", 0x3457_00a7_5ca5_1391, 209),
            (0x0003_0000_0000_0042, b"file.0001", 0x4eb4_b735_f7b3_587f, 314),
            (1, &long, 0x4251_9664_53c3_64ba, 265),
        ];
        for (dir, name, expected, routed) in known {
            assert_eq!(hash(&KEY.0, Ino(dir), name), expected);
            assert_eq!(route(&KEY, Ino(dir), name), routed);
        }
        assert_eq!(cookie(467, 0x74f5_885e_4e23_5d27, 3), 467 << 53 | 0x085e_4e23_5d27 << 8 | 3);
    }

    /// Goal: every cookie is a positive `off_t` between the offsets that mean something else, gives its route back, and
    /// those of a chain follow one another.
    #[test]
    fn cookies_avoid_offsets_that_mean_something() {
        for route in [0, 1, 511, 1_023] {
            for hash in [0, 1, 2, 3, (1 << 45) - 2, (1 << 45) - 1, 1 << 45, u64::MAX] {
                let first = cookie(route, hash, 0);
                let last = cookie(route, hash, 255);
                assert!(first >= LOWEST && last < END && i64::try_from(last).is_ok_and(|last| last > 2));
                assert_eq!((route_of(first), route_of(last), last - first), (route, route, 255));
            }
        }
    }

    /// Goal: fragments of any width are parts of the listing in its order, and as good as equally large.
    #[test]
    fn fragments_are_parts_of_the_listing() {
        for width in 0..=ROUTE_BITS {
            let of: alloc::vec::Vec<u16> = (0..1 << ROUTE_BITS).map(|route| fragment(route, width)).collect();
            assert!(of.is_sorted() && of[0] == 0);
            assert_eq!(of[of.len() - 1], (1 << width) - 1);
        }
        let mut counts = [0u32; 16];
        for n in 0..16_000 {
            counts[usize::from(fragment(route(&KEY, Ino(9), format!("out.{n:06}").as_bytes()), 4))] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    /// Goal: names that share a fragment of one directory are spread over those of another: what was found out by
    /// trial in the one helps nobody in the other.
    #[test]
    fn a_route_of_one_directory_tells_nothing_of_another() {
        let mut counts = [0u32; 4];
        let names =
            (0..64_000).map(|n| format!("{n}")).filter(|name| route(&KEY, Ino(9), name.as_bytes()) < 16);
        for name in names {
            counts[usize::from(fragment(route(&KEY, Ino(10), name.as_bytes()), 2))] += 1;
        }
        assert!(counts.iter().all(|count| (180..320).contains(count)), "{counts:?}");
    }

    /// Goal: the key appears in no log.
    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{KEY:?}"), "NamesKey(..)");
    }
}

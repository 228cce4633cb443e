//! Lists to which later releases add kinds of members.

use crate::codec::{Decode, DecodeError, Encode, Reader, Union, encode_record};
use alloc::vec::Vec;

/// A list whose members may be of a variant that its reader does not know: those are left out, the others are read. So
/// it is for what may be ignored. `u32 count | members`, a member `u32 length | u8 number | record`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Growing<T>(pub Vec<T>);

impl<T: Encode> Encode for Growing<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        for member in &self.0 {
            encode_record(out, |out| member.encode(out));
        }
    }
}

impl<T: Union> Decode for Growing<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut members = Vec::new();
        for _ in 0..u32::decode(r)? {
            // A count that lies ends here: each member takes bytes, and nothing is reserved for it before.
            let len = u32::decode(r)? as usize;
            let member = r.take(len, "member of a list")?;
            match member.first() {
                None | Some(0) => return Err(DecodeError::Invalid("number of a member")),
                Some(number) if T::NUMBERS.contains(number) => members.push(T::from_bytes(member)?),
                Some(_) => {}
            }
        }
        Ok(Self(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Bytes;

    crate::record! {
        /// A member.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Old { pub a: u32, pub b: Bytes }
    }
    crate::record! {
        /// One of a later release.
        #[derive(Debug, Clone, PartialEq)]
        pub struct New { pub c: u64 }
    }
    mod later {
        use super::{New, Old};
        crate::union! {
            /// A union of a later release.
            #[derive(Debug, Clone, PartialEq)]
            pub enum Any {
                /// As before.
                One(Old) = 1,
                /// A variant more.
                Two(New) = 2,
            }
        }
    }
    crate::union! {
        /// The same union before.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Any {
            /// Its only variant.
            One(Old) = 1,
        }
    }

    /// Goal: a member of a list that its reader does not know is left out, whatever it holds, and no other; what is no
    /// member, or a known one that is wrong, is refused.
    #[test]
    fn lists_grow() {
        let old = |a| Old { a, b: Bytes(alloc::vec![1]) };
        let new = later::Any::Two(New { c: 9 });
        let list = Growing(alloc::vec![old(7).into(), new.clone(), new, old(9).into()]);
        let read = Growing::<Any>::from_bytes(&list.to_bytes()).unwrap();
        assert_eq!(read, Growing(alloc::vec![Any::One(old(7)), Any::One(old(9))]));
        assert_eq!(Growing::<later::Any>::from_bytes(&read.to_bytes()).unwrap().0.len(), 2);
        assert_eq!(Growing::<later::Any>::from_bytes(&list.to_bytes()), Ok(list.clone()));
        let bytes = list.to_bytes();
        for n in 0..bytes.len() {
            assert!(Growing::<Any>::from_bytes(&bytes[..n]).is_err(), "prefix of {n} bytes was accepted");
        }
        let of = |member: &[u8]| {
            let mut bytes = 1u32.to_bytes();
            encode_record(&mut bytes, |out| out.extend_from_slice(member));
            Growing::<Any>::from_bytes(&bytes).map(|list| list.0.len())
        };
        assert_eq!(of(b"\x09of a later release"), Ok(0));
        assert_eq!(of(b"\x09"), Ok(0));
        assert!(of(b"").is_err() && of(b"\0\0").is_err());
        let one = Any::One(old(7)).to_bytes();
        assert_eq!(of(&one), Ok(1));
        assert!(of(&[&one[..], b"x"].concat()).is_err() && of(&one[..one.len() - 1]).is_err());
        assert!(Growing::<Any>::from_bytes(&[0xff; 4]).is_err());
    }
}

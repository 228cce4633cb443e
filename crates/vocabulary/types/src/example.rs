//! An example of every type that has a codec, for fixtures and for tests that hold of all of them. Its values follow from
//! the names of its fields, so that fields which changed places are noticed.

use crate::codec::{Bytes, Growing, Keyed};
use crate::{Errno, Floors, Ino, Name, SetTime, Timestamp, Uuid};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// How much of an example is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// Whatever may be left out is there.
    Full,
    /// It is left out.
    Bare,
    /// As it comes.
    Mixed,
}

/// What an example is made from.
#[derive(Debug, Clone, Copy)]
pub struct Draw {
    fill: Fill,
    seed: u64,
}

impl Draw {
    /// With every optional field, tagged ones included, and lists of two.
    pub const FULL: Self = Self { fill: Fill::Full, seed: 0 };
    /// Without any, and empty lists.
    pub const BARE: Self = Self { fill: Fill::Bare, seed: 0 };

    /// With some of them.
    pub fn mixed(seed: u64) -> Self {
        Self { fill: Fill::Mixed, seed }
    }

    /// What the part called `name` is made from.
    pub fn of(self, name: &str) -> Self {
        let fnv = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Self { seed: name.bytes().fold(self.seed ^ 0xcbf2_9ce4_8422_2325, fnv), ..self }
    }

    /// For another example, where this one will not do: with every list, and other numbers.
    pub fn again(self) -> Self {
        Self { fill: Fill::Full, ..self.of("again") }
    }

    /// A number.
    pub fn number(self) -> u64 {
        let mixed = (self.seed ^ self.seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One of several.
    pub fn one<T: Clone>(self, of: &[T]) -> T {
        of[(self.number() % of.len() as u64) as usize].clone()
    }

    /// How many, up to two.
    fn count(self) -> u64 {
        match self.fill {
            Fill::Full => 2,
            Fill::Bare => 0,
            Fill::Mixed => self.number() % 3,
        }
    }
}

/// Has an example.
pub trait Example: Sized {
    /// One of the values that it can have.
    fn example(draw: Draw) -> Self;
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Example for $t {
            fn example(draw: Draw) -> Self {
                draw.number() as $t
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i32, i64);

impl Example for u128 {
    fn example(draw: Draw) -> Self {
        u128::from(draw.number()) << 64 | u128::from(draw.of("low").number())
    }
}

impl Example for bool {
    fn example(draw: Draw) -> Self {
        draw.number() % 2 == 1
    }
}

impl<const N: usize> Example for [u8; N] {
    fn example(draw: Draw) -> Self {
        core::array::from_fn(|at| draw.number().wrapping_add(at as u64) as u8)
    }
}

impl<T: Example> Example for Option<T> {
    fn example(draw: Draw) -> Self {
        (draw.count() > 0).then(|| T::example(draw.of("some")))
    }
}

impl<T: Example> Example for Box<T> {
    fn example(draw: Draw) -> Self {
        Self::new(T::example(draw))
    }
}

impl<A: Example, B: Example> Example for (A, B) {
    fn example(draw: Draw) -> Self {
        (A::example(draw.of("0")), B::example(draw.of("1")))
    }
}

impl<T: Example> Example for Growing<T> {
    fn example(draw: Draw) -> Self {
        Self(Vec::example(draw))
    }
}

impl<T: Example> Example for Vec<T> {
    fn example(draw: Draw) -> Self {
        let each = ["first", "second"].iter().take(draw.count() as usize);
        each.map(|name| T::example(draw.of(name))).collect()
    }
}

impl<V: Keyed + Example> Example for BTreeMap<V::Key, V> {
    fn example(draw: Draw) -> Self {
        Vec::<V>::example(draw).into_iter().map(|value| (value.key(), value)).collect()
    }
}

impl<T: Ord + Example> Example for BTreeSet<T> {
    fn example(draw: Draw) -> Self {
        Vec::example(draw).into_iter().collect()
    }
}

impl Example for String {
    fn example(draw: Draw) -> Self {
        if draw.count() == 0 { Self::new() } else { format!("{:04x}", draw.number() as u16) }
    }
}

impl Example for Bytes {
    fn example(draw: Draw) -> Self {
        Self(Vec::example(draw))
    }
}

impl Example for Name {
    fn example(draw: Draw) -> Self {
        // Hexadecimal digits are a name.
        Self::new(format!("n{:04x}", draw.number() as u16).as_bytes()).unwrap_or_else(|_| unreachable!())
    }
}

impl Example for Uuid {
    fn example(draw: Draw) -> Self {
        Self(Example::example(draw))
    }
}

impl Example for Ino {
    fn example(draw: Draw) -> Self {
        Self(draw.number() >> 1)
    }
}

impl Example for Errno {
    fn example(draw: Draw) -> Self {
        draw.one(&[Self::ENOENT, Self::ENOSPC, Self::ESTALE])
    }
}

impl Example for Timestamp {
    fn example(draw: Draw) -> Self {
        Self {
            secs: Example::example(draw.of("secs")),
            nanos: u32::example(draw.of("nanos")) % 1_000_000_000,
        }
    }
}

impl Example for SetTime {
    fn example(draw: Draw) -> Self {
        draw.one(&[Self::Now, Self::At(Timestamp::example(draw))])
    }
}

impl Example for Floors {
    fn example(draw: Draw) -> Self {
        let number = draw.number();
        draw.one(&[Self::default(), Self::Even(number), Self::Same(number), Self::Each(Vec::example(draw))])
    }
}

//! Stripes: a part of an extent that stands in one chunk file, on one target or on several.

use crate::TargetId;
use crate::codec::{Buffer, Decode, DecodeError, Draw, Encode, Example, Reader};
use crate::limits::COPIES_MAX;
use alloc::vec::Vec;
use core::fmt;

/// The targets that hold the chunk file of one stripe: different ones, at least one. They stand in a fixed order.
///
/// Written as `u8 count | u32 target ...`. What else is to be known of them later stands in tagged fields of their extent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    count: u8,
    /// Zeros behind the last of them.
    targets: [TargetId; COPIES_MAX],
}

impl Stripe {
    /// On one target.
    pub fn on(target: TargetId) -> Self {
        let mut targets = [TargetId(0); COPIES_MAX];
        targets[0] = target;
        Self { count: 1, targets }
    }

    /// On all of these. `None`: they are too many, none, or one is named twice.
    pub fn of(targets: &[TargetId]) -> Option<Self> {
        let (first, more) = targets.split_first()?;
        more.iter().try_fold(Self::on(*first), |stripe, target| stripe.and(*target))
    }

    /// On one more.
    fn and(mut self, target: TargetId) -> Option<Self> {
        if self.has(target) {
            return None;
        }
        *self.targets.get_mut(usize::from(self.count))? = target;
        self.count += 1;
        Some(self)
    }

    /// One stripe on each of these.
    pub fn each(targets: &[TargetId]) -> Vec<Self> {
        targets.iter().copied().map(Self::on).collect()
    }

    /// All that hold it.
    pub fn targets(&self) -> &[TargetId] {
        self.targets.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// The first of them.
    pub fn first(&self) -> TargetId {
        self.targets[0]
    }

    /// Does this target hold it?
    pub fn has(&self, target: TargetId) -> bool {
        self.targets().contains(&target)
    }
}

/// `target 7`, or `targets 7, 9`.
impl fmt::Display for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "target{} {}", if self.count > 1 { "s" } else { "" }, self.first())?;
        self.targets().iter().skip(1).try_for_each(|target| write!(f, ", {target}"))
    }
}

impl fmt::Debug for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.targets().iter().map(|target| target.0)).finish()
    }
}

impl Example for Stripe {
    fn example(draw: Draw) -> Self {
        let targets: Vec<TargetId> = Example::example(draw);
        Self::of(&targets).unwrap_or_else(|| Self::on(Example::example(draw)))
    }
}

impl Encode for Stripe {
    fn encode(&self, out: &mut Buffer) {
        out.push(self.count);
        self.targets().iter().for_each(|target| target.encode(out));
    }
}

impl Decode for Stripe {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u8::decode(r)?;
        if usize::from(count) > COPIES_MAX {
            return Err(DecodeError::TooLong("stripe"));
        }
        let invalid = DecodeError::Invalid("stripe");
        let mut stripe: Option<Self> = None;
        for _ in 0..count {
            let target = TargetId::decode(r)?;
            stripe = Some(stripe.map_or(Some(Self::on(target)), |stripe| stripe.and(target)).ok_or(invalid)?);
        }
        stripe.ok_or(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn targets(numbers: &[u32]) -> Vec<TargetId> {
        numbers.iter().copied().map(TargetId).collect()
    }

    /// Goal: what is no stripe is not made, and not read: none, too many, one twice, cut bytes. One target costs 5 bytes.
    #[test]
    fn what_is_no_stripe_is_refused() {
        for good in [&[7][..], &[0], &[3, 1], &[9, 8, 7, 6]] {
            let stripe = Stripe::of(&targets(good)).unwrap();
            assert_eq!((stripe.targets(), stripe.first()), (&targets(good)[..], TargetId(good[0])));
            let bytes = stripe.to_bytes();
            assert_eq!(bytes.len(), 1 + 4 * good.len());
            assert_eq!(Stripe::from_bytes(&bytes), Ok(stripe));
            for cut in 0..bytes.len() {
                assert!(Stripe::from_bytes(&bytes[..cut]).is_err());
            }
        }
        assert!(Stripe::on(TargetId(7)).has(TargetId(7)) && !Stripe::on(TargetId(7)).has(TargetId(0)));
        for bad in [&[][..], &[1, 2, 1], &[0, 0], &[1, 2, 3, 4, 5]] {
            assert_eq!(Stripe::of(&targets(bad)), None);
            let mut bytes = vec![bad.len() as u8];
            bad.iter().for_each(|number: &u32| number.encode(&mut bytes));
            assert!(Stripe::from_bytes(&bytes).is_err(), "{bad:?} was accepted");
        }
    }
}

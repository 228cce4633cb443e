//! Which block comes next.

/// Blocks of one thread, over and over, in sequence or at random.
pub struct Order {
    blocks: u64,
    next: u64,
    random: Option<u64>,
}

/// A step of xorshift64*; never from 0.
fn step(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

impl Order {
    /// Of so many blocks; `seed` tells threads apart.
    pub fn new(blocks: u64, random: bool, seed: u64) -> Self {
        Self { blocks: blocks.max(1), next: 0, random: random.then_some(seed | 1) }
    }

    /// Number of the next block.
    pub fn next(&mut self) -> u64 {
        let at = self.next;
        self.next += 1;
        match &mut self.random {
            Some(state) => step(state) % self.blocks,
            None => at % self.blocks,
        }
    }

    /// Has it just ended a round?
    pub fn is_round(&self) -> bool {
        self.next.is_multiple_of(self.blocks)
    }

    /// Has it gone over all of them once?
    pub fn is_over(&self) -> bool {
        self.next >= self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: in sequence every block comes once a round; at random all are within, and not in sequence.
    #[test]
    fn orders() {
        let mut order = Order::new(3, false, 1);
        assert_eq!([order.next(), order.next()], [0, 1]);
        assert!(!order.is_over());
        assert_eq!([order.next(), order.next()], [2, 0]);
        assert!(order.is_over() && !order.is_round());
        assert_eq!([order.next(), order.next()], [1, 2]);
        assert!(order.is_round());
        let mut order = Order::new(1_000, true, 7);
        let drawn: Vec<u64> = (0..100).map(|_| order.next()).collect();
        assert!(drawn.iter().all(|block| *block < 1_000));
        assert!(drawn.windows(2).any(|pair| pair[1] != pair[0] + 1));
    }
}

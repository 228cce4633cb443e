//! When a mount gives memory back that it has freed.

/// It needs so much less than at most since it last did: a directory with a hundred thousand files that is gone. More than the names
/// that the kernel was told may take, which come and go with each walk (half of it).
const GIVES_BACK: usize = 64 << 20;

/// What a mount keeps, as it is looked at now and then.
#[derive(Debug, Default)]
pub struct Memory {
    most: usize,
    last: usize,
}

impl Memory {
    /// So many bytes are kept now. `true`: memory is to be given back, for there is much of it, and no more is being freed.
    pub fn keeps(&mut self, bytes: usize) -> bool {
        let is_settled = bytes >= self.last;
        (self.last, self.most) = (bytes, self.most.max(bytes));
        let gives_back = is_settled && self.most - bytes >= GIVES_BACK;
        if gives_back {
            self.most = bytes;
        }
        gives_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: memory is given back once, when what was freed is all, and not for little.
    #[test]
    fn much_is_given_back_once() {
        let mut memory = Memory::default();
        assert!(!memory.keeps(5) && !memory.keeps(GIVES_BACK) && !memory.keeps(1) && !memory.keeps(1));
        assert!(!memory.keeps(2 * GIVES_BACK) && !memory.keeps(GIVES_BACK) && !memory.keeps(7));
        assert!(memory.keeps(7) && !memory.keeps(7) && !memory.keeps(GIVES_BACK) && !memory.keeps(8));
    }
}

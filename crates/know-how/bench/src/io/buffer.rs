//! Memory as O_DIRECT wants it.

/// Alignment that satisfies every device's sector.
pub(super) const ALIGNMENT: usize = 4096;

/// Bytes that begin at a multiple of 4 KiB.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    from: usize,
    length: usize,
}

impl Buffer {
    /// So many; None: there is no memory.
    pub fn new(length: usize) -> Option<Self> {
        let whole = length.checked_add(ALIGNMENT)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(whole).ok()?;
        memory.resize(whole, 0);
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        (from < ALIGNMENT).then_some(Self { memory, from, length })
    }

    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the buffer is aligned and as long as asked.
    #[test]
    fn aligned() {
        for length in [1, 4096, 100_000] {
            let mut buffer = Buffer::new(length).unwrap();
            assert_eq!(buffer.bytes().len(), length);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
        }
        assert!(Buffer::new(usize::MAX).is_none());
    }
}

//! Operations that wait for other operations of this mount.

use alloc::collections::BTreeMap;
use core::task::{Context, Poll, Waker};

/// Who waits for something that another lane of this mount is at, and is to look again when that has ended.
#[derive(Debug, Default)]
pub struct Waits {
    last: u64,
    of: BTreeMap<u64, Option<Waker>>,
}

impl Waits {
    /// Somebody has looked, and waits: what ends from now on calls him.
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        self.of.insert(self.last, None);
        self.last
    }

    /// He does not wait any more.
    pub fn end(&mut self, number: u64) {
        self.of.remove(&number);
    }

    /// Ready when he is to look again.
    pub fn poll(&mut self, number: u64, context: &Context<'_>) -> Poll<()> {
        match self.of.get_mut(&number) {
            Some(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    /// Something has ended: whoever waits looks whether it was that.
    pub fn call(&mut self) {
        let all = core::mem::take(&mut self.of);
        all.into_values().flatten().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who has looked and waits is called by what ends from then on, once, also if that is before he is polled; what
    /// ended before calls nobody, and who waits no more leaves nothing behind.
    #[test]
    fn who_waits_is_called() {
        let (mut waits, context) = (Waits::default(), Context::from_waker(Waker::noop()));
        waits.call();
        let (first, second) = (waits.begin(), waits.begin());
        assert_eq!(waits.poll(first, &context), Poll::Pending);
        waits.end(second);
        let third = waits.begin();
        waits.call();
        assert_eq!([first, third].map(|number| waits.poll(number, &context)), [Poll::Ready(()); 2]);
        let fourth = waits.begin();
        assert_eq!(waits.poll(fourth, &context), Poll::Pending);
        waits.end(fourth);
        assert!(waits.of.is_empty());
    }
}

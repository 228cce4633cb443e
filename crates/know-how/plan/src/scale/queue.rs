//! Events in the order of their time; of the same time, in the order in which they were made.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds since the beginning of the run.
pub type Nanos = u64;

/// What is still to happen.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<(Nanos, u64, Held<E>)>>,
    made: u64,
}

/// Not compared: time and number decide, and no two numbers are equal.
#[derive(Debug)]
struct Held<E>(E);

impl<E> PartialEq for Held<E> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl<E> Eq for Held<E> {}
impl<E> PartialOrd for Held<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Held<E> {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), made: 0 }
    }
}

impl<E> Queue<E> {
    /// `event` happens at `at`.
    pub fn at(&mut self, at: Nanos, event: E) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made, Held(event))));
    }

    /// The next one, if it is not later than `until`.
    pub fn next(&mut self, until: Nanos) -> Option<(Nanos, E)> {
        if self.heap.peek().is_none_or(|Reverse((at, ..))| *at > until) {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, Held(event)))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: time first, then order of making; nothing beyond the end comes out.
    #[test]
    fn order() {
        let mut queue = Queue::default();
        for (at, name) in [(5, 'a'), (3, 'b'), (5, 'c'), (9, 'd')] {
            queue.at(at, name);
        }
        let taken: Vec<_> = std::iter::from_fn(|| queue.next(5)).collect();
        assert_eq!(taken, [(3, 'b'), (5, 'a'), (5, 'c')]);
        assert_eq!(queue.next(9), Some((9, 'd')));
    }
}

//! Requests whose answer comes later, from any thread.
//!
//! A program that waits for a lock may wait for hours, and hundreds may wait for one. Such a request is parked: the
//! method returns at once, its worker serves others, and whoever learns of the outcome answers through the
//! [`ParkedReply`]. Whoever takes a request out of the table here is the one who answers it, so there is exactly
//! one answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Errno;

/// Whether a waiting operation has its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It is done.
    Now,
    /// It was parked ([`crate::Context::park`]): the answer comes through the [`ParkedReply`].
    Later,
}

/// The way an answer takes to the kernel.
type Way = Box<dyn FnOnce(Result<(), Errno>) + Send>;

enum Stage {
    /// The method that parked it has not returned.
    Begun,
    /// As before, and the reply was dropped: the method answers after all.
    Dropped,
    /// Whoever holds the reply answers.
    Waits,
}

struct Place {
    stage: Stage,
    way: Way,
}

/// What becomes of a request whose method has returned "later".
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Confirmed {
    /// It waits, or was answered already.
    Parked,
    /// Nobody holds its reply any more.
    Forgotten,
}

/// All parked requests of one connection, by number.
pub(crate) struct Parked {
    places: Mutex<Places>,
    limit: usize,
}

#[derive(Default)]
struct Places {
    by_unique: HashMap<u64, Place>,
    closed: bool,
}

impl Parked {
    /// For at most `limit` requests at one time.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Parked { places: Mutex::default(), limit })
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks a request.
    pub(crate) fn park(
        self: &Arc<Self>,
        unique: u64,
        way: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) -> Result<ParkedReply, Errno> {
        let mut places = self.lock();
        if places.closed {
            return Err(Errno::ENOTCONN);
        }
        if places.by_unique.len() >= self.limit {
            return Err(Errno::ENOLCK);
        }
        places.by_unique.insert(unique, Place { stage: Stage::Begun, way: Box::new(way) });
        Ok(ParkedReply { unique, table: Some(Arc::clone(self)) })
    }

    /// The method returned "later".
    pub(crate) fn confirm(&self, unique: u64) -> Confirmed {
        let mut places = self.lock();
        match places.by_unique.get_mut(&unique) {
            Some(Place { stage: Stage::Dropped, .. }) => {
                places.by_unique.remove(&unique);
                Confirmed::Forgotten
            }
            Some(place) => {
                place.stage = Stage::Waits;
                Confirmed::Parked
            }
            None => Confirmed::Parked,
        }
    }

    /// The method answered itself although it had parked. `false`: somebody else was faster.
    pub(crate) fn withdraw(&self, unique: u64) -> bool {
        self.lock().by_unique.remove(&unique).is_some()
    }

    /// Whether the request waits for its answer.
    pub(crate) fn waits(&self, unique: u64) -> bool {
        matches!(self.lock().by_unique.get(&unique), Some(Place { stage: Stage::Waits, .. }))
    }

    /// The connection has gone: everything that waits, now or later, is answered so. Returns the numbers.
    pub(crate) fn close(&self) -> Vec<u64> {
        let all = {
            let mut places = self.lock();
            places.closed = true;
            std::mem::take(&mut places.by_unique)
        };
        all.into_iter()
            .map(|(unique, place)| {
                (place.way)(Err(Errno::ENOTCONN));
                unique
            })
            .collect()
    }

    fn answer(&self, unique: u64, result: Result<(), Errno>) {
        let place = self.lock().by_unique.remove(&unique);
        if let Some(place) = place {
            (place.way)(result);
        }
    }

    fn forget(&self, unique: u64) {
        let mut places = self.lock();
        let Some(place) = places.by_unique.get_mut(&unique) else { return };
        if matches!(place.stage, Stage::Waits) {
            drop(places);
            self.answer(unique, Err(Errno::EIO));
        } else {
            place.stage = Stage::Dropped;
        }
    }
}

/// The answer to a parked request, to be given from any thread. Dropped without one, the caller gets EIO.
pub struct ParkedReply {
    unique: u64,
    table: Option<Arc<Parked>>,
}

impl ParkedReply {
    /// The request's number, which [`crate::Mount::interrupt_parked`] names.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Answers. After the end of the connection it does nothing.
    pub fn answer(mut self, result: Result<(), Errno>) {
        if let Some(table) = self.table.take() {
            table.answer(self.unique, result);
        }
    }
}

impl Drop for ParkedReply {
    fn drop(&mut self) {
        if let Some(table) = self.table.take() {
            table.forget(self.unique);
        }
    }
}

impl fmt::Debug for ParkedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParkedReply({})", self.unique)
    }
}

/// Lets the request in work be parked; each transport has its own way to answer later.
pub trait Park {
    /// Parks the request with this number.
    ///
    /// # Errors
    /// ENOLCK when too many are parked.
    fn park(&self, unique: u64) -> Result<ParkedReply, Errno>;

    /// Whether the request in work was parked.
    fn is_parked(&self) -> bool;
}

/// Where nothing can be parked.
#[derive(Clone, Copy, Debug)]
pub struct NoParking;

impl Park for NoParking {
    fn park(&self, _unique: u64) -> Result<ParkedReply, Errno> {
        Err(Errno::ENOLCK)
    }

    fn is_parked(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::{Confirmed, Parked, ParkedReply};
    use crate::Errno;

    type Answers = mpsc::Receiver<Result<(), Errno>>;

    fn parked(table: &Arc<Parked>, unique: u64) -> (ParkedReply, Answers) {
        let (sender, receiver) = mpsc::channel();
        let reply = table.park(unique, move |result| sender.send(result).unwrap()).unwrap();
        (reply, receiver)
    }

    /// Goal: exactly one answer, whether it comes before or after the method has returned, or not at all.
    #[test]
    fn one_answer() {
        let table = Parked::new(8);
        let (reply, answers) = parked(&table, 2);
        assert!(!table.waits(2), "an interrupt now finds the method at work");
        assert_eq!(table.confirm(2), Confirmed::Parked);
        assert!(table.waits(2));
        reply.answer(Ok(()));
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [Ok(())]);
        assert!(!table.waits(2));

        let (reply, answers) = parked(&table, 4);
        reply.answer(Err(Errno::EDEADLK));
        assert_eq!(table.confirm(4), Confirmed::Parked);
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [Err(Errno::EDEADLK)]);

        let (reply, answers) = parked(&table, 6);
        assert_eq!(table.confirm(6), Confirmed::Parked);
        drop(reply);
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [Err(Errno::EIO)]);
    }

    /// Goal: a method that parks and then answers itself is the one who answers, unless somebody was faster.
    #[test]
    fn second_thoughts() {
        let table = Parked::new(8);
        let (reply, answers) = parked(&table, 2);
        drop(reply);
        assert!(table.withdraw(2));
        let (reply, _) = parked(&table, 4);
        assert!(table.withdraw(4));
        reply.answer(Ok(()));
        let (reply, late) = parked(&table, 6);
        reply.answer(Ok(()));
        assert!(!table.withdraw(6));
        let (reply, forgotten) = parked(&table, 8);
        drop(reply);
        assert_eq!(table.confirm(8), Confirmed::Forgotten);
        assert_eq!([answers, late, forgotten].map(|answers| answers.try_iter().count()), [0, 1, 0]);
    }

    /// Goal: there is a limit, and the end of the connection answers everything.
    #[test]
    fn limit_and_end() {
        let table = Parked::new(2);
        let (first, answers) = parked(&table, 2);
        let (second, others) = parked(&table, 4);
        assert_eq!(table.park(6, |_| {}).unwrap_err(), Errno::ENOLCK);
        let mut gone = table.close();
        gone.sort_unstable();
        assert_eq!(gone, [2, 4]);
        assert_eq!(
            [answers.try_recv(), others.try_recv()],
            [Ok(Err(Errno::ENOTCONN)), Ok(Err(Errno::ENOTCONN))]
        );
        assert_eq!(table.park(8, |_| {}).unwrap_err(), Errno::ENOTCONN);
        first.answer(Ok(()));
        drop(second);
    }
}

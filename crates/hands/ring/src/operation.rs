//! Operations in flight: who waits for each, and the memory it uses.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use io_uring::opcode;

use crate::command::Keep;
use crate::reactor::Inner;
use crate::ring::Submission;

/// Completions of the reactor's own, which belong to no operation.
pub(crate) const OWN: u64 = 1 << 63;
/// A cancellation has been dealt with: nobody waits for that.
pub(crate) const CANCELLED: u64 = OWN;
/// Another thread has something for this one.
pub(crate) const CALLED: u64 = OWN | 1;

enum State {
    Free,
    /// The kernel has it, or is about to.
    Pending {
        waker: Option<Waker>,
        keep: Keep,
    },
    /// The kernel is done with it.
    Done {
        result: i32,
        keep: Keep,
    },
    /// Nobody waits any more; the memory stays until the kernel is done.
    Abandoned {
        _keep: Keep,
    },
}

/// A place for one operation after the other.
struct Place {
    /// Tells the present operation from earlier ones: a late cancellation must not hit the wrong one.
    generation: u32,
    state: State,
}

/// All operations of one reactor, by place. A place is used again only after the completion.
#[derive(Default)]
pub(crate) struct Operations {
    places: Vec<Place>,
    free: Vec<u32>,
    pending: usize,
}

/// Generations count up to this, then from 0 again: the highest bit belongs to [`OWN`].
const GENERATIONS: u32 = 1 << 31;

impl Operations {
    /// Returns the operation's number for the kernel.
    fn add(&mut self, keep: Keep) -> u64 {
        let state = State::Pending { waker: None, keep };
        self.pending += 1;
        let index = match self.free.pop() {
            Some(index) => {
                let place = &mut self.places[index as usize];
                place.generation = (place.generation + 1) % GENERATIONS;
                place.state = state;
                index
            }
            None => {
                self.places.push(Place { generation: 0, state });
                (self.places.len() - 1) as u32
            }
        };
        u64::from(self.places[index as usize].generation) << 32 | u64::from(index)
    }

    fn place(&mut self, number: u64) -> Option<(u32, &mut State)> {
        let index = number as u32;
        let place = self.places.get_mut(index as usize)?;
        (u64::from(place.generation) == number >> 32).then_some((index, &mut place.state))
    }

    /// Puts another state into a place and returns the one before.
    fn replace(&mut self, number: u64, state: State) -> State {
        self.place(number).map_or(State::Free, |(_, place)| std::mem::replace(place, state))
    }

    /// Operations whose completion has not come.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Takes a completion; returns whom to wake.
    pub(crate) fn complete(&mut self, number: u64, result: i32) -> Option<Waker> {
        let (index, state) = self.place(number)?;
        match std::mem::replace(state, State::Free) {
            State::Pending { waker, keep } => {
                *state = State::Done { result, keep };
                self.pending -= 1;
                waker
            }
            State::Abandoned { .. } => {
                self.pending -= 1;
                self.free.push(index);
                None
            }
            // No operation has two completions.
            other => {
                *state = other;
                None
            }
        }
    }

    /// The result and the memory of an operation that is done; its place is free then.
    fn take(&mut self, number: u64, waker: &Waker) -> Option<(i32, Keep)> {
        let (index, state) = self.place(number)?;
        match std::mem::replace(state, State::Free) {
            State::Done { result, keep } => {
                self.free.push(index);
                Some((result, keep))
            }
            State::Pending { waker: old, keep } => {
                let waker = match old {
                    Some(old) if old.will_wake(waker) => old,
                    _ => waker.clone(),
                };
                *state = State::Pending { waker: Some(waker), keep };
                None
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Nobody waits any more. `true`: the kernel is still at it.
    fn abandon(&mut self, number: u64) -> bool {
        match self.replace(number, State::Free) {
            State::Pending { keep, .. } => {
                self.replace(number, State::Abandoned { _keep: keep });
                true
            }
            State::Done { .. } => {
                self.free.push(number as u32);
                false
            }
            _ => false,
        }
    }

    /// Gives up the memory of whatever the kernel still has: freed it would be written into.
    pub(crate) fn leak(&mut self) {
        for place in &mut self.places {
            std::mem::forget(std::mem::replace(&mut place.state, State::Free));
        }
    }
}

/// One operation: its result is that of the system call, negative for errors, and the memory comes back.
pub(crate) struct Operation<'a> {
    inner: &'a Inner,
    /// `None` once the result was taken.
    number: Option<u64>,
    /// To know whether it was submitted.
    mark: u64,
}

impl<'a> Operation<'a> {
    /// Queues an operation.
    ///
    /// # Safety
    /// The memory that the submission names is in `keep`, at an address that moving `keep` does not change; its
    /// descriptor stays open as long as the operation exists.
    #[allow(unsafe_code)] // the kernel is given addresses
    pub(crate) unsafe fn start(
        inner: &'a Inner,
        keep: Keep,
        make: impl FnOnce(&mut Keep) -> Submission,
    ) -> Self {
        let mut keep = keep;
        let submission = make(&mut keep);
        let number = inner.operations.borrow_mut().add(keep);
        let mark = inner.ring.mark();
        // SAFETY: the memory is kept until the completion, or for ever; a descriptor is open until this operation
        // is dropped, and `drop` submits what was not submitted.
        unsafe { inner.ring.push(submission.user_data(number)) };
        Operation { inner, number: Some(number), mark }
    }
}

impl Future for Operation<'_> {
    type Output = (i32, Keep);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(i32, Keep)> {
        let Some(number) = self.number else { return Poll::Pending };
        match self.inner.operations.borrow_mut().take(number, cx.waker()) {
            Some(done) => {
                self.number = None;
                Poll::Ready(done)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Operation<'_> {
    #[allow(unsafe_code)] // a submission without addresses
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let ring = &self.inner.ring;
        if !self.inner.operations.borrow_mut().abandon(number) {
            return;
        }
        if !ring.is_submitted(self.mark) {
            // The descriptor may be closed, and its number used again, as soon as this returns. A failure is
            // the ring's own and shows at the next turn.
            let _ = ring.submit_up_to(self.mark);
        }
        let cancel = opcode::AsyncCancel::new(number).build().user_data(CANCELLED);
        // SAFETY: it names neither memory nor a descriptor.
        unsafe { ring.push(cancel.into()) };
    }
}

/// A cell of operations, for the reactor.
pub(crate) type Table = RefCell<Operations>;

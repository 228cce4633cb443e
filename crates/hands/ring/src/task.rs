//! Tasks and their wakers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use crate::remote::Shared;

/// The future that `block_on` drives has this number.
pub(crate) const ROOT: u32 = u32::MAX;
/// Tasks outside any scope.
pub(crate) const NO_SCOPE: u64 = 0;

pub(crate) type Body = Pin<Box<dyn Future<Output = ()>>>;

/// Numbers of the tasks that are to be polled, in the order in which they were woken.
#[derive(Default)]
pub(crate) struct Ready {
    queue: RefCell<VecDeque<u32>>,
}

impl Ready {
    pub(crate) fn push(&self, task: u32) {
        self.queue.borrow_mut().push_back(task);
    }

    pub(crate) fn pop(&self) -> Option<u32> {
        self.queue.borrow_mut().pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }
}

thread_local! {
    /// The reactor that runs on this thread at present: wakes of its tasks need no lock.
    static RUNNING: RefCell<Option<(u64, Rc<Ready>)>> = const { RefCell::new(None) };
}

/// While it lives, the reactor counts as the one that runs on this thread.
pub(crate) struct Running(Option<(u64, Rc<Ready>)>);

impl Running {
    pub(crate) fn enter(id: u64, ready: &Rc<Ready>) -> Running {
        Running(RUNNING.with(|running| running.replace(Some((id, Rc::clone(ready))))))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let before = self.0.take();
        RUNNING.with(|running| running.replace(before));
    }
}

/// Wakes one task; made once for each place in the slab and used again by later tasks, which a stale waker then
/// wakes for nothing.
pub(crate) struct TaskWaker {
    shared: Arc<Shared>,
    task: u32,
    /// It is in the queue.
    queued: AtomicBool,
}

impl TaskWaker {
    pub(crate) fn new(shared: &Arc<Shared>, task: u32) -> Arc<Self> {
        Arc::new(TaskWaker { shared: Arc::clone(shared), task, queued: AtomicBool::new(false) })
    }

    /// The task is about to be polled: from now on a wake counts anew.
    pub(crate) fn begin(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let here = RUNNING.try_with(|running| match &*running.borrow() {
            Some((id, ready)) if *id == self.shared.id => {
                ready.push(self.task);
                true
            }
            _ => false,
        });
        if here != Ok(true) {
            self.shared.wake(self.task);
        }
    }
}

struct Place {
    body: Option<Body>,
    scope: u64,
    /// A task lives here, be it that it is being polled at this moment.
    taken: bool,
    state: Arc<TaskWaker>,
    waker: Waker,
}

/// The tasks of one reactor.
pub(crate) struct Tasks {
    places: RefCell<Vec<Place>>,
    free: RefCell<Vec<u32>>,
    count: Cell<usize>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Tasks { places: RefCell::default(), free: RefCell::default(), count: Cell::new(0) }
    }

    /// Tasks that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Puts a task into the slab and returns its waker.
    pub(crate) fn add(&self, body: Body, scope: u64, shared: &Arc<Shared>) -> Waker {
        self.count.set(self.count.get() + 1);
        let mut places = self.places.borrow_mut();
        if let Some(index) = self.free.borrow_mut().pop() {
            let place = &mut places[index as usize];
            place.body = Some(body);
            place.scope = scope;
            place.taken = true;
            return place.waker.clone();
        }
        let state = TaskWaker::new(shared, places.len() as u32);
        let waker = Waker::from(Arc::clone(&state));
        places.push(Place { body: Some(body), scope, taken: true, state, waker: waker.clone() });
        waker
    }

    /// Takes a task out to poll it.
    pub(crate) fn begin(&self, task: u32) -> Option<(Body, Waker)> {
        let mut places = self.places.borrow_mut();
        let place = places.get_mut(task as usize)?;
        place.state.begin();
        Some((place.body.take()?, place.waker.clone()))
    }

    /// Puts it back; it goes on.
    pub(crate) fn put_back(&self, task: u32, body: Body) {
        self.places.borrow_mut()[task as usize].body = Some(body);
    }

    pub(crate) fn end(&self, task: u32) {
        let mut places = self.places.borrow_mut();
        let place = &mut places[task as usize];
        if std::mem::replace(&mut place.taken, false) {
            self.count.set(self.count.get() - 1);
            self.free.borrow_mut().push(task);
        }
    }

    /// Takes out one task of a scope, to be dropped.
    pub(crate) fn take_of(&self, scope: Option<u64>) -> Option<Body> {
        let mut places = self.places.borrow_mut();
        let matches = |place: &Place| place.body.is_some() && scope.is_none_or(|scope| place.scope == scope);
        let index = places.iter().position(matches)?;
        let body = places[index].body.take();
        drop(places);
        self.end(index as u32);
        body
    }
}

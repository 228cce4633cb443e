//! Tasks that borrow.

use std::future::Future;
use std::marker::PhantomData;

use crate::Reactor;
use crate::task::Body;

/// Spawns tasks that may borrow what lives longer than the scope; see [`Reactor::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    reactor: Reactor,
    id: u64,
    /// Both invariant, as with `std::thread::scope`.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Drops the scope's tasks, also while a panic unwinds.
struct End<'a>(&'a Reactor, u64);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // One at a time: dropping one may spawn another.
        while let Some(body) = self.0.inner().tasks.take_of(Some(self.1)) {
            drop(body);
        }
    }
}

impl Reactor {
    /// Calls `f` with a scope, whose tasks may borrow from outside it. When `f` returns, those that have not ended
    /// are dropped where they stand; `f` runs the reactor, or nothing happens in between.
    pub fn scope<'env, R>(&self, f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
        let scope =
            Scope { reactor: self.clone(), id: self.next_scope(), scope: PhantomData, env: PhantomData };
        let _end = End(self, scope.id);
        f(&scope)
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Adds a task.
    #[allow(unsafe_code)] // a lifetime is left out, as in `std::thread::scope`
    pub fn spawn(&'scope self, future: impl Future<Output = ()> + 'scope) {
        let body: std::pin::Pin<Box<dyn Future<Output = ()> + 'scope>> = Box::pin(future);
        // SAFETY: only the lifetime changes. `End` drops the task before the scope ends, however it ends: until
        // then everything it borrows is alive. While a task is polled it is on the stack of `Reactor::run`, which
        // is called within the scope, so it cannot be missed either.
        let body: Body = unsafe { std::mem::transmute(body) };
        self.reactor.add(body, self.id);
    }
}

//! Hands: one thread, one `io_uring`, one executor.
//!
//! A [`Reactor`] belongs to the thread that made it and never leaves it. Tasks are ordinary futures, not `Send`;
//! they wait for sockets, polls, commands of devices and timers. Everything that the tasks of one turn queue goes
//! to the kernel with the one `io_uring_enter` that then waits for the next completion: a turn is one system call.
//!
//! Memory that an operation uses belongs to the reactor until the kernel is done with it, so a future may be
//! dropped at any time: its operation is cancelled, and its buffer freed when the kernel says so.
//!
//! Other threads talk to a reactor through a [`Remote`].

mod command;
mod look_again;
mod operation;
mod reactor;
mod remote;
mod ring;
mod scope;
mod socket;
mod task;
#[cfg(test)]
mod tests;
mod timer;

pub use command::{Command, Keep};
pub use look_again::{look_again, look_again_for};
pub use reactor::{Expected, Reactor};
pub use remote::Remote;
pub use scope::Scope;
pub use timer::Sleep;

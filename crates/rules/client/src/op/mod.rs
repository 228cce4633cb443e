//! One file per operation of a program. Each public method takes and gives what a kernel request
//! does; errors are those that the program sees.
//!
//! Each `.await` moves the future that it waits for into its own, so every request copies what its deepest path could
//! need, once for each level. What is seldom needed and large is therefore boxed, and what is handed on is pinned first.

mod allocate;
mod append;
mod attr;
mod closed;
mod commit;
mod copy;
mod covers;
mod entry;
mod events;
mod gather;
mod grow;
mod hold;
mod inspect;
mod kept;
mod known;
mod list;
mod lock;
mod losses;
mod lost;
mod open;
mod pages;
mod read;
mod recalls;
mod release;
mod remove;
mod rename;
mod seal;
mod seek;
mod statfs;
mod strays;
mod strided;
mod sync;
mod temp;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_apart;
#[cfg(test)]
mod tests_beside;
#[cfg(test)]
mod tests_lives;
#[cfg(test)]
mod tests_losses;
#[cfg(test)]
mod tests_moved;
#[cfg(test)]
mod tests_random;
#[cfg(test)]
mod tests_reclaim;
#[cfg(test)]
mod tests_seal;
mod told;
mod wish;
mod write;
mod xattr;

pub use allocate::Allocate;
pub(crate) use closed::ClosedSync;
pub use entry::NewNode;
pub use list::{Listed, Sink};
pub use lock::Waiting;
pub use lost::LostChunk;
pub use open::{CreateHow, OpenHow, Opened};
pub use rename::RenameHow;
pub use seek::Seek;
pub use told::{Shown, Valid};
pub use write::WriteHow;
pub use xattr::XattrHow;

use skep_types::{Errno, Ino};
use skep_wire::Refusal;

/// The layout of a file changed in every round of an operation.
pub(crate) fn unsettled(ino: Ino) -> Refusal {
    crate::lane::refuse(
        Errno::EIO,
        alloc::format!("inode {ino}: its layout changed again and again during one operation"),
    )
}

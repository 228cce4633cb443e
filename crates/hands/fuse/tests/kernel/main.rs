//! The transports against the real kernel, each test on both. These tests fail, rather than skip, where `/dev/fuse`
//! is missing, the user may not mount, or FUSE over io_uring cannot be switched on.

/// A test that is run on either transport.
macro_rules! on_both {
    ($($(#[doc = $doc:literal])* fn $name:ident($transport:ident) $body:block)*) => {$(
        mod $name {
            use super::*;
            fn on($transport: skep_fuse::Transport) $body
            $(#[doc = $doc])*
            #[test]
            fn dev() { on(skep_fuse::Transport::Dev) }
            $(#[doc = $doc])*
            #[test]
            fn uring() { on(skep_fuse::Transport::Uring) }
        }
    )*};
}

mod cache;
mod choice;
mod ending;
mod facts;
mod files;
mod interrupts;
mod locking;
mod locks;
mod served;
mod watched;

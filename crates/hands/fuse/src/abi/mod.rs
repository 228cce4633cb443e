//! The kernel's structures and numbers (`linux/fuse.h`), by topic.
//!
//! All integers are in the machine's own byte order: both sides run on the same machine. Structures are copied
//! out of the request, so no alignment is asked of buffers.

/// Declares kernel structures: fixed layout, no padding (the derive refuses it), readable from any bytes.
macro_rules! kernel {
    ($($(#[$meta:meta])* struct $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            zerocopy::KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $kind),* }
    )*};
}

pub mod control;
pub mod file;
pub mod header;
pub mod init;
pub mod lock;
pub mod namespace;
pub mod node;
pub mod notify;
pub mod opcode;
pub mod ring;
pub mod xattr;

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// Newest minor version this crate knows (Linux 6.18).
pub const MINOR: u32 = 45;
/// Oldest minor version accepted: Linux 6.1 offers 36 or 37.
pub const MINOR_MINIMUM: u32 = 36;
/// From here on no kernel believes attributes of an inode that it has evicted since it asked (Linux 6.14).
pub const MINOR_EVICTIONS: u32 = 42;
/// Minor version from which on the kernel counts epochs of names (Linux 6.16).
pub const MINOR_EPOCHS: u32 = 44;
/// Node id of the root directory.
pub const ROOT: u64 = 1;

#[cfg(test)]
mod tests {
    use core::mem::size_of;

    /// Goal: every structure has the size the kernel header gives it.
    #[test]
    fn sizes_are_the_kernels() {
        use super::{
            control::*, file::*, header::*, init::*, lock::*, namespace::*, node::*, notify::*, ring::*,
            xattr::*,
        };
        assert_eq!([size_of::<InHeader>(), size_of::<OutHeader>()], [40, 16]);
        assert_eq!([size_of::<InitIn>(), size_of::<InitOut>()], [64, 64]);
        assert_eq!([size_of::<RawAttr>(), size_of::<EntryOut>(), size_of::<AttrOut>()], [88, 128, 104]);
        assert_eq!([size_of::<SetattrIn>(), size_of::<GetattrIn>(), size_of::<StatfsOut>()], [88, 16, 80]);
        assert_eq!([size_of::<ForgetIn>(), size_of::<ForgetOne>(), size_of::<BatchForgetIn>()], [8, 16, 8]);
        assert_eq!([size_of::<MknodIn>(), size_of::<MkdirIn>(), size_of::<LinkIn>()], [16, 8, 8]);
        assert_eq!([size_of::<RenameIn>(), size_of::<Rename2In>()], [8, 16]);
        assert_eq!([size_of::<Dirent>(), size_of::<CreateIn>(), size_of::<OpenIn>()], [24, 16, 8]);
        assert_eq!([size_of::<OpenOut>(), size_of::<ReleaseIn>(), size_of::<FlushIn>()], [16, 24, 24]);
        assert_eq!([size_of::<ReadIn>(), size_of::<WriteIn>(), size_of::<WriteOut>()], [40, 40, 8]);
        assert_eq!([size_of::<FsyncIn>(), size_of::<FallocateIn>(), size_of::<LseekIn>()], [16, 32, 24]);
        assert_eq!([size_of::<CopyFileRangeIn>(), size_of::<CopyFileRangeOut>()], [56, 8]);
        assert_eq!([size_of::<SetxattrIn>(), size_of::<GetxattrIn>(), size_of::<GetxattrOut>()], [16, 8, 8]);
        assert_eq!([size_of::<LkIn>(), size_of::<LkOut>()], [48, 24]);
        assert_eq!([size_of::<IoctlIn>(), size_of::<IoctlOut>()], [32, 16]);
        assert_eq!([size_of::<PollIn>(), size_of::<PollOut>()], [24, 8]);
        assert_eq!([size_of::<RingInOut>(), size_of::<RingCommand>(), RING_HEADERS], [32, 24, 288]);
        assert_eq!([size_of::<AccessIn>(), size_of::<InterruptIn>()], [8, 8]);
        assert_eq!(
            [size_of::<InvalInodeOut>(), size_of::<InvalEntryOut>(), size_of::<DeleteOut>()],
            [24, 16, 24]
        );
    }
}

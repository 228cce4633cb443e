//! Extended attributes.

kernel! {
    /// SETXATTR in the extended form, which this crate always negotiates; name and value follow.
    struct SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }

    /// GETXATTR (the name follows) and LISTXATTR.
    struct GetxattrIn { size: u32, padding: u32 }

    /// Reply when `size` was 0: the size needed.
    struct GetxattrOut { size: u32, padding: u32 }
}

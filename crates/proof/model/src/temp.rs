//! Files without a name (`O_TMPFILE`).

use crate::content::Content;
use crate::fs::{Access, Body, Call, Fs, Handle};
use alloc::sync::Arc;
use skep_types::{Errno, Ino, Mode};

impl Fs {
    /// Makes an open regular file that has no name; `Link` can give it one where it is `linkable`. EMFILE, ENOTDIR,
    /// ENOENT (a directory that is gone). The directory does not change.
    pub fn create_temp(
        &mut self,
        dir: Ino,
        handle: Handle,
        access: Access,
        (mode, linkable): (Mode, bool),
        call: Call,
    ) -> Result<Ino, Errno> {
        if self.handles.contains_key(&handle) {
            return Err(Errno::EMFILE);
        }
        self.living_dir(dir)?;
        let mut inode = self.heir(dir, Body::File(Content::default()), mode & 0o7777, call)?;
        inode.nlink = 0;
        inode.linkable = linkable;
        self.inodes.insert(call.ino, Arc::new(inode));
        self.open(handle, call.ino, access)?;
        Ok(call.ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::tests::{call, name, root, time};

    /// Goal: a nameless file lives as long as its handle, or gets a name, once.
    #[test]
    fn nameless_files() {
        let mut fs = root();
        let rw = Access { read: true, write: true, append: false };
        let one = fs.create_temp(Ino::ROOT, Handle(0), rw, (0o600, true), call(2)).unwrap();
        let two = fs.create_temp(Ino::ROOT, Handle(1), rw, (0o600, false), call(3)).unwrap();
        fs.write(one, 0, b"x", false, time(1)).unwrap();
        fs.check().unwrap();
        assert_eq!(fs.link(two, Ino::ROOT, &name("n"), time(2)), Err(Errno::ENOENT));
        fs.link(one, Ino::ROOT, &name("n"), time(2)).unwrap();
        fs.unlink(Ino::ROOT, &name("n"), time(3)).unwrap();
        assert_eq!(fs.link(one, Ino::ROOT, &name("n"), time(4)), Err(Errno::ENOENT));
        fs.close_all(|_| true);
        fs.check().unwrap();
        assert!(fs.stat(one).is_err() && fs.stat(two).is_err());
    }
}

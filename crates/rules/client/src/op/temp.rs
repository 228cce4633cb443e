//! O_TMPFILE: an open file that has no name.

use crate::job::Job;
use crate::lane::Lane;
use crate::op::{CreateHow, OpenHow, Opened};
use crate::port::{Cell, Port};
use crate::state::Shared;
use skep_types::{Errno, Ino};
use skep_wire::Refusal;
use skep_wire::meta::{CreateTemp, OpenReply};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Makes an open file without a name in the directory `parent`. [`Lane::link`] can name it; without
    /// a name it is gone at its last close.
    pub async fn create_temp(&self, parent: Ino, create: CreateHow, how: OpenHow) -> Result<Opened, Errno> {
        let made = self.open_with_room(async || self.create_nameless(parent, create, how).await).await;
        self.errno(made)
    }

    async fn create_nameless(&self, parent: Ino, create: CreateHow, how: OpenHow) -> Result<Opened, Refusal> {
        self.shared.with(|s| s.handles.has_room())?;
        let CreateHow { mode, umask, uid, gid, .. } = create;
        let open_seq = self.shared.with(Shared::next_open_seq);
        let message = CreateTemp { parent, mode, umask, uid, gid, open: how.mode, open_seq };
        // Nothing of the directory is changed.
        let job = Job { of: [None; 2], makes_open: Some(open_seq), ..self.changing(parent, &message) };
        let reply = self.settle(job).await?;
        let open: OpenReply = reply.read()?;
        self.also_changed(open.attr.ino, &reply);
        // Nobody else knows of it, so nothing can have overtaken this.
        self.shared.with(|s| s.open_made(&open, how.mode, open_seq));
        self.opened(open, &reply, OpenHow { truncate: false, ..how }).await
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{BOTH, block_on, mounted, read, write};
    use crate::{CreateHow, Lane};
    use skep_types::Ino;

    /// Goal: a file without a name is written and read like any other, and its close is told to the
    /// shard, which then deletes it.
    #[test]
    fn nameless_files_are_used_and_closed() {
        let (cluster, lane) = mounted();
        let how = CreateHow { mode: 0o666, umask: 0o022, uid: 1, gid: 2, exclusive: true, policy: None };
        let file = block_on(Lane::create_temp(&lane, Ino::ROOT, how, BOTH)).unwrap();
        assert_eq!((file.attr.mode, cluster.borrow().shard.names.len()), (0o644, 0));
        write(&lane, &file, 0, &[5; 30_000]);
        assert_eq!(read(&lane, &file, 0, 40_000), [5; 30_000]);
        assert_eq!(cluster.borrow().shard.opens.len(), 1);
        block_on(lane.release(file.handle));
        block_on(lane.housekeeping());
        assert!(cluster.borrow().shard.opens.is_empty());
    }
}

//! Directories on other shards that lanes make and remove: each happens on both shards or on neither, and once, whatever
//! befalls the servers. What half of one leaves behind is found at the end of the run.

use crate::program::{Actor, Failed, session_of};
use skep_client::NewNode;
use skep_types::{ClientId, Errno, Ino, Kind, ShardId};

/// Names that several lanes want.
const NAMES: [&[u8]; 2] = [b"far-a", b"far-b"];
/// Steps here are numbered from this on, apart from those of the books and of the directory of all.
const STEPS_FROM: u64 = 1 << 41;

/// A directory whose place the shard of the name chooses.
const DIR: NewNode = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };

/// What must stay as it is for an answer to be certain: power cuts so far, and the session.
type Ground = (usize, Option<ClientId>);

impl Actor {
    fn ground(&self) -> Ground {
        (self.hub.borrow().cuts.len(), session_of(&self.shared))
    }

    /// Makes a directory on another shard where there is none, else uses and removes it.
    pub(crate) async fn go_afar(&self) -> Result<(), Failed> {
        self.wait_while_dead().await;
        let (own, shard) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.last_deed += 1;
            hub.at_step.insert(self.id, STEPS_FROM + hub.last_deed);
            (hub.rng.percent(75), ShardId(1 + hub.rng.below(u64::from(crate::world::SHARDS) - 1) as u16))
        };
        let name = match own {
            true => format!("far {}", self.id).into_bytes(),
            false => self.hub.borrow_mut().rng.pick(&NAMES).to_vec(),
        };
        let done = self.at(Ino::ROOT, &name, shard, own).await;
        self.hub.borrow_mut().at_step.insert(self.id, 0);
        done
    }

    async fn at(&self, parent: Ino, name: &[u8], shard: ShardId, own: bool) -> Result<(), Failed> {
        let ground = self.ground();
        match self.lane.lookup(parent, name).await {
            Ok(attr) => {
                if own {
                    self.is_whole(attr.ino, ground, "is found").await?;
                }
                self.use_it(attr.ino, own).await?;
                self.remove(parent, name, own).await
            }
            Err(Errno::ENOENT) => self.make(parent, name, shard, own).await,
            Err(_) => Ok(()),
        }
    }

    /// Something whose outcome is not known may happen still, later than its answer.
    fn is_unsure(&self) {
        self.hub.borrow_mut().afar.remove(&self.id);
    }

    /// Its directory was removed on this ground, and everything since was answered on it.
    fn is_certain(&self, own: bool, ground: Ground) -> bool {
        own && self.ground() == ground && self.hub.borrow().afar.get(&self.id) == Some(&ground)
    }

    /// What a name leads to is a directory on its shard.
    async fn is_whole(&self, ino: Ino, ground: Ground, when: &str) -> Result<(), Failed> {
        let found = self.lane.getattr(ino).await;
        // One that was seen here is shown without links when it is gone.
        let gone = match &found {
            Ok(attr) => attr.nlink == 0,
            Err(errno) => matches!(*errno, Errno::ESTALE | Errno::ENOENT),
        };
        if gone && self.is_certain(true, ground) {
            return self
                .fail(format!("directory {ino} on another shard {when}, and is not there: {found:?}"));
        }
        Ok(())
    }

    async fn make(&self, parent: Ino, name: &[u8], shard: ShardId, own: bool) -> Result<(), Failed> {
        let ground = self.ground();
        let by_hand = self.hub.borrow_mut().rng.percent(50);
        let made = match by_hand {
            true => {
                let made = self.lane.make_dir_on(parent, name, 0o755, (0, 0), shard).await;
                made.map(|entry| entry.ino)
            }
            false => self.lane.make_node(parent, name, DIR).await.map(|attr| attr.ino),
        };
        // It was looked for, and has one maker. An administrator's command has no lane: it may have been done once more.
        if !by_hand && self.is_certain(own, ground) && made == Err(Errno::EEXIST) {
            return self.fail("who made a directory on another shard is told EEXIST".into());
        }
        // It may be done late.
        if own && made.is_err() {
            self.is_unsure();
        }
        let Ok(ino) = made else { return Ok(()) };
        self.hub.borrow_mut().coverage.hit("a directory on another shard");
        if !by_hand && ino.shard() != parent.shard() {
            self.hub.borrow_mut().coverage.hit("a directory was dealt to another shard");
        }
        let found = self.lane.lookup(parent, name).await;
        if self.is_certain(own, ground) && matches!(found, Err(Errno::ENOENT)) {
            return self.fail(format!("directory {ino} was made on another shard, and has no name"));
        }
        if own {
            self.is_whole(ino, ground, "was made").await?;
        }
        Ok(())
    }

    /// Puts something into it: it must not go meanwhile.
    async fn use_it(&self, dir: Ino, own: bool) -> Result<(), Failed> {
        let (kind, shard) = {
            let rng = &mut self.hub.borrow_mut().rng;
            (rng.below(3), ShardId(rng.below(u64::from(crate::world::SHARDS)) as u16))
        };
        let ground = self.ground();
        let made = match kind {
            0 => {
                let new = NewNode { kind: Kind::Fifo, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
                self.lane.make_node(dir, b"x", new).await.map(|_| ())
            }
            1 => self.lane.make_dir_on(dir, b"x", 0o755, (0, 0), shard).await.map(|_| ()),
            _ => return Ok(()),
        };
        if made.is_err() && own {
            self.is_unsure();
        }
        if made.is_ok() && own {
            let removed = self.lane.rmdir(Ino::ROOT, format!("far {}", self.id).as_bytes()).await;
            if removed.is_ok() && self.is_certain(own, ground) {
                return self
                    .fail(format!("directory {dir} on another shard was removed with what was in it"));
            }
        }
        let gone = match kind {
            0 => self.lane.unlink(dir, b"x").await,
            _ => self.lane.rmdir(dir, b"x").await,
        };
        if gone.is_err() && own {
            self.is_unsure();
        }
        Ok(())
    }

    async fn remove(&self, parent: Ino, name: &[u8], own: bool) -> Result<(), Failed> {
        let ground = self.ground();
        let removed = self.lane.rmdir(parent, name).await;
        let is_certain = self.is_certain(own, ground);
        if own && removed.is_ok() {
            self.hub.borrow_mut().afar.insert(self.id, ground);
        } else if own {
            self.is_unsure();
        }
        match removed {
            Err(Errno::ENOENT) if is_certain => self
                .fail("a directory on another shard was removed, and who removed it is told ENOENT".into()),
            Err(Errno::ENOSPC) => {
                self.fail("a directory on another shard cannot be removed for want of room".into())
            }
            Err(Errno::ENOTEMPTY) if is_certain => {
                self.fail("an empty directory on another shard is said not to be empty".into())
            }
            Ok(()) => {
                self.hub.borrow_mut().coverage.hit("a directory on another shard was removed");
                let found = self.lane.lookup(parent, name).await;
                if is_certain && self.ground() == ground && found.is_ok() {
                    return self.fail("a directory on another shard was removed, and is found".into());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

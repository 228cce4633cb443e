//! System calls that change names: under the lock of the directory, which is held until the reply is applied.

use super::{How, Vfs};
use crate::kernel::From;
use skep_client::{AttrsBy, CreateHow, NewNode, OpenHow, Opened, RenameHow};
use skep_types::{Attr, Errno, Ino, Mode, SetAttr};

/// Under the lock.
const LOCKED: How = How { locked: true, exactly: false };
/// And whatever is valid.
const EXACTLY: How = How { locked: true, exactly: true };

/// What open(O_CREAT) has come to.
pub enum Made {
    /// The name was there: its inode is opened as any other.
    There(Ino),
    New(Opened),
}

impl Vfs {
    /// open(O_CREAT): what is there is opened by its number. `slow`: how long the kernel takes from its look to its
    /// question; `careful`: that question is for a new file only.
    pub async fn open_or_create(
        &self,
        name: &[u8],
        (create, how): (CreateHow, OpenHow),
        careful: bool,
        slow: impl FnOnce() -> u64,
    ) -> Result<Made, Errno> {
        let dir = self.walk().await?;
        let held = self.lock(dir, true).await;
        let look = if create.exclusive { EXACTLY } else { LOCKED };
        let made = match self.component(dir, name, look).await {
            Ok(Some(_)) if create.exclusive => Err(Errno::EEXIST),
            Ok(Some(ino)) => Ok(Made::There(ino)),
            Ok(None) => {
                self.sleep(slow()).await;
                self.create(dir, name, (create, how), careful).await.map(Made::New)
            }
            Err(errno) => Err(errno),
        };
        self.unlock(dir, held);
        made
    }

    async fn create(
        &self,
        dir: Ino,
        name: &[u8],
        (create, how): (CreateHow, OpenHow),
        careful: bool,
    ) -> Result<Opened, Errno> {
        let asked = self.kernel(|k| k.asks());
        let question = async {
            let opened = match careful {
                true => self.lane.create_after_look(dir, name, create, how).await?,
                false => self.lane.create(dir, name, create, how).await?,
            };
            let valid = self.entry_valid(dir, name, &opened.attr, AttrsBy::Made);
            Ok((opened, valid))
        };
        let (opened, valid) = self.ask(question).await?;
        self.apply(dir, name, Some((&opened.attr, valid)), (From::New, asked));
        self.kernel(|k| k.changed_dir(dir));
        Ok(opened)
    }

    /// mkdir(2), mknod(2)
    pub async fn make(&self, name: &[u8], new: NewNode) -> Result<(), Errno> {
        let dir = self.walk().await?;
        let held = self.lock(dir, true).await;
        let made = match self.component(dir, name, EXACTLY).await {
            Ok(Some(_)) => Err(Errno::EEXIST),
            Ok(None) => self.named(dir, name, self.lane.make_node(dir, name, new)).await,
            Err(errno) => Err(errno),
        };
        self.unlock(dir, held);
        made
    }

    /// A question that gives something a name, and the answer to it.
    async fn named(
        &self,
        dir: Ino,
        name: &[u8],
        question: impl Future<Output = Result<Attr, Errno>>,
    ) -> Result<(), Errno> {
        let asked = self.kernel(|k| k.asks());
        let question = async {
            let attr = question.await?;
            let valid = self.entry_valid(dir, name, &attr, AttrsBy::Made);
            Ok((attr, valid))
        };
        let (attr, valid) = self.ask(question).await?;
        self.apply(dir, name, Some((&attr, valid)), (From::New, asked));
        self.kernel(|k| k.changed_dir(dir));
        Ok(())
    }

    /// link(2)
    pub async fn link(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let ino = self.find(from).await?;
        let dir = self.walk().await?;
        let held = self.lock(dir, true).await;
        let made = match self.component(dir, to, EXACTLY).await {
            Ok(Some(_)) => Err(Errno::EEXIST),
            Ok(None) => self.named(dir, to, self.lane.link(ino, dir, to)).await,
            Err(errno) => Err(errno),
        };
        self.unlock(dir, held);
        made
    }

    /// unlink(2), rmdir(2)
    pub async fn remove(&self, name: &[u8], is_dir: bool) -> Result<(), Errno> {
        let dir = self.walk().await?;
        let held = self.lock(dir, true).await;
        let found = self.component(dir, name, LOCKED).await;
        self.kernel(|k| k.changes(dir, &[name], true));
        let gone = match found {
            Ok(None) => Err(Errno::ENOENT),
            Ok(Some(_)) if is_dir => self.ask(self.lane.rmdir(dir, name)).await,
            Ok(Some(_)) => self.ask(self.lane.unlink(dir, name)).await,
            Err(errno) => Err(errno),
        };
        match gone {
            Ok(()) => self.kernel(|k| k.removed(dir, name)),
            Err(Errno::ENOENT | Errno::EINTR) => self.kernel(|k| k.doubted(dir, name)),
            Err(_) => {}
        }
        self.kernel(|k| k.changes(dir, &[name], false));
        self.unlock(dir, held);
        gone
    }

    /// renameat2(2)
    pub async fn rename(&self, from: &[u8], to: &[u8], how: RenameHow) -> Result<(), Errno> {
        let dir = self.walk().await?;
        let held = self.lock(dir, true).await;
        let moved = self.rename_locked(dir, (from, to), how).await;
        match moved {
            Ok(()) => self.kernel(|k| k.renamed((dir, from), (dir, to), how.exchange)),
            Err(Errno::ENOENT | Errno::EINTR) => self.kernel(|k| {
                k.doubted(dir, from);
                k.doubted(dir, to);
            }),
            Err(_) => {}
        }
        self.kernel(|k| k.changes(dir, &[from, to], false));
        self.unlock(dir, held);
        moved
    }

    async fn rename_locked(&self, dir: Ino, (from, to): (&[u8], &[u8]), how: RenameHow) -> Result<(), Errno> {
        let source = self.component(dir, from, LOCKED).await?;
        let target = self.component(dir, to, EXACTLY).await?;
        match (source, target) {
            (None, _) => return Err(Errno::ENOENT),
            (_, Some(_)) if how.no_replace => return Err(Errno::EEXIST),
            (_, None) if how.exchange => return Err(Errno::ENOENT),
            // The kernel asks nobody where both are one inode; here they may have been so one after the other only.
            _ => {}
        }
        self.kernel(|k| k.changes(dir, &[from, to], true));
        self.ask(self.lane.rename(dir, from, dir, to, how)).await
    }

    /// chmod(2)
    pub async fn chmod(&self, name: &[u8], mode: Mode) -> Result<(), Errno> {
        let ino = self.find(name).await?;
        self.change_open(ino, SetAttr { mode: Some(mode), ..SetAttr::default() }).await
    }

    /// fchmod(2), fchown(2), futimens(3)
    pub async fn change_open(&self, ino: Ino, set: SetAttr) -> Result<(), Errno> {
        let attr = self.ask(self.lane.setattr(ino, set)).await?;
        let now = self.jiffies();
        self.kernel(|k| k.answered(ino, &attr, From::Change, 0, now));
        Ok(())
    }
}

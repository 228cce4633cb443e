//! Looks at files that are written in pieces, and what they may show.

use super::About;
use crate::drive::read;
use crate::hub::Hub;
use crate::pieced::{Pieced, State, check_bytes, check_size};
use crate::program::{Actor, Failed};
use crate::turns::read_whole;
use crate::vfs::Vfs;
use skep_types::{Attr, Errno};

/// Of a hundred looks at attributes so many begin with the name.
const NAMED: u64 = 50;

impl Actor {
    /// A look at all of it, through `handle` or a new one.
    pub(super) async fn look_at_pieced(&self, about: About, handle: Option<u64>) -> Result<(), Failed> {
        let begins = |file: &mut Pieced, _: &mut Hub| {
            file.look_begins(self.id);
            !file.is_of_all
        };
        let Some(is_own) = self.with_pieced(about, begins) else { return Ok(()) };
        let found = match handle.filter(|_| is_own) {
            Some(handle) => read(&self.lane, handle, 0, 1 << 20).await,
            None => read_whole(&self.lane, about.ino).await,
        };
        let length = found.as_ref().map(Vec::len);
        self.judge_look(about, &format!("sees {length:?}"), |states| match &found {
            Ok(found) => check_bytes(states, found),
            Err(_) => Ok(()),
        })
    }

    /// A look at its attributes.
    pub(crate) async fn stat_pieced(&self, about: About) -> Result<(), Failed> {
        if self.with_pieced(about, |file, _| file.look_begins(self.id)).is_none() {
            return Ok(());
        }
        let found = self.attr_of_pieced(about).await;
        let shown = found.as_ref().map(|Attr { size, mode, .. }| (*size, *mode));
        self.judge_look(about, &format!("is shown {shown:?}"), |states| match shown {
            Ok((size, mode)) => check_size(states, size, mode),
            Err(_) => Ok(()),
        })
    }

    /// As a kernel asks: now and then by its name first, whose attributes it does not use.
    async fn attr_of_pieced(&self, about: About) -> Result<Attr, Errno> {
        if self.hub.borrow_mut().rng.percent(NAMED) {
            let name = self.with_pieced(about, |file, _| (file.dir, file.name.clone()));
            if let Some((dir, name)) = name
                && let Ok(Some(ino)) =
                    Vfs::enter(&self.hub, &self.lane, self.id).name(dir, name.as_bytes()).await
                && ino == about.ino
            {
                self.hub
                    .borrow_mut()
                    .coverage
                    .hit("a file that is written in pieces was asked for by its name");
            }
        }
        self.lane.getattr(about.ino).await
    }

    pub(crate) fn judge_look(
        &self,
        about: About,
        what: &str,
        check: impl FnOnce(&[State]) -> Result<(), String>,
    ) -> Result<(), Failed> {
        let wrong = self.with_pieced(about, |file, hub| {
            hub.say(format_args!("{} {what} of inode {}", self.id, about.ino.0));
            let counts = self.is_of_file(about, file, hub);
            let states = file.look_ends(self.id).filter(|_| counts)?;
            hub.coverage.hit(if file.is_in_doubt() {
                "a file of which something may be lost was looked at"
            } else {
                "a file that is written in pieces was looked at"
            });
            check(&states).err()
        });
        match wrong.flatten() {
            Some(wrong) => self.fail(format!("inode {} written in pieces: {wrong}", about.ino.0)),
            None => Ok(()),
        }
    }
}

//! What is asked for programs that read in order, where too little is known of their file to read it ahead: a look-up by its name,
//! so that the lease on its directory covers it, and where its chunks are, if that may have changed. See
//! `docs/design/data-path.md`, section 4.

use super::entry::name;
use crate::job::Job;
use crate::lane::Lane;
use crate::limits::AHEAD_ASK_BATCH;
use crate::port::{Cell, Port};
use crate::state::{Place, Shared};
use alloc::vec::Vec;
use skep_types::{Ino, Millis};
use skep_wire::meta::{EntryReply, Lookup, OpenReply, ReadInline};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Housekeeping. Nobody waits for it, so all is tried once, and what fails says nothing: who goes on reading asks again.
    pub(crate) async fn ask_for_readers(&self) {
        let boot = self.port.boot();
        let (places, unplaced) = self.shared.with(|s| s.readers_ask(boot));
        let mut unplaced: Vec<Ino> = unplaced;
        unplaced.extend(self.look_up_again(&places).await);
        let ask = |ino: &Ino| {
            let nothing = ReadInline { ino: *ino, short: Vec::new(), trims: Default::default() };
            self.asking(ino.shard(), &nothing)
        };
        let mut jobs: Vec<Job<'_>> = unplaced.iter().map(ask).collect();
        if jobs.is_empty() {
            return;
        }
        self.once_each(&mut jobs).await;
        for job in &mut jobs {
            if let Ok(reply) = job.take().and_then(|reply| reply.read::<OpenReply>()) {
                self.shared.with(|s| s.took(reply, false));
            }
        }
    }

    /// Files that are covered now, and of which it is not known where they are.
    async fn look_up_again(&self, places: &[Place]) -> Vec<Ino> {
        let ask = |(dir, bytes): &Place| {
            let message = Lookup { parent: *dir, name: name(bytes).ok()?, as_told: None };
            Some(self.asking(dir.shard(), &message))
        };
        let (mut jobs, asked): (Vec<Job<'_>>, Vec<&Place>) =
            places.iter().filter_map(|place| Some((ask(place)?, place))).unzip();
        if jobs.is_empty() {
            return Vec::new();
        }
        self.once_each(&mut jobs).await;
        let boot = self.port.boot();
        let mut unplaced = Vec::new();
        for (job, (dir, bytes)) in jobs.iter_mut().zip(asked) {
            let told = job.told.take();
            let Ok(entry) = job.take().and_then(|reply| reply.read::<EntryReply>()) else { continue };
            self.learn_entry(*dir, bytes, Some(&entry), told.as_deref());
            // What is written to is not covered, and its end is asked for by who needs it.
            let EntryReply { attr: Some(attr), live: None, .. } = entry else { continue };
            let is_unplaced = self.shared.with(|s| {
                let is_covered = s.covering(attr.ino, boot).is_some();
                let ino = attr.ino;
                s.inodes.merge(attr);
                is_covered && s.inodes.get(ino).is_some_and(|inode| inode.layout_old)
            });
            if is_unplaced {
                unplaced.push(entry.ino);
            }
        }
        unplaced
    }
}

impl Shared {
    /// Names to be looked up, and files that are covered, of which it is not known where they are.
    fn readers_ask(&mut self, boot: Millis) -> (Vec<Place>, Vec<Ino>) {
        let (mut places, mut unplaced) = (Vec::new(), Vec::new());
        while places.len() + unplaced.len() < AHEAD_ASK_BATCH
            && let Some(handle) = self.aheads.next_asking()
        {
            let Some(ino) = self.handles.any_file(handle).map(|file| file.ino) else { continue };
            let told = self.kernel.names.last_of_file(ino);
            let place = self.aheads.name_of(handle, told);
            if self.wants_more(ino, 0) && self.unchanged_since(ino, boot).is_none() {
                let is_old = self.inodes.get(ino).is_some_and(|inode| inode.layout_old);
                match self.covering(ino, boot) {
                    Some(_) if is_old => unplaced.push(ino),
                    _ => places.extend(place),
                }
            }
        }
        (places, unplaced)
    }
}

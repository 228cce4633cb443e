//! What goes with a client that closes a file or whose session ends, and with a file.

use super::{Place, SPACES, Table};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Bound;
use skep_types::{ClientId, Errno, Ino, Millis};
use skep_wire::meta::LockOwner;

impl Table {
    /// A client has closed a file.
    pub fn close(&mut self, now: Millis, client: ClientId, ino: Ino) {
        if !self.clients.get(&client).is_some_and(|client| client.files.contains_key(&ino)) {
            return;
        }
        self.drop_client(client, ino, Some(Errno::EBADF));
        self.settle(now);
        self.tidy_client(client, ino, false);
    }

    /// A file is gone: nobody can have anything to do with it but by a mistake.
    pub fn gone(&mut self, now: Millis, ino: Ino) {
        self.given.forget(ino);
        for key in SPACES.map(|space| (ino, space)) {
            let Some(file) = self.files.get(&key) else { continue };
            let numbers: Vec<u64> = file.queue.keys().copied().collect();
            let owners: Vec<LockOwner> = file.held.owners().collect();
            numbers.into_iter().for_each(|number| {
                self.dismiss(Place { key, number }, Some(Errno::ESTALE));
            });
            let clients: BTreeSet<ClientId> = owners.iter().map(|by| by.client).collect();
            owners.into_iter().for_each(|by| self.release(key, by));
            self.settle(now);
            self.tidy_file(key);
            clients.into_iter().for_each(|client| self.tidy_client(client, ino, false));
        }
    }

    /// A session ended: what it has on the files behind `after` goes, of so many, or with so many locks and those of one file
    /// more. The last of them; `None`: nothing is left.
    pub fn end_some(
        &mut self,
        now: Millis,
        client: ClientId,
        after: Option<Ino>,
        most: usize,
    ) -> Option<Ino> {
        let count = |table: &Self| table.clients.get(&client).map_or(0, |known| known.held + known.waiting);
        let (before, mut last) = (count(self), after);
        for _ in 0..most {
            let behind = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let known = self.clients.get(&client);
            let ino = known.and_then(|known| known.files.range(behind).next()).map(|(ino, _)| *ino)?;
            self.drop_client(client, ino, None);
            self.settle(now);
            self.tidy_client(client, ino, false);
            last = Some(ino);
            if before.saturating_sub(count(self)) >= most {
                break;
            }
        }
        last
    }

    /// All of it.
    #[cfg(test)]
    pub fn end(&mut self, now: Millis, client: ClientId) {
        let mut after = None;
        while let Some(last) = self.end_some(now, client, after, 2) {
            after = Some(last);
        }
    }

    /// Everything of a client on a file goes; its wishes are answered with `errno`.
    fn drop_client(&mut self, client: ClientId, ino: Ino, errno: Option<Errno>) {
        for key in SPACES.map(|space| (ino, space)) {
            let Some(file) = self.files.get(&key) else { continue };
            let wishes = file.queue.iter().filter(|(_, wish)| wish.by.client == client);
            let numbers: Vec<u64> = wishes.map(|(number, _)| *number).collect();
            let owners: Vec<LockOwner> = file.held.owners_of(client).collect();
            numbers.into_iter().for_each(|number| {
                self.dismiss(Place { key, number }, errno);
            });
            owners.into_iter().for_each(|by| self.release(key, by));
            self.tidy_file(key);
        }
    }
}

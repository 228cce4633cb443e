//! Files that mounts hold, looked at between events: what of them is acknowledged and told to nobody, and whether shards know
//! who holds what (H1).

use super::World;
use crate::hub::{Hub, HubRef};
use crate::kernel::Seen;
use skep_client::state::Inode;
use skep_types::{ClientId, Ino};

/// What there is to be said of a file that a mount has in its list.
enum Look {
    /// It holds it no longer.
    Over,
    /// And has nothing to tell.
    Held,
    /// What it shows of it to its host; a lane tells it now.
    News(Seen, bool),
}

fn look_at(inode: Option<&Inode>) -> Look {
    let Some(inode) = inode.filter(|inode| inode.hold.is_some()) else { return Look::Over };
    match &inode.attr {
        Some(attr) if inode.has_news() => {
            Look::News(Seen::of(&inode.with_mark(attr.clone())), inode.is_being_told())
        }
        _ => Look::Held,
    }
}

impl World {
    /// Looks, in a seed with such files.
    pub(super) fn look_at_held(&mut self) {
        if !self.hub.borrow().lending.holds {
            return;
        }
        let hub = self.hub.clone();
        for at in 0..self.seats.len() {
            let seat = &mut self.seats[at];
            if seat.vacant {
                continue;
            }
            for ino in seat.shared.borrow().holds.young() {
                seat.held.entry(ino).or_default();
            }
            if !seat.held.is_empty() {
                self.look_at_held_of(at, &hub);
            }
        }
    }

    fn look_at_held_of(&mut self, at: usize, hub: &HubRef) {
        let mut held = std::mem::take(&mut self.seats[at].held);
        held.retain(|ino, has_news| {
            let seat = &self.seats[at];
            let look = look_at(seat.shared.borrow().inodes.get(*ino));
            let client = seat.shared.borrow().session.open().map(|session| session.client);
            let hub = &mut *hub.borrow_mut();
            self.looked_at_held((seat.life, client), *ino, &look, hub);
            if *has_news && matches!(look, Look::Over) && !hub.tells.contains_key(ino) {
                hub.coverage.hit("an eviction lost what was not told of a held file");
            }
            *has_news = matches!(look, Look::News(..));
            !matches!(look, Look::Over)
        });
        self.seats[at].held = held;
    }

    fn looked_at_held(&self, (life, client): (u32, Option<ClientId>), ino: Ino, look: &Look, hub: &mut Hub) {
        let (now, host) = (hub.now, Hub::host_of(life));
        let (seen, is_being_told) = match *look {
            Look::Over => {
                hub.truth.is_held_no_more(now, ino, (life, host));
                return;
            }
            Look::Held => return,
            Look::News(seen, is_being_told) => (seen, is_being_told),
        };
        hub.coverage.hit("a file was held");
        if hub.truth.is_held_as(now, ino, life, seen) {
            hub.say(format_args!("life {life} keeps to itself that inode {} is {seen:?}", ino.0));
        }
        let lives = client.is_some_and(|client| hub.fields.living.contains(&client));
        let knows = self.knows_hold(client.unwrap_or_default(), ino);
        if !lives {
            return hub.truth.is_held_in_vain(now, ino, host, knows);
        }
        if !knows && !is_being_told && !hub.tells.contains_key(&ino) {
            hub.fail(format!(
                "the mount in life {life} has something to tell of {ino} (inode {}), which it holds, and its shard does not \
                 know that",
                ino.0
            ));
        }
    }

    /// Does the shard know that this client holds it? Or nobody serves it now, or not all have told yet, or it is gone.
    fn knows_hold(&self, client: ClientId, ino: Ino) -> bool {
        let servers = self.metads.iter().filter_map(|metad| Some((metad, metad.server()?)));
        let mut serving = servers.filter(|(_, server)| server.serves(ino.shard()));
        serving.all(|(metad, server)| server.knows_hold(client, ino) || metad.row_of(ino).is_none())
    }

    /// The mount in this seat is gone, with what it had not told.
    pub(super) fn mount_is_gone(&mut self, at: usize) {
        let life = self.seats[at].life;
        let held = std::mem::take(&mut self.seats[at].held);
        let hub = &mut *self.hub.borrow_mut();
        hub.truth.mount_is_gone(hub.now, (life, Hub::host_of(life)));
        if held.iter().any(|(ino, has_news)| *has_news && !hub.tells.contains_key(ino)) {
            hub.coverage.hit("a kill lost what was not told of a held file");
        }
    }
}

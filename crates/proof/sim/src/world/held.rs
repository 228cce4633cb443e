//! Files that mounts hold, looked at between events: what of them is acknowledged and told to nobody, and whether shards know
//! who holds what (H1). A shard may go on without one that cannot be heard: as soon as that mount does not take itself for heard
//! any more, and no sooner.

use super::World;
use crate::hub::{Hub, HubRef};
use crate::kernel::Seen;
use skep_client::state::Inode;
use skep_types::{ClientId, Ino};

/// What of a file was to be told when somebody looked last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untold {
    has_news: bool,
    /// Something of its content is with the mount only: from where to where.
    run: Option<(u64, u64)>,
    /// What so many records told does not tell that.
    before: usize,
    /// A record told it, whatever became of that since, and the mount has not heard of it.
    was_told: bool,
    /// The session in which it was kept.
    client: ClientId,
    /// Its mount did not take itself for heard since.
    was_unheard: bool,
    /// A record says that nobody holds it, as its mount was not heard: its shard goes on without that when the record is durable.
    is_passing: bool,
    /// Its shard goes on without that.
    is_passed: bool,
}

impl Untold {
    fn is_something(&self) -> bool {
        self.has_news || self.run.is_some()
    }
}

/// What a mount shows to its host of a file that it holds, and has something to tell of; a lane tells it now.
struct Look {
    seen: Option<Seen>,
    is_being_told: bool,
    /// It may have been told.
    is_ending: bool,
}

fn look_at(inode: &Inode) -> Look {
    let attr = inode.attr.as_ref().filter(|_| inode.has_news());
    let seen = attr.map(|attr| Seen::of(&inode.with_mark(attr.clone())));
    Look { seen, is_being_told: inode.is_being_told(), is_ending: inode.is_ending() }
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
        held.retain(|ino, known| {
            let seat = &self.seats[at];
            let shared = seat.shared.borrow();
            let client = shared.session.open().map(|session| session.client);
            let inode = shared.inodes.get(*ino).filter(|inode| inode.hold.is_some());
            let hub = &mut *hub.borrow_mut();
            let Some(inode) = inode else {
                self.held_is_over(seat.life, *ino, known, hub);
                return false;
            };
            let look = look_at(inode);
            let was_put = known.run.is_some() && inode.run().is_none();
            if was_put {
                hub.coverage.hit("a run was put");
            }
            let may_be_told = look.is_being_told || look.is_ending;
            known.before = hub.tells.before_news(*ino, may_be_told);
            known.was_told = hub.tells.since(*ino, known.before) || known.was_told && may_be_told;
            known.client = client.unwrap_or(known.client);
            (known.has_news, known.run) = (look.seen.is_some(), inode.run());
            self.looked_at_held((at, client), *ino, (&look, known), hub);
            true
        });
        self.seats[at].held = held;
    }

    /// A mount holds this file no longer.
    fn held_is_over(&self, life: u32, ino: Ino, known: &Untold, hub: &mut Hub) {
        hub.truth.is_held_no_more(hub.now, ino, (life, Hub::host_of(life)));
        let is_told = hub.tells.since(ino, known.before);
        // It may have another session by now.
        let lives = hub.fields.living.contains(&known.client);
        match (known.is_passed, is_told) {
            (true, true) => hub.coverage.hit("what a holder kept who was passed over was told late"),
            (true, false) if lives => hub.coverage.hit("who was passed over was refused"),
            _ => {}
        }
        if is_told {
            return;
        }
        let is_lost = known.is_something() && !known.was_told;
        if known.was_unheard && lives && !known.is_passed && is_lost && !self.is_excused(ino, hub) {
            return hub.fail(format!(
                "the mount in life {life} was not passed over, and lost what it kept of {ino} (inode {}): {known:?}",
                ino.0
            ));
        }
        if known.has_news {
            hub.coverage.hit("an eviction lost what was not told of a held file");
        }
        if known.run.is_some() && !lives {
            hub.coverage.hit("an eviction lost what was with the mount only");
        }
    }

    fn looked_at_held(
        &self,
        (at, client): (usize, Option<ClientId>),
        ino: Ino,
        (look, known): (&Look, &mut Untold),
        hub: &mut Hub,
    ) {
        let life = self.seats[at].life;
        let (now, host) = (hub.now, Hub::host_of(life));
        if let Some(seen) = look.seen {
            hub.coverage.hit("a file was held");
            if hub.truth.is_held_as(now, ino, life, seen) {
                hub.say(format_args!("life {life} keeps to itself that inode {} is {seen:?}", ino.0));
            }
        }
        if !known.is_something() {
            known.was_unheard = false;
            return;
        }
        let lives = client.is_some_and(|client| hub.fields.living.contains(&client));
        let knows = self.knows_hold(client.unwrap_or_default(), ino);
        if !lives {
            hub.kept.may_lose(ino, known.run);
            return hub.truth.is_held_in_vain(now, ino, host, knows);
        }
        let is_heard = self.is_heard(at, ino, hub);
        known.was_unheard |= !is_heard;
        if hub.tells.is_unheld(ino) && !std::mem::replace(&mut known.is_passing, true) && is_heard {
            return hub.fail(format!(
                "the mount in life {life} is heard, and its shard goes on without it, which holds inode {}: {known:?}",
                ino.0
            ));
        }
        // What it brings itself, where it asks whether it holds the file still, may end that as well.
        let may_be_told = look.is_being_told && !known.was_unheard;
        if knows || may_be_told || hub.tells.since(ino, known.before) {
            // Its mount may have been heard since, before anybody looked.
            if known.is_passed && self.is_held_by(client.unwrap_or_default(), ino) {
                (known.is_passing, known.is_passed) = (false, false);
                hub.truth.is_held_again(ino);
            }
            return;
        }
        if is_heard && !look.is_being_told && !known.is_passing {
            return hub.fail(format!(
                "the mount in life {life} has something to tell of {ino} (inode {}), which it holds, and its shard does not \
                 know that",
                ino.0
            ));
        }
        self.is_passed((life, host), ino, known, hub);
    }

    /// The shard goes on without a mount that is not heard: others are shown what records say. What it kept is told late, or is
    /// lost.
    fn is_passed(&self, (life, host): (u32, usize), ino: Ino, known: &mut Untold, hub: &mut Hub) {
        if !std::mem::replace(&mut known.is_passed, true) {
            hub.coverage.hit("a holder was passed over");
            hub.say(format_args!("life {life} is passed over, which holds inode {}: {known:?}", ino.0));
            hub.pieces.is_passed(ino);
            hub.kept.may_lose(ino, known.run);
        }
        hub.truth.is_held_in_vain(hub.now, ino, host, false);
    }

    /// Does this mount take itself for heard by the servers of that shard?
    fn is_heard(&self, at: usize, ino: Ino, hub: &Hub) -> bool {
        let seat = &self.seats[at];
        let boot = skep_types::Millis(hub.hosts.boot(Hub::host_of(seat.life), hub.now));
        seat.shared.borrow().leases.is_heard_at(ino.shard(), boot)
    }

    /// Does the shard know that this client holds it? Or nobody serves it now, or it is gone, or not all have told yet and its row
    /// says that somebody may.
    fn knows_hold(&self, client: ClientId, ino: Ino) -> bool {
        let servers = self.metads.iter().filter_map(|metad| Some((metad, metad.server()?)));
        let mut serving = servers.filter(|(_, server)| server.serves(ino.shard()));
        serving.all(|(metad, server)| {
            server.is_held_by(client, ino)
                || metad.row_of(ino).is_none()
                || server.knows_hold(client, ino) && metad.may_be_held(ino)
        })
    }

    /// What was kept of a file may be lost with it: where a power cut took its create, or it is removed. Where nobody serves it now
    /// nobody knows.
    fn is_excused(&self, ino: Ino, hub: &mut Hub) -> bool {
        let servers = self.metads.iter().filter_map(|metad| Some((metad, metad.server()?)));
        let mut rows = servers.filter(|(_, server)| server.serves(ino.shard()));
        let Some((metad, _)) = rows.next() else {
            hub.coverage.hit("what a mount had kept was lost while nobody served the file");
            return true;
        };
        let is_gone = metad.row_of(ino).is_none_or(|row| row.nlink == 0);
        if is_gone {
            hub.coverage.hit("what a mount had kept was lost with the file");
        }
        is_gone
    }

    fn is_held_by(&self, client: ClientId, ino: Ino) -> bool {
        let mut servers = self.metads.iter().filter_map(|metad| metad.server());
        servers.any(|server| server.serves(ino.shard()) && server.is_held_by(client, ino))
    }

    /// The mount in this seat is gone, with what it had not told.
    pub(super) fn mount_is_gone(&mut self, at: usize) {
        let life = self.seats[at].life;
        let held = std::mem::take(&mut self.seats[at].held);
        let hub = &mut *self.hub.borrow_mut();
        hub.truth.mount_is_gone(hub.now, (life, Hub::host_of(life)));
        for (ino, known) in held.iter().filter(|(ino, known)| !hub.tells.since(**ino, known.before)) {
            if known.has_news {
                hub.coverage.hit("a kill lost what was not told of a held file");
            }
            if known.run.is_some() {
                hub.coverage.hit("a kill lost what was with the mount only");
                hub.kept.may_lose(*ino, known.run);
            }
        }
    }
}

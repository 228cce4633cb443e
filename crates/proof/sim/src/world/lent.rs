//! Do mounts and shards agree on leases? Looked at between events: what a mount believes in, the shard in force knows of, or it
//! waits for that to be over; and nothing that others use was changed by a shard itself.

use super::World;
use super::seats::{HEARERS, Recalled, Seat, TELLER};
use crate::hub::{Hub, LaneId};

/// Every so many events.
const EACH: u64 = 4;
/// A recall is confirmed within so many milliseconds of its server, when all is calm for longer.
/// (Names in it may have to be waited for: those that are valid, for a second and a quarter.)
const CONFIRMED_MS: u64 = 2_600;
const CALM_FOR_MS: u64 = 3_000;

impl World {
    /// Looks, in a seed with leases, at every few events.
    pub(super) fn look_at_leases(&mut self) {
        if !self.events.is_multiple_of(EACH) || !self.hub.borrow().lending.on {
            return;
        }
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        self.look_at_servers(hub);
        for at in 0..self.seats.len() {
            let seat = &self.seats[at];
            let host = Hub::host_of(seat.life);
            // Nobody there looks at anything.
            if seat.vacant || hub.hosts.is_still(host, hub.now) {
                continue;
            }
            if let Some(what) = self.disagreement(seat, hub) {
                return hub.fail(what);
            }
            let mut recalled = std::mem::take(&mut self.seats[at].recalled);
            let what = self.unconfirmed(&self.seats[at], &mut recalled, hub);
            self.seats[at].recalled = recalled;
            if let Some(what) = what {
                return hub.fail(what);
            }
            let seat = &self.seats[at];
            let (lapses, counts) = {
                let leases = &seat.shared.borrow().leases;
                (leases.lapses(), leases.counts())
            };
            if lapses > std::mem::replace(&mut self.seats[at].lapses, lapses) {
                hub.coverage.hit("leases of a mount lapsed");
            }
            let before = std::mem::replace(&mut self.seats[at].leases, counts);
            if counts.given_back > before.given_back {
                hub.coverage.hit("a lease that was wanted back was given back");
            }
            if counts.kept > before.kept {
                hub.coverage.hit("a lease that was wanted back was kept for its names");
            }
        }
    }

    fn look_at_servers(&self, hub: &mut Hub) {
        for metad in &self.metads {
            let Some(server) = metad.server() else { continue };
            let counts = server.lease_counts();
            if counts.broken > 0 {
                let what =
                    format!("node {} changed by itself what {} leases cover", metad.node, counts.broken);
                return hub.fail(what);
            }
            if counts.recalls > 0 {
                hub.coverage.hit("a lease was being taken back");
            }
            if counts.busy > 0 {
                hub.coverage.hit("an inode was lent to nobody for a while");
            }
            if server.held_looks() > 0 {
                hub.coverage.hit("a file was looked at, and held on");
            }
            if counts.passed_over > 0 {
                hub.coverage.hit("a silent holder was passed over");
            }
            if server.shards().any(|shard| server.holds_changes(shard)) {
                hub.coverage.hit("changes waited for what an earlier term had lent");
            }
        }
    }

    /// A recall that a mount does not confirm, though it asks there, and nothing is in its way. (Where the answer was lost that
    /// lent it, the mount does not know that it has something to hear: it is passed over. What it has to tell is no reason to
    /// ask at once: nobody rings for that.)
    fn unconfirmed(&self, seat: &Seat, recalled: &mut Recalled, hub: &Hub) -> Option<String> {
        // At the very end nobody hears any more.
        let is_calm = self.calm_at.is_some_and(|at| hub.now > at + CALM_FOR_MS) && !hub.lending.over;
        let client = seat.shared.borrow().session.open().filter(|_| is_calm)?.client;
        let asks = seat.shared.borrow().nodes_to_hear();
        for metad in &self.metads {
            let oldest = metad.server().and_then(|server| server.oldest_recall(client));
            let Some(out) = oldest.filter(|_| asks.contains(&metad.node)) else {
                recalled.remove(&metad.node);
                continue;
            };
            let (known, since) = recalled.entry(metad.node).or_insert((out, hub.now));
            if *known != out {
                (*known, *since) = (out, hub.now);
            }
            let ms = hub.now - *since;
            if ms > CONFIRMED_MS {
                let (life, node) = (seat.life, metad.node);
                return Some(format!("life {life} has not confirmed a recall of node {node} for {ms} ms"));
            }
        }
        None
    }

    /// Something that a mount believes in, and a shard that serves does not know of.
    fn disagreement(&self, seat: &Seat, hub: &Hub) -> Option<String> {
        let shared = seat.shared.borrow();
        let client = shared.session.open()?.client;
        let boot = skep_types::Millis(hub.hosts.boot(Hub::host_of(seat.life), hub.now));
        for (ino, number, term) in shared.leases.believed(boot) {
            let servers = self.metads.iter().filter_map(|metad| Some((metad, metad.server()?)));
            for (metad, server) in servers {
                let node = metad.node;
                // Of a directory that its own mount has removed nothing is told, and nobody changes anything of it.
                let is_gone = || metad.row_of(ino).is_none_or(|row| row.nlink == 0);
                if server.serves(ino.shard()) && !server.knows_lease(client, ino, number) && !is_gone() {
                    return Some(format!(
                        "the mount in life {} (client {client}) believes in lease {number} on {ino} (inode {}) of term \
                         {term}, of which node {node} knows nothing",
                        seat.life, ino.0
                    ));
                }
            }
        }
        None
    }

    /// Do changes wait somewhere for leases to be over?
    pub(super) fn holds_changes(&self) -> bool {
        let waits = |server: &skep_meta::Group<_>| {
            server.lease_counts().recalls > 0 || server.shards().any(|shard| server.holds_changes(shard))
        };
        self.metads.iter().filter_map(|metad| metad.server()).any(waits)
    }

    /// What befalls who hears recalls.
    pub(super) fn disturb_recalls(&mut self) {
        let life = self.some_life();
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        if let Some(until) = hub.disturb_recalls(life, self.mood.calm_at) {
            self.wake_those(|lane| is_hearer(lane) && lane.life == life, until, hub);
        }
    }
}

/// Does this lane do nothing but hear recalls?
pub fn is_hearer(lane: &LaneId) -> bool {
    (HEARERS..TELLER).contains(&(lane.lane as usize))
}

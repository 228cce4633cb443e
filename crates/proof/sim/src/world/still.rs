//! Who stands still: a mount, whose kernel goes on; a whole host, asleep or not run. And who is left when a mount is killed.

use super::seats::LOOKER;
use super::{World, is_hearer};
use crate::clocks::Still;
use crate::hub::{HOSTS, Hub, LaneId};
use crate::queue::Event;

/// Half of them stand still for no longer than this, in milliseconds: less than anybody waits for.
const SHORT_MS: u64 = 3_000;
/// The others may do so until their sessions are over.
const LONG_MS: u64 = 12_000;

impl World {
    /// Does nothing run in this lane?
    pub(super) fn is_frozen(&self, lane: LaneId) -> bool {
        let hub = self.hub.borrow();
        hub.hosts.is_still(Hub::host_of(lane.life), hub.now)
            || (lane.lane != LOOKER as u32 && hub.is_stopped(lane.life))
            || (is_hearer(&lane) && hub.lending.is_deaf(lane.life, hub.now))
    }

    /// A mount stops, or its host, for a moment or for so long that its session ends; it goes on then.
    pub(super) fn freeze_a_client(&mut self) {
        let at = self.draw(self.seats.len() as u64) as usize;
        let ms = if self.draw(2) == 0 { 50 + self.draw(SHORT_MS) } else { 500 + self.draw(LONG_MS) };
        if self.seats[at].vacant {
            return;
        }
        let (life, until, how) = (self.seats[at].life, self.now() + ms, self.draw(4));
        match how {
            0 => self.host_stands_still(Hub::host_of(life), Still::Asleep, until),
            1 => self.host_stands_still(Hub::host_of(life), Still::Stopped, until),
            _ => self.mount_stands_still(life, ms),
        }
    }

    fn mount_stands_still(&mut self, life: u32, ms: u64) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        let until = hub.now + ms;
        hub.say(format_args!("the client in life {life} stops for {ms} ms"));
        hub.stopped.insert(life, until);
        self.wake_those(|lane| lane.life == life, until, hub);
    }

    /// The mount that a program would have stand still.
    pub(super) fn stop_asked(&mut self) {
        let stops = self.hub.borrow_mut().pieces.stops.take();
        if let Some((life, ms)) = stops.filter(|_| self.calm_at.is_none()) {
            self.mount_stands_still(life, ms);
        }
    }

    fn host_stands_still(&mut self, host: usize, how: Still, until: u64) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        if hub.hosts.stand_still(host, how, hub.now, until) {
            hub.say(format_args!("host {host} is {how:?} until {until}"));
            hub.coverage.hit(match how {
                Still::Asleep => "a host slept",
                Still::Stopped => "a host was not run",
            });
            self.queue.at(until, &mut hub.rng, Event::GoOn(host));
        }
    }

    /// A host goes on, if it is time.
    pub(super) fn host_goes_on(&mut self, host: usize) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        if hub.hosts.is_still(host, hub.now) {
            return;
        }
        self.host_wakes(host, hub);
        let (mono, boot) = (hub.mono(host), hub.hosts.boot(host, hub.now));
        hub.say(format_args!("host {host} goes on: its clocks show {mono:?} and, with sleep, {boot}"));
        self.wake_those(|lane| Hub::host_of(lane.life) == host, hub.now, hub);
    }

    fn host_wakes(&self, host: usize, hub: &mut Hub) {
        hub.hosts.go_on(host, hub.now);
        let slept = hub.hosts.slept(host);
        if slept > hub.slept[host] {
            hub.slept[host] = slept;
            hub.kernels
                .iter_mut()
                .filter(|(life, _)| Hub::host_of(**life) == host)
                .for_each(|(_, k)| k.slept());
            for seat in self.seats.iter().filter(|seat| !seat.vacant && Hub::host_of(seat.life) == host) {
                seat.shared.borrow_mut().all_lapses(false);
                hub.ring(seat.life);
            }
        }
    }

    pub(super) fn wake_those(&mut self, which: impl Fn(&LaneId) -> bool, at: u64, hub: &mut Hub) {
        for lane in self.tasks.keys().filter(|lane| which(lane)) {
            self.queue.at(at, &mut hub.rng, Event::Wake(*lane));
        }
    }

    /// Nobody stands still any more.
    pub(super) fn thaw_all(&mut self) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        hub.stopped.clear();
        hub.lending.heal();
        for host in 0..HOSTS {
            self.host_wakes(host, hub);
        }
        self.wake_those(|_| true, hub.now, hub);
    }

    /// A mount is killed: its kernel goes on, and a program above it.
    pub(super) fn leave_the_kernel(&mut self, life: u32) {
        let survivor = LaneId { life, lane: LOOKER as u32 };
        self.tasks.retain(|id, task| id.life != life || (*id == survivor && !task.done));
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        match hub.kernels.get_mut(&life) {
            Some(kernel) if self.tasks.contains_key(&survivor) => kernel.ends(survivor),
            _ => {
                hub.kernels.remove(&life);
                self.tasks.remove(&survivor);
            }
        }
        self.wake_those(|lane| *lane == survivor, hub.now, hub);
    }
}

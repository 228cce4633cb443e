//! Chaos: what goes wrong, and when it ends.

use super::World;
use crate::Canary;
use crate::deeds::Theme;
use crate::hub::{HOSTS, Hub};
use crate::moments::{Moment, STICKS_MS};
use crate::network::{Weather, side_of_node};
use crate::queue::Event;
use skep_client::MGMTD;
use skep_meta::Group;
use skep_meta::store::MemoryStore;
use skep_types::{Millis, NodeId, ShardId, Term};
use skep_wire::mgmt::ShardState;
use skep_wire::storage::ShardTerm;
use std::collections::BTreeSet;

/// Of a thousand writes to chunk files so many are held up, in seeds that are about that.
const LATE_WRITES: u64 = 500;
/// Of a thousand truncates of chunk files so many arrive when their server has given up, in seeds that are about that.
const LATE_TRIMS: u64 = 300;
/// Of a thousand messages of servers so many come twice, in seeds that are about that.
const TWICE: u64 = 300;
/// Earliest end of chaos, in milliseconds.
const CALM_MIN: u64 = 12_000;
/// Latest end of chaos.
const CALM_MAX: u64 = 30_000;
/// The most that a wall clock is wrong after a jump, in milliseconds.
const JUMP_MAX: u64 = 20_000;

/// Mishaps that have to do with older copies of directories.
const BACKUPS: std::ops::RangeInclusive<u8> = 19..=21;
/// The mishap of who hears recalls, and how often it comes in seeds that are about that.
const RECALLS: u8 = 23;
const OFTEN: u64 = 60;
/// The mishap of connections that stick.
const STICKS: u8 = 24;
/// Longest time for which a disk is nearly full, in milliseconds.
const LOW_MAX: u64 = 5_000;
/// Looks for a request at work before a client's connections end.
const END_LOOKS: u32 = 100;
/// Milliseconds between them.
const END_LOOK_MS: u64 = 3;

/// What this seed is like.
#[derive(Debug)]
pub struct Mood {
    /// End of chaos.
    pub calm_at: u64,
    /// Deaths of metad between append and reply, of a thousand inputs that changed something.
    pub dies_before_reply: u64,
    /// Metadata servers that die are deposed: they live, and what they have sent arrives late.
    pub deposes: bool,
    /// Shards go over two servers while the first is down, and mgmtd is put back from before that.
    detours: bool,
    /// Longest pause between two mishaps.
    pause_max: u64,
    /// Mishaps by number, each as often as it stands here.
    deck: Vec<u8>,
    weather: Weather,
}

impl Mood {
    pub fn draw(seed: u64, hub: &mut Hub) -> Self {
        let rng = &mut hub.rng;
        let mut deck = Vec::new();
        for mishap in 0..=22 {
            // Some seeds never see a certain mishap, others see little else. Few have to do with backups, for mgmtd is away
            // then, and little else happens.
            let times = if BACKUPS.contains(&mishap) {
                rng.pick(&[0, 0, 0, 1, 2])
            } else {
                rng.pick(&[0, 1, 1, 2, 4])
            };
            deck.extend((0..times).map(|_| mishap));
        }
        if hub.lending.on {
            let times = rng.pick(&[1, 4, 12]);
            let times = if hub.lending.moment == Some(Moment::LastAnswer) { OFTEN } else { times };
            deck.extend((0..times).map(|_| RECALLS));
        }
        if hub.lending.holds {
            deck.extend((0..rng.pick(&[0, 1, 2, 4])).map(|_| STICKS));
        }
        deck.push(1);
        if hub.deeds.theme == Theme::Histories {
            // metad loses its power.
            deck.extend([1; 8]);
        }
        if hub.deeds.theme == Theme::Syncs {
            // Storage loses its power.
            deck.extend([4; 12]);
        }
        if matches!(hub.deeds.theme, Theme::Names | Theme::Pages | Theme::Histories) {
            // Clients are killed, and stand still.
            deck.extend([10, 11, 11].repeat(4));
        }
        if seed.is_multiple_of(3) || hub.drawn_for == Some(Canary::RenewsForAShardThatLeft) {
            // Shards do not stay where they are for long.
            deck.extend([15; 8]);
        }
        // With three metadata servers.
        let detours = matches!(seed % 24, 5 | 10);
        if detours {
            deck.extend([15; 8]);
        }
        if hub.drawn_for == Some(Canary::TrustsAnOldCopy) {
            deck.extend([5, 19, 19, 19].repeat(4));
        }
        let skew = rng.pick(&[0, 0, 20, 2_000]);
        let skews = [(); HOSTS].map(|()| rng.below(2 * skew + 1) as i64 - skew as i64);
        let weather = Weather {
            lose_request: rng.pick(&[0, 2, 10, 30]),
            lose_reply: rng.pick(&[0, 2, 10, 30]),
            late: rng.pick(&[0, 2, 10, 30]),
            hold_up: rng.pick(&[0, 5, 50]),
            twice: match hub.deeds.theme {
                Theme::Afar => TWICE,
                _ => rng.pick(&[0, 10, 50]),
            },
            hold_up_writes: if hub.deeds.theme == Theme::LateWrites { LATE_WRITES } else { 0 },
            late_trims: if hub.deeds.theme == Theme::LateTrims { LATE_TRIMS } else { 0 },
        };
        let mood = Self {
            calm_at: CALM_MIN + rng.below(CALM_MAX - CALM_MIN),
            dies_before_reply: rng.pick(&[0, 0, 1, 5]),
            deposes: seed.is_multiple_of(4) || hub.drawn_for == Some(Canary::OldTermsTrim),
            detours,
            pause_max: rng.pick(&[800, 2_000, 5_000]),
            deck,
            weather,
        };
        for (host, shift) in skews.into_iter().enumerate() {
            hub.set_clock(host, shift);
        }
        mood
    }

    /// Milliseconds to the next mishap.
    pub fn pause(&self, hub: &mut Hub) -> u64 {
        100 + hub.rng.below(self.pause_max)
    }
}

impl World {
    /// The next mishap.
    pub(super) fn mishap(&mut self) {
        if self.calm_at.is_some() {
            return;
        }
        let (number, pause) = {
            let hub = &mut *self.hub.borrow_mut();
            (hub.rng.pick(&self.mood.deck), self.mood.pause(hub))
        };
        match number {
            0 => {
                let node = self.some_metad();
                self.strike(node, false);
            }
            1 | 2 => {
                let node = self.some_metad();
                self.strike(node, true);
            }
            3 => {
                let node = self.some_storaged();
                self.strike(node, false);
            }
            4 => {
                let node = self.some_storaged();
                self.strike(node, true);
            }
            5 => self.strike(MGMTD, false),
            6 => self.partition_client(),
            7 => self.partition_daemon(),
            8 => self.jump(),
            9 => self.change_weather(),
            10 => self.kill_a_client(),
            11 => self.freeze_a_client(),
            12 => self.restart_a_term(),
            13 => self.overtake_a_term(),
            14 => self.end_connections(END_LOOKS),
            15 => self.move_a_shard(),
            16 => self.fill_a_disk(),
            17 => self.block_a_way(),
            18 => self.mislay_rows(),
            19 => self.mix_up_mgmtd(),
            20 => self.restore_mgmtd(),
            21 => self.restore_a_metad(),
            22 => self.blackout(),
            STICKS => self.stick_a_connection(),
            _ => self.disturb_recalls(),
        }
        self.after(pause, Event::Mishap);
    }

    pub(super) fn draw(&mut self, n: u64) -> u64 {
        self.hub.borrow_mut().rng.below(n)
    }

    /// All metadata servers lose their power because a program asked for it.
    pub(super) fn provoked(&mut self) {
        if self.calm_at.is_none() {
            self.strike_metads();
        }
    }

    fn strike_metads(&mut self) {
        let mut processes = BTreeSet::new();
        let firsts = self.metads.iter().filter(|metad| processes.insert(metad.process));
        for node in firsts.map(|metad| metad.node).collect::<Vec<_>>() {
            self.strike(node, true);
        }
    }

    pub(super) fn some_metad(&mut self) -> NodeId {
        let number = self.draw(self.metads.len() as u64) as usize;
        self.metads[number].node
    }

    fn some_storaged(&mut self) -> NodeId {
        let number = self.draw(self.storageds.len() as u64) as usize;
        self.storageds[number].node
    }

    /// mgmtd gives a shard to another metad, perhaps while it is still on its way to one.
    fn move_a_shard(&mut self) {
        if self.mood.detours && self.network.life(MGMTD).is_some() && self.begin_detour() {
            return;
        }
        let (node, shards) = (self.some_metad(), self.mgmtd.state().shards.len() as u64);
        let shard = ShardId(self.draw(shards) as u16);
        if self.network.life(MGMTD).is_none() || !self.may_give() {
            return;
        }
        let hub = &mut *self.hub.borrow_mut();
        if self.mgmtd.give_shard(shard, node, hub) {
            hub.coverage.hit("a shard was given to another metad");
        }
    }

    /// One shard's term ends and the next begins, on the same server and beside shards that go on.
    fn restart_a_term(&mut self) {
        let node = self.some_metad();
        let Some(at) = self.metad_at(node) else { return };
        let served =
            |server: &Group<MemoryStore>| server.shards().filter(|shard| server.has_term(*shard)).collect();
        let shards: Vec<_> = self.metads[at].server().map(served).unwrap_or_default();
        if shards.is_empty() {
            return;
        }
        let shard = shards[self.draw(shards.len() as u64) as usize];
        self.end_term_of(node, shard);
    }

    /// The term of a shard is to end.
    pub(super) fn end_asked_term(&mut self) {
        let ends = self.hub.borrow_mut().term_ends.take();
        if let Some((node, shard)) = ends {
            self.end_term_of(node, shard);
        }
    }

    /// The term of this shard ends, and the next begins. `false`: its server is down.
    pub(super) fn end_term_of(&mut self, node: NodeId, shard: ShardId) -> bool {
        let (Some(at), Some(life)) = (self.metad_at(node), self.network.life(node)) else { return false };
        let out = {
            let hub = &mut *self.hub.borrow_mut();
            hub.say(format_args!("node {node}: the term of shard {shard} ends"));
            hub.coverage.hit("a term of one shard ended alone");
            hub.fields.metad_lives += 1;
            self.metads[at].restart_term(shard, hub)
        };
        self.carry_out(at, life, out);
        true
    }

    /// A target hears of a later term of a shard than the one in force, as if another server had spoken for it, and no map
    /// says so: the shard must go on behind it.
    fn overtake_a_term(&mut self) {
        let node = self.some_metad();
        let Some(at) = self.metad_at(node) else { return };
        let standing = |server: &Group<MemoryStore>| {
            server.shards().filter_map(|shard| Some((shard, server.standing(shard)?))).collect::<Vec<_>>()
        };
        let shards = self.metads[at].server().map(standing).unwrap_or_default();
        if shards.is_empty() {
            return;
        }
        let (shard, stamp) = shards[self.draw(shards.len() as u64) as usize].clone();
        let ahead = [1, 3, 1 << 20][self.draw(3) as usize];
        let storaged = self.draw(self.storageds.len() as u64) as usize;
        let storaged = &mut self.storageds[storaged];
        let by = ShardTerm { shard, term: Term(stamp.term.0 + ahead) };
        let targets: Vec<_> = storaged.capacities(Millis(0)).map(|(target, _)| target).collect();
        targets.into_iter().for_each(|target| storaged.hear(target, by));
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("node {} hears of term {} of shard {shard}", storaged.node, by.term));
        hub.coverage.hit("a target heard of a later term");
    }

    /// Every server loses its power at once.
    fn blackout(&mut self) {
        let nodes: Vec<NodeId> = self.storageds.iter().map(|storaged| storaged.node).collect();
        for node in nodes {
            self.strike(node, true);
        }
        self.strike_metads();
        self.strike(MGMTD, false);
    }

    /// Transactions find little room at one metadata server for a while.
    fn fill_a_disk(&mut self) {
        let node = self.some_metad();
        let until = self.now() + 500 + self.draw(LOW_MAX);
        self.hub.borrow_mut().say(format_args!("node {node} has little room until {until}"));
        self.low_until.insert(node, until);
    }

    /// A metadata server is killed and starts without the rows of a shard, which it must not make anew.
    fn mislay_rows(&mut self) {
        let node = self.some_metad();
        let Some(at) = self.metad_at(node) else { return };
        let led = self.mgmtd.state().shards.iter().filter(|entry| entry.is_led_by(node));
        let used: Vec<_> =
            led.filter(|entry| entry.state == ShardState::Active).map(|entry| entry.shard).collect();
        let Some(rows) = self.metads[at].whole_rows().filter(|_| !used.is_empty()) else { return };
        let shard = used[self.draw(used.len() as u64) as usize];
        self.hub.borrow_mut().say(format_args!("node {node} is to start without the rows of shard {shard}"));
        self.strike(node, false);
        self.metads[at].mislay(rows, shard);
    }

    /// What a client has to a metadata server ends, and the server hears of it at once: when it hurts, if that comes soon.
    pub(super) fn end_connections(&mut self, looks: u32) {
        if self.calm_at.is_some() {
            return;
        }
        let mut found = self.network.clients_at_work();
        if found.is_empty() && looks > 0 {
            return self.after(END_LOOK_MS, Event::EndConnections(looks - 1));
        }
        found.push((self.some_life(), self.some_metad()));
        let (life, node) = found[self.draw(found.len() as u64) as usize];
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        hub.say(format_args!("the connections of life {life} to node {node} end"));
        hub.coverage.hit("the connections of a client ended");
        for call in self.network.end_client(life, node, hub, &mut self.queue) {
            self.gone(node, call, hub);
        }
    }

    fn partition_client(&mut self) {
        let life = self.some_life();
        let nodes = self.servers();
        let node = nodes[self.draw(nodes.len() as u64) as usize];
        self.partition(life, side_of_node(node));
    }

    /// What a client sends to a server, to all targets or to all servers is held back.
    fn stick_a_connection(&mut self) {
        let (life, how) = (self.some_life(), self.draw(4));
        let all = match how {
            0 => self.servers(),
            _ => self.storageds.iter().map(|storaged| storaged.node).collect(),
        };
        let nodes = if how < 2 { all } else { vec![all[self.draw(all.len() as u64) as usize]] };
        let ms = STICKS_MS.0 + self.draw(STICKS_MS.1 - STICKS_MS.0);
        let hub = &mut *self.hub.borrow_mut();
        let until = (hub.now + ms).min(hub.calm_from);
        self.network.stick(life, &nodes, until, hub);
    }

    fn partition_daemon(&mut self) {
        let from = match self.draw(2) {
            0 => self.some_metad(),
            _ => self.storageds[0].node,
        };
        let to = match self.draw(3) {
            0 => MGMTD,
            1 => self.storageds[1].node,
            _ => self.some_metad(),
        };
        self.partition(side_of_node(from), side_of_node(to));
    }

    fn partition(&mut self, side: u32, other: u32) {
        let until = self.now() + 200 + self.draw(4_000);
        let hub = &mut *self.hub.borrow_mut();
        hub.coverage.hit("a partition");
        hub.say(format_args!("sides {side} and {other} are apart until {until}"));
        self.network.block(side, other, until);
        self.network.block(other, side, until);
    }

    /// What one says does not reach the other, which is heard.
    fn block_a_way(&mut self) {
        let nodes = self.servers();
        let node = side_of_node(nodes[self.draw(nodes.len() as u64) as usize]);
        let other = match self.draw(2) {
            0 => self.some_life(),
            _ => side_of_node(nodes[self.draw(nodes.len() as u64) as usize]),
        };
        let (from, to) = if self.draw(2) == 0 { (node, other) } else { (other, node) };
        let until = self.now() + 200 + self.draw(4_000);
        self.network.block(from, to, until);
        let hub = &mut *self.hub.borrow_mut();
        hub.coverage.hit("a one-way partition");
        hub.say(format_args!("nothing passes from side {from} to side {to} until {until}"));
    }

    fn jump(&mut self) {
        let to = self.draw(2 * JUMP_MAX) as i64 - JUMP_MAX as i64;
        let host = self.draw(HOSTS as u64) as usize;
        let hub = &mut *self.hub.borrow_mut();
        hub.coverage.hit("a clock jump");
        hub.say(format_args!("the wall clock of host {host} jumps to {to} ms from the right time"));
        hub.set_clock(host, to);
    }

    fn change_weather(&mut self) {
        let fair = self.draw(3) == 0;
        self.network.weather = if fair { Weather::default() } else { self.mood.weather };
        self.hub.borrow_mut().say(format_args!("weather: {:?}", self.network.weather));
    }

    /// Chaos is over: everything must heal.
    pub(super) fn calm(&mut self) {
        self.calm_at = Some(self.now());
        {
            let hub = &mut *self.hub.borrow_mut();
            hub.calm = true;
            hub.say(format_args!("all is calm from here on"));
        }
        self.network.heal();
        self.thaw_all();
        self.put_mgmtd_right();
        for node in self.servers() {
            self.start_daemon(node);
        }
    }
}

//! Programs that make files and write them in small pieces, in order, for less and more than a second; while other programs
//! look at them now and then, and change them. Their mounts are killed meanwhile, stand still, or lose their sessions.

use crate::gathered::{has_run, stays_how};
use crate::hub::{Hub, LaneId};
use crate::moments::Moment;
use crate::pieced::{Change, Pieced};
use crate::program::{Actor, Failed, session_of};
use crate::turns::BOTH;
use skep_client::state::Inode;
use skep_client::{CreateHow, NewNode, Port, RenameHow, WriteHow};
use skep_types::limits::CHUNK_MIN;
use skep_types::{ClientId, Errno, Ino, Kind, Policy, PoolId, SetAttr};
use std::collections::BTreeMap;
use std::rc::Rc;

mod looks;

/// Files at a time.
const FILES: usize = 3;
/// Of a hundred things that its maker does with one so many are no writes; where seeds are about such files fewer, for most of
/// them end what is held.
const ASIDE: u64 = 14;
const FEW_ASIDE: u64 = 6;
/// Of a hundred writes of others so many are appends.
const OTHERS_APPEND: u64 = 25;
/// Bytes of a piece.
const PIECES: [usize; 6] = [100, 500, 700, 2_000, 4_096, 6_000];
/// Pieces that are written one after the other.
const BURST: u64 = 24;
/// Longest pauses between them, in milliseconds: some bursts take longer than files are held without a word.
const PAUSES_MS: [u64; 4] = [2, 20, 60, 150];
/// Who has so many bytes closes it.
const BYTES_MAX: usize = 160_000;
/// Where it is about that, of a hundred writes that stay with a mount so many have it stand still.
const STOPS: u64 = 15;
/// Looks at a file that changes no more, or of which something may be lost.
const LAST_LOOKS: u32 = 8;
/// For so long others look at a file whose mount stands still, in milliseconds.
const EYED_MS: u64 = 3_000;
/// Where seeds are about such files, of a hundred times that others would look so many do not: what is looked at is held no longer.
const SELDOM: u64 = 80;
/// Of a hundred bursts of a file that is held no longer so many end with its close.
const CLOSED: u64 = 60;

/// All of them.
#[derive(Debug, Default)]
pub struct Pieces {
    files: [Option<Pieced>; FILES],
    /// The directory of each life of a client.
    dirs: BTreeMap<u32, Ino>,
    /// What lanes have open: the file, the handle, and the session.
    open: BTreeMap<(LaneId, usize), (Ino, u64, ClientId)>,
    /// One that is worth a look, and until when.
    eyed: Option<(usize, u64)>,
    numbers: u64,
    /// The mount of this life is to stand still for so long.
    pub stops: Option<(u32, u64)>,
    /// What goes to the target of this file is to stick on its way.
    pub sticks: Option<Ino>,
    /// And this one is to be killed.
    pub kills: Option<u32>,
}

impl Pieces {
    /// A mount is gone.
    pub fn client_gone(&mut self, life: u32) {
        self.files.iter_mut().flatten().for_each(|file| file.client_gone(life));
        self.open.retain(|(lane, _), _| lane.life != life);
        self.dirs.remove(&life);
    }

    /// Is this a file that no program changes now? Then what goes to its target had waited for that.
    pub fn is_free(&self, ino: Ino) -> bool {
        self.files.iter().flatten().any(|file| file.ino == ino && !file.spoilt && file.turn.is_none())
    }

    /// Others look at this file until then.
    pub fn eyes(&mut self, ino: Ino, until: u64) {
        let at = self.files.iter().position(|file| file.as_ref().is_some_and(|file| file.ino == ino));
        self.eyed = at.map(|at| (at, until));
    }

    /// A lane has a file open to write it.
    pub fn opens(&mut self, by: (LaneId, usize), open: (Ino, u64, ClientId)) {
        self.open.insert(by, open);
    }

    /// The mount of this file was passed over as one that is not heard. `true`: something of it may be lost.
    pub fn is_passed(&mut self, ino: Ino) -> bool {
        let file = self.files.iter_mut().flatten().find(|file| file.ino == ino);
        file.is_some_and(Pieced::may_have_lost)
    }
}

/// What a piece of work is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub at: usize,
    pub ino: Ino,
    pub client: ClientId,
    pub own: bool,
}

/// What came of a turn.
#[derive(Debug, Clone)]
enum Done {
    /// A change; of a write that came half-way what of it is done.
    Changed(Option<Change>),
    /// A sync or a close.
    Promised,
}

/// What its mount does with a file, but for writing it.
#[derive(Debug, Clone, Copy)]
enum Aside {
    Read,
    Stat,
    Sync,
    SyncOther,
    Chmod,
    Cut,
    Rename,
    Close,
}

const ASIDES: [Aside; 12] = [
    Aside::Read,
    Aside::Read,
    Aside::Read,
    Aside::Stat,
    Aside::Stat,
    Aside::Sync,
    Aside::SyncOther,
    Aside::Chmod,
    Aside::Chmod,
    Aside::Cut,
    Aside::Rename,
    Aside::Close,
];

impl Actor {
    /// Something with one of the files.
    pub(crate) async fn use_pieces(&self) -> Result<(), Failed> {
        self.wait_while_dead().await;
        let Some(client) = session_of(&self.shared) else { return Ok(()) };
        let (at, known) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.at_step.insert(self.id, 0);
            let eyed = hub.pieces.eyed.filter(|(_, until)| hub.now < *until).map(|(at, _)| at);
            let at = eyed.unwrap_or(hub.rng.below(FILES as u64) as usize);
            let cuts = hub.cuts.len();
            let file = hub.pieces.files[at].as_mut().filter(|file| {
                let is_over = file.spoilt || file.cuts != cuts || file.last_looks > LAST_LOOKS;
                !is_over || file.turn.is_some()
            });
            (at, file.map(|file| (file.ino, file.life == self.id.life)))
        };
        self.close_gone_piece(at, known.map(|(ino, _)| ino)).await;
        match known {
            None => self.make_pieced(at, client).await,
            Some((ino, own)) => {
                let about = About { at, ino, client, own };
                let writes = own && self.hub.borrow().pieces.open.contains_key(&(self.id, at));
                if writes {
                    self.write_burst(about).await
                } else if self.only_looks(about).await? || self.watches(about).await? {
                    Ok(())
                } else if self.takes_up(about).await {
                    self.write_burst(About { own: true, ..about }).await
                } else {
                    self.look_or_change(about).await
                }
            }
        }
    }

    /// Gives back what the lane has open of another file than is there now.
    async fn close_gone_piece(&self, at: usize, now: Option<Ino>) {
        let gone = {
            let open = &mut self.hub.borrow_mut().pieces.open;
            let is_gone = open.get(&(self.id, at)).is_some_and(|(ino, ..)| Some(*ino) != now);
            if is_gone { open.remove(&(self.id, at)) } else { None }
        };
        if let Some((_, handle, _)) = gone {
            let _ = self.lane.flush(handle, 0).await;
            self.lane.release(handle).await;
        }
    }

    /// Gives back all.
    pub(crate) async fn close_pieces(&self) {
        for at in 0..FILES {
            self.close_gone_piece(at, None).await;
        }
    }

    async fn make_pieced(&self, at: usize, client: ClientId) -> Result<(), Failed> {
        let known = self.hub.borrow().pieces.dirs.get(&self.id.life).copied();
        let Some(dir) = (match known {
            Some(dir) => Some(dir),
            None => self.make_pieces_dir().await,
        }) else {
            return Ok(());
        };
        let (name, policy, cuts) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.pieces.numbers += 1;
            let inline_limit = match hub.is_about_pieces() {
                true => hub.rng.pick(&[None, Some(1_000)]),
                false => hub.rng.pick(&[None, None, None, Some(1_000)]),
            };
            let targets = hub.rng.pick(&[1, 3]);
            let policy = Policy { chunk_size: CHUNK_MIN, targets, inline_limit, pool: PoolId(0) };
            (format!("piece{:x}", hub.pieces.numbers), policy, hub.cuts.len())
        };
        let create =
            CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy: Some(policy) };
        let opened = match self.lane.create(dir, name.as_bytes(), create, BOTH).await {
            Ok(opened) => opened,
            Err(_) => {
                // Perhaps a power cut took it.
                self.hub.borrow_mut().pieces.dirs.remove(&self.id.life);
                return Ok(());
            }
        };
        let ino = opened.attr.ino;
        let is_first = {
            let hub = &mut *self.hub.borrow_mut();
            let is_free = hub.pieces.files[at].as_ref().is_none_or(|file| {
                file.turn.is_none() && (file.spoilt || file.cuts != cuts || file.last_looks > LAST_LOOKS)
            });
            let is_first = is_free && hub.cuts.len() == cuts && session_of(&self.shared) == Some(client);
            if is_first {
                hub.say(format_args!("{} writes {name}, inode {}, in pieces, as file {at}", self.id, ino.0));
                let new = Pieced::new(ino, (dir, name), (self.id.life, client), cuts);
                hub.pieces.files[at] = Some(new);
                hub.pieces.open.insert((self.id, at), (ino, opened.handle, client));
            }
            is_first
        };
        if !is_first {
            self.lane.release(opened.handle).await;
            return Ok(());
        }
        self.write_burst(About { at, ino, client, own: true }).await
    }

    async fn make_pieces_dir(&self) -> Option<Ino> {
        let (name, is_near) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.pieces.numbers += 1;
            (format!("pieces{:x}", hub.pieces.numbers), hub.rng.percent(50))
        };
        let new = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let made = match is_near {
            true => self.lane.make_node(Ino::ROOT, name.as_bytes(), new).await.ok()?.ino,
            false => {
                let made = self.lane.make_dir_on(Ino::ROOT, name.as_bytes(), 0o755, (0, 0), self.shard).await;
                made.ok()?.ino
            }
        };
        self.hub.borrow_mut().pieces.dirs.insert(self.id.life, made);
        Some(made)
    }

    /// With the file of this name.
    pub(crate) fn with_pieced<T>(
        &self,
        about: About,
        with: impl FnOnce(&mut Pieced, &mut Hub) -> T,
    ) -> Option<T> {
        let hub = &mut *self.hub.borrow_mut();
        let is_it = |file: &Pieced| file.ino == about.ino;
        let mut file = hub.pieces.files[about.at].take_if(|file| is_it(file))?;
        let done = with(&mut file, hub);
        hub.pieces.files[about.at] = Some(file);
        Some(done)
    }

    /// Is what this lane was answered said of the file as it is, by a session that lives?
    pub(crate) fn is_of_file(&self, about: About, file: &mut Pieced, hub: &Hub) -> bool {
        let lives = |client: ClientId| hub.fields.living.contains(&client);
        if !lives(file.client) {
            file.may_have_lost();
        }
        file.spoilt |= file.cuts != hub.cuts.len();
        !file.spoilt && session_of(&self.shared) == Some(about.client) && lives(about.client)
    }

    /// A lane's turn begins, with a change or without. `false`: another one has it, or it is over with the file.
    pub(crate) fn begins_turn(&self, about: About, change: Option<Change>) -> bool {
        let begins = self.with_pieced(about, |file, hub| {
            let is_free = file.turn.is_none() && !file.spoilt && file.cuts == hub.cuts.len();
            if is_free {
                file.turn = Some(self.id);
                change.into_iter().for_each(|change| file.begins(change, about.own));
            }
            is_free
        });
        begins == Some(true)
    }

    /// And ends. Of a write that came half-way: what of it is done.
    fn ends_turn(&self, about: About, what: &str, done: Result<Done, Errno>) -> Result<(), Failed> {
        let (bytes, mode) = self.shared.borrow().inodes.get(about.ino).map_or((true, true), is_put);
        let wrong = self.with_pieced(about, |file, hub| {
            file.turn = None;
            hub.say(format_args!("{} is told {done:?} of {what}, inode {}", self.id, about.ino.0));
            let counts = self.is_of_file(about, file, hub);
            let is_excused = !counts || !hub.cuts.is_empty() || hub.was_evicted(self.id.life);
            let was_in_doubt = file.is_in_doubt();
            match &done {
                Ok(Done::Changed(as_done)) => file.ended(counts, as_done.clone()),
                Ok(Done::Promised) if counts => file.is_promised(),
                Ok(Done::Promised) => {}
                Err(_) => file.ended(false, None),
            }
            match done {
                Ok(_) => {
                    if about.own && counts {
                        file.is_put(bytes, mode);
                    }
                    None
                }
                Err(errno) => {
                    file.is_said();
                    let is_wrong = !was_in_doubt && !is_excused;
                    is_wrong.then(|| format!("{what} gives {errno}, but nothing was lost"))
                }
            }
        });
        match wrong.flatten() {
            Some(wrong) => self.fail(format!("inode {} written in pieces: {wrong}", about.ino.0)),
            None => Ok(()),
        }
    }

    /// Pieces, one after the other, and other things now and then.
    async fn write_burst(&self, about: About) -> Result<(), Failed> {
        let (rounds, pause) = {
            let rng = &mut self.hub.borrow_mut().rng;
            (1 + rng.below(BURST), rng.pick(&PAUSES_MS))
        };
        for _ in 0..rounds {
            let pause = self.hub.borrow_mut().rng.below(pause);
            self.lane.port().pause(pause).await;
            let open = self.hub.borrow().pieces.open.get(&(self.id, about.at)).copied();
            let is_same = session_of(&self.shared) == Some(about.client);
            let Some((_, handle, _)) =
                open.filter(|(ino, _, client)| (*ino, *client) == (about.ino, about.client) && is_same)
            else {
                return Ok(());
            };
            let aside = {
                let hub = &mut *self.hub.borrow_mut();
                let often = if hub.is_about_pieces() { FEW_ASIDE } else { ASIDE };
                hub.rng.percent(often).then(|| hub.rng.pick(&ASIDES))
            };
            match aside {
                Some(aside) => self.do_aside(about, handle, aside).await?,
                None => self.write_piece(about, handle).await?,
            }
        }
        self.befalls(about);
        // One that is held no longer makes room for another, now and then.
        let is_held = self.shared.borrow().inodes.get(about.ino).is_some_and(|inode| inode.hold.is_some());
        let open = {
            let hub = &mut *self.hub.borrow_mut();
            let ends = !is_held && hub.rng.percent(CLOSED);
            hub.pieces.open.get(&(self.id, about.at)).copied().filter(|(ino, ..)| ends && *ino == about.ino)
        };
        match open {
            Some((_, handle, _)) => self.do_aside(about, handle, Aside::Close).await,
            None => Ok(()),
        }
    }

    /// One piece: where the file ends, most times.
    pub(crate) async fn write_piece(&self, about: About, handle: u64) -> Result<(), Failed> {
        let drawn = self.with_pieced(about, |file, hub| {
            let len = file.len();
            let (piece, first) = (hub.rng.pick(&PIECES), 1 + hub.rng.below(250) as u8);
            let often = if about.own { 100 } else { OTHERS_APPEND };
            let appends = (file.appends || !about.own) && !file.is_in_doubt() && hub.rng.percent(often);
            let offset = match hub.rng.below(100) {
                _ if appends => len,
                _ if about.own && hub.rng.percent(85) => file.goes_on_at(),
                // What may not be where it belongs yet is worth to be changed.
                0..=59 => file.put() + hub.rng.below((len.saturating_sub(file.put()) + 1) as u64) as usize,
                60..=94 => hub.rng.below(len as u64 + 1) as usize,
                _ => len + hub.rng.below(3_000) as usize,
            };
            (offset, pattern(first, piece), len > BYTES_MAX, appends)
        });
        let Some((offset, data, is_long, append)) = drawn else { return Ok(()) };
        if is_long {
            // Whoever else has it open closes that handle himself.
            let writer =
                self.hub.borrow().pieces.open.get(&(self.id, about.at)).map(|(_, handle, _)| *handle);
            return match writer == Some(handle) {
                true => self.do_aside(about, handle, Aside::Close).await,
                false => Ok(()),
            };
        }
        let data = Rc::new(data);
        if !self.begins_turn(about, Some(Change::Write(offset, data.clone()))) {
            return Ok(());
        }
        let (how, term) = (WriteHow { append, ..WriteHow::default() }, self.term_of(about.ino));
        let written = self.lane.write(handle, offset as u64, &data, how).await;
        let done = written.map(|n| {
            let is_whole = n == data.len();
            Done::Changed((!is_whole).then(|| Change::Write(offset, Rc::new(data[..n].to_vec()))))
        });
        if self.shared.borrow().inodes.get(about.ino).is_some_and(has_run) {
            let hub = &mut *self.hub.borrow_mut();
            hub.coverage.hit(stays_how(&self.shared, about.ino));
            if hub.is_about(Moment::PassedOver) && !hub.calm && hub.rng.percent(STOPS) {
                hub.stands_still(self.id.life, about.at);
            } else {
                hub.may_stick(about.ino);
            }
        }
        self.hub.borrow_mut().coverage.hit(match (append, about.own) {
            (true, true) => "a piece was appended",
            (true, false) => "a piece was appended by another mount",
            (false, _) => "a piece was written",
        });
        let ended = self.ends_turn(about, &format!("{} bytes at {offset}", data.len()), done);
        if append {
            self.append_ended(about, term);
        }
        ended?;
        // What waits goes to its target, and sticks there.
        if self.hub.borrow_mut().is_to_stick(about.ino) {
            return self.look_at_pieced(about, Some(handle)).await;
        }
        Ok(())
    }

    async fn do_aside(&self, about: About, handle: u64, aside: Aside) -> Result<(), Failed> {
        match aside {
            Aside::Read => self.look_at_pieced(about, Some(handle)).await,
            Aside::Stat => self.stat_pieced(about).await,
            Aside::Sync => self.sync_pieced(about, handle).await,
            Aside::SyncOther => {
                let Ok(opened) = self.lane.open(about.ino, BOTH).await else { return Ok(()) };
                let synced = self.sync_pieced(about, opened.handle).await;
                self.lane.release(opened.handle).await;
                synced
            }
            Aside::Chmod | Aside::Cut => self.set_pieced(about, matches!(aside, Aside::Cut)).await,
            Aside::Rename => self.rename_pieced(about).await,
            Aside::Close => self.close_pieced(about, handle).await,
        }
    }

    async fn sync_pieced(&self, about: About, handle: u64) -> Result<(), Failed> {
        if !self.begins_turn(about, None) {
            return Ok(());
        }
        let synced = self.lane.fsync(handle).await.map(|()| Done::Promised);
        self.ends_turn(about, "fsync", synced)
    }

    async fn close_pieced(&self, about: About, handle: u64) -> Result<(), Failed> {
        if !self.begins_turn(about, None) {
            return Ok(());
        }
        self.hub.borrow_mut().pieces.open.remove(&(self.id, about.at));
        let flushed = self.lane.flush(handle, 0).await.map(|()| Done::Promised);
        self.lane.release(handle).await;
        self.with_pieced(about, |file, _| file.closed = true);
        self.ends_turn(about, "close", flushed)
    }

    /// Its size or mode.
    async fn set_pieced(&self, about: About, cuts: bool) -> Result<(), Failed> {
        let drawn = self.with_pieced(about, |file, hub| {
            // In the part that may not be where it belongs, or anywhere.
            let from = if hub.rng.percent(50) { file.put() } else { 0 };
            let size = from + hub.rng.below((file.len() + 100).saturating_sub(from).max(1) as u64) as usize;
            (size, 0o400 + hub.rng.below(0o400) as u32)
        });
        let Some((size, mode)) = drawn else { return Ok(()) };
        let (change, set) = match cuts {
            true => (Change::Cut(size), SetAttr { size: Some(size as u64), ..SetAttr::default() }),
            false => (Change::Mode(mode), SetAttr { mode: Some(mode), ..SetAttr::default() }),
        };
        if !self.begins_turn(about, Some(change)) {
            return Ok(());
        }
        let done = self.lane.setattr(about.ino, set).await.map(|_| Done::Changed(None));
        let what = if cuts { format!("cut to {size}") } else { format!("mode {mode:o}") };
        self.ends_turn(about, &what, done)
    }

    /// Another name in its directory, which says nothing of its content.
    async fn rename_pieced(&self, about: About) -> Result<(), Failed> {
        let Some((dir, name)) = self.with_pieced(about, |file, _| (file.dir, file.name.clone())) else {
            return Ok(());
        };
        let to = format!("{name}x");
        if !self.begins_turn(about, None) {
            return Ok(());
        }
        let moved = self.lane.rename(dir, name.as_bytes(), dir, to.as_bytes(), RenameHow::default()).await;
        self.with_pieced(about, |file, hub| {
            file.turn = None;
            hub.say(format_args!("{} is told {moved:?} of the rename of inode {}", self.id, about.ino.0));
            if moved.is_ok() {
                if !about.own {
                    hub.coverage.hit("another mount moved a file that is written in pieces");
                }
                file.name = to;
            }
        });
        Ok(())
    }

    /// Who has not made it looks, most times; or changes it, or syncs it through a handle of its own.
    async fn look_or_change(&self, about: About) -> Result<(), Failed> {
        let drawn = {
            let hub = &mut *self.hub.borrow_mut();
            let is_eyed = hub.pieces.eyed.is_some_and(|(at, until)| at == about.at && hub.now < until);
            let is_rare = hub.is_about_pieces() && !(hub.is_about(Moment::PassedOver) && is_eyed);
            if is_rare && (hub.is_about(Moment::Beside) || hub.rng.percent(SELDOM)) {
                return Ok(());
            }
            let is_in_doubt = hub.pieces.files[about.at].as_ref().is_some_and(Pieced::is_in_doubt);
            if is_in_doubt && hub.rng.percent(50) { 90 } else { hub.rng.below(100) }
        };
        match drawn {
            0..=39 => return self.look_at_pieced(about, None).await,
            40..=64 => return self.stat_pieced(about).await,
            65..=71 => return self.set_pieced(about, drawn < 68).await,
            72..=74 => return self.rename_pieced(about).await,
            _ => {}
        }
        let Ok(opened) = self.lane.open(about.ino, BOTH).await else { return Ok(()) };
        let done = match drawn {
            // Who has a file of another mount open is shown what was there then.
            75..=79 if about.own => self.look_at_pieced(about, Some(opened.handle)).await,
            80..=84 if about.own => self.sync_pieced(about, opened.handle).await,
            _ => self.write_piece(about, opened.handle).await,
        };
        let _ = self.lane.flush(opened.handle, 0).await;
        self.lane.release(opened.handle).await;
        done
    }

    /// What may befall the mount behind a burst.
    fn befalls(&self, about: About) {
        let hub = &mut *self.hub.borrow_mut();
        if hub.calm {
            return;
        }
        let life = self.id.life;
        let (stops, kills, evicts) = match hub.lending.moment {
            Some(Moment::PassedOver) => (10, 2, 1),
            Some(Moment::Gathering) => (3, 10, 5),
            _ => (2, 1, 1),
        };
        match hub.rng.below(100) {
            drawn if drawn < stops => hub.stands_still(life, about.at),
            drawn if drawn < stops + kills => hub.pieces.kills = Some(life),
            drawn if drawn < stops + kills + evicts => hub.evicts = hub.sessions.get(&life).copied(),
            _ => {}
        }
    }
}

impl Hub {
    fn is_about_pieces(&self) -> bool {
        self.lending.moment.is_some_and(Moment::is_of_pieces)
    }

    /// The mount of this life stands still for less or more than leases hold, and others look at what it has written.
    fn stands_still(&mut self, life: u32, at: usize) {
        let term = self.lending.most_ms;
        let ms = term / 2 + self.rng.below(2 * term);
        self.pieces.stops = Some((life, ms));
        self.pieces.eyed = Some((at, self.now + ms.max(EYED_MS)));
    }
}

/// Bytes that are not zero, each piece with others.
fn pattern(first: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| first.wrapping_add((at / 256) as u8).max(1)).collect()
}

/// Is nothing of its content with its mount only, nothing of its attributes?
fn is_put(inode: &Inode) -> (bool, bool) {
    (!has_run(inode) && inode.held_content().is_none(), !inode.has_news())
}

//! What lanes do in the directory of all: names that several want at once, and boxes that one lane
//! writes and all read. Whatever a lane is told must be true at some moment of its question.

use crate::Canary;
use crate::arena::{BOX, Names, Version};
use crate::drive::read;
use crate::moments::{ANY, Moment};
use crate::program::{Actor, Failed, session_of};
use crate::vfs::{Made, Vfs};
use skep_client::{CreateHow, NewNode, OpenHow, Opened, Port, RenameHow, WriteHow};
use skep_meta::Action;
use skep_model::Fill;
use skep_types::{ClientId, Errno, Ino, Kind, Mode, SetAttr, SetTime};
use skep_wire::meta::{MetaRequest, OpenMode};

/// Its name below the root.
pub const NAME: &[u8] = b"shared";
/// Names that lanes fight for.
pub const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
/// Lengths of what is put into boxes: in the metadata, one chunk, several.
const LENGTHS: [u32; 6] = [0, 700, 5_000, 20_000, 70_000, 200_000];
/// How slow a kernel is between its look and its create, at most, in milliseconds.
const SLOW_MS: [u64; 2] = [30, 150];
const PLAIN: OpenHow =
    OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };
/// Where there are leases, who was interrupted does nothing for so long at most, and so many of a hundred new files are
/// written, and kept open for so long at most, in milliseconds.
const INTERRUPTED_MS: u64 = 600;
const WRITTEN: u64 = 40;
const OPEN_MS: u64 = 250;
/// New files are changed so often at most while they are open; of so many draws six are a change.
const USES: u64 = 3;
const USES_ANY: u64 = 9;
/// What they are given then.
const NEW: &[u8] = b"new";
/// Steps here are numbered from this on, apart from those of the books.
pub const STEPS_FROM: u64 = 1 << 40;

/// Is what this command records the deed of that step? In front of a deed on its name, which may fail behind it, a lane tells of
/// a held file, and commits what it wrote.
pub fn is_of_deed(action: &Action, step: u64) -> bool {
    let is_before =
        |action| matches!(action, &Action::Request(MetaRequest::Tell(_) | MetaRequest::Commit(_)));
    step < STEPS_FROM || !is_before(action)
}

/// One question to the cluster.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Create(&'static [u8]),
    /// open(O_CREAT): one that is there is opened.
    Open(&'static [u8]),
    Mkdir(&'static [u8]),
    Unlink(&'static [u8]),
    Rmdir(&'static [u8]),
    Link(&'static [u8], &'static [u8]),
    Rename(&'static [u8], &'static [u8], RenameHow),
    Chmod(&'static [u8], Mode),
    Find(&'static [u8]),
    /// Opened, and read for a while.
    Read(&'static [u8]),
    /// With attributes, or without.
    List(bool),
}

/// What came of it.
#[derive(Debug)]
enum Told {
    Done,
    Found(Ino),
    Listed(Vec<Vec<u8>>),
}

impl Actor {
    /// Makes the directory, durable before anybody uses it.
    pub(crate) async fn make_shared(&self) {
        loop {
            let new = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
            let _ = self.lane.make_node(Ino::ROOT, NAME, new).await;
            let made = self.lane.lookup(Ino::ROOT, NAME).await;
            let synced = match self.lane.opendir(Ino::ROOT) {
                Ok(handle) => {
                    let synced = self.lane.fsyncdir(handle).await;
                    self.lane.releasedir(handle);
                    synced
                }
                Err(errno) => Err(errno),
            };
            let there = self.lane.lookup(Ino::ROOT, NAME).await;
            if let (Ok(made), Ok(there), Ok(())) = (made, there, synced)
                && made.ino == there.ino
            {
                let mut hub = self.hub.borrow_mut();
                let now = hub.now;
                hub.shared.begin(now, made.ino);
                return;
            }
            self.wait_while_dead().await;
            self.lane.port().pause(50).await;
        }
    }

    /// One deed among all the others.
    pub(crate) async fn together(&self) -> Result<(), Failed> {
        if self.hub.borrow().shared.dir.is_none() {
            return Ok(());
        }
        self.wait_while_dead().await;
        let kind = self.hub.borrow_mut().rng.below(10);
        match kind {
            0 | 1 => self.fill_box().await,
            2 | 3 => self.look_into_box().await,
            _ => self.fight().await,
        }
    }

    fn draw(&self) -> Deed {
        let hub = &mut *self.hub.borrow_mut();
        let (one, two) = (hub.rng.pick(&NAMES), hub.rng.pick(&NAMES));
        // Who comes between another one's look and its create has to be seen now and then.
        let now = hub.now;
        hub.shared.wanted.retain(|(until, _)| *until > now);
        if !hub.shared.wanted.is_empty() && hub.rng.percent(50) {
            return Deed::Create(hub.rng.pick(&hub.shared.wanted).1);
        }
        let kind = match hub.lending.moment {
            Some(moment) => moment.deed(&mut hub.rng),
            None => hub.rng.below(ANY),
        };
        match kind {
            0 | 1 => Deed::Create(one),
            2 => Deed::Open(one),
            3 => Deed::Mkdir(one),
            4 => Deed::Unlink(one),
            5 => Deed::Rmdir(one),
            6 => Deed::Link(one, two),
            7 | 8 => {
                let no_replace = hub.rng.percent(40);
                let exchange = !no_replace && hub.rng.percent(40);
                Deed::Rename(one, two, RenameHow { no_replace, exchange })
            }
            9 => Deed::List(hub.rng.percent(50)),
            13 => Deed::Read(one),
            10 => Deed::Chmod(one, 0o600 + hub.rng.below(0o200) as Mode),
            _ => Deed::Find(one),
        }
    }

    async fn fight(&self) -> Result<(), Failed> {
        let (deed, session) = (self.draw(), session_of(&self.shared));
        let (from, step) = {
            let mut hub = self.hub.borrow_mut();
            hub.last_deed += 1;
            let step = STEPS_FROM + hub.last_deed;
            hub.at_step.insert(self.id, step);
            hub.say(format_args!("{} does {deed:?}", self.id));
            hub.beside_own.remove(&self.id);
            hub.is_about_to(self.id, needs(deed));
            let interrupted = hub.lending.interrupted();
            if interrupted > 0 && !hub.calm && hub.permille(interrupted) {
                let at = hub.now + hub.rng.below(60);
                hub.cancelled.insert(self.id, at);
                hub.timers.push((at, self.id));
            }
            (hub.now, step)
        };
        let told = self.carry_out_deed(deed).await;
        self.hub.borrow_mut().cancelled.remove(&self.id);
        let verdict = self.verdict(deed, &told, (from, step, session));
        let rest = {
            let hub = &mut *self.hub.borrow_mut();
            let rests = hub.lending.on && matches!(told, Err(Errno::EINTR));
            let least = if hub.is_about(Moment::GivenUp) { INTERRUPTED_MS } else { 0 };
            if rests { least + hub.rng.below(INTERRUPTED_MS) } else { 0 }
        };
        if rest > 0 {
            // What it gave up may still be made, as long as it does nothing else.
            self.lane.port().pause(rest).await;
        }
        match verdict {
            Ok(()) => Ok(()),
            Err(what) => self.fail(format!("{deed:?} gives {told:?}: {what}")),
        }
    }

    /// Of what was told of a deed that began then, as that step, in that session.
    fn verdict(
        &self,
        deed: Deed,
        told: &Result<Told, Errno>,
        (from, step, session): (u64, u64, Option<ClientId>),
    ) -> Result<(), String> {
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} is told {told:?} of {deed:?}", self.id));
        hub.at_step.insert(self.id, 0);
        if session_of(&self.shared) != session {
            return Ok(());
        }
        let recorded = hub.indices.contains_key(&(self.id, step));
        let lost = hub.lost.remove(&(self.id, step));
        if matches!(told, Err(Errno::EEXIST)) {
            hub.coverage.hit("two clients wanted one name");
        }
        // It may have found what was there before (promises).
        if hub.beside_own.remove(&self.id) && !recorded {
            return Ok(());
        }
        // What a power cut took is shown for a while by mounts that have not heard of it.
        let since = hub.cut_at.filter(|at| hub.lending.on && at + hub.lending.shows_lost_ms() >= from);
        let states = hub.shared.states(since.unwrap_or(from).min(from), hub.now);
        judge(deed, told, (recorded, lost), &states)
    }

    fn vfs(&self) -> Vfs {
        Vfs::enter(&self.hub, &self.lane, self.id)
    }

    async fn carry_out_deed(&self, deed: Deed) -> Result<Told, Errno> {
        let vfs = self.vfs();
        match deed {
            Deed::Create(name) => {
                let how = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy: None };
                match vfs.open_or_create(name, (how, PLAIN), false, || 0).await? {
                    Made::New(opened) => {
                        if self.hub.borrow().lending.holds {
                            self.use_new(&opened).await;
                        }
                        self.write_new(opened.handle).await;
                        self.lane.release(opened.handle).await;
                    }
                    Made::There(_) => return Err(Errno::EEXIST),
                }
                Ok(Told::Done)
            }
            Deed::Open(name) => self.open_or_make(name).await,
            Deed::Mkdir(name) => {
                let new = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
                vfs.make(name, new).await.map(|()| Told::Done)
            }
            Deed::Unlink(name) => vfs.remove(name, false).await.map(|()| Told::Done),
            Deed::Rmdir(name) => vfs.remove(name, true).await.map(|()| Told::Done),
            Deed::Link(from, to) => vfs.link(from, to).await.map(|()| Told::Done),
            Deed::Rename(from, to, how) => vfs.rename(from, to, how).await.map(|()| Told::Done),
            Deed::Chmod(name, mode) => vfs.chmod(name, mode).await.map(|()| Told::Done),
            Deed::Find(name) => vfs.stat(name).await.map(|(ino, _)| Told::Found(ino)),
            Deed::Read(name) => self.read_while_open(name).await,
            Deed::List(plus) => vfs.list(plus).await.map(Told::Listed),
        }
    }

    /// Others may know what a new file was, and are to ask while it is open for writing.
    async fn write_new(&self, handle: u64) {
        let ms = {
            let hub = &mut *self.hub.borrow_mut();
            let written = if hub.is_about(Moment::Forgotten) { 100 } else { WRITTEN };
            let writes = hub.lending.on && !hub.calm && hub.rng.percent(written);
            if writes { 1 + hub.rng.below(OPEN_MS) } else { 0 }
        };
        if ms > 0 {
            self.vfs().sleep(ms / 2).await;
            let _ = self.lane.write(handle, 0, NEW, WriteHow::default()).await;
            let _ = self.lane.flush(handle, 0).await;
            self.vfs().sleep(ms / 2).await;
        }
    }

    /// As who unpacks files: attributes are set while a new file is open, now and then by others of its host; others look, and
    /// change it, meanwhile.
    async fn use_new(&self, opened: &Opened) {
        for _ in 0..USES {
            let (drawn, mode, ms) = {
                let hub = &mut *self.hub.borrow_mut();
                let mode = 0o600 + hub.rng.below(0o200) as Mode;
                let drawn = if hub.calm { USES_ANY } else { hub.rng.below(USES_ANY) };
                (drawn, mode, hub.rng.below(OPEN_MS / 2))
            };
            let set = match drawn {
                0..=4 => SetAttr { mode: Some(mode), ..SetAttr::default() },
                5 => SetAttr { uid: Some(mode), atime: Some(SetTime::Now), ..SetAttr::default() },
                _ => return,
            };
            let _ = self.vfs().change_open(opened.attr.ino, set).await;
            self.vfs().sleep(ms).await;
        }
    }

    /// What is open is there, and stays as it was, whatever becomes of its name. (Nobody writes to it but who made it.)
    async fn read_while_open(&self, name: &'static [u8]) -> Result<Told, Errno> {
        let vfs = self.vfs();
        let ino = vfs.find(name).await?;
        let opened = self.lane.open(ino, OpenHow { mode: OpenMode::Read, ..PLAIN }).await?;
        if opened.attr.kind != Kind::File {
            self.lane.release(opened.handle).await;
            return Ok(Told::Found(ino));
        }
        let (session, cuts) = (session_of(&self.shared), self.hub.borrow().cuts.len());
        let mut before = Vec::new();
        for _ in 0..3 {
            let is_there = self.lane.getattr(ino).await.map(drop);
            // What it was written at most: who reads behind the end asks where that is.
            let is_open = read(&self.lane, opened.handle, 0, NEW.len()).await;
            let is_open = is_there.and(is_open);
            let is_steady = session_of(&self.shared) == session && self.hub.borrow().cuts.len() == cuts;
            let what = match is_open {
                Ok(now) if now.starts_with(&before) => {
                    before = now;
                    None
                }
                Ok(now) => Some(format!("{} and then {}", before.escape_ascii(), now.escape_ascii())),
                Err(Errno::EINTR) => None,
                Err(errno) => Some(format!("{errno}")),
            };
            if let Some(what) = what.filter(|_| is_steady) {
                self.hub.borrow_mut().fail(format!(
                    "{}: {} is open, and gives {what}",
                    self.id,
                    name.escape_ascii()
                ));
            }
            let ms = self.hub.borrow_mut().rng.below(OPEN_MS);
            vfs.sleep(ms).await;
        }
        self.lane.release(opened.handle).await;
        Ok(Told::Found(ino))
    }

    /// As the kernel opens with O_CREAT: it looks, checks and opens what is there; what it makes after it found nothing it
    /// takes for new, and checks nothing. ESTALE: once more.
    async fn open_or_make(&self, name: &'static [u8]) -> Result<Told, Errno> {
        let careless = self.hub.borrow().canary == Some(Canary::CreateOpens);
        let create = CreateHow { mode: 0o600, umask: 0, uid: 0, gid: 0, exclusive: false, policy: None };
        // The kernel may be slow here: others make the name meanwhile.
        let slow = || {
            let hub = &mut *self.hub.borrow_mut();
            let slowest = hub.rng.pick(&SLOW_MS);
            let slow = hub.rng.below(slowest);
            hub.shared.wanted.push((hub.now + slow, name));
            slow
        };
        let mut again = true;
        let vfs = self.vfs();
        loop {
            let made = vfs.open_or_create(name, (create, PLAIN), !careless, slow).await;
            match made {
                Ok(Made::There(ino)) => {
                    if vfs.attributes(ino).await?.kind == Kind::Dir {
                        return Err(Errno::EISDIR);
                    }
                    let opened = self.lane.open(ino, PLAIN).await?;
                    self.lane.release(opened.handle).await;
                    return Ok(Told::Found(ino));
                }
                Err(Errno::ESTALE) if std::mem::take(&mut again) => {
                    self.hub.borrow_mut().coverage.hit("a create came too late and looked again");
                }
                Err(errno) => return Err(errno),
                Ok(Made::New(opened)) => {
                    self.lane.release(opened.handle).await;
                    if !opened.created {
                        let what = "was opened as a new file, unchecked, though another had made it";
                        self.hub.borrow_mut().fail(format!("{}: {} {what}", self.id, name.escape_ascii()));
                    }
                    return Ok(Told::Done);
                }
            }
        }
    }

    /// Writes a new content into the lane's own box.
    async fn fill_box(&self) -> Result<(), Failed> {
        let name = [BOX, self.book.borrow().name.as_bytes()].concat();
        let (tag, len) = {
            let hub = &mut *self.hub.borrow_mut();
            let (tag, len, started) = (1 + hub.rng.below(1 << 30) as u32, hub.rng.pick(&LENGTHS), hub.now);
            hub.at_step.insert(self.id, 0);
            hub.say(format_args!("{} puts {tag} ({len} bytes) into its box", self.id));
            let version = Version { tag, len, started, finished: None };
            hub.shared.boxes.entry(name.clone()).or_default().push(version);
            (tag, len)
        };
        let cuts = self.hub.borrow().cuts.len();
        let create = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: false, policy: None };
        let how = OpenHow { mode: OpenMode::Write, truncate: true, sync: false, kill_suidgid: false };
        let data = Fill { tag, len }.bytes();
        let result = async {
            let opened = match self.vfs().open_or_create(&name, (create, how), false, || 0).await? {
                Made::New(opened) => opened,
                Made::There(ino) => self.lane.open(ino, how).await?,
            };
            let written = self.lane.write(opened.handle, 0, &data, WriteHow::default()).await;
            let flushed = self.lane.flush(opened.handle, 0).await;
            self.lane.release(opened.handle).await;
            flushed?;
            written
        };
        let result = result.await;
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} is told {result:?} of its box", self.id));
        if result == Ok(data.len())
            && hub.cuts.len() == cuts
            && let Some(version) = hub.shared.boxes.get_mut(&name).and_then(|versions| versions.last_mut())
        {
            version.finished = Some(hub.now);
        }
        Ok(())
    }

    /// Opens anybody's box: what was closed before must be in it.
    async fn look_into_box(&self) -> Result<(), Failed> {
        let (name, from, cuts) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.at_step.insert(self.id, 0);
            let names: Vec<&Vec<u8>> = hub.shared.boxes.keys().collect();
            if names.is_empty() {
                return Ok(());
            }
            let name = names[hub.rng.below(names.len() as u64) as usize].clone();
            (name, hub.now, hub.cuts.len())
        };
        let session = session_of(&self.shared);
        self.hub.borrow_mut().say(format_args!("{} looks into {}", self.id, name.escape_ascii()));
        let result = async {
            let ino = self.vfs().find(&name).await?;
            let how = OpenHow { mode: OpenMode::Read, truncate: false, sync: false, kill_suidgid: false };
            let opened = self.lane.open(ino, how).await?;
            let bytes = read(&self.lane, opened.handle, 0, 300_000).await;
            self.lane.release(opened.handle).await;
            bytes
        };
        let result = result.await;
        let hub = self.hub.borrow();
        let must = hub.shared.must_read(&name, from, hub.now);
        let steady = hub.cuts.len() == cuts && session_of(&self.shared) == session;
        drop(hub);
        let Some(Version { tag, len, .. }) = must.filter(|_| steady) else { return Ok(()) };
        match result {
            Ok(bytes) if bytes == (Fill { tag, len }).bytes() => {
                let mine = name.ends_with(self.book.borrow().name.as_bytes());
                if !mine {
                    self.hub.borrow_mut().coverage.hit("another client's close was seen by an open");
                }
                Ok(())
            }
            Ok(bytes) => self.fail(format!(
                "{} holds {} bytes (start {}), but {tag} ({len} bytes) was closed before it was opened",
                name.escape_ascii(),
                bytes.len(),
                bytes[..bytes.len().min(16)].escape_ascii()
            )),
            Err(errno) => self.fail(format!("{}: {errno}, but {tag} was closed before", name.escape_ascii())),
        }
    }
}

/// Is a listing one of names that were there, and of all that were there all the time?
pub fn judge_list(found: &[Vec<u8>], states: &[&Names]) -> Result<(), String> {
    let ensure = |truth: bool, what: &str| if truth { Ok(()) } else { Err(what.to_owned()) };
    let never = found.iter().find(|name| !states.iter().any(|names| names.contains_key(*name)));
    ensure(never.is_none(), "lists a name that was not there")?;
    let first = states.first().map(|names| names.keys().collect::<Vec<_>>()).unwrap_or_default();
    let always = |name: &Vec<u8>| states.iter().all(|names| names.contains_key(name));
    let missed = first.into_iter().find(|name| always(name) && !found.contains(name));
    ensure(missed.is_none(), "misses a name that was there all the time")
}

/// Is what the lane was told true of some state of the directory, and of the log?
fn judge(
    deed: Deed,
    told: &Result<Told, Errno>,
    (recorded, lost): (bool, bool),
    states: &[&Names],
) -> Result<(), String> {
    let some = |is: &dyn Fn(&Names) -> bool| states.iter().any(|names| is(names));
    let ensure = |truth: bool, what: &str| if truth { Ok(()) } else { Err(what.to_owned()) };
    match (deed, told) {
        (_, Err(Errno::EINTR)) => Ok(()),
        (Deed::Find(name) | Deed::Read(name) | Deed::Open(name), Ok(Told::Found(ino))) => {
            ensure(some(&|names| names.get(name) == Some(ino)), "that name never led there")
        }
        (Deed::List(_), Ok(Told::Listed(found))) => judge_list(found, states),
        // Looked for, gone when it was opened.
        (Deed::Open(name), Err(Errno::ENOENT | Errno::ESTALE)) => {
            let moved = states.windows(2).any(|pair| pair[0].get(name) != pair[1].get(name));
            ensure(moved && !recorded, "the name led to one file all the time")
        }
        // The two names were one inode: nothing is to be done.
        (Deed::Rename(from, to, _), Ok(_)) if !recorded && !lost => {
            let same = |names: &Names| names.get(from).is_some() && names.get(from) == names.get(to);
            ensure(some(&same), "success, but nothing is in the log")
        }
        // It had that mode, or no name any more and is open.
        (Deed::Chmod(..), Ok(_)) => Ok(()),
        (_, Ok(_)) => ensure(recorded || lost, "success, but nothing is in the log"),
        (_, Err(errno)) => {
            ensure(!recorded, "an error, but it is in the log")?;
            let (wanted, absent) = needs(deed);
            let missing = |names: &Names| wanted.iter().any(|name| !names.contains_key(*name));
            let taken = |names: &Names| absent.is_some_and(|name| names.contains_key(name));
            // Who finds the inode first and does something with it then: it may have lost its last name in between.
            let moved = |from: &[u8]| states.windows(2).any(|pair| pair[0].get(from) != pair[1].get(from));
            match *errno {
                Errno::ENOENT if matches!(deed, Deed::Link(name, _) | Deed::Chmod(name, _) | Deed::Find(name) | Deed::Read(name) if moved(name)) => {
                    Ok(())
                }
                Errno::ENOENT => ensure(some(&missing), "the name was there all the time"),
                Errno::EEXIST => ensure(some(&taken), "the name was free all the time"),
                Errno::EISDIR | Errno::ENOTDIR | Errno::EPERM | Errno::EINVAL | Errno::ESTALE => Ok(()),
                other => Err(format!("{other} is no answer to this")),
            }
        }
    }
}

/// Names that must be there, and one that must not.
fn needs(deed: Deed) -> (Vec<&'static [u8]>, Option<&'static [u8]>) {
    match deed {
        Deed::Create(name) | Deed::Mkdir(name) => (vec![], Some(name)),
        Deed::Unlink(name)
        | Deed::Rmdir(name)
        | Deed::Find(name)
        | Deed::Read(name)
        | Deed::Chmod(name, _)
        | Deed::Open(name) => (vec![name], None),
        Deed::Link(from, to) => (vec![from], Some(to)),
        Deed::Rename(from, to, how) if how.exchange => (vec![from, to], None),
        Deed::Rename(from, to, how) => (vec![from], how.no_replace.then_some(to)),
        Deed::List(_) => (vec![], None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{Name, Timestamp};
    use skep_wire::meta::{Tell, Unlink};

    /// Goal: a rename that fails behind what its lane told of the file is not in the log by that (seed 904 of `--leases`); in a
    /// directory of one lane, where that is what an fsync has promised, it is.
    #[test]
    fn what_is_told_before_is_not_the_deed() {
        let (ino, at) = (Ino(9), Timestamp::default());
        let (content, commit, set) = (None, None, SetAttr::default());
        let tell =
            Tell { ino, content, commit, set, at, keeps: None, wishes: None, hold: None, answers: None };
        let tell = Action::Request(MetaRequest::Tell(tell));
        assert!(!is_of_deed(&tell, STEPS_FROM + 1) && is_of_deed(&tell, 1));
        let unlink = Unlink { parent: Ino::ROOT, name: Name::new(b"a").unwrap() };
        let unlink = Action::Request(MetaRequest::Unlink(unlink));
        assert!(is_of_deed(&unlink, STEPS_FROM + 1));
    }
}

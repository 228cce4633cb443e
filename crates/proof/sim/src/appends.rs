//! What lanes do to the files that all append to: every record of which its writer was told stands whole, at one
//! place, and nobody writes over it.

use crate::drive::{SimLane, read};
use crate::fields::{Log, content};
use crate::hub::HubRef;
use crate::loss::give_up;
use crate::paging::Paged;
use crate::program::{Actor, Failed, session_of};
use crate::turns::FILES;
use skep_client::{CreateHow, OpenHow, Port, WriteHow};
use skep_types::limits::CHUNK_MIN;
use skep_types::{Errno, Ino, Policy, PoolId};
use skep_wire::meta::OpenMode;
use std::collections::BTreeSet;

/// Lengths of records: in the metadata, in a chunk, over several.
const LENGTHS: [u32; 7] = [20, 100, 700, 3_000, 9_000, 40_000, 150_000];
/// One that is truncated by opens now and then.
const CUT_LOG: &str = "log2";
/// Over several targets from the first chunk on.
const STRIPED: Policy =
    Policy { chunk_size: CHUNK_MIN, targets: 3, inline_limit: Some(1_000), pool: PoolId(0) };
/// A log grows no longer than about this.
const BYTES_MAX: u64 = 3 << 20;
/// Chunk files are given up so often while a log is read.
const GIVEN_UP_MAX: usize = 10;
/// Bytes read at a time.
const READ_MAX: usize = 1 << 20;

impl Actor {
    /// Makes the files that all lock, append to and read through pages, durable before anybody uses them.
    pub(crate) async fn make_fields(&self) {
        let mut made = Vec::new();
        for name in ["locked0", "locked1", "log0", "log1", CUT_LOG, "paged0", "paged1", "paged2", "paged3"] {
            let policy = matches!(name, "log1" | CUT_LOG | "paged1" | "paged3").then_some(STRIPED);
            made.push(self.make_field(name.as_bytes(), policy).await);
        }
        {
            let fields = &mut self.hub.borrow_mut().fields;
            fields.paged = made.split_off(5).into_iter().map(Paged::new).collect();
            fields.logs = made.split_off(2).into_iter().map(Log::new).collect();
            fields.locked = made;
        }
        while self.hub.borrow().fields.ledgers.len() < FILES {
            let file = self.hub.borrow().fields.ledgers.len();
            self.renew_ledger(file).await;
            self.wait_while_dead().await;
        }
        while self.hub.borrow().fields.contest.is_none() {
            self.renew_contest().await;
            self.wait_while_dead().await;
        }
    }

    async fn make_field(&self, name: &[u8], policy: Option<Policy>) -> Ino {
        loop {
            let create = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: false, policy };
            let how =
                OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };
            if let Ok(opened) = self.lane.create(Ino::ROOT, name, create, how).await {
                let synced = self.lane.fsync(opened.handle).await;
                self.lane.release(opened.handle).await;
                let there = self.lane.lookup(Ino::ROOT, name).await;
                if synced.is_ok() && there.is_ok_and(|attr| attr.ino == opened.attr.ino) {
                    return opened.attr.ino;
                }
            }
            self.wait_while_dead().await;
            self.lane.port().pause(50).await;
        }
    }

    /// A few records, or a look at all of them.
    pub(crate) async fn use_log(&self) -> Result<(), Failed> {
        self.wait_while_dead().await;
        let (log, ino, reads) = {
            let hub = &mut *self.hub.borrow_mut();
            hub.at_step.insert(self.id, 0);
            let log = hub.rng.below(3) as usize;
            let Some(Log { ino, bytes, .. }) = hub.fields.logs.get(log) else { return Ok(()) };
            (log, *ino, *bytes > BYTES_MAX || hub.rng.percent(30))
        };
        if log == 2 && self.hub.borrow_mut().rng.percent(25) {
            self.truncate_log(log, ino).await;
            return Ok(());
        }
        if reads { self.look_at_log(log, ino).await } else { self.append_some(log, ino).await }
    }

    async fn append_some(&self, log: usize, ino: Ino) -> Result<(), Failed> {
        let how = OpenHow { mode: OpenMode::Write, truncate: false, sync: false, kill_suidgid: false };
        let Ok(opened) = self.lane.open(ino, how).await else { return Ok(()) };
        let count = 1 + self.hub.borrow_mut().rng.below(3);
        let mut numbers = Vec::new();
        for _ in 0..count {
            numbers.extend(self.append_one((log, ino), opened.handle).await?);
        }
        if self.hub.borrow_mut().rng.percent(40) {
            let session = session_of(&self.shared);
            let synced = self.lane.fsync(opened.handle).await;
            let same = session.is_some() && session_of(&self.shared) == session;
            let hub = &mut *self.hub.borrow_mut();
            hub.say(format_args!("{} is told {synced:?} of the fsync of log {log}", self.id));
            if synced.is_ok() && same {
                numbers.iter().for_each(|number| hub.fields.synced(log, *number));
            }
        }
        let _ = self.lane.flush(opened.handle, 0).await;
        self.lane.release(opened.handle).await;
        Ok(())
    }

    /// As `open(O_TRUNC)` by a program that rotates a log, beside those that append to it.
    async fn truncate_log(&self, log: usize, ino: Ino) {
        {
            let hub = &mut *self.hub.borrow_mut();
            if !hub.fields.truncate_begins(log, ino) {
                return;
            }
            hub.say(format_args!("{} opens log {log} and truncates it", self.id));
        }
        let how = OpenHow { mode: OpenMode::Write, truncate: true, sync: false, kill_suidgid: false };
        let opened = self.lane.open(ino, how).await;
        {
            let hub = &mut *self.hub.borrow_mut();
            hub.say(format_args!(
                "{} is told {:?} of the truncate of log {log}",
                self.id,
                opened.as_ref().err()
            ));
            if opened.is_ok() {
                hub.fields.truncated(log, ino);
                hub.coverage.hit("a log was truncated");
            }
        }
        match opened {
            Ok(opened) => self.lane.release(opened.handle).await,
            // It may come late, and nobody knows what it takes: another file is the log from now on.
            Err(_) => self.renew_log(log, ino).await,
        }
    }

    async fn renew_log(&self, log: usize, old: Ino) {
        let name = {
            let hub = &mut *self.hub.borrow_mut();
            hub.fields.logs_renewed += 1;
            format!("{CUT_LOG}-{}", hub.fields.logs_renewed)
        };
        let ino = self.make_field(name.as_bytes(), Some(STRIPED)).await;
        let hub = &mut *self.hub.borrow_mut();
        if let Some(place) = hub.fields.logs.get_mut(log).filter(|log| log.ino == old) {
            *place = Log::new(ino);
        }
    }

    /// Its number, when it was told that it is there.
    async fn append_one(&self, (log, ino): (usize, Ino), handle: u64) -> Result<Option<u64>, Failed> {
        let session = session_of(&self.shared);
        let (number, len, cuts) = {
            let hub = &mut *self.hub.borrow_mut();
            let len = hub.rng.pick(&LENGTHS);
            let Some(number) = hub.fields.begin_record(log, ino, len) else { return Ok(None) };
            hub.say(format_args!("{} appends record {number} ({len} bytes) to log {log}", self.id));
            (number, len, hub.cuts.len())
        };
        let how = WriteHow { append: true, ..WriteHow::default() };
        let written = self.lane.write(handle, 0, &content(number, len), how).await;
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} is told {written:?} of record {number}", self.id));
        let living = session.is_some_and(|client| hub.fields.living.contains(&client));
        match written {
            Ok(n) if n == len as usize => {
                hub.coverage.hit("a record was appended");
                if !living || session_of(&self.shared) != session {
                    return Ok(None);
                }
                hub.fields.told(log, number, cuts);
                Ok(Some(number))
            }
            Ok(n) => {
                hub.fail(format!("{}: {n} of {len} bytes of record {number} were appended", self.id));
                Err(Failed)
            }
            Err(Errno::EINTR | Errno::EIO | Errno::ENOTCONN | Errno::ESTALE) => Ok(None),
            Err(errno) => {
                hub.fail(format!("{}: append of record {number} gives {errno}", self.id));
                Err(Failed)
            }
        }
    }

    async fn look_at_log(&self, log: usize, ino: Ino) -> Result<(), Failed> {
        let session = session_of(&self.shared);
        match check_log(&self.hub, &self.lane, log, ino).await {
            Err(Broken::Told(what)) if session_of(&self.shared) == session => self.fail(what),
            _ => Ok(()),
        }
    }
}

/// Why a log could not be found whole.
pub enum Broken {
    /// It could not be read.
    Unread(Errno),
    /// A record is not as it must be.
    Told(String),
}

/// Reads a log: everything that must be in it is.
pub async fn check_log(hub: &HubRef, lane: &SimLane, log: usize, ino: Ino) -> Result<(), Broken> {
    let must = {
        let hub = hub.borrow();
        hub.fields.must_hold(log, hub.cuts.len())
    };
    let how = OpenHow { mode: OpenMode::Read, truncate: false, sync: false, kill_suidgid: false };
    let opened = lane.open(ino, how).await.map_err(Broken::Unread)?;
    let (mut bytes, mut gave_up) = (Vec::new(), 0);
    let read = loop {
        match read(lane, opened.handle, bytes.len() as u64, READ_MAX).await {
            // Or another witness has given it up meanwhile.
            Err(Errno::EIO) if gave_up < GIVEN_UP_MAX => {
                gave_up += 1;
                if let Err(what) = give_up(lane, ino).await {
                    break Err(Broken::Told(what));
                }
            }
            Ok(part) if part.is_empty() => break Ok(()),
            Ok(part) => bytes.extend(part),
            Err(errno) => break Err(Broken::Unread(errno)),
        }
    };
    lane.release(opened.handle).await;
    read?;
    let hub = &mut *hub.borrow_mut();
    // A truncate may have begun meanwhile; over a power cut only what was durable before is owed.
    let still = hub.fields.must_hold(log, hub.cuts.len());
    let still: BTreeSet<u64> = must.intersection(&still).copied().collect();
    if hub.fields.owes_after_truncate(log, &still) {
        hub.coverage.hit("a record was owed after a truncate");
    }
    if still.len() > 3 {
        hub.coverage.hit("records of a log were found");
    }
    hub.fields.check_log(log, &still, &bytes).map_err(|what| Broken::Told(format!("log {log}: {what}")))
}

//! Fake holds: new files of which nobody but their mount is told anything before that has told what became of them.

use super::shard::Shard;
use super::target::Targets;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{Ino, SetAttr, SetTime, Term};
use skep_wire::meta::{ChangeAttr, MetaRequest, Question, Reclaim, ShardStamp, Tell, Wish};
use skep_wire::{Refusal, Status};

#[derive(Default)]
pub struct FakeHolds {
    /// New files are held, with so much of their content.
    pub room: Option<u32>,
    /// By which mount.
    pub by: BTreeMap<Ino, u64>,
    /// Numbers of those that were asked for.
    pub numbers: BTreeMap<Ino, u64>,
    /// Told again after a restart.
    pub reported: Vec<Ino>,
    /// Who wishes so goes on holding what he tells of.
    pub keeps: bool,
    /// Who wishes so holds a file that he has open, and that nobody else asks for.
    pub gives: bool,
    /// So often it says, of an empty word of who wishes so, that he does not; and how often it has.
    pub denies: usize,
    /// Questions of who only looks that were answered by a word with which the hold went on.
    pub answered: Vec<u64>,
    /// Goes into the next stamp.
    given: Option<u32>,
}

impl FakeHolds {
    /// Everything volatile is gone.
    pub fn restart(&mut self) {
        *self = Self { room: self.room, keeps: self.keeps, gives: self.gives, ..Self::default() };
    }

    /// A request has come.
    pub fn hears(&mut self) {
        self.given = None;
    }

    /// It has made this.
    pub fn made(&mut self, mount: u64, wish: Option<u8>, ino: Ino) {
        if let Some(room) = self.room.filter(|_| wish.is_some_and(|wish| wish & Wish::HOLD != 0)) {
            self.by.insert(ino, mount);
            self.given = Some(room);
        }
    }

    pub fn stamp(&self, stamp: &mut ShardStamp) {
        stamp.holds = self.given;
    }

    pub fn told_again(&mut self, mount: u64, m: &Reclaim) {
        for ino in m.holds.iter().flatten() {
            self.by.insert(*ino, mount);
            self.reported.push(*ino);
        }
    }
}

impl Shard {
    /// The mount that holds what another one asks about, and what it is asked.
    pub fn question(&self, mount: u64, request: &MetaRequest) -> Option<(u64, Question)> {
        let ino = match request {
            MetaRequest::Lookup(m) => *self.names.get(&m.name)?,
            MetaRequest::Unlink(m) => *self.names.get(&m.name)?,
            MetaRequest::GetAttr(m) => m.ino,
            MetaRequest::Open(m) => m.ino,
            MetaRequest::ChangeAttr(m) => m.ino,
            _ => return None,
        };
        let by = self.holds.by.get(&ino).copied().filter(|by| *by != mount)?;
        Some((by, Question { term: Term(self.term), ino, looks: None }))
    }

    /// What was kept of a file is told.
    pub fn is_told(&mut self, mount: u64, m: &Tell, targets: &mut Targets) -> Result<Vec<u8>, Refusal> {
        let Tell { ino, content, commit, set, at, .. } = m;
        let (hold, known) = (m.hold.unwrap_or(0), self.holds.numbers.get(ino).copied());
        let is_held = self.holds.by.get(ino) == Some(&mount) && known.is_none_or(|known| hold >= known);
        let is_empty = content.is_none() && commit.is_none() && *set == SetAttr::default();
        if !is_held && is_empty && m.wishes == Some(true) && self.holds.gives {
            self.holds.by.insert(*ino, mount);
            self.holds.numbers.insert(*ino, hold);
            self.holds.given = Some(0);
            return self.attr_reply(*ino);
        }
        if !is_held {
            return if is_empty { self.attr_reply(*ino) } else { Err(Status::NOT_HELD.into()) };
        }
        let mut goes_on = self.holds.keeps && m.keeps == Some(true);
        if goes_on && is_empty && self.holds.denies > 0 {
            self.holds.denies -= 1;
            return self.attr_reply(*ino);
        }
        goes_on &= self.holds.denies == 0;
        self.holds.given = goes_on.then_some(0);
        self.holds.answered.extend(m.answers.filter(|_| goes_on));
        if goes_on && is_empty {
            return self.attr_reply(*ino);
        }
        if let Some(commit) = commit {
            self.commit(commit)?;
        }
        let file = self.file(*ino)?;
        if let Some(content) = content {
            file.inline.clone_from(&content.data.0);
            file.version += 1;
            (file.attr.size, file.attr.mtime) = (content.data.0.len() as u64, content.mtime);
        }
        file.attr.uid = set.uid.unwrap_or(file.attr.uid);
        file.attr.gid = set.gid.unwrap_or(file.attr.gid);
        if let Some(SetTime::At(time)) = set.atime {
            file.attr.atime = time;
        }
        file.attr.ctime = file.attr.ctime.max(*at);
        if !goes_on {
            self.holds.by.remove(ino);
        }
        self.change_content(&ChangeAttr { ino: *ino, set: set.clone() }.into(), targets)
    }
}

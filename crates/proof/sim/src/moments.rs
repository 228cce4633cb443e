//! Rare moments of leases. Each takes several things at once that seldom meet where all of everything happens: some seeds with
//! leases are about one of them, in which little is busy, and nothing is small.

use crate::Canary;
use crate::deeds::Theme;
use crate::hub::{Hub, LaneId};
use crate::network::From;
use crate::together::STEPS_FROM;
use crate::watched::EYED_MS;
use crate::world::{LANES, is_hearer};
use skep_model::Rng;
use skep_types::{Decode, Ino, NodeId, Reader, ShardId};
use skep_wire::Message;
use skep_wire::meta::{
    Close, Create, GetAttr, Link, List, Lookup, MakeNode, RemoveDir, Rename, Tell, Unlink,
};
use skep_wire::storage::{ReadChunk, WriteChunk};

/// Tells this drawing from all others of a seed.
const SALT: u64 = 0x4d4f_4d45;
/// Of a hundred seeds with leases so many are about such a moment.
const SOME: u64 = 25;
/// And so many are about files that are written in pieces.
const PIECES: u64 = 12;
/// How long leases hold then, in milliseconds: more of them fit into a run.
const TERMS: [u64; 2] = [1_000, 2_500];
/// So many conflicts at once make nothing busy.
pub const NEVER_BUSY: u64 = 1_000;
/// Programs make pauses that are longer by so much.
pub const SLOW: u64 = 4;
/// Of a thousand changes so many are given up on their way ...
const GIVEN_UP: u64 = 300;
/// ... and arrive within so many milliseconds.
const ARRIVES_MS: u64 = 500;
/// Of a thousand answers to creates so many are lost with the term of their shard ...
const FORGOTTEN: u64 = 400;
/// ... and who asked hears of that after so long, and as much again at most.
const UNHEARD_MS: u64 = 500;
/// Of a thousand answers to who looks so many are held up ...
const OVERTAKEN: u64 = 300;
/// ... for up to so long.
const OVERTAKEN_MS: u64 = 200;
/// Of a thousand closes so many are held up ...
const LATE_CLOSES: u64 = 300;
/// ... for up to so long.
const LATE_CLOSE_MS: u64 = 200;
/// Of a thousand reads of chunk files so many are held up ...
const LATE_READS: u64 = 200;
/// ... for up to so long: what is cut meanwhile is cut there before they come.
const LATE_READ_MS: u64 = 1_500;
/// Of a thousand answers to who tells what was held so many are lost.
const IN_VAIN: u64 = 500;
/// Of a hundred writes that stay with their mount so many stick on their way to a target.
const STICKS: u64 = 15;
/// For so long, in milliseconds.
pub const STICKS_MS: (u64, u64) = (1_000, 12_000);
/// Of a hundred of those so many are of a mount that stands still meanwhile.
const STICKS_AND_STOPS: u64 = 85;
/// Of a hundred looks so many are at the name that such a change was about.
const EYED: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The last answer that a mount hears for long comes late, and nobody there asks again.
    LastAnswer,
    /// A program gives up a change, which arrives all the same; its mount looks at the name meanwhile.
    GivenUp,
    /// The answer to a create is lost, and its shard forgets the open; others look at the file before it is asked for again.
    Forgotten,
    /// Files get second names and other ones, while others look at what they know by number.
    Renamed,
    /// Kernels take their time with answers, and forget inodes, while others change those.
    Unapplied,
    /// Programs look through what they hold, while others change it.
    Held,
    /// Answers to who looks are held up, and overtaken by what is taken back of them.
    Overtaken,
    /// Files are read again and again, and lose their names while they are open.
    Reopened,
    /// Files are read in order, past the pages, while others write to them now and then.
    InOrder,
    /// They are read at a constant distance, while others write to them now and then, and cut them.
    Strided,
    /// Files are read through pages by handles that are kept, while others overwrite them, cut them and make them longer.
    Polled,
    /// Answers to creates are held up, and others look at what they made before its mount knows that it holds it.
    Asked,
    /// The answer to who tells what a mount has held is lost, and who told gives up; others change the file meanwhile.
    ToldAgain,
    /// Files are written in small pieces, in order, while others look at them now and then, and mounts are killed.
    Gathering,
    /// Who has something to tell of such a file stands still, and others look at it, and change it.
    PassedOver,
    /// Such files that were there before are written over, while others look at them, and write, through handles that they keep.
    Beside,
    /// Such files are held while others look at their attributes all the time.
    LookedAt,
}

impl Moment {
    pub fn draw(seed: u64, canary: Option<Canary>) -> Option<Self> {
        match canary {
            None => {}
            Some(Canary::KeepsLeaseOverTerm) => return Some(Self::LastAnswer),
            Some(Canary::GivenUpCreate) => return Some(Self::GivenUp),
            Some(Canary::ReopensUnseen) => return Some(Self::Forgotten),
            Some(Canary::CoverFollowsNewName) => return Some(Self::Renamed),
            Some(Canary::AcksRecallBeforeInval) => return Some(Self::Held),
            Some(Canary::AnswerOvertakesNotify) => return Some(Self::Unapplied),
            Some(Canary::ErasesLeasedOpen) => return Some(Self::Reopened),
            Some(Canary::ReadsOldAhead) => return Some(Self::InOrder),
            Some(Canary::ReadsOldRecords) => return Some(Self::Strided),
            Some(Canary::ReadsOldPages | Canary::EndsUnknown) => return Some(Self::Polled),
            Some(Canary::HoldsWhatWasAsked) => return Some(Self::Asked),
            Some(Canary::ToldTwice) => return Some(Self::ToldAgain),
            Some(Canary::RecallOvertakesGrant | Canary::InstallsAfterConfirm) => {
                return Some(Self::Overtaken);
            }
            Some(Canary::BehindToldAsSynced | Canary::ReadsPastTheRun) => return Some(Self::Gathering),
            Some(
                Canary::PutsUnheard
                | Canary::PassesOverTooEarly
                | Canary::TellsLateOverOthers
                | Canary::LandsLate,
            ) => return Some(Self::PassedOver),
            Some(Canary::HoldsBesideOthers) => return Some(Self::Beside),
            Some(Canary::AnswersLateLooks) => return Some(Self::LookedAt),
            Some(_) => return None,
        }
        // Drawn apart: it leaves all else of a seed as it was.
        let mut rng = Rng::new(Rng::new(seed ^ SALT ^ 2).next_u64());
        if rng.percent(PIECES) {
            return Some(Self::of_pieces(seed));
        }
        let mut rng = Rng::new(Rng::new(seed ^ SALT).next_u64());
        let all = [
            Self::LastAnswer,
            Self::GivenUp,
            Self::Forgotten,
            Self::Renamed,
            Self::Unapplied,
            Self::Held,
            Self::Overtaken,
            Self::Reopened,
            Self::InOrder,
            Self::Strided,
            Self::Polled,
            Self::Asked,
            Self::ToldAgain,
        ];
        rng.percent(SOME).then(|| rng.pick(&all))
    }

    /// Is it one of files that mounts hold?
    pub fn is_of_holds(self) -> bool {
        matches!(self, Self::Asked | Self::ToldAgain) || self.is_of_pieces()
    }

    /// One of them.
    pub fn of_pieces(seed: u64) -> Self {
        Rng::new(Rng::new(seed ^ SALT ^ 3).next_u64()).pick(&[
            Self::Gathering,
            Self::PassedOver,
            Self::Beside,
            Self::LookedAt,
        ])
    }

    /// Is it one of files that are written in pieces?
    pub fn is_of_pieces(self) -> bool {
        matches!(self, Self::Gathering | Self::PassedOver | Self::Beside | Self::LookedAt)
    }

    /// What a lane does among all others.
    pub fn deed(self, rng: &mut Rng) -> u64 {
        let deeds = match self {
            Self::LastAnswer
            | Self::GivenUp
            | Self::Overtaken
            | Self::InOrder
            | Self::Strided
            | Self::Polled => {
                return rng.below(ANY);
            }
            Self::Forgotten => FORGOTTEN_DEEDS,
            Self::Renamed => RENAMED_DEEDS,
            Self::Unapplied | Self::Held => HELD_DEEDS,
            Self::Reopened => REOPENED_DEEDS,
            Self::Asked
            | Self::ToldAgain
            | Self::Gathering
            | Self::PassedOver
            | Self::Beside
            | Self::LookedAt => ASKED_DEEDS,
        };
        let mut left = rng.below(deeds.iter().map(|(_, share)| share).sum());
        for (deed, share) in deeds {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return deed,
            }
        }
        rng.below(ANY)
    }

    /// What programs do in such a seed.
    pub fn theme(self) -> Theme {
        if matches!(self, Self::InOrder | Self::Strided | Self::Polled) { Theme::Pages } else { Theme::Names }
    }

    /// For how long leases hold in this seed.
    pub fn term(self, seed: u64) -> u64 {
        Rng::new(Rng::new(seed ^ SALT ^ 1).next_u64()).pick(&TERMS)
    }
}

/// What lanes do among all others, by its number in `together.rs`, with how often: a create, an unlink, a link, a rename, a
/// change of mode, a look, a read, or any.
type Deeds = [(u64, u64); 6];
const FORGOTTEN_DEEDS: Deeds = [(0, 40), (4, 25), (11, 30), (6, 0), (7, 5), (10, 0)];
const RENAMED_DEEDS: Deeds = [(0, 15), (4, 10), (11, 20), (6, 25), (7, 25), (10, 5)];
const HELD_DEEDS: Deeds = [(0, 15), (4, 5), (11, 5), (6, 5), (7, 65), (10, 5)];
const REOPENED_DEEDS: Deeds = [(0, 20), (4, 15), (13, 50), (6, 0), (7, 5), (10, 10)];
const ASKED_DEEDS: Deeds = [(0, 40), (4, 20), (11, 20), (6, 0), (7, 5), (10, 15)];
/// Of all that there are.
pub const ANY: u64 = 14;

/// Does a request of this kind change a name?
fn changes_a_name(kind: u16) -> bool {
    [Create::KIND, MakeNode::KIND, Link::KIND, Unlink::KIND, RemoveDir::KIND, Rename::KIND].contains(&kind)
}

impl Hub {
    /// Is this seed about that?
    pub fn is_about(&self, moment: Moment) -> bool {
        self.lending.moment == Some(moment)
    }

    /// A lane is about to do something, for which these names must be there, and this one not.
    pub fn is_about_to(
        &mut self,
        lane: LaneId,
        (there, absent): (Vec<&'static [u8]>, Option<&'static [u8]>),
    ) {
        let Some(name) = there.first().copied().or(absent) else { return };
        self.lending.doing.insert(lane, name);
        if self.is_about(Moment::Renamed) {
            self.lending.eyed = Some(name);
        }
    }

    /// Does this lane change the directory of all now, and may something befall it?
    fn is_eyed(&mut self, lane: LaneId) -> bool {
        let fights = self.at_step.get(&lane).is_some_and(|step| (STEPS_FROM..2 * STEPS_FROM).contains(step));
        let is_eyed = !self.calm && fights && (lane.lane as usize) < LANES;
        if is_eyed {
            self.lending.eyed = self.lending.doing.get(&lane).copied();
        }
        is_eyed
    }

    /// A lane sends a request. When its program gives up, if it does so, and how much later than others the request arrives.
    pub fn gives_up(&mut self, lane: LaneId, kind: u16) -> Option<(u64, u64)> {
        let may = self.is_about(Moment::GivenUp) && changes_a_name(kind);
        if !may || !self.permille(GIVEN_UP) || !self.is_eyed(lane) {
            return None;
        }
        self.coverage.hit("a change was given up that arrived");
        let due = self.now + self.rng.below(20);
        self.cancelled.insert(lane, due);
        self.timers.push((due, lane));
        Some((due, 100 + self.rng.below(ARRIVES_MS)))
    }

    /// The answer of a server to this lane is on its way. `Some`: it is lost, which the lane hears then, and the term ends of
    /// the shard that `shard` says.
    pub fn forgets(
        &mut self,
        (lane, node): (LaneId, NodeId),
        kind: u16,
        shard: impl FnOnce() -> Option<ShardId>,
    ) -> Option<u64> {
        let may = self.is_about(Moment::Forgotten) && kind == Create::KIND;
        if !may || !self.permille(FORGOTTEN) || !self.is_eyed(lane) {
            return None;
        }
        let shard = shard()?;
        self.coverage.hit("a shard forgot an open of which nobody was told");
        self.term_ends = Some((node, shard));
        Some(self.now + UNHEARD_MS + self.rng.below(UNHEARD_MS))
    }

    /// For how long a request of this kind, and what its lane sends behind it, is held up on its way.
    pub fn holds_up(&mut self, kind: u16) -> u64 {
        if self.is_about(Moment::Strided) && kind == ReadChunk::KIND && !self.calm {
            let is_late = self.permille(LATE_READS);
            return if is_late { self.rng.below(LATE_READ_MS) } else { 0 };
        }
        let may = self.is_about(Moment::Reopened) && kind == Close::KIND && !self.calm;
        if !may || !self.permille(LATE_CLOSES) {
            return 0;
        }
        self.coverage.hit("a close was held up on its way");
        self.rng.below(LATE_CLOSE_MS)
    }

    /// The answer to this lane, which has told what its mount held, is lost, and it gives up: when it hears that.
    pub fn tells_in_vain(&mut self, lane: LaneId, kind: u16) -> Option<u64> {
        let may = self.is_about(Moment::ToldAgain) && kind == Tell::KIND && !self.calm;
        if !may || !self.permille(IN_VAIN) || !self.is_eyed(lane) {
            return None;
        }
        self.coverage.hit("who told of a held file did not hear that it had");
        let due = self.now + self.rng.below(OVERTAKEN_MS);
        self.cancelled.insert(lane, due);
        self.timers.push((due, lane));
        Some(due)
    }

    /// Until when the answer to this lane is held up.
    pub fn overtaken(&mut self, lane: LaneId, kind: u16) -> Option<u64> {
        if self.is_about(Moment::Asked) {
            let held_up = kind == Create::KIND && self.permille(OVERTAKEN) && self.is_eyed(lane);
            return held_up.then(|| self.now + self.rng.below(2 * OVERTAKEN_MS));
        }
        let looks = [Lookup::KIND, GetAttr::KIND, List::KIND].contains(&kind) && !is_hearer(&lane);
        if !looks || self.calm || !self.is_about(Moment::Overtaken) || !self.permille(OVERTAKEN) {
            return None;
        }
        self.coverage.hit("an answer was held up on its way");
        Some(self.now + self.rng.below(OVERTAKEN_MS))
    }

    /// Something of this file waits: it is worth a look, or may stick where it goes to its target next.
    pub fn may_stick(&mut self, ino: Ino) {
        if self.is_about(Moment::Beside) {
            return self.pieces.eyes(ino, self.now + EYED_MS);
        }
        if self.is_about(Moment::PassedOver) && !self.calm && self.rng.percent(STICKS) {
            self.pieces.sticks = Some(ino);
        }
    }

    /// Is that so of this file?
    pub fn is_to_stick(&self, ino: Ino) -> bool {
        self.pieces.sticks == Some(ino) && self.pieces.is_free(ino)
    }

    /// Does the connection stick on which a client sends this, until when, and for which client? Where seeds are about who is passed
    /// over, what waited goes to its target, and its mount stands still for less or more than it takes: others look and write.
    pub fn sticks(&mut self, from: From, kind: u16, body: &[u8]) -> Option<(u32, u64)> {
        let From::Lane(lane) = from else { return None };
        if kind != WriteChunk::KIND || self.calm || !self.is_about(Moment::PassedOver) {
            return None;
        }
        let write = WriteChunk::decode(&mut Reader::new(body)).ok()?;
        let ino = write.chunk.ino;
        if write.later != Some(true) || !self.is_to_stick(ino) {
            return None;
        }
        self.pieces.sticks = None;
        let term = self.lending.most_ms;
        let stands_still = term + self.rng.below(2 * term);
        let ms = (stands_still * 3 / 4 + self.rng.below(term)).clamp(STICKS_MS.0, STICKS_MS.1);
        if self.rng.percent(STICKS_AND_STOPS) {
            self.pieces.stops = Some((lane.life, stands_still));
            self.pieces.eyes(ino, self.now + ms.max(stands_still));
        }
        Some((lane.life, (self.now + ms).min(self.calm_from)))
    }

    /// The name that is worth a look.
    pub fn eyed(&mut self) -> Option<&'static [u8]> {
        let eyed = self.lending.eyed?;
        self.rng.percent(EYED).then_some(eyed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a third of the seeds is about some moment, each of them comes, and what lanes do there is something that there is.
    #[test]
    fn every_moment_comes() {
        let drawn: Vec<Moment> = (0..1_000).filter_map(|seed| Moment::draw(seed, None)).collect();
        assert!((290..390).contains(&drawn.len()), "{}", drawn.len());
        let mut rng = Rng::new(1);
        for moment in [
            Moment::LastAnswer,
            Moment::GivenUp,
            Moment::Forgotten,
            Moment::Renamed,
            Moment::Unapplied,
            Moment::Held,
            Moment::Overtaken,
            Moment::Reopened,
            Moment::InOrder,
            Moment::Strided,
            Moment::Polled,
            Moment::Asked,
            Moment::ToldAgain,
            Moment::Gathering,
            Moment::PassedOver,
            Moment::Beside,
        ] {
            assert!(drawn.contains(&moment));
            assert!((0..100).all(|_| moment.deed(&mut rng) < ANY));
        }
    }
}

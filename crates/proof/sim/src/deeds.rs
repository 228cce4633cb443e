//! What lanes do, and how often: each seed has moods of its own, so that some see little of one thing and others little
//! else. What takes several rare moments to show is met where one of them is common.

use skep_model::Rng;

/// What a lane does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// A step of its own history.
    History,
    /// Something in the directory of all.
    Together,
    /// Something with the files that all lock.
    Lock,
    /// Something with the files that all append to.
    Append,
    /// Something with the files that all read through pages.
    Page,
    /// Something with the file that its client keeps open.
    Keep,
    /// A turn with the files that all write.
    Turn,
    /// Puts something in its place, and syncs that.
    Careful,
    /// Changes the file that several change at once.
    Contend,
    /// Makes or removes a directory on another shard.
    Afar,
}

/// What a lane does with the file that its client keeps open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Syncs while the other lane writes.
    Meet,
    Write,
    Sync,
    /// Reads.
    Look,
    /// Truncates one of another client.
    Intrude,
    /// Truncates it.
    Cut,
    Close,
    /// Writes a new one while metad loses its power.
    Stream,
}

const DEEDS: [(Deed, u64); 10] = [
    (Deed::History, 40),
    (Deed::Together, 15),
    (Deed::Lock, 5),
    (Deed::Append, 6),
    (Deed::Page, 7),
    (Deed::Keep, 36),
    (Deed::Turn, 14),
    (Deed::Careful, 2),
    (Deed::Contend, 14),
    (Deed::Afar, 8),
];
const KEEPING: [(Keeping, u64); 8] = [
    (Keeping::Meet, 30),
    (Keeping::Write, 50),
    (Keeping::Sync, 15),
    (Keeping::Look, 14),
    (Keeping::Intrude, 30),
    (Keeping::Cut, 3),
    (Keeping::Close, 4),
    (Keeping::Stream, 6),
];
/// What a share is multiplied by.
const MOODS: [u64; 6] = [1, 4, 4, 4, 8, 32];

/// What some seeds are about: what takes several rare things at once is met where all of them are common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// Everything.
    All,
    /// Files that are synced while another program writes, and storage that loses its power.
    Syncs,
    /// Files that are truncated when the session of who keeps them open has ended.
    Intruders,
    /// Files that all write to, and writes that arrive late.
    LateWrites,
    /// Directories on other shards, and messages between shards that come twice.
    Afar,
    /// Files that several change and truncate, and truncates whose server gives up before they arrive.
    LateTrims,
    /// The directory of all, while hosts and mounts stand still and mounts are killed.
    Names,
    /// Files that are read through pages, while clients that write to them stand still and are killed.
    Pages,
    /// Histories of lanes, while clients are killed and stand still: of seeds where new files are held.
    Histories,
}

const THEMES: [Theme; 12] = [
    Theme::All,
    Theme::All,
    Theme::All,
    Theme::All,
    Theme::All,
    Theme::Syncs,
    Theme::Intruders,
    Theme::LateWrites,
    Theme::Afar,
    Theme::LateTrims,
    Theme::Names,
    Theme::Pages,
];
/// What one is about, and little else.
const MUCH: u64 = 200;

const EVICTIONS: [u64; 3] = [10, 40, 80];
const CONNECTS: [u64; 4] = [0, 1, 10, 40];
const PROVOKED: [u64; 3] = [1, 4, 15];
const PROVOKED_GROWN: [u64; 3] = [10, 30, 90];

#[derive(Debug)]
pub struct Deeds {
    deeds: [(Deed, u64); 10],
    keeping: [(Keeping, u64); 8],
    /// What it is about.
    pub theme: Theme,
    /// Of those who would truncate a file and find none of a client without session, so many end a session, of a hundred.
    pub evictions: u64,
    /// Of a thousand rounds of requests so many wait for a connection first.
    pub connects: u64,
    /// After so many deeds with such a file metad loses its power, of a hundred.
    pub provoked: u64,
    /// A file that has just got chunks loses them so often, of a hundred.
    pub provoked_grown: u64,
}

impl Deeds {
    /// What this seed is like; with a theme it is about that.
    pub fn draw(rng: &mut Rng, theme: Option<Theme>) -> Self {
        let drawn = rng.pick(&THEMES);
        let theme = theme.unwrap_or(drawn);
        let (mut deeds, mut keeping) = (moody(DEEDS, rng), moody(KEEPING, rng));
        let mut evictions = rng.pick(&EVICTIONS);
        match theme {
            Theme::All => {}
            Theme::Syncs => {
                scale(&mut deeds, &[Deed::Keep], MUCH);
                scale(&mut keeping, &[Keeping::Meet], MUCH);
            }
            Theme::Intruders => {
                // Who meets another lane, or streams, takes long, and metad loses its power meanwhile.
                let others = [Keeping::Write, Keeping::Sync, Keeping::Intrude, Keeping::Cut, Keeping::Close];
                scale(&mut keeping, &others, 4);
                scale(&mut keeping, &[Keeping::Look], 16);
                evictions = EVICTIONS[EVICTIONS.len() - 1];
            }
            Theme::LateWrites => scale(&mut deeds, &[Deed::Append], MUCH),
            Theme::Afar => scale(&mut deeds, &[Deed::Afar], MUCH),
            Theme::LateTrims => scale(&mut deeds, &[Deed::Contend], MUCH),
            Theme::Names => scale(&mut deeds, &[Deed::Together], MUCH),
            Theme::Pages => scale(&mut deeds, &[Deed::Page], MUCH),
            Theme::Histories => scale(&mut deeds, &[Deed::History], MUCH),
        }
        Self {
            deeds,
            keeping,
            theme,
            evictions,
            connects: rng.pick(&CONNECTS),
            provoked: rng.pick(&PROVOKED),
            provoked_grown: rng.pick(&PROVOKED_GROWN),
        }
    }

    /// The next deed.
    pub fn next(&self, rng: &mut Rng) -> Deed {
        one_of(&self.deeds, rng)
    }

    /// The next with the file that is kept open.
    pub fn next_keeping(&self, rng: &mut Rng) -> Keeping {
        one_of(&self.keeping, rng)
    }
}

fn moody<T, const N: usize>(shares: [(T, u64); N], rng: &mut Rng) -> [(T, u64); N] {
    shares.map(|(what, share)| (what, share * rng.pick(&MOODS)))
}

fn scale<T: PartialEq>(shares: &mut [(T, u64)], these: &[T], by: u64) {
    let found = shares.iter_mut().filter(|(what, _)| these.contains(what));
    found.for_each(|(_, share)| *share *= by);
}

fn one_of<T: Copy>(shares: &[(T, u64)], rng: &mut Rng) -> T {
    let mut left = rng.below(shares.iter().map(|(_, share)| share).sum());
    for (what, share) in shares {
        match left.checked_sub(*share) {
            Some(rest) => left = rest,
            None => return *what,
        }
    }
    shares[0].0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every deed is done in every mood, and as often as its share.
    #[test]
    fn shares_are_kept() {
        let mut rng = Rng::new(1);
        let deeds = Deeds::draw(&mut rng, Some(Theme::All));
        let total: u64 = deeds.deeds.iter().map(|(_, share)| share).sum();
        for (deed, share) in deeds.deeds {
            let rounds = 20_000;
            let count = (0..rounds).filter(|_| deeds.next(&mut rng) == deed).count() as u64;
            let expected = rounds * share / total;
            assert!(share > 0 && count.abs_diff(expected) < 300, "{deed:?}: {count}, should be {expected}");
        }
    }
}

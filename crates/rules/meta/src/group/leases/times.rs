//! Until when leases hold: a mount counts from the moment it sent a request, the group from the moment its answer left, and
//! a little longer.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ClientId, Millis};
use skep_wire::meta::LeaseTime;

/// Clocks differ by less than one in so many.
const RATE: u64 = 100;
/// And what an answer, a timer and a step take.
const MARGIN_MS: u64 = 100;

#[derive(Debug, Clone, Copy)]
struct Heard {
    /// When an answer last renewed its leases.
    at: Millis,
    /// When it last asked for anything, renewed or not.
    asked: Millis,
    /// So often have its leases lapsed, as it told last.
    lapses: u64,
    /// It was silent for too long since it told that.
    over: bool,
    /// Nor was it heard to listen since; or it did not hear what was taken back, and lapsed over that.
    deaf: bool,
    /// Which ended term it had leases of last, or held files in: nothing else of that is in its renewals.
    ended: u64,
}

/// A request whose answer may renew leases.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Who asks.
    pub client: ClientId,
    /// So often had its leases lapsed.
    pub lapses: u64,
    /// It may give some, too.
    pub wishes: bool,
}

#[derive(Debug, Default)]
pub struct Times {
    ms: u64,
    heard: BTreeMap<ClientId, Heard>,
    asked: BTreeMap<u64, Asked>,
    /// Nobody is silent for too long before this.
    next: Millis,
    /// Nobody counts as silent before this, who holds a file.
    not_before: Millis,
    ended: u64,
}

/// So long after its last answer nobody uses any more what holds for `ms`.
pub fn patience(ms: u64) -> u64 {
    ms + ms.div_ceil(RATE) + MARGIN_MS
}

impl Times {
    pub fn new(ms: u64) -> Self {
        Self { ms, ..Self::default() }
    }

    /// So long after an answer left its receiver uses nothing any more.
    pub fn patience(&self) -> u64 {
        patience(self.ms)
    }

    /// `true`: whatever the client had has lapsed. One that has nothing has not been silent.
    pub fn asked(&mut self, to: u64, asked: Asked, has_nothing: bool, now: Millis) -> bool {
        if self.ms == 0 {
            return false;
        }
        let Asked { client, lapses, .. } = asked;
        self.asked.insert(to, asked);
        let new = Heard { at: now, asked: now, lapses, over: false, deaf: false, ended: self.ended };
        let heard = self.heard.entry(client).or_insert(new);
        heard.asked = now;
        let lapsed = lapses > heard.lapses;
        if lapsed {
            *heard = Heard { deaf: heard.deaf, ended: heard.ended, ..new };
        } else if has_nothing {
            heard.at = now;
        }
        lapsed
    }

    fn counts(&self, to: u64) -> Option<&Asked> {
        let asked = self.asked.get(&to)?;
        self.heard
            .get(&asked.client)
            .filter(|heard| heard.lapses == asked.lapses && !heard.over)
            .map(|_| asked)
    }

    /// The client, if the answer may give it leases.
    pub fn is_wished(&self, to: u64) -> Option<ClientId> {
        self.counts(to).filter(|asked| asked.wishes).map(|asked| asked.client)
    }

    /// When nothing was heard of it for so long that it believes in nothing; one that was forgotten is silent already. What it
    /// believes counts from a question, and each came before its answer renewed anything: so it has ceased to believe then, also
    /// where it asks all the time and is not renewed. Not before a group that stood still has had as long to hear it.
    pub fn silent_at(&self, client: ClientId) -> Option<Millis> {
        let last = self.heard.get(&client).map(|heard| heard.at.max(heard.asked));
        let at = last.map_or(Millis(0), |last| last.plus(self.patience()));
        (self.ms > 0).then(|| at.max(self.not_before))
    }

    /// The group stood still until now: questions that came meanwhile are not read yet. Leases that are shared end all the same:
    /// whoever has one believes no longer in it, and has all of that to ask for again, but loses nothing.
    pub fn stood_still(&mut self, now: Millis) {
        self.not_before = now.plus(self.patience());
    }

    /// Was it silent for too long, or did it not hear what it was told, and was it not heard to listen since?
    pub fn is_deaf(&self, client: ClientId) -> bool {
        self.heard.get(&client).is_some_and(|heard| heard.deaf)
    }

    /// It asks what it is to hear, or it did not hear what it was told.
    pub fn listens(&mut self, client: ClientId, listens: bool) {
        if let Some(heard) = self.heard.get_mut(&client) {
            heard.deaf = !listens;
        }
    }

    pub fn answered(
        &mut self,
        to: u64,
        now: Millis,
        renews: impl Fn(ClientId, u64) -> bool,
    ) -> Option<LeaseTime> {
        let client = self.counts(to).map(|asked| asked.client);
        self.asked.remove(&to);
        let client = client.filter(|client| renews(*client, self.ms))?;
        // Not when the question came: whoever asked counts from before that, and what he is told now he believes from then.
        let heard = self.heard.get_mut(&client)?;
        heard.at = now;
        Some(LeaseTime { ms: self.ms, ended: heard.ended })
    }

    pub fn abandoned(&mut self, to: u64) {
        self.asked.remove(&to);
    }

    /// A term of a shard ended of which these have leases, or in which they hold files: they are renewed from now on as others than before. What a client
    /// is told never goes back, also when it was forgotten meanwhile: who comes anew is told the newest.
    pub fn term_ended(&mut self, holders: &BTreeSet<ClientId>) {
        self.ended += 1;
        for client in holders {
            if let Some(heard) = self.heard.get_mut(client) {
                heard.ended = self.ended;
            }
        }
    }

    pub fn is_due(&self, now: Millis) -> bool {
        self.ms > 0 && now >= self.next
    }

    /// Who of these was silent for too long. Whoever says no more than he said before is not believed any more.
    pub fn expire(&mut self, now: Millis, holders: &BTreeSet<ClientId>) -> Vec<ClientId> {
        let patience = self.patience();
        let mut over = Vec::new();
        self.next = now.plus(patience);
        for client in holders {
            let Some(heard) = self.heard.get_mut(client) else { continue };
            if now >= heard.at.plus(patience) {
                (heard.over, heard.deaf) = (true, true);
                over.push(*client);
            } else {
                self.next = self.next.min(heard.at.plus(patience));
            }
        }
        self.heard.retain(|client, heard| holders.contains(client) || now < heard.at.plus(2 * patience));
        over
    }

    pub fn deadline(&self) -> Option<Millis> {
        (self.ms > 0).then_some(self.next)
    }
}

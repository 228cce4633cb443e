//! What the map says of the shard.

use super::{Locks, Shard};
use crate::command::{Format, Internal, Place};
use crate::group::{Host, not_ready};
use crate::limit::ERA_TERM_BITS;
use crate::row::header::Keys;
use crate::store::{Store, StoreError};
use alloc::format;
use skep_types::{LogIndex, Term};
use skep_wire::mgmt::ShardState;

impl Shard {
    /// Keys of its names.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Does the map say that this server answers for it?
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Is it to begin its service, once it can?
    pub fn awaits_service(&self) -> bool {
        self.leads && !self.serves
    }

    /// Do clients still tell what they have?
    pub fn is_in_grace(&self) -> bool {
        self.grace.holds()
    }

    /// Its locks, for what concerns those of several shards.
    pub fn locks(&mut self) -> &mut Locks {
        &mut self.locks
    }

    /// As [`Shard::locks`], to look at.
    pub fn locks_held(&self) -> &Locks {
        &self.locks
    }

    /// Where the map has it. Who answers for it no more forgets what only its term knew.
    pub fn placed<S: Store>(&mut self, host: &mut Host<S>, state: ShardState) -> Result<(), StoreError> {
        (self.leads, self.state) = (host.led.contains(&self.id), state);
        if self.leads || self.started.is_none() { Ok(()) } else { self.end_term(host) }
    }

    /// Is it to answer for the shard again, in a term of its own?
    pub fn awaits_term(&self) -> bool {
        self.leads && self.started.is_none()
    }

    /// Its term is over: everything but the rows is forgotten, and whoever waits is to ask again.
    pub fn end_term<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        let again = core::mem::take(&mut self.again).into_iter().map(|request| request.reply_to);
        for to in self.waits.take_addresses().into_iter().chain(again) {
            self.answer(host, to, self.stamp(), Err(not_ready()));
        }
        host.errands.drop_of(self.id);
        self.opens.drop_all(&mut host.opens);
        let (last, durable) = (self.last, self.durable);
        let (leads, state) = (self.leads, self.state);
        let (noted, noted_load) = (self.noted, self.noted_load);
        let read = Self::read(host, self.id)?.unwrap_or_else(|| Self::new(host, self.id));
        *self = Self { last, durable, leads, state, noted, noted_load, ..read };
        Ok(())
    }

    /// Its place in the map is another one than it knew.
    pub fn take_place<S: Store>(&mut self, host: &mut Host<S>, place: &Place) -> Result<(), StoreError> {
        let Place { epoch, level, era } = *place;
        if (self.epoch, self.level, self.era) == (epoch, level, era) {
            return Ok(());
        }
        let jumps = era > self.era;
        (self.epoch, self.level, self.era) = (epoch, level, era);
        self.decide(host, &Internal::Place(Place { epoch, level, era }))?;
        if jumps {
            host.out.note(format!(
                "shard {} is an older copy that was put back: era {era}, inode numbers and generations go \
                 on far behind it",
                self.id
            ));
            self.renew_serials(host)?;
        }
        Ok(())
    }

    /// It is made: its first term begins.
    pub fn format<S: Store>(&mut self, host: &mut Host<S>, format: &Format) -> Result<(), StoreError> {
        let (term, index) = (Term((u64::from(format.era) << ERA_TERM_BITS).max(1)), LogIndex(1));
        (self.epoch, self.level, self.era) = (format.epoch, format.level, format.era);
        self.keys = format.keys;
        self.terms.push(term, index);
        self.decide(host, &Internal::Format(format.clone()))?;
        (self.is_new, self.started) = (true, Some(index));
        self.renew_serials(host)?;
        host.out.sync_now = true;
        Ok(())
    }
}

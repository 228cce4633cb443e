//! Every message with an example of its bytes, for fixtures and for fuzzing.

use crate::instrument::InstrumentRequest;
use crate::meta::{MetaRequest, ShardCall, ShardStamp};
use crate::mgmt::MgmtRequest;
use crate::storage::StorageRequest;
use crate::{Hello, Message, Refusal, Visitor, Welcome};
use alloc::format;
use skep_types::formats::Formats;

struct Both<'a>(&'a mut Formats);

impl Visitor for Both<'_> {
    fn message<M: Message>(&mut self, name: &'static str) {
        let name = format!("{:04x}.{name}", M::KIND);
        self.0.record::<M>(&name);
        self.0.record::<M::Reply>(&format!("{name}.reply"));
    }
}

/// Requests, their replies, and what connections begin with.
pub fn all() -> Formats {
    let mut formats = Formats::default();
    MetaRequest::visit(&mut Both(&mut formats));
    MgmtRequest::visit(&mut Both(&mut formats));
    StorageRequest::visit(&mut Both(&mut formats));
    InstrumentRequest::visit(&mut Both(&mut formats));
    formats.record::<ShardCall>("ShardCall");
    formats.record::<ShardStamp>("ShardStamp");
    formats.record::<Refusal>("Refusal");
    formats.record::<Hello>("Hello");
    formats.record::<Welcome>("Welcome");
    formats
}

//! Messages of this release and of those before it: their bytes stand in `crates/vocabulary/wire/formats`.

use skep_types::formats::Formats;
use skep_types::limits::FORMAT;
use skep_wire::instrument::InstrumentRequest;
use skep_wire::meta::{MetaRequest, ShardCall, ShardStamp};
use skep_wire::mgmt::MgmtRequest;
use skep_wire::storage::StorageRequest;
use skep_wire::{Hello, Message, Refusal, Visitor, Welcome};
use std::fs;

struct Both<'a>(&'a mut Formats);

impl Visitor for Both<'_> {
    fn message<M: Message>(&mut self, name: &'static str) {
        let name = format!("{:04x}.{name}", M::KIND);
        self.0.record::<M>(&name);
        self.0.record::<M::Reply>(&format!("{name}.reply"));
    }
}

/// Goal: messages that a release sent are read by every later one, and mean the same.
#[test]
fn messages_stay_readable() {
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
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/formats");
    let own = format!("{dir}/{FORMAT}.txt");
    if std::env::var_os("SKEP_WRITE_FIXTURES").is_some() {
        fs::create_dir_all(dir).unwrap();
        fs::write(&own, formats.text()).unwrap();
    }
    for file in fs::read_dir(dir).unwrap().flatten() {
        let text = fs::read_to_string(file.path()).unwrap();
        formats.reads(&text).unwrap_or_else(|e| panic!("{}: {e}", file.path().display()));
    }
    formats.is(&fs::read_to_string(&own).unwrap()).unwrap();
}

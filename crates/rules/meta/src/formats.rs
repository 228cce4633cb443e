//! Rows and log of this release and of those before it: their bytes stand in `crates/rules/meta/formats`.

use crate::Action;
use crate::change;
use crate::command::{
    COMMAND_LEVEL_MIN, Caller, Choices, Command, Internal, encode_internal, encode_request,
};
use crate::row::Inode;
use crate::row::deletion::Deletion;
use crate::row::entry::Entry;
use crate::row::growth::Growth;
use crate::row::header::{Header, Terms};
use crate::row::seal::Seal;
use crate::row::slot::SlotRow;
use crate::row::trim::Trim;
use crate::row::txn::{Decision, Floor, Prepared};
use alloc::format;
use alloc::vec::Vec;
use skep_types::codec::{Draw, Example};
use skep_types::formats::Formats;
use skep_types::{LogIndex, ShardId, Timestamp};

/// Reads a command and writes it again.
fn again(bytes: &[u8]) -> Option<Vec<u8>> {
    let command = Command::decode(bytes, ShardId(0), LogIndex(1)).ok()?;
    match command.action {
        Action::Internal(internal) => Some(encode_internal(command.level, command.at, &internal)),
        Action::Request(request) => {
            encode_request(command.level, command.at, command.caller, &command.choices, &request)
        }
    }
}

fn commands(formats: &mut Formats) {
    for (how, draw) in [("full", Draw::FULL), ("bare", Draw::BARE)] {
        let at = Timestamp::example(draw.of("at"));
        let caller = Option::<Caller>::example(draw.of("caller"));
        let choices = Choices::example(draw.of("choices"));
        for (name, request) in change::each(draw) {
            if let Some(bytes) = encode_request(COMMAND_LEVEL_MIN, at, caller, &choices, &request) {
                formats.bytes(&format!("log.{name}.{how}"), &bytes, again);
            }
        }
        for (number, internal) in Internal::each(draw).iter().enumerate() {
            let bytes = encode_internal(COMMAND_LEVEL_MIN, at, internal);
            formats.bytes(&format!("log.internal.{}.{how}", number + 1), &bytes, again);
        }
    }
}

/// What stands in the log, and every row.
pub fn all() -> Formats {
    let mut formats = Formats::default();
    commands(&mut formats);
    formats.record::<Deletion>("row.Deletion");
    formats.record::<Entry>("row.Entry");
    formats.record::<Growth>("row.Growth");
    formats.record::<Header>("row.Header");
    formats.record::<Terms>("row.Terms");
    formats.record::<Decision>("row.Decision");
    formats.record::<Floor>("row.Floor");
    formats.record::<Prepared>("row.Prepared");
    formats.record::<Seal>("row.Seal");
    formats.record::<SlotRow>("row.SlotRow");
    formats.record::<Trim>("row.Trim");
    formats.record::<Inode>("row.Inode");
    formats
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use skep_types::Reader;
    use skep_types::limits::FORMAT;
    use skep_wire::meta::MetaRequest;
    use skep_wire::{Message, Visitor};
    use std::fs;

    /// Sees whether the log has a form of a request.
    struct Logged;

    impl Visitor for Logged {
        fn message<M: Message>(&mut self, name: &'static str) {
            for draw in [Draw::FULL, Draw::BARE, Draw::mixed(1), Draw::mixed(2)] {
                let bytes = M::example(draw).to_bytes();
                let request = MetaRequest::decode(M::KIND, &mut Reader::new(&bytes)).unwrap().unwrap();
                let logged = change::encode(&request, &mut Vec::new());
                // An open may note a writer; what another shard asks has rows of its own instead of a lane.
                let also = matches!(
                    request,
                    MetaRequest::Open(_) | MetaRequest::Prepare(_) | MetaRequest::Decide(_)
                );
                assert_eq!(logged, crate::changes(&request) || also, "{name}");
            }
        }
    }

    /// Goal: every request that can change rows has a form in the log, and no other.
    #[test]
    fn what_changes_rows_can_be_logged() {
        MetaRequest::visit(&mut Logged);
    }

    /// Goal: rows and log records that a release wrote are read by every later one, and mean the same.
    #[test]
    fn rows_and_log_stay_readable() {
        let formats = all();
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
}

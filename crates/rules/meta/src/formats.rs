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
use skep_types::codec::{Draw, Example, Record};
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

/// Does something with the record of every table.
trait Rows {
    fn row<R: Record>(&mut self, name: &str);
}

impl Rows for Formats {
    fn row<R: Record>(&mut self, name: &str) {
        self.record::<R>(name);
    }
}

fn rows(each: &mut impl Rows) {
    each.row::<Deletion>("row.Deletion");
    each.row::<Entry>("row.Entry");
    each.row::<Growth>("row.Growth");
    each.row::<Header>("row.Header");
    each.row::<Terms>("row.Terms");
    each.row::<Decision>("row.Decision");
    each.row::<Floor>("row.Floor");
    each.row::<Prepared>("row.Prepared");
    each.row::<Seal>("row.Seal");
    each.row::<SlotRow>("row.SlotRow");
    each.row::<Trim>("row.Trim");
    each.row::<Inode>("row.Inode");
}

/// What stands in the log, and every row.
pub fn all() -> Formats {
    let mut formats = Formats::default();
    commands(&mut formats);
    rows(&mut formats);
    formats
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::row::inode::LinkRef;
    use skep_types::codec::encode_tag;
    use skep_types::{Code, Encode, Extent, Floors, Generation, Ino, Kind, Reader, Stripe, TargetId};
    use skep_wire::meta::MetaRequest;
    use skep_wire::{Message, Visitor};

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

    struct Grow;

    impl Rows for Grow {
        fn row<R: Record>(&mut self, name: &str) {
            for draw in [Draw::FULL, Draw::BARE, Draw::mixed(1)] {
                let bytes = R::example(draw).to_bytes();
                let mut field = Vec::new();
                encode_tag(&mut field, u16::MAX, &0x5e_u64);
                let with = |tail: &[u8]| {
                    let len = (bytes.len() - 4 + tail.len()) as u32;
                    R::from_bytes(&[&len.to_le_bytes()[..], &bytes[4..], tail].concat())
                        .map(|row| row.to_bytes())
                };
                assert_eq!(with(&field).as_ref(), Ok(&bytes), "{name}: not skipped");
                assert!(with(&[&field[..], &field].concat()).is_err(), "{name}: a tag that comes twice");
                assert!(with(&field[..field.len() - 1]).is_err(), "{name}: a tag that is cut short");
            }
        }
    }

    /// Goal: every row can get fields that an older release does not know: it reads the others.
    #[test]
    fn every_row_can_grow() {
        rows(&mut Grow);
    }

    fn is_refused<R: Record>(extents: impl Fn(&mut R) -> &mut Vec<Extent>) {
        let spoilt: [fn(&mut Extent); 2] = [|extent| extent.chunk_size = 0, |extent| extent.stripes.clear()];
        for spoil in spoilt {
            let mut row = R::example(Draw::FULL);
            assert!(R::from_bytes(&row.to_bytes()).is_ok());
            spoil(&mut extents(&mut row)[1]);
            assert!(R::from_bytes(&row.to_bytes()).is_err());
        }
    }

    /// Goal: rows and log records with extents in which no place can be reckoned are damaged, and say so as they are read.
    #[test]
    fn extents_without_stripes_or_chunks_are_refused() {
        is_refused(|row: &mut Inode| &mut row.layout.extents);
        is_refused(|row: &mut Growth| &mut row.layout.extents);
        is_refused(|record: &mut Choices| record.extents.as_mut().unwrap());
    }

    /// Goal: the row of an ordinary file, and how much of it each stripe takes.
    #[test]
    fn a_stripe_takes_five_bytes_of_a_row() {
        let row = |targets: u32| {
            let mut inode = Inode::new(Kind::File, 0o644, 0, 0, Timestamp::default());
            inode.links.push(LinkRef { parent: Ino::ROOT, cookie: 300 });
            inode.layout.extents.push(Extent {
                number: 0,
                start: 0,
                end: 16 << 20,
                origin: Ino(9),
                generation: Generation(1),
                code: Code::Copies,
                chunk_size: 1 << 20,
                stripes: (1..=targets).map(TargetId).map(Stripe::on).collect(),
                floors: Floors::default(),
                cuts: Vec::new(),
            });
            inode.to_bytes().len()
        };
        assert_eq!((row(1), row(4), row(64)), (259, 259 + 3 * 5, 259 + 63 * 5));
    }

    /// Goal: rows and log records that a release wrote are read by every later one, and mean the same.
    #[test]
    fn rows_and_log_stay_readable() {
        skep_types::formats_stay_readable!(all());
    }
}

//! Messages of this release and of those before it: their bytes stand in `crates/vocabulary/wire/formats`.

use skep_types::Layout;
use skep_types::codec::{Draw, Record};
use skep_wire::meta::*;

/// Goal: messages that a release sent are read by every later one, and mean the same.
#[test]
fn messages_stay_readable() {
    skep_types::formats_stay_readable!(skep_wire::formats::all());
}

fn is_refused<R: Record>(layout: impl Fn(&mut R) -> &mut Layout) {
    let spoilt: [fn(&mut Layout); 2] =
        [|layout| layout.extents[1].chunk_size = 0, |layout| layout.extents[0].stripes.clear()];
    for spoil in spoilt {
        let mut reply = R::example(Draw::FULL);
        assert!(R::from_bytes(&reply.to_bytes()).is_ok());
        spoil(layout(&mut reply));
        assert!(R::from_bytes(&reply.to_bytes()).is_err(), "{}", std::any::type_name::<R>());
    }
}

/// Goal: an answer with a layout in which no place can be reckoned (chunks of nothing, no stripes) is refused as it is read,
/// whichever answer it is: who divides by them would panic.
#[test]
fn layouts_without_stripes_or_chunks_are_refused() {
    is_refused(|reply: &mut EntryReply| reply.live.as_mut().unwrap());
    is_refused(|reply: &mut AttrReply| reply.live.as_mut().unwrap());
    is_refused(|reply: &mut OpenReply| &mut reply.layout);
    is_refused(|reply: &mut LayoutReply| &mut reply.layout);
    is_refused(|reply: &mut DirEntry| reply.live.as_mut().unwrap());
    is_refused(|reply: &mut ListReply| reply.entries[0].live.as_mut().unwrap());
    is_refused(|reply: &mut GrowReply| &mut reply.layout);
    is_refused(|reply: &mut InspectReply| &mut reply.layout);
}

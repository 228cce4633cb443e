//! Which of a stripe's targets are asked by a mount, and which one stands for all where one is named: decided here and nowhere
//! else. A stripe has one target in this release; what these answers become with several: `docs/design/layout.md`.

use skep_types::{Stripe, TargetId};
use skep_wire::storage::ChunkStat;

/// Where the bytes of a stripe are read.
pub(crate) fn to_read(stripe: &Stripe) -> TargetId {
    stripe.first()
}

/// Who is told of a change, and asked how much there is: everybody who holds it.
pub(crate) fn to_change(stripe: &Stripe) -> &[TargetId] {
    stripe.targets()
}

/// From which target to which a storage server copies by itself. `None`: a copy is more than one change, and bytes are
/// read and written by the mount.
pub(crate) fn to_copy(from: &Stripe, to: &Stripe) -> Option<(TargetId, TargetId)> {
    match to_change(to) {
        [to] => Some((to_read(from), *to)),
        _ => None,
    }
}

/// What two targets of one stripe have of it, as one answer. Their counts are each target's own.
pub(crate) fn together(one: ChunkStat, other: ChunkStat) -> ChunkStat {
    ChunkStat {
        size: one.size.max(other.size),
        blocks: one.blocks.max(other.blocks),
        mtime_ns: one.mtime_ns.max(other.mtime_ns),
        changes: None,
        cuts: None,
    }
}

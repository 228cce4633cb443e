//! Requests that a metadata shard answers. The body is `ShardCall | request`, the answer `ShardStamp | reply`.

mod cancel_lock;
mod change_attr;
mod close;
mod commit;
mod create;
mod create_temp;
mod drop_locks;
mod events;
mod found_chunk;
mod get_attr;
mod get_lock;
mod get_xattr;
mod group_stats;
mod grow;
mod inspect;
mod lease;
mod link;
mod list;
mod list_xattr;
mod lock;
mod lookup;
mod make_dir_on;
mod make_node;
mod make_symlink;
mod open;
mod read_inline;
mod read_link;
mod recalled;
mod reclaim;
mod remove_dir;
mod remove_xattr;
mod rename;
mod repair;
mod reply;
mod reserve_end;
mod seal_extent;
mod set_lock;
mod set_policy;
mod set_xattr;
mod shape;
mod switch;
mod sync;
mod tell;
mod travel;
mod txn;
mod unlink;
mod write_inline;

pub use cancel_lock::{CancelLock, CancelLockReply};
pub use change_attr::ChangeAttr;
pub use close::Close;
pub use commit::Commit;
pub use create::Create;
pub use create_temp::CreateTemp;
pub use drop_locks::DropLocks;
pub use events::{Event, Events, EventsReply, Question, TermBegun};
pub use found_chunk::FoundChunk;
pub use get_attr::GetAttr;
pub use get_lock::{GetLock, GetLockReply};
pub use get_xattr::GetXattr;
pub use group_stats::GroupStats;
pub use grow::Grow;
pub use inspect::Inspect;
pub use lease::{Grant, LeaseKind, LeaseTime, Recall, RecallKind, Wish};
pub use link::Link;
pub use list::List;
pub use list_xattr::ListXattr;
pub use lock::{
    HeldLock, LockKind, LockOutcome, LockOwner, LockSpace, LockState, LockWish, ReclaimedLock, SetLockReply,
};
pub use lookup::Lookup;
pub use make_dir_on::MakeDirOn;
pub use make_node::MakeNode;
pub use make_symlink::MakeSymlink;
pub use open::Open;
pub use read_inline::ReadInline;
pub use read_link::ReadLink;
pub use recalled::Recalled;
pub use reclaim::{Reclaim, ReclaimReply};
pub use remove_dir::RemoveDir;
pub use remove_xattr::RemoveXattr;
pub use rename::Rename;
pub use repair::Repair;
pub use reply::{AttrReply, DataReply, DirEntry, EntryReply, LayoutReply, ListReply, OpenReply};
pub use reserve_end::{ReserveEnd, ReserveEndReply};
pub use seal_extent::SealExtent;
pub use set_lock::SetLock;
pub use set_policy::SetPolicy;
pub use set_xattr::SetXattr;
pub use shape::{
    Closed, Counter, GrowReply, InlineCopy, InspectReply, NewDir, OpenMode, OpenSession, Reclaimed,
    ShardCall, ShardStamp, StatsReply,
};
pub use switch::Switch;
pub use sync::Sync;
pub use tell::{Content, Tell};
pub use travel::{AskHistory, AskHistoryReply, FetchRows, RowsReply};
pub use txn::{
    AskOutcome, AskOutcomeReply, Decide, Prepare, PrepareReply, TxnId, TxnMade, TxnMakeDir, TxnOp,
    TxnOutcome, TxnPromise, TxnRefused, TxnRetireDir, Vote,
};
pub use unlink::Unlink;
pub use write_inline::WriteInline;

crate::family! {
    /// Everything a client, an administrator or another shard asks a metadata shard.
    MetaRequest { Lookup, GetAttr, ChangeAttr, Create, MakeNode, MakeSymlink, ReadLink, Link, Unlink, RemoveDir, Rename, List, Open, Close, Commit, ReadInline, WriteInline, Grow, Switch, GetXattr, SetXattr, ListXattr, RemoveXattr, Sync, Reclaim, SetPolicy, Inspect, MakeDirOn, GroupStats, CreateTemp, SetLock, GetLock, DropLocks, CancelLock, ReserveEnd, Repair, SealExtent, Events, Prepare, Decide, AskOutcome, FetchRows, AskHistory, Recalled, Tell }
}

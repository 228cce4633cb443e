//! Operations, one file each. An operation reads and writes rows through its context and gives
//! the answer; whether it happened is decided by the caller, who logs it.

mod change_attr;
mod commit;
mod create;
mod create_temp;
mod decide;
mod get_attr;
mod grow;
mod inspect;
pub mod internal;
mod link;
mod list;
mod lookup;
mod make_dir_on;
mod make_node;
mod make_symlink;
mod open;
mod prepare;
mod read_inline;
mod read_link;
mod remove_dir;
mod rename;
mod repair;
mod seal;
mod set_policy;
mod size;
mod switch;
pub mod tell;
mod unlink;
mod write_inline;
mod xattr;

pub use grow::age_ms as grow_age_ms;
pub use prepare::{is_lost, lost, no_room};
pub use xattr::flag as xattr_flag;

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_types::Ino;
use skep_wire::meta::{InspectReply, MetaRequest, TxnOp};
use skep_wire::{Refusal, Status};

/// Runs a request that reads or changes rows.
pub fn run(ctx: &mut Ctx<'_>, request: &MetaRequest) -> Result<Done, Fail> {
    match request {
        MetaRequest::Lookup(m) => lookup::run(ctx, m),
        MetaRequest::GetAttr(m) => get_attr::run(ctx, m),
        MetaRequest::ChangeAttr(m) => change_attr::run(ctx, m),
        MetaRequest::Create(m) => create::run(ctx, m),
        MetaRequest::CreateTemp(m) => create_temp::run(ctx, m),
        MetaRequest::MakeNode(m) => make_node::run(ctx, m),
        MetaRequest::MakeSymlink(m) => make_symlink::run(ctx, m),
        MetaRequest::ReadLink(m) => read_link::run(ctx, m),
        MetaRequest::Link(m) => link::run(ctx, m),
        MetaRequest::Unlink(m) => unlink::run(ctx, m),
        MetaRequest::RemoveDir(m) => remove_dir::run(ctx, m),
        MetaRequest::Rename(m) => rename::run(ctx, m),
        MetaRequest::List(m) => list::run(ctx, m),
        MetaRequest::Open(m) => open::run(ctx, m),
        MetaRequest::Commit(m) => commit::run(ctx, m),
        MetaRequest::ReadInline(m) => read_inline::run(ctx, m),
        MetaRequest::WriteInline(m) => write_inline::run(ctx, m),
        MetaRequest::Grow(m) => grow::run(ctx, m),
        MetaRequest::Switch(m) => switch::run(ctx, m),
        MetaRequest::GetXattr(m) => xattr::get(ctx, m),
        MetaRequest::SetXattr(m) => xattr::set(ctx, m),
        MetaRequest::ListXattr(m) => xattr::list(ctx, m),
        MetaRequest::RemoveXattr(m) => xattr::remove(ctx, m),
        MetaRequest::Tell(m) => tell::run(ctx, m),
        MetaRequest::SetPolicy(m) => set_policy::run(ctx, m),
        MetaRequest::MakeDirOn(m) => make_dir_on::run(ctx, m),
        MetaRequest::Prepare(m) => prepare::run(ctx, m),
        MetaRequest::Decide(m) => decide::run(ctx, m),
        MetaRequest::Repair(m) => repair::run(ctx, m),
        MetaRequest::Inspect(m) => Ok(Done::reply(&inspect::run(ctx, m)?)),
        MetaRequest::Close(_)
        | MetaRequest::Sync(_)
        | MetaRequest::Reclaim(_)
        | MetaRequest::SetLock(_)
        | MetaRequest::GetLock(_)
        | MetaRequest::DropLocks(_)
        | MetaRequest::CancelLock(_)
        | MetaRequest::Events(_)
        | MetaRequest::ReserveEnd(_)
        | MetaRequest::SealExtent(_)
        | MetaRequest::AskOutcome(_)
        | MetaRequest::FetchRows(_)
        | MetaRequest::AskHistory(_)
        | MetaRequest::Recalled(_)
        | MetaRequest::GroupStats(_) => {
            Err(Refusal::with(Status::MALFORMED, "the server answers this itself").into())
        }
    }
}

/// Everything about an inode that is in rows.
pub fn inspect(ctx: &mut Ctx<'_>, ino: Ino) -> Result<InspectReply, Fail> {
    inspect::run(ctx, &skep_wire::meta::Inspect { ino })
}

/// Does the request change rows (and so needs a place in its lane)?
pub fn changes(request: &MetaRequest) -> bool {
    match request {
        MetaRequest::Open(m) => m.truncate,
        MetaRequest::Lookup(_)
        | MetaRequest::GetAttr(_)
        | MetaRequest::ReadLink(_)
        | MetaRequest::List(_)
        | MetaRequest::ReadInline(_)
        | MetaRequest::GetXattr(_)
        | MetaRequest::ListXattr(_)
        | MetaRequest::Inspect(_)
        | MetaRequest::Close(_)
        | MetaRequest::Sync(_)
        | MetaRequest::Reclaim(_)
        | MetaRequest::SetLock(_)
        | MetaRequest::GetLock(_)
        | MetaRequest::DropLocks(_)
        | MetaRequest::CancelLock(_)
        | MetaRequest::Events(_)
        | MetaRequest::ReserveEnd(_)
        | MetaRequest::SealExtent(_)
        | MetaRequest::GroupStats(_)
        | MetaRequest::AskOutcome(_)
        | MetaRequest::FetchRows(_)
        | MetaRequest::AskHistory(_)
        | MetaRequest::Recalled(_)
        | MetaRequest::Prepare(_)
        | MetaRequest::Decide(_) => false,
        _ => true,
    }
}

/// Does the request need more room? Such are refused while the disk of the server is nearly full.
pub fn needs_room(request: &MetaRequest) -> bool {
    let makes = |op: &TxnOp| matches!(op, TxnOp::MakeDir(_));
    match request {
        MetaRequest::Create(_)
        | MetaRequest::CreateTemp(_)
        | MetaRequest::MakeNode(_)
        | MetaRequest::MakeSymlink(_)
        | MetaRequest::Link(_)
        | MetaRequest::WriteInline(_)
        | MetaRequest::SetXattr(_)
        | MetaRequest::MakeDirOn(_) => true,
        MetaRequest::Prepare(m) => m.ops.iter().any(makes),
        _ => false,
    }
}

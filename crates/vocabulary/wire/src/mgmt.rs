//! Requests that the management service answers.

mod assign_targets;
mod close_session;
mod cluster_status;
mod create_pool;
mod delete_pool;
mod evict;
mod get_fences;
mod get_map;
mod get_space;
mod give_shard;
mod heartbeat;
mod map;
mod open_session;
mod register_node;
mod register_target;
mod remove_node;
mod remove_target;
mod rename_pool;
mod renew_session;
mod set_capacity_limits;
mod set_node_alias;
mod set_target_alias;
mod set_target_state;
mod shape;

pub use assign_targets::AssignTargets;
pub use close_session::CloseSession;
pub use cluster_status::ClusterStatus;
pub use create_pool::CreatePool;
pub use delete_pool::DeletePool;
pub use evict::Evict;
pub use get_fences::GetFences;
pub use get_map::GetMap;
pub use get_space::{GetSpace, SpaceReply, TargetSpace};
pub use give_shard::GiveShard;
pub use heartbeat::Heartbeat;
pub use map::{ClusterView, Gap, Gone, MapReply};
pub use open_session::OpenSession;
pub use register_node::RegisterNode;
pub use register_target::RegisterTarget;
pub use remove_node::RemoveNode;
pub use remove_target::RemoveTarget;
pub use rename_pool::RenamePool;
pub use renew_session::RenewSession;
pub use set_capacity_limits::SetCapacityLimits;
pub use set_node_alias::SetNodeAlias;
pub use set_target_alias::SetTargetAlias;
pub use set_target_state::SetTargetState;
pub use shape::{
    Address, CapacityLimits, CreatePoolReply, EvictionStatus, Fence, FencesReply, HeartbeatReply, NodeEntry,
    NodeStatus, OpenSessionReply, PoolEntry, PoolStatus, RegisterNodeReply, RegisterTargetReply, RegistryAge,
    SessionStatus, ShardAt, ShardEntry, ShardState, SpaceLimits, StatusReply, TargetEntry, TargetReport,
};

crate::family! {
    /// Everything a daemon, a client or an administrator asks mgmtd.
    MgmtRequest { RegisterNode, RegisterTarget, Heartbeat, GetMap, OpenSession, RenewSession, CloseSession, GetFences, Evict, SetTargetState, ClusterStatus, CreatePool, RenamePool, DeletePool, AssignTargets, SetCapacityLimits, SetNodeAlias, SetTargetAlias, RemoveTarget, RemoveNode, GetSpace, GiveShard }
}

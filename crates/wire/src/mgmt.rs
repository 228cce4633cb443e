//! Requests that the management service answers.

mod close_session;
mod cluster_status;
mod evict;
mod get_fences;
mod get_map;
mod heartbeat;
mod open_session;
mod register_node;
mod register_target;
mod renew_session;
mod set_target_state;
mod shape;

pub use close_session::CloseSession;
pub use cluster_status::ClusterStatus;
pub use evict::Evict;
pub use get_fences::GetFences;
pub use get_map::GetMap;
pub use heartbeat::Heartbeat;
pub use open_session::OpenSession;
pub use register_node::RegisterNode;
pub use register_target::RegisterTarget;
pub use renew_session::RenewSession;
pub use set_target_state::SetTargetState;
pub use shape::{
    Address, Fence, FencesReply, HeartbeatReply, MapReply, NodeEntry, NodeStatus, OpenSessionReply,
    PoolEntry, RegisterNodeReply, RegisterTargetReply, SessionStatus, ShardEntry, StatusReply, TargetEntry,
    TargetReport,
};

crate::family! {
    /// Everything a daemon, a client or an administrator asks mgmtd.
    MgmtRequest { RegisterNode, RegisterTarget, Heartbeat, GetMap, OpenSession, RenewSession, CloseSession, GetFences, Evict, SetTargetState, ClusterStatus }
}

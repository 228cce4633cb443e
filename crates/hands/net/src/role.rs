//! Which role may send which message. Services ask before they look at the body.

use skep_types::Role;
use skep_wire::Message;
use skep_wire::instrument::*;
use skep_wire::meta::*;
use skep_wire::mgmt::{OpenSession, *};
use skep_wire::storage::*;
use skep_wire::{Header, Refusal, Status};

const CLIENT: u8 = 1;
const SERVER: u8 = 2;
const ADMIN: u8 = 4;

macro_rules! table {
    ($($message:ident: $roles:expr),* $(,)?) => {
        /// (number, name, roles) of every message.
        const TABLE: &[(u16, &str, u8)] = &[$((<$message as Message>::KIND, stringify!($message), $roles)),*];
    };
}

// An administrator may do what a client may: `skep` commands walk the namespace like a mount.
table! {
    RegisterNode: SERVER, RegisterTarget: SERVER, Heartbeat: SERVER, GetFences: SERVER | ADMIN,
    GetMap: CLIENT | SERVER | ADMIN,
    OpenSession: CLIENT | ADMIN, RenewSession: CLIENT | ADMIN, CloseSession: CLIENT | ADMIN,
    ClusterStatus: CLIENT | ADMIN, GetSpace: CLIENT | ADMIN,
    Evict: ADMIN, SetTargetState: ADMIN, CreatePool: ADMIN, RenamePool: ADMIN, DeletePool: ADMIN,
    AssignTargets: ADMIN, SetCapacityLimits: ADMIN, SetNodeAlias: ADMIN, SetTargetAlias: ADMIN,
    RemoveTarget: ADMIN, RemoveNode: ADMIN, GiveShard: ADMIN,

    Lookup: CLIENT | ADMIN, GetAttr: CLIENT | ADMIN, ChangeAttr: CLIENT | ADMIN, Create: CLIENT | ADMIN,
    MakeNode: CLIENT | ADMIN, MakeSymlink: CLIENT | ADMIN, ReadLink: CLIENT | ADMIN, Link: CLIENT | ADMIN,
    Unlink: CLIENT | ADMIN, RemoveDir: CLIENT | ADMIN, Rename: CLIENT | ADMIN, List: CLIENT | ADMIN,
    Open: CLIENT | ADMIN, Close: CLIENT | ADMIN, Commit: CLIENT | ADMIN, ReadInline: CLIENT | ADMIN,
    WriteInline: CLIENT | ADMIN, Grow: CLIENT | ADMIN, Switch: CLIENT | ADMIN, GetXattr: CLIENT | ADMIN,
    SetXattr: CLIENT | ADMIN, ListXattr: CLIENT | ADMIN, RemoveXattr: CLIENT | ADMIN, Sync: CLIENT | ADMIN,
    Reclaim: CLIENT | ADMIN, SetPolicy: CLIENT | ADMIN, Inspect: CLIENT | ADMIN, GroupStats: CLIENT | ADMIN,
    MakeDirOn: ADMIN, Prepare: SERVER, Decide: SERVER, AskOutcome: SERVER, FetchRows: SERVER, AskHistory: SERVER, CreateTemp: CLIENT, Recalled: CLIENT, Tell: CLIENT, ReserveEnd: CLIENT | ADMIN, Repair: CLIENT | ADMIN,
    SealExtent: CLIENT | ADMIN,
    SetLock: CLIENT, GetLock: CLIENT, DropLocks: CLIENT, CancelLock: CLIENT, Events: CLIENT,

    ReadChunk: CLIENT | ADMIN, WriteChunk: CLIENT | ADMIN, PunchChunk: CLIENT | ADMIN,
    ReserveChunk: CLIENT | ADMIN, SyncChunks: CLIENT | SERVER | ADMIN, StatChunks: CLIENT | SERVER | ADMIN,
    TrimChunk: SERVER | ADMIN, SealChunk: SERVER, DeleteChunks: SERVER | ADMIN, ListChunks: SERVER | ADMIN,
    TargetStats: CLIENT | SERVER | ADMIN, MapChunk: CLIENT | ADMIN, CopyChunk: CLIENT | ADMIN,

    Measure: ADMIN, Discard: CLIENT | SERVER | ADMIN, Fabricate: CLIENT | SERVER | ADMIN,
}

/// May a peer of this role send message number `kind`? Unknown numbers: nobody.
pub fn role_may(kind: u16, role: Role) -> bool {
    let bit = match role {
        Role::Client => CLIENT,
        Role::Server => SERVER,
        Role::Admin => ADMIN,
    };
    TABLE.iter().any(|(number, _, roles)| *number == kind && roles & bit != 0)
}

/// [`role_may`] as the refusal to answer with.
pub fn may_call(header: &Header, role: Role) -> Result<(), Refusal> {
    if role_may(header.kind, role) {
        return Ok(());
    }
    Err(match TABLE.iter().find(|(number, ..)| *number == header.kind) {
        Some((_, name, _)) => Refusal::with(
            Status::ROLE,
            format!("{name} is not for the role {role:?}: use a key file that holds the role it needs"),
        ),
        None => Refusal::with(
            Status::MALFORMED,
            format!("message {:#06x} is unknown: the sender is newer than this service", header.kind),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::Reader;
    use skep_types::codec::DecodeError;

    /// Does some service know message number `kind`? (An empty body is refused by all that have fields.)
    fn exists(kind: u16) -> bool {
        fn known<T>(r: Result<Option<T>, DecodeError>) -> bool {
            !matches!(r, Ok(None))
        }
        known(MgmtRequest::decode(kind, &mut Reader::new(&[])))
            || known(MetaRequest::decode(kind, &mut Reader::new(&[])))
            || known(StorageRequest::decode(kind, &mut Reader::new(&[])))
            || known(InstrumentRequest::decode(kind, &mut Reader::new(&[])))
    }

    /// Goal: the table names every message there is, once, and no other number is allowed to anybody.
    #[test]
    fn the_table_covers_all_messages() {
        for kind in 0..=u16::MAX {
            let rows = TABLE.iter().filter(|(number, ..)| *number == kind).count();
            assert_eq!(rows, usize::from(exists(kind)), "message {kind:#06x}");
            if rows == 0 {
                assert!(![Role::Client, Role::Server, Role::Admin].iter().any(|r| role_may(kind, *r)));
            }
        }
    }

    /// Goal: a client key reaches no server-to-server and no administrator's message.
    #[test]
    fn a_client_is_kept_out() {
        for kind in [
            RegisterNode::KIND,
            RegisterTarget::KIND,
            Heartbeat::KIND,
            GetFences::KIND,
            Prepare::KIND,
            Decide::KIND,
            AskOutcome::KIND,
            DeleteChunks::KIND,
            ListChunks::KIND,
            TrimChunk::KIND,
            Evict::KIND,
            SetTargetState::KIND,
            MakeDirOn::KIND,
            Measure::KIND,
        ] {
            assert!(!role_may(kind, Role::Client), "{kind:#06x}");
            let refusal = may_call(&Header::request(kind, 1), Role::Client).unwrap_err();
            assert_eq!(refusal.status, Status::ROLE);
        }
        assert!(role_may(ClusterStatus::KIND, Role::Client));
        assert!(!role_may(Evict::KIND, Role::Server));
    }
}

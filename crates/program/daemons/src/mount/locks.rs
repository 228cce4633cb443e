//! Locks between the kernel's words and those of the core, and programs that wait.

use super::convert::errno;
use super::keeper::Keeper;
use super::lane_hands::MountPort;
use super::worker::MountLane;
use skep_client::Waiting;
use skep_fuse::{Context, Errno, FileLock, LockRequest, Waited};
use skep_wire::meta::{HeldLock, LockKind, LockSpace, LockWish};
use std::sync::Arc;

/// The kernel's "to the end".
const END: u64 = i64::MAX as u64;

fn kind(kind: skep_fuse::LockKind) -> Option<LockKind> {
    match kind {
        skep_fuse::LockKind::Read => Some(LockKind::Read),
        skep_fuse::LockKind::Write => Some(LockKind::Write),
        skep_fuse::LockKind::Unlock => None,
    }
}

/// The wish of an `fcntl`.
pub fn range(request: &LockRequest) -> LockWish {
    let FileLock { start, end, kind: of, pid } = request.lock;
    let last = if end >= END { u64::MAX } else { end };
    LockWish { owner: request.owner, pid, space: LockSpace::Range, kind: kind(of), start, last }
}

/// The wish of an `flock`.
pub fn whole(request: &LockRequest) -> LockWish {
    LockWish { space: LockSpace::Whole, start: 0, last: u64::MAX, ..range(request) }
}

/// What `F_GETLK` shows. A process of another machine has no number here.
pub fn shown(held: Option<(HeldLock, bool)>, request: &LockRequest) -> FileLock {
    let Some((held, own)) = held else {
        return FileLock { kind: skep_fuse::LockKind::Unlock, ..request.lock };
    };
    FileLock {
        start: held.start,
        end: held.last.min(END),
        kind: match held.kind {
            LockKind::Read => skep_fuse::LockKind::Read,
            LockKind::Write => skep_fuse::LockKind::Write,
        },
        pid: if own { held.pid } else { 0 },
    }
}

/// Takes a lock, or parks the request until it comes. Only a parked one is a wait that any signal ends: a lock that is free and
/// an unlock (which flock(2) also sends as a wish that waits) are not interrupted by a slow server.
pub async fn wait<P: MountPort>(
    lane: &MountLane<P>,
    keeper: &Arc<Keeper>,
    cx: &Context<'_>,
    handle: u64,
    wish: LockWish,
) -> Result<Waited, Errno> {
    if wish.kind.is_none() {
        return lane.set_lock(handle, wish).await.map_err(errno).map(|()| Waited::Now);
    }
    match lane.wait_for_lock(handle, wish).await.map_err(errno)? {
        Waiting::Done => Ok(Waited::Now),
        Waiting::Ticket(ticket) => match cx.park() {
            Ok(reply) => {
                keeper.park(ticket, reply);
                Ok(Waited::Later)
            }
            Err(error) => {
                // Too many wait already. One that was granted a moment ago is kept.
                let held = lane.cancel_lock(ticket).await.is_some_and(|ended| ended.result.is_ok());
                keeper.forget(ticket);
                if held { Ok(Waited::Now) } else { Err(error) }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::ClientId;
    use skep_wire::meta::LockOwner;

    fn request(start: u64, end: u64, kind: skep_fuse::LockKind) -> LockRequest {
        LockRequest { fh: 1, owner: 5, lock: FileLock { start, end, kind, pid: 77 } }
    }

    /// Goal: ends are inclusive on both sides, "to the end" stays that, and foreign processes have no number.
    #[test]
    fn ends_and_owners() {
        let wish = range(&request(3, 9, skep_fuse::LockKind::Write));
        assert_eq!((wish.start, wish.last, wish.kind, wish.owner), (3, 9, Some(LockKind::Write), 5));
        let open = range(&request(3, END, skep_fuse::LockKind::Unlock));
        assert_eq!((open.last, open.kind), (u64::MAX, None));
        let flock = whole(&request(3, 9, skep_fuse::LockKind::Read));
        assert_eq!((flock.start, flock.last, flock.space), (0, u64::MAX, LockSpace::Whole));
        let by = LockOwner { client: ClientId(1), owner: 9 };
        let held = HeldLock { by, pid: 42, kind: LockKind::Read, start: 4, last: u64::MAX };
        let asked = request(0, 100, skep_fuse::LockKind::Write);
        let own = shown(Some((held, true)), &asked);
        assert_eq!((own.start, own.end, own.kind, own.pid), (4, END, skep_fuse::LockKind::Read, 42));
        assert_eq!(shown(Some((held, false)), &asked).pid, 0);
        assert_eq!(shown(None, &asked).kind, skep_fuse::LockKind::Unlock);
    }
}

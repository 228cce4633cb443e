//! statfs: the space of all targets. It is asked for when somebody wants to know, and seldom.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use skep_types::{Capacity, Encode};
use skep_wire::Message;
use skep_wire::mgmt::{GetSpace, SpaceReply};

/// How old figures may be, in milliseconds: a mount asks no more often, whatever its programs do.
const SPACE_AGE_MAX_MS: u64 = 2_000;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Space of the cluster, not older than 2 s, or than the last answer of mgmtd.
    pub async fn statfs(&self) -> Capacity {
        let now = self.port.now();
        let is_due = self.shared.with(|s| {
            let is_due = s.space_asked.is_none_or(|asked| now.since(asked) >= SPACE_AGE_MAX_MS);
            if is_due {
                s.space_asked = Some(now);
            }
            is_due
        });
        if is_due {
            let job = Job::new(To::Mgmt, GetSpace::KIND, GetSpace {}.to_bytes(), false);
            if let Ok(reply) = self.once(job).await
                && let Ok(reply) = reply.read::<SpaceReply>()
            {
                self.shared.with(|s| s.map.set_space(&reply));
            }
        }
        self.shared.with(|s| s.map.capacity())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Fault, block_on, create, mounted};
    use crate::{Lane, WriteHow};
    use skep_types::Errno;
    use skep_wire::meta::SealExtent;
    use skep_wire::mgmt::GetSpace;
    use skep_wire::storage::WriteChunk;
    use skep_wire::{Message, Status};

    /// Goal: the figures are asked for on demand, by all lanes together once in 2 s, and anew when something was full;
    /// without mgmtd the last ones are shown.
    #[test]
    fn space_is_asked_for_seldom() {
        let (cluster, lane) = mounted();
        let other = Lane::new(lane.shared.clone(), |_| lane.port.clone()).unwrap();
        let asked = || cluster.borrow().count(GetSpace::KIND);
        assert_eq!(asked(), 0);
        cluster.borrow_mut().free = 700;
        for lane in [&lane, &other, &lane] {
            assert_eq!((block_on(lane.statfs()).bytes_free, asked()), (700, 1));
        }
        cluster.borrow_mut().free = 600;
        cluster.borrow_mut().now += 1_999;
        assert_eq!((block_on(other.statfs()).bytes_free, asked()), (700, 1));
        cluster.borrow_mut().now += 1;
        assert_eq!((block_on(other.statfs()).bytes_free, asked()), (600, 2));
        let file = create(&lane, b"f");
        block_on(lane.write(file.handle, 0, &[1; 20_000], WriteHow::default())).unwrap();
        cluster.borrow_mut().free = 0;
        cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(Status::errno(Errno::ENOSPC))]);
        cluster.borrow_mut().fail(SealExtent::KIND, &[Fault::Refuse(Status::errno(Errno::ENOSPC))]);
        assert_eq!(
            block_on(lane.write(file.handle, 20_000, &[1; 10], WriteHow::default())),
            Err(Errno::ENOSPC)
        );
        assert_eq!((block_on(lane.statfs()).bytes_free, asked()), (0, 3));
        cluster.borrow_mut().now += 5_000;
        cluster.borrow_mut().fail(GetSpace::KIND, &[Fault::Unreachable]);
        assert_eq!((block_on(lane.statfs()).bytes_free, asked()), (0, 4));
    }
}

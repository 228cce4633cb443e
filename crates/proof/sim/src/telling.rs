//! The lane of a mount that tells what it keeps to itself of files that it holds, and does nothing else: so that nobody who
//! waits for one waits for a request of a program, which may wait for another mount.

use crate::drive::SimLane;
use crate::hub::{Hub, HubRef, LaneId};
use crate::world::TELLER;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// Tells, for ever: when it is time, and when somebody asks.
pub async fn keep_telling(hub: HubRef, lane: Rc<SimLane>, id: LaneId) {
    loop {
        let ms = lane.tell_held().await;
        let due = {
            let hub = &mut *hub.borrow_mut();
            let due = hub.now + ms.max(1);
            hub.timers.push((due, id));
            due
        };
        let is_asked = || hub.borrow_mut().asked.remove(&id.life);
        poll_fn(|_| if is_asked() || hub.borrow().now >= due { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }
}

impl Hub {
    /// Somebody waits for a file that the mount of this life holds, or it holds one where it held none.
    pub fn wake_teller(&mut self, life: u32) {
        self.asked.insert(life);
        let due = self.now;
        self.timers.push((due, LaneId { life, lane: TELLER as u32 }));
    }
}

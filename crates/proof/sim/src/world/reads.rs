//! Rows that a metadata server has its disk read while other requests pass.

use super::World;
use crate::hub::Hub;
use crate::queue::Event;
use skep_meta::{Input, Read};

/// A read takes up to so long.
const READ_MS: u64 = 30;

impl World {
    /// The disk is asked; what it gives comes in any order.
    pub(super) fn read_rows(&mut self, life: u64, reads: Vec<Read>, hub: &mut Hub) {
        for read in reads {
            hub.coverage.hit("a request waited for rows");
            let due = hub.now + hub.rng.below(READ_MS);
            self.queue.at(due, &mut hub.rng, Event::RowsRead(life, read));
        }
    }

    /// It has given them. At times they are gone again before anybody has looked.
    pub(super) fn rows_read(&mut self, life: u64, read: &Read) {
        let Some(at) = self.metad_in(life) else { return };
        let are_gone = self.hub.borrow_mut().permille(50);
        if !are_gone {
            self.metads[at].bring(&read.wanted);
        }
        self.metad_input(self.metads[at].node, Input::Read(read.id));
    }
}

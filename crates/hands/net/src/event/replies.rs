//! Where a service puts its replies.

use super::ConnId;
use super::connection::Phase;
use super::table::Table;
use skep_types::{Encode, FenceEpoch};
use skep_wire::{Header, Refusal};

/// Takes the replies of a round.
pub struct Replies<'a> {
    pub(super) table: &'a mut Table,
    pub(super) epoch: FenceEpoch,
}

impl Replies<'_> {
    /// The epoch that replies pushed from now on carry at least (a service that learned of a newer
    /// one in this round says so).
    pub fn set_epoch(&mut self, epoch: FenceEpoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Sends a frame; lengths and checksums are filled in. `false`: the connection is gone, or the
    /// frame is longer than the limits (then it is closed, with a line in the log).
    pub fn push(&mut self, conn: ConnId, header: &Header, body: &[u8], payload: &[u8]) -> bool {
        let epoch = self.epoch.max(header.epoch);
        let Some(connection) = self.table.get(conn) else { return false };
        let Phase::Open(open) = &mut connection.phase else { return false };
        if connection.ending {
            return false;
        }
        open.answers();
        let fits = connection.outbound.queue(&Header { epoch, ..*header }, body, payload).is_ok();
        if !fits {
            connection.ending = true;
            let info = connection.info.clone();
            let text =
                format_args!("connection closed: the reply to message {:#06x} is too long", header.kind);
            self.table.log.line(&info.host, text);
        }
        self.table.mark_dirty(conn);
        fits
    }

    /// Answers `request` with a record.
    pub fn answer(&mut self, conn: ConnId, request: &Header, reply: &impl Encode) -> bool {
        self.push(conn, &request.reply(), &reply.to_bytes(), &[])
    }

    /// Answers `request` with a refusal (mgmtd and storage form: the body is the refusal alone).
    pub fn refuse(&mut self, conn: ConnId, request: &Header, refusal: &Refusal) -> bool {
        let header = Header { status: refusal.status.0, ..request.reply() };
        self.push(conn, &header, &refusal.to_bytes(), &[])
    }

    /// Closes the connection once everything pushed to it is sent.
    pub fn close(&mut self, conn: ConnId) {
        if let Some(connection) = self.table.get(conn) {
            connection.ending = true;
            self.table.mark_dirty(conn);
        }
    }

    /// Is the connection still there?
    pub fn is_open(&mut self, conn: ConnId) -> bool {
        self.table.get(conn).is_some()
    }
}

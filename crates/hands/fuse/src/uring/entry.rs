//! One entry of a queue: the memory through which requests come and replies go.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use skep_ring::{Command, Reactor};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::header::{IN_HEADER, InHeader, OUT_HEADER};
use crate::abi::ring::{
    COMMIT_AND_FETCH, IN_OUT_AT, OP_AT, OP_ROOM, REGISTER, RING_HEADERS, RING_PARTS, RingCommand, RingInOut,
};
use crate::buffer::HEAD;
use crate::{Errno, ReplyBuffer};

/// Where the addresses of headers and payload are put for REGISTER.
const PARTS_AT: usize = 512;
/// A request whose payload is not longer is copied, so that its reply can be written where it was. Names are.
const COPIED_LIMIT: usize = 1024;
/// Longest reply to a request that is not copied (writes, extended attributes, ioctl's at most 16 KiB).
const SIDE_CAPACITY: usize = 20 << 10;

/// The entry's memory as the kernel knows it: headers at the start, the payload at [`HEAD`].
struct Shared(ReplyBuffer);

pub(super) struct Entry {
    /// While a command is in flight the reactor holds it, too, and it is not touched.
    shared: Rc<Shared>,
    /// What the kernel was given last, and what is to be answered.
    commit: Option<u64>,
    header: InHeader,
    /// The request in one piece, if it is small.
    copied: Vec<u8>,
    /// Where in the memory it is in one piece, if not.
    in_place: Option<(usize, usize)>,
    /// For replies to such.
    side: Option<ReplyBuffer>,
}

impl Entry {
    /// An entry for payloads of `payload` bytes.
    pub(super) fn new(payload: usize) -> Result<Entry, Errno> {
        Ok(Entry {
            shared: Rc::new(Shared(ReplyBuffer::new(payload)?)),
            commit: None,
            header: InHeader::default(),
            copied: Vec::new(),
            in_place: None,
            side: None,
        })
    }

    /// Gives the kernel the entry (at first), or the reply in it, and waits for the next request. An error is the
    /// end of the entry.
    #[allow(unsafe_code)] // a command with addresses
    pub(super) async fn exchange(
        &mut self,
        reactor: &Reactor,
        device: BorrowedFd<'_>,
        queue: u16,
    ) -> io::Result<()> {
        let mut command = Command { number: COMMIT_AND_FETCH, length: 0, address: 0, body: [0; 80] };
        let own = RingCommand { qid: queue, commit_id: self.commit.unwrap_or(0), ..RingCommand::default() };
        command.body[..size_of::<RingCommand>()].copy_from_slice(own.as_bytes());
        if self.commit.is_none() {
            command.number = REGISTER;
            command.length = RING_PARTS;
            command.address = self.parts()?;
        }
        let keep: Rc<dyn Any> = Rc::clone(&self.shared) as Rc<dyn Any>;
        // SAFETY: the kernel uses the memory of this entry and nothing else. It is kept, at its place, by the
        // reference given along, and not touched before the command has completed: everything that does so needs
        // `Rc::get_mut`, which fails until then, and is called by the same task only after this.
        unsafe { reactor.command(device, &command, keep) }.await.map(drop)
    }

    /// The memory, between two commands.
    fn memory(&mut self) -> Result<&mut ReplyBuffer, Errno> {
        Rc::get_mut(&mut self.shared).map(|shared| &mut shared.0).ok_or(Errno::EIO)
    }

    /// Writes down where headers and payload are; returns where that is written.
    fn parts(&mut self) -> io::Result<u64> {
        let memory = self.memory().map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        let payload = memory.capacity();
        let whole = memory.whole_mut();
        let start = whole.as_ptr() as usize;
        let parts = [start, RING_HEADERS, start + HEAD, payload];
        whole[PARTS_AT..PARTS_AT + size_of_val(&parts)].copy_from_slice(parts.as_bytes());
        Ok((start + PARTS_AT) as u64)
    }

    /// Takes the request that has come apart; afterwards [`Entry::request`] is it.
    pub(super) fn begin(&mut self) -> Result<InHeader, Errno> {
        let memory = self.memory()?;
        let whole = memory.whole_mut();
        let in_out = RingInOut::read_from_bytes(&whole[IN_OUT_AT..RING_HEADERS]).map_err(|_| Errno::EIO)?;
        let header = InHeader::read_from_bytes(&whole[..IN_HEADER]).map_err(|_| Errno::EIO)?;
        let payload = in_out.payload_sz as usize;
        let fixed = (header.len as usize).checked_sub(IN_HEADER + payload).filter(|fixed| *fixed <= OP_ROOM);
        self.commit = Some(in_out.commit_id);
        self.header = header;
        self.in_place = None;
        self.copied.clear();
        let fixed = fixed.ok_or(Errno::EINVAL)?;
        let end = HEAD + payload;
        if end > self.shared.0.whole().len() {
            return Err(Errno::EINVAL);
        }
        if payload <= COPIED_LIMIT {
            let whole = self.shared.0.whole();
            self.copied.extend_from_slice(&whole[..IN_HEADER]);
            self.copied.extend_from_slice(&whole[OP_AT..OP_AT + fixed]);
            self.copied.extend_from_slice(&whole[HEAD..end]);
            return Ok(header);
        }
        // The payload stays; what belongs in front of it is copied there.
        let start = HEAD - fixed - IN_HEADER;
        let whole = self.memory()?.whole_mut();
        whole.copy_within(OP_AT..OP_AT + fixed, HEAD - fixed);
        whole.copy_within(..IN_HEADER, start);
        self.in_place = Some((start, end));
        if self.side.is_none() {
            self.side = Some(ReplyBuffer::new(SIDE_CAPACITY)?);
        }
        Ok(header)
    }

    /// The request in one piece, and where its reply goes.
    pub(super) fn work(&mut self) -> Result<(&[u8], &mut ReplyBuffer), Errno> {
        let shared = Rc::get_mut(&mut self.shared).ok_or(Errno::EIO)?;
        match (self.in_place, &mut self.side) {
            (Some((start, end)), Some(side)) => Ok((&shared.0.whole()[start..end], side)),
            _ => Ok((&self.copied, &mut shared.0)),
        }
    }

    /// Number of the request.
    pub(super) fn unique(&self) -> u64 {
        self.header.unique
    }

    /// The reply, of `length` bytes, is where [`Entry::work`] said: the next exchange sends it.
    pub(super) fn finish(&mut self, length: usize) -> Result<(), Errno> {
        let payload = length.saturating_sub(OUT_HEADER);
        let in_place = self.in_place.is_some();
        let side = self.side.take();
        let memory = self.memory()?;
        let whole = memory.whole_mut();
        match &side {
            Some(side) if in_place => {
                whole[..OUT_HEADER].copy_from_slice(&side.whole()[HEAD - OUT_HEADER..HEAD]);
                whole[HEAD..HEAD + payload].copy_from_slice(&side.whole()[HEAD..HEAD + payload]);
            }
            _ => whole.copy_within(HEAD - OUT_HEADER..HEAD, 0),
        }
        let size = u32::try_from(payload).map_err(|_| Errno::EIO)?;
        let in_out = RingInOut { payload_sz: size, ..RingInOut::default() };
        whole[IN_OUT_AT..RING_HEADERS].copy_from_slice(in_out.as_bytes());
        self.side = side;
        Ok(())
    }

    /// An answer without payload.
    pub(super) fn answer(&mut self, result: Result<(), Errno>) -> Result<(), Errno> {
        let unique = self.unique();
        self.in_place = None;
        let length = self.memory()?.finish(unique, result.map(|()| 0));
        self.finish(length)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::{Entry, HEAD, IN_OUT_AT, OP_AT, RING_HEADERS};
    use crate::Errno;
    use crate::abi::header::InHeader;
    use crate::abi::ring::RingInOut;

    /// An entry as the kernel fills it.
    fn filled(fixed: &[u8], payload: &[u8], len: usize) -> Entry {
        let mut entry = Entry::new(1 << 20).unwrap();
        let header = InHeader { len: len as u32, opcode: 16, unique: 77, ..InHeader::default() };
        let in_out = RingInOut { commit_id: 77, payload_sz: payload.len() as u32, ..RingInOut::default() };
        let whole = entry.memory().unwrap().whole_mut();
        whole[..40].copy_from_slice(header.as_bytes());
        whole[OP_AT..OP_AT + fixed.len()].copy_from_slice(fixed);
        whole[IN_OUT_AT..RING_HEADERS].copy_from_slice(in_out.as_bytes());
        whole[HEAD..HEAD + payload.len()].copy_from_slice(payload);
        entry
    }

    fn whole(entry: &Entry) -> Vec<u8> {
        entry.shared.0.whole().to_vec()
    }

    /// Goal: a request is whole whether it is copied or stays where it is, and the reply to either is where the
    /// kernel looks for it.
    #[test]
    fn small_and_large() {
        for payload in [vec![], vec![3; 100], vec![5; 1 << 20]] {
            let fixed = [9; 40];
            let mut entry = filled(&fixed, &payload, 40 + 40 + payload.len());
            assert_eq!(entry.begin().unwrap().unique, 77);
            let (request, reply) = entry.work().unwrap();
            assert_eq!(request.len(), 80 + payload.len());
            assert_eq!((&request[40..80], &request[80..]), (&fixed[..], &payload[..]));
            let length = reply.put(0, &0x0102_0304u32).map(|length| reply.finish(77, Ok(length))).unwrap();
            entry.finish(length).unwrap();
            let memory = whole(&entry);
            assert_eq!(memory[..4], 20u32.to_ne_bytes());
            assert_eq!(memory[8..16], 77u64.to_ne_bytes());
            assert_eq!(memory[HEAD..HEAD + 4], 0x0102_0304u32.to_ne_bytes());
            assert_eq!(memory[IN_OUT_AT + 16..IN_OUT_AT + 20], 4u32.to_ne_bytes());
            entry.answer(Err(Errno::ENOENT)).unwrap();
            let memory = whole(&entry);
            assert_eq!(memory[..8], [16u32.to_ne_bytes(), (-2i32).to_ne_bytes()].concat());
            assert_eq!(memory[IN_OUT_AT + 16..IN_OUT_AT + 20], [0; 4]);
        }
    }

    /// Goal: lengths that contradict each other are refused and can still be answered.
    #[test]
    fn contradictions() {
        for len in [0, 39, 100, 40 + 129 + 100, usize::from(u16::MAX)] {
            let mut entry = filled(&[1; 8], &[2; 100], len);
            assert_eq!(entry.begin().unwrap_err(), Errno::EINVAL, "{len}");
            entry.answer(Err(Errno::EINVAL)).unwrap();
        }
    }
}

//! Requests of the kernel, to a file system with nothing in it.

use std::cell::RefCell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use skep_fuse::empty::{EmptyConfig, EmptyMount};
use skep_fuse::{Answer, Interrupt, Mount, NoParking, ReplyBuffer, dispatch};

use super::Target;

/// One more than the highest number of a request.
const OPCODES: u32 = 56;
/// Bytes of a request before what its kind has of its own: `u32 length, u32 opcode, u64 unique, u64 inode, ...`
const HEADER: usize = 40;
/// Bytes of a reply before its own: `u32 length, i32 error, u64 unique`.
const REPLY_HEADER: usize = 16;
/// Room for a reply.
const REPLY: usize = 64 << 10;

pub fn target() -> Target {
    let seeds = (0..OPCODES)
        .flat_map(|opcode| [&[0; 16][..], &[0; 104], b"name\0other\0"].map(|b| request(opcode, b)));
    let reply = RefCell::new(ReplyBuffer::new(REPLY).ok());
    let read = move |input: &[u8]| match reply.borrow_mut().as_mut() {
        Some(reply) => read(input, reply),
        None => Err("there is no memory for replies".to_owned()),
    };
    Target { name: "fuse", seeds: seeds.collect(), fixed: 0, one_in: 1, read: Box::new(read) }
}

fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..4].copy_from_slice(&((HEADER + body.len()) as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&opcode.to_le_bytes());
    bytes[8] = 2;
    bytes[16] = 1;
    bytes.extend_from_slice(body);
    bytes
}

fn read(input: &[u8], reply: &mut ReplyBuffer) -> Result<(), String> {
    let Some(answer) = answered(input, reply) else {
        return Err("it waits although the file system does not".to_owned());
    };
    let Answer::Reply(length) = answer else { return Ok(()) };
    let bytes = reply.reply(length);
    let number = |from: usize| {
        u64::from_le_bytes(std::array::from_fn(|at| bytes.get(from + at).copied().unwrap_or(0)))
    };
    let (said, error) = (number(0) as u32, (number(0) >> 32) as i32);
    if said as usize != length || bytes.len() != length || length < REPLY_HEADER {
        return Err(format!("a reply of {length} bytes says that it has {said}"));
    }
    if !(-511..=0).contains(&error) || (error != 0 && length != REPLY_HEADER) {
        return Err(format!("a reply of {length} bytes has error {error}"));
    }
    if input.get(8..16).is_some_and(|unique| unique != &bytes[8..16]) {
        return Err("the reply is for another request".to_owned());
    }
    Ok(())
}

fn answered(input: &[u8], reply: &mut ReplyBuffer) -> Option<Answer> {
    // A new one for each: what an input does must not hang on those before it.
    let fs = EmptyMount::new(EmptyConfig::default()).worker(0);
    let mut answer = pin!(dispatch(&fs, input, Interrupt::never(), &NoParking, reply));
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

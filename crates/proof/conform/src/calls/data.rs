//! Calls on content: read, write, pread, pwrite, lseek, fsync, fdatasync, fallocate.

use super::Handler;
use crate::scene::{Done, Fault, Value, number, text, word};
use crate::step::{Step, Word};
use crate::sys::{self, Arg};

pub(super) const VERBS: &[(&str, Handler)] = &[
    ("read", |c, s| read(libc::SYS_read, c.fd(s, 0)?, s, None)),
    ("pread", |c, s| read(libc::SYS_pread64, c.fd(s, 0)?, s, Some(number(s, 2)?))),
    ("write", |c, s| write(libc::SYS_write, c.fd(s, 0)?, s, None)),
    ("pwrite", |c, s| write(libc::SYS_pwrite64, c.fd(s, 0)?, s, Some(number(s, 2)?))),
    ("lseek", |c, s| {
        let mut args = [Arg::Int(c.fd(s, 0)?), Arg::Int(number(s, 1)?), Arg::Int(number(s, 2)?)];
        Ok(Value::Number(sys::call(libc::SYS_lseek, &mut args)?))
    }),
    ("fsync", |c, s| sync(libc::SYS_fsync, c.fd(s, 0)?)),
    ("fdatasync", |c, s| sync(libc::SYS_fdatasync, c.fd(s, 0)?)),
    ("fallocate", |c, s| {
        let fd = c.fd(s, 0)?;
        let mut args =
            [Arg::Int(fd), Arg::Int(number(s, 1)?), Arg::Int(number(s, 2)?), Arg::Int(number(s, 3)?)];
        sys::call(libc::SYS_fallocate, &mut args)?;
        Ok(Value::Nothing)
    }),
    ("copy", |c, s| copy(c.fd(s, 0)?, c.fd(s, 2)?, s)),
    ("copyall", |c, s| copy_all(c.fd(s, 0)?, c.fd(s, 2)?, s)),
];

/// Most bytes one `read` step may ask for.
const MOST: i64 = 1 << 24;

fn read(call: libc::c_long, fd: i64, step: &Step, offset: Option<i64>) -> Done {
    let offset = Arg::Int(offset.unwrap_or(0));
    if *word(step, 1)? == Word::Bad {
        let got = sys::call(call, &mut [Arg::Int(fd), Arg::Bad, Arg::Int(16), offset])?;
        return Ok(Value::Number(got));
    }
    let size = number(step, 1)?;
    if !(0..=MOST).contains(&size) {
        return Err(Fault::Table(format!("reads of {size} bytes are not for the table")));
    }
    let mut buf = vec![0u8; usize::try_from(size).unwrap_or(0)];
    let got = sys::call(call, &mut [Arg::Int(fd), Arg::Out(&mut buf), Arg::Int(size), offset])?;
    buf.truncate(usize::try_from(got).unwrap_or(0));
    // bytes of a hole read as a digit 0, so that the table can name them
    Ok(Value::Bytes(buf.into_iter().map(|b| if b == 0 { b'0' } else { b }).collect()))
}

fn write(call: libc::c_long, fd: i64, step: &Step, offset: Option<i64>) -> Done {
    let (data, len) = match word(step, 1)? {
        Word::Bad => (Arg::Bad, 16),
        Word::Bytes(b) => (Arg::In(b), b.len() as i64),
    };
    let offset = Arg::Int(offset.unwrap_or(0));
    Ok(Value::Number(sys::call(call, &mut [Arg::Int(fd), data, Arg::Int(len), offset])?))
}

/// `copy FROM OFFSET TO OFFSET LEN [FLAGS]`; the offset `pos` = the descriptor's own.
fn copy(from: i64, to: i64, step: &Step) -> Done {
    let flags = if step.words.len() > 5 { number(step, 5)? } else { 0 };
    let offset = |at| match text(step, at)? {
        "pos" => Ok(None),
        _ => number(step, at).map(|offset| Some(offset.to_ne_bytes())),
    };
    let (mut from_at, mut to_at) = (offset(1)?, offset(3)?);
    let (a, b) = (place_of(&mut from_at), place_of(&mut to_at));
    let mut args = [Arg::Int(from), a, Arg::Int(to), b, Arg::Int(number(step, 4)?), Arg::Int(flags)];
    Ok(Value::Number(sys::call(libc::SYS_copy_file_range, &mut args)?))
}

fn place_of(at: &mut Option<[u8; 8]>) -> Arg<'_> {
    at.as_mut().map_or(Arg::Null, |at| Arg::Out(at))
}

/// `copyall FROM OFFSET TO OFFSET LEN`: follows short copies to the end; the sum.
fn copy_all(from: i64, to: i64, step: &Step) -> Done {
    let (from_at, to_at, len) = (number(step, 1)?, number(step, 3)?, number(step, 4)?);
    let mut done = 0;
    while done < len {
        let (mut a, mut b) = ((from_at + done).to_ne_bytes(), (to_at + done).to_ne_bytes());
        let left = Arg::Int(len - done);
        let mut args = [Arg::Int(from), Arg::Out(&mut a), Arg::Int(to), Arg::Out(&mut b), left, Arg::Int(0)];
        match sys::call(libc::SYS_copy_file_range, &mut args)? {
            0 => break,
            part => done += part,
        }
    }
    Ok(Value::Number(done))
}

fn sync(call: libc::c_long, fd: i64) -> Done {
    sys::call(call, &mut [Arg::Int(fd)])?;
    Ok(Value::Nothing)
}

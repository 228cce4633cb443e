//! The socket's part of the composed ceiling: 1 MiB one way and a small answer back, over a Unix
//! socket between two threads, as a client and a storage daemon on one machine would.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

const MIB: usize = 1 << 20;
/// Bytes of an answer: a frame header.
const ANSWER: usize = 64;

/// The name of the socket alone in the report.
pub const NAME: &str = "socket";
/// Its one phase.
pub const PHASE: &str = "stream 1 MiB";

/// MiB per second.
pub fn stream(mib: u64) -> Result<f64, String> {
    let (mut near, mut far) = UnixStream::pair().map_err(|e| e.to_string())?;
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = vec![0; MIB];
        for _ in 0..mib {
            far.read_exact(&mut buffer)?;
            far.write_all(&buffer[..ANSWER])?;
        }
        Ok(())
    });
    let buffer = vec![5u8; MIB];
    let mut answer = [0; ANSWER];
    let start = Instant::now();
    for _ in 0..mib {
        near.write_all(&buffer).and_then(|()| near.read_exact(&mut answer)).map_err(|e| e.to_string())?;
    }
    let rate = mib as f64 / start.elapsed().as_secs_f64();
    server.join().map_err(|_| "the socket's server failed".to_owned())?.map_err(|e| e.to_string())?;
    Ok(rate)
}

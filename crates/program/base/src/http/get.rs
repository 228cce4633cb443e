//! A plain request to a daemon of this machine: what `skep health bundle` needs, and no more.

use std::io::{Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest answer that is read.
const ANSWER_MAX: u64 = 64 << 20;

/// The body of the answer to a GET.
pub fn get(address: SocketAddr, path: &str, limit: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    // With this version the server sends the body plainly and closes.
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        Some((head, _)) => Err(Error::other(head.lines().next().unwrap_or_default().to_owned())),
        None => Err(Error::other("no HTTP answer")),
    }
}

//! Where a process listens, as the kernel knows it.

use crate::daemon::Daemon;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The state of a listening TCP socket in the kernel's table.
const LISTENING: &str = "0A";
/// The flag of a listening Unix socket (`__SO_ACCEPTCON`).
const ACCEPTS: &str = "00010000";

impl Daemon {
    /// TCP ports it listens on (loopback addresses that reach them).
    pub fn tcp_listeners(&self) -> Vec<SocketAddr> {
        let own = self.socket_inodes();
        let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", self.pid)).unwrap_or_default();
        table.lines().skip(1).filter_map(|line| tcp_listener(line, &own)).collect()
    }

    /// Unix sockets it listens on.
    pub fn unix_listeners(&self) -> Vec<PathBuf> {
        let own = self.socket_inodes();
        let table = std::fs::read_to_string(format!("/proc/{}/net/unix", self.pid)).unwrap_or_default();
        table.lines().skip(1).filter_map(|line| unix_listener(line, &own)).collect()
    }

    fn socket_inodes(&self) -> BTreeSet<String> {
        let Ok(files) = std::fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return BTreeSet::new() };
        let links = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
        links
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect()
    }
}

fn tcp_listener(line: &str, own: &BTreeSet<String>) -> Option<SocketAddr> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != LISTENING || !own.contains(*inode) {
        return None;
    }
    let port = u16::from_str_radix(local.split_once(':')?.1, 16).ok()?;
    Some(SocketAddr::from(([127, 0, 0, 1], port)))
}

fn unix_listener(line: &str, own: &BTreeSet<String>) -> Option<PathBuf> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (flags, inode, path) = (fields.get(3)?, fields.get(6)?, fields.get(7)?);
    (*flags == ACCEPTS && own.contains(*inode) && path.starts_with('/')).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a port and a socket that this process listens on are found, those of others are not.
    #[test]
    fn own_listeners_are_found() {
        let scratch = crate::Scratch::new(None).expect("a directory");
        let path = scratch.path().join("socket");
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let _unix = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let me = Daemon { service: "test".to_owned(), pid: std::process::id(), words: Vec::new() };
        assert!(me.tcp_listeners().contains(&tcp.local_addr().expect("bound")));
        assert!(me.unix_listeners().contains(&path));
        let init = Daemon { pid: 1, ..me };
        assert!(!init.unix_listeners().contains(&path));
    }
}

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
    /// TCP ports on which it speaks Skep (loopback addresses that reach them); that of its metrics is not one.
    pub fn tcp_listeners(&self) -> Vec<SocketAddr> {
        let (own, http) = (self.socket_inodes(), self.http());
        let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", self.pid)).unwrap_or_default();
        let all = table.lines().skip(1).filter_map(|line| tcp_listener(line, &own));
        all.filter(|address| Some(*address) != http).collect()
    }

    /// Where it shows its metrics, as the configuration says that its command line names.
    fn http(&self) -> Option<SocketAddr> {
        let at = self.words.iter().position(|word| word == "--config")?;
        let text = std::fs::read_to_string(self.words.get(at + 1)?).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix("http = \"")?.strip_suffix('"'))?;
        value.parse().ok()
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

    /// Goal: the port of the metrics, which speaks HTTP, is told from the others.
    #[test]
    fn metrics_are_not_among_them() {
        let scratch = crate::Scratch::new(None).expect("a directory");
        let own = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let http = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let http_address = http.local_addr().expect("bound");
        let config = scratch.path().join("metad.toml");
        std::fs::write(&config, format!("alias = \"a\"\nhttp = \"{http_address}\"\n")).expect("a file");
        let words = ["skep", "metad", "--config"].map(std::ffi::OsString::from);
        let words = words.into_iter().chain([config.into_os_string()]).collect();
        let me = Daemon { service: "metad".to_owned(), pid: std::process::id(), words };
        let found = me.tcp_listeners();
        assert!(found.contains(&own.local_addr().expect("bound")), "{found:?}");
        assert!(!found.contains(&http_address), "{found:?}");
    }

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

//! What the loader asks of each service's typed configuration.

use core::ops::RangeInclusive;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::units::Size;

/// Longest path of a Unix socket (`sun_path` without its final zero).
pub const SOCKET_PATH_MAX: usize = 107;
/// Most addresses one service listens on.
pub const LISTEN_MAX: usize = skep_types::limits::ADDRESSES_MAX;

/// A service with a typed configuration. Its keys are the fields that serde writes.
pub trait Service: Default + Serialize + DeserializeOwned {
    /// Name of the service, of its file and, in capitals, of its environment variables.
    const NAME: &'static str;
    /// The shipped file: every key, commented with its default.
    const SHIPPED: &'static str;

    /// Everything that types alone do not say.
    fn check(&self, wrong: &mut Wrong);
}

/// Problems found by [`Service::check`], by key; the loader adds where the key was set.
#[derive(Debug, Default)]
pub struct Wrong(pub Vec<(&'static str, String, String)>);

impl Wrong {
    /// Key `key` is `what`; do `remedy`.
    pub fn key(&mut self, key: &'static str, what: &str, remedy: &str) {
        self.0.push((key, what.to_owned(), remedy.to_owned()));
    }

    /// The value must lie in `range`.
    pub fn number(&mut self, key: &'static str, value: u32, range: RangeInclusive<u32>) {
        if !range.contains(&value) {
            let (low, high) = range.into_inner();
            self.key(key, &format!("{value} is out of range"), &format!("set {low} to {high}"));
        }
    }

    /// The size must lie in `range`.
    pub fn size(&mut self, key: &'static str, value: Size, range: RangeInclusive<Size>) {
        if !range.contains(&value) {
            let (low, high) = range.into_inner();
            self.key(key, &format!("{value} is out of range"), &format!("set \"{low}\" to \"{high}\""));
        }
    }

    /// The number must be a power of two (the caller checks its range); `show` writes one as the file does.
    pub fn power_of_two(&mut self, key: &'static str, value: u64, show: impl Fn(u64) -> String) {
        if !value.is_power_of_two() {
            let near = value.checked_next_power_of_two().unwrap_or(1 << 63);
            let what = format!("{} is not a power of two", show(value));
            self.key(key, &what, &format!("set {}", show(near)));
        }
    }

    /// A server must be reachable, within the limits of the kernel and of a node record.
    pub fn listening(&mut self, listen: &[SocketAddr], unix_socket: Option<&PathBuf>) {
        if listen.is_empty() && unix_socket.is_none() {
            self.key(
                "listen",
                "is empty and unix_socket too",
                "set one of them, or nothing can reach the service",
            );
        }
        if listen.len() > LISTEN_MAX {
            self.key("listen", "lists too many addresses", &format!("leave at most {LISTEN_MAX}"));
        }
        if unix_socket.is_some_and(|path| path.as_os_str().len() > SOCKET_PATH_MAX) {
            let remedy =
                format!("choose one of at most {SOCKET_PATH_MAX} bytes, the kernel takes no longer one");
            self.key("unix_socket", "is too long a path", &remedy);
        }
    }

    /// An alias is empty (the host name is taken) or a word that commands can take as an argument.
    pub fn alias(&mut self, alias: &str) {
        let max = skep_types::limits::ALIAS_MAX;
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = alias.starts_with(|c: char| c.is_ascii_alphabetic());
        if !alias.is_empty() && (alias.len() > max || !begins || !alias.chars().all(word)) {
            let remedy =
                format!("use a letter, then letters, digits, \"-\", \"_\", \".\", at most {max} together");
            self.key("alias", &format!("{alias:?} is not an alias"), &remedy);
        }
    }

    /// A failure domain is one word, or empty (the machine is taken).
    pub fn domain(&mut self, domain: &str) {
        let max = skep_cluster::limits::DOMAIN_MAX;
        if domain.len() > max || !domain.bytes().all(|b| b.is_ascii_graphic()) {
            let remedy = format!("use letters, digits and signs without spaces, at most {max} together");
            self.key("domain", &format!("{domain:?} is not a domain"), &remedy);
        }
    }

    /// A directory must be named.
    pub fn directory(&mut self, key: &'static str, path: &std::path::Path) {
        if path.as_os_str().is_empty() {
            self.key(key, "is empty", "name a directory");
        }
    }
}

//! Where a service listens, as text and as sockets understand it.

use skep_types::Uuid;
use skep_wire::mgmt::Address;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a Unix socket that the kernel takes.
pub(crate) const UNIX_PATH_MAX: usize = 107;

/// `unix:/path`, `host:port` or `[v6]:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A socket in the file system of this machine.
    Unix(PathBuf),
    /// A host name or address, without brackets, and a port.
    Tcp(String, u16),
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointError {
    text: String,
    why: &'static str,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no address: {}; write unix:/path, host:port or [v6]:port", self.text, self.why)
    }
}

impl std::error::Error for EndpointError {}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Self::parse(text, None)
    }
}

impl Endpoint {
    /// Reads an address that may leave out the port (`mgmt1`, `[fe80::1]`, `::1`).
    pub fn with_default_port(text: &str, port: u16) -> Result<Self, EndpointError> {
        Self::parse(text, Some(port))
    }

    fn parse(text: &str, default_port: Option<u16>) -> Result<Self, EndpointError> {
        let fail = |why| EndpointError { text: text.to_owned(), why };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                _ if !path.starts_with('/') => Err(fail("the path of a Unix socket must begin with /")),
                n if n > UNIX_PATH_MAX => {
                    Err(fail("the path is longer than the 107 bytes that the kernel allows"))
                }
                _ if path.contains('\0') => Err(fail("the path holds a NUL")),
                _ => Ok(Self::Unix(path.into())),
            };
        }
        let (host, port) = split_port(text).map_err(fail)?;
        let port = match port {
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().map_err(|_| fail("the port is not a number up to 65535"))?
            }
            Some(_) => return Err(fail("the port is not a number up to 65535")),
            None => default_port.ok_or_else(|| fail("the port is missing"))?,
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/[]\0".contains(c)) {
            return Err(fail("the host is empty or has characters that no host name has"));
        }
        // Written out with its port it would be read as a socket's path.
        if host == "unix" {
            return Err(fail("unix: begins the path of a Unix socket, and is no host"));
        }
        Ok(Self::Tcp(host.to_owned(), port))
    }

    /// The socket addresses of a TCP endpoint (asks the resolver; may block).
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Unix(_) => Ok(Vec::new()),
            Self::Tcp(host, port) => Ok((host.as_str(), *port).to_socket_addrs()?.collect()),
        }
    }

    /// Is it a socket of this machine's file system?
    pub fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

/// (host, port digits) of `host:port`, `[v6]:port`, `[v6]`, or a bare host or v6 address.
fn split_port(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the closing bracket is missing")?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("only :port may follow the closing bracket"),
        };
    }
    match text.rsplit_once(':') {
        // More than one colon without brackets: an IPv6 address without port.
        Some((host, _)) if host.contains(':') => Ok((text, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// The addresses of a node in the order to try them: Unix sockets first and only on the same
/// machine, then by preference. Addresses that this release cannot read are left out.
pub fn choose(addresses: &[Address], machine: Uuid, ours: Uuid) -> Vec<Endpoint> {
    let same = machine == ours && machine != Uuid::default();
    let mut usable: Vec<(bool, u16, Endpoint)> = addresses
        .iter()
        .filter_map(|address| Some((address.preference, address.text.parse::<Endpoint>().ok()?)))
        .filter(|(_, endpoint)| same || !endpoint.is_unix())
        .map(|(preference, endpoint)| (!endpoint.is_unix(), preference, endpoint))
        .collect();
    usable.sort_by_key(|(tcp, preference, _)| (*tcp, *preference));
    usable.into_iter().map(|(.., endpoint)| endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every form is read and printed the same.
    #[test]
    fn round_trip() {
        for text in ["unix:/run/skep/metad", "localhost:7720", "10.0.0.1:1", "[::1]:7720"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for (text, full) in
            [("mgmt1", "mgmt1:7720"), ("::1", "[::1]:7720"), ("[::1]", "[::1]:7720"), ("a:5", "a:5")]
        {
            assert_eq!(Endpoint::with_default_port(text, 7720).unwrap().to_string(), full);
        }
    }

    /// Goal: what is no address is refused, and the text says how one looks.
    #[test]
    fn nonsense_is_refused() {
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_MAX));
        for text in [
            "",
            "host",
            ":80",
            "host:",
            "host:99999",
            "host:+1",
            "[::1",
            "[::1]x:1",
            "[[::1]:1]:2",
            "h]:1",
            "unix:run",
            "[unix]:1",
            "a b:1",
            &long,
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains("host:port"), "{error}");
        }
    }

    /// Goal: what would be written out as a socket's path is not taken for a host.
    #[test]
    fn unix_is_no_host() {
        for text in ["unix", "[unix]", "[unix]:7720"] {
            let error = Endpoint::with_default_port(text, 7720).unwrap_err().to_string();
            assert!(error.contains("is no host"), "{error}");
        }
    }

    /// Goal: Unix sockets only on the same machine and first there, then the lowest preference.
    #[test]
    fn choice() {
        let address = |text: &str, preference| Address { text: text.into(), nic: String::new(), preference };
        let all = [address("b:1", 5), address("a:1", 2), address("unix:/s", 9), address("?", 0)];
        let texts = |list: Vec<Endpoint>| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (here, there) = (Uuid([1; 16]), Uuid([2; 16]));
        assert_eq!(texts(choose(&all, here, here)), ["unix:/s", "a:1", "b:1"]);
        assert_eq!(texts(choose(&all, here, there)), ["a:1", "b:1"]);
        assert_eq!(texts(choose(&all, Uuid::default(), Uuid::default())), ["a:1", "b:1"]);
    }
}

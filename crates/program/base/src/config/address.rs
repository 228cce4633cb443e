//! An address to connect to: `host:port`, `host` (the default port), `[v6]:port` or `unix:PATH`.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Port of mgmtd, taken when an address names none.
pub const MGMTD_PORT: u16 = 7720;
pub const METAD_PORT: u16 = 7730;
pub const STORAGED_PORT: u16 = 7740;
/// HTTP port of mgmtd; metad and storaged have the two after it.
pub const HTTP_PORT: u16 = 7790;

/// The loopback address with this port: where a daemon shows its metrics unless told otherwise.
pub fn loopback(port: u16) -> Option<SocketAddr> {
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

/// Where a mgmtd answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A host name or IP address (an IPv6 one without its brackets) and a port.
    Tcp { host: String, port: u16 },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("{text:?} is not an address: {why}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                wrong("the path after \"unix:\" is missing")
            } else {
                Ok(Self::Unix(PathBuf::from(path)))
            };
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, port)) => match port.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None => return wrong("after \"]\" comes \":port\""),
                },
                None => return wrong("the closing \"]\" is missing"),
            },
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return wrong("an IPv6 address stands in brackets, as in \"[fd00::1]:7720\"");
                }
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/[]\0".contains(c)) {
            return wrong("write \"host:port\", \"host\" or \"unix:PATH\"");
        }
        match port.map(str::parse::<u16>) {
            None => Ok(Self::Tcp { host: host.to_owned(), port: MGMTD_PORT }),
            Some(Ok(port)) if port > 0 => Ok(Self::Tcp { host: host.to_owned(), port }),
            Some(_) => wrong("the port is a number from 1 to 65535"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A path that may be absent, written as the empty string.
pub mod maybe_path {
    use super::{Deserialize, Deserializer, PathBuf, Serializer};

    /// Writes `None` as the empty string.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        match path {
            Some(path) => serializer.collect_str(&path.display()),
            None => serializer.serialize_str(""),
        }
    }

    /// Reads the empty string as `None`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    }
}

/// A socket address that may be absent, written as the empty string.
pub mod maybe_address {
    use super::{Deserialize, Deserializer, Serializer, SocketAddr, de};

    /// Writes `None` as the empty string.
    pub fn serialize<S: Serializer>(address: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
        match address {
            Some(address) => serializer.collect_str(address),
            None => serializer.serialize_str(""),
        }
    }

    /// Reads the empty string as `None`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = || {
            de::Error::custom(format!("{text:?} is no address: write \"127.0.0.1:7790\", or \"\" for none"))
        };
        text.parse().map(Some).map_err(|_| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every documented form is understood and printed back in a form that reads the same.
    #[test]
    fn forms_round_trip() {
        let tcp = |host: &str, port| Address::Tcp { host: host.to_owned(), port };
        for (text, address) in [
            ("127.0.0.1:7720", tcp("127.0.0.1", 7720)),
            ("mgmt1", tcp("mgmt1", MGMTD_PORT)),
            ("mgmt1:99", tcp("mgmt1", 99)),
            ("[fd00::1]:5", tcp("fd00::1", 5)),
            ("[::1]", tcp("::1", MGMTD_PORT)),
            ("unix:/run/skep/mgmtd.sock", Address::Unix(PathBuf::from("/run/skep/mgmtd.sock"))),
        ] {
            let parsed: Address = text.parse().expect(text);
            assert_eq!(parsed, address);
            assert_eq!(parsed.to_string().parse(), Ok(address));
        }
    }

    /// Goal: a wrong address is refused with the reason.
    #[test]
    fn wrong_addresses_are_refused() {
        for (text, why) in [
            ("", "host:port"),
            (":7720", "host:port"),
            ("a b:1", "host:port"),
            ("h:0", "1 to 65535"),
            ("h:70000", "1 to 65535"),
            ("h:", "1 to 65535"),
            ("fd00::1", "brackets"),
            ("[::1", "closing"),
            ("[[::1]", "host:port"),
            ("[::1]x", "after"),
            ("unix:", "missing"),
        ] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}

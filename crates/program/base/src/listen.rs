//! Where a daemon listens, and what it tells others about it.

use skep_net::{Endpoint, Listener};
use skep_wire::mgmt::Address;
use std::fs::DirBuilder;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The Unix socket is the shortest way, so it comes first; peers on other machines pass it over.
const UNIX_PREFERENCE: u16 = 0;
/// Preference of the first network interface; the others follow in the system's order.
const TCP_PREFERENCE: u16 = 10;

/// Opens every configured socket; the addresses are what mgmtd and its clients are told. Of a wildcard
/// those are the addresses of `interfaces`, in this order; of all interfaces when none is named.
pub fn open(
    listen: &[SocketAddr],
    unix: Option<&Path>,
    interfaces: &[String],
) -> Result<(Vec<Listener>, Vec<Address>), String> {
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    if let Some(path) = unix {
        if let Some(directory) = path.parent() {
            // /run/skep is everybody's to look into: the sockets have modes of their own.
            let mut builder = DirBuilder::new();
            let made = match directory.is_dir() {
                true => Ok(()),
                false => builder.recursive(true).create(directory).and_then(|()| {
                    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))
                }),
            };
            made.map_err(|e| format!("{}: {e}", directory.display()))?;
        }
        let endpoint = Endpoint::Unix(path.to_owned());
        listeners.push(Listener::bind(&endpoint).map_err(|e| e.to_string())?);
        addresses.push(Address {
            text: endpoint.to_string(),
            nic: String::new(),
            preference: UNIX_PREFERENCE,
        });
    }
    for socket in listen {
        let listener = Listener::bind(&Endpoint::Tcp(socket.ip().to_string(), socket.port()));
        let listener = listener.map_err(|e| e.to_string())?;
        if let Endpoint::Tcp(_, port) = listener.endpoint() {
            reachable(socket.ip(), *port, interfaces, &mut addresses)?;
        }
        listeners.push(listener);
    }
    Ok((listeners, addresses))
}

/// A wildcard is reachable at every address of every interface, loopback last and only when there
/// is nothing else, or when it is chosen.
fn reachable(ip: IpAddr, port: u16, chosen: &[String], addresses: &mut Vec<Address>) -> Result<(), String> {
    let mut interfaces: Vec<_> = if_addrs::get_if_addrs().unwrap_or_default();
    interfaces.retain(|interface| {
        let theirs = interface.ip();
        // Link-local addresses need a scope that means nothing on another machine.
        let local = matches!(theirs, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if ip.is_unspecified() { theirs.is_ipv4() == ip.is_ipv4() && !local } else { theirs == ip }
    });
    if ip.is_unspecified() && !chosen.is_empty() {
        choose(chosen, &mut interfaces)?;
    } else if interfaces.iter().any(|interface| !interface.is_loopback()) {
        interfaces.retain(|interface| !interface.is_loopback());
    }
    if interfaces.is_empty() && !ip.is_unspecified() {
        addresses.push(tcp(ip, port, String::new(), addresses.len()));
    }
    for interface in interfaces {
        addresses.push(tcp(interface.ip(), port, interface.name.clone(), addresses.len()));
    }
    Ok(())
}

/// Leaves the chosen interfaces, in the order in which they were chosen.
fn choose(chosen: &[String], interfaces: &mut Vec<if_addrs::Interface>) -> Result<(), String> {
    if let Some(missing) = chosen.iter().find(|name| !interfaces.iter().any(|found| found.name == **name)) {
        let mut names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        names.dedup();
        return Err(format!(
            "interfaces: \"{missing}\" does not exist or has no address; there are: {}",
            names.join(", ")
        ));
    }
    let rank = |interface: &if_addrs::Interface| chosen.iter().position(|name| *name == interface.name);
    interfaces.retain(|interface| rank(interface).is_some());
    interfaces.sort_by_key(rank);
    Ok(())
}

fn tcp(ip: IpAddr, port: u16, nic: String, before: usize) -> Address {
    let text = Endpoint::Tcp(ip.to_string(), port).to_string();
    Address { text, nic, preference: TCP_PREFERENCE + before as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a free port is told as it is, a wildcard as addresses that can be connected to.
    #[test]
    fn addresses_can_be_connected_to() {
        let (_listeners, addresses) =
            open(&["127.0.0.1:0".parse().unwrap(), "0.0.0.0:0".parse().unwrap()], None, &[]).unwrap();
        assert!(addresses.len() >= 2);
        for address in addresses {
            assert!(
                !address.text.starts_with("0.0.0.0") && !address.text.ends_with(":0"),
                "{}",
                address.text
            );
            std::net::TcpStream::connect(&address.text).unwrap();
        }
    }

    /// Goal: of a wildcard only the chosen interfaces are told; one that does not exist is an error
    /// that names those that do.
    #[test]
    fn interfaces_are_chosen() {
        let wildcard = ["0.0.0.0:0".parse().unwrap()];
        let lo = if_addrs::get_if_addrs().unwrap().into_iter().find(|i| i.is_loopback() && i.ip().is_ipv4());
        let lo = lo.unwrap().name;
        let (_listeners, addresses) = open(&wildcard, None, std::slice::from_ref(&lo)).unwrap();
        assert!(!addresses.is_empty() && addresses.iter().all(|address| address.nic == lo), "{addresses:?}");
        let error = open(&wildcard, None, &["nonesuch0".to_owned()]).err().unwrap();
        assert!(error.contains("nonesuch0") && error.contains(&lo), "{error}");
    }
}

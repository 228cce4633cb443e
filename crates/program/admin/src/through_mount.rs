//! What a user without the cluster's key is told: the mount answers, by extended attributes, for paths that
//! the user can reach.

use rustix::fs::{getxattr, lgetxattr};
use skep_base::access::AccessArgs;
use skep_base::deadline;
use skep_base::mounted::{self, Link};
use skep_base::{Failure, Outcome};
use skep_net::Keyring;
use skep_types::Role;
use std::path::Path;

/// Longest value of an extended attribute.
const VALUE_MAX: usize = 64 << 10;

/// The value of `name` at `path`, when the cluster is not named by flags, its key cannot be read (or is one of a
/// client), and the path is on a mount of it.
pub fn ask(access: &AccessArgs, path: Option<&Path>, link: Link, name: &str) -> Outcome<Option<Vec<u8>>> {
    let Some(path) = path else { return Ok(None) };
    let limit = access.timeout.duration();
    if access.is_explicit() || access.insecure || access.key.is_some() {
        return Ok(None);
    }
    let Some(mounted) = mounted::look(path, link, limit)? else { return Ok(None) };
    let is_admin = |key: &Path| Keyring::from_file(key).is_ok_and(|keyring| keyring.has(Role::Admin));
    if access.of_mount(&mounted.mount).is_ok_and(|place| is_admin(&place.key)) {
        return Ok(None);
    }
    let asked = name.to_owned();
    let answer = deadline::of_path(path, link.way(), limit, move |path| {
        let mut value = vec![0; VALUE_MAX];
        let len = match link {
            Link::Itself => lgetxattr(path, asked, &mut value[..]),
            Link::Followed => getxattr(path, asked, &mut value[..]),
        };
        len.map(|len| {
            value.truncate(len);
            value
        })
    })?;
    answer.map(Some).map_err(|e| Failure::local(format_args!("{}: {name}", path.display()), e))
}

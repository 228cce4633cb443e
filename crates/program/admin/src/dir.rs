//! `skep dir create`.

use clap::{Args, Subcommand};
use skep_base::access::AccessArgs;
use skep_base::find;
use skep_base::namespace::{Names, Namespace};
use skep_base::{Failure, Outcome};
use skep_types::{Name, Policy, ShardId};
use skep_wire::meta::{Inspect, MakeDirOn, SetPolicy};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `skep dir ...`
#[derive(Debug, Subcommand)]
pub enum DirCommand {
    /// Make a directory on a chosen shard, or whose files go to a chosen pool
    Create(CreateArgs),
}

/// Arguments of `skep dir create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The new directory; its parent must exist
    path: PathBuf,
    /// The metadata shard where its inode, and all that is made below it, shall live [default: that of
    /// its parent]
    #[arg(long)]
    shard: Option<u16>,
    /// Storage pool of its files, by alias or number [default: as its parent's]
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Permission bits, octal
    #[arg(long, default_value = "755", value_parser = octal)]
    mode: u32,
    /// Owner
    #[arg(long, default_value_t = 0)]
    uid: u32,
    /// Group
    #[arg(long, default_value_t = 0)]
    gid: u32,
    #[command(flatten)]
    access: AccessArgs,
}

fn octal(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("write the permission bits in octal, such as 755 or 1777".to_owned()),
    }
}

/// (parent, name) of a path that is to be made.
fn split(path: &Path) -> Outcome<(&Path, Name)> {
    let wrong = || Failure::new(format!("{}: name a directory that can be made", path.display()));
    let name = path.file_name().and_then(|name| Name::new(name.as_bytes()).ok()).ok_or_else(wrong)?;
    let parent = path.parent().ok_or_else(wrong)?;
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    Ok((parent, name))
}

pub fn run(command: &DirCommand) -> Outcome {
    let DirCommand::Create(args) = command;
    let (above, name) = split(&args.path)?;
    let mut namespace = Namespace::connect(&args.access, above)?;
    let pool = args.pool.as_deref().map(|text| find::pool(&namespace.status, text)).transpose()?;
    let pool = pool.map(|pool| pool.pool.clone());
    let parent = namespace.resolve(above)?;
    let on = args.shard.map_or(parent.shard(), ShardId);
    let server = Names::of(&namespace.status).leader(on)?.alias.clone();
    let (mode, uid, gid) = (args.mode, args.uid, args.gid);
    let reply = namespace.ask(parent, &MakeDirOn { parent, name, mode, umask: 0, uid, gid, on });
    let reply = reply.map_err(|e| Failure::new(format!("{}: {e}", args.path.display())))?;
    let path = args.path.display();
    if let Some(pool) = &pool {
        let made =
            |e: Failure| Failure::new(format!("{path} is made, but is not in pool {}: {e}", pool.alias));
        let policy = namespace.ask(reply.ino, &Inspect { ino: reply.ino }).map_err(made)?.policy;
        let policy = Policy { pool: pool.pool, ..policy };
        namespace.ask(reply.ino, &SetPolicy { ino: reply.ino, policy, spread: None }).map_err(made)?;
    }
    let of = pool.map_or_else(String::new, |pool| format!(", files in pool {}", pool.alias));
    eprintln!("{path}: made as inode {} on shard {on} ({server}){of}", reply.ino.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: parent and name are told apart, what cannot be made is refused.
    #[test]
    fn paths() {
        let (parent, name) = split(Path::new("/mnt/a/b")).unwrap();
        assert_eq!((parent, name.as_bytes()), (Path::new("/mnt/a"), &b"b"[..]));
        assert_eq!(split(Path::new("b")).unwrap().0, Path::new("."));
        assert!(split(Path::new("/")).is_err() && split(Path::new("/a/..")).is_err());
    }

    /// Goal: modes are octal and bounded.
    #[test]
    fn modes() {
        assert_eq!((octal("1777"), octal("0o750")), (Ok(0o1777), Ok(0o750)));
        assert!(octal("10000").is_err() && octal("9").is_err() && octal("u+x").is_err());
    }
}

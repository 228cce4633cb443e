//! What the program reads of its own: keys, addresses, units, arguments of a mount, the kernel's list of mounts,
//! configuration.

use std::path::Path;

use skep_base::cli::{DaemonArgs, MountArgs};
use skep_base::cluster_file::ClusterFile;
use skep_base::config::address::Address;
use skep_base::config::{MetadConfig, MgmtdConfig, MountConfig, Service, StoragedConfig, assemble};
use skep_base::mount_options::{self, flags_of};
use skep_base::units::{Period, Size};
use skep_base::{mount_table, mount_table::covering};
use skep_net::{Endpoint, KeyFile};

use super::{Reader, Understood};

pub fn readers() -> Vec<Reader> {
    let key = format!("skep-key 1 {:016x} client {:064x}\n", 7, 9);
    let cluster = toml::to_string(&ClusterFile::sample()).unwrap_or_default();
    vec![
        Reader::new("key", |text| KeyFile::again(text).into(), &[&key, &key.replace("client", "cluster")]),
        Reader::new("endpoint", endpoint, &["unix:/run/skep/mgmtd.sock", "mgmt1:7720", "[fd00::1]:5", "::1"]),
        Reader::new(
            "address",
            again::<Address>,
            &["unix:/run/m", "mgmt1", "mgmt1:99", "[fd00::1]:5", "[::1]"],
        ),
        Reader::new("size", again::<Size>, &["512KiB", "10GB", "0", "17 MiB"]),
        Reader::new("period", again::<Period>, &["50ms", "30 s", "10min", "0"]),
        Reader::new(
            "mount options",
            mount,
            &[
                "m1,m2:7721:/\n/mnt\n_netdev,noauto,nofail,x-systemd.automount,ro,noexec,dev,retry=5s",
                "m1:/\n/mnt\nremount,ro,suid,rw,user_id=0,rootmode=40000,fd=5,max_read=9\n\n",
                "[fd00::1]:5:/\n/m\ninsecure,io=direct,key_file=/k,config=/c,comment=x,allow_other,retry=1min",
            ],
        ),
        Reader::new(
            "mount table",
            mounts,
            &["36 35 0:61 / /mnt/a\\040b rw,nosuid shared:9 master:1 - fuse.skep m1,m2:/ rw,user_id=0\n\
               22 1 8:1 / / ro - ext4 /dev/sda1 rw\nnonsense\n"],
        ),
        Reader::new("cluster file", cluster_file, &[&cluster]),
        configuration::<MgmtdConfig>(),
        configuration::<MetadConfig>(),
        configuration::<StoragedConfig>(),
        configuration::<MountConfig>(),
    ]
}

fn again<T: std::str::FromStr + ToString>(text: &str) -> Understood {
    text.parse::<T>().ok().map(|read| read.to_string()).into()
}

fn endpoint(text: &str) -> Understood {
    told(Endpoint::with_default_port(text, 7720)).map(|read| read.to_string()).into()
}

/// Lines: what is mounted, where, and lists of options; an empty line at the end asks for tolerance, as mount(8) does.
fn mount(text: &str) -> Understood {
    let sloppy = text.ends_with("\n\n");
    let mut lines = text.lines();
    let args = MountArgs {
        daemon: DaemonArgs { config: None, instance: None, sets: Vec::new(), insecure: false },
        spec: lines.next().map(Into::into),
        directory: lines.next().map(Into::into),
        options: lines.map(str::to_owned).collect(),
        foreground: true,
        read_only: false,
        read_write: false,
        sloppy,
        no_mtab: false,
        verbose: false,
        kind: None,
        netbench: None,
        by_mount: sloppy,
    };
    let Ok(parsed) = mount_options::parse(&args) else { return Understood::Nothing };
    parsed.wishes.changed(parsed.wishes.flags() | flags_of(text));
    // What the options set is read as the configuration is.
    told(assemble::<MountConfig>(None, &[], &parsed.sets));
    Understood::All
}

/// Names are bytes: each character stands for one.
fn mounts(text: &str) -> Understood {
    let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let mounts = mount_table::parse(&bytes);
    for entry in &mounts {
        entry.describe();
        flags_of(&entry.options);
        covering(&mounts, &entry.point);
    }
    (!mounts.is_empty()).into()
}

fn cluster_file(text: &str) -> Understood {
    told(toml::from_str::<ClusterFile>(text)).and_then(|file| toml::to_string(&file).ok()).into()
}

fn configuration<S: Service>() -> Reader {
    // The keys of the shipped file are comments without a blank.
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{key}\n"),
        _ => format!("{line}\n"),
    };
    let example: String = S::SHIPPED.lines().map(line).collect();
    // Some have to be set.
    let example = example.replace("\ntargets = []", "\ntargets = [\"/t\"]");
    let example = example.replace("\nmount_point = \"\"", "\nmount_point = \"/m\"");
    Reader::new(S::NAME, configured::<S>, &[&example])
}

/// As a file, and each of its lines as an argument and as a variable.
fn configured<S: Service>(text: &str) -> Understood {
    let lines: Vec<String> = text.lines().filter(|line| line.contains('=')).map(str::to_owned).collect();
    let prefix = format!("SKEP_{}_", S::NAME.to_ascii_uppercase());
    let variable = |line: &String| {
        let (key, value) = line.split_once('=')?;
        Some((format!("{prefix}{}", key.trim().to_ascii_uppercase()), value.trim().to_owned()))
    };
    let variables: Vec<_> = lines.iter().filter_map(variable).collect();
    told(assemble::<S>(None, &variables, &lines));
    let loaded = told(assemble::<S>(Some((Path::new("f.toml"), text)), &[], &[]));
    loaded.and_then(|loaded| toml::to_string(&loaded.config).ok()).into()
}

/// What is wrong is told to people.
fn told<T, E: ToString>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| error.to_string()).ok()
}

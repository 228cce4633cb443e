//! Configuration of `skep mount`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use skep_types::limits;

use super::access::{Membership, Process};
use super::address::maybe_address;
use super::service::{Service, Wrong};
use crate::units::{Period, Size};

/// Highest `threads` and `max_threads`.
pub const THREADS_MAX: u32 = 1_024;
/// Highest `queue_depth`.
pub const QUEUE_DEPTH_MAX: u32 = 256;
/// Smallest `request_size`: one page.
pub const REQUEST_MIN: Size = Size::kib(4);

/// Does a mount ask for leases, unless it is told not to?
pub const LEASES: Switch = Switch::On;
/// And does its kernel answer some of what they cover?
pub const KERNEL_ANSWERS: Switch = Switch::On;
/// Bounds of `cache`.
pub const CACHE: RangeInclusive<Size> = Size::mib(1)..=Size::mib(64 << 10);

/// Is something done?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    On,
    Off,
}

/// How file contents pass through the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// Chosen at each open.
    Auto,
    /// Past the page cache, mmap still possible.
    Direct,
    /// Through the page cache.
    Cached,
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Through io_uring where that is possible, else through the device.
    Auto,
    /// Through io_uring, or not at all.
    Uring,
    /// Through /dev/fuse.
    Dev,
}

/// Every key of `mount.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MountConfig {
    /// Keys that every service has.
    #[serde(flatten)]
    pub process: Process,
    /// How it reaches the cluster.
    #[serde(flatten)]
    pub membership: Membership,
    /// Where metrics are shown over HTTP.
    #[serde(with = "maybe_address")]
    pub http: Option<SocketAddr>,
    /// Where the file system appears.
    pub mount_point: PathBuf,
    /// How long an operation is retried before its program gets EIO; 0: for ever.
    pub retry: Period,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// With `uring`: requests that one processor may have in the mount at once.
    pub queue_depth: u32,
    /// With `dev`: threads that wait for requests; 0: one per core.
    pub threads: u32,
    /// With `dev`: most threads, however many cores there are.
    pub max_threads: u32,
    /// How file contents pass through the kernel.
    pub io: Io,
    /// Let users other than the one who mounted in.
    pub allow_other: bool,
    /// Largest read or write taken from the kernel at once.
    pub request_size: Size,
    /// Answer names and attributes of leased directories from memory.
    pub leases: Switch,
    /// Let the kernel answer for attributes and names that leases cover.
    pub kernel_answers: Switch,
    /// Keep what becomes of new files for a moment, and tell it in one request.
    pub hold_new_files: Switch,
    /// Let small writes to these wait for one another.
    pub gather_writes: Switch,
    /// Read files of up to 1 MiB through the kernel's pages while leases cover them.
    pub leased_pages: Switch,
    /// Memory for that.
    pub cache: Size,
}

impl Default for MountConfig {
    fn default() -> Self {
        Self {
            process: Process::default(),
            membership: Membership::default(),
            http: None,
            mount_point: PathBuf::new(),
            retry: Period::secs(600),
            transport: Transport::Auto,
            queue_depth: 32,
            threads: 0,
            max_threads: 64,
            io: Io::Auto,
            allow_other: true,
            request_size: Size(limits::TRANSFER_MAX as u64),
            leases: LEASES,
            kernel_answers: KERNEL_ANSWERS,
            hold_new_files: Switch::On,
            gather_writes: Switch::On,
            leased_pages: Switch::Off,
            cache: Size::mib(256),
        }
    }
}

impl Service for MountConfig {
    const NAME: &'static str = "mount";
    const SHIPPED: &'static str = include_str!("../../config/mount.toml");

    fn check(&self, wrong: &mut Wrong) {
        self.process.check(wrong);
        self.membership.check(wrong);
        if self.mount_point.as_os_str().is_empty() {
            let remedy = "name the directory where the file system shall appear";
            wrong.key("mount_point", "is not set", remedy);
        }
        wrong.number("queue_depth", self.queue_depth, 1..=QUEUE_DEPTH_MAX);
        wrong.number("threads", self.threads, 0..=self.max_threads);
        wrong.number("max_threads", self.max_threads, 1..=THREADS_MAX);
        wrong.size("request_size", self.request_size, REQUEST_MIN..=Size(limits::TRANSFER_MAX as u64));
        if !self.request_size.bytes().is_multiple_of(REQUEST_MIN.bytes()) {
            let what = format!("{} is no multiple of a page", self.request_size);
            wrong.key("request_size", &what, &format!("set a multiple of \"{REQUEST_MIN}\""));
        }
        wrong.size("cache", self.cache, CACHE);
    }
}

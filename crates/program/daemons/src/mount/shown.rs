//! What a mount shows over HTTP: requests of the kernel, bytes, caches, links.

use super::hands::Hands;
use skep_base::http::Pages;
use skep_base::metrics::{Counter, Exposition, Gauge, Kind, Requests};
use skep_client::Cell;
use skep_fuse::Errno;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Number of the read request.
const READ: &str = "read";
/// Number of the write request.
const WRITE: &str = "write";
/// What stands before the bytes of a write: header and arguments.
const WRITE_HEAD: usize = 80;

/// What the workers count; absent while nobody can see it. One per process, as the mount is.
static COUNTS: OnceLock<Counts> = OnceLock::new();

/// What the workers count, if anybody can see it.
pub fn counts() -> Option<&'static Counts> {
    COUNTS.get()
}

/// Shows it all at this address, if there is one.
pub fn show(address: Option<SocketAddr>, hands: &Arc<Hands>) {
    let pages = MountPages { hands: hands.clone() };
    if skep_base::http::start(address, Arc::new(pages)).is_some() {
        COUNTS.get_or_init(Counts::new);
    }
}

/// Requests come from the kernel in this way, whose FUSE lacks so many features.
pub fn serving(transport: &str, lost: usize) {
    if let Some(counts) = counts() {
        // A mount has one transport: the first word stays.
        let _ = counts.transport.set(transport.to_owned());
        counts.lost.set(lost as u64);
    }
}

/// See [`counts`].
pub struct Counts {
    operations: Requests,
    read: u32,
    write: u32,
    read_bytes: Counter,
    written_bytes: Counter,
    transport: OnceLock<String>,
    lost: Gauge,
}

impl Counts {
    fn new() -> Self {
        let number =
            |name: &str| skep_fuse::OPERATIONS.iter().find(|(_, of)| *of == name).map_or(0, |(n, _)| *n);
        let operations =
            skep_fuse::OPERATIONS.iter().filter_map(|(n, name)| Some((u16::try_from(*n).ok()?, *name)));
        Self {
            operations: Requests::new(operations),
            read: number(READ),
            write: number(WRITE),
            read_bytes: Counter::new(),
            written_bytes: Counter::new(),
            transport: OnceLock::new(),
            lost: Gauge::default(),
        }
    }

    /// A request was answered.
    pub fn answered(&self, since: Instant, opcode: u32, length: usize, payload: Result<usize, Errno>) {
        // Higher numbers do not exist; they would be counted as unknown.
        let number = u16::try_from(opcode).unwrap_or(0);
        self.operations.answered(number, since.elapsed(), payload.is_err());
        match payload {
            Ok(bytes) if opcode == self.read => self.read_bytes.add(bytes as u64),
            Ok(_) if opcode == self.write => self.written_bytes.add(length.saturating_sub(WRITE_HEAD) as u64),
            _ => {}
        }
    }
}

struct MountPages {
    hands: Arc<Hands>,
}

impl MountPages {
    /// What the mount may answer without asking, and how often it has.
    fn leases(&self, out: &mut Exposition) {
        let (held, counts, spared, bytes) = self.hands.shared.with(|shared| {
            (shared.leases.count(), shared.leases.counts(), shared.spared, shared.names.bytes())
        });
        let ((_, told), lost_looks, (names, bumps, waits), losses) = self.hands.shared.with(|shared| {
            let kernel = &shared.kernel;
            (kernel.counts(), kernel.lost(), kernel.names.counts(), shared.losses())
        });
        let name = "skep_mount_answered_from_memory_total";
        let mut family = out.family(name, Kind::Counter, "Questions that no server was asked, by what for.");
        for (what, value) in [
            ("name", spared.names),
            ("absent", spared.absent),
            ("attributes", spared.attributes),
            ("listing", spared.listings),
            ("extended", spared.extended),
            ("open", spared.opens),
            ("read", spared.reads),
            ("kept", spared.kept),
            ("gathered", spared.gathered),
        ] {
            family.value(&[("what", what)], value);
        }
        let fetched = self.hands.shared.with(|shared| shared.aheads.fetched);
        let help = "Bytes that were read ahead, by how programs read, and what became of them.";
        let mut family = out.family("skep_mount_ahead_bytes_total", Kind::Counter, help);
        for (how, what, value) in [
            ("in_order", "fetched", fetched.in_order),
            ("in_order", "used", fetched.in_order_used),
            ("strided", "fetched", fetched.strided),
            ("strided", "used", fetched.strided_used),
        ] {
            family.value(&[("how", how), ("what", what)], value);
        }
        let mut show = |name: &str, kind: Kind, help: &str, value: u64| {
            out.family(name, kind, help).value(&[], value);
        };
        let asked =
            "Files that were there before and are written to in small pieces: asked for, to hold them.";
        show("skep_mount_holds_asked_total", Kind::Counter, asked, spared.holds_asked);
        show("skep_mount_holds_given_total", Kind::Counter, "Of these, given.", spared.holds_given);
        let looks = "Questions of others who looked at a file that this mount went on holding.";
        show("skep_mount_looks_told_total", Kind::Counter, looks, spared.looks_told);
        show("skep_mount_leases", Kind::Gauge, "Leases held.", held as u64);
        let checks = self.hands.shared.with(|shared| shared.limits.checks);
        let pages = "1: files that leases cover are read through the kernel's pages.";
        show("skep_mount_leased_pages", Kind::Gauge, pages, u64::from(checks));
        show("skep_mount_cache_bytes", Kind::Gauge, "Memory for what leases cover.", bytes as u64);
        show("skep_mount_recalls_total", Kind::Counter, "What servers took back.", counts.recalls);
        let wanted =
            "How often a whole lease was wanted back, as others change what it covers again and again.";
        show("skep_mount_leases_wanted_total", Kind::Counter, wanted, counts.given_back + counts.kept);
        let lapses = "How often all leases of a server ended at once.";
        show("skep_mount_lapses_total", Kind::Counter, lapses, counts.lapses);
        show("skep_mount_told", Kind::Gauge, "Inodes for which the kernel may answer.", told as u64);
        show("skep_mount_told_names", Kind::Gauge, "Names that the kernel may use.", names as u64);
        let help = "How often the kernel had to drop all names, for a directory was in use.";
        show("skep_mount_epoch_bumps_total", Kind::Counter, help, bumps);
        let help = "How often a change waited for the validity of a name.";
        show("skep_mount_name_waits_total", Kind::Counter, help, waits);
        let help = "How often something was lost that programs had been answered for and had not synced.";
        show("skep_mount_losses_total", Kind::Counter, help, losses);
        let lost = "How often the kernel did not know for long what it had been given; 0 but for a bug.";
        show("skep_mount_looks_lost_total", Kind::Counter, lost, lost_looks);
    }
}

impl Pages for MountPages {
    fn service(&self) -> &'static str {
        "mount"
    }

    fn metrics(&self, out: &mut Exposition) {
        let Some(counts) = counts() else { return };
        counts.operations.expose("skep_mount_fuse", "operation", out);
        let renewed = self.hands.shared.with(|shared| shared.session.open().map(|session| session.renewed));
        let mut counter = |name: &str, help: &str, value: u64| {
            out.family(name, Kind::Counter, help).value(&[], value);
        };
        counter(
            "skep_mount_read_bytes_total",
            "Bytes that programs read past the page cache.",
            counts.read_bytes.get(),
        );
        counter("skep_mount_written_bytes_total", "Bytes that programs wrote.", counts.written_bytes.get());
        counter("skep_mount_links_opened_total", "Connections made to servers.", self.hands.links_opened());
        counter("skep_mount_links_failed_total", "Connections that failed.", self.hands.links_failed());
        self.leases(out);
        let (inodes, handles, closes, session) = self.hands.shared.with(|shared| {
            (shared.inodes.len(), shared.handles.len(), shared.closes.len(), shared.session.open().is_some())
        });
        let mut gauge = |name: &str, help: &str, value: u64| {
            out.family(name, Kind::Gauge, help).value(&[], value);
        };
        gauge("skep_mount_inodes", "Inodes that the mount keeps something of.", inodes as u64);
        gauge("skep_mount_handles", "Open files and directories.", handles as u64);
        gauge("skep_mount_closes_waiting", "Closes that servers are not told of yet.", closes as u64);
        let now = self.hands.now().0;
        let silent = renewed.map_or(0, |at| now.saturating_sub(at.0));
        gauge("skep_mount_session_silent_seconds", "Time since mgmtd renewed the session.", silent / 1_000);
        gauge("skep_mount_session", "Has it a session?", u64::from(session));
        let lost = counts.lost.get().max(0);
        gauge(
            "skep_mount_kernel_features_missing",
            "Features that this kernel lacks (skep health).",
            lost as u64,
        );
        let transport = counts.transport.get().map_or("none", String::as_str);
        out.family("skep_mount_transport_info", Kind::Gauge, "How requests come from the kernel; always 1.")
            .value(&[("transport", transport)], 1);
    }

    fn healthy(&self) -> Result<(), String> {
        match self.hands.shared.with(|shared| shared.session.open().is_some()) {
            true => Ok(()),
            false => Err("no session: mgmtd does not answer, or evicted this mount".to_owned()),
        }
    }
}

//! Measuring the network without the disks, in one directory: see [`crate::state::Netbench`].

use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Lease, Shared};
use skep_types::{Errno, Ino, Kind, Name};
use skep_wire::Refusal;
use skep_wire::meta::{EntryReply, Lookup};

/// A directory in which the network is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Which.
    pub dir: Ino,
    /// For so many milliseconds so far.
    pub on_ms: u64,
    /// For so many more unless it is renewed.
    pub left_ms: u64,
    /// What was made in it and is ordinary, for there were too many.
    pub unmarked: u64,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Measures in the directory `dir` for another `ms`; 0 ends it. A directory must be empty when it begins.
    pub async fn measure_network(&self, dir: Ino, ms: u64) -> Result<(), Errno> {
        if ms == 0 {
            if self.shared.with(|s| s.netbench.end(dir)) {
                self.port.log(format_args!("netbench: off in directory {dir}"));
            }
            return Ok(());
        }
        // A lease that ran out is not taken up again: what was written since went to the disks.
        self.end_netbench();
        if !self.shared.with(|s| s.netbench.has(dir)) {
            let found = self.inspect(dir).await?;
            if found.attr.kind != Kind::Dir {
                return Err(Errno::ENOTDIR);
            }
            if found.entries != 0 {
                return Err(Errno::ENOTEMPTY);
            }
        }
        let now = self.port.now();
        if self.shared.with(|s| s.netbench.renew(dir, now, ms))? {
            self.port.log(format_args!(
                "netbench: on in directory {dir}: contents of files made in it from now on are dropped"
            ));
            self.port.work_waits();
        }
        Ok(())
    }

    /// Directories that are measured in.
    pub fn network_measured(&self) -> alloc::vec::Vec<Measured> {
        let now = self.port.now();
        let measured = |(dir, lease): (Ino, Lease)| Measured {
            dir,
            on_ms: now.since(lease.since),
            left_ms: lease.until.since(now),
            unmarked: lease.unmarked,
        };
        self.shared.with(|s| {
            let running = s.netbench.leases().filter(|(_, lease)| now < lease.until);
            running.map(measured).collect()
        })
    }

    /// Are chunks of this file not for the disks at the moment?
    pub(crate) fn drops_content(&self, ino: Ino) -> bool {
        self.shared.with(|s| s.netbench.until(ino)).is_some_and(|until| self.port.now() < until)
    }

    /// Something was made in `parent` through this mount.
    pub(crate) fn made(&self, parent: Ino, ino: Ino) {
        let now = self.port.now();
        self.shared.with(|s| s.netbench.made(parent, ino, now));
    }

    /// Was it made in a directory that is measured in, through this mount, while it was?
    pub fn is_dropped(&self, ino: Ino) -> bool {
        self.shared.with(|s| s.netbench.is_marked(ino))
    }

    /// A name is about to move: EPERM if that leads a marked inode out of its directory, where nobody would expect
    /// that its content is dropped.
    pub(crate) async fn stays_inside(&self, parent: Ino, name: &Name, to_parent: Ino) -> Result<(), Refusal> {
        if !self.shared.with(|s| s.netbench.is_inside(parent)) {
            return Ok(());
        }
        let message = Lookup { parent, name: name.clone() };
        let EntryReply { ino, .. } = self.ask(parent.shard(), &message).await?;
        self.may_be_named_in(ino, to_parent)
    }

    /// The same of an inode that gets another name.
    pub(crate) fn may_be_named_in(&self, ino: Ino, parent: Ino) -> Result<(), Refusal> {
        match self.shared.with(|s| s.netbench.keeps(ino, parent)) {
            true => Err(Errno::EPERM.into()),
            false => Ok(()),
        }
    }

    /// Ends what was not renewed. `true`: something is still measured in.
    pub(crate) fn end_netbench(&self) -> bool {
        let now = self.port.now();
        let (over, on) = self.shared.with(|s| (s.netbench.expire(now), s.netbench.leases().next().is_some()));
        for dir in over {
            self.port.log(format_args!("netbench: the time in directory {dir} has run out: off"));
        }
        on
    }
}

#[cfg(test)]
mod tests {
    use crate::port::{Cell, Port};
    use crate::testing::{BOTH, FakeLane, block_on, create, mounted, read, write};
    use crate::{CreateHow, Lane, Opened, RenameHow};
    use skep_types::{Errno, Ino};

    /// The fake shard knows one directory only; the mount tells them apart.
    const DIR: Ino = Ino(77);

    fn begin(lane: &FakeLane, ms: u64) {
        let now = lane.port().now();
        lane.shared().with(|s| s.netbench.renew(DIR, now, ms)).unwrap();
    }

    fn create_inside(lane: &FakeLane) -> Opened {
        let how = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy: None };
        block_on(Lane::create(lane, DIR, b"inside", how, BOTH)).unwrap()
    }

    /// Goal: while the network is measured in a directory only files made in it lose their content, at every size;
    /// afterwards they are holes, and no other file, made before or elsewhere meanwhile, has lost a byte.
    #[test]
    fn only_files_of_the_directory_are_dropped() {
        let (cluster, lane) = mounted();
        let before = create(&lane, b"before");
        write(&lane, &before, 0, &[1; 200_000]);
        begin(&lane, 5_000);
        assert_eq!(lane.network_measured().len(), 1);
        let inside = create_inside(&lane);
        let elsewhere = create(&lane, b"elsewhere");
        write(&lane, &elsewhere, 0, &[2; 200_000]);
        write(&lane, &before, 100_000, &[3; 200_000]);
        let stored = || cluster.borrow().targets.chunks.values().map(alloc::vec::Vec::len).sum::<usize>();
        let bytes = stored();
        write(&lane, &inside, 0, &[4; 100]);
        write(&lane, &inside, 100, &[4; 300_000]);
        assert_eq!(read(&lane, &inside, 0, 400_000), [0; 300_100]);
        block_on(lane.fsync(inside.handle)).unwrap();
        assert_eq!(stored(), bytes, "nothing of it reached a target");
        block_on(lane.measure_network(DIR, 0)).unwrap();
        assert!(lane.network_measured().is_empty());
        assert_eq!(read(&lane, &inside, 0, 400_000), [0; 300_100]);
        write(&lane, &inside, 0, &[5; 10]);
        assert_eq!(read(&lane, &inside, 0, 10), [5; 10], "an ordinary file from now on");
        assert_eq!(read(&lane, &before, 0, 400_000), [[1; 100_000].as_slice(), &[3; 200_000]].concat());
        assert_eq!(read(&lane, &elsewhere, 0, 400_000), [2; 200_000]);
    }

    /// Goal: neither rename nor link nor an exchange gives a marked file a name outside of its directory; when
    /// another mount has done so, its content is kept from the moment on at which it is found there.
    #[test]
    fn marked_files_stay_inside() {
        let (_cluster, lane) = mounted();
        create(&lane, b"elsewhere");
        begin(&lane, 5_000);
        let inside = create_inside(&lane);
        let how = RenameHow::default();
        let moved =
            |from, name: &[u8], to, to_name: &[u8], how| block_on(lane.rename(from, name, to, to_name, how));
        assert_eq!(moved(DIR, b"inside", Ino::ROOT, b"out", how), Err(Errno::EPERM));
        let exchange = RenameHow { exchange: true, ..how };
        assert_eq!(moved(Ino::ROOT, b"elsewhere", DIR, b"inside", exchange), Err(Errno::EPERM));
        assert_eq!(block_on(lane.link(inside.attr.ino, Ino::ROOT, b"out")).unwrap_err(), Errno::EPERM);
        write(&lane, &inside, 0, &[4; 20_000]);
        assert_eq!(read(&lane, &inside, 0, 20_000), [0; 20_000]);
        // The fake shard has one directory: every name is found in the root as well.
        block_on(lane.lookup(Ino::ROOT, b"inside")).unwrap();
        assert!(!lane.is_dropped(inside.attr.ino));
        write(&lane, &inside, 0, &[5; 20_000]);
        assert_eq!(read(&lane, &inside, 0, 20_000), [5; 20_000]);
    }

    /// Goal: a lease that is not renewed ends by itself: what is written later is stored.
    #[test]
    fn a_lease_runs_out() {
        let (_cluster, lane) = mounted();
        begin(&lane, 50);
        let inside = create_inside(&lane);
        write(&lane, &inside, 0, &[4; 20_000]);
        assert_eq!(read(&lane, &inside, 0, 20_000), [0; 20_000]);
        block_on(lane.port().pause(60));
        write(&lane, &inside, 0, &[5; 20_000]);
        assert_eq!(read(&lane, &inside, 0, 20_000), [5; 20_000]);
        block_on(lane.housekeeping());
        assert!(lane.shared().with(|s| s.netbench.leases().next().is_none()));
    }
}

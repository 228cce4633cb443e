//! Sockets: opened, tuned, named.

use crate::{Endpoint, NetError, PeerInfo, error::Cause};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use skep_wire::Protection;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A host that stays silent for this long is taken for dead and its TCP connection ended.
pub const PEER_DEAD_AFTER: Duration = Duration::from_secs(10);
/// First keepalive probe of an idle connection; with the rest it makes [`PEER_DEAD_AFTER`].
const KEEPALIVE_IDLE: Duration = Duration::from_secs(4);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVE_PROBES: u32 = 3;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;
/// Buffer of a Unix socket: one large payload passes without a wake-up per piece.
const UNIX_BUFFER: usize = 2 << 20;

/// Sets what every connection needs. Failures are harmless (an old kernel): the connection works.
fn tune(fd: BorrowedFd<'_>, protection: Protection) {
    if protection == Protection::Local {
        if sockopt::set_socket_send_buffer_size_force(fd, UNIX_BUFFER).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(fd, UNIX_BUFFER);
        }
        return;
    }
    let _ = sockopt::set_tcp_nodelay(fd, true);
    watch_over(fd, KEEPALIVE_IDLE, KEEPALIVE_EVERY);
}

/// Ends the connection when the host at the other end is silent, be it asked (keepalive probes) or sent to.
fn watch_over(fd: BorrowedFd<'_>, idle: Duration, every: Duration) {
    let dead_after = idle + every * KEEPALIVE_PROBES;
    let _ = sockopt::set_socket_keepalive(fd, true);
    let _ = sockopt::set_tcp_keepidle(fd, idle);
    let _ = sockopt::set_tcp_keepintvl(fd, every);
    let _ = sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES);
    let _ = sockopt::set_tcp_user_timeout(fd, dead_after.as_millis() as u32);
}

/// How often somebody who waits is asked whether to give up.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Blocking calls return after `slice` with `EAGAIN`; zero = never.
pub(crate) fn set_slices(fd: BorrowedFd<'_>, slice: Duration) -> io::Result<()> {
    let slice = (!slice.is_zero()).then_some(slice);
    sockopt::set_socket_timeout(fd, sockopt::Timeout::Recv, slice)?;
    Ok(sockopt::set_socket_timeout(fd, sockopt::Timeout::Send, slice)?)
}

/// Waits until `fd` is ready; `false` when the deadline passed first.
pub(crate) fn wait_until(fd: BorrowedFd<'_>, flags: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Can something be read now?
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&now)) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// Sends `bytes` with a descriptor beside them; gives how many the socket took. Without one nothing is sent.
pub(crate) fn send_beside(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<OwnedFd>,
) -> Result<usize, Cause> {
    let Some(descriptor) = descriptor else { return Ok(0) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptor = [descriptor.as_fd()];
    beside.push(SendAncillaryMessage::ScmRights(&descriptor));
    loop {
        match net::sendmsg(fd, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            // Too many on their way already: it goes without.
            Err(Errno::TOOMANYREFS) => return Ok(0),
            sent => return Ok(sent?),
        }
    }
}

/// As `read`, with the descriptor that came beside the bytes, if one did. More than one are closed.
pub(crate) fn read_beside(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got = net::recvmsg(fd, &mut [IoSliceMut::new(into)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptor = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptor = descriptors.last();
        }
    }
    Ok((got.bytes, descriptor))
}

/// How long somebody waits.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    /// Not longer than this.
    pub(crate) until: Instant,
    /// Asked every 100 ms: not any more.
    pub(crate) gives_up: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    /// As [`wait_until`].
    pub(crate) fn wait(&self, fd: BorrowedFd<'_>, flags: PollFlags) -> io::Result<bool> {
        loop {
            let slice = self.until.min(Instant::now() + SLICE);
            if wait_until(fd, flags, slice)? {
                return Ok(true);
            }
            if self.has_ended() {
                return Ok(false);
            }
        }
    }

    fn has_ended(&self) -> bool {
        Instant::now() >= self.until || (self.gives_up)()
    }
}

/// Connects to `endpoint`, trying every address that its name has.
pub(crate) fn connect(endpoint: &Endpoint, patience: Patience<'_>) -> Result<(OwnedFd, PeerInfo), NetError> {
    let fail = |e| NetError::new(endpoint.to_string(), Cause::Unreachable(e));
    if let Endpoint::Unix(path) = endpoint {
        let address = SocketAddrUnix::new(path.as_path()).map_err(|e| fail(e.into()))?;
        let fd = connect_one(&address.into(), AddressFamily::UNIX, patience).map_err(fail)?;
        tune(fd.as_fd(), Protection::Local);
        let address = endpoint.to_string();
        return Ok((
            fd,
            PeerInfo { host: address.clone(), address, uid: None, protection: Protection::Local },
        ));
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in endpoint.resolve().map_err(fail)? {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        match connect_one(&address.into(), family, patience) {
            Ok(fd) => {
                tune(fd.as_fd(), Protection::Integrity);
                return Ok((fd, tcp_peer(address)));
            }
            Err(e) => last = e,
        }
    }
    Err(fail(last))
}

fn connect_one(
    address: &SocketAddrAny,
    family: AddressFamily,
    patience: Patience<'_>,
) -> io::Result<OwnedFd> {
    let fd =
        net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    loop {
        match net::connect(&fd, address) {
            Ok(()) => break,
            Err(Errno::INPROGRESS | Errno::INTR) => {
                if !patience.wait(fd.as_fd(), PollFlags::OUT)? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                sockopt::socket_error(&fd)??;
                break;
            }
            // A Unix listener whose queue is full.
            Err(Errno::AGAIN) if !patience.has_ended() => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(e.into()),
        }
    }
    rustix::io::ioctl_fionbio(&fd, false)?;
    Ok(fd)
}

fn tcp_peer(address: SocketAddr) -> PeerInfo {
    PeerInfo {
        address: address.to_string(),
        host: address.ip().to_string(),
        uid: None,
        protection: Protection::Integrity,
    }
}

/// A bound and listening socket. A Unix socket's file is removed at the end.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    endpoint: Endpoint,
    /// Path and inode of our socket file.
    file: Option<(PathBuf, u64)>,
}

impl Listener {
    /// Listens at `endpoint` (port 0: a free one, see [`Listener::endpoint`]). A socket file that
    /// nobody listens at any more is replaced.
    pub fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen at {endpoint}: {e}"));
        match endpoint {
            Endpoint::Unix(path) => Self::bind_unix(path).map_err(named),
            Endpoint::Tcp(host, _) => Self::bind_tcp(endpoint, host).map_err(named),
        }
    }

    fn bind_unix(path: &Path) -> io::Result<Self> {
        let address: SocketAddrAny = SocketAddrUnix::new(path)?.into();
        if let Ok(meta) = std::fs::symlink_metadata(path)
            && meta.file_type().is_socket()
        {
            let soon = Instant::now() + Duration::from_secs(1);
            match connect_one(&address, AddressFamily::UNIX, Patience { until: soon, gives_up: &|| false }) {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
                _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
            }
        }
        let fd = Self::listen(&address, AddressFamily::UNIX)?;
        let inode = std::fs::symlink_metadata(path)?.ino();
        Ok(Self { fd, endpoint: Endpoint::Unix(path.to_owned()), file: Some((path.to_owned(), inode)) })
    }

    fn bind_tcp(endpoint: &Endpoint, host: &str) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in endpoint.resolve()? {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            match Self::listen(&address.into(), family) {
                Ok(fd) => {
                    let bound = SocketAddr::try_from(net::getsockname(&fd)?)?;
                    return Ok(Self {
                        fd,
                        endpoint: Endpoint::Tcp(host.to_owned(), bound.port()),
                        file: None,
                    });
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn listen(address: &SocketAddrAny, family: AddressFamily) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = net::socket_with(family, SocketType::STREAM, flags, None)?;
        if family != AddressFamily::UNIX {
            sockopt::set_socket_reuseaddr(&fd, true)?;
        }
        net::bind(&fd, address)?;
        net::listen(&fd, BACKLOG)?;
        Ok(fd)
    }

    /// Where it listens, with the real port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next waiting connection; `None` when there is none.
    pub(crate) fn accept(&self, nonblocking: bool) -> io::Result<Option<(OwnedFd, PeerInfo)>> {
        let nonblock = if nonblocking { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
        let (fd, address) = match net::acceptfrom_with(&self.fd, SocketFlags::CLOEXEC | nonblock) {
            Ok(accepted) => accepted,
            // The rest of the list: the peer is gone again, which is its own business.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::PERM) => {
                return Ok(None);
            }
            Err(e) => return Err(e.into()),
        };
        let info = match address.and_then(|a| SocketAddr::try_from(a).ok()) {
            Some(address) if !self.endpoint.is_unix() => tcp_peer(address),
            _ => self.unix_peer(&fd),
        };
        tune(fd.as_fd(), info.protection);
        Ok(Some((fd, info)))
    }

    fn unix_peer(&self, fd: &OwnedFd) -> PeerInfo {
        let protection = Protection::Local;
        match sockopt::socket_peercred(fd) {
            Ok(cred) => {
                let uid = cred.uid.as_raw();
                let address = format!("{} (pid {}, uid {uid})", self.endpoint, cred.pid.as_raw_nonzero());
                PeerInfo {
                    address,
                    host: format!("{} (uid {uid})", self.endpoint),
                    uid: Some(uid),
                    protection,
                }
            }
            Err(_) => {
                let host = self.endpoint.to_string();
                PeerInfo { address: host.clone(), host, uid: None, protection }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, inode)) = &self.file
            && std::fs::symlink_metadata(path).is_ok_and(|meta| meta.ino() == *inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    /// Goal: a socket file left by a killed process is replaced, one in use is not, and our own goes with us.
    #[test]
    fn socket_files() {
        let dir = TempDir::new();
        let path = dir.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap()); // std leaves the file
        assert!(path.exists());
        let listener = Listener::bind(&Endpoint::Unix(path.clone())).unwrap();
        let second = Listener::bind(&Endpoint::Unix(path.clone())).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, b"a file").unwrap();
        assert!(Listener::bind(&Endpoint::Unix(path.clone())).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    }

    fn soon() -> Patience<'static> {
        Patience { until: Instant::now() + Duration::from_secs(5), gives_up: &|| false }
    }

    /// Goal: a dead endpoint is an error that names it, at once or at the deadline.
    #[test]
    fn nobody_there() {
        let free = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap().endpoint().clone();
        let error = connect(&free, soon()).unwrap_err();
        assert!(error.to_string().starts_with(&free.to_string()), "{error}");
    }

    /// Goal: every TCP connection is watched for [`PEER_DEAD_AFTER`], on both sides.
    #[test]
    fn both_sides_are_watched() {
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let (asking, _) = connect(listener.endpoint(), soon()).unwrap();
        let (serving, _) = listener.accept(false).unwrap().unwrap();
        for fd in [&asking, &serving] {
            let probes = sockopt::tcp_keepcnt(fd).unwrap();
            let silent = sockopt::tcp_keepidle(fd).unwrap() + sockopt::tcp_keepintvl(fd).unwrap() * probes;
            assert!(sockopt::socket_keepalive(fd).unwrap());
            assert_eq!(silent, PEER_DEAD_AFTER);
            assert_eq!(sockopt::tcp_user_timeout(fd).unwrap(), PEER_DEAD_AFTER.as_millis() as u32);
        }
    }

    /// Goal: a host that vanishes is noticed in the time that the constants give, whether its connection is
    /// idle or has something under way. A network of its own, whose only device is switched off, plays it.
    #[test]
    fn a_dead_host_is_noticed() {
        let thread = std::thread::spawn(|| {
            use rustix::thread::{UnshareFlags, unshare_unsafe};
            // SAFETY: only the network namespace of this thread changes; no memory or descriptor table does.
            #[allow(unsafe_code)]
            unsafe {
                unshare_unsafe(UnshareFlags::NEWNET).expect("this test needs root");
            }
            let loopback = |state| {
                let args = ["link", "set", "lo", state];
                assert!(std::process::Command::new("ip").args(args).status().unwrap().success());
            };
            loopback("up");
            let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
            let connections: Vec<_> = (0..2)
                .map(|_| (connect(listener.endpoint(), soon()).unwrap().0, listener.accept(false).unwrap()))
                .collect();
            let second = Duration::from_secs(1);
            for (fd, _) in &connections {
                watch_over(fd.as_fd(), second, second);
            }
            loopback("down");
            let (began, limit) = (Instant::now(), second * (KEEPALIVE_PROBES + 4));
            let [(idle, _), (busy, _)] = &connections[..] else { panic!("two of them") };
            rustix::io::write(busy, b"under way").unwrap();
            for fd in [busy, idle] {
                assert!(wait_until(fd.as_fd(), PollFlags::IN, began + limit).unwrap(), "taken for alive");
                assert!(rustix::io::read(fd, &mut [0; 8]).is_err());
            }
        });
        thread.join().unwrap();
    }
}

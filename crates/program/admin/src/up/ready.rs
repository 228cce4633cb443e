//! Waiting for daemons by event: each tells that it serves on a socket, or ends.

use super::plan::ServicePlan;
use super::process::Living;
use rustix::event::{PollFd, PollFlags, poll};
use skep_base::{Failure, Outcome};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest path of a Unix socket that the kernel takes.
const SOCKET_PATH_MAX: usize = skep_base::config::service::SOCKET_PATH_MAX;
/// Who connected says its line within this time, or is no daemon of ours.
const LINE_LIMIT: Duration = Duration::from_secs(1);
/// No line is longer.
const LINE_MAX: u64 = 256;
/// Lines of a log that are shown when its service does not start.
const LOG_LINES: usize = 5;
/// A service that takes longer to start is given up.
pub const START_LIMIT: Duration = Duration::from_secs(30);

/// The socket on which daemons tell that they serve.
pub struct ReadySocket {
    listener: UnixListener,
    /// Its path, for the environment of daemons.
    pub path: PathBuf,
}

/// A daemon whose end is waited for, or feared.
pub struct Watched<'a> {
    pub service: &'a ServicePlan,
    pub process: Living,
}

impl Watched<'_> {
    /// Fails when it ends before `deadline`.
    pub fn lives_until(&self, deadline: Instant) -> Outcome {
        match self.process.wait(deadline) {
            true => Err(ended(self.service)),
            false => Ok(()),
        }
    }
}

impl ReadySocket {
    /// In the run directory, or in that for temporary files when its path is too long.
    pub fn open(run_dir: &Path) -> Outcome<Self> {
        let mut path = run_dir.join("ready.sock");
        if path.as_os_str().len() > SOCKET_PATH_MAX {
            path = std::env::temp_dir().join(format!("skep-ready-{}.sock", std::process::id()));
        }
        // Left over by a killed `skep up`; the lock of the directory says that none runs now.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(|e| Failure::local(path.display(), e))?;
        Ok(Self { listener, path })
    }

    /// Waits until all of `starting` have said that they serve. Fails when one ends or takes too long, and when one of
    /// `running` ends: nobody would get ready without it.
    pub fn wait<'a>(&self, mut starting: Vec<Watched<'a>>, running: &mut Vec<Watched<'a>>) -> Outcome {
        let deadline = Instant::now() + START_LIMIT;
        while !starting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
            fds.extend(starting.iter().chain(&*running).map(|daemon| daemon.process.ended()));
            match poll(&mut fds, left.try_into().ok().as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(Failure::local("waiting for daemons", e)),
                Ok(0) => {
                    let limit = START_LIMIT.as_secs();
                    return Err(failed(starting[0].service, &format!("does not serve within {limit} s")));
                }
                Ok(_) => {}
            }
            let told = !fds[0].revents().is_empty();
            let gone = fds[1..].iter().position(|fd| !fd.revents().is_empty());
            if told {
                if let Some(pid) = self.listener.accept().ok().and_then(|(stream, _)| pid_of(&stream)) {
                    running.extend(starting.extract_if(.., |daemon| daemon.process.pid == pid));
                }
            } else if let Some(at) = gone {
                return Err(match starting.get(at) {
                    Some(daemon) => failed(daemon.service, "ended at its start"),
                    None => ended(running[at - starting.len()].service),
                });
            }
        }
        Ok(())
    }
}

impl Drop for ReadySocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads `<service> <pid>`.
fn pid_of(stream: &UnixStream) -> Option<u32> {
    stream.set_read_timeout(Some(LINE_LIMIT)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line).ok()?;
    line.trim_end().rsplit(' ').next()?.parse().ok()
}

/// A daemon that served has ended.
pub fn ended(service: &ServicePlan) -> Failure {
    failed(service, "ended right after its start")
}

fn failed(service: &ServicePlan, what: &str) -> Failure {
    let log = std::fs::read(&service.log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<_> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
    Failure::new(format!("{} {what}; its log ({}) ends with:\n  {tail}", service.name, service.log.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::{plan, process};
    use std::io::Write;
    use std::process::{Child, Command};

    fn start(command: &str) -> Child {
        Command::new("sleep").arg(command).spawn().unwrap()
    }

    /// Goal: the wait ends when every daemon has told, whatever strangers say meanwhile.
    #[test]
    fn all_have_told() {
        let dir = tempfile::tempdir().unwrap();
        let socket = ReadySocket::open(dir.path()).unwrap();
        let services = plan::services(dir.path(), 1, 1);
        let mut children = [start("600"), start("600")];
        let tell =
            |text: String| UnixStream::connect(&socket.path).unwrap().write_all(text.as_bytes()).unwrap();
        tell("nonsense".to_owned());
        tell("metad 1\n".to_owned());
        children.iter().for_each(|child| tell(format!("metad {}\n", child.id())));
        let starting = children
            .iter()
            .zip(&services)
            .map(|(child, service)| Watched { service, process: process::hold(child.id()).unwrap() });
        let mut running = Vec::new();
        socket.wait(starting.collect(), &mut running).unwrap();
        assert_eq!(running.len(), 2, "they are looked after from now on");
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Goal: a daemon that ends instead of serving is named, with the end of its log.
    #[test]
    fn one_ends() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("log")).unwrap();
        let socket = ReadySocket::open(dir.path()).unwrap();
        let services = plan::services(dir.path(), 1, 1);
        std::fs::write(&services[1].log, "first\nno such key\n").unwrap();
        let mut child = start("0");
        let process = process::hold(child.id()).unwrap();
        let starting = vec![Watched { service: &services[1], process }];
        let error = socket.wait(starting, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("metad-1 ended") && error.ends_with("no such key"), "{error}");
        child.wait().unwrap();
    }

    /// Goal: a daemon that served and ends while others start is named, not those that wait for it in vain.
    #[test]
    fn one_that_others_need_ends() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("log")).unwrap();
        let socket = ReadySocket::open(dir.path()).unwrap();
        let services = plan::services(dir.path(), 1, 1);
        std::fs::write(&services[0].log, "an older copy\n").unwrap();
        let (mut short, mut waiting) = (start("0"), start("600"));
        let watched = |child: &Child, at: usize| Watched {
            service: &services[at],
            process: process::hold(child.id()).unwrap(),
        };
        let mut running = vec![watched(&short, 0)];
        let error = socket.wait(vec![watched(&waiting, 2)], &mut running).unwrap_err().to_string();
        assert!(error.contains("mgmtd ended") && error.ends_with("an older copy"), "{error}");
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        short.wait().unwrap();
    }
}

//! What one case has in hand while it runs: descriptors, the time stamps noted before the call, credentials.

use crate::errno::Errno;
use crate::step::{Expect, Step, Word, show};
use crate::symbols;
use crate::sys::{self, Arg, Stat};
use crate::users::{self, ROOT};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

/// What a call returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing but success.
    Nothing,
    /// A count or offset.
    Number(i64),
    /// Content, a link target, an attribute value, a list of names.
    Bytes(Vec<u8>),
}

/// Why a step did not succeed.
#[derive(Debug)]
pub enum Fault {
    /// The kernel's answer.
    Errno(Errno),
    /// An assertion that does not hold: what was expected, what was found.
    Check(String),
    /// The table itself is wrong.
    Table(String),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::Errno(errno)
    }
}

/// The outcome of a step.
pub type Done = Result<Value, Fault>;

/// A step that did not come to what it should.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The step as written in the table.
    pub step: String,
    /// Who did it.
    pub user: String,
    /// What should have come of it.
    pub expected: String,
    /// What came of it.
    pub happened: String,
}

/// How often the kernel's coarse clock must advance before two stamps are sure to differ.
const TICKS: u32 = 2;

/// The state of one running case.
#[derive(Default)]
pub struct Scene {
    /// Open descriptors by the name the table gave them.
    pub fds: BTreeMap<String, OwnedFd>,
    /// Paths whose stamps the checks compare, with what they were before the call.
    pub before: BTreeMap<Vec<u8>, Stat>,
}

impl Scene {
    /// Runs a step as its user and compares with what it should come to.
    pub fn run(&mut self, step: &Step) -> Result<(), Mismatch> {
        let failed = |happened: String| Mismatch {
            step: step.text.clone(),
            user: step.user.name.to_owned(),
            expected: step.expect.describe(),
            happened,
        };
        let handler = crate::calls::find(&step.verb).ok_or_else(|| failed("no such call".to_owned()))?;
        if step.user != ROOT {
            users::assume(step.user).map_err(|e| failed(format!("cannot become {}: {e}", step.user.name)))?;
        }
        let done = handler(self, step);
        if step.user != ROOT {
            users::restore().map_err(|e| failed(format!("cannot become root again: {e}")))?;
        }
        judge(&step.expect, done).map_err(failed)
    }

    /// Notes the stamps of every path that `moved` and `kept` checks name, after letting the clock advance.
    pub fn mark(&mut self, checks: &[Step]) -> Result<(), Mismatch> {
        let watched = checks.iter().filter(|s| s.verb == "moved" || s.verb == "kept");
        let mut any = false;
        for step in watched {
            let Some(Word::Bytes(path)) = step.words.first() else { continue };
            any = true;
            if let Ok(stat) = lstat(path) {
                self.before.insert(path.clone(), stat);
            }
        }
        if any { next_tick() } else { Ok(()) }
    }

    /// Notes all watched stamps again.
    pub fn mark_again(&mut self) -> Result<(), Mismatch> {
        for (path, stat) in &mut self.before {
            if let Ok(now) = lstat(path) {
                *stat = now;
            }
        }
        next_tick()
    }

    /// The descriptor a word names: `cwd`, `none` (a number nobody opened), `-1`, or one opened with `as=`.
    pub fn fd(&self, step: &Step, at: usize) -> Result<i64, Fault> {
        const NOBODY: i64 = 1_000_000;
        match text(step, at)? {
            "cwd" => Ok(libc::AT_FDCWD.into()),
            "none" => Ok(NOBODY),
            "-1" => Ok(-1),
            name => match self.fds.get(name) {
                Some(fd) => Ok(fd.as_raw_fd().into()),
                None => Err(Fault::Table(format!("no descriptor {name:?} is open here"))),
            },
        }
    }
}

/// `lstat` of a path given as bytes.
pub fn lstat(path: &[u8]) -> Result<Stat, Errno> {
    let path = CString::new(path).map_err(|_| Errno(libc::EINVAL))?;
    sys::statx(libc::AT_FDCWD.into(), Arg::Text(&path), libc::AT_SYMLINK_NOFOLLOW)
}

/// Waits until the kernel's coarse clock, from which stamps are taken, has surely moved on.
fn next_tick() -> Result<(), Mismatch> {
    use rustix::time::{ClockId, clock_gettime};
    let start = std::time::Instant::now();
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
    let mut last = clock_gettime(ClockId::RealtimeCoarse);
    let mut ticks = 0;
    while ticks < TICKS {
        std::thread::sleep(std::time::Duration::from_micros(500));
        let now = clock_gettime(ClockId::RealtimeCoarse);
        if now != last {
            (last, ticks) = (now, ticks + 1);
        } else if start.elapsed() > PATIENCE {
            return Err(Mismatch {
                step: "wait for the clock".to_owned(),
                user: "root".to_owned(),
                expected: "the coarse clock to advance".to_owned(),
                happened: "it stood still for 5 s".to_owned(),
            });
        }
    }
    Ok(())
}

fn judge(expect: &Expect, done: Done) -> Result<(), String> {
    match (expect, done) {
        (Expect::Ok, Ok(_)) => Ok(()),
        (Expect::Value(want), Ok(value)) => {
            let got = match value {
                Value::Nothing => b"nothing".to_vec(),
                Value::Number(n) => n.to_string().into_bytes(),
                Value::Bytes(bytes) => bytes,
            };
            if *want == got { Ok(()) } else { Err(format!("success with {}", show(&got))) }
        }
        (Expect::Errors(list), Err(Fault::Errno(errno))) if list.contains(&errno) => Ok(()),
        (Expect::Errors(_), Ok(_)) => Err("success".to_owned()),
        (_, Err(Fault::Errno(errno))) => Err(errno.to_string()),
        (_, Err(Fault::Check(what))) => Err(what),
        (_, Err(Fault::Table(what))) => Err(format!("the table is wrong: {what}")),
    }
}

/// The word at that place.
pub fn word(step: &Step, at: usize) -> Result<&Word, Fault> {
    step.words.get(at).ok_or_else(|| Fault::Table(format!("{:?} lacks argument {}", step.text, at + 1)))
}

/// The bytes of the word at that place.
pub fn bytes(step: &Step, at: usize) -> Result<&[u8], Fault> {
    match word(step, at)? {
        Word::Bytes(b) => Ok(b),
        Word::Bad => Err(Fault::Table(format!("<bad> cannot be argument {} of {:?}", at + 1, step.text))),
    }
}

/// The word at that place as text.
pub fn text(step: &Step, at: usize) -> Result<&str, Fault> {
    std::str::from_utf8(bytes(step, at)?).map_err(|_| Fault::Table(format!("{:?} is not text", step.text)))
}

/// The word at that place as a number, constants by name included.
pub fn number(step: &Step, at: usize) -> Result<i64, Fault> {
    let text = text(step, at)?;
    symbols::number(text).ok_or_else(|| Fault::Table(format!("{text:?} is not a number I know")))
}

/// The value of an option as text.
pub fn option<'a>(step: &'a Step, key: &str) -> Result<Option<&'a str>, Fault> {
    match step.options.get(key) {
        None => Ok(None),
        Some(Word::Bytes(b)) => std::str::from_utf8(b)
            .map(Some)
            .map_err(|_| Fault::Table(format!("{key}= in {:?} is not text", step.text))),
        Some(Word::Bad) => Err(Fault::Table(format!("{key}=<bad> in {:?}", step.text))),
    }
}

/// The value of an option as a number.
pub fn option_number(step: &Step, key: &str) -> Result<Option<i64>, Fault> {
    option(step, key)?
        .map(|t| symbols::number(t).ok_or_else(|| Fault::Table(format!("{key}={t}: not a number I know"))))
        .transpose()
}

/// A user or group id at that place.
pub fn owner(step: &Step, at: usize) -> Result<i64, Fault> {
    let text = text(step, at)?;
    users::id(text).map(i64::from).ok_or_else(|| Fault::Table(format!("{text:?} is no user or group id")))
}

/// A path argument, kept alive for the call.
pub enum Path {
    /// A real string.
    Text(CString),
    /// An unmapped address.
    Bad,
}

impl Path {
    /// As a system call argument.
    pub fn arg(&self) -> Arg<'_> {
        match self {
            Path::Text(t) => Arg::Text(t),
            Path::Bad => Arg::Bad,
        }
    }
}

/// The path at that place.
pub fn path(step: &Step, at: usize) -> Result<Path, Fault> {
    match word(step, at)? {
        Word::Bad => Ok(Path::Bad),
        Word::Bytes(b) => CString::new(b.as_slice())
            .map(Path::Text)
            .map_err(|_| Fault::Table(format!("a path in {:?} holds a zero byte", step.text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: judging accepts only what was expected: no success for an error, no other error, no other value.
    #[test]
    fn judging_is_strict() {
        let refuse = Expect::Errors(vec![Errno(libc::EPERM)]);
        assert!(judge(&refuse, Err(Errno(libc::EPERM).into())).is_ok());
        assert_eq!(judge(&refuse, Ok(Value::Nothing)), Err("success".to_owned()));
        assert_eq!(judge(&refuse, Err(Errno(libc::EACCES).into())), Err("EACCES".to_owned()));
        assert!(judge(&refuse, Err(Fault::Table("x".to_owned()))).is_err());
        assert!(judge(&Expect::Value(b"3".to_vec()), Ok(Value::Number(3))).is_ok());
        assert!(judge(&Expect::Value(b"3".to_vec()), Ok(Value::Number(4))).is_err());
        assert!(judge(&Expect::Ok, Err(Fault::Check("x".to_owned()))).is_err());
    }
}

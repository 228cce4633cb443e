//! Signals, as what they mean: somebody asks that this process end.

use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals that come within so many pauses ask once: timeout(1) sends one to the process and one to its group. In
/// pauses, for however long this process is held up between the two, that is one pause.
const ONE_ASKING: (u32, Duration) = (20, Duration::from_millis(50));

/// From now on every asking by one of these signals is told to `asked`, which runs in a thread of its own: the first
/// is number 1. The process itself does not end; `asked` may end it. The end of a terminal asks nothing of a process
/// that was started to outlive it (nohup).
pub fn on_each(signals: &[i32], mut asked: impl FnMut(u32) + Send + 'static) -> Result<()> {
    let (reader, writer) = UnixStream::pair()?;
    let ignored = ignored();
    let outlives = |signal: i32| signal == SIGHUP && ignored & (1 << (SIGHUP - 1)) != 0;
    for signal in signals.iter().filter(|signal| !outlives(**signal)) {
        signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?;
    }
    let mut askings = Askings(reader);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for number in 1.. {
            if !askings.come() {
                return;
            }
            asked(number);
            if askings.settle(|| std::thread::sleep(ONE_ASKING.1)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Signals that this process ignores, a bit each, the first the lowest.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// Signals as they come, a byte each.
struct Askings(UnixStream);

impl Askings {
    /// Waits until somebody asks. `false`: nobody can.
    fn come(&mut self) -> bool {
        self.0.read_exact(&mut [0]).is_ok()
    }

    /// Takes what belongs to the same asking: all that has come by the end of the last pause, so that it does not matter
    /// when it is read.
    fn settle(&mut self, pause: impl FnMut()) -> Result<()> {
        std::iter::repeat_with(pause).take(ONE_ASKING.0 as usize).for_each(drop);
        self.0.set_nonblocking(true)?;
        while self.take_some()? {}
        self.0.set_nonblocking(false)
    }

    /// `false`: there is no more for now, or for ever.
    fn take_some(&mut self) -> Result<bool> {
        let nothing = |e: &Error| e.kind() == ErrorKind::WouldBlock;
        match self.0.read(&mut [0; 64]) {
            Ok(bytes) => Ok(bytes > 0),
            Err(e) if nothing(&e) => Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::mpsc::channel;

    /// Goal: whatever comes by the end of the last pause is the same asking, however late it is read and however many
    /// they are; what comes after it is the next one.
    #[test]
    fn one_asking() {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let mut askings = Askings(reader);
        let mut pauses = 0;
        writer.write_all(&[0; 100]).unwrap();
        assert!(askings.come());
        let mut each = writer.try_clone().unwrap();
        askings
            .settle(|| {
                pauses += 1;
                each.write_all(&[0]).unwrap();
            })
            .unwrap();
        assert_eq!(pauses, ONE_ASKING.0);
        writer.write_all(&[0]).unwrap();
        assert!(askings.come());
        askings.settle(|| {}).unwrap();
        drop((writer, each));
        assert!(!askings.come(), "every byte was taken");
    }

    /// Goal: what a process ignores is seen, as nohup sets it for the end of the terminal.
    #[test]
    fn ignored_signals_are_seen() {
        let grep = |before: &str| {
            let script = format!("{before} exec grep SigIgn /proc/self/status");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let last = |text: String| u64::from_str_radix(text.split_whitespace().last().unwrap(), 16).unwrap();
        assert_eq!(last(grep("trap '' HUP;")) & 1, 1);
        assert_eq!(last(grep("trap - HUP;")) & 1, ignored() & 1);
        // Programs in Rust ignore the end of a pipe, number 13.
        assert_ne!(ignored() & (1 << 12), 0);
    }

    /// Goal: a signal is told as asking 1; those that come with it are swallowed, of those that come later one is told
    /// as asking 2.
    #[test]
    fn signals_are_told_with_their_number() {
        let (told, askings) = channel();
        on_each(&[signal_hook::consts::SIGUSR2], move |number| told.send(number).unwrap()).unwrap();
        let raise = || signal_hook::low_level::raise(signal_hook::consts::SIGUSR2).unwrap();
        raise();
        assert_eq!(askings.recv_timeout(Duration::from_secs(300)), Ok(1));
        let second = (0..300).find_map(|_| {
            raise();
            askings.recv_timeout(2 * ONE_ASKING.0 * ONE_ASKING.1).ok()
        });
        assert_eq!(second, Some(2));
    }
}

//! The terminal: one whole screen at a time, keys one by one, and everything as it was at the end.
//!
//! A handful of escape sequences and termios, which rustix has: a terminal library would bring more
//! code than this view is.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr,
};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;

/// Other screen, no cursor, no line wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// As it was.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// To the top left.
const HOME: &str = "\x1b[H";
/// Erases the rest of the line.
const LINE_END: &str = "\x1b[K";
/// Erases everything below.
const BELOW: &str = "\x1b[J";
/// Size of a terminal that does not tell it.
const SIZE: (usize, usize) = (80, 24);

/// How the terminal was before; for the panic hook, too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal while it is ours.
pub struct Screen {
    _ours: (),
}

/// Are both ends a terminal?
pub fn is_terminal() -> bool {
    isatty(io::stdin()) && isatty(io::stdout())
}

impl Screen {
    /// Takes the terminal.
    pub fn take() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut ours = before.clone();
        ours.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        // Stopped in the middle, the view would leave the terminal as it is now.
        ours.special_codes[SpecialCodeIndex::VSUSP] = 0;
        *BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(before);
        let screen = Self { _ours: () };
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            hook(panic);
        }));
        tcsetattr(io::stdin(), OptionalActions::Now, &ours)?;
        let mut out = io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(screen)
    }

    /// Columns and lines.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => SIZE,
        }
    }

    /// Shows these lines, cut to the size of the terminal, in one piece.
    pub fn show(&self, lines: &[String]) -> io::Result<()> {
        let (columns, rows) = self.size();
        let mut text = String::from(HOME);
        for (at, line) in lines.iter().take(rows).enumerate() {
            text.push_str(if at == 0 { "" } else { "\r\n" });
            text.extend(skep_base::log::printable(line).chars().take(columns));
            text.push_str(LINE_END);
        }
        text.push_str(BELOW);
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Once: the terminal as it was.
fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    if let Some(before) = before {
        // A terminal that is gone needs nothing back.
        let _ = io::stdout().write_all(LEAVE.as_bytes()).and_then(|()| io::stdout().flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// What came while it was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Key(u8),
    /// The program shall end, or the terminal is gone.
    End,
    Nothing,
}

/// Waits for a key or for `stop`, at most so long.
pub fn wait(stop: &impl AsFd, limit: Duration) -> Event {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    match poll(&mut fds, limit.try_into().ok().as_ref()) {
        Ok(0) | Err(_) => return Event::Nothing,
        Ok(_) => {}
    }
    if !fds[1].revents().is_empty() {
        return Event::End;
    }
    let mut byte = [0];
    match rustix::io::read(&stdin, &mut byte) {
        Ok(1) => Event::Key(byte[0]),
        _ => Event::End,
    }
}

//! Runs commands from a process that never has a file of the cluster open.
//!
//! A program that forks while it has such files open hands them to the child, which closes them when
//! it executes the command: FUSE waits for the answer to that close. When the command is the one that
//! shall bring the missing server back, it would never begin. So commands are run by a shell that was
//! started first.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Longest time for one command, in seconds; `timeout(1)` ends it. Only for what hangs: the longest takes a quarter of
/// it on two processors with nothing else to do.
const LIMIT: &str = "480";

/// A shell that reads commands.
#[derive(Debug)]
pub struct Runner(Mutex<Shell>);

#[derive(Debug)]
struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    number: u32,
}

impl Runner {
    /// Starts the shell.
    pub fn start() -> Result<Self, String> {
        let script = "while IFS= read -r line; do eval \"$line\"; echo $?; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("sh: {e}"))?;
        let output = child.stdout.take().ok_or("sh has no output")?;
        let input = child.stdin.take();
        Ok(Self(Mutex::new(Shell { child, input, output: BufReader::new(output), number: 0 })))
    }

    /// Runs `words` to their end with these variables more. What is printed goes through files in
    /// `dir`, so that a daemon which inherits them keeps nobody waiting.
    pub fn run(
        &self,
        words: &[OsString],
        environment: &[(String, String)],
        dir: &Path,
    ) -> Result<Output, String> {
        let mut shell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shell.number += 1;
        let [out, err] = ["out", "err"]
            .map(|kind| dir.join(format!("command-{}-{}.{kind}", shell.child.id(), shell.number)));
        let mut line = OsString::from("env");
        for (name, value) in environment {
            line.push(" ");
            line.push(quoted(OsStr::new(&format!("{name}={value}"))));
        }
        line.push(format!(" timeout --foreground {LIMIT}"));
        for word in words {
            line.push(" ");
            line.push(quoted(word));
        }
        for (sign, path) in [(" </dev/null >", &out), (" 2>", &err)] {
            line.push(sign);
            line.push(quoted(path.as_os_str()));
        }
        let status = shell.eval(line)?;
        let read = |path: &Path| {
            let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
            let _ = std::fs::remove_file(path);
            bytes
        };
        Ok(Output { status, stdout: read(&out)?, stderr: read(&err)? })
    }
}

impl Shell {
    fn eval(&mut self, mut line: OsString) -> Result<ExitStatus, String> {
        line.push("\n");
        let input = self.input.as_mut().ok_or("the shell has ended")?;
        input.write_all(line.as_bytes()).and_then(|()| input.flush()).map_err(|e| format!("sh: {e}"))?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).map_err(|e| format!("sh: {e}"))?;
        let code: i32 = answer.trim().parse().map_err(|_| format!("sh answered {answer:?}"))?;
        // As wait(2) encodes an exit code.
        Ok(std::os::unix::process::ExitStatusExt::from_raw(code << 8))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The end of its input is the end of its loop.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// A word that the shell takes as it is.
fn quoted(word: &OsStr) -> OsString {
    let mut out = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            byte => out.push(*byte),
        }
    }
    out.push(b'\'');
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: words arrive as they are, with variables, output, errors and exit code apart.
    #[test]
    fn runs_commands() {
        let scratch = crate::Scratch::new(None).expect("a directory");
        let runner = Runner::start().expect("sh");
        let script = "echo \"$1|$V\"; echo no >&2; exit 7";
        let words = ["sh", "-c", script, "x", "it's $HOME `id`"].map(OsString::from);
        for _ in 0..2 {
            let environment = [("V".to_owned(), "a b".to_owned())];
            let output = runner.run(&words, &environment, scratch.path()).expect("it runs");
            assert_eq!(output.status.code(), Some(7));
            assert_eq!(output.stdout, b"it's $HOME `id`|a b\n");
            assert_eq!(output.stderr, b"no\n");
        }
    }
}

//! A real browser without a window, driven over a pipe by its DevTools protocol: no port is opened.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Names under which the browser is installed, the leanest first.
const BROWSERS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// Longest time of one answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The browser reads commands from descriptor 3 and writes answers to 4; a shell puts its own there.
const PLUMBING: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null"#;

/// The browser.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    last: u64,
}

/// One page of it.
#[derive(Debug, Clone)]
pub struct Tab {
    target: String,
    session: String,
}

/// The path of a program, if it is installed.
pub fn installed(name: &str) -> Option<std::path::PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| path.is_file())
}

impl Browser {
    /// Starts it with a profile of its own in `directory`.
    pub fn start(directory: &Path) -> Result<Self, String> {
        let Some(program) = BROWSERS.into_iter().find_map(installed) else {
            let names = BROWSERS.join(", ");
            return Err(format!(
                "no browser ({names}) is installed, so the report cannot be tested: run `make test-packages`, \
                 or: apt-get install chromium-headless-shell"
            ));
        };
        let log = std::fs::File::create(directory.join("browser.log"))
            .map_err(|error| format!("cannot write the browser's log: {error}"))?;
        let mut child = Command::new("sh")
            .args(["-c", PLUMBING])
            .arg(&program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", directory.join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the browser has no pipes".to_owned());
        };
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut bytes = Vec::new();
            while matches!(reader.read_until(0, &mut bytes), Ok(n) if n > 0) {
                if bytes.last() == Some(&0) {
                    bytes.pop();
                }
                let Ok(message) = serde_json::from_slice(&bytes) else { break };
                if sender.send(message).is_err() {
                    break;
                }
                bytes.clear();
            }
        });
        Ok(Self { child, input, messages, events: VecDeque::new(), last: 0 })
    }

    fn send(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Result<u64, String> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let written = self.input.write_all(&bytes).and_then(|()| self.input.flush());
        written.map_err(|error| format!("{method}: the browser is gone: {error}"))?;
        Ok(self.last)
    }

    fn next(&mut self, until: Instant, what: &str) -> Result<Value, String> {
        let left = until.saturating_duration_since(Instant::now());
        self.messages.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("{what}: no answer within {} s", PATIENCE.as_secs()),
            RecvTimeoutError::Disconnected => format!("{what}: the browser ended"),
        })
    }

    fn ask(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Result<Value, String> {
        let id = self.send(session, method, parameters)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let mut message = self.next(until, method)?;
            if message["id"].as_u64() == Some(id) {
                if let Some(error) = message.get("error") {
                    return Err(format!("{method}: {error}"));
                }
                return Ok(message["result"].take());
            }
            self.events.push_back(message);
        }
    }

    /// Calls a method of a tab.
    pub fn call(&mut self, tab: &Tab, method: &str, parameters: Value) -> Result<Value, String> {
        self.ask(Some(&tab.session), method, parameters)
    }

    /// Opens an empty tab that reports requests and errors.
    pub fn open(&mut self) -> Result<Tab, String> {
        let target = self.ask(None, "Target.createTarget", json!({ "url": "about:blank" }))?;
        let target = target["targetId"].as_str().unwrap_or_default().to_owned();
        let attach = json!({ "targetId": target, "flatten": true });
        let session = self.ask(None, "Target.attachToTarget", attach)?;
        let tab = Tab { target, session: session["sessionId"].as_str().unwrap_or_default().to_owned() };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&tab, &format!("{domain}.enable"), json!({}))?;
        }
        Ok(tab)
    }

    /// Opens an address in the tab and waits until it is loaded.
    pub fn navigate(&mut self, tab: &Tab, url: &str) -> Result<(), String> {
        self.call(tab, "Page.navigate", json!({ "url": url }))?;
        let until = Instant::now() + PATIENCE;
        let loaded = |message: &Value| {
            message["method"] == "Page.loadEventFired" && message["sessionId"] == tab.session.as_str()
        };
        while !self.events.iter().any(loaded) {
            let message = self.next(until, "loading")?;
            self.events.push_back(message);
        }
        Ok(())
    }

    /// Runs a script in the tab and waits for what it gives.
    pub fn evaluate(&mut self, tab: &Tab, script: &str) -> Result<Value, String> {
        let parameters = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call(tab, "Runtime.evaluate", parameters)?;
        if let Some(error) = answer.get("exceptionDetails") {
            return Err(format!("the question to the page failed: {error}"));
        }
        Ok(answer["result"]["value"].take())
    }

    /// What the tab reported so far.
    pub fn events(&mut self, tab: &Tab) -> Vec<Value> {
        while let Ok(message) = self.messages.try_recv() {
            self.events.push_back(message);
        }
        let (own, other) = std::mem::take(&mut self.events)
            .into_iter()
            .partition(|message| message["sessionId"] == tab.session.as_str());
        self.events = other;
        Vec::from(own)
    }

    /// Closes the tab.
    pub fn close(&mut self, tab: &Tab) -> Result<(), String> {
        self.ask(None, "Target.closeTarget", json!({ "targetId": tab.target })).map(|_| ())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked first, so that its helpers end with it; then made sure of.
        if self.ask(None, "Browser.close", json!({})).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

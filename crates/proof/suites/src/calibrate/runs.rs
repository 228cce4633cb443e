//! Runs the measuring programs and reads their lines.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Package and example of each, and how often it runs: of several runs the least counts, which other work of the
/// machine disturbed least.
const PROGRAMS: [(&str, &str, usize); 3] =
    [("skep-cluster", "registry_bench", 3), ("skep-net", "server_cost", 3), ("skep-meta", "rules_bench", 5)];
/// Appends that are synced, to see what a sync costs.
const SYNCS: usize = 400;
/// Bytes of each.
const SYNC_BYTES: usize = 4_096;

/// What the registry costs at one size of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Sized {
    /// Which request, or which reply's bytes.
    pub what: String,
    /// Storage servers.
    pub nodes: u64,
    /// Targets of all.
    pub targets: u64,
    /// Mounts.
    pub sessions: u64,
    /// Microseconds, or bytes.
    pub value: f64,
}

/// Everything that was measured here.
#[derive(Debug, Default)]
pub struct Runs {
    /// What was called.
    pub commands: Vec<String>,
    /// Costs of the registry.
    pub costs: Vec<Sized>,
    /// Lengths of its replies.
    pub bytes: Vec<Sized>,
    /// `name transport` and microseconds of the server's thread.
    pub serve: Vec<(String, f64)>,
    /// Rules of metadata: name and microseconds.
    pub rules: Vec<(String, f64)>,
    /// Microseconds of an append of 4 KiB that is synced; the fastest tenth ends here, for others use the disk too.
    pub sync_us: f64,
}

impl Runs {
    /// Builds and runs all programs.
    pub fn now(root: &Path, core: usize) -> Result<Self, String> {
        let mut runs = Self::default();
        for (package, example, _) in PROGRAMS {
            let build = ["build", "--release", "--quiet", "-p", package, "--example", example];
            let built = Command::new("cargo").args(build).current_dir(root).status();
            if !built.map_err(|e| format!("cargo: {e}"))?.success() {
                return Err(format!("{example} of {package} does not build"));
            }
        }
        for (package, example, times) in PROGRAMS {
            let program = root.join("target/release/examples").join(example);
            for _ in 0..times {
                let output = Command::new("taskset").arg("-c").arg(core.to_string()).arg(&program).output();
                let output = output.map_err(|e| format!("taskset: {e}; it is in util-linux"))?;
                if !output.status.success() {
                    return Err(format!("{example} failed: {}", String::from_utf8_lossy(&output.stderr)));
                }
                String::from_utf8_lossy(&output.stdout).lines().try_for_each(|line| runs.line(line))?;
            }
            runs.commands
                .push(format!("taskset -c {core} cargo run --release -p {package} --example {example}"));
        }
        runs.sync_us = sync_us(&root.join("target/calibrate.sync")).map_err(|e| format!("sync: {e}"))?;
        Ok(runs)
    }

    /// The least cost of `what` over the transport that servers use between machines.
    pub fn tcp(&self, what: &str) -> Result<f64, String> {
        find(&self.serve, &format!("{what} tcp"))
    }

    /// The same within a machine, as the profile was taken.
    pub fn unix(&self, what: &str) -> Result<f64, String> {
        find(&self.serve, &format!("{what} unix"))
    }

    /// Rules of metadata.
    pub fn rule(&self, what: &str) -> Result<f64, String> {
        find(&self.rules, what)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let bad = || format!("not understood: {line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok()).ok_or_else(bad);
        match words.first() {
            Some(&("cost" | "bytes")) => {
                let (nodes, targets, sessions) = (number(2)? as u64, number(3)? as u64, number(4)? as u64);
                let sized = Sized { what: words[1].to_owned(), nodes, targets, sessions, value: number(5)? };
                let into = if words[0] == "cost" { &mut self.costs } else { &mut self.bytes };
                match into.iter_mut().find(|known| known.what == sized.what && known.nodes == sized.nodes) {
                    Some(known) => known.value = known.value.min(sized.value),
                    None => into.push(sized),
                }
            }
            Some(&"serve") => {
                let name = format!("{} {}", words[1], words.get(2).ok_or_else(bad)?);
                least(&mut self.serve, name, number(3)?);
            }
            // `create, not open   5.50 us   120 bytes logged`
            _ => {
                let at = words.iter().position(|word| *word == "us").filter(|at| *at > 1).ok_or_else(bad)?;
                least(&mut self.rules, words[..at - 1].join(" "), number(at - 1)?);
            }
        }
        Ok(())
    }
}

fn least(among: &mut Vec<(String, f64)>, name: String, us: f64) {
    match among.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = known.min(us),
        None => among.push((name, us)),
    }
}

fn find(among: &[(String, f64)], what: &str) -> Result<f64, String> {
    let found = among.iter().find(|(name, _)| name == what);
    found.map(|(_, us)| *us).ok_or_else(|| format!("`{what}` was not measured"))
}

fn sync_us(path: &Path) -> std::io::Result<f64> {
    let mut file = File::create(path)?;
    let mut took = Vec::new();
    for _ in 0..SYNCS {
        file.write_all(&[7; SYNC_BYTES])?;
        let start = Instant::now();
        file.sync_data()?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    took.sort_by(f64::total_cmp);
    Ok(took[SYNCS / 10])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines of all three programs are read, anything else is an error.
    #[test]
    fn lines() {
        let mut runs = Runs::default();
        runs.line("cost heartbeat 10 40 100 0.520").expect("a cost");
        runs.line("cost heartbeat 10 40 100 0.740").expect("a slower run");
        runs.line("bytes map 10 40 100 6235").expect("bytes");
        runs.line("serve request-of-32 tcp 4.705").expect("a server's cost");
        runs.line("create, not open          3.28 us     120 bytes logged").expect("a rule");
        assert_eq!(runs.costs[0].value, 0.52);
        assert_eq!(runs.bytes[0].targets, 40);
        assert_eq!(runs.tcp("request-of-32"), Ok(4.705));
        assert_eq!(runs.rule("create, not open"), Ok(3.28));
        assert!(runs.line("thread panicked").is_err());
        assert!(runs.line("cost heartbeat 10").is_err());
    }
}

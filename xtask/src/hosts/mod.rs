//! `cargo xtask hosts`: three machines are set up, used, extended and repaired by the pages of `docs/admin`, word
//! for word, while a client works and checks what it reads.
//!
//! The machines are namespaces of this one (root is needed): each with a tree, processes, a name and a network of
//! its own. Nothing of them is left when the task ends, however it ends.

pub(crate) mod host;
mod page;

use crate::program;
use host::Network;
use page::{Action, Block, blocks};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The machines of the pages.
const HOSTS: [&str; 3] = ["alpha", "beta", "gamma"];
/// Files that the load must have written on the way, at least, after each page.
const FILES_PER_PAGE: u64 = 20;
/// Longest wait for the load to go on after a change.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between looks.
const PAUSE: Duration = Duration::from_millis(200);
/// Changes the first byte of every chunk file of a target.
const DAMAGE: &str = "find /data/skep0/chunks -type f -size +0 | while read -r f; do printf '\\1' | dd of=\"$f\" conv=notrunc status=none; done";
/// What the load says of a file that is not as it was written.
const DAMAGED: &str = "is not what was written";
/// What the client does meanwhile.
const LOAD: &str = "skep-load /mnt/skep/load";

/// Flags.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program to install; absent: built now, for development (little optimisation).
    #[arg(long)]
    program: Option<PathBuf>,
    /// Show what every block prints.
    #[arg(long, short)]
    verbose: bool,
    /// Damage the chunks of a target before the last comparison, which must find it.
    #[arg(long)]
    canary: bool,
}

/// Runs it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => program::built(root, "skep", false)?,
    };
    let scratch = skep_rig::Scratch::new(None)?;
    let network = Network::start(&HOSTS, scratch.path())?;
    let walk = Walk { network, root, program, verbose: arguments.verbose, canary: arguments.canary };
    match walk.all() {
        Err(why) if arguments.canary && why.contains(DAMAGED) => {
            println!("the damage was found\n1 passed, 0 failed");
            Ok(true)
        }
        Ok(_) if arguments.canary => {
            Err("the damage was not found: the comparison proves nothing".to_owned())
        }
        Ok(blocks) => {
            println!("{blocks} passed, 0 failed");
            Ok(true)
        }
        Err(why) => {
            eprintln!("{why}\n{}", walk.network.logs());
            Ok(false)
        }
    }
}

struct Walk<'a> {
    network: Network,
    root: &'a Path,
    program: PathBuf,
    verbose: bool,
    canary: bool,
}

impl Walk<'_> {
    /// Gives the number of blocks and checks that passed.
    fn all(&self) -> Result<usize, String> {
        for host in HOSTS {
            let (root, program) = (self.root.display(), self.program.display());
            self.network.run(host, &format!("make -s -C {root} install SKEP={program}"))?;
        }
        let mut passed = self.page("setup")? + self.page("mount")?;
        self.network.begin("gamma", LOAD)?;
        self.load_goes_on()?;
        for page in ["grow", "replace"] {
            passed += self.page(page)?;
            self.load_goes_on()?;
        }
        // A mount is busy as long as a program of the load has a file open.
        self.network.run("gamma", &format!("{LOAD} stop"))?;
        if self.canary {
            self.network.run("beta", DAMAGE)?;
        }
        // What the page cache holds proves nothing about the servers.
        let check = format!("umount /mnt/skep && mount -a && {LOAD} check");
        println!("    {}", self.network.run("gamma", &check)?.trim_end());
        for check in CHECKS {
            self.check(check)?;
            passed += 1;
        }
        // An older copy loses what was written since: nobody writes meanwhile.
        self.network.run("gamma", "umount /mnt/skep")?;
        passed += self.page("restore")?;
        println!("    {}", self.network.run("gamma", &format!("mount -a && {LOAD} check"))?.trim_end());
        self.network.run("gamma", "skep umount /mnt/skep")?;
        Ok(passed + 1)
    }

    fn page(&self, name: &str) -> Result<usize, String> {
        let path = self.root.join("docs/admin").join(format!("{name}.md"));
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let all = blocks(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        if all.is_empty() {
            return Err(format!("{}: no block says on which host it is", path.display()));
        }
        for block in &all {
            let began = Instant::now();
            self.block(block).map_err(|e| format!("{}, \"{}\": {e}", path.display(), block.heading))?;
            println!("  {name:<8} {:<6} {:<50} {:>6.1?}", block.host, block.heading, began.elapsed());
        }
        Ok(all.len())
    }

    fn block(&self, block: &Block) -> Result<(), String> {
        match &block.action {
            Action::Write { path, text } => self.network.write(&block.host, path, text),
            Action::Run(script) => {
                let said = self.network.run(&block.host, script)?;
                if self.verbose {
                    print!("{said}");
                }
                Ok(())
            }
        }
    }

    /// The client works on, and no program of it failed so far.
    fn load_goes_on(&self) -> Result<(), String> {
        let number = || -> Result<u64, String> {
            let text = self.network.run("gamma", "cat /var/lib/skep-load/number 2> /dev/null || echo 0")?;
            text.trim().parse().map_err(|e| format!("skep-load: {e}: {text}"))
        };
        let (began, first) = (Instant::now(), number()?);
        while number()? < first + FILES_PER_PAGE {
            if began.elapsed() > PATIENCE {
                return Err("the client's programs do not go on".to_owned());
            }
            std::thread::sleep(PAUSE);
        }
        let failed = self.network.run("gamma", "cat /var/lib/skep-load/failed")?;
        match failed.is_empty() {
            true => Ok(()),
            false => Err(format!("a client's program failed:\n{failed}")),
        }
    }

    fn check(&self, (host, script, expected): (&str, &str, &str)) -> Result<(), String> {
        let said = self.network.run(host, script)?;
        match said.trim() == expected {
            true => Ok(()),
            false => Err(format!("{host}: {script}\nexpected: {expected}\nfound: {said}")),
        }
    }
}

/// (host, commands, what they must print): what the cluster must be like in the end.
const CHECKS: [(&str, &str, &str); 5] = [
    ("alpha", "skep node list -O ndjson | grep -c '\"state\":\"online\"'", "4"),
    ("alpha", "skep target list -O ndjson | grep -c '\"reachability\":\"online\"'", "3"),
    (
        "alpha",
        "skep node list -O ndjson | grep -o '\"alias\":\"[a-z]*\"' | sort | paste -sd ' '",
        "\"alias\":\"beta\" \"alias\":\"gamma\"",
    ),
    // Every target got files, the new ones among them.
    (
        "beta",
        "for d in /data/*; do find $d/chunks -type f | grep -q . && echo used; done | sort | uniq -c | xargs",
        "2 used",
    ),
    ("gamma", "find /data/skep0/chunks -type f | grep -q . && echo used", "used"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Goal: who stops the load goes on only when the program that it was running has ended, too, however long that
    /// takes: here a copy that ends some time after the stop.
    #[test]
    fn the_load_is_waited_for() {
        const SLOW_COPY: &str = "cp() {
            touch \"$here/copying\"
            until [ -e \"$here/stop\" ]; do sleep 0.02; done
            sleep 0.5
            command cp \"$@\"
            touch \"$here/copied\"
        }\n";
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let text = SLOW_COPY.to_owned() + include_str!("shim/skep-load");
        let load = |words: &[&str]| {
            let mut command = Command::new("bash");
            command.args(["-c", &text, "skep-load"]).arg(scratch.path().join("files")).args(words);
            command.env("SKEP_LOAD_STATE", scratch.path()).stdin(Stdio::null());
            command
        };
        let has = |name: &str| scratch.path().join(name).exists();
        let mut running = load(&[]).spawn().unwrap();
        let began = Instant::now();
        while !has("copying") && began.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
        let stopped = load(&["stop"]).status().unwrap();
        let (copying, copied) = (has("copying"), has("copied"));
        assert!(running.wait().unwrap().success());
        assert!(stopped.success() && copying && copied, "{stopped}, copying: {copying}, copied: {copied}");
        // Nothing runs: nothing is waited for.
        assert!(load(&["stop"]).status().unwrap().success());
    }
}

//! `cargo xtask hosts`: machines are set up, used, extended and repaired by the pages of `docs/admin`, word for word,
//! while clients work and check what they read.
//!
//! The machines are namespaces of this one (root is needed): each with a tree, processes, a name and a network of
//! its own. Nothing of them is left when the task ends, however it ends.

pub(crate) mod host;
mod page;
mod scenes;

use crate::program;
use host::Network;
use page::{Action, Block, blocks};
use scenes::Step;
use skep_rig::until;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The machines of the pages.
const HOSTS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// Files that the load must have written on the way, at least, after each page ...
const FILES_PER_PAGE: u64 = 20;
/// ... and after what is looked at within a page.
const FILES_PER_STEP: u64 = 5;
/// Longest wait for the load to go on after a change, and for what servers tell each other.
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
        let mut passed = self.page("setup")? + self.page("mount")? + self.steps(scenes::ARCHIVE)?;
        self.network.begin("gamma", LOAD)?;
        self.load_goes_on("gamma", FILES_PER_PAGE)?;
        passed += self.page("grow")?;
        self.load_goes_on("gamma", FILES_PER_PAGE)?;
        let (moving, replacing): (Vec<_>, Vec<_>) =
            self.blocks("replace")?.into_iter().partition(|block| block.heading == scenes::MOVE);
        passed += self.walk("replace", &replacing)?;
        self.load_goes_on("gamma", FILES_PER_PAGE)?;
        // A mount is busy as long as a program of the load has a file open.
        self.network.run("gamma", &format!("{LOAD} stop"))?;
        if self.canary {
            self.network.run("beta", DAMAGE)?;
        }
        // What the page cache holds proves nothing about the servers.
        let check = format!("umount /mnt/skep && mount -a && {LOAD} check");
        println!("    {}", self.network.run("gamma", &check)?.trim_end());
        passed += self.steps(CHECKS)?;
        // An older copy loses what was written since: nobody writes meanwhile.
        self.network.run("gamma", "umount /mnt/skep")?;
        passed += self.page("restore")?;
        println!("    {}", self.network.run("gamma", &format!("mount -a && {LOAD} check"))?.trim_end());
        passed += self.walk("replace", &moving)?;
        Ok(passed + 1)
    }

    fn blocks(&self, page: &str) -> Result<Vec<Block>, String> {
        let path = self.root.join("docs/admin").join(format!("{page}.md"));
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let all = blocks(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        match scenes::lost(page, &all) {
            _ if all.is_empty() => Err(format!("{}: no block says on which host it is", path.display())),
            Some(lost) => Err(format!("{}: {lost}", path.display())),
            None => Ok(all),
        }
    }

    fn page(&self, name: &str) -> Result<usize, String> {
        self.walk(name, &self.blocks(name)?)
    }

    /// Runs blocks of a page, and what the test does beside them.
    fn walk(&self, page: &str, blocks: &[Block]) -> Result<usize, String> {
        let mut passed = 0;
        for section in blocks.chunk_by(|a, b| a.heading == b.heading) {
            let heading = &section[0].heading;
            passed += self.scene(page, heading, 0)?;
            for (block, number) in section.iter().zip(1..) {
                let began = Instant::now();
                self.block(block).map_err(|e| format!("{page}.md, \"{heading}\": {e}"))?;
                println!("  {page:<8} {:<6} {heading:<50} {:>6.1?}", block.host, began.elapsed());
                passed += 1 + self.scene(page, heading, number)?;
            }
        }
        Ok(passed)
    }

    fn scene(&self, page: &str, heading: &str, after: usize) -> Result<usize, String> {
        let steps = scenes::steps(page, heading, after);
        let place = || format!("{page}.md, \"{heading}\", behind block {after}");
        let began = Instant::now();
        let passed = self.steps(steps).map_err(|e| format!("{}: {e}", place()))?;
        if !steps.is_empty() {
            println!("  {page:<8} {:<6} {heading:<50} {:>6.1?}", "test", began.elapsed());
        }
        Ok(passed)
    }

    /// Gives the number of checks among them.
    fn steps(&self, steps: &[Step]) -> Result<usize, String> {
        let mut checks = 0;
        for step in steps {
            match *step {
                Step::Do(host, script) => {
                    self.network.run(host, script)?;
                    continue;
                }
                Step::Is(host, script, expected) => self.check(host, script, expected)?,
                Step::Becomes(host, script, expected) => {
                    until("what is expected", PATIENCE, || self.check(host, script, expected))?;
                }
                Step::Load(host) => self.load_goes_on(host, FILES_PER_STEP)?,
            }
            checks += 1;
        }
        Ok(checks)
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

    /// A client works on, and no program of it failed so far.
    fn load_goes_on(&self, host: &str, files: u64) -> Result<(), String> {
        let number = || -> Result<u64, String> {
            let text = self.network.run(host, "cat /var/lib/skep-load/number 2> /dev/null || echo 0")?;
            text.trim().parse().map_err(|e| format!("skep-load: {e}: {text}"))
        };
        let (began, first) = (Instant::now(), number()?);
        while number()? < first + files {
            if began.elapsed() > PATIENCE {
                return Err(format!("the programs of {host} do not go on"));
            }
            std::thread::sleep(PAUSE);
        }
        let failed = self.network.run(host, "cat /var/lib/skep-load/failed")?;
        match failed.is_empty() {
            true => Ok(()),
            false => Err(format!("a program of {host} failed:\n{failed}")),
        }
    }

    fn check(&self, host: &str, script: &str, expected: &str) -> Result<(), String> {
        let said = self.network.run(host, script)?;
        match said.trim() == expected {
            true => Ok(()),
            false => Err(format!("{host}: {script}\nexpected: {expected}\nfound: {said}")),
        }
    }
}

/// What the cluster must be like in the end.
const CHECKS: &[Step] = &[
    Step::Is("alpha", "skep node list -O ndjson | grep -c '\"state\":\"online\"'", "5"),
    Step::Is("alpha", "skep target list -O ndjson | grep -c '\"reachability\":\"online\"'", "4"),
    Step::Is(
        "alpha",
        "skep node list -O ndjson | grep -o '\"alias\":\"[a-z]*\"' | sort | paste -sd ' '",
        "\"alias\":\"beta\" \"alias\":\"delta\" \"alias\":\"gamma\"",
    ),
    // Every target got files, the new ones among them.
    Step::Is(
        "beta",
        "for d in /data/*; do find $d/chunks -type f -print -quit | grep -q . && echo used; done | sort | uniq -c | xargs",
        "2 used",
    ),
    Step::Is("gamma", "find /data/skep0/chunks -type f -print -quit | grep -q . && echo used", "used"),
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

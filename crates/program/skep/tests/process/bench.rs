//! Load on several hosts: agents that are processes of this machine, a coordinator, and what goes wrong
//! between them. No cluster is needed: the file system is a directory.

use super::TURN;
use super::loads::Bound;
use skep_rig::{Scratch, until};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An agent that is lost or hangs is told within this time, on a slow machine too: nothing else would end a run so early.
const TOLD: Duration = Duration::from_secs(120);
/// An agent whose coordinator is lost is free again within this time.
const FREED: Duration = Duration::from_secs(240);

/// A directory with a key and a place for loads.
struct Place {
    dir: Scratch,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Self { dir: Scratch::new(None).unwrap(), _turn: turn };
        fs::create_dir(place.path("load")).unwrap();
        fs::create_dir(place.path("outside")).unwrap();
        place.must(&["key", "generate", &place.text("key")]);
        place.must(&["key", "client", &place.text("client.key"), "--key", &place.text("key")]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skep"));
        command.args(words).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn must(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refusal(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?} succeeded");
        said(&output)
    }

    fn agent(&self, more: &[&str]) -> Agent {
        let (key, load) = (self.text("key"), self.text("load"));
        let mut words = vec!["bench", "agent", "--listen", "127.0.0.1:0", "--allow", &load];
        if !more.contains(&"--key") && !more.contains(&"--insecure") {
            words.extend(["--key", &key]);
        }
        words.extend(more);
        Agent::start(self.command(&words))
    }

    /// A load of four processes over these agents.
    fn load<'a>(&'a self, hosts: &'a str, key: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec!["bench", "io", "load", "-p", "4", "-t", "64k", "-b", "1m", "--quiet"];
        words.extend(["--hosts", hosts, "--agent-key", key]);
        words.extend(more);
        words
    }

    /// Everything that was made is gone.
    fn is_clean(&self) -> Result<(), String> {
        let left: Vec<_> =
            fs::read_dir(self.path("load")).unwrap().flatten().map(|e| e.file_name()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An agent, ended with the test.
pub struct Agent {
    child: Child,
    pub address: String,
}

impl Agent {
    /// Waits until it listens.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, places) = line.split_once("listens at ")?;
            places.split(", ").find(|place| !place.starts_with("unix:")).map(str::to_owned)
        });
        // Read to the end, so that nobody waits for the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.unwrap_or_else(|| panic!("the agent did not start: {:?}", child.wait()));
        Self { child, address }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn two(place: &Place) -> (Agent, Agent, String) {
    let (a, b) = (place.agent(&[]), place.agent(&[]));
    let hosts = format!("{},{}", a.address, b.address);
    (a, b, hosts)
}

/// Goal: two agents do one job: each its half, the other's data read back and compared, everything in the
/// results, nothing left behind; with the clients' key as well.
#[test]
fn two_agents_share_a_job() {
    let place = Place::new();
    let (a, b, hosts) = two(&place);
    let (key, client) = (place.text("key"), place.text("client.key"));
    let mut least_skew = f64::INFINITY;
    for key in [&key, &client] {
        let began = Instant::now();
        let more = ["--phases", "write,read+verify", "--readers", "node:1", "-i", "2", "--output", "json"];
        let text = place.must(&place.load(&hosts, key, &more));
        let all_us = began.elapsed().as_secs_f64() * 1e6;
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let run = &json[0];
        let of_hosts: Vec<_> = run["hosts"].as_array().unwrap().iter().collect();
        assert_eq!(of_hosts.len(), 2);
        for (host, agent) in of_hosts.iter().zip([&a, &b]) {
            assert_eq!((host["name"].as_str(), host["processes"].as_u64()), (Some(&*agent.address), Some(2)));
            // The same clock, read over the network: the error is half a round trip.
            let error = host["clock_error_us"].as_f64().unwrap();
            assert!(error > 0.0 && error < all_us / 2.0, "{error} of {all_us}");
        }
        let steps = run["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 4);
        for step in steps {
            assert_eq!(step["bytes"].as_u64(), Some(4 << 20));
            assert_eq!(step["workers"].as_array().unwrap().len(), 4);
            let skew = step["start_skew_us"].as_f64().unwrap();
            assert!(skew < all_us, "clocks are not one: {step}");
            least_skew = least_skew.min(skew);
        }
        place.is_clean().unwrap();
    }
    // All begin together, though in four processes of two hosts; a machine that is busy starts some of them late, but
    // not in every step.
    assert!(least_skew < 1e6, "{least_skew}");
}

/// Goal: node by node and slot by slot put processes where they should be; barriers hold over hosts.
#[test]
fn placement_over_hosts() {
    let place = Place::new();
    let (a, b, hosts) = two(&place);
    let key = place.text("key");
    for (placement, expected) in [("by-node", [0, 1, 0, 1]), ("by-slot", [0, 0, 1, 1])] {
        let more = ["--placement", placement, "--barriers", "--output", "json"];
        let text = place.must(&place.load(&hosts, &key, &more));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let workers = json[0]["steps"][0]["workers"].as_array().unwrap();
        let names = [&a.address, &b.address];
        for worker in workers {
            let number = worker["worker"].as_u64().unwrap() as usize;
            assert_eq!(
                worker["host"].as_str(),
                Some(names[expected[number]].as_str()),
                "{placement} {number}"
            );
        }
    }
}

/// Goal: without the right key nobody starts anything; without a key an agent does not even start.
#[test]
fn keys() {
    let place = Place::new();
    let agent = place.agent(&[]);
    place.must(&["key", "generate", &place.text("other.key")]);
    let other = place.text("other.key");
    let refusal = place.refusal(&place.load(&agent.address, &other, &[]));
    assert!(refusal.contains(&agent.address) && refusal.contains("key"), "{refusal}");
    let words = ["bench", "io", "load", "--hosts", &agent.address, "--agents-insecure"];
    assert!(place.refusal(&words).contains("--insecure"));
    let missing = place.text("missing.key");
    let refusal = place.refusal(&["bench", "agent", "--listen", "127.0.0.1:0", "--key", &missing]);
    assert!(refusal.contains("missing.key") && refusal.contains("--key"), "{refusal}");
    // Told so, it works without.
    let open = place.agent(&["--insecure"]);
    place.must(&[
        "bench",
        "io",
        "load",
        "-b",
        "1m",
        "--quiet",
        "--hosts",
        &open.address,
        "--agents-insecure",
    ]);
    place.is_clean().unwrap();
}

/// Goal: jobs stay below --allow, whatever their paths look like, and within the number of processes.
#[test]
fn limits_of_an_agent() {
    let place = Place::new();
    let agent = place.agent(&["--processes-max", "2"]);
    let key = place.text("key");
    std::os::unix::fs::symlink(place.path("outside"), place.path("load/link")).unwrap();
    for path in ["outside", "load/link", "load/../outside", "/tmp"] {
        let refusal =
            place.refusal(&["bench", "io", path, "--hosts", &agent.address, "--agent-key", &key, "-b", "1m"]);
        assert!(refusal.contains("--allow"), "{path}: {refusal}");
    }
    let missing = ["bench", "io", "load/none", "--hosts", &agent.address, "--agent-key", &key, "-b", "1m"];
    let refusal = place.refusal(&missing);
    assert!(refusal.contains("make it first") && !refusal.contains("EACCES"), "{refusal}");
    let two = place.agent(&[]);
    let hosts = format!("{},{}", agent.address, two.address);
    let refusal = place.refusal(&["bench", "io", "load", "-p", "1", "--hosts", &hosts, "--agent-key", &key]);
    assert!(refusal.contains("ask for 2 processes") && refusal.trim().lines().count() == 1, "{refusal}");
    assert_eq!(fs::read_dir(place.path("outside")).unwrap().count(), 0);
    fs::remove_file(place.path("load/link")).unwrap();
    // Nor does a link in place of what a job would make lead out.
    fs::write(place.path("outside/f0.0.0"), "mine").unwrap();
    let links = ["meta", "files"].map(|kind| place.path(&format!("load/skep-bench-{kind}")));
    links.iter().for_each(|link| std::os::unix::fs::symlink(place.path("outside"), link).unwrap());
    for (kind, phase) in [("meta", "remove"), ("meta", "create"), ("files", "untar"), ("files", "remove")] {
        let words = ["bench", kind, "load", "--existing", "--phases", phase, "--hosts", &agent.address];
        place.refusal(&[&words[..], &["--agent-key", &key]].concat());
        assert_eq!(fs::read_dir(place.path("outside")).unwrap().count(), 1, "{kind} {phase}");
    }
    links.iter().for_each(|link| fs::remove_file(link).unwrap());
    let small = place.agent(&["--memory-max", "64m"]);
    let refusal = place.refusal(&place.load(&small.address, &key, &["--threads", "8"]));
    assert!(refusal.contains("--memory-max"), "{refusal}");
    let refusal = place.refusal(&place.load(&agent.address, &key, &[]));
    assert!(refusal.contains("--processes-max"), "{refusal}");
    let nobody = place.refusal(&place.load("127.0.0.1:9", &key, &[]));
    assert!(nobody.contains("127.0.0.1:9"), "{nobody}");
    let wrong = place.refusal(&place.load("a b", &key, &[]));
    assert!(wrong.contains("a b"), "{wrong}");
}

/// A run that would last an hour, once its files are there.
fn long_run(place: &Place, hosts: &str) -> Bound {
    let key = place.text("key");
    let words = place.load(hosts, &key, &["--phases", "write", "--stonewall", "1h", "--repeat"]);
    let child = place.command(&words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let child = Bound::new(child);
    until("files of all workers", FREED, || match fs::read_dir(place.path("load")).unwrap().count() {
        4 => Ok(()),
        n => Err(format!("{n}")),
    })
    .unwrap();
    child
}

/// Waits for a coordinator that must fail; what it said.
fn failed(run: Bound) -> String {
    let output = run.output();
    assert!(!output.status.success(), "it succeeded");
    said(&output)
}

/// Goal: an agent that is killed ends the run at once: it is named, the other's processes are stopped, all
/// files are removed, and the other agent is free for the next run.
#[test]
fn a_killed_agent_is_reported() {
    let place = Place::new();
    let (a, mut b, hosts) = two(&place);
    let run = long_run(&place, &hosts);
    let since = Instant::now();
    b.child.kill().unwrap();
    b.child.wait().unwrap();
    let text = failed(run);
    assert!(since.elapsed() < TOLD, "told after {:?}", since.elapsed());
    assert!(text.contains(&b.address) && text.contains("is gone"), "{text}");
    until("everything is removed", TOLD, || place.is_clean()).unwrap();
    place.must(&place.load(&a.address, &place.text("key"), &[]));
}

/// Goal: an agent that hangs is reported as well, though its connections stay open.
#[test]
fn a_hanging_agent_is_reported() {
    let place = Place::new();
    let (_a, b, hosts) = two(&place);
    let run = long_run(&place, &hosts);
    b.signal(rustix::process::Signal::STOP);
    let since = Instant::now();
    let text = failed(run);
    b.signal(rustix::process::Signal::CONT);
    assert!(since.elapsed() < TOLD * 2, "told after {:?}", since.elapsed());
    assert!(text.contains(&b.address), "{text}");
    until("everything is removed", FREED, || place.is_clean()).unwrap();
}

/// Goal: a coordinator that is killed takes its run with it: the agents stop, clean up, and serve the next;
/// while a run goes on, another is told so.
#[test]
fn a_lost_coordinator_frees_its_agents() {
    let place = Place::new();
    let (a, _b, hosts) = two(&place);
    let run = long_run(&place, &hosts);
    let key = place.text("key");
    let busy = place.refusal(&place.load(&a.address, &key, &["--name", "second"]));
    assert!(busy.contains("another run"), "{busy}");
    run.kill();
    until("everything is removed", FREED, || place.is_clean()).unwrap();
    until("the agent is free", FREED, || {
        let output = place.run(&place.load(&a.address, &key, &[]));
        if output.status.success() { Ok(()) } else { Err(said(&output)) }
    })
    .unwrap();
}

/// Goal: an interrupt at the coordinator ends the run everywhere and cleans up.
#[test]
fn an_interrupt_ends_it_everywhere() {
    let place = Place::new();
    let (a, _b, hosts) = two(&place);
    let mut run = long_run(&place, &hosts);
    run.signal(rustix::process::Signal::INT);
    let text = failed(run);
    assert!(text.contains("stopped"), "{text}");
    place.is_clean().unwrap();
    place.must(&place.load(&a.address, &place.text("key"), &[]));
}

/// Goal: command lines of other tools run as they stand, and leave what the tool would leave.
#[test]
fn other_tools_lines_run() {
    let place = Place::new();
    let load = place.text("load");
    let left = |name: &str| {
        let prefix = name.to_owned();
        let entries = fs::read_dir(place.path("load")).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
    };
    let phases = |words: &[&str]| -> Vec<String> {
        let json: serde_json::Value = serde_json::from_str(&place.must(words)).unwrap();
        let phases = json[0]["phases"].as_array().unwrap();
        phases.iter().map(|phase| phase["phase"].as_str().unwrap().to_owned()).collect()
    };
    let with = |tool: &str, line: &str| -> Vec<String> {
        let mut words = vec!["bench", tool, "--output", "json", "--quiet", "--"];
        let line = line.replace("LOAD", &load);
        words.extend(line.split_whitespace());
        phases(&words)
    };
    let ior = "mpirun -np 2 --byslot ./IOER -v -wr -i2 -t64k -b 256k -F -e -g -W -o LOAD/ior.dat";
    assert_eq!(with("ior", ior), ["write", "reread", "read"]);
    assert_eq!(left(""), 0);
    let mdtest = "mpirun -np 2 mdtest -C -T -r -F -L -z 1 -b 2 -I 8 -u -i 2 -d LOAD/new";
    let expected = ["tree create", "file create", "file stat", "file remove", "tree remove"];
    assert_eq!(with("mdtest", mdtest), expected);
    assert_eq!(left(""), 0, "the directory that the line made is gone");
    let again = |words: &str| {
        let line = words.replace("LOAD", &load);
        let words: Vec<&str> = line.split(' ').collect();
        place.must(&words);
        let refusal = place.refusal(&words);
        assert!(refusal.contains("is not this run's; remove it, "), "{refusal}");
        assert_eq!(refusal.contains("--existing"), words[1] == "io", "{refusal}");
        refusal
    };
    let refusal = again("bench ior --quiet -- -w -k -t 64k -b 64k -o LOAD/twice");
    assert!(refusal.contains("by -o") && refusal.contains("by -E"), "{refusal}");
    assert!(again("bench io LOAD --quiet --keep -t 64k -b 64k --name twice-io").contains("by --name"));
    fs::create_dir(place.path("load/e")).unwrap();
    assert!(
        again("bench elbencho --quiet -- -w -d -t 1 -n 1 -N 1 -s 4k -b 4k LOAD/e")
            .contains("another directory")
    );
    let iozone = "-i 0 -i 1 -i 2 -c -e -w -r 16k -s 64k -t 2 -+n -F LOAD/z1 LOAD/z2";
    assert_eq!(with("iozone", iozone), ["write", "read", "random read", "random rewrite"]);
    assert_eq!(left("z"), 2);
    let fio = "--name=test --directory=LOAD --rw=randread --size=256k --bs=4k --numjobs=2";
    assert_eq!(with("fio", fio), ["random read"]);
    assert_eq!(left("test"), 2, "fio's files stay");
    assert_eq!(with("fio", fio), ["random read"], "and are found again");
    let elbencho = "-t 2 -d -n 2 -w -N 3 -s 8k -b 4k -r -F -D LOAD";
    assert!(with("elbencho", elbencho).contains(&"file create".to_owned()));
    let explained = place.must(&["bench", "ior", "--explain", "--", "-w", "-t", "1m", "-b", "8m"]);
    assert!(explained.contains("OPTION") && explained.contains("\"transfer\": 1048576"), "{explained}");
    let refusal = place.refusal(&["bench", "ior", "--", "-w", "-c"]);
    assert!(refusal.contains("-c cannot be honoured"), "{refusal}");
    let relative = place.must(&["bench", "beegfs-ctl", "--", "--storagebench", "--read", "--alltargets"]);
    assert!(relative.contains("skep bench storage start --read"), "{relative}");
    let survey = "pdsh -g oss \"nobjlo=1 nobjhi=16 thrlo=1 thrhi=64 size=1024 obdfilter-survey\"";
    let relative = place.must(&["bench", "instead", survey]);
    assert!(relative.contains("skep survey --only storage"), "{relative}");
    let none = place.refusal(&["bench", "instead", "pdsh -g oss uptime"]);
    assert!(none.contains("no equivalent"), "{none}");
}

/// Goal: a machine that takes connections and says nothing is given up in time, and named.
#[test]
fn a_mute_agent_is_given_up() {
    let place = Place::new();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let since = Instant::now();
    let refusal = place.refusal(&place.load(&address, &place.text("key"), &[]));
    assert!(refusal.contains(&address) && since.elapsed() < TOLD, "{:?}: {refusal}", since.elapsed());
    assert!(Path::new(&place.text("load")).exists());
}

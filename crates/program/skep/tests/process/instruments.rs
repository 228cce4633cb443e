//! Instruments of real daemons: targets and network measured while the cluster serves, and the mode of a mount that
//! drops contents in one directory and nowhere else.

use super::loads::{Bound, INTERRUPTED};
use super::{bytes, plan, refusal, start, start_with_room};
use rustix::process::Signal;
use skep_rig::{Cluster, patiently};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

type Json = serde_json::Value;

fn json(cluster: &Cluster, words: &[&str]) -> Json {
    let text = cluster.admin([words, &["--output", "json"]].concat()).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Directories of measurements that exist on targets.
fn areas(cluster: &Cluster) -> Vec<PathBuf> {
    let targets = fs::read_dir(cluster.dir().join("targets")).unwrap().flatten();
    targets.map(|target| target.path().join("bench")).filter(|area| area.exists()).collect()
}

/// Goal: every target is written and read both ways while nothing else is touched, nothing is left behind, a target
/// that cannot be measured is named, and a client's key is not enough.
#[test]
fn targets_are_measured() {
    // A disk of known size: what does not fit must not fit anywhere.
    let cluster = start_with_room(plan());
    let file = cluster.mount().join("file");
    fs::write(&file, bytes(1, 300_000)).unwrap();
    for path in ["target", "raw"] {
        let words = ["bench", "storage", "run", "--size", "2MiB", "--threads", "2", "--path", path];
        let began = Instant::now();
        let report = &json(&cluster, &words)[0];
        let rows = report["targets"].as_array().unwrap();
        assert_eq!(rows.len(), 8, "{report}");
        for row in rows {
            assert_eq!((&row["state"], &row["bytes"]), (&"done".into(), &(4 << 20).into()), "{row}");
            assert!(row["bytes_per_second"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(
                (&row["latency"]["count"], row["rounds"].as_array().unwrap().len()),
                (&12.into(), 3),
                "{row}"
            );
        }
        let summaries = report["summaries"].as_array().unwrap();
        assert_eq!(summaries.len(), 2);
        for summary in summaries {
            let value = |key: &str| summary[key].as_f64().unwrap();
            assert!(
                value("minimum") <= value("average") && value("average") <= value("maximum"),
                "{summary}"
            );
            // All bytes over the time in which anybody was at work: no more than the sum of rates, and no less than the
            // slowest target allows.
            let bytes = 3.0 * 4.0 * f64::from(4 << 20);
            assert!((value("aggregate") * value("seconds") / bytes - 1.0).abs() < 1e-6, "{summary}");
            assert!(value("aggregate") <= 4.0 * value("average") * 1.001, "{summary}");
            let skew = value("start_skew_ms");
            assert!(skew < began.elapsed().as_secs_f64() * 1e3 && value("clock_error_ms") > 0.0, "{summary}");
        }
    }
    assert!(areas(&cluster).is_empty(), "{:?}", areas(&cluster));
    let one =
        json(&cluster, &["bench", "storage", "run", "--write", "--size", "1MiB", "--target", "target-102"]);
    assert_eq!(one[0]["targets"].as_array().unwrap().len(), 1);
    let wrong = cluster.run(cluster.admin_words(["bench", "storage", "run", "--direct"])).unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && said.contains("--path raw"), "{said}");
    let words = cluster.admin_words(["bench", "storage", "run", "--size", "1TiB"]);
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    assert!(refusal(&cluster, &words).contains("smaller size"));
    let key = cluster.dir().join("client.key");
    let with_key = [words.as_slice(), &["--key", key.to_str().unwrap()]].concat();
    assert!(refusal(&cluster, &with_key).contains("needs the cluster key"));
    assert_eq!(fs::read(&file).unwrap(), bytes(1, 300_000));
    assert!(areas(&cluster).is_empty());
}

/// Goal: a measurement that was started goes on by itself while files are served, is shown meanwhile, ends at once
/// when it is stopped; its files are removed when asked, and also after the daemon was killed.
#[test]
fn a_measurement_runs_by_itself() {
    let cluster = start(plan());
    let start = ["bench", "storage", "start", "--write", "--size", "1MiB", "--threads", "1", "--for", "1h"];
    cluster.admin(start).unwrap();
    patiently("bytes are written", || {
        let report = json(&cluster, &["bench", "storage", "status"]);
        let rows = report[0]["targets"].as_array().unwrap();
        rows.len() == 4 && rows.iter().all(|row| row["state"] == "running" && row["bytes"] != 0)
    })
    .unwrap();
    let again = cluster.admin_words(start);
    let again: Vec<&str> = again.iter().map(|word| word.to_str().unwrap()).collect();
    assert!(refusal(&cluster, &again).contains("wait for it, or stop it"));
    let file = cluster.mount().join("file");
    fs::write(&file, bytes(2, 1_000_000)).unwrap();
    assert_eq!(fs::read(&file).unwrap(), bytes(2, 1_000_000));
    let began = Instant::now();
    let stopped = json(&cluster, &["bench", "storage", "stop"]);
    // Not when its hour is over; the sync at its end takes what the disk takes.
    assert!(began.elapsed() < Duration::from_secs(600), "{:?}", began.elapsed());
    assert!(
        stopped[0]["targets"].as_array().unwrap().iter().all(|row| row["state"] == "stopped"),
        "{stopped}"
    );
    assert_eq!(areas(&cluster).len(), 4, "what was written stays until it is cleaned up");
    cluster.admin(["bench", "storage", "cleanup", "--node", "storaged-1"]).unwrap();
    assert_eq!(areas(&cluster).len(), 2);
    let killed = cluster.of("storaged");
    killed.iter().for_each(|daemon| daemon.kill().unwrap());
    cluster.up().unwrap();
    patiently("a daemon that starts removes what is left", || areas(&cluster).is_empty()).unwrap();
    assert_eq!(fs::read(&file).unwrap(), bytes(2, 1_000_000));
}

/// Goal: a second measurement is refused with the name of the first one's owner and touches nothing of it; files that
/// were kept outlive other measurements, are read by later ones, and are named by health until they are removed.
#[test]
fn files_of_others_stay() {
    let cluster = start(plan());
    let run = ["bench", "storage", "run", "--all", "--threads", "1"];
    cluster.admin([&run[..], &["--size", "2MiB", "--keep", "--write"]].concat()).unwrap();
    cluster.admin([&run[..], &["--size", "1MiB", "--path", "raw"]].concat()).unwrap();
    let kept = json(&cluster, &[&run[..], &["--size", "2MiB", "--read"]].concat());
    assert!(kept[0]["targets"].as_array().unwrap().iter().all(|row| row["bytes"] == 2 << 20), "{kept}");
    let health = || {
        let found = cluster.run(cluster.admin_words(["health"])).unwrap();
        String::from_utf8_lossy(&found.stdout).into_owned()
    };
    let told = health();
    assert!(told.contains("2.00 MiB") && told.contains("cleanup --target target-101"), "{told}");
    cluster.admin(["bench", "storage", "cleanup"]).unwrap();
    assert!(areas(&cluster).is_empty() && !health().contains("cleanup"), "{}", health());
    cluster
        .admin(["bench", "storage", "start", "--write", "--size", "1MiB", "--threads", "1", "--for", "1h"])
        .unwrap();
    patiently("all areas are there", || areas(&cluster).len() == 4).unwrap();
    for more in [&[][..], &["--keep"][..]] {
        let words = cluster.admin_words([&run[..], &["--size", "1MiB"], more].concat());
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let why = refusal(&cluster, &words);
        assert!(why.contains("skep bench storage start") && why.contains("process "), "{why}");
    }
    // Nor did they wait for it: it goes on for an hour.
    let report = json(&cluster, &["bench", "storage", "status"]);
    assert!(report[0]["targets"].as_array().unwrap().iter().all(|row| row["state"] == "running"), "{report}");
    assert_eq!(areas(&cluster).len(), 4);
    cluster.admin(["bench", "storage", "stop"]).unwrap();
    cluster.admin(["bench", "storage", "cleanup"]).unwrap();
}

/// Goal: the daemons of a command that was killed stop by themselves and leave no file, while one that was interrupted
/// has removed them when it ends, or says that they stay, with the code of interrupted commands.
#[test]
fn ended_commands_leave_nothing_unsaid() {
    let cluster = start(plan());
    let removed = "what was written is removed";
    for (signal, keep, fate) in [
        (Signal::TERM, false, Some(removed)),
        (Signal::INT, false, Some(removed)),
        (Signal::HUP, false, Some(removed)),
        (Signal::INT, true, Some("what was written stays until `skep bench storage cleanup`")),
        (Signal::KILL, false, None),
    ] {
        let words = ["bench", "storage", "run", "--size", "1MiB", "--threads", "1", "--for", "10min"];
        let words = words.into_iter().chain(keep.then_some("--keep"));
        let mut command = cluster.command(cluster.admin_words(words));
        let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut process = Bound::new(process);
        patiently("all areas are there", || areas(&cluster).len() == 4).unwrap();
        process.signal(signal);
        let output = process.output();
        if let Some(fate) = fate {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.code() == INTERRUPTED && said.contains("stopped before the end"),
                "{output:?}"
            );
            assert!(said.contains(fate), "{said}");
            assert!(
                String::from_utf8_lossy(&output.stdout).contains("target-104"),
                "what was measured is shown"
            );
        } else {
            patiently("the files go", || areas(&cluster).is_empty()).unwrap();
        }
        assert_eq!(areas(&cluster).len(), if keep { 4 } else { 0 });
        if keep {
            cluster.admin(["bench", "storage", "cleanup"]).unwrap();
        }
        let report = json(&cluster, &["bench", "storage", "status"]);
        let rows = report[0]["targets"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["state"] == "stopped"), "{report}");
    }
}

/// Goal: when one of the daemons dies, the command ends the measurement of the other one, and removes its files, before
/// it says so: what is measured next finds the daemon free.
#[test]
fn a_daemon_that_dies_leaves_no_other_at_work() {
    let cluster = start(plan());
    let words = ["bench", "storage", "run", "--write", "--size", "1MiB", "--threads", "1", "--for", "10min"];
    let mut command = cluster.command(cluster.admin_words(words));
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = Bound::new(process);
    patiently("bytes are written", || {
        let report = json(&cluster, &["bench", "storage", "status"]);
        let rows = report[0]["targets"].as_array().unwrap();
        rows.len() == 4 && rows.iter().all(|row| row["state"] == "running" && row["bytes"] != 0)
    })
    .unwrap();
    let dead = &cluster.of("storaged")[0];
    dead.kill().unwrap();
    dead.wait_gone(skep_rig::PATIENCE).unwrap();
    let output = process.output();
    assert!(!output.status.success(), "{output:?}");
    // What the dead one has written stays until it starts.
    assert_eq!(areas(&cluster).len(), 2, "{output:?}");
    let status = |node| {
        cluster.admin(["bench", "storage", "status", "--output", "json", "--node", node]).ok().filter(
            |text| {
                let report: Json = serde_json::from_str(text).unwrap();
                let rows = report[0]["targets"].as_array().unwrap();
                assert!(rows.len() == 2 && rows.iter().all(|row| row["state"] == "stopped"), "{report}");
                true
            },
        )
    };
    let answers = ["storaged-1", "storaged-2"].into_iter().filter_map(status).count();
    assert_eq!(answers, 1, "{output:?}");
}

/// Goal: more targets than there are are refused with those that there are, wherever they are asked for; more than a
/// directory's pool has are told.
#[test]
fn targets_that_do_not_exist() {
    let cluster = start(plan());
    let mount = cluster.mount().to_str().unwrap();
    let ior = format!("{mount}/f");
    let ior = ["bench", "ior", "--quiet", "--", "-w", "-b", "1m", "-O", "beegfsNumTargets=99", "-o", &ior];
    for words in [&["bench", "io", "--quiet", "-b", "1m", "--targets", "5", mount][..], &ior] {
        let why = refusal(&cluster, words);
        assert!(why.contains("there are 4 here (target-101, target-102, target-103, target-104)"), "{why}");
        assert_eq!(fs::read_dir(mount).unwrap().count(), 0);
    }
    let words = cluster.admin_words(["bench", "storage", "run", "--target", "99"]);
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    let why = refusal(&cluster, &words);
    assert!(why.contains("there is no target \"99\"") && why.contains("skep target list"), "{why}");
    cluster.admin(["pool", "create", "hot", "--targets", "101,102"]).unwrap();
    let hot = cluster.mount().join("hot");
    cluster.admin(["dir", "create", hot.to_str().unwrap(), "--pool", "hot"]).unwrap();
    for (targets, told) in [("2", false), ("4", true)] {
        let words = ["bench", "io", "--quiet", "-b", "1m", "--targets", targets, hot.to_str().unwrap()];
        let output = cluster.run(words).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("lies on 2 targets, not on 4"), told, "{said}");
    }
}

/// Goal: bandwidth both ways and latency come from every pair of daemons, over both kinds of sockets.
#[test]
fn pairs_are_measured() {
    let cluster = start(plan());
    for transport in ["auto", "tcp"] {
        let words = [
            "bench",
            "net",
            "pairs",
            "--rounds",
            "1",
            "--time",
            "50ms",
            "--pings",
            "20",
            "--transport",
            transport,
        ];
        let report = &json(&cluster, &words)[0];
        let pairs = report["pairs"].as_array().unwrap();
        assert_eq!(pairs.len(), 6, "mgmtd, metad and two storaged: {report}");
        for pair in pairs {
            assert_eq!(pair["error"], Json::Null, "{pair}");
            for key in ["sent", "received", "p50_us", "p99_us"] {
                assert!(pair[key][0].as_f64().unwrap() > 0.0, "{key} of {pair}");
            }
            let address = pair["address"].as_str().unwrap();
            assert_eq!(address.starts_with("unix:"), transport == "auto", "{address}");
            assert!(!address.contains(".bench"), "the daemon's own address: {address}");
        }
    }
    let words = ["bench", "net", "pairs", "--rounds", "1", "--time", "50ms", "--pings", "20", "--parallel"];
    let together = json(&cluster, &words);
    let pairs = together[0]["pairs"].as_array().unwrap();
    assert!(
        pairs.len() == 6 && pairs.iter().all(|pair| pair["sent"][0].as_f64().unwrap() > 0.0),
        "{together}"
    );
    let two = json(&cluster, &["bench", "net", "pairs", "--nodes", "storaged-1,metad-1", "--rounds", "1"]);
    assert_eq!(two[0]["pairs"].as_array().unwrap().len(), 1);
}

/// The command that switches the mode on.
struct Mode {
    process: Bound,
    scratch: PathBuf,
}

impl Mode {
    fn start(cluster: &Cluster, mount: &Path) -> Self {
        let words = ["bench", "net", "mode", "--for", "10min", "--mount"].map(String::from);
        let words = words.into_iter().chain([mount.display().to_string()]);
        let process = cluster.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut process = Bound::new(process);
        let mut line = String::new();
        BufReader::new(process.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, scratch: PathBuf::from(line.trim_end()) }
    }

    /// Ends the command, with the code of interrupted ones where it can; its notes, but of one that is killed: its mount
    /// keeps the pipe open as long as somebody is in it.
    fn end(&mut self, signal: Signal) -> String {
        self.process.signal(signal);
        let mut notes = String::new();
        let mut said = self.process.child().stderr.take().unwrap();
        if signal != Signal::KILL {
            said.read_to_string(&mut notes).unwrap();
        }
        let code = self.process.child().wait().unwrap().code();
        assert_eq!(code, if signal == Signal::KILL { None } else { INTERRUPTED }, "{notes}");
        notes
    }
}

/// Mounts of this machine that drop contents.
fn measured() -> Vec<PathBuf> {
    let list = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = list.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points
        .filter(|point| {
            point.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".skep-netbench-"))
        })
        .collect()
}

/// Bytes in chunk files of all targets.
fn stored(cluster: &Cluster) -> u64 {
    let sizes = Command::new("du").args(["-s", "-B1"]).arg(cluster.dir().join("targets")).output().unwrap();
    let text = String::from_utf8(sizes.stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Goal: of files made through the mount for measuring nothing reaches a disk and zeros are read, by other mounts too;
/// files that were there before, and files that another mount makes in the same directory, keep every byte, also of
/// what is written through that mount; it is shown while it is there.
#[test]
fn netbench_drops_only_its_own() {
    let cluster = start(plan());
    let mount = cluster.mount();
    fs::write(mount.join("before"), bytes(1, 2_000_000)).unwrap();
    let mut mode = Mode::start(&cluster, mount);
    let health = cluster.run(cluster.admin_words(["health", mount.to_str().unwrap()])).unwrap();
    let text = String::from_utf8_lossy(&health.stdout).into_owned();
    assert!(health.status.code() == Some(1) && text.contains("contents of files"), "{text}");
    let at_first = stored(&cluster);
    let own = mode.scratch.parent().unwrap().to_owned();
    let elsewhere = |path: &Path| mount.join(path.strip_prefix(&own).unwrap());
    let dropped = mode.scratch.join("deep/dropped");
    fs::create_dir(mode.scratch.join("deep")).unwrap();
    fs::write(&dropped, bytes(2, 32 << 20)).unwrap();
    fs::File::open(&dropped).unwrap().sync_all().unwrap();
    // Out of the metadata, appended to, and synced by each write.
    let small = mode.scratch.join("small");
    fs::write(&small, bytes(9, 1_000)).unwrap();
    let mut grown = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::APPEND | rustix::fs::OFlags::DSYNC;
    for _ in 0..3 {
        let file = rustix::fs::open(&small, grown, rustix::fs::Mode::empty()).unwrap();
        fs::File::from(file).write_all(&bytes(9, 100_000)).unwrap();
        grown.remove(rustix::fs::OFlags::DSYNC);
    }
    assert!(stored(&cluster) < at_first + (8 << 20), "{} after {at_first}", stored(&cluster));
    assert_eq!(fs::read(&dropped).unwrap(), vec![0; 32 << 20]);
    assert_eq!(fs::read(elsewhere(&dropped)).unwrap(), vec![0; 32 << 20]);
    assert_eq!(fs::read(elsewhere(&small)).unwrap(), vec![0; 301_000], "no chunk file of it is missed");
    // What was there is written, through this mount too.
    let part = fs::OpenOptions::new().write(true).open(own.join("before")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&part, &bytes(3, 500_000), 1_000_000).unwrap();
    part.sync_all().unwrap();
    let by_other = mode.scratch.join("by-other");
    fs::write(elsewhere(&by_other), bytes(4, 2_000_000)).unwrap();
    assert_eq!(fs::read(&by_other).unwrap(), bytes(4, 2_000_000));
    fs::write(mount.join("users"), bytes(7, 1_000)).unwrap();
    fs::rename(own.join("users"), mode.scratch.join("deep/users")).unwrap();
    mode.end(Signal::TERM);
    assert_eq!(measured(), Vec::<PathBuf>::new());
    // What was moved in is its owner's still.
    assert_eq!(fs::read(elsewhere(&mode.scratch.join("deep/users"))).unwrap(), bytes(7, 1_000));
    assert_eq!(fs::read(elsewhere(&by_other)).unwrap(), bytes(4, 2_000_000));
    assert!(!elsewhere(&dropped).exists() && !elsewhere(&small).exists());
    let mut expected = bytes(1, 2_000_000);
    expected[1_000_000..1_500_000].copy_from_slice(&bytes(3, 500_000));
    assert_eq!(fs::read(mount.join("before")).unwrap(), expected);
}

/// Goal: the mount for measuring goes with its command, however that ends; nobody makes one that nobody ends.
#[test]
fn netbench_is_not_left_on() {
    let cluster = start(plan());
    let mount = cluster.mount();
    let in_cluster = |mode: &Mode| mount.join(mode.scratch.file_name().unwrap());
    let mut killed = Mode::start(&cluster, mount);
    assert_eq!(measured().len(), 1);
    fs::write(killed.scratch.join("file"), bytes(5, 1_000_000)).unwrap();
    // Somebody is in it: what is written from then on is kept.
    let open = fs::File::create(killed.scratch.join("open")).unwrap();
    killed.end(Signal::KILL);
    patiently("it ends with its command", || measured().is_empty()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, &bytes(6, 1_000_000), 0).unwrap();
    drop(open);
    let left = in_cluster(&killed);
    patiently("it is closed", || fs::read(left.join("open")).is_ok_and(|all| all == bytes(6, 1_000_000)))
        .unwrap();
    assert_eq!(fs::read(left.join("file")).unwrap(), vec![0; 1_000_000]);
    // The end of a terminal leaves nothing.
    let mut second = Mode::start(&cluster, mount);
    second.end(Signal::HUP);
    assert!(!in_cluster(&second).exists() && measured().is_empty());
    // The next command removes the directory, unless what is in it may be somebody's.
    let notes = Mode::start(&cluster, mount).end(Signal::TERM);
    assert!(left.join("file").exists());
    assert!(notes.contains("was left by a command that was killed, and stays"), "{notes}");
    let mut third = Mode::start(&cluster, mount);
    third.end(Signal::KILL);
    patiently("the third one ends, too", || measured().is_empty()).unwrap();
    Mode::start(&cluster, mount).end(Signal::TERM);
    assert!(left.exists() && !in_cluster(&third).exists());
    let orphan = cluster.mount_words(&cluster.beside("orphan"), &[]);
    fs::create_dir(cluster.beside("orphan")).unwrap();
    let words = orphan.into_iter().chain(["--foreground", "--netbench", "1"].map(Into::into));
    let refused = cluster.run(words).unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not its parent"), "{refused:?}");
}

/// Goal: the ready-made load writes and reads files of such a directory, shows both rates, and leaves neither the
/// directory nor the mount nor bytes on disks behind.
#[test]
fn netbench_runs_a_load() {
    let cluster = start(plan());
    let mount = cluster.mount();
    let at_first = stored(&cluster);
    let words =
        ["bench", "net", "run", "-p", "2", "-i", "2", "-b", "16m", "-O", "json", "--quiet", "--mount"];
    let words = words.into_iter().chain([mount.to_str().unwrap()]);
    let text = cluster.must(words).unwrap();
    let result: Json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(text.contains("write") && text.contains("read"), "{result}");
    assert!(stored(&cluster) < at_first + (4 << 20), "{} after {at_first}", stored(&cluster));
    assert_eq!((fs::read_dir(mount).unwrap().count(), measured()), (0, Vec::new()));
}

//! A survey of a real cluster: its files, what is left behind, what it says of a target that cannot be reached by it.

use super::bench::Agent;
use super::{plan, refusal, start};
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use skep_rig::{Cluster, Plan, patiently, until};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What takes a lease, a silence or a sync of a disk that others use as well: longer than all of them together.
const LONG: Duration = Duration::from_secs(180);

type Json = serde_json::Value;

fn survey(cluster: &Cluster, out: &str, words: &[&str]) -> Json {
    let mount = cluster.mount().display().to_string();
    let common = ["survey", "--out", out, "--mount", &mount, "--preset", "quick", "--force"];
    cluster.admin([&common, words].concat()).unwrap();
    let text = fs::read_to_string(format!("{out}/survey.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Every sample of a survey is a number above zero, and nothing is empty.
fn check_samples(survey: &Json) {
    for layer in survey["layers"].as_array().unwrap() {
        let curves = layer["curves"].as_array().unwrap();
        let sides = layer["sides"].as_array().unwrap();
        let points = curves.iter().flat_map(|curve| curve["points"].as_array().unwrap());
        let members = sides.iter().flat_map(|side| side["members"].as_array().unwrap());
        let all: Vec<&Json> = points.chain(members).collect();
        assert!(!all.is_empty(), "{layer}");
        for one in all {
            let samples = one["samples"].as_array().unwrap();
            assert!(!samples.is_empty() && samples.iter().all(|s| s.as_f64().unwrap() > 0.0), "{one}");
        }
    }
}

/// Goal: all layers of a real cluster are measured, the three files are written, nothing is left on mount or
/// targets, a survey does not differ from itself, and every line that it shows can be pasted into a shell as it is, and
/// does its work there.
#[test]
fn every_layer() {
    let cluster = start(plan());
    let out = cluster.dir().join("survey").display().to_string();
    let found = survey(&cluster, &out, &[]);
    let layers: Vec<&str> =
        found["layers"].as_array().unwrap().iter().map(|layer| layer["id"].as_str().unwrap()).collect();
    assert_eq!(
        layers,
        ["processor", "device", "log", "storage", "network", "client", "clients", "metadata"],
        "{}",
        found["remarks"]
    );
    check_samples(&found);
    assert_eq!(layer(&found, "log")["curves"][0]["id"], "log.write", "{}", found["remarks"]);
    let of_mount = |side: &&Json| side["id"] == "client.mount.free";
    let sides = layer(&found, "client")["sides"].as_array().unwrap();
    assert!(sides.iter().any(|side| of_mount(&side)), "{}", found["remarks"]);
    assert_eq!(found["spread"]["targets"], 4);
    assert!(!found["verdict"]["headline"].as_str().unwrap().is_empty());
    assert!(found["verdict"]["limits"].as_array().unwrap().len() >= 2, "{}", found["verdict"]);
    assert_eq!(found["parts"].as_array().unwrap().len(), 4);
    let hosts = found["hosts"].as_array().unwrap();
    assert!(hosts.len() == 1 && hosts[0]["clients"] == true, "{hosts:?}");
    let told = |facts: &Json, name: &str| -> String {
        let fact = facts.as_array().unwrap().iter().find(|fact| fact["name"] == name);
        fact.unwrap_or_else(|| panic!("{name}: {facts}"))["value"].as_str().unwrap().to_owned()
    };
    assert!(told(&found["settings"], "mount options").contains("user_id="));
    let mount = format!("mount {}", cluster.mount().display());
    assert!(told(&hosts[0]["facts"], &mount).contains("user_id="));
    assert!(told(&hosts[0]["facts"], &format!("{mount}: settings")).contains("queue_depth = "));
    assert!(told(&hosts[0]["facts"], "storaged-1: settings").contains("max_connections = "));
    assert!(fs::read_to_string(format!("{out}/report.html")).unwrap().contains("<svg"));
    assert!(fs::read(format!("{out}/report.pdf")).unwrap().starts_with(b"%PDF"));
    let left: Vec<_> =
        fs::read_dir(cluster.mount()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    for target in fs::read_dir(cluster.dir().join("targets")).unwrap().flatten() {
        assert!(!target.path().join("bench").exists(), "{}", target.path().display());
    }
    let same = cluster.run(["survey", "compare", &out, &out, "--output", "json"]).unwrap();
    assert!(same.status.success());
    let changes: Json = serde_json::from_slice(&same.stdout).unwrap();
    let worse = |change: &&Json| change["outcome"] == "worse" || change["outcome"] == "better";
    assert_eq!(changes[0]["changes"].as_array().unwrap().iter().filter(worse).count(), 0);
    paste_lines(&cluster, &found);
    assert!(on_mount(&cluster).is_empty());
}

/// Goal: where several groups of metadata servers have the shards, names are measured over all of them: the directories of the
/// processes are dealt out, the report says over how many groups, the line that it shows does the same, and nothing is left.
#[test]
fn names_are_measured_over_all_groups() {
    let cluster = start(Plan { metas: 2, groups: 2, shards: 8, ..plan() });
    let out = cluster.dir().join("survey").display().to_string();
    let found = survey(&cluster, &out, &["--only", "log,metadata", "--processes", "4"]);
    let names = layer(&found, "metadata");
    let about = names["about"].as_str().unwrap();
    assert!(about.contains("4 directories on 4 of the 4 groups of shards"), "{about} {}", found["remarks"]);
    let log = layer(&found, "log")["about"].as_str().unwrap();
    assert!(log.contains("further groups of one server"), "{log}");
    let curves = names["curves"].as_array().unwrap();
    let create = curves.iter().find(|curve| curve["id"] == "metadata.create").unwrap();
    let line = create["command"].as_str().unwrap();
    assert!(line.contains(" --spread "), "{line}");
    paste(&cluster, line);
    assert!(on_mount(&cluster).is_empty(), "{:?}", on_mount(&cluster));
}

/// Runs a line as a reader would who pastes it.
fn paste(cluster: &Cluster, line: &str) {
    let dir = cluster.dir().join("pasted");
    fs::create_dir_all(&dir).unwrap();
    let own = Path::new(env!("CARGO_BIN_EXE_skep")).parent().unwrap().display().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", line]).current_dir(&dir).stdin(Stdio::null());
    shell.env("PATH", format!("{own}:{}", std::env::var("PATH").unwrap())).env_remove("SKEP_CLUSTER");
    let ended = shell.output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ended.status.success(), "{line}\n{said}");
    // A loop of a shell ends well when its last line does.
    assert!(!said.contains("error:") && !said.contains("skep: "), "{line}\n{said}");
}

fn paste_lines(cluster: &Cluster, found: &Json) {
    let mut lines: Vec<&str> =
        found["commands"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
    lines.sort_unstable();
    lines.dedup();
    assert!(lines.len() >= 10, "{lines:?}");
    let curves =
        found["layers"].as_array().unwrap().iter().flat_map(|layer| layer["curves"].as_array().unwrap());
    for command in curves.map(|curve| curve["command"].as_str().unwrap()) {
        assert!(lines.contains(&command), "{command}: is not among the commands");
    }
    // Surveys of a layer take long: one will do.
    let surveys = lines.iter().filter(|line| line.starts_with("skep survey")).count();
    lines
        .into_iter()
        .filter(|line| surveys > 0 && !line.contains("--only network"))
        .for_each(|line| paste(cluster, line));
}

/// Goal: so can the line that a search shows.
#[test]
fn a_search_can_be_pasted() {
    let cluster = start(plan());
    let (mount, out) =
        (cluster.mount().display().to_string(), cluster.dir().join("sweep").display().to_string());
    let words = ["survey", "sweep", "--mount", &mount, "--out", &out, "--size", "4MiB", "--processes", "2"];
    // The number of measurements ends each axis, not the clock: a slow machine gets as far as a fast one.
    cluster.admin([&words[..], &["--time", "600s", "--budget", "40"]].concat()).unwrap();
    let searched: Json =
        serde_json::from_str(&fs::read_to_string(format!("{out}/survey.json")).unwrap()).unwrap();
    let axes: Vec<&str> = searched["layers"][0]["curves"]
        .as_array()
        .unwrap()
        .iter()
        .map(|curve| curve["id"].as_str().unwrap())
        .collect();
    assert!(
        axes.contains(&"sweep.chunk") && axes.contains(&"sweep.targets"),
        "{axes:?} {}",
        searched["remarks"]
    );
    assert!(searched["remarks"].to_string().contains("all processes together moved 4m"), "{searched}");
    paste(&cluster, searched["commands"][0].as_str().unwrap());
    assert!(on_mount(&cluster).is_empty());
}

/// Goal: hosts of clients are measured beside each other and stand among the machines, and the lines name them.
#[test]
fn hosts_of_clients() {
    let cluster = start(plan());
    let (mount, key) = (cluster.mount().display().to_string(), cluster.dir().join("cluster.key"));
    let agent = || {
        let words = ["bench", "agent", "--listen", "127.0.0.1:0", "--allow", &mount, "--key"];
        Agent::start(
            cluster.command(words.map(std::ffi::OsString::from).into_iter().chain([key.clone().into()])),
        )
    };
    let (a, b) = (agent(), agent());
    let out = cluster.dir().join("survey").display().to_string();
    let (hosts, key) = (format!("{},{}", a.address, b.address), key.display().to_string());
    let flags = ["--only", "client,clients,metadata", "--hosts", &hosts, "--agent-key", &key];
    let found = survey(&cluster, &out, &flags);
    check_samples(&found);
    let names = [&a, &b].map(|agent| format!("client {}", agent.address));
    for layer in found["layers"].as_array().unwrap() {
        let sides = layer["sides"].as_array().unwrap();
        assert!(!sides.is_empty(), "{layer}");
        for side in sides {
            let members = side["members"].as_array().unwrap().iter();
            let members: Vec<&str> = members.map(|member| member["name"].as_str().unwrap()).collect();
            assert_eq!(members, names, "{side}");
        }
    }
    let machines = found["hosts"].as_array().unwrap();
    assert!(machines.len() == 1 && machines[0]["clients"] == true, "{machines:?}");
    let lines: Vec<&str> = found["commands"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
    assert!(lines.iter().all(|line| line.contains("--hosts") && line.contains("--agent-key")), "{lines:?}");
    lines.iter().for_each(|line| paste(&cluster, line));
}

/// Goal: fio is driven with as many processes as the survey's own curves have, and says what ran.
#[test]
fn another_program() {
    let cluster = start(plan());
    let out = cluster.dir().join("survey").display().to_string();
    let found = survey(&cluster, &out, &["--only", "clients", "--with", "fio"]);
    let remarks = found["remarks"].to_string();
    let curves = found["layers"][0]["curves"].as_array().unwrap();
    let by_fio: Vec<&Json> =
        curves.iter().filter(|curve| curve["id"].as_str().unwrap().ends_with(".fio")).collect();
    if remarks.contains("is not installed here") {
        assert!(by_fio.is_empty());
        return;
    }
    assert_eq!(by_fio.len(), 2, "{remarks}");
    for curve in by_fio {
        let places: Vec<f64> =
            curve["points"].as_array().unwrap().iter().map(|point| point["x"].as_f64().unwrap()).collect();
        assert_eq!(places, [1.0, 2.0]);
        assert!(curve["title"].as_str().unwrap().contains("fio-"), "{curve}");
        assert!(curve["command"].as_str().unwrap().contains("--numjobs=2"), "{curve}");
    }
}

/// fio as far as a survey reads it: it fails with two processes.
const HALF_A_FIO: &str = r#"#!/bin/sh
for word in "$@"; do
    case $word in
    --numjobs=2) echo "no room for two" >&2; exit 1 ;;
    --numjobs=*) n=${word#*=} ;;
    esac
done
side='{"io_bytes": 1000000, "total_ios": 1, "bw_bytes": '$n'000000.0, "iops": 1.0, "runtime": 1000}'
echo '{"fio version": "fio-0", "jobs": [{"jobname": "a", "job options": {"numjobs": "'$n'"}, "write": '"$side"'}]}'
"#;

/// Goal: a place at which another program fails costs itself only; its line is not among those that measured something.
#[test]
fn another_program_that_fails_once() {
    let cluster = start(plan());
    let (bin, out) = (cluster.dir().join("bin"), cluster.dir().join("survey"));
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("fio"), HALF_A_FIO).unwrap();
    fs::set_permissions(bin.join("fio"), fs::Permissions::from_mode(0o755)).unwrap();
    let (mount, out_text) = (cluster.mount().display().to_string(), out.display().to_string());
    let words = ["survey", "--out", &out_text, "--mount", &mount, "--preset", "quick", "--only", "clients"];
    let words = [&words[..], &["--with", "fio", "--processes", "4"]].concat();
    let mut command = cluster.command(cluster.admin_words(words));
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let found: Json = serde_json::from_slice(&fs::read(out.join("survey.json")).unwrap()).unwrap();
    let curves = found["layers"][0]["curves"].as_array().unwrap();
    let by_fio: Vec<&Json> =
        curves.iter().filter(|curve| curve["id"].as_str().unwrap().ends_with(".fio")).collect();
    let remarks = found["remarks"].to_string();
    assert_eq!(by_fio.len(), 1, "{remarks}");
    let points = by_fio[0]["points"].as_array().unwrap().iter();
    let places: Vec<f64> = points.map(|point| point["x"].as_f64().unwrap()).collect();
    assert_eq!(places, [1.0, 4.0], "{remarks}");
    assert!(remarks.contains("fio: processes = 2: not measured: ") && remarks.contains("no room for two"));
    let lines = [by_fio[0]["command"].to_string(), found["commands"].to_string()];
    for line in lines {
        assert!(line.contains("--numjobs=4") && !line.contains("--numjobs=2"), "{line}");
    }
}

/// Goal: a dead daemon is the first thing that is said, at once and when mgmtd knows it; its targets are not blamed
/// beside it, and the others are measured all the same.
#[test]
fn a_dead_daemon() {
    for known in [false, true] {
        // Known before a survey begins, or not while it runs; and a busy machine makes no other daemon silent.
        let silence = if known { ["10s", "12s"] } else { ["30s", "40s"] };
        let names = ["SKEP_MGMTD_NODE_PROBABLY_OFFLINE", "SKEP_MGMTD_NODE_OFFLINE"];
        let plan = names.into_iter().zip(silence).fold(plan(), |plan, (key, value)| plan.with(key, value));
        let cluster = start(plan);
        let dead = &cluster.of("storaged")[1];
        dead.kill().unwrap();
        dead.wait_gone(skep_rig::PATIENCE).unwrap();
        if known {
            let offline = || cluster.admin(["node", "list"]).is_ok_and(|list| list.contains("offline"));
            within_long("mgmtd knows", offline);
        }
        let out = cluster.dir().join("survey").display().to_string();
        let found = survey(&cluster, &out, &["--only", "processor,device,network"]);
        names_the_dead(&found, known);
        // A dead daemon says nothing of what file systems take.
        let device = layer(&found, "device")["about"].as_str().unwrap();
        assert_eq!(
            device.contains("past the page cache (O_DIRECT)"),
            takes_direct(&cluster.dir()),
            "{device}"
        );
    }
}

fn layer<'a>(survey: &'a Json, id: &str) -> &'a Json {
    survey["layers"].as_array().unwrap().iter().find(|layer| layer["id"] == id).unwrap()
}

fn names_the_dead(found: &Json, known: bool) {
    let (verdict, remarks) = (&found["verdict"], &found["remarks"]);
    let culprit = verdict["culprit"]["member"].as_str().unwrap();
    assert!(culprit.starts_with("storaged-"), "{verdict} {remarks}");
    let headline = verdict["headline"].as_str().unwrap();
    assert_eq!(headline.contains("offline"), known, "{headline}");
    let of_dead = |part: &&Json| part["part_of"] == culprit;
    let parts = found["parts"].as_array().unwrap();
    assert_eq!(parts.iter().filter(of_dead).count(), 2);
    let also = verdict["also"].as_array().unwrap();
    let accused = |part: &Json| also.iter().any(|one| one["member"] == part["name"]);
    assert!(!parts.iter().filter(of_dead).any(accused), "{verdict}");
    let device = layer(found, "device");
    assert_eq!(device["sides"][0]["members"].as_array().unwrap().len(), 2, "{remarks}");
    assert!(!device["curves"].as_array().unwrap().is_empty(), "{remarks}");
}

/// Does the file system of this directory take O_DIRECT?
fn takes_direct(dir: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    open(dir.join("direct"), OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT, Mode::RUSR | Mode::WUSR)
        .is_ok()
}

/// What surveys have on the mount.
fn on_mount(cluster: &Cluster) -> Vec<PathBuf> {
    fs::read_dir(cluster.mount()).unwrap().flatten().map(|entry| entry.path()).collect()
}

/// What measurements have on targets.
fn on_targets(cluster: &Cluster) -> usize {
    let targets = fs::read_dir(cluster.dir().join("targets")).unwrap().flatten();
    targets.filter(|target| target.path().join("bench").exists()).count()
}

fn within_long(what: &str, is_so: impl Fn() -> bool) {
    until(what, LONG, || is_so().then_some(()).ok_or_else(|| "it is not so".to_owned())).unwrap();
}

/// Goal: an interrupted survey removes everything before it ends, and says so; what a killed one leaves is removed by
/// the daemons and the next survey. A survey that is there is not written over unless that is asked for.
#[test]
fn interrupted_and_killed() {
    let cluster = start(plan());
    let out = cluster.dir().join("survey");
    let (mount, out_text) = (cluster.mount().display().to_string(), out.display().to_string());
    // The preset with the smallest files: targets are at work for long, as it measures them in many ways.
    let flags = ["--preset", "small", "--only", "storage,client"];
    for signal in [Signal::INT, Signal::KILL] {
        let words = [&["survey", "--out", &out_text, "--mount", &mount][..], &flags].concat();
        let mut command = cluster.command(cluster.admin_words(words));
        let process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let measures = || on_targets(&cluster) > 0 && !on_mount(&cluster).is_empty();
        within_long("it measures", measures);
        kill_process(Pid::from_child(&process), signal).unwrap();
        let ended = process.wait_with_output().unwrap();
        if signal == Signal::INT {
            let told = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(ended.status.code() == Some(130) && told.contains("removed: files"), "{told}");
            assert_eq!((on_mount(&cluster).len(), on_targets(&cluster), out.exists()), (0, 0, false));
        }
    }
    within_long("daemons remove what a killed one wrote", || on_targets(&cluster) == 0);
    assert_eq!(on_mount(&cluster).len(), 1);
    let found = survey(&cluster, &out_text, &["--only", "client"]);
    assert!(
        found["remarks"].to_string().contains("left by a survey that was killed; removed"),
        "{}",
        found["remarks"]
    );
    assert!(on_mount(&cluster).is_empty());
    let again = cluster.admin_words(["survey", "--out", &out_text, "--only", "processor"]);
    let again: Vec<&str> = again.iter().map(|word| word.to_str().unwrap()).collect();
    assert!(refusal(&cluster, &again).contains("--force"));
}

/// Goal: an interrupted search tells the best that it has seen, ends with its exit code, and leaves neither files nor
/// processes behind.
#[test]
fn an_interrupted_search() {
    let cluster = start(plan());
    let out = cluster.dir().join("sweep");
    let (mount, out_text) = (cluster.mount().display().to_string(), out.display().to_string());
    let words =
        ["survey", "sweep", "--mount", &mount, "--out", &out_text, "--size", "16MiB", "--processes", "2"];
    let mut command = cluster.command(cluster.admin_words(words));
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut told = BufReader::new(process.stderr.take().unwrap());
    let mut said = String::new();
    while said.matches("MB/s").count() < 3 {
        assert!(told.read_line(&mut said).unwrap() > 0, "it ended by itself: {said}");
    }
    let group = Pid::from_child(&process);
    kill_process(group, Signal::INT).unwrap();
    told.read_to_string(&mut said).unwrap();
    let ended = process.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    let best = said.lines().find(|line| line.starts_with("best so far: "));
    assert!(best.is_some_and(|line| line.contains(" processes, transfers of ")), "{said}");
    assert!(said.contains("interrupted: removed ") && ended.stdout.is_empty(), "{said}");
    assert!(on_mount(&cluster).is_empty() && !out.exists());
    patiently("its processes have ended", || test_kill_process_group(group).is_err()).unwrap();
    // A full survey is not written over, and that is said before anything is measured.
    fs::create_dir(&out).unwrap();
    fs::write(out.join("survey.json"), "a survey").unwrap();
    let again = cluster.admin_words(words);
    let again: Vec<&str> = again.iter().map(|word| word.to_str().unwrap()).collect();
    let refused = refusal(&cluster, &again);
    assert!(refused.contains("holds a survey") && refused.contains("--force"), "{refused}");
    assert!(!refused.contains("MB/s"), "{refused}");
    assert_eq!(fs::read_to_string(out.join("survey.json")).unwrap(), "a survey");
}

/// Goal: files on the targets of a daemon that is gone are not said to be removed. A directory for the report that was
/// there stays, one that was made for it does not, also when the survey is refused.
#[test]
fn interrupted_beside_a_dead_daemon() {
    let cluster = start(plan());
    let out = cluster.dir().join("survey");
    let out_text = out.display().to_string();
    let nowhere = cluster.dir().display().to_string();
    let refused = cluster.admin_words(["survey", "--out", &out_text, "--mount", &nowhere]);
    let refused: Vec<&str> = refused.iter().map(|word| word.to_str().unwrap()).collect();
    assert!(refusal(&cluster, &refused).contains("is on no mount of Skep") && !out.exists());
    fs::create_dir(&out).unwrap();
    let words = ["survey", "--out", &out_text, "--preset", "small", "--only", "storage"];
    let mut command = cluster.command(cluster.admin_words(words));
    let process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    within_long("it measures", || on_targets(&cluster) > 0);
    let survey = Pid::from_child(&process);
    // It is interrupted before it can notice what is gone.
    kill_process(survey, Signal::STOP).unwrap();
    cluster.of("storaged")[1].kill().unwrap();
    kill_process(survey, Signal::INT).unwrap();
    kill_process(survey, Signal::CONT).unwrap();
    let ended = process.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(told.contains("left: files of the measurement on targets; nothing was written"), "{told}");
    assert!(!told.contains("removed: files"), "{told}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "it was there before");
}

/// Every member of a survey has the same samples: whether what a test changes is told must not depend on how busy the
/// machine was on which it was measured.
fn fixed(found: &mut Json) {
    for layer in found["layers"].as_array_mut().unwrap() {
        for side in layer["sides"].as_array_mut().unwrap() {
            for member in side["members"].as_array_mut().unwrap() {
                member["samples"] = serde_json::json!([0.9, 0.91, 0.89, 0.9, 0.9]);
            }
        }
    }
}

/// Goal: what became worse is an exit code of its own, and what is no survey is refused with its name.
#[test]
fn comparisons() {
    let cluster = start(plan());
    let out = cluster.dir().join("first").display().to_string();
    let mut found = survey(&cluster, &out, &["--only", "processor"]);
    fixed(&mut found);
    fs::write(format!("{out}/survey.json"), found.to_string()).unwrap();
    for member in found["layers"][0]["sides"][0]["members"].as_array_mut().unwrap() {
        let slower = |sample: &Json| Json::from(sample.as_f64().unwrap() / 10.0);
        let slow: Vec<Json> = member["samples"].as_array().unwrap().iter().map(slower).collect();
        member["samples"] = slow.into();
    }
    let second = cluster.dir().join("second.json").display().to_string();
    fs::write(&second, found.to_string()).unwrap();
    let title = found["layers"][0]["sides"][0]["title"].as_str().unwrap().to_owned();
    let compared = |a: &str, b: &str| cluster.run(["survey", "compare", a, b]).unwrap();
    assert_eq!(compared(&out, &second).status.code(), Some(3));
    assert_eq!(compared(&second, &out).status.code(), Some(0));
    let said = String::from_utf8_lossy(&compared(&out, &second).stdout).into_owned();
    assert!(said.contains(&title) && !said.contains("processor.share") && said.contains("worse"), "{said}");
    // Several on a side, and a page.
    let (firsts, seconds) = (format!("{out},{out}"), format!("{second},{second}"));
    let page = cluster.dir().join("page").display().to_string();
    let several = cluster.run(["survey", "compare", &firsts, &seconds, "--out", &page]).unwrap();
    let said = String::from_utf8_lossy(&several.stdout).into_owned();
    assert!(several.status.code() == Some(3) && said.contains("of one side differ"), "{said}");
    assert!(fs::read_to_string(format!("{page}/compare.html")).unwrap().contains("became worse"));
    // Another preset measures in another way.
    found["preset"] = "large".into();
    fs::write(&second, found.to_string()).unwrap();
    let refused = refusal(&cluster, &["survey", "compare", &out, &second]);
    assert!(refused.contains("large after") && refused.contains("--force"), "{refused}");
    let forced = cluster.run(["survey", "compare", &out, &second, "--force"]).unwrap();
    assert!(String::from_utf8_lossy(&forced.stdout).contains("the presets differ"));
    fs::write(&second, "{}").unwrap();
    assert!(refusal(&cluster, &["survey", "compare", &out, &second]).contains("second.json"));
}

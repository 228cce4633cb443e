//! What the command makes of recorded machines and of its arguments.

use super::apply::{ApplyArgs, UndoArgs, changed, run_when, undo};
use super::check::row;
use super::machine::MachineArgs;
use clap::Parser;
use skep_instruments::processes;
use skep_tune::change::Applied;
use skep_tune::recording::Recording;
use skep_tune::{Finding, Host, Role, Root, Verdict, check};

const HDD: &str = include_str!("../../../../know-how/tune/hosts/hdd.txt");
const SSD: &str = include_str!("../../../../know-how/tune/hosts/ssd.txt");
const ZFS: &str = include_str!("../../../../know-how/tune/hosts/zfs.txt");
const NVME: &str = include_str!("../../../../know-how/tune/hosts/nvme.txt");

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Parser)]
struct ApplyLine {
    #[command(flatten)]
    args: ApplyArgs,
}

#[derive(Parser)]
struct UndoLine {
    #[command(flatten)]
    args: UndoArgs,
}

fn findings(text: &str, words: &[&str]) -> Result<(Vec<Finding>, Vec<Role>), String> {
    let dir = tempfile::tempdir().unwrap();
    Recording::read(text).unwrap().unpack(dir.path()).unwrap();
    let root = dir.path().to_str().unwrap();
    let words = ["check", "--root", root].into_iter().chain(words.iter().copied());
    let args = Line::try_parse_from(words).map_err(|e| e.to_string())?.machine;
    let root = args.open().map_err(|e| e.to_string())?;
    let host = Host::read(&root, args.part(&root).map_err(|e| e.to_string())?);
    Ok((check(&host), host.roles.iter().copied().collect()))
}

fn verdict(all: &[Finding], setting: &str, subject: &str) -> Option<Verdict> {
    all.iter().find(|one| one.setting == setting && one.subject == subject).map(|one| one.verdict)
}

/// Goal: roles, directories, interfaces and Skep's own settings come from the files and processes of the machine.
#[test]
fn recorded_machines() {
    let (hdd, roles) = findings(HDD, &[]).unwrap();
    assert_eq!(roles, [Role::Meta, Role::Storage]);
    assert_eq!(verdict(&hdd, "read_ahead_kb", "md0"), Some(Verdict::Change));
    assert_eq!(verdict(&hdd, "bind-numa", "storaged"), Some(Verdict::Change));

    let (ssd, _) = findings(SSD, &[]).unwrap();
    assert_eq!(verdict(&ssd, "chunk_size", "metad"), Some(Verdict::Change));
    let bound = ssd.iter().find(|one| one.setting == "bind-numa" && one.subject == "metad").unwrap();
    let file = &bound.change.as_ref().unwrap().keep[0].file;
    assert_eq!(file, "/etc/systemd/system/skep-metad@metad.service.d/90-skep-tune.conf");

    let (nvme, roles) = findings(NVME, &[]).unwrap();
    assert_eq!(roles, [Role::Storage, Role::Client]);
    assert_eq!(verdict(&nvme, "LimitNOFILE", "storaged@n0"), Some(Verdict::Change));
    assert_eq!(verdict(&nvme, "bind-numa", "storaged@n0"), Some(Verdict::Ok));
    assert_eq!(verdict(&nvme, "interfaces", "storaged@n1"), Some(Verdict::Change));
    assert_eq!(verdict(&nvme, "request_size", "mount"), Some(Verdict::Change));
    let max =
        nvme.iter().find(|one| one.setting == "max_connections" && one.subject == "storaged@n0").unwrap();
    // 200 mounts, as the cluster said when the machine was recorded, with up to 32 connections each.
    assert_eq!((max.verdict, max.current.as_deref()), (Verdict::Change, Some("4096")));
    assert_eq!(verdict(&ssd, "max_connections", "storaged"), Some(Verdict::Change));
    assert_eq!(verdict(&hdd, "max_connections", "storaged"), Some(Verdict::Unknown));
    // How file systems were made is read from what was recorded of their superblocks.
    assert_eq!(verdict(&hdd, "inode size", "/data/skep0"), Some(Verdict::Ok));
    assert_eq!(verdict(&ssd, "inode size", "/data/skep0"), Some(Verdict::Ok));
    assert_eq!(verdict(&nvme, "inode size", "/data/skep1"), Some(Verdict::Change));
    let (zfs, _) = findings(ZFS, &[]).unwrap();
    assert_eq!(verdict(&zfs, "zfs properties", "/data/skep0"), Some(Verdict::Change));
    assert_eq!(verdict(&zfs, "zfs properties", "/data/skep1"), Some(Verdict::Ok));
}

/// Goal: a role can be named, wrong ones are refused, and a machine without Skep is told what to say.
#[test]
fn roles() {
    let (all, roles) = findings(NVME, &["--role", "client"]).unwrap();
    assert_eq!(roles, [Role::Client]);
    assert!(
        all.iter().filter(|one| one.setting == "scheduler").all(|one| one.verdict == Verdict::NotApplicable)
    );
    let (_, roles) = findings(NVME, &["--role", "meta,mgmt"]).unwrap();
    assert_eq!(roles, [Role::Mgmt, Role::Meta]);
    assert!(findings(NVME, &["--role", "disk"]).is_err());
    let bare = NVME.lines().filter(|line| !line.contains("/etc/skep") && !line.starts_with("/proc/4711"));
    let error = findings(&bare.collect::<Vec<_>>().join("\n"), &[]).unwrap_err();
    assert!(error.contains("--role storage"), "{error}");
}

/// Goal: the field names of JSON are the released ones.
#[test]
fn field_names() {
    let (all, _) = findings(SSD, &[]).unwrap();
    let barriers =
        all.iter().find(|one| one.setting == "barriers" && one.verdict == Verdict::Change).unwrap();
    let json = serde_json::to_value(row(barriers)).unwrap();
    let names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "apply",
            "area",
            "choice",
            "current",
            "effect",
            "note",
            "reason",
            "recommended",
            "roles",
            "setting",
            "severity",
            "sources",
            "subject",
            "verdict"
        ]
    );
    assert_eq!((json["severity"].as_str(), json["apply"].as_bool()), (Some("danger"), Some(false)));
    assert_eq!(json["sources"][0]["name"], "BeeGFS on HP Apollo 4200 (2015)");
}

/// Goal: a directory that is not there is refused, not passed over.
#[test]
fn a_mistyped_directory() {
    let root = Root::new(std::path::Path::new("/")).unwrap();
    let words = ["check", "--role", "storage", "--path", "/not/there"];
    let refused = Line::try_parse_from(words).unwrap().machine.part(&root).err().unwrap();
    assert!(refused.to_string().contains("/not/there: is not there"), "{refused}");
}

/// Goal: what was recorded of this very machine is the same machine when it is looked at elsewhere, and holds no
/// environment of any process.
#[test]
fn this_machine_recorded() {
    let root = Root::recording(std::path::Path::new("/")).unwrap();
    let words = ["check", "--role", "storage", "--role", "client", "--path", "/"];
    let args = Line::try_parse_from(words).unwrap().machine;
    let here = check(&Host::read(&root, args.part(&root).unwrap()));
    let text = root.recorded().unwrap().write();
    assert!(!text.contains("/environ = "));
    let (there, _) = findings(&text, &["--role", "storage,client", "--path", "/"]).unwrap();
    let queue = |all: &[Finding]| {
        let mut rows: Vec<_> = all
            .iter()
            .filter(|one| one.area == "queue" || one.area == "memory")
            .map(|one| (one.setting, one.subject.clone(), one.current.clone(), one.verdict))
            .collect();
        rows.sort();
        rows
    };
    assert_eq!(queue(&here), queue(&there));
    assert!(!here.is_empty());
}

/// Goal: a machine with services is the same when its recording is looked at, with nothing said again: services, their
/// settings, directories, cluster; a recording of a recording, too.
#[test]
fn services_recorded() {
    let shown = |all: &[Finding]| all.iter().map(|one| format!("{:?}", row(one))).collect::<Vec<_>>();
    for (text, words) in [(NVME, &[][..]), (SSD, &["--path", "/data"]), (HDD, &["--role", "storage"])] {
        let dir = tempfile::tempdir().unwrap();
        Recording::read(text).unwrap().unpack(dir.path()).unwrap();
        let root = Root::recording(dir.path()).unwrap();
        let place = ["check", "--root", dir.path().to_str().unwrap()];
        let args = Line::try_parse_from([&place[..], words].concat()).unwrap().machine;
        let here = check(&Host::read(&root, args.part(&root).unwrap()));
        let recorded = root.recorded().unwrap().write();
        let (there, _) = findings(&recorded, &[]).unwrap();
        assert_eq!(shown(&here), shown(&there), "{words:?}");
        assert!(here.iter().any(|one| one.area == "skep"));
    }
}

/// Goal: an edit that somebody makes while the prompt of apply waits is not lost: it stays, and nothing is changed.
#[test]
fn an_edit_while_the_prompt_waits() {
    let dir = tempfile::tempdir().unwrap();
    Recording::read(SSD).unwrap().unpack(dir.path()).unwrap();
    let args = ApplyLine::try_parse_from(["apply", "--root", dir.path().to_str().unwrap()]).unwrap().args;
    let file = dir.path().join("etc/sysctl.d/90-skep.conf");
    let value = dir.path().join("proc/sys/vm/vfs_cache_pressure");
    let mut shown = Vec::new();
    let error = run_when(&args, &mut shown, &mut || {
        std::fs::write(&file, "# in the meantime\n").unwrap();
        Ok(true)
    });
    assert!(
        error.unwrap_err().to_string().contains("/etc/sysctl.d/90-skep.conf was changed by somebody else")
    );
    assert!(String::from_utf8(shown).unwrap().contains("/etc/sysctl.d/90-skep.conf"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "# in the meantime\n");
    assert_eq!(std::fs::read_to_string(value).unwrap(), "100\n");
    assert!(!dir.path().join("var/lib/skep/tune").exists());
}

/// Goal: the command that puts a change back means the root that was changed; a recording, which cannot be changed, is
/// refused as what it is.
#[test]
fn apply_and_undo_mean_their_root() {
    let dir = tempfile::tempdir().unwrap();
    let done = Applied { values: 2, files: 1 };
    let said = changed(&Root::new(dir.path()).unwrap(), &done);
    let real = dir.path().canonicalize().unwrap();
    assert!(said.contains(&format!("skep tune undo --root {} puts", real.display())), "{said}");
    let live = changed(&Root::new(std::path::Path::new("/")).unwrap(), &done);
    assert!(live.contains(": skep tune undo puts"), "{live}");

    let file = dir.path().join("machine.txt");
    std::fs::write(&file, SSD).unwrap();
    let file = file.to_str().unwrap();
    let line = ApplyLine::try_parse_from(["apply", "--dry-run", "--root", file]).unwrap();
    let applied = run_when(&line.args, &mut Vec::<u8>::new(), &mut || Ok(true)).unwrap_err().to_string();
    let undone = undo(&UndoLine::try_parse_from(["undo", "--root", file]).unwrap().args);
    for said in [applied, undone.unwrap_err().to_string()] {
        assert!(said.contains("recording") && said.contains("directory of a machine is needed"), "{said}");
    }
}

/// Goal: services that are called alike all have their numbers, and what is only configured is no second service.
#[test]
fn services_that_are_called_alike() {
    let twin = NVME.lines().filter(|line| line.starts_with("/proc/4711/"));
    let twin: Vec<String> = twin.map(|line| line.replacen("/proc/4711/", "/proc/4712/", 1)).collect();
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{}\n{}\n", NVME.trim_end(), twin.join("\n"));
    Recording::read(&text).unwrap().unpack(dir.path()).unwrap();
    let root = Root::new(dir.path()).unwrap();
    let names: Vec<String> = processes::running(&root).into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["storaged@n0 (process 4711)", "storaged@n0 (process 4712)"]);
    let place = ["check", "--root", dir.path().to_str().unwrap()];
    let part = Line::try_parse_from(place).unwrap().machine.part(&root).unwrap();
    assert!(part.services.iter().all(|one| one.name != "storaged@n0"), "{:?}", part.services);
    assert_eq!(processes::parted("storaged@n0 (process 4711)"), ("storaged@n0", Some("4711")));
    assert_eq!(processes::parted("storaged@n0"), ("storaged@n0", None));
}

/// Goal: targets that are reached through a symbolic link, configured or named, are on the disk that the link leads to,
/// not on that of the system; a recording says the same.
#[test]
fn targets_behind_a_link() {
    let text = HDD.replace("[\"/data/skep0/t1\"]", "[\"/srv/skep/t1\"]");
    assert_ne!(text, HDD);
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{}\n/srv/skep -> ../data/skep0\n", text.trim_end());
    Recording::read(&text).unwrap().unpack(dir.path()).unwrap();
    let root = Root::recording(dir.path()).unwrap();
    let place = ["check", "--root", dir.path().to_str().unwrap()];
    for words in [&[][..], &["--role", "storage", "--path", "/srv/skep/t1"]] {
        let args = Line::try_parse_from([&place[..], words].concat()).unwrap().machine;
        let host = Host::read(&root, args.part(&root).unwrap());
        let system = host.disk_of(host.mount_of("/").unwrap()).unwrap();
        assert!(system.roles.is_empty() && host.places.iter().all(|one| one.path != "/srv/skep/t1"));
        assert!(host.disk("md0").unwrap().roles.contains(&Role::Storage), "{words:?}");
        let recorded = root.recorded().unwrap().write();
        assert!(recorded.contains("/data/skep0/t1") && !recorded.contains("[\\\"/srv/skep"), "{recorded}");
    }
    // A relative name means nothing below another root, and on this machine what it means to a shell.
    let named = |root: &Root, path: &str| {
        let words = ["check", "--role", "storage", "--path", path];
        Line::try_parse_from(words).unwrap().machine.part(root).map(|part| part.directories)
    };
    assert!(named(&root, "srv/skep").unwrap_err().to_string().contains("srv/skep"));
    let here = std::env::current_dir().unwrap().canonicalize().unwrap();
    let live = Root::new(std::path::Path::new("/")).unwrap();
    assert_eq!(named(&live, "src").unwrap(), [here.join("src").to_str().unwrap()]);
}

/// Goal: whatever lies below another root in place of a process's files, nothing waits, nothing outside is read, and the
/// configuration is the one that the process took.
#[test]
fn processes_of_a_strange_tree() {
    let dir = tempfile::tempdir().unwrap();
    Recording::read(NVME).unwrap().unpack(dir.path()).unwrap();
    let at = |path: &str| dir.path().join(path);
    let environ = at("proc/4711/environ");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &environ, fifo, 0o600.into(), 0).unwrap();
    let connections = || {
        let (said, heard) = std::sync::mpsc::channel();
        let path = dir.path().to_owned();
        std::thread::spawn(move || said.send(processes::running(&Root::new(&path).unwrap())));
        // Somebody who opens a FIFO without a writer never comes back.
        let all = heard.recv_timeout(std::time::Duration::from_secs(120)).unwrap();
        all.first().map(|one| one.settings["max_connections"].clone())
    };
    let plain = connections().unwrap();
    std::fs::remove_file(&environ).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let elsewhere = outside.path().join("environ");
    std::fs::write(&elsewhere, "SKEP_STORAGED_MAX_CONNECTIONS=77\0").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &environ).unwrap();
    assert_eq!(connections(), Some(plain));
    std::fs::remove_file(&environ).unwrap();
    std::fs::copy(&elsewhere, &environ).unwrap();
    assert_eq!(connections().as_deref(), Some("77"));
    std::fs::remove_file(&environ).unwrap();

    // A relative --config begins where the process was started.
    std::fs::create_dir_all(at("srv/etc")).unwrap();
    std::fs::write(at("srv/etc/s.toml"), "targets = [\"disks/t1\"]\nmax_connections = 78\n").unwrap();
    std::os::unix::fs::symlink("/srv", at("proc/4711/cwd")).unwrap();
    std::fs::write(at("proc/4711/cmdline"), "skep\0storaged\0--config\0etc/s.toml\0").unwrap();
    assert_eq!(connections().as_deref(), Some("78"));
    let running = processes::running(&Root::new(dir.path()).unwrap());
    assert_eq!(running[0].directories, ["/srv/disks/t1"]);
    // The file of somebody else outside is none.
    std::fs::remove_file(at("srv/etc/s.toml")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, at("srv/etc/s.toml")).unwrap();
    assert_eq!(connections(), None);
}

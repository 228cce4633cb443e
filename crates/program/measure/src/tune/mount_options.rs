//! `skep tune auto --mount-options`: settings of a mount, searched on mounts of their own.
//!
//! Each candidate is a second mount of the same cluster at a place of its own; the mount that is in use is not touched.
//! What is clearly better is written into the mount's configuration file, through the journal of `skep tune apply`.

use super::apply::{agreed, lock};
use super::auto::{AutoArgs, CandidateRow, Loads, Scratch, decided, settings, show, unless_stopped};
use super::leftovers;
use super::machine::directory;
use crate::bench::scratch::own_name;
use crate::bench::{bare, on_signals};
use skep_base::access::mount_of;
use skep_base::config::mount::{Io, MountConfig, Transport};
use skep_base::config::{self, Source};
use skep_base::deadline;
use skep_base::mounted;
use skep_base::units::Size;
use skep_base::{Failure, Outcome};
use skep_bench::engine::Ends;
use skep_tune::Root;
use skep_tune::auto::{Outcome as Found, Search};
use skep_tune::change::{Keep, Plan, RealHands, apply};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Says whether the kernel has FUSE over io_uring.
const URING: &str = "/sys/module/fuse/parameters/enable_uring";
/// Depths that are tried.
const DEPTHS: [u32; 3] = [8, 32, 128];
/// Request sizes that are tried.
const REQUESTS: [Size; 3] = [Size::kib(256), Size::kib(512), Size::kib(1024)];
/// Threads for each processor that are tried.
const THREADS: [u32; 3] = [1, 2, 4];

/// Keys of the configuration with values as TOML has them; none: the present setting.
pub type Wish = Vec<(&'static str, String)>;

/// The present setting first, then each that differs from it in one thing.
pub fn candidates(now: &MountConfig, cpus: u32, has_uring: bool) -> Vec<Wish> {
    let mut all: Vec<Wish> = vec![Vec::new()];
    let rings = has_uring && now.transport != Transport::Dev;
    match (has_uring, rings) {
        (true, true) => all.push(vec![("transport", "\"dev\"".to_owned())]),
        (true, false) => all.push(vec![("transport", "\"uring\"".to_owned())]),
        (false, _) => {}
    }
    if rings {
        let other = DEPTHS.into_iter().filter(|depth| *depth != now.queue_depth);
        all.extend(other.map(|depth| vec![("queue_depth", depth.to_string())]));
    } else {
        // 0 means one for each processor, as far as they may be.
        let present = if now.threads == 0 { cpus.min(now.max_threads) } else { now.threads };
        let other = THREADS.into_iter().map(|times| cpus.saturating_mul(times)).filter(|n| *n != present);
        for threads in other.filter(|n| *n <= config::mount::THREADS_MAX) {
            let mut wish = vec![("threads", threads.to_string())];
            if threads > now.max_threads {
                wish.push(("max_threads", threads.to_string()));
            }
            all.push(wish);
        }
    }
    let sizes = REQUESTS.into_iter().filter(|size| *size != now.request_size);
    all.extend(sizes.map(|size| vec![("request_size", format!("\"{size}\""))]));
    let ways = [(Io::Auto, "auto"), (Io::Direct, "direct"), (Io::Cached, "cached")];
    let ways = ways.into_iter().filter(|(way, _)| *way != now.io);
    all.extend(ways.map(|(_, word)| vec![("io", format!("\"{word}\""))]));
    all
}

/// As people write it.
fn words(wish: &Wish) -> String {
    match wish.is_empty() {
        true => "as it is".to_owned(),
        false => wish.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", "),
    }
}

/// Mounts of the candidates, below a directory of their own; gone when it is over.
struct Mounts {
    dir: PathBuf,
    points: Vec<PathBuf>,
}

impl Mounts {
    fn make(file: &Path, wishes: &[Wish], stop: &AtomicBool) -> Outcome<Self> {
        let dir = std::env::temp_dir().join(own_name(leftovers::MOUNTS));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|e| Failure::local(dir.display(), e))?;
        let mut mounts = Self { dir, points: Vec::new() };
        let program = std::env::current_exe().map_err(|e| Failure::local("the skep program", e))?;
        for (at, wish) in wishes.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::interrupted("stopped"));
            }
            let point = mounts.dir.join(at.to_string());
            std::fs::create_dir(&point).map_err(|e| Failure::local(point.display(), e))?;
            mounts.points.push(point.clone());
            let mut command = Command::new(&program);
            command.arg("mount").arg("--config").arg(file);
            command.arg("--set").arg(format!("mount_point={}", point.display()));
            for (key, value) in wish {
                command.arg("--set").arg(format!("{key}={}", value.trim_matches('"')));
            }
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
            let status = status.map_err(|e| Failure::local(program.display(), e))?;
            if !status.success() {
                let text = format!("the cluster cannot be mounted with {} ({})", words(wish), file.display());
                return Err(Failure::new(text));
            }
        }
        Ok(mounts)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        if let Err(e) = leftovers::unmounted(&self.dir) {
            let dir = self.dir.display();
            let _ =
                writeln!(std::io::stderr(), "note: {dir}: {e}; unmount what is below and remove it by hand");
        }
    }
}

/// The configuration file of the mount, as on the machine and without links: named, that of `skep up`, the installed one.
fn file(args: &AutoArgs, root: &Root) -> Outcome<PathBuf> {
    let file = match &args.config {
        Some(file) => file.clone(),
        None => {
            let place = args.access.place(Some(&args.path))?;
            let of_up = place.cluster.as_deref().and_then(Path::parent).map(|dir| dir.join("etc/mount.toml"));
            of_up.unwrap_or_else(|| config::installed_path("mount", None))
        }
    };
    let real = root.meant(&file).map_err(|e| {
        let remedy = "name the configuration of the mount by --config FILE";
        Failure::new(format!("{} below {}: {e}; {remedy}", file.display(), root.path("/").display()))
    })?;
    Ok(real.into())
}

/// The plan that writes the keys into the file; the result is read as the mount will read it.
pub fn plan(root: &Root, file: &Path, wish: &Wish) -> Outcome<Plan> {
    let name = file.to_str().ok_or_else(|| Failure::new("the path must be UTF-8"))?;
    let keeps: Vec<Keep> = wish
        .iter()
        .map(|(key, value)| Keep {
            file: name.to_owned(),
            section: "",
            stem: format!("{key} = "),
            value: value.clone(),
        })
        .collect();
    let plan = Plan::of_lines(root, &keeps).map_err(Failure::new)?;
    let after = plan.text_of(name).unwrap_or_default();
    let table: toml::Table =
        toml::from_str(after).map_err(|e| Failure::new(format!("{name}: {}", e.message())))?;
    let is_there =
        |(key, value): &(&str, String)| table.get(*key).is_some_and(|now| now.to_string() == *value);
    match wish.iter().all(is_there) || plan.is_empty() {
        true => Ok(plan),
        false => Err(Failure::new(format!("{name}: write {} into it by hand", words(wish)))),
    }
}

/// Writes it, when the person agrees; tells whether it did.
fn keep(root: &Root, file: &Path, wish: &Wish, args: &AutoArgs, out: &mut dyn Write) -> Outcome<bool> {
    let _lock = lock(root)?;
    let plan = plan(root, file, wish)?;
    write!(out, "{}", plan.diff())?;
    out.flush()?;
    if !args.yes && !bare(agreed)? {
        eprintln!("nothing was changed");
        return Ok(false);
    }
    apply(&plan, &mut RealHands(root)).map_err(Failure::new)?;
    eprintln!(
        "{} is changed; it counts from the next mount. Back: skep tune undo{}",
        file.display(),
        root.flag()
    );
    Ok(true)
}

/// Measures the candidates on mounts of their own, in directories of their own, which are gone afterwards. `path`: the
/// directory, and where it is below its mount.
fn searched(
    args: &AutoArgs,
    (path, inner): (&Path, &Path),
    file: &Path,
    wishes: &[Wish],
    ends: Ends<'_>,
) -> Outcome<(Found, Option<usize>)> {
    let scratch = Scratch::make(path, wishes.len())?;
    let mounts = Mounts::make(file, wishes, ends.stop)?;
    let mut jobs = Vec::new();
    for (at, point) in mounts.points.iter().enumerate() {
        let own = scratch.of(at);
        let below = own.strip_prefix(path).map_err(|e| Failure::local(own.display(), e))?;
        jobs.push(args.job(&point.join(inner).join(below))?);
    }
    let mut rule = Search::new(wishes.len() - 1, settings(args));
    let most = rule.most();
    let mut loads = Loads { jobs, hosts: &args.hosts, ends, done: 0, most, began: Instant::now() };
    decided(&mut rule, &mut loads, args.dry_run)
}

pub fn run(args: &AutoArgs, out: &mut dyn Write) -> Outcome {
    let path = mounted::real(&args.path, args.access.timeout.duration())?;
    let Some(entry) = mount_of(&path, deadline::ANSWER_LIMIT)? else {
        return Err(Failure::new(format!("{}: is on no mount of skep", path.display())));
    };
    if args.access.is_explicit() {
        // Its configuration would be tried on a mount of another one.
        args.access.connect(Some(&path))?.status()?;
    }
    let inner = path.strip_prefix(&entry.point).map_err(|e| Failure::local(path.display(), e))?;
    let root = directory(&args.root)?;
    let file = file(args, &root)?;
    let real = root.path(file.to_str().unwrap_or_default());
    let loaded = config::load::<MountConfig>(Source::Given(&real), &config::environment(), &[]);
    let now = loaded.map_err(|e| Failure::new(e.to_string()))?.config;
    let has_uring = std::fs::read_to_string(URING).is_ok_and(|text| matches!(text.trim(), "Y" | "1"));
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let wishes = candidates(&now, cpus, has_uring);
    let ends = on_signals()?;
    let searched = searched(args, (&path, inner), &real, &wishes, ends);
    let (found, kept) = unless_stopped(searched, ends.stop)?;
    eprintln!("{}", verdict(&file, &wishes, &found));
    // The lines of a diff are no document.
    let keep = |wish: &Wish| keep(&root, &file, wish, args, &mut std::io::stderr());
    let (rows, done) = concluded(&wishes, args.unit(), &found, kept, keep);
    show(args.output.output, &rows, out)?;
    done
}

/// Asks first: what is shown as kept is kept.
fn concluded(
    wishes: &[Wish],
    unit: &'static str,
    found: &Found,
    better: Option<usize>,
    keep: impl Fn(&Wish) -> Outcome<bool>,
) -> (Vec<CandidateRow>, Outcome) {
    let wish = better.and_then(|at| wishes.get(at));
    let written = wish.map_or(Ok(false), keep);
    let kept = better.filter(|_| matches!(written, Ok(true)));
    let row = |(at, wish): (usize, &Wish)| CandidateRow::of_mount(at, unit, words(wish), found, kept);
    (wishes.iter().enumerate().map(row).collect(), written.map(drop))
}

fn verdict(file: &Path, wishes: &[Wish], found: &Found) -> String {
    let file = file.display();
    let Some((decision, best)) = found.decision.zip(found.finalist.and_then(|at| wishes.get(at))) else {
        return format!("{file}: nothing was tried; it stays as it is");
    };
    let gain = (decision.ratio - 1.0) * 100.0;
    let said = format!("{gain:+.1} % in {} pairs, p = {:.4}", found.pairs.len(), decision.p);
    match decision.better {
        true => format!("{file}: {} is better ({said})", words(best)),
        false => format!("{file}: stays as it is; {} is not clearly better ({said})", words(best)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_tune::change::undo;

    /// Goal: each candidate is one change of what can be tried here, and every one is a configuration that a mount takes.
    #[test]
    fn one_change_each() {
        let text = |all: &[Wish]| all.iter().map(words).collect::<Vec<_>>();
        let base = MountConfig { mount_point: "/m".into(), ..MountConfig::default() };
        let rings = candidates(&base, 4, true);
        assert_eq!(
            text(&rings),
            [
                "as it is",
                "transport = \"dev\"",
                "queue_depth = 8",
                "queue_depth = 128",
                "request_size = \"256KiB\"",
                "request_size = \"512KiB\"",
                "io = \"direct\"",
                "io = \"cached\""
            ]
        );
        let plain = text(&candidates(&MountConfig { max_threads: 8, ..base.clone() }, 4, false));
        assert_eq!(plain[1..3], ["threads = 8", "threads = 16, max_threads = 16"]);
        assert!(plain.iter().all(|one| !one.contains("transport") && !one.contains("queue_depth")));
        let dev = text(&candidates(&MountConfig { transport: Transport::Dev, ..base }, 4, true));
        assert!(dev.contains(&"transport = \"uring\"".to_owned()) && dev.contains(&"threads = 8".to_owned()));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mount.toml");
        std::fs::write(&file, "mount_point = \"/m\"\n").unwrap();
        for wish in rings {
            let sets: Vec<String> =
                wish.iter().map(|(key, value)| format!("{key}={}", value.trim_matches('"'))).collect();
            config::load::<MountConfig>(Source::Given(&file), &[], &sets).unwrap();
        }
    }

    /// Goal: what is shown as kept was written: not when the person says no, nobody can be asked, or writing fails.
    #[test]
    fn kept_when_it_is() {
        let wishes: Vec<Wish> = vec![Vec::new(), vec![("io", "\"direct\"".to_owned())]];
        let found =
            Found { keep: Some(1), finalist: Some(1), decision: None, pairs: Vec::new(), best: Vec::new() };
        for (answer, kept, done) in
            [(Ok(true), true, true), (Ok(false), false, true), (Err(Failure::new("no")), false, false)]
        {
            let (rows, outcome) = concluded(&wishes, "files/s", &found, Some(1), |_| answer.clone());
            assert_eq!(rows.iter().map(|row| row.kept).collect::<Vec<_>>(), [false, kept]);
            assert_eq!(outcome.is_ok(), done);
        }
        let asked = |_: &Wish| panic!("nothing is better, so nothing is asked");
        let (rows, outcome) = concluded(&wishes, "files/s", &found, None, asked);
        assert!(rows.iter().all(|row| !row.kept) && outcome.is_ok());
    }

    /// Goal: what is kept goes into the file beside the administrator's lines, and undo brings the file back to the byte.
    #[test]
    fn kept_and_undone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etc/skep/mount.toml");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::create_dir_all(dir.path().join("var/lib/skep")).unwrap();
        let before = "# ours\nmount_point = \"/m\"\nqueue_depth=16\n";
        std::fs::write(&path, before).unwrap();
        let root = Root::new(dir.path()).unwrap();
        let wish = vec![("queue_depth", "128".to_owned()), ("io", "\"direct\"".to_owned())];
        let plan = plan(&root, Path::new("/etc/skep/mount.toml"), &wish).unwrap();
        assert!(
            plan.diff().contains("-queue_depth=16\n+queue_depth = 128\n+io = \"direct\""),
            "{}",
            plan.diff()
        );
        apply(&plan, &mut RealHands(&root)).unwrap();
        let now = config::load::<MountConfig>(Source::Given(&path), &[], &[]).unwrap().config;
        assert_eq!((now.queue_depth, now.io), (128, Io::Direct));
        undo(&mut RealHands(&root), false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    }

    /// Goal: the file that is changed is the one that was named: on this machine relative names and `..` mean what they
    /// mean to a shell; below another root, where nobody can say, they are refused.
    #[test]
    fn the_file_that_was_named() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: AutoArgs,
        }
        let named = |root: &Root, name: &str| {
            let words = ["auto", "dir", "--mount-options", "--config", name];
            file(&<Line as clap::Parser>::try_parse_from(words).unwrap().args, root)
        };
        let live = Root::new(Path::new("/")).unwrap();
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        for name in ["Cargo.toml", "src/../Cargo.toml"] {
            assert_eq!(named(&live, name).unwrap(), here.join("Cargo.toml"));
        }
        let error = named(&live, "not-there.toml").unwrap_err().to_string();
        assert!(error.contains("not-there.toml") && error.contains("--config"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc/skep")).unwrap();
        std::fs::write(dir.path().join("etc/skep/mount.toml"), "").unwrap();
        let root = Root::new(dir.path()).unwrap();
        assert_eq!(named(&root, "/etc/skep/mount.toml").unwrap(), Path::new("/etc/skep/mount.toml"));
        for name in ["etc/skep/mount.toml", "/etc/x/../skep/mount.toml", "/etc/mount.toml"] {
            assert!(named(&root, name).is_err(), "{name}");
        }
    }
}

//! Tools whose work other commands of this program do: they are named instead of translated.

use super::size::{Units, bytes};
use super::words::{Known, Syntax, Takes, split, used};
use super::{Cause, Tool, obdfilter};

/// What to run instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relative {
    /// The tool that the command line is for.
    pub tool: &'static str,
    /// The command of this program that does the same.
    pub instead: String,
    /// Why, and what differs.
    pub because: &'static str,
}

const STORAGE_BENCH: &[Known] = &[
    used("", "storagebench", Takes::Nothing),
    used("", "write", Takes::Nothing),
    used("", "read", Takes::Nothing),
    used("", "status", Takes::Nothing),
    used("", "stop", Takes::Nothing),
    used("", "cleanup", Takes::Nothing),
    used("", "blocksize", Takes::Value),
    used("", "size", Takes::Value),
    used("", "threads", Takes::Value),
    used("", "alltargets", Takes::Nothing),
    used("", "targetids", Takes::Value),
    used("", "servers", Takes::Value),
    used("", "verbose", Takes::Nothing),
    used("", "odirect", Takes::Nothing),
];

/// Recognises lines of tools whose work other commands do: StorageBench and a few further modes of `beegfs-ctl`,
/// qperf, NetBench's switch, obdfilter-survey. None: it is something else.
pub fn relative(words: &[String]) -> Option<Result<Relative, String>> {
    // A line in quotes is one word.
    let whole = match words {
        [line] => shell_words(line),
        _ => words.to_vec(),
    };
    let words = &on_hosts(&whole);
    let first = words.first()?.rsplit('/').next()?;
    match first {
        "beegfs-ctl" | "fhgfs-ctl" => beegfs_ctl(first, &words[1..]),
        "qperf" => Some(qperf(&words[1..])),
        "echo" if words.last().is_some_and(|word| word.ends_with("/netbench_mode")) => {
            Some(Ok(netbench(words.get(1).map_or("", String::as_str))))
        }
        _ => obdfilter::survey(words),
    }
}

/// The words of a line, as a shell sees them as far as quotes and backslashes go. A quote that nothing closes stands
/// for itself: such a line is nobody's, and is shown as it came.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '"' | '\'' => match rest.as_str().split_once(letter) {
                Some((quoted, behind)) => {
                    word.get_or_insert_default().push_str(quoted);
                    rest = behind.chars();
                }
                None => word.get_or_insert_default().push(letter),
            },
            '\\' => word.get_or_insert_default().extend(rest.next()),
            letter if letter.is_whitespace() => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// What `pdsh -g oss ...` runs on its hosts: daemons here measure at the same time without it. The shell there takes
/// apart what pdsh puts together from its words.
fn on_hosts(words: &[String]) -> Vec<String> {
    if words.first().and_then(|word| word.rsplit('/').next()) != Some("pdsh") {
        return words.to_vec();
    }
    let mut at = 1;
    while let Some(option) = words.get(at).filter(|word| word.starts_with('-')) {
        // Of these the value is the next word, unless it is attached.
        at += if ["-g", "-w", "-x", "-l", "-f", "-R", "-t", "-u"].contains(&option.as_str()) { 2 } else { 1 };
    }
    shell_words(&words.get(at..).unwrap_or(&[]).join(" "))
}

fn netbench(value: &str) -> Relative {
    Relative {
        tool: "NetBench",
        instead: "skep bench net mode".to_owned(),
        because: match value {
            "0" => "the mode ends with that command, so that there is nothing to switch off",
            _ => {
                "as long as it runs, files of one directory are dropped by the storage daemons and answered from \
                 memory, for any load generator; `skep bench net run` brings a load of its own"
            }
        },
    }
}

/// None: another mode than those that the papers print.
fn beegfs_ctl(program: &str, words: &[String]) -> Option<Result<Relative, String>> {
    let has = |mode: &str| words.iter().any(|word| word == mode);
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let path = words.iter().find(|word| !word.starts_with('-')).map_or("PATH", String::as_str);
    let found = |instead: String, because| Some(Ok(Relative { tool: "beegfs-ctl", instead, because }));
    if has("--storagebench") {
        return Some(storage_bench(words).map_err(|cause| format!("{program}: {cause}")));
    }
    if has("--listnodes") {
        return match value("--nodetype") {
            Some("client") => found("skep session list".to_owned(), "every mount is a session"),
            _ => found("skep node list".to_owned(), "it lists the daemons of the cluster"),
        };
    }
    if has("--getentryinfo") {
        return found(format!("skep entry info {path}"), "it shows chunk size, targets and metadata shard");
    }
    if has("--setpattern") {
        let mut instead = "skep entry set".to_owned();
        for (name, ours) in [("--chunksize", "--chunk-size"), ("--numtargets", "--targets")] {
            let Some(value) = value(name) else { continue };
            let value = match name {
                "--chunksize" => match bytes(value, Units::Bytes) {
                    Ok(size) => binary(size),
                    Err(why) => return Some(Err(format!("{program}: {name}={value} {why}"))),
                },
                _ => value.to_owned(),
            };
            instead = format!("{instead} {ours} {value}");
        }
        return found(format!("{instead} {path}"), "it sets the striping of new files in a directory");
    }
    None
}

fn storage_bench(words: &[String]) -> Result<Relative, Cause> {
    let syntax = Syntax { tool: Tool::Ior, known: STORAGE_BENCH, single_dash_long: false, any_case: true };
    let (given, rest) = split(&syntax, words).map_err(|cause| {
        let why = cause.why.replace("is no option of ior", "is no option of --storagebench");
        Cause::new(cause.word, why)
    })?;
    if let Some(word) = rest.first() {
        return Err(Cause::new(word, "belongs to no option"));
    }
    let (mut verb, mut behind) = ("", String::new());
    for given in &given {
        match given.name {
            "write" => (verb, behind) = ("start", format!("{behind} --write")),
            "read" => (verb, behind) = ("start", format!("{behind} --read")),
            "status" => verb = "status",
            "stop" => verb = "stop",
            "cleanup" => verb = "cleanup",
            "blocksize" | "size" => {
                let size =
                    bytes(&given.value, Units::Bytes).map_err(|why| Cause::new(&given.written, why))?;
                let name = if given.name == "size" { "size" } else { "block" };
                behind = format!("{behind} --{name} {}", binary(size));
            }
            "threads" => behind = format!("{behind} --threads {}", given.value),
            "targetids" => behind = format!("{behind} --target {}", given.value),
            "servers" => behind = format!("{behind} --node {}", given.value),
            "odirect" => behind.push_str(" --path raw --direct"),
            // All targets are meant where none is named.
            _ => {}
        }
    }
    if verb.is_empty() {
        return Err(Cause::new(
            "--storagebench",
            "needs one of --write, --read, --status, --stop, --cleanup",
        ));
    }
    Ok(Relative {
        tool: "StorageBench",
        instead: format!("skep bench storage {verb}{behind}"),
        because: "the storage daemons measure their own targets, without the network",
    })
}

/// As commands of this program take sizes: the unit says that it counts in powers of 1024.
pub(super) fn binary(size: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut count, mut unit) = (size, 0);
    while count != 0 && count.is_multiple_of(1024) && unit + 1 < UNITS.len() {
        (count, unit) = (count / 1024, unit + 1);
    }
    format!("{count}{}", UNITS[unit])
}

fn qperf(words: &[String]) -> Result<Relative, String> {
    let mut named = words.iter().filter(|word| !word.starts_with('-'));
    let Some(host) = named.next() else {
        return Ok(Relative {
            tool: "qperf",
            instead: "skep bench agent".to_owned(),
            because: "qperf without a host waits to be measured; daemons of a cluster answer without it",
        });
    };
    for test in named {
        match test.as_str() {
            "tcp_bw" | "tcp_lat" | "conf" => {}
            test if test.starts_with("rc_") || test.starts_with("uc_") || test.starts_with("ud_") => {
                return Err(format!(
                    "qperf: {test} measures RDMA verbs, which no connection of this program uses; tcp_bw and tcp_lat have an equivalent: skep bench net pairs"
                ));
            }
            test => {
                return Err(format!(
                    "qperf: {test} has no equivalent here; tcp_bw and tcp_lat have: skep bench net pairs"
                ));
            }
        }
    }
    let _ = host;
    Ok(Relative {
        tool: "qperf",
        instead: "skep bench net pairs".to_owned(),
        because: "bandwidth and latency between any two nodes of the cluster, over its own connections",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Result<Relative, String>> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        relative(&words)
    }

    /// Goal: the StorageBench and qperf lines of the papers name the command that does the same.
    #[test]
    fn equivalents() {
        for (line, instead) in [
            (
                "beegfs-ctl --storagebench --write --blocksize=512K --size=640G --threads=4 --alltargets",
                "skep bench storage start --write --block 512KiB --size 640GiB --threads 4",
            ),
            (
                "beegfs-ctl --storagebench --read --blocksize=512K --size=640G --threads=4 --alltargets",
                "skep bench storage start --read --block 512KiB --size 640GiB --threads 4",
            ),
            ("beegfs-ctl --storagebench --status --alltargets", "skep bench storage status"),
            (
                "beegfs-ctl --storagebench --cleanup --targetids=101,102",
                "skep bench storage cleanup --target 101,102",
            ),
            ("qperf", "skep bench agent"),
            ("qperf beegfs002 tcp_bw tcp_lat", "skep bench net pairs"),
        ] {
            assert_eq!(of(line).unwrap().unwrap().instead, instead, "{line}");
        }
        assert_eq!(of("ior -w"), None);
        assert_eq!(of("beegfs-ctl --listpools"), None);
        assert_eq!(of("pdsh -g oss uptime"), None);
        assert_eq!(of("pdsh -g"), None);
    }

    /// Goal: a whole line in quotes is understood, with a line for hosts in quotes of its own, and a path in quotes
    /// keeps its blanks.
    #[test]
    fn lines_in_quotes() {
        let survey = "thrlo=256 thrhi=256 nobjlo=1 nobjhi=1 rsz=1024K size=32768 obdfilter-survey";
        let run = "skep bench storage run --block 1MiB --size 128MiB --threads 256 --objects 1";
        let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        for line in [
            words(&[&format!("pdsh -g oss \"{survey}\"")]),
            words(&[&format!("/usr/bin/pdsh -g oss '{survey}'")]),
            words(&["pdsh", "-g", "oss", survey]),
            words(&[&["pdsh -g oss ", survey].concat()]),
            words(&[survey]),
        ] {
            assert_eq!(relative(&line).unwrap().unwrap().instead, run, "{line:?}");
        }
        let info = "skep entry info /mnt/my dir";
        let quoted = words(&["beegfs-ctl --getentryinfo \"/mnt/my dir\""]);
        assert_eq!(relative(&quoted).unwrap().unwrap().instead, info);
        assert_eq!(shell_words(r#" a"b c"'d e' f\ g "" it's "#), ["ab cd e", "f g", "", "it's"]);
        assert_eq!(relative(&words(&["pdsh -g oss \"uptime"])), None);
    }

    /// Goal: what has no equivalent says so.
    #[test]
    fn refusals() {
        for (line, says) in [
            ("qperf beegfs002 rc_bi_bw", "RDMA verbs"),
            ("beegfs-ctl --setpattern --chunksize=x /d", "no size"),
            ("beegfs-ctl --storagebench --alltargets", "needs one of --write"),
            ("beegfs-ctl --storagebench --write --blocksize=x", "no size"),
            ("beegfs-ctl --storagebench --wipe", "--wipe is no option of --storagebench"),
        ] {
            let error = of(line).unwrap().unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}

//! The file: provenance, constants, costs.

use super::constants::Constant;
use super::profile::Profiles;
use super::runs::{Runs, Sized};
use std::fmt::Write;
use std::process::Command;

/// Requests of each kind that an operation sends to metadata servers, for a path of three names below the mount
/// point: the table of docs/design/paths.md.
pub const OPERATIONS: [(&str, &str, [u32; 5]); 3] = [
    // profile, key, (getattr, lookup, create, unlink, close)
    ("create (own directory)", "create", [5, 3, 1, 0, 1]),
    ("stat (own directory)", "stat", [4, 3, 0, 0, 0]),
    ("remove (own directory)", "unlink", [4, 3, 0, 1, 0]),
];
/// A close goes with others, 100 ms of them in one message: its socket costs next to nothing.
const CLOSE: usize = 4;

/// All of it.
pub fn text(constants: &[Constant], profiles: &Profiles, runs: &Runs) -> Result<String, String> {
    let mut out = String::new();
    let say = |out: &mut String, line: &str| out.push_str(&format!("{line}\n"));
    say(
        &mut out,
        "# What Skep's operations cost, and the intervals and limits of its code: input of `skep plan scale`.",
    );
    say(&mut out, "# Written by `cargo xtask calibrate`; do not edit. Costs are microseconds of CPU.\n");
    say(&mut out, "[provenance]");
    say(&mut out, &format!("date = \"{}\"", command("date", &["-u", "+%Y-%m-%d"])?));
    say(&mut out, &format!("processor = \"{}\"", processor()));
    say(&mut out, &format!("kernel = \"{}\"", command("uname", &["-r"])?));
    say(&mut out, "commands = [");
    for command in &runs.commands {
        say(&mut out, &format!("    \"{command}\","));
    }
    say(&mut out, &format!("    \"{} ({}: {})\",", profiles.command, profiles.file, profiles.date));
    say(&mut out, "]\n\n[constants]");
    for Constant { key, value, source } in constants {
        say(&mut out, &format!("{key} = {value} # {source}"));
    }
    socket(&mut out, runs)?;
    registry(&mut out, runs)?;
    metadata(&mut out, profiles, runs)?;
    storage(&mut out, profiles, runs)?;
    Ok(out)
}

fn socket(out: &mut String, runs: &Runs) -> Result<(), String> {
    let mut line = |text: String| out.push_str(&(text + "\n"));
    line("\n# The server's thread alone, TCP with the frame MAC, without what the service does.".into());
    line("[socket]".into());
    line(format!("request_alone = {:.3} # one in flight", runs.tcp("request-alone")?));
    line(format!("request = {:.3} # 32 in flight: what a busy server pays", runs.tcp("request-of-32")?));
    line(format!("long_reply_per_mib = {:.3}", runs.tcp("long-reply-1mib")?));
    line(format!("connect = {:.3} # handshake, and the first request", runs.tcp("connect")?));
    line(format!("sync = {:.3} # append of 4 KiB, synced: the disk of this machine", runs.sync_us));
    Ok(())
}

/// What is measured at every size, and its key.
const CURVES: [(&str, &str); 10] = [
    ("heartbeat", "heartbeat"),
    ("tick", "tick"),
    ("tick-after-reports", "tick_after_reports"),
    ("renew", "renew"),
    ("map", "map"),
    ("map-known", "map_known"),
    ("fences", "fences"),
    ("register-node", "register_node"),
    ("register-target", "register_target"),
    ("open-and-close-session", "open_and_close_session"),
];

fn registry(out: &mut String, runs: &Runs) -> Result<(), String> {
    let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(", ");
    let of = |among: &[Sized], what: &str| -> Vec<Sized> {
        among.iter().filter(|sized| sized.what == what).cloned().collect()
    };
    let sizes = of(&runs.costs, "heartbeat");
    let mut line = |text: String| out.push_str(&(text + "\n"));
    line("\n# The registry of mgmtd at seven sizes, its thread without sockets.".into());
    line("[registry]".into());
    line(format!("nodes = [{}]", list(&mut sizes.iter().map(|s| s.nodes.to_string()))));
    line(format!("targets = [{}]", list(&mut sizes.iter().map(|s| s.targets.to_string()))));
    line(format!("sessions = [{}]", list(&mut sizes.iter().map(|s| s.sessions.to_string()))));
    for (what, key) in CURVES {
        let values = of(&runs.costs, what);
        if values.len() != sizes.len() {
            return Err(format!("`{what}` was not measured at all sizes"));
        }
        line(format!("{key} = [{}]", list(&mut values.iter().map(|s| format!("{:.3}", s.value)))));
    }
    for what in ["map", "fences"] {
        let values = of(&runs.bytes, what);
        line(format!("{what}_bytes = [{}]", list(&mut values.iter().map(|s| format!("{}", s.value)))));
    }
    let target = of(&runs.bytes, "target").first().map(|sized| sized.value);
    let target = target.ok_or("the length of a target in the map was not measured")?;
    line(format!("target_bytes = {target:.2} # of each target more in the map"));
    Ok(())
}

fn metadata(out: &mut String, profiles: &Profiles, runs: &Runs) -> Result<(), String> {
    let rules = [
        runs.rule("getattr")?,
        runs.rule("lookup")?,
        runs.rule("create and open")?,
        runs.rule("unlink")?,
        runs.rule("close")?,
    ];
    // As the profile was taken: one request in flight, over a Unix socket.
    let predicted = |counts: &[u32; 5]| -> Result<f64, String> {
        let socket: u32 = counts[..CLOSE].iter().sum();
        let ruled: f64 = counts.iter().zip(rules).map(|(n, us)| f64::from(*n) * us).sum();
        Ok(f64::from(socket) * runs.unix("request-alone")? + ruled)
    };
    let stat = OPERATIONS[1];
    let factor = profiles.cpu(stat.0, "metad")? / predicted(&stat.2)?;
    let mut text = String::new();
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    line("\n# A metadata server's thread. `rules_*`: the rules alone, rows in memory.".into());
    line("[metadata]".into());
    for (what, us) in ["getattr", "lookup", "create", "unlink", "close"].iter().zip(rules) {
        line(format!("rules_{what} = {us:.3}"));
    }
    line(format!(
        "in_service = {factor:.3} # measured `stat` ({:.1}) over the sum of its parts ({:.1})",
        profiles.cpu(stat.0, "metad")?,
        predicted(&stat.2)?
    ));
    let create = OPERATIONS[0];
    let append = profiles.cpu(create.0, "metad")? - factor * predicted(&create.2)?;
    line(format!("log_append = {:.3} # what `create` costs beyond that", append.max(0.0)));
    for (name, key, counts) in OPERATIONS {
        line(format!("# {key}: getattr, lookup, create, unlink, close; from docs/design/paths.md"));
        line(format!("{key}_requests = {counts:?}"));
        line(format!("{key}_measured = {:.3} # {name}: metad, one in flight", profiles.cpu(name, "metad")?));
        let elsewhere = profiles.took(name)? - profiles.cpu(name, "metad")?;
        line(format!("{key}_client = {elsewhere:.3} # of its wall time: program, kernel, mount"));
    }
    out.push_str(&text);
    Ok(())
}

fn storage(out: &mut String, profiles: &Profiles, runs: &Runs) -> Result<(), String> {
    // The profile was taken over Unix sockets; what TCP with its MAC costs more is measured without files.
    let more_in = (runs.tcp("stream-put-1mib")? - runs.unix("stream-put-1mib")?).max(0.0);
    let more_out = (runs.tcp("stream-get-1mib")? - runs.unix("stream-get-1mib")?).max(0.0);
    let small = (runs.tcp("stream-small")? - runs.unix("stream-small")?).max(0.0);
    let of = |operation: &str| profiles.cpu(operation, "storaged");
    let mut line = |text: String| out.push_str(&(text + "\n"));
    line("\n# Threads of a storage server, targets on tmpfs, over TCP.".into());
    line("[storage]".into());
    line(format!("write_per_mib = {:.3}", of("write 1 MiB (file per process)")? + more_in));
    line(format!("overwrite_per_mib = {:.3}", of("overwrite 1 MiB (file per process)")? + more_in));
    line(format!("read_per_mib = {:.3}", of("read 1 MiB (file per process)")? + more_out));
    line(format!("random_write_4k = {:.3}", of("random write 4 KiB (file per process)")? + small));
    line(format!("random_read_4k = {:.3}", of("random read 4 KiB (file per process)")? + small));
    line(format!("mount_write_per_mib = {:.3}", profiles.cpu("write 1 MiB (file per process)", "mount")?));
    line(format!("mount_read_per_mib = {:.3}", profiles.cpu("read 1 MiB (file per process)", "mount")?));
    Ok(())
}

fn command(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| format!("{program}: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

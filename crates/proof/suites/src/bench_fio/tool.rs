//! The two tools, told to do the same.

use super::Place;
use serde_json::Value;
use skep_bench::job::Job;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of all loads, in the order of the page.
pub const NAMES: [&str; 13] = [
    "write 1 MiB, new file",
    "overwrite 1 MiB",
    "read 1 MiB",
    "random write 4 KiB",
    "random read 4 KiB",
    "random write 4 KiB, leanest fio",
    "random read 4 KiB, leanest fio",
    "random read 4 KiB, cold",
    "direct write 1 MiB",
    "direct read 1 MiB",
    "direct random write 4 KiB",
    "direct random read 4 KiB",
    "random write 4 KiB, O_DSYNC",
];

/// One load.
#[derive(Debug, Clone)]
pub struct Load {
    /// One of [`NAMES`].
    pub name: &'static str,
    /// Each run makes its file; otherwise all work on one.
    pub makes: bool,
    /// Every block once, in an order without a rule.
    pub random: bool,
    write: bool,
    direct: bool,
    cold: bool,
    synced: bool,
    lean: bool,
    bytes: u64,
    mib: u64,
}

/// The loads of a place; amounts so that a run takes from a tenth of a second to a whole one. Only reads of 1 MiB from
/// the cache of ext4 are through in 30 ms.
pub fn loads(place: Place) -> Vec<Load> {
    let (stream, small, slow) = match place {
        Place::Tmpfs => (2048, 1024, 1024),
        Place::Ext4 => (512, 512, 64),
        Place::Skep => (512, 128, 128),
    };
    let load = |name: &'static str| {
        let random = name.contains("random");
        let direct = name.contains("direct");
        let cold = name.contains("cold");
        let synced = name.contains("O_DSYNC");
        let lean = name.contains("leanest");
        let mib = match (random, direct || cold || synced) {
            (false, _) => stream,
            (true, false) => small,
            (true, true) => slow,
        };
        Load {
            name,
            makes: name.contains("new file"),
            random,
            write: name.contains("write"),
            direct,
            cold,
            synced,
            lean,
            bytes: if random { 4096 } else { 1 << 20 },
            mib: if synced && place != Place::Tmpfs { mib.min(32) } else { mib },
        }
    };
    // Memory is never cold, and has nothing to be in step with; only there a generator's own time shows.
    let fits = |load: &Load| match place {
        Place::Tmpfs => !(load.cold || load.synced),
        Place::Ext4 => !load.lean,
        Place::Skep => !(load.cold || load.synced || load.lean),
    };
    NAMES.iter().map(|name| load(name)).filter(fits).collect()
}

/// What one run measured.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Bytes per second.
    pub rate: f64,
    /// Median latency of an operation, microseconds.
    pub p50_us: f64,
}

/// The programs.
pub struct Tools {
    /// The program under test.
    pub skep: PathBuf,
}

impl Tools {
    fn fio_words(load: &Load, file: &str, order: &str) -> Vec<String> {
        let kind = if load.write { "write" } else { "read" };
        let kind = if load.random { format!("rand{kind}") } else { kind.to_owned() };
        let mut words: Vec<String> = [
            "--name=pair",
            "--ioengine=psync",
            "--output-format=json",
            // What this program does not do: hints to the kernel, room set aside, contents changed for every
            // block, and buffers that begin in the middle of a page.
            "--fadvise_hint=0",
            "--fallocate=none",
            "--scramble_buffers=0",
            "--iomem_align=4096",
        ]
        .map(str::to_owned)
        .to_vec();
        words.push(format!("--filename={file}"));
        words.push(format!("--rw={kind}"));
        words.push(format!("--bs={}", load.bytes));
        words.push(format!("--size={}m", load.mib));
        words.push(format!("--direct={}", u8::from(load.direct)));
        words.push(format!("--invalidate={}", u8::from(load.cold)));
        words.push(format!("--end_fsync={}", u8::from(load.write)));
        if load.synced {
            words.push("--sync=dsync".to_owned());
        }
        if load.lean {
            // No clock readings but for the rate: with an order to follow there would be one for each block.
            words.extend(["--gtod_reduce=1".to_owned(), "--random_generator=lfsr".to_owned()]);
        } else if load.random {
            // As fast as it goes, not at the pace of a recording.
            words.extend([format!("--read_iolog={order}"), "--replay_no_stall=1".to_owned()]);
        }
        if load.makes {
            // Not by another process some time before: that is another load.
            words.push("--create_on_open=1".to_owned());
        } else if load.write {
            words.push("--overwrite=1".to_owned());
        }
        words
    }

    fn our_words(load: &Load, file: &str) -> Vec<String> {
        let kind = match (load.makes, load.write) {
            (true, _) => "write",
            (false, true) => "rewrite",
            (false, false) => "read",
        };
        let kind = if load.random { format!("random-{kind}") } else { kind.to_owned() };
        let mut words: Vec<String> = ["bench", "io", file, "--files", "--output", "json", "--time", "fsync"]
            .map(str::to_owned)
            .to_vec();
        words.extend(["--phases".to_owned(), kind, "--transfer".to_owned(), load.bytes.to_string()]);
        words.extend(["--block".to_owned(), format!("{}MiB", load.mib)]);
        if !load.makes {
            words.extend(["--existing".to_owned(), "--keep".to_owned()]);
        }
        if load.direct {
            words.push("--direct".to_owned());
        }
        words.push(if load.cold { "--invalidate" } else { "--cached" }.to_owned());
        if load.synced {
            words.extend(["--sync".to_owned(), "data".to_owned()]);
        }
        words
    }

    /// Both command lines, for the record.
    pub fn commands(&self, load: &Load) -> [String; 2] {
        [
            format!("fio {}", Self::fio_words(load, "FILE", "ORDER").join(" ")),
            format!("skep {}", Self::our_words(load, "FILE").join(" ")),
        ]
    }

    /// fio's own name and version.
    pub fn fio_version(&self) -> Result<String, String> {
        let output =
            Command::new("fio").arg("--version").output().map_err(|e| format!("fio: {e}; install it"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Writes the file all runs of a load work on.
    pub fn lay_out(&self, file: &Path, load: &Load) -> Result<(), String> {
        let block = format!("{}MiB", load.mib);
        let mut command = Command::new(&self.skep);
        command
            .args(["bench", "io"])
            .arg(file)
            .args(["--files", "--phases", "write", "--keep", "--block", &block]);
        answer(command).map(drop)
    }

    /// Writes down the order in which a random load of the program under test goes through its file, for fio to go the
    /// same way: how often the kernel reads ahead, and where the processor finds pages, depends on it.
    pub fn write_order(&self, order: &Path, file: &Path, load: &Load) -> Result<(), String> {
        // The order follows from the job, which its results name.
        let job = self.ours_json(file, load)?[0]["job"].take();
        let job: Job = serde_json::from_value(job).map_err(|e| format!("skep bench io: its job: {e}"))?;
        let transfers = skep_bench::transfers(&job).ok_or("skep bench io had another job")?;
        let (name, kind) = (file.display(), if load.write { "write" } else { "read" });
        let mut text = format!("fio version 2 iolog\n{name} add\n{name} open\n");
        for (offset, length) in transfers {
            let _ = writeln!(text, "{name} {kind} {offset} {length}");
        }
        std::fs::write(order, text).map_err(|e| format!("{}: {e}", order.display()))
    }

    /// One run of fio; it goes through its file in this order where the load is a random one.
    pub fn fio(&self, file: &Path, load: &Load, order: &Path) -> Result<Sample, String> {
        let mut command = Command::new("fio");
        command.args(Self::fio_words(load, &file.display().to_string(), &order.display().to_string()));
        let text = answer(command)?;
        let json = text.find('{').and_then(|at| serde_json::from_str::<Value>(&text[at..]).ok());
        let side = if load.write { "write" } else { "read" };
        let side = json.as_ref().map(|json| &json["jobs"][0][side]).ok_or("fio printed no JSON")?;
        let moved = side["io_bytes"].as_u64().unwrap_or(0);
        if moved != load.mib << 20 {
            return Err(format!("fio moved {moved} bytes instead of {} MiB", load.mib));
        }
        let rate = side["bw_bytes"].as_f64().filter(|rate| *rate > 0.0).ok_or("fio printed no rate")?;
        let p50 = side["clat_ns"]["percentile"]["50.000000"].as_f64().unwrap_or(0.0);
        if load.makes {
            std::fs::remove_file(file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(Sample { rate, p50_us: p50 / 1e3 })
    }

    fn ours_json(&self, file: &Path, load: &Load) -> Result<Value, String> {
        let mut command = Command::new(&self.skep);
        command.args(Self::our_words(load, &file.display().to_string()));
        serde_json::from_str(&answer(command)?).map_err(|e| format!("skep bench io: {e}"))
    }

    /// One run of the program under test.
    pub fn ours(&self, file: &Path, load: &Load) -> Result<Sample, String> {
        let json = self.ours_json(file, load)?;
        let phase = &json[0]["phases"][0];
        let rate = phase["bytes_per_second"]["mean"].as_f64().ok_or("skep bench io printed no rate")?;
        let p50_us = phase["latency"]["p50_us"].as_f64().unwrap_or(0.0);
        Ok(Sample { rate, p50_us })
    }
}

fn answer(mut command: Command) -> Result<String, String> {
    let name = format!("{command:?}");
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every load says the same to both tools.
    #[test]
    fn same_words() {
        let tools = Tools { skep: PathBuf::from("skep") };
        let all: Vec<Load> = [Place::Ext4, Place::Tmpfs].into_iter().flat_map(loads).collect();
        assert!(NAMES.iter().all(|name| all.iter().any(|load| load.name == *name)));
        for load in &all {
            let [fio, ours] = tools.commands(load);
            assert_eq!(fio.contains("--direct=1"), ours.contains("--direct"), "{}", load.name);
            assert_eq!(fio.contains("rand"), ours.contains("random-"), "{}", load.name);
            assert_eq!(fio.contains("--read_iolog=ORDER"), load.random && !load.lean, "{}", load.name);
            assert_eq!(fio.contains("--invalidate=1"), ours.contains("--invalidate"), "{}", load.name);
            assert_eq!(fio.contains("dsync"), ours.contains("--sync data"), "{}", load.name);
            assert_eq!(fio.contains("--gtod_reduce=1"), load.name.contains("leanest"), "{}", load.name);
            if let Some((usual, _)) = load.name.split_once(", leanest") {
                let usual = all.iter().find(|other| other.name == usual && other.mib == load.mib).unwrap();
                let (lean, order) =
                    ("--gtod_reduce=1 --random_generator=lfsr", "--read_iolog=ORDER --replay_no_stall=1");
                assert_eq!(fio.replace(lean, order), tools.commands(usual)[0], "{}", load.name);
            }
            assert!(
                ours.contains(&format!("--transfer {}", load.bytes))
                    && fio.contains(&format!("--bs={}", load.bytes))
            );
        }
    }
}

//! `cargo xtask bench-fio`: `skep bench io` beside fio, on the same files of the same file systems.
//!
//! A pair is one run of each, in turning order; the machine's moods hit both. What differs by more than
//! 5 % and by more than chance is a fault of one of the two, or of this comparison: the page says which.

mod ground;
mod page;
mod tool;

use ground::{Ground, Place};
use serde::{Deserialize, Serialize};
use skep_bench::significance::{median, paired_ratio};
use std::path::{Path, PathBuf};
use tool::{Load, Sample, Tools};

/// A difference of medians below this is none.
const SAME: f64 = 0.05;
/// An interval of the ratio that holds 1 counts when it is no wider than this.
const NARROW: f64 = 0.10;
/// Fewer pairs show nothing.
const PAIRS_MIN: usize = 10;
/// Shown of a SHA-256.
const HASH_DIGITS: usize = 12;

/// Skep frees a removed file in the background; the next run waits until that is over. The tools need different
/// times to start, so without it one of them is hit more often. In memory nobody waits: a virtual machine may give
/// idle memory back to its host, and who writes next pays for getting it again.
const SETTLE: std::time::Duration = std::time::Duration::from_secs(1);

/// What to compare and where.
#[derive(clap::Args)]
pub struct Arguments {
    /// Pairs of runs of each load.
    #[arg(long, default_value_t = 12)]
    pairs: usize,
    /// On which file systems.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tmpfs,ext4,skep")]
    place: Vec<Place>,
    /// Only loads whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    filter: Vec<String>,
    /// Where files, images and clusters live.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// In the real-time class: keeps other work of the machine out (root).
    #[arg(long)]
    realtime: bool,
    /// A release build made before [default: build one].
    #[arg(long)]
    program: Option<PathBuf>,
    /// The results; rows measured again replace those that are there.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Make the table of this page anew from the JSON.
    #[arg(long, requires = "json")]
    page: Option<PathBuf>,
}

/// One load on one file system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Where.
    pub place: String,
    /// What.
    pub load: String,
    /// Pairs.
    pub pairs: usize,
    /// How both were run.
    pub class: String,
    /// When, on what, and with which programs.
    pub provenance: String,
    /// Median bytes per second.
    pub fio: f64,
    /// Median bytes per second.
    pub skep: f64,
    /// Median of the median latencies, microseconds.
    pub fio_p50_us: f64,
    /// Median of the median latencies, microseconds.
    pub skep_p50_us: f64,
    /// Ratio of the medians, skep bench over fio.
    pub ratio: f64,
    /// The 95 % interval of the ratio, from the pairs.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Every pair's ratio.
    pub ratios: Vec<f64>,
    /// The command lines.
    pub commands: [String; 2],
}

impl Row {
    /// Whether the two agree.
    pub fn agrees(&self) -> bool {
        let near = (self.ratio - 1.0).abs() < SAME;
        let even = self.low <= 1.0 && self.high >= 1.0 && self.high - self.low < NARROW;
        self.pairs >= PAIRS_MIN && (near || even)
    }
}

/// What is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// The rows.
    pub rows: Vec<Row>,
}

/// Compares, and writes what came out.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => crate::program::built(root, "skep", true)?,
    };
    if arguments.realtime {
        crate::bench::realtime()?;
    }
    let tools = Tools { skep: program };
    let mut results = read(arguments.json.as_deref())?;
    let provenance = provenance(&tools)?;
    for place in &arguments.place {
        let loads: Vec<Load> = tool::loads(*place)
            .into_iter()
            .filter(|load| {
                arguments.filter.is_empty()
                    || arguments.filter.iter().any(|part| load.name.contains(part.as_str()))
            })
            .collect();
        if loads.is_empty() {
            continue;
        }
        let ground = Ground::prepare(*place, &tools.skep, &arguments.backing)?;
        for load in &loads {
            let row = Row { provenance: provenance.clone(), ..compare(&tools, &ground, load, arguments)? };
            println!("{}", page::line(&row));
            results.rows.retain(|other| (&other.place, &other.load) != (&row.place, &row.load));
            results.rows.push(row);
            write(arguments, &mut results)?;
        }
    }
    write(arguments, &mut results)?;
    Ok(results.rows.iter().all(Row::agrees))
}

fn compare(tools: &Tools, ground: &Ground, load: &Load, arguments: &Arguments) -> Result<Row, String> {
    let file = ground.directory.join("data");
    if !load.makes {
        tools.lay_out(&file, load)?;
    }
    if load.random {
        tools.write_order(&ground.order, &file, load)?;
    }
    let mut samples: [Vec<Sample>; 2] = [Vec::new(), Vec::new()];
    // The first pair warms up and does not count.
    for pair in 0..=arguments.pairs {
        for turn in 0..2 {
            let which = (pair + turn) % 2;
            if load.makes && ground.place == Place::Skep {
                std::thread::sleep(SETTLE);
            }
            let sample =
                if which == 0 { tools.fio(&file, load, &ground.order)? } else { tools.ours(&file, load)? };
            if pair > 0 {
                samples[which].push(sample);
            }
        }
    }
    // Not there after loads that make their own.
    let _ = std::fs::remove_file(&file);
    let rates = |which: usize| samples[which].iter().map(|sample| sample.rate).collect::<Vec<_>>();
    let p50 = |which: usize| median(&samples[which].iter().map(|sample| sample.p50_us).collect::<Vec<_>>());
    let (fio, skep) = (rates(0), rates(1));
    let interval = paired_ratio(&fio, &skep).ok_or("a run moved nothing")?;
    let (middle_fio, middle_skep) = (median(&fio).unwrap_or(0.0), median(&skep).unwrap_or(0.0));
    Ok(Row {
        place: ground.place.name().to_owned(),
        load: load.name.to_owned(),
        pairs: fio.len(),
        class: if arguments.realtime { "real-time" } else { "normal" }.to_owned(),
        provenance: String::new(),
        fio: middle_fio,
        skep: middle_skep,
        fio_p50_us: p50(0).unwrap_or(0.0),
        skep_p50_us: p50(1).unwrap_or(0.0),
        ratio: middle_skep / middle_fio,
        low: interval.low,
        high: interval.high,
        ratios: fio.iter().zip(&skep).map(|(a, b)| (b / a * 1000.0).round() / 1000.0).collect(),
        commands: tools.commands(load),
    })
}

/// The day, the machine, and both programs: rows that were measured at different times are told apart.
fn provenance(tools: &Tools) -> Result<String, String> {
    let output = |name: &str, argument: &str| {
        let output = std::process::Command::new(name).arg(argument).output();
        output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).map_err(|e| format!("{name}: {e}"))
    };
    let day = output("date", "-uI")?;
    let sum = output("sha256sum", &tools.skep.display().to_string())?;
    let sum: String = sum.chars().take(HASH_DIGITS).collect();
    Ok(format!("{}: {}, skep (SHA-256 {sum})", day.trim(), machine(tools)?))
}

fn machine(tools: &Tools) -> Result<String, String> {
    let system = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map(|(_, name)| name.trim());
    let release = system.release().to_string_lossy();
    Ok(format!(
        "{cores} cores of {}, Linux {release}, {}",
        cpu.unwrap_or("an unknown processor"),
        tools.fio_version()?
    ))
}

fn read(json: Option<&Path>) -> Result<Results, String> {
    let Some(path) = json else { return Ok(Results::default()) };
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Results::default()),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

fn write(arguments: &Arguments, results: &mut Results) -> Result<(), String> {
    let order = |row: &Row| (row.place.clone(), tool::NAMES.iter().position(|name| **name == *row.load));
    results.rows.sort_by_key(order);
    let Some(path) = &arguments.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&results).map_err(|e| e.to_string())? + "\n";
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    match &arguments.page {
        Some(page) => page::update(page, results),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn row(ratio: f64, low: f64, high: f64) -> Row {
        Row {
            place: "tmpfs".to_owned(),
            load: "read 1 MiB".to_owned(),
            pairs: 12,
            class: "normal".to_owned(),
            provenance: "today".to_owned(),
            fio: 1e9,
            skep: ratio * 1e9,
            fio_p50_us: 1.0,
            skep_p50_us: 1.0,
            ratio,
            low,
            high,
            ratios: vec![ratio; 12],
            commands: ["fio".to_owned(), "skep".to_owned()],
        }
    }

    /// Goal: near medians agree, and so does a narrow interval that holds 1; nothing else does.
    #[test]
    fn agreement() {
        assert!(row(1.04, 1.02, 1.06).agrees());
        assert!(row(0.94, 0.93, 1.02).agrees());
        assert!(!row(0.94, 0.90, 1.02).agrees());
        assert!(!row(1.08, 1.05, 1.11).agrees());
        assert!(!Row { pairs: 9, ..row(1.0, 0.99, 1.01) }.agrees());
    }

    /// Goal: the committed page is made of the committed results, and those of enough pairs that give its figures.
    #[test]
    fn committed() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/bench");
        let results = read(Some(&docs.join("fio.json"))).unwrap();
        assert!(results.rows.len() >= 29, "{} rows", results.rows.len());
        for row in &results.rows {
            assert!(row.pairs >= PAIRS_MIN && row.ratios.len() == row.pairs, "{}: {}", row.place, row.load);
            let middle = median(&row.ratios).unwrap();
            assert!(row.low <= middle * 1.05 && middle <= row.high * 1.05, "{}: {}", row.place, row.load);
            assert!((row.ratio - row.skep / row.fio).abs() < 1e-9 && !row.provenance.is_empty());
        }
        let page = std::fs::read_to_string(docs.join("fio.md")).unwrap();
        assert!(page.contains(&page::table(&results)), "cargo xtask bench-fio --json --page writes it");
    }
}

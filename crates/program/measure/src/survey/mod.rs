//! `skep survey`: the whole system, layer by layer. Rules, judgement and report are in the crate `skep-survey`; here
//! is what reaches daemons and mounts.

mod agents;
mod at_once;
mod commands;
mod compare;
mod disks;
mod document;
mod facts;
mod interrupt;
mod load;
mod log;
mod members;
mod paths;
mod preset;
mod processor;
mod reach;
mod rounds;
pub mod sweep;
mod theory;

use crate::bench::HostsArgs;
use clap::{Args, Subcommand, ValueEnum};
use commands::Lines;
use members::Members;
use preset::{Preset, PresetName};
use skep_base::access::AccessArgs;
use skep_base::mounted;
use skep_base::output::OutputArgs;
use skep_base::{Failure, Outcome};
use skep_survey::model::{Absent, LARGE_STUCK, Layer, LayerId, Spread, Survey, Verdict};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of `compare` when something became significantly worse.
const EXIT_WORSE: u8 = 3;

/// What was asked.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SurveyArgs {
    #[command(subcommand)]
    command: Option<SurveyCommand>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum SurveyCommand {
    /// Say what changed significantly between two surveys; exit code 3 when something became worse
    Compare(CompareArgs),
    /// Search for the best settings of a stream by measurement
    Sweep(sweep::SweepArgs),
}

/// Flags of `skep survey`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// How much is measured
    #[arg(long, value_enum, default_value_t)]
    preset: PresetName,
    /// Where survey.json, report.html and report.pdf are put
    /// [default: skep-survey-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write over the survey that is there already
    #[arg(long, requires = "out")]
    force: bool,
    /// Only these layers, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LAYER")]
    only: Vec<LayerName>,
    /// A mount of the cluster, for the layers of clients [default: the first one of this machine]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Have this program measure the layers of clients, too, if it is installed
    #[arg(long, value_enum, value_name = "PROGRAM")]
    with: Vec<load::Foreign>,
    /// What the machines are made of, in TOML, as `skep plan` reads it: the report then shows what the devices could do
    #[arg(long, value_name = "FILE")]
    hardware: Option<PathBuf>,
    /// Title of the report
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Most processes of the layers of clients [default: by the preset]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    processes: Option<u32>,
    #[command(flatten)]
    hosts: HostsArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep survey compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Earlier survey: its survey.json, or the directory with it; repetitions separated by commas
    #[arg(required = true, num_args = 1, value_delimiter = ',')]
    first: Vec<PathBuf>,
    /// Later survey, or its repetitions
    #[arg(required = true, num_args = 1, value_delimiter = ',')]
    second: Vec<PathBuf>,
    /// Show also what did not change
    #[arg(long)]
    all: bool,
    /// Compare surveys of different presets, with a warning
    #[arg(long)]
    force: bool,
    /// Write the comparison as a page, compare.html, to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// A layer, as the command line calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayerName {
    /// Processor time that every daemon gets
    Processor,
    /// Device or file system under each target
    Device,
    /// Disk under the log of every metadata server
    Log,
    /// Target through its storage daemon
    Storage,
    /// Between every pair of nodes
    Network,
    /// One client
    Client,
    /// All clients
    Clients,
    /// Names
    Metadata,
}

impl LayerName {
    fn id(self) -> LayerId {
        match self {
            Self::Processor => LayerId::Processor,
            Self::Device => LayerId::Device,
            Self::Log => LayerId::Log,
            Self::Storage => LayerId::Storage,
            Self::Network => LayerId::Network,
            Self::Client => LayerId::Client,
            Self::Clients => LayerId::Clients,
            Self::Metadata => LayerId::Metadata,
        }
    }
}

impl LayerName {
    /// Is it measured through a mount?
    fn has_clients(self) -> bool {
        matches!(self, Self::Client | Self::Clients | Self::Metadata)
    }
}

pub fn run(args: &SurveyArgs) -> ExitCode {
    let outcome = match &args.command {
        None => survey(&args.run),
        Some(SurveyCommand::Compare(args)) => compare::run(args),
        Some(SurveyCommand::Sweep(args)) => sweep::run(args),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("skep: {failure}");
        failure.exit_code()
    })
}

/// What every layer needs.
pub struct Run<'a> {
    cluster: &'a skep_base::access::Cluster,
    members: &'a Members,
    preset: Preset,
    /// Where the processes of clients run: by name, as far as they are not on this host.
    hosts: HostsArgs,
    /// How command lines are written.
    lines: Lines,
    /// Medium of each target, by its number, as the daemons tell.
    media: std::collections::BTreeMap<u32, String>,
    /// Network namespace of each daemon, by its alias, as the daemons tell.
    networks: std::collections::BTreeMap<String, String>,
    /// Who could not be measured.
    absent: Vec<Absent>,
    /// What a reader must know.
    remarks: Vec<String>,
    /// Command lines in the order in which they ran.
    commands: Vec<String>,
}

impl Run<'_> {
    fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        // What fails because it was interrupted is no news.
        if !interrupt::came() {
            eprintln!("  note: {text}");
        }
        self.remarks.push(text);
    }

    /// Members that should have been measured in a layer and could not be: a finding each.
    fn missing(&mut self, layer: LayerId, failed: Vec<(String, String)>) {
        for (name, why) in failed {
            if self.absent.iter().any(|known| known.name == name) {
                continue;
            }
            // Of a network that drops large packets that is the finding, whoever told it.
            let why = match why.find(LARGE_STUCK) {
                Some(at) => why[at..].to_owned(),
                None => format!("could not be measured: {why}"),
            };
            self.remark(format!("{name}: {why}"));
            self.absent.push(Absent { name, layer, why });
        }
    }
}

fn wanted(args: &RunArgs, layer: LayerName) -> bool {
    args.only.is_empty() || args.only.contains(&layer)
}

/// Whoever works below the mount must be where it was looked at.
fn with_real_mount(args: &RunArgs) -> Outcome<RunArgs> {
    let limit = args.access.timeout.duration();
    let mount = args.mount.as_deref().map(|mount| mounted::real(mount, limit)).transpose()?;
    Ok(RunArgs { mount, ..args.clone() })
}

fn survey(args: &RunArgs) -> Outcome<ExitCode> {
    let began = std::time::Instant::now();
    let started = facts::now();
    let sheet = args.hardware.as_deref().map(theory::Sheet::read).transpose()?;
    interrupt::listen()?;
    let out = document::Out::make(args.out.as_deref(), args.force, &started)?;
    let args = &with_real_mount(args)?;
    let mut cluster = args.access.connect_to(&args.access.place_or_named(args.mount.as_deref())?)?;
    cluster.require_admin("a survey")?;
    let status = cluster.status()?;
    let online = Members::of(&status).nodes;
    let stuck = reach::stuck(&cluster, &online);
    let members = Members::reached(&status, &stuck.iter().map(|(node, _)| node.node).collect::<Vec<_>>());
    let names = args.hosts.names().map_err(Failure::new)?;
    let mut run = Run {
        cluster: &cluster,
        members: &members,
        preset: Preset::of(args.preset, args.processes, names.len()),
        lines: Lines::new(&args.access, &args.hosts, names.clone(), args.preset),
        hosts: HostsArgs { hosts: names, host_file: None, ..args.hosts.clone() },
        media: std::collections::BTreeMap::new(),
        networks: std::collections::BTreeMap::new(),
        absent: members.absent.clone(),
        remarks: Vec::new(),
        commands: Vec::new(),
    };
    eprintln!("looking at {} daemons and {} targets", members.nodes.len(), members.targets.len());
    for one in &members.absent {
        run.remark(format!("{}: {}", one.name, one.why));
    }
    run.missing(LayerId::Network, reach::told(&stuck));
    // A mount would wait for them for minutes, and whoever looks into it.
    let place =
        if members.cut_off.is_empty() { load::Place::find(args, status.cluster, &mut run)? } else { None };
    let machines = facts::machines(&mut run, place.as_ref());
    let settings = facts::settings(&status, place.as_ref());
    let layers = layers(args, &mut run, place.as_ref());
    if interrupt::came() {
        return Ok(interrupt::leave(&run, place));
    }
    let hosts = machines.hosts();
    let theory = theory::of(sheet.as_ref(), &hosts, &members);
    let (remarks, commands, absent) = (run.remarks, run.commands, run.absent);
    if layers.is_empty() {
        return Err(Failure::new(format!("nothing could be measured: {}", remarks.join("; "))));
    }
    let mut survey = Survey {
        format: skep_survey::model::FORMAT,
        title: args
            .title
            .clone()
            .unwrap_or_else(|| format!("Cluster of {} storage targets", members.targets.len())),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        seconds: began.elapsed().as_secs_f64(),
        preset: args.preset.as_str().to_owned(),
        commands,
        hosts,
        settings,
        parts: members.parts().into_iter().chain(machines.parts(&members.nodes)).collect(),
        absent,
        spread: place.as_ref().and_then(|place| spread(&members, &place.layout)),
        layers,
        theory,
        waterfalls: Vec::new(),
        verdict: Verdict::default(),
        remarks,
    };
    skep_survey::judge::judge(&mut survey);
    document::write(&survey, out.dir())?;
    document::show(&survey, out.dir(), args.output.output)?;
    Ok(ExitCode::SUCCESS)
}

/// Over how many targets the files of a directory spread, as its layout tells; none when it does not.
fn spread(members: &Members, layout: &str) -> Option<Spread> {
    let asked = layout.split(' ').find_map(|word| word.strip_prefix("targets="))?;
    let takes = members.that_take_files(layout) as u32;
    // Where the file system decides, large files reach all of them.
    let per_file = if asked == "auto" { takes } else { asked.parse::<u32>().ok()?.min(takes) };
    let targets = members.targets.len() as u32;
    (per_file > 0 && targets > 0).then_some(Spread { per_file, targets })
}

/// Every layer from the bottom; one that cannot be measured is a remark.
fn layers(args: &RunArgs, run: &mut Run<'_>, place: Option<&load::Place>) -> Vec<Layer> {
    type Measure = fn(&mut Run<'_>, Option<&load::Place>, &RunArgs) -> Outcome<Layer>;
    let all: [(LayerName, &str, Measure); 8] = [
        (LayerName::Processor, "processor time of every daemon", |run, _, _| processor::measure(run)),
        (LayerName::Device, "device under every target", |run, _, _| disks::measure(run, LayerId::Device)),
        (LayerName::Log, "disk under the log of every metadata server", |run, place, _| {
            log::measure(run, place)
        }),
        (LayerName::Storage, "every target through its daemon", |run, _, _| {
            disks::measure(run, LayerId::Storage)
        }),
        (LayerName::Network, "network between every pair", |run, _, _| paths::measure(run)),
        (LayerName::Client, "one client", |run, place, _| load::client(run, load::need(place)?)),
        (LayerName::Clients, "all clients", |run, place, args| load::clients(run, load::need(place)?, args)),
        (LayerName::Metadata, "names", |run, place, args| load::metadata(run, load::need(place)?, args)),
    ];
    let mut layers = Vec::new();
    for (name, about, measure) in all {
        if !wanted(args, name) {
            continue;
        }
        if name.has_clients() && !run.members.cut_off.is_empty() {
            run.remark(format!(
                "{about}: not measured: large messages do not pass from here to every daemon"
            ));
            continue;
        }
        if interrupt::came() {
            break;
        }
        let began = std::time::Instant::now();
        eprintln!("{about} ...");
        match measure(run, place, args) {
            Ok(layer) => layers.push(layer),
            Err(failure) => run.remark(format!("{about}: not measured: {failure}")),
        }
        eprintln!("  {:.1} s", began.elapsed().as_secs_f64());
        debug_assert!(layers.last().is_none_or(|l| l.id <= name.id()));
    }
    layers
}

//! `skep plan propose`: from requirements to building blocks.

use super::{read_text, show, told};
use clap::{Args, ValueEnum};
use skep_base::output::{self, OutputArgs};
use skep_plan::propose::{Availability, Kind, Proposals, Requirements, Servers, propose};
use skep_plan::units::{Rate, Size, number};
use std::io::Write;
use std::path::PathBuf;

/// What was asked. A flag stands above the file.
#[derive(Debug, Default, Args)]
pub struct ProposeArgs {
    /// Requirements in TOML; - reads them from standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Streaming writes of all programs together, such as 6GB/s
    #[arg(long, value_name = "RATE")]
    write: Option<Rate>,
    /// Streaming reads
    #[arg(long, value_name = "RATE")]
    read: Option<Rate>,
    /// Random reads of 4 KiB per second
    #[arg(long, value_name = "N", value_parser = number)]
    iops: Option<f64>,
    /// Random writes of 4 KiB per second
    #[arg(long, value_name = "N", value_parser = number)]
    write_iops: Option<f64>,
    /// Files to be stored, such as 1e9 or 10G (k, M, G and T are powers of 1000)
    #[arg(long, value_name = "N", value_parser = number)]
    files: Option<f64>,
    /// Bytes of a file on average; capacity over files when not given
    #[arg(long, value_name = "SIZE")]
    file_size: Option<Size>,
    /// Part of the files that is no larger than the inline limit, 0 to 1; their contents lie in the metadata
    #[arg(long, value_name = "PART", value_parser = number)]
    small_part: Option<f64>,
    /// Bytes of one of those on average
    #[arg(long, value_name = "SIZE")]
    small_size: Option<Size>,
    /// Size up to which contents lie in the metadata; 8KiB, the most, when not given
    #[arg(long, value_name = "SIZE")]
    inline_limit: Option<Size>,
    /// Small files opened and read per second
    #[arg(long, value_name = "N", value_parser = number)]
    opens: Option<f64>,
    /// Space for their contents, such as 2PB
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Files created per second
    #[arg(long, value_name = "N", value_parser = number)]
    metadata_rate: Option<f64>,
    /// Metadata servers that share the names; as many as all that is asked for needs when not given
    #[arg(long, value_name = "N")]
    metadata_servers: Option<u32>,
    /// Groups of each, with a thread and a core each; as many as the rates need when not given
    #[arg(long, value_name = "N")]
    metadata_groups: Option<u32>,
    /// What may fail without loss: nothing, two drives of a target, a server (Skep has no mirrors in this release)
    #[arg(long, value_enum)]
    availability: Option<AvailabilityArg>,
    /// Most that it may cost; needs prices in FILE
    #[arg(long, value_name = "N", value_parser = number)]
    budget: Option<f64>,
    /// Kinds of drives that may be used
    #[arg(long, value_enum, value_delimiter = ',')]
    drives: Vec<KindArg>,
    /// Names and contents on the same servers, or apart
    #[arg(long, value_enum)]
    servers: Option<ServersArg>,
    /// Number of clients
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// Link of a client, as the catalogue names it
    #[arg(long, value_name = "KIND")]
    client_nic: Option<String>,
    /// Cores of a client, which its mount and its programs share
    #[arg(long, value_name = "N")]
    client_cores: Option<u32>,
    /// Link of a server, as the catalogue names it
    #[arg(long, value_name = "KIND")]
    server_nic: Option<String>,
    /// Alternatives to show
    #[arg(long, value_name = "N")]
    show: Option<usize>,
    /// Print the description of one alternative instead, for `skep plan`
    #[arg(long, value_name = "N")]
    description: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AvailabilityArg {
    None,
    Raid,
    Mirror,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindArg {
    Hdd,
    Ssd,
    Nvme,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ServersArg {
    Combined,
    Dedicated,
}

impl ProposeArgs {
    fn requirements(&self) -> Result<Requirements, String> {
        let read = match &self.file {
            Some(file) => {
                Requirements::parse(&file.display().to_string(), &read_text(file)?).map_err(told)?
            }
            None => Requirements::default(),
        };
        let availability = self.availability.map(|availability| match availability {
            AvailabilityArg::None => Availability::None,
            AvailabilityArg::Raid => Availability::Raid,
            AvailabilityArg::Mirror => Availability::Mirror,
        });
        let servers = self.servers.map(|servers| match servers {
            ServersArg::Combined => Servers::Combined,
            ServersArg::Dedicated => Servers::Dedicated,
        });
        let kinds = self.drives.iter().map(|kind| match kind {
            KindArg::Hdd => Kind::Hdd,
            KindArg::Ssd => Kind::Ssd,
            KindArg::Nvme => Kind::Nvme,
        });
        let drives = if self.drives.is_empty() { read.drives } else { kinds.collect() };
        Ok(Requirements {
            write: self.write.or(read.write),
            read: self.read.or(read.read),
            iops: self.iops.or(read.iops),
            write_iops: self.write_iops.or(read.write_iops),
            files: self.files.or(read.files),
            file_size: self.file_size.or(read.file_size),
            small_part: self.small_part.or(read.small_part),
            small_size: self.small_size.or(read.small_size),
            inline_limit: self.inline_limit.or(read.inline_limit),
            opens: self.opens.or(read.opens),
            capacity: self.capacity.or(read.capacity),
            metadata_rate: self.metadata_rate.or(read.metadata_rate),
            metadata_servers: self.metadata_servers.or(read.metadata_servers),
            metadata_groups: self.metadata_groups.or(read.metadata_groups),
            availability: availability.unwrap_or(read.availability),
            budget: self.budget.or(read.budget),
            drives,
            servers: servers.or(read.servers),
            clients: self.clients.or(read.clients),
            client_cores: self.client_cores.or(read.client_cores),
            client_nic: self.client_nic.clone().unwrap_or(read.client_nic),
            server_nic: self.server_nic.clone().or(read.server_nic),
            show: self.show.unwrap_or(read.show),
            ..read
        })
    }
}

pub fn run(args: &ProposeArgs) -> Result<(), String> {
    let found = propose(&args.requirements()?).map_err(|lines| lines.join("\n"))?;
    match args.description {
        Some(number) => describe(&found, number),
        None => show(&[found], &args.output, Proposals::text),
    }
}

fn describe(found: &Proposals, number: usize) -> Result<(), String> {
    let all = found.proposals.len();
    let proposal = number.checked_sub(1).and_then(|at| found.proposals.get(at));
    let proposal = proposal.ok_or_else(|| format!("no alternative {number}: there are 1 to {all}"))?;
    let text = toml::to_string(&proposal.hardware).map_err(|e| e.to_string())?;
    output::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        propose: ProposeArgs,
    }

    fn requirements(words: &[&str]) -> Requirements {
        let line = Line::try_parse_from(std::iter::once(&"propose").chain(words)).expect("flags");
        line.propose.requirements().expect("requirements")
    }

    /// Goal: flags are read with their units, and stand above the file.
    #[test]
    fn flags() {
        let read = requirements(&["--write", "6GB/s", "--capacity", "2PB", "--drives", "hdd,nvme"]);
        assert_eq!(read.write, Some(Rate::gb(6.0)));
        assert_eq!(read.capacity, Some(Size(2_000_000_000_000_000)));
        assert_eq!(read.drives, [Kind::Hdd, Kind::Nvme]);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("needs.toml");
        std::fs::write(&file, "write = \"1 GB/s\"\nfiles = 1e9\navailability = \"mirror\"\n").unwrap();
        let read = requirements(&[file.to_str().unwrap(), "--write", "2GB/s", "--metadata-groups", "4"]);
        assert_eq!((read.metadata_servers, read.metadata_groups), (None, Some(4)));
        assert_eq!((read.write, read.files), (Some(Rate::gb(2.0)), Some(1e9)));
        assert_eq!(read.availability, Availability::Mirror);
    }

    /// Goal: counts are read with their letters, and what is none says what to write; a file's faults have their line.
    #[test]
    fn counts() {
        let read =
            requirements(&["--files", "10G", "--metadata-rate", "5k", "--iops", "1.5M", "--budget", "2M"]);
        assert_eq!((read.files, read.metadata_rate), (Some(1e10), Some(5e3)));
        assert_eq!((read.iops, read.budget), (Some(1.5e6), Some(2e6)));
        let error = Line::try_parse_from(["propose", "--files", "10Q"]).expect_err("no number").to_string();
        assert!(error.contains("write a number such as 1e9, 10G or 5k"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("needs.toml");
        std::fs::write(&file, "write = \"1 GB/s\"\nshow = -1\n").unwrap();
        let line = Line::try_parse_from(["propose", file.to_str().unwrap()]).expect("flags");
        let error = line.propose.requirements().expect_err("a fault");
        assert!(error.contains("needs.toml:2: show: ") && error.contains("write a whole number"), "{error}");
    }

    /// Goal: sizes of files, opens and cores of clients are read, above those of the file.
    #[test]
    fn sizes_of_files() {
        let read = requirements(&[
            "--files",
            "5G",
            "--file-size",
            "4kB",
            "--small-part",
            "0.5",
            "--small-size",
            "1kB",
            "--inline-limit",
            "4KiB",
            "--opens",
            "5k",
            "--client-cores",
            "32",
        ]);
        assert_eq!(
            (read.file_size, read.small_part, read.small_size),
            (Some(Size(4000)), Some(0.5), Some(Size(1000)))
        );
        assert_eq!(
            (read.inline_limit, read.opens, read.client_cores),
            (Some(Size(4096)), Some(5e3), Some(32))
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("needs.toml");
        std::fs::write(&file, "files = 1e9\nfile_size = \"1 MB\"\nopens = 10\n[models]\nhdd = \"hdd\"\n")
            .unwrap();
        let read = requirements(&[file.to_str().unwrap(), "--opens", "20"]);
        assert_eq!(
            (read.file_size, read.opens, read.models.hdd.as_str()),
            (Some(Size(1_000_000)), Some(20.0), "hdd")
        );
    }

    /// Goal: a description is written with units that people use, and is read back as it was.
    #[test]
    fn description() {
        let found = propose(&requirements(&["--write", "40GB/s"])).expect("proposals");
        let hardware = &found.proposals[0].hardware;
        let text = toml::to_string(hardware).expect("a description");
        assert!(text.contains(" GiB\"") && text.contains("chunk = \"1 MiB\""), "{text}");
        let bytes = text.lines().filter(|line| line.ends_with("0 B\"") || line.ends_with("0 B/s\"")).count();
        assert_eq!(bytes, 0, "{text}");
        let back = skep_plan::hardware::Hardware::from_toml("x", &text).expect("a description");
        assert_eq!(&back, hardware);
    }
}

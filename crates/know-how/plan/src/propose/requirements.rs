//! What a system has to do: TOML, or flags of the command.

use super::search::SERVERS_MAX;
use crate::catalogue::{Catalogue, Costs};
use crate::check::{self, PARTS_MAX};
use crate::forward::small::{INLINE_MAX, inline_limit, open_us};
use crate::forward::{Direction, client};
use crate::hardware::{Clients, Files, Hardware, METADATA_GROUPS_MAX, Overrides, Prices, Software};
use crate::load::{self, Fault};
use crate::measured::{shared_per_second, shipped};
use crate::units::{Rate, Size};
use serde::{Deserialize, Serialize};

/// Most clients that are planned for.
pub const CLIENTS_MAX: u32 = 1_000_000;
/// Most alternatives that are shown.
pub const SHOWN_MAX: usize = 12;

/// What is asked for; what is left out is not asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Requirements {
    /// What the system is called.
    pub name: String,
    /// Streaming writes of all programs together, a file each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Rate>,
    /// Streaming reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Rate>,
    /// Random reads of 4 KiB per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Random writes of 4 KiB per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<f64>,
    /// Files that are to be stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<f64>,
    /// Bytes of a file on average; capacity over files when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<Size>,
    /// Part of the files that is no larger than the inline limit; all of them or none, by the mean, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_part: Option<f64>,
    /// Bytes of one of those on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_size: Option<Size>,
    /// Size up to which Skep keeps contents in the metadata; 8 KiB when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline_limit: Option<Size>,
    /// Small files opened and read per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens: Option<f64>,
    /// Space for their contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Size>,
    /// Files created per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_rate: Option<f64>,
    /// What may fail without loss.
    pub availability: Availability,
    /// Most that it may cost; needs prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Kinds of drives that may be used; all when empty.
    pub drives: Vec<Kind>,
    /// Drives of each kind, by their names in the catalogue.
    pub models: Models,
    /// Component rates that differ from the catalogue's, as in a description.
    #[serde(skip_serializing_if = "Overrides::is_empty")]
    pub catalogue: Overrides,
    /// One kind of server for everything, or metadata apart; both are proposed when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<Servers>,
    /// Clients; as many as the throughput needs when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// The link of a client.
    pub client_nic: String,
    /// Cores of a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cores: Option<u32>,
    /// The link of a server; the slowest of the catalogue's that does not limit its drives when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_nic: Option<String>,
    /// The file system.
    pub software: Software,
    /// Skep: metadata servers that share the names; as many as what is asked for needs when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_servers: Option<u32>,
    /// Skep: groups of each; as many as the rates need, and its cores run, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_groups: Option<u32>,
    /// What things cost; servers by the names of the building blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Alternatives to show.
    pub show: usize,
}

/// What may fail without loss of data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Availability {
    /// Nothing: scratch space.
    None,
    /// Two drives of a target.
    #[default]
    Raid,
    /// A server: every chunk is on two.
    Mirror,
}

/// Kinds of drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Spinning.
    Hdd,
    /// Flash on SAS or SATA.
    Ssd,
    /// Flash on PCIe.
    Nvme,
}

pub const KINDS: [Kind; 3] = [Kind::Hdd, Kind::Ssd, Kind::Nvme];

impl Kind {
    /// In the catalogue, and for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hdd => "hdd",
            Self::Ssd => "ssd",
            Self::Nvme => "nvme",
        }
    }
}

/// Drives that are bought, of each kind: names of the catalogue or of the requirements' own `[catalogue]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Models {
    /// Hard disks.
    pub hdd: String,
    /// Flash on SAS or SATA.
    pub ssd: String,
    /// Flash on PCIe.
    pub nvme: String,
}

impl Default for Models {
    fn default() -> Self {
        Self { hdd: "hdd-24tb".to_owned(), ssd: "ssd-sata".to_owned(), nvme: "nvme-gen4".to_owned() }
    }
}

impl Models {
    /// The drive of a kind.
    pub fn of(&self, kind: Kind) -> &str {
        match kind {
            Kind::Hdd => &self.hdd,
            Kind::Ssd => &self.ssd,
            Kind::Nvme => &self.nvme,
        }
    }
}

/// Which services share a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Servers {
    /// Every server holds names and contents.
    Combined,
    /// Names have servers of their own.
    Dedicated,
}

impl Default for Requirements {
    fn default() -> Self {
        Self {
            name: "proposal".to_owned(),
            write: None,
            read: None,
            iops: None,
            write_iops: None,
            files: None,
            file_size: None,
            small_part: None,
            small_size: None,
            inline_limit: None,
            opens: None,
            capacity: None,
            metadata_rate: None,
            availability: Availability::Raid,
            budget: None,
            drives: Vec::new(),
            servers: None,
            clients: None,
            client_nic: "100gbe".to_owned(),
            client_cores: None,
            models: Models::default(),
            catalogue: Overrides::default(),
            server_nic: None,
            software: Software::Skep,
            metadata_servers: None,
            metadata_groups: None,
            prices: None,
            show: 6,
        }
    }
}

impl Requirements {
    /// From TOML; `file` is what faults call it.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Fault>> {
        load::read(file, text)
    }

    /// Kinds of drives that may be used.
    pub fn kinds(&self) -> Vec<Kind> {
        KINDS.into_iter().filter(|kind| self.drives.is_empty() || self.drives.contains(kind)).collect()
    }

    /// What no hardware can do, or makes no sense, each in a sentence.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        self.numbers(&mut wrong);
        self.names(&mut wrong);
        self.software(&mut wrong);
        self.money(&mut wrong);
        wrong
    }

    fn numbers(&self, wrong: &mut Vec<String>) {
        let rates = [("write", self.write), ("read", self.read)].map(|(n, r)| (n, r.map(|rate| rate.0)));
        let others = [
            ("iops", self.iops),
            ("write_iops", self.write_iops),
            ("files", self.files),
            ("capacity", self.capacity.map(Size::bytes)),
            ("metadata_rate", self.metadata_rate),
            ("opens", self.opens),
            ("budget", self.budget),
        ];
        let all = || rates.iter().chain(&others);
        for (name, value) in all() {
            if value.is_some_and(|value| !value.is_finite() || value <= 0.0) {
                wrong.push(format!("{name}: must be above 0; leave it out when it does not matter"));
            }
        }
        if all().all(|(name, value)| *name == "budget" || value.is_none()) {
            wrong.push(
                "nothing is required: give some of write, read, iops, write_iops, files, capacity, metadata_rate, opens".into(),
            );
        }
        self.sizes(wrong);
        if self.clients.is_some_and(|clients| clients == 0 || clients > CLIENTS_MAX) {
            wrong.push(format!("clients: must be from 1 to {CLIENTS_MAX}"));
        }
        if self.show == 0 || self.show > SHOWN_MAX {
            wrong.push(format!("show: must be from 1 to {SHOWN_MAX}"));
        }
    }

    /// Sizes of files that cannot be.
    fn sizes(&self, wrong: &mut Vec<String>) {
        let given = [
            ("file_size", self.file_size.is_some()),
            ("small_part", self.small_part.is_some()),
            ("small_size", self.small_size.is_some()),
        ];
        for (field, given) in given {
            if given && self.files.is_none() {
                wrong.push(format!("{field}: of how many files? Give files as well, or leave it out"));
            }
        }
        if self.files.is_some()
            && self.stored().is_none()
            && (self.small_part.is_some() || self.small_size.is_some())
        {
            wrong.push(
                "small_part: of what size are the others? Give file_size, the mean of all files, or capacity"
                    .into(),
            );
        }
        let limit = match self.inline_limit {
            Some(_) if self.software != Software::Skep => {
                wrong.push("inline_limit: only Skep keeps contents in the metadata: leave it out".into());
                return;
            }
            Some(limit) if limit.0 > INLINE_MAX => {
                wrong.push(format!("inline_limit: {limit}: Skep takes 8 KiB at most, write 0 B to 8 KiB"));
                return;
            }
            own => inline_limit(self.software, own),
        };
        let Some(files) = self.stored() else { return };
        for (field, message) in files.wrong(limit) {
            // `files` itself was looked at with the other numbers.
            match field {
                "count" if self.files.is_some_and(|files| files <= 0.0) => {}
                "count" => wrong.push(format!("files: {message}")),
                "mean_size" => wrong.push(format!("file_size: {message}")),
                other => wrong.push(format!("{other}: {message}")),
            }
        }
    }

    /// The files that are to be stored, where their mean size is known.
    pub fn stored(&self) -> Option<Files> {
        let count = self.files.filter(|files| *files > 0.0)?;
        let mean = self.capacity.map(|capacity| Size(((capacity.bytes() / count) as u64).max(1)));
        let mean_size = self.file_size.or(mean)?;
        Some(Files { count, mean_size, small_part: self.small_part, small_size: self.small_size })
    }

    /// Bytes that the storage targets must hold. What was said to lie in the metadata is no part of it; what follows
    /// only from the mean of all files is: behind a mean of 4 kB may stand a few large files.
    pub fn contents(&self) -> Option<f64> {
        let limit = inline_limit(self.software, self.inline_limit);
        let said = self.file_size.is_some() || self.small_part.is_some();
        let contents = match (self.capacity, self.stored()) {
            (Some(capacity), Some(files)) if said => {
                (capacity.bytes() - files.count * files.inline(limit)).max(files.elsewhere(limit))
            }
            (Some(capacity), _) => capacity.bytes(),
            (None, Some(files)) => files.elsewhere(limit),
            (None, None) => return None,
        };
        Some(contents).filter(|contents| *contents > 0.0)
    }

    fn names(&self, wrong: &mut Vec<String>) {
        wrong.extend(check::overrides(&self.catalogue).into_iter().map(|problem| problem.to_string()));
        let own = self.rates();
        let Some(catalogue) = Catalogue::of(&own) else { return };
        let names = catalogue.nic_names().join(", ");
        let nics = [("client_nic", Some(&self.client_nic)), ("server_nic", self.server_nic.as_ref())];
        for (field, nic) in nics {
            if let Some(nic) = nic
                && catalogue.nic(nic).is_none()
            {
                wrong.push(format!("{field}: no link {nic:?} in the catalogue: write one of {names}"));
            }
        }
        for kind in self.kinds() {
            let model = self.models.of(kind);
            if catalogue.drive(model).is_none() {
                wrong.push(format!(
                    "models.{}: {model:?} is no drive of the catalogue, or lacks read or write: write one of {}, or give \
                     both rates in [catalogue.drives.{model}]",
                    kind.name(),
                    catalogue.drive_names().join(", ")
                ));
            }
        }
        self.clients_carry(wrong, &own, &catalogue);
    }

    /// A description with nothing but the rates and the clients of these requirements.
    pub fn rates(&self) -> Hardware {
        let nic = self.client_nic.clone();
        let clients =
            Clients { count: 1, nic, nics: 1, cores: self.client_cores, memory: None, stream: None };
        Hardware {
            software: self.software,
            catalogue: self.catalogue.clone(),
            clients,
            ..Hardware::default()
        }
    }

    /// Clients that were given and carry too little, whatever the servers do.
    fn clients_carry(&self, wrong: &mut Vec<String>, own: &Hardware, catalogue: &Catalogue<'_>) {
        if self.client_cores.is_some_and(|cores| cores == 0 || cores > PARTS_MAX) {
            wrong.push(format!("client_cores: must be from 1 to {PARTS_MAX}"));
            return;
        }
        let Some(clients) = self.clients else { return };
        let ways = [("write", self.write, Direction::Write), ("read", self.read, Direction::Read)];
        for (field, rate, direction) in ways {
            let one = client::one(own, catalogue, direction);
            let most = f64::from(clients) * one.rate.0;
            if let Some(rate) = rate
                && most > 0.0
                && rate.0 > most
            {
                wrong.push(format!(
                    "{field}: {rate} is more than {clients} clients with a {} link carry ({}; each {}: {}): no servers \
                     change that; more clients, or client_nic and client_cores",
                    self.client_nic,
                    Rate(most),
                    one.rate,
                    one.why
                ));
            }
        }
    }

    fn software(&self, wrong: &mut Vec<String>) {
        let costs = Costs::of(self.software);
        let unknown = [
            ("iops", self.iops.is_some() && costs.random_reads_per_core.is_none()),
            ("write_iops", self.write_iops.is_some() && costs.random_writes_per_core.is_none()),
            ("metadata_rate", self.metadata_rate.is_some() && costs.creates_per_core.is_none()),
            ("opens", self.opens.is_some() && self.software != Software::Skep),
        ];
        for (field, unknown) in unknown {
            if unknown {
                wrong.push(format!(
                    "{field}: nothing is known of {:?}, so nothing is proposed",
                    self.software
                ));
            }
        }
        if self.software == Software::Skep && self.availability == Availability::Mirror {
            wrong.push(
                "availability: this release of Skep has no mirroring (mirror groups come in a later one), so \
                 nothing it keeps survives the loss of a server: write raid, which survives two drives of each target, \
                 and keep a backup for the loss of a server"
                    .into(),
            );
        }
        self.shared_names(wrong);
    }

    /// Metadata servers and groups that cannot be, and rates that no number of them delivers.
    fn shared_names(&self, wrong: &mut Vec<String>) {
        let given = [
            ("metadata_servers", self.metadata_servers, SERVERS_MAX),
            ("metadata_groups", self.metadata_groups, METADATA_GROUPS_MAX),
        ];
        for (field, number, most) in given {
            match number {
                None => {}
                Some(_) if self.software != Software::Skep => {
                    wrong
                        .push(format!("{field}: only Skep deals shards to servers and groups: leave it out"));
                }
                Some(number) if number == 0 || number > most => {
                    wrong.push(format!("{field}: must be from 1 to {most}"));
                }
                Some(_) => {}
            }
        }
        let Some(us) = shipped().filter(|_| self.software == Software::Skep) else { return };
        let limit = inline_limit(self.software, self.inline_limit);
        let open = open_us(&us, self.stored().map_or(0.0, |files| files.inline(limit)));
        let rates = [
            ("metadata_rate", "creates/s", self.metadata_rate, us.create),
            ("opens", "opens/s", self.opens, open),
        ];
        let threads = f64::from(self.metadata_servers.unwrap_or(SERVERS_MAX).max(1))
            * f64::from(self.metadata_groups.unwrap_or(METADATA_GROUPS_MAX).max(1));
        for (field, what, rate, us_each) in rates {
            let most = shared_per_second(us_each, us.at_root, threads);
            let Some(rate) = rate.filter(|rate| *rate > most) else { continue };
            wrong.push(format!(
                "{field}: {rate:.0} {what} are more than {threads:.0} groups of Skep do ({most:.0}): every path begins at the \
                 root, and the one thread that has it takes {:.0} us for each (`skep plan scale` shows it). Take more \
                 metadata_servers and metadata_groups where few are given; else several clusters",
                us.at_root
            ));
        }
    }

    fn money(&self, wrong: &mut Vec<String>) {
        if self.budget.is_some() && self.prices.is_none() {
            wrong.push(
                "budget: needs prices, in [prices]; `skep plan example` shows how they are written".into(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: requirements are read as people write them, and every impossible one is named.
    #[test]
    fn read_and_refuse() {
        let read = Requirements::parse(
            "needs.toml",
            "write = \"6 GB/s\"\ncapacity = \"500 TB\"\nfiles = 1e9\navailability = \"mirror\"\nsoftware = \"beegfs\"\ndrives = [\"nvme\"]\n",
        )
        .expect("requirements");
        assert_eq!(read.write, Some(Rate::gb(6.0)));
        assert_eq!((read.availability, read.kinds()), (Availability::Mirror, vec![Kind::Nvme]));
        assert!(read.check().is_empty(), "{:?}", read.check());
        for (text, field) in [
            ("", "nothing is required"),
            ("write = \"0 GB/s\"", "write"),
            ("files = -1.0", "files"),
            ("read = \"100 GB/s\"\nclients = 2", "read"),
            ("write = \"1 GB/s\"\nclient_nic = \"carrier pigeon\"", "client_nic"),
            ("write = \"1 GB/s\"\nbudget = 10000.0", "budget"),
            ("metadata_rate = 1e6", "metadata_rate"),
            ("files = 1e9\nmetadata_servers = 0", "metadata_servers"),
            ("files = 1e9\nmetadata_groups = 17", "metadata_groups"),
            ("files = 1e9\nsoftware = \"beegfs\"\nmetadata_groups = 2", "metadata_groups"),
            ("metadata_rate = 30000.0\nmetadata_servers = 1\nmetadata_groups = 1", "metadata_rate"),
            ("write = \"1 GB/s\"\navailability = \"mirror\"", "availability"),
            ("iops = 1000.0\nsoftware = \"lustre\"", "iops"),
            ("write = \"1 GB/s\"\nshow = 0", "show"),
        ] {
            let wrong = Requirements::parse("needs.toml", text).expect(text).check();
            assert!(wrong.iter().any(|line| line.starts_with(field)), "{text}: {wrong:?}");
        }
        let faults =
            Requirements::parse("needs.toml", "show = 3\nwrites = \"6 GB/s\"\nfiles = \"10G\"").unwrap_err();
        let told: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert!(told[0].starts_with("needs.toml:2: writes: there is no key"), "{told:?}");
        assert!(
            told[1].starts_with("needs.toml:3: files: ") && told[1].contains("write a number"),
            "{told:?}"
        );
    }
}

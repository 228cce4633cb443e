//! What a system has to do: TOML, or flags of the command.

use super::blocks::{PAIRS_MAX, names};
use crate::catalogue::{Catalogue, Costs};
use crate::forward::inodes::table_part;
use crate::hardware::{Hardware, Prices, Software};
use crate::load::{self, Fault};
use crate::units::{Rate, Size, count};
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
    /// One kind of server for everything, or metadata apart; both are proposed when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<Servers>,
    /// Clients; as many as the throughput needs when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// The link of a client.
    pub client_nic: String,
    /// The link of a server; the slowest of the catalogue's that does not limit its drives when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_nic: Option<String>,
    /// The file system.
    pub software: Software,
    /// Count on all cores of all metadata servers, which this release of Skep does not use.
    pub metadata_spread: bool,
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

/// All of them.
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
            capacity: None,
            metadata_rate: None,
            availability: Availability::Raid,
            budget: None,
            drives: Vec::new(),
            servers: None,
            clients: None,
            client_nic: "100gbe".to_owned(),
            server_nic: None,
            software: Software::Skep,
            metadata_spread: false,
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
                "nothing is required: give some of write, read, iops, write_iops, files, capacity, metadata_rate".into(),
            );
        }
        if self.clients.is_some_and(|clients| clients == 0 || clients > CLIENTS_MAX) {
            wrong.push(format!("clients: must be from 1 to {CLIENTS_MAX}"));
        }
        if self.show == 0 || self.show > SHOWN_MAX {
            wrong.push(format!("show: must be from 1 to {SHOWN_MAX}"));
        }
    }

    fn names(&self, wrong: &mut Vec<String>) {
        let empty = Hardware::default();
        let Some(catalogue) = Catalogue::of(&empty) else { return };
        let names = catalogue.nic_names().join(", ");
        let nics = [("client_nic", Some(&self.client_nic)), ("server_nic", self.server_nic.as_ref())];
        for (field, nic) in nics {
            if let Some(nic) = nic
                && catalogue.nic(nic).is_none()
            {
                wrong.push(format!("{field}: no link {nic:?} in the catalogue: write one of {names}"));
            }
        }
        let (Some(clients), Some(link)) = (self.clients, catalogue.nic(&self.client_nic)) else { return };
        let most = f64::from(clients) * link.rate.0;
        for (field, rate) in [("write", self.write), ("read", self.read)] {
            if let Some(rate) = rate
                && rate.0 > most
            {
                wrong.push(format!(
                    "{field}: {rate} is more than {clients} clients with a {} link carry ({}): no servers change \
                     that; more clients, or client_nic",
                    self.client_nic,
                    Rate(most)
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
        if let (Some(files), Some((most, why))) = (self.files, self.one_server())
            && files > most
        {
            wrong.push(format!(
                "files: {} files are more than this release of Skep holds ({}: {why}): one metadata server holds all \
                 shards. Several clusters, or metadata_spread = true, which counts on the space of all metadata servers, \
                 for the day when shards are spread",
                count(files),
                count(most)
            ));
        }
        let (Some(rate), Some(most)) = (self.metadata_rate, self.one_thread()) else { return };
        if rate > most {
            wrong.push(format!(
                "metadata_rate: {rate:.0} creates/s is more than this release of Skep does ({most:.0}): one metadata \
                 server holds all shards, with one thread (`skep plan scale` shows it). metadata_spread = true \
                 counts on all its cores, for the day when shards are spread"
            ));
        }
    }

    /// Does one metadata server hold all names, however many there are, as in this release of Skep?
    pub fn names_on_one_server(&self) -> bool {
        self.software == Software::Skep && !self.metadata_spread
    }

    /// Creates per second of this release's one metadata thread, where it counts.
    pub fn one_thread(&self) -> Option<f64> {
        if !self.names_on_one_server() {
            return None;
        }
        let costs = Costs::of(self.software);
        Some(costs.creates_per_core? * costs.metadata_threads?)
    }

    /// Files that this release's one metadata server holds at most, where that counts, and the sum.
    pub fn one_server(&self) -> Option<(f64, String)> {
        if !self.names_on_one_server() {
            return None;
        }
        let best = self.kinds().into_iter().max()?;
        let group = names(best, PAIRS_MAX, self);
        let space = f64::from(PAIRS_MAX) * group.size.bytes();
        let part = table_part(self.software, &group);
        let each = Costs::of(self.software).bytes_per_file;
        let why = format!(
            "{PAIRS_MAX} pairs of {} x {}, {:.1} % of it the table of inodes, at {each:.0} bytes a file",
            best.name(),
            group.size,
            part * 100.0
        );
        Some((space * (1.0 - part) / each, why))
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
            ("files = 1e12", "files"),
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

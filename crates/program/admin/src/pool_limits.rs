//! Limits of free space on the command line and in lists.

use clap::{Args, ValueEnum};
use serde::Serialize;
use skep_base::units::Size;
use skep_wire::mgmt::{CapacityLimits, SpaceLimits};
use std::str::FromStr;

/// Letters after a number of inodes.
const MULTIPLES: [(char, u64); 4] =
    [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000), ('T', 1_000_000_000_000)];

/// A number of inodes, such as `20M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count(u64);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let multiple = MULTIPLES.iter().find_map(|(letter, n)| text.strip_suffix(*letter).map(|t| (t, *n)));
        let (digits, multiple) = multiple.unwrap_or((text, 1));
        let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(multiple));
        count.map(Self).ok_or_else(|| "write a number of inodes, such as 5000000, 500k or 20M".to_owned())
    }
}

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// They count
    On,
    /// Only the static ones count
    Off,
}

/// Flags that set limits.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Limits (those not given stay as they are)")]
pub struct LimitArgs {
    /// Targets with less free space are low: they get new files when the normal ones are too few
    /// [default: 512GiB, at most a tenth of the target]
    #[arg(long, value_name = "SIZE")]
    space_low: Option<Size>,
    /// Targets with less free space get new files last [default: 10GiB, at most a fiftieth]
    #[arg(long, value_name = "SIZE")]
    space_emergency: Option<Size>,
    /// Targets with fewer free inodes are low [default: 10M, at most a tenth]
    #[arg(long, value_name = "N")]
    inodes_low: Option<Count>,
    /// Targets with fewer free inodes get new files last [default: 1M, at most a fiftieth]
    #[arg(long, value_name = "N")]
    inodes_emergency: Option<Count>,
    /// Do the dynamic limits count, too? [default: off]
    #[arg(long, value_enum, value_name = "WHETHER")]
    dynamic: Option<Switch>,
    /// Dynamic: the free space of the normal targets differs by more than this ... [default: space-low]
    #[arg(long, value_name = "SIZE")]
    space_normal_spread: Option<Size>,
    /// ... then those with less than this are low [default: twice space-low]
    #[arg(long, value_name = "SIZE")]
    space_low_dynamic: Option<Size>,
    /// Dynamic: the free space of the low targets differs by more than this ...
    /// [default: space-emergency]
    #[arg(long, value_name = "SIZE")]
    space_low_spread: Option<Size>,
    /// ... then those with less than this come last [default: twice space-emergency]
    #[arg(long, value_name = "SIZE")]
    space_emergency_dynamic: Option<Size>,
    /// As --space-normal-spread
    #[arg(long, value_name = "N")]
    inodes_normal_spread: Option<Count>,
    /// As --space-low-dynamic
    #[arg(long, value_name = "N")]
    inodes_low_dynamic: Option<Count>,
    /// As --space-low-spread
    #[arg(long, value_name = "N")]
    inodes_low_spread: Option<Count>,
    /// As --space-emergency-dynamic
    #[arg(long, value_name = "N")]
    inodes_emergency_dynamic: Option<Count>,
}

impl LimitArgs {
    /// Was nothing given?
    pub fn is_empty(&self) -> bool {
        let none = CapacityLimits::default();
        self.over(none) == none && self.dynamic.is_none()
    }

    /// What was given, laid over what holds.
    pub fn over(&self, now: CapacityLimits) -> CapacityLimits {
        let bytes = |given: Option<Size>, now: Option<u64>| given.map(|size| size.bytes()).or(now);
        let count = |given: Option<Count>, now: Option<u64>| given.map(|count| count.0).or(now);
        CapacityLimits {
            bytes: SpaceLimits {
                low: bytes(self.space_low, now.bytes.low),
                emergency: bytes(self.space_emergency, now.bytes.emergency),
                normal_spread: bytes(self.space_normal_spread, now.bytes.normal_spread),
                low_spread: bytes(self.space_low_spread, now.bytes.low_spread),
                low_dynamic: bytes(self.space_low_dynamic, now.bytes.low_dynamic),
                emergency_dynamic: bytes(self.space_emergency_dynamic, now.bytes.emergency_dynamic),
            },
            inodes: SpaceLimits {
                low: count(self.inodes_low, now.inodes.low),
                emergency: count(self.inodes_emergency, now.inodes.emergency),
                normal_spread: count(self.inodes_normal_spread, now.inodes.normal_spread),
                low_spread: count(self.inodes_low_spread, now.inodes.low_spread),
                low_dynamic: count(self.inodes_low_dynamic, now.inodes.low_dynamic),
                emergency_dynamic: count(self.inodes_emergency_dynamic, now.inodes.emergency_dynamic),
            },
            dynamic: self.dynamic.map_or(now.dynamic, |switch| switch == Switch::On),
        }
    }
}

/// Limits in JSON; what is not set (so has its default) is null.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitRow {
    dynamic: bool,
    space_low: Option<u64>,
    space_emergency: Option<u64>,
    space_normal_spread: Option<u64>,
    space_low_spread: Option<u64>,
    space_low_dynamic: Option<u64>,
    space_emergency_dynamic: Option<u64>,
    inodes_low: Option<u64>,
    inodes_emergency: Option<u64>,
    inodes_normal_spread: Option<u64>,
    inodes_low_spread: Option<u64>,
    inodes_low_dynamic: Option<u64>,
    inodes_emergency_dynamic: Option<u64>,
}

impl LimitRow {
    /// Those of a pool.
    pub fn new(limits: &CapacityLimits) -> Self {
        let CapacityLimits { bytes, inodes, dynamic } = *limits;
        Self {
            dynamic,
            space_low: bytes.low,
            space_emergency: bytes.emergency,
            space_normal_spread: bytes.normal_spread,
            space_low_spread: bytes.low_spread,
            space_low_dynamic: bytes.low_dynamic,
            space_emergency_dynamic: bytes.emergency_dynamic,
            inodes_low: inodes.low,
            inodes_emergency: inodes.emergency,
            inodes_normal_spread: inodes.normal_spread,
            inodes_low_spread: inodes.low_spread,
            inodes_low_dynamic: inodes.low_dynamic,
            inodes_emergency_dynamic: inodes.emergency_dynamic,
        }
    }
}

/// What is set, as people read it; "default" when nothing is.
pub fn text_of(limits: &CapacityLimits) -> String {
    let mut parts = Vec::new();
    let mut part = |name: &str, value: Option<String>| parts.extend(value.map(|v| format!("{name} {v}")));
    let size = |value: Option<u64>| value.map(|value| Size(value).to_string());
    let count = |value: Option<u64>| value.map(|value| value.to_string());
    part("low", size(limits.bytes.low));
    part("emergency", size(limits.bytes.emergency));
    part("low inodes", count(limits.inodes.low));
    part("emergency inodes", count(limits.inodes.emergency));
    part("normal spread", size(limits.bytes.normal_spread));
    part("low spread", size(limits.bytes.low_spread));
    part("dynamic low", size(limits.bytes.low_dynamic));
    part("dynamic emergency", size(limits.bytes.emergency_dynamic));
    part("normal spread of inodes", count(limits.inodes.normal_spread));
    part("low spread of inodes", count(limits.inodes.low_spread));
    part("dynamic low inodes", count(limits.inodes.low_dynamic));
    part("dynamic emergency inodes", count(limits.inodes.emergency_dynamic));
    if limits.dynamic {
        parts.push("dynamic on".to_owned());
    }
    if parts.is_empty() { "default".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LimitArgs,
    }

    fn line(words: &[&str]) -> Result<LimitArgs, String> {
        Line::try_parse_from(["x"].iter().chain(words)).map(|line| line.args).map_err(|e| e.to_string())
    }

    /// Goal: what is given is laid over what holds, byte and inode limits apart; each has its place in JSON.
    #[test]
    fn flags_lie_over_what_holds() {
        assert!(line(&[]).unwrap().is_empty());
        assert!(!line(&["--dynamic", "off"]).unwrap().is_empty(), "asking for the default is asking");
        let first = line(&["--space-low", "1TiB", "--inodes-low", "20M", "--dynamic", "on"]).unwrap();
        let now = first.over(CapacityLimits::default());
        assert_eq!((now.bytes.low, now.inodes.low, now.dynamic), (Some(1 << 40), Some(20_000_000), true));
        let then = line(&["--space-emergency", "5GiB"]).unwrap().over(now);
        assert_eq!((then.bytes.low, then.bytes.emergency), (Some(1 << 40), Some(5 << 30)));
        assert_eq!(text_of(&then), "low 1TiB, emergency 5GiB, low inodes 20000000, dynamic on");
        assert_eq!(text_of(&CapacityLimits::default()), "default");
        let all: Vec<String> = (1..=6)
            .zip(["low", "emergency", "normal-spread", "low-spread", "low-dynamic", "emergency-dynamic"])
            .flat_map(|(n, name)| [format!("--space-{name}={n}"), format!("--inodes-{name}={}", n + 10)])
            .collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let json = serde_json::to_value(LimitRow::new(&line(&all).unwrap().over(CapacityLimits::default())))
            .unwrap();
        assert_eq!((&json["space_low_spread"], &json["inodes_emergency_dynamic"]), (&4.into(), &16.into()));
        assert!(json.as_object().unwrap().values().all(|value| !value.is_null()));
    }

    /// Goal: numbers of inodes are read with their letters, nonsense is told the right form.
    #[test]
    fn counts() {
        assert_eq!((Count::from_str("500k"), Count::from_str("7")), (Ok(Count(500_000)), Ok(Count(7))));
        for wrong in ["", "M", "-1", "1.5M", "99999999999T"] {
            assert!(Count::from_str(wrong).unwrap_err().contains("20M"), "{wrong}");
        }
    }
}

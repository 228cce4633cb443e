//! Sizes and rates: decimal and binary units are both read, and never confused.
//!
//! A drive of `1.6 TB` is 1.6 x 10^12 bytes, memory of `256 GiB` is 256 x 2^30. A unit that could mean
//! either (`1.6T`, a bare number) is refused: the difference is 10 % at this size.

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Unit names and their bytes, in the order in which errors list them.
const SIZE_UNITS: [(&str, f64); 11] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("PB", 1e15),
    ("KiB", KIB),
    ("MiB", MIB),
    ("GiB", GIB),
    ("TiB", TIB),
    ("PiB", TIB * 1024.0),
];
/// Units of links: networks are sold in bits per second.
const BIT_UNITS: [(&str, f64); 2] = [("Mbit", 1e6 / 8.0), ("Gbit", 1e9 / 8.0)];
/// What to write as a size.
pub const SIZE_WANTED: &str = "a size such as \"1.6 TB\" (10^12) or \"256 GiB\" (2^30)";
/// What to write as a rate.
pub const RATE_WANTED: &str = "a rate such as \"2.5 GB/s\", \"1280 MiB/s\" or \"100 Gbit/s\"";
/// Letters behind counts.
const COUNT_UNITS: [(&str, f64); 6] =
    [("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
/// 2^10.
pub const KIB: f64 = 1024.0;
/// 2^20.
pub const MIB: f64 = 1_048_576.0;
/// 2^30.
pub const GIB: f64 = 1_073_741_824.0;
/// 2^40.
pub const TIB: f64 = 1_099_511_627_776.0;
/// The largest size that is taken: beyond it a typing error is certain (8 EiB).
pub const SIZE_MAX: f64 = 9_223_372_036_854_775_808.0;

/// Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

impl Size {
    /// As a number to reckon with.
    pub fn bytes(self) -> f64 {
        self.0 as f64
    }

    /// Both units at once, `64.0 TB (58.2 TiB)`: for capacities, where they differ by 10 %.
    pub fn both(self) -> String {
        let bytes = self.bytes();
        format!("{} ({})", decimal(bytes), binary(bytes))
    }
}

impl Rate {
    /// Megabytes (10^6) per second.
    pub const fn mb(mb: f64) -> Self {
        Self(mb * 1e6)
    }

    /// Gigabytes (10^9) per second.
    pub const fn gb(gb: f64) -> Self {
        Self(gb * 1e9)
    }
}

/// Bytes with a decimal unit and three digits.
pub fn decimal(bytes: f64) -> String {
    scaled(bytes, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Bytes with a binary unit and three digits.
pub fn binary(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

fn scaled(value: f64, step: f64, names: &[&str]) -> String {
    let mut value = value;
    let mut at = 0;
    // 999.95 would be shown as 1000: the next unit then.
    while value >= step - 0.05 && at + 1 < names.len() {
        value /= step;
        at += 1;
    }
    let decimals = match value {
        v if at == 0 || v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {}", names[at])
}

/// A count with three digits: `1.88 G`, `101 k`, `24`.
pub fn count(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e12 => (v / 1e12, " T"),
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e4 => (v / 1e3, " k"),
        v => return format!("{v:.0}"),
    };
    let decimals = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}{unit}")
}

/// Seconds as people read them.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Sizes that are whole in the binary unit they would be shown in were meant that way (memory, chunks);
        // labels of drives are not.
        let unit = [GIB, MIB, KIB].into_iter().find(|unit| self.bytes() >= *unit);
        let whole = unit.is_some_and(|unit| self.bytes() % unit == 0.0);
        let text = if whole { binary(self.bytes()) } else { decimal(self.bytes()) };
        // `1.6 TB` as it stands on the label, not `1.60 TB`.
        match text.split_once(' ') {
            Some((number, unit)) if number.contains('.') => {
                write!(f, "{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => f.write_str(&text),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", decimal(self.0))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = parse(text, &SIZE_UNITS, SIZE_WANTED)?;
        if bytes >= SIZE_MAX {
            return Err(format!("{text} is more than 8 EiB: check the unit"));
        }
        Ok(Self(bytes.round() as u64))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(amount) = text.trim().strip_suffix("/s") else {
            return Err(format!("{text:?} has no \"/s\": write {RATE_WANTED}"));
        };
        let units: Vec<_> = SIZE_UNITS.into_iter().chain(BIT_UNITS).collect();
        Ok(Self(parse(amount, &units, RATE_WANTED)?))
    }
}

fn parse(text: &str, units: &[(&str, f64)], wanted: &str) -> Result<f64, String> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = (text[..split].trim(), text[split..].trim());
    let value: f64 = number.parse().map_err(|_| format!("{text:?} has no number: write {wanted}"))?;
    if !value.is_finite() || value < 0.0 {
        return Err(format!("{text:?} is not a positive amount: write {wanted}"));
    }
    match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) if value * factor > SIZE_MAX => Err(format!("{text} is too much: check the unit")),
        Some((_, factor)) => Ok(value * factor),
        None if unit.is_empty() => Err(format!("{text:?} has no unit: write {wanted}")),
        None => Err(format!("unit {unit:?} could mean more than one thing or is not known: write {wanted}")),
    }
}

/// A count, such as `10G`, `5k`, `1e9`: letters are powers of 1000, because nothing here is counted in others.
pub fn number(text: &str) -> Result<f64, String> {
    const WANTED: &str = "a number such as 1e9, 10G or 5k (k, M, G and T are powers of 1000)";
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let value: f64 = digits.trim().parse().map_err(|_| format!("{text:?} is no number: write {WANTED}"))?;
    let factor = COUNT_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let factor = factor.ok_or_else(|| format!("{unit:?} is not known behind a number: write {WANTED}"))?;
    if !(value * factor).is_finite() || value < 0.0 {
        return Err(format!("{text:?} is too much or less than nothing: write {WANTED}"));
    }
    Ok(value * factor)
}

/// The text that people would write and that is read back as the same value: `512 GiB`, `15360 GB`, else bytes.
fn exact(value: f64, shown: &str, units: &[(&str, f64)], suffix: &str) -> String {
    let read = |text: &str| {
        let (number, unit) = text.split_once(' ')?;
        let unit = unit.strip_suffix(suffix)?;
        let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
        Some(number.parse::<f64>().ok()? * factor)
    };
    if read(shown) == Some(value) {
        return shown.to_owned();
    }
    let whole = units.iter().filter(|(_, factor)| *factor <= value && value % factor == 0.0);
    match whole.max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((name, factor)) => format!("{} {name}{suffix}", value / factor),
        None => format!("{value} B{suffix}"),
    }
}

macro_rules! as_text {
    ($type:ty, $wanted:expr, $exact:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($wanted)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let exact: fn(&$type) -> String = $exact;
                serializer.serialize_str(&exact(self))
            }
        }
    };
}
#[cfg(feature = "schema")]
macro_rules! schema_of_text {
    ($type:ty, $name:literal) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }
    };
}
#[cfg(feature = "schema")]
schema_of_text!(Size, "Size");
#[cfg(feature = "schema")]
schema_of_text!(Rate, "Rate");
// What is written is read back as the same value.
as_text!(Size, SIZE_WANTED, |size| match size.bytes() {
    // Beyond 2^53 a number of its own would not be read back as the same.
    bytes if bytes as u64 == size.0 => exact(bytes, &size.to_string(), &SIZE_UNITS, ""),
    _ => format!("{} B", size.0),
});
as_text!(Rate, RATE_WANTED, |rate| exact(rate.0, &rate.to_string(), &SIZE_UNITS, "/s"));

/// Rates in answers are plain numbers of bytes per second; only descriptions carry units.
pub fn as_number<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rate.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: decimal and binary units are told apart, and bits are not bytes.
    #[test]
    fn units() {
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(size("1.6 TB"), Ok(1_600_000_000_000));
        assert_eq!(size("1TiB"), Ok(1 << 40));
        assert_eq!(size("512 B"), Ok(512));
        let rate = |text: &str| text.parse::<Rate>().map(|rate| rate.0);
        assert_eq!(rate("2.5 GB/s"), Ok(2.5e9));
        assert_eq!(rate("100 Gbit/s"), Ok(12.5e9));
        assert_eq!(rate("1280 MiB/s"), Ok(1280.0 * MIB));
    }

    /// Goal: whatever is ambiguous or senseless is refused with advice, never guessed.
    #[test]
    fn refused() {
        for text in ["1.6T", "16", "TB", "-1 TB", "nan TB", "1e30 TB", "1.6 tb", "9 EB", "", "1 Gbit"] {
            let error = text.parse::<Size>().expect_err(text);
            assert!(error.contains("write") || error.contains("check"), "{text}: {error}");
        }
        for text in ["100 GB", "10 Gb/s", "fast/s", "/s", "inf GB/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    /// Goal: what is written is read back as the same value.
    #[test]
    fn round_trip() {
        for text in ["1.6 TB", "8 KiB", "0 B", "1280 MiB", "15360 GB", "123456789 B", "0.1 PB", "7.9 EB"] {
            let text = text.replace("7.9 EB", "7900.000001 PB");
            let size: Size = text.parse().unwrap();
            let json = serde_json::to_string(&size).unwrap();
            assert_eq!(serde_json::from_str::<Size>(&json).unwrap(), size, "{json}");
        }
        for text in ["2.5 GB/s", "1280 MiB/s", "100 Gbit/s", "0.1 B/s", "123456.7 B/s", "1234567 kB/s"] {
            let rate: Rate = text.parse().unwrap();
            let json = serde_json::to_string(&rate).unwrap();
            assert_eq!(serde_json::from_str::<Rate>(&json).unwrap(), rate, "{json}");
        }
    }

    /// Goal: descriptions are written as people write them.
    #[test]
    fn written_for_people() {
        for text in ["512 GiB", "1.6 TB", "15360 GB", "1 MiB", "960 GB"] {
            let size: Size = text.parse().unwrap();
            assert_eq!(serde_json::to_string(&size).unwrap(), format!("\"{text}\""));
        }
        assert_eq!(serde_json::to_string(&Rate::gb(4000.0)).unwrap(), "\"4.00 TB/s\"");
    }

    /// Goal: counts are read with their letters, and what is no count says what to write.
    #[test]
    fn counts() {
        for (text, value) in
            [("10G", 1e10), ("5k", 5e3), ("1e9", 1e9), ("1.5 M", 1.5e6), ("7", 7.0), ("2T", 2e12)]
        {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for text in ["", "G", "10Q", "-1k", "ten", "1e400", "inf", "nan", "5 GiB", "\u{e9}"] {
            let error = number(text).expect_err(text);
            assert!(error.contains("write a number such as"), "{error}");
        }
    }

    /// Goal: three digits everywhere, and the unit changes before a fourth appears.
    #[test]
    fn shown() {
        assert_eq!((decimal(999_960.0), decimal(999.0)), ("1.00 MB".to_owned(), "999 B".to_owned()));
        let label = |text: &str| text.parse::<Size>().map(|size| size.to_string());
        for text in ["1.6 TB", "960 GB", "256 GiB", "512 KiB", "1 TB", "128 GB"] {
            assert_eq!(label(text), Ok(text.to_owned()));
        }
        assert_eq!(Size(64_000_000_000_000).both(), "64.0 TB (58.2 TiB)");
        assert_eq!(
            (Size(256 << 30).to_string(), Rate::gb(2.5).to_string()),
            ("256 GiB".to_owned(), "2.50 GB/s".to_owned())
        );
        assert_eq!(
            (count(1.875e9), count(101_000.0), count(24.0)),
            ("1.88 G".to_owned(), "101 k".to_owned(), "24".to_owned())
        );
        assert_eq!((duration(90.0), duration(53_000.0)), ("90 s".to_owned(), "14.7 h".to_owned()));
    }
}

//! Sizes and durations as people write them: `512KiB`, `1 MiB`, `10GB`, `30s`, `50ms`, `10min`, `0`.
//!
//! Both round-trip: what is printed is accepted again and means the same.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Units of size, binary ones first within each power so that printing prefers them.
const SIZE_UNITS: [(&str, u64); 13] = [
    ("EiB", 1 << 60),
    ("EB", 1_000_000_000_000_000_000),
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Units of time in nanoseconds, largest first.
const TIME_UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A length of time with nanosecond resolution, at most about 584 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// Why a text is not a size or a duration; its `Display` says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError(String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

impl Size {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Period {
    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }

    /// The same as a [`Duration`].
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// True for `0`, which several keys give a meaning of its own ("for ever", "off").
    pub const fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

/// Cuts "10 min" into 10 and "min".
fn split(text: &str, wanted: &str) -> Result<(u64, String), UnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, rest) = trimmed.split_at(end);
    if digits.is_empty() {
        return Err(UnitError(format!("{text:?} does not begin with a whole number; write {wanted}")));
    }
    if rest.starts_with(['.', ',']) {
        return Err(UnitError(format!(
            "{text:?} has a fraction; write a whole number of a smaller unit, such as {wanted}"
        )));
    }
    let number = digits.parse().map_err(|_| UnitError(format!("{text:?} is too large a number")))?;
    Ok((number, rest.trim().to_owned()))
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wanted = "\"512KiB\", \"4GiB\" or \"10GB\"";
        let (number, unit) = split(text, wanted)?;
        let factor = match SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&unit)) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => 1,
            None => return Err(unknown_size_unit(text, number, &unit, wanted)),
        };
        match number.checked_mul(factor) {
            Some(bytes) => Ok(Self(bytes)),
            None => Err(UnitError(format!("{text:?} is more than 16EiB, the largest size"))),
        }
    }
}

fn unknown_size_unit(text: &str, number: u64, unit: &str, wanted: &str) -> UnitError {
    if let [letter] = unit.as_bytes()
        && b"KMGTPE".contains(&letter.to_ascii_uppercase())
    {
        let letter = char::from(letter.to_ascii_uppercase());
        return UnitError(format!(
            "{text:?} could mean powers of 1024 or of 1000; write \"{number}{letter}iB\" or \"{number}{letter}B\""
        ));
    }
    UnitError(format!("{unit:?} in {text:?} is not a unit of size; write {wanted}"))
}

impl FromStr for Period {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wanted = "\"50ms\", \"30s\" or \"10min\"";
        let (number, unit) = split(text, wanted)?;
        let factor = match TIME_UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() && number == 0 => 1,
            None if unit.is_empty() => {
                return Err(UnitError(format!(
                    "{text:?} has no unit of time; write \"{number}s\" or \"{number}ms\""
                )));
            }
            None if unit == "m" => {
                return Err(UnitError(format!(
                    "{text:?} could mean minutes or milliseconds; write \"{number}min\" or \"{number}ms\""
                )));
            }
            None => {
                return Err(UnitError(format!("{unit:?} in {text:?} is not a unit of time; write {wanted}")));
            }
        };
        match number.checked_mul(factor) {
            Some(nanos) => Ok(Self(Duration::from_nanos(nanos))),
            None => Err(UnitError(format!("{text:?} is more than 584 years, the longest duration"))),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(f, u128::from(self.0), &SIZE_UNITS)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(f, self.0.as_nanos(), &TIME_UNITS)
    }
}

/// Prints with the largest unit that loses nothing.
fn write_exact(f: &mut fmt::Formatter<'_>, number: u128, units: &[(&str, u64)]) -> fmt::Result {
    if number == 0 {
        return f.pad("0");
    }
    match units.iter().find(|(_, factor)| number.is_multiple_of(u128::from(*factor))) {
        Some((unit, factor)) => f.pad(&format!("{}{unit}", number / u128::from(*factor))),
        None => f.pad(&number.to_string()),
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Accepts a string with a unit, or a bare number by the same rules as the string "number".
struct UnitVisitor<T>(core::marker::PhantomData<T>, &'static str);

impl<T: FromStr<Err = UnitError>> Visitor<'_> for UnitVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnitVisitor(core::marker::PhantomData, "a size such as \"512KiB\""))
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnitVisitor(core::marker::PhantomData, "a duration such as \"30s\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every spelling the manual shows is understood, binary and decimal units apart.
    #[test]
    fn sizes_as_written_by_people() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512KiB", 512 << 10),
            ("1 MiB", 1 << 20),
            ("4GiB", 4 << 30),
            ("10GB", 10_000_000_000),
            (" 7 b ", 7),
            ("3kib", 3072),
            ("15EiB", 15 << 60),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
    }

    /// Goal: every unit of time is understood; only zero may go without one.
    #[test]
    fn durations_as_written_by_people() {
        for (text, nanos) in [
            ("0", 0),
            ("30s", 30_000_000_000),
            ("50ms", 50_000_000),
            ("10min", 600_000_000_000),
            ("2 h", 7_200_000_000_000),
            ("1d", 86_400_000_000_000),
            ("5us", 5_000),
            ("9ns", 9),
        ] {
            assert_eq!(text.parse::<Period>(), Ok(Period(Duration::from_nanos(nanos))), "{text}");
        }
    }

    /// Goal: a wrong text is refused, and the message says what to write instead.
    #[test]
    fn errors_say_what_to_write() {
        for (text, hint) in [
            ("", "512KiB"),
            ("KiB", "512KiB"),
            ("-1", "512KiB"),
            ("1.5GiB", "smaller unit"),
            ("4M", "\"4MiB\" or \"4MB\""),
            ("4 parsec", "not a unit of size"),
            ("16EiB", "16EiB"),
            ("99999999999999999999999", "too large"),
            ("1\u{b5}", "not a unit"),
        ] {
            let error = text.parse::<Size>().expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
        for (text, hint) in [
            ("30", "\"30s\" or \"30ms\""),
            ("5m", "\"5min\" or \"5ms\""),
            ("1.5s", "smaller unit"),
            ("1 fortnight", "not a unit of time"),
            ("999999999999d", "584 years"),
            ("s", "30s"),
        ] {
            let error = text.parse::<Period>().expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    /// Goal: what is printed means the same when it is read again, and uses the shortest exact unit.
    #[test]
    fn printing_round_trips() {
        for number in [0, 1, 999, 1000, 1024, 1536, 1 << 20, 10_000_000_000, u64::MAX, 1 << 63] {
            let size = Size(number);
            assert_eq!(size.to_string().parse(), Ok(size));
            let period = Period(Duration::from_nanos(number));
            assert_eq!(period.to_string().parse(), Ok(period));
        }
        assert_eq!(Size::kib(512).to_string(), "512KiB");
        assert_eq!(Size(10_000_000_000).to_string(), "10GB");
        assert_eq!(Period::secs(600).to_string(), "10min");
        assert_eq!(Period::millis(1500).to_string(), "1500ms");
    }
}

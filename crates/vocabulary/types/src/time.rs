//! Two kinds of time: what files carry, and what timers count.

use core::fmt;

use crate::codec::{Buffer, Decode, DecodeError, Encode, Reader};

/// Milliseconds of a monotonic clock. The hands pass it in; rules never ask for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

impl Millis {
    /// This moment plus `ms`.
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment (0 when it is not earlier).
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Wall-clock time of a file, nanoseconds kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

/// RFC 3339 in UTC, to the second. Years are counted from March, so that the leap day is the last one.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, secs) = (self.secs.div_euclid(86_400), self.secs.rem_euclid(86_400));
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

// Written flat (no record length): every inode row holds four of them.
impl Encode for Timestamp {
    fn encode(&self, out: &mut Buffer) {
        self.secs.encode(out);
        self.nanos.encode(out);
    }
}

impl Decode for Timestamp {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (secs, nanos) = (i64::decode(r)?, u32::decode(r)?);
        if nanos >= 1_000_000_000 {
            return Err(DecodeError::Invalid("nanoseconds"));
        }
        Ok(Self { secs, nanos })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Goal: known days come out right, before 1970, in leap years and across centuries.
    #[test]
    fn dates() {
        for (secs, text) in [
            (-1, "1969-12-31T23:59:59Z"),
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_262_400, "2026-11-21T12:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp { secs, nanos: 5 }.to_string(), text);
        }
    }
}

//! A computed number and how it came about.

use crate::units::{Rate, binary, count, decimal, duration};
use serde::Serialize;

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes per second, shown with decimal units.
    BytesPerSecond,
    /// Bytes, shown in both units.
    Bytes,
    /// Bytes of memory, shown with binary units.
    MemoryBytes,
    /// Operations per second.
    PerSecond,
    /// A plain count.
    Count,
    /// Seconds.
    Seconds,
    /// A part, shown in percent.
    Part,
    /// Money, in the currency of the description.
    Money,
}

/// A computed number and how it came about.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
    /// The sum in words and numbers.
    pub why: String,
}

impl Figure {
    /// A figure with its derivation.
    pub fn new(value: f64, unit: Unit, why: impl Into<String>) -> Self {
        Self { value, unit, why: why.into() }
    }

    /// As people read it.
    pub fn show(&self) -> String {
        let value = self.value;
        match self.unit {
            Unit::BytesPerSecond => Rate(value).to_string(),
            Unit::Bytes => format!("{} ({})", decimal(value), binary(value)),
            Unit::MemoryBytes => binary(value),
            Unit::PerSecond => format!("{}/s", count(value)),
            Unit::Count => count(value),
            Unit::Seconds => duration(value),
            Unit::Part => format!("{:.1} %", value * 100.0),
            Unit::Money => format!("{value:.2}"),
        }
    }
}

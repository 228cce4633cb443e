//! The model against the documents: what was published beside what is computed, with the error.
//!
//! Computed numbers come from the descriptions in `systems/`, through the same code that users run. A
//! measured number that the model was fed with is marked as input and proves nothing. The table is
//! written to `docs/plan/reproduction.md`; a test keeps it equal to what the code computes.

mod contradictions;
mod seed000;
mod seed001;
mod seed002;
mod seed003;
mod seed004;
mod table;

pub use contradictions::{Contradiction, contradictions};
pub use table::markdown;

use crate::forward::single_file::SingleFile;
use crate::forward::{Forecast, Stage, forecast};
use crate::hardware::Hardware;
use crate::systems;
use crate::units::{MIB, TIB};
use serde::Serialize;

/// How a number came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Computed from other sources than the measurement that was published: what shows how good the model is.
    Predicted,
    /// A sum, product or rule that the document prints with its numbers; only the transcription is tested.
    Arithmetic,
    /// What was published is itself an expectation of the document, not a measurement.
    Extrapolated,
    /// A prediction that stands here already, once more: its inverse, a part or a multiple of it.
    Again,
    /// Nothing was published to compare it with.
    Computed,
    /// The model was fed with this number, so agreement proves nothing.
    Input,
    /// Put together by the model from measured rates of the same document: only how they combine is tested.
    Combined,
    /// Measured in the document, divided by what the model computes.
    Quotient,
    /// Two measurements of the document, divided by one another: the model has no part in it.
    Measured,
}

/// In what a number is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// 10^9 bytes per second.
    GbPerSecond,
    /// 10^6 bytes per second.
    MbPerSecond,
    /// 2^20 bytes per second.
    MibPerSecond,
    /// 10^6 bytes.
    Mb,
    /// 2^40 bytes, without decimals.
    Tib,
    /// Percent of one.
    Percent,
    /// A plain number.
    Number,
    /// A proportion, x:1.
    ToOne,
}

impl Shown {
    /// The number behind one unit.
    pub fn unit(self) -> f64 {
        match self {
            Self::GbPerSecond => 1e9,
            Self::MbPerSecond | Self::Mb => 1e6,
            Self::MibPerSecond => MIB,
            Self::Tib => TIB,
            Self::Percent => 0.01,
            Self::Number | Self::ToOne => 1.0,
        }
    }
}

/// What the document says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Published {
    /// A number, in the units of the line.
    Number(f64),
    /// A number that is not printed in the document but follows from numbers that are.
    Derived(f64),
    /// A range that the number must lie in.
    Within(f64, f64),
    /// Nothing.
    Nothing,
}

impl Published {
    /// The number, printed or derived.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) | Self::Derived(number) => Some(*number),
            Self::Within(..) | Self::Nothing => None,
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    /// What it is about.
    pub what: String,
    /// Units.
    pub shown: Shown,
    /// What the document says.
    pub published: Published,
    /// What is computed, in the units of the line.
    pub computed: f64,
    /// How.
    pub how: How,
    /// The largest error that the test lets pass, as a part.
    pub tolerance: f64,
    /// Where the number stands, and why the model is off.
    pub note: String,
}

impl Line {
    /// Computed over published, less one.
    pub fn error(&self) -> Option<f64> {
        self.published.number().map(|published| self.computed / published - 1.0)
    }
}

/// What the document and the model say limits.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Of which system and direction.
    pub what: String,
    /// As the document words it; `None` when it does not say.
    pub published: Option<String>,
    /// The component that the document means.
    pub meant: Option<Stage>,
    /// As the model finds.
    pub computed: Vec<Stage>,
    /// What would be next.
    pub next: Vec<Stage>,
    /// Reasons.
    pub note: String,
}

/// One document.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sheet {
    /// Its number.
    pub document: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Numbers.
    pub lines: Vec<Line>,
    /// Bottlenecks.
    pub verdicts: Vec<Verdict>,
}

/// Largest error of a line that needs no explanation.
pub const UNEXPLAINED: f64 = 0.05;
/// Sums and rounding of the documents: three digits.
const ROUNDING: f64 = 0.01;

impl Sheet {
    fn new(document: &'static str, title: &'static str) -> Self {
        Self { document, title, lines: Vec::new(), verdicts: Vec::new() }
    }

    fn line(
        &mut self,
        what: &str,
        shown: Shown,
        published: Published,
        computed: f64,
        note: &str,
    ) -> &mut Line {
        // A prediction is called one where it is made.
        let how = if published == Published::Nothing { How::Computed } else { How::Arithmetic };
        self.lines.push(Line {
            what: what.to_owned(),
            shown,
            published,
            computed: computed / shown.unit(),
            how,
            tolerance: ROUNDING,
            note: note.to_owned(),
        });
        // Just pushed.
        let last = self.lines.len() - 1;
        &mut self.lines[last]
    }

    fn limits(
        &mut self,
        what: &str,
        stream: &crate::forward::Stream,
        published: Option<(&str, Stage)>,
        note: &str,
    ) {
        self.verdicts.push(Verdict {
            what: what.to_owned(),
            published: published.map(|(words, _)| words.to_owned()),
            meant: published.map(|(_, stage)| stage),
            computed: stream.bottleneck.clone(),
            next: stream.next.clone(),
            note: note.to_owned(),
        });
    }
}

impl Line {
    fn within(&mut self, tolerance: f64) -> &mut Self {
        self.tolerance = tolerance;
        self
    }

    fn how(&mut self, how: How) -> &mut Self {
        self.how = how;
        self
    }
}

/// Plans a system that comes with the program.
fn plan(name: &str) -> Result<Forecast, String> {
    vary(name, |_| ())
}

/// One shared file over all targets of such a system, as the papers measured it.
fn shared(name: &str) -> Result<SingleFile, String> {
    let targets = u32::try_from(plan(name)?.capacity.targets).map_err(|e| e.to_string())?;
    vary(name, |hardware| hardware.striping.targets = targets).map(|forecast| forecast.single_file)
}

/// Plans such a system after a change.
fn vary(name: &str, change: impl FnOnce(&mut Hardware)) -> Result<Forecast, String> {
    let system = systems::system(name).ok_or_else(|| format!("no system {name}"))?;
    let mut hardware = Hardware::from_toml(system.name, system.text)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    change(&mut hardware);
    forecast(&hardware).map_err(|problems| {
        problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("\n")
    })
}

/// A limit of the chain, in bytes per second.
fn alone(stream: &crate::forward::Stream, stage: Stage) -> f64 {
    stream.limits.iter().find(|limit| limit.stage == stage).map_or(f64::NAN, |limit| limit.rate.0)
}

/// Value of a figure, or not a number.
fn value(figure: Option<&crate::forward::Figure>) -> f64 {
    figure.map_or(f64::NAN, |figure| figure.value)
}

/// How far predictions are off, as parts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Predictions {
    /// How many there are.
    pub count: usize,
    /// Mean of their errors, without signs.
    pub mean: f64,
    /// Half of them are off by less.
    pub median: f64,
    /// The largest.
    pub worst: f64,
}

/// Of all lines that are predictions.
pub fn predictions(sheets: &[Sheet]) -> Predictions {
    let lines = sheets.iter().flat_map(|sheet| &sheet.lines).filter(|line| line.how == How::Predicted);
    let mut errors: Vec<f64> = lines.filter_map(|line| Some(line.error()?.abs())).collect();
    errors.sort_by(f64::total_cmp);
    let at = |at: usize| errors.get(at).copied().unwrap_or_default();
    let count = errors.len();
    Predictions {
        count,
        mean: errors.iter().sum::<f64>() / count.max(1) as f64,
        median: (at(count / 2) + at(count.saturating_sub(1) / 2)) / 2.0,
        worst: at(count.saturating_sub(1)),
    }
}

impl Predictions {
    /// The sentence that pages quote.
    pub fn sentence(&self) -> String {
        format!(
            "{} predictions from other sources than the measurement beside them: mean error {:.1} %, median {:.1} %, \
             worst {:.0} %.",
            self.count,
            self.mean * 100.0,
            self.median * 100.0,
            self.worst * 100.0
        )
    }
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reproduction {
    /// How far its predictions are off.
    pub predictions: Predictions,
    /// The documents, in their order.
    pub documents: Vec<Sheet>,
    /// Where they contradict themselves or each other.
    pub contradictions: Vec<Contradiction>,
}

/// Everything, in the order of the documents.
pub fn reproduce() -> Result<Vec<Sheet>, String> {
    Ok(vec![seed000::sheet()?, seed001::sheet()?, seed002::sheet()?, seed003::sheet()?, seed004::sheet()?])
}

#[cfg(test)]
mod tests;

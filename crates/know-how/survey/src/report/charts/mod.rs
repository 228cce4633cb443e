//! Charts: what was measured, as drawings of any width.

mod bars;
mod curves;
mod dots;
mod matrix;
mod ratios;
mod strip;

pub use bars::{Bar, bars};
pub use curves::{Line, MOST_LINES, curves, short_names};
pub use dots::dots;
pub use matrix::{Grid, grid, grid_of};
pub use ratios::{Ratio, change, ratios};
pub use strip::strip;

use super::letters::{self, Face};
use super::number;

/// A drawing narrower than this puts names above instead of beside.
const NARROW: f32 = 460.0;
/// Fonts of a browser may be wider than those that were measured, heavy ones more so.
const ROOM_FOR_PLAIN: f32 = 1.14;
const ROOM_FOR_BOLD: f32 = 1.24;

/// Members that should be equal.
#[derive(Debug, Clone)]
pub struct Members<'a> {
    /// What was measured.
    pub title: &'a str,
    /// In which unit.
    pub unit: &'a str,
    /// False for latencies.
    pub more_is_better: bool,
    /// Name, samples, and whether it stands out.
    pub each: Vec<(&'a str, &'a [f64], bool)>,
}

fn room(face: Face) -> f32 {
    if face == Face::Bold { ROOM_FOR_BOLD } else { ROOM_FOR_PLAIN }
}

/// How wide a text may come out on a screen.
pub fn width(text: &str, size: f32, face: Face) -> f32 {
    letters::width(text, size, face) * room(face)
}

/// The text, cut so that it stays within that width on a screen.
pub fn fit(text: &str, size: f32, face: Face, wide: f32) -> String {
    letters::fit(text, size, face, wide / room(face))
}

/// The unit of a chart in no more than half of its width.
fn unit(unit: &str, wide: f32) -> String {
    fit(&number::unit(unit), super::draw::LABEL, Face::Plain, wide / 2.0)
}

fn range(spread: &super::spread::Spread, unit: &str) -> String {
    if spread.count == 1 {
        return "one sample".to_owned();
    }
    let (min, max) = (number::number(spread.min), number::number(spread.max));
    format!("{min} to {max} {}, {} samples", number::unit(unit), spread.count)
}

//! Charts: what was measured, as drawings of any width.

mod bars;
mod curves;
mod dots;
mod matrix;
mod strip;

pub use bars::{Bar, bars};
pub use curves::{Line, MOST_LINES, curves, short_names};
pub use dots::dots;
pub use matrix::{Grid, grid, grid_of};
pub use strip::strip;

use super::letters::{self, Face};
use super::number;

/// A drawing narrower than this puts names above instead of beside.
const NARROW: f32 = 460.0;
/// Fonts of a browser may be wider than those that were measured.
const ROOM_FOR_FONTS: f32 = 1.12;

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

fn width(text: &str, size: f32, face: Face) -> f32 {
    letters::width(text, size, face) * ROOM_FOR_FONTS
}

fn fit(text: &str, size: f32, face: Face, room: f32) -> String {
    letters::fit(text, size, face, room / ROOM_FOR_FONTS)
}

fn range(spread: &super::spread::Spread, unit: &str) -> String {
    if spread.count == 1 {
        return "one sample".to_owned();
    }
    let (min, max) = (number::number(spread.min), number::number(spread.max));
    format!("{min} to {max} {}, {} samples", number::unit(unit), spread.count)
}

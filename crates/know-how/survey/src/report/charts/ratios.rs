//! What changed: the ratio of two measurements with its interval, a row for each.

use super::super::draw::{Anchor, Drawing, Form, LABEL, Paint, Shape};
use super::super::letters::Face;
use super::super::number;
use super::{NARROW, fit, width};

/// One change.
#[derive(Debug, Clone)]
pub struct Ratio {
    /// Of what.
    pub name: String,
    /// After over before: itself, and the ends of its interval.
    pub ratio: [f64; 3],
    /// Better, worse, or neither.
    pub better: Option<bool>,
}

/// Ratios beyond this, and below its inverse, are drawn at the edge.
const FARTHEST: f64 = 16.0;
/// Ratios that are labelled where they lie within the chart.
const MARKED: [f64; 13] = [0.0625, 0.125, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0];
/// Height of a row.
const ROW: f32 = 22.0;

pub fn ratios(wide: f32, title: &str, each: &[Ratio]) -> Drawing {
    let narrow = wide < NARROW;
    let row = if narrow { ROW * 1.7 } else { ROW };
    let bottom = 14.0 + each.len().max(1) as f32 * row;
    let mut drawing = Drawing::new(wide, bottom + 24.0, title);
    let names = each.iter().map(|r| width(&r.name, LABEL, Face::Plain)).fold(40.0, f32::max);
    let left = if narrow { 6.0 } else { names.min(wide * 0.45) + 14.0 };
    let right = wide - 66.0;
    let clamp = |v: f64| if v.is_finite() && v > 0.0 { v.clamp(1.0 / FARTHEST, FARTHEST) } else { 1.0 };
    let ends = each.iter().flat_map(|r| r.ratio).map(|v| clamp(v).ln().abs());
    let reach = ends.fold(0.12f64, f64::max) * 1.05;
    let x = |v: f64| left + (right - left) * ((clamp(v).ln() / reach + 1.0) / 2.0) as f32;
    let mut free = f32::MIN;
    for mark in MARKED.into_iter().chain([8.0, FARTHEST]).filter(|v| v.ln().abs() <= reach) {
        let label = change(mark);
        let half = width(&label, LABEL, Face::Plain) / 2.0;
        if x(mark) - half > free && x(mark) - half >= 0.0 {
            drawing.rule(Paint::Grid, (x(mark), 8.0), (x(mark), bottom), false);
            drawing.label(Paint::Muted, (x(mark), bottom + 16.0), Anchor::Middle, label);
            free = x(mark) + half + 6.0;
        }
    }
    drawing.rule(Paint::Muted, (x(1.0), 4.0), (x(1.0), bottom), false);
    for (which, one) in each.iter().enumerate() {
        let top = 14.0 + which as f32 * row;
        let y = if narrow { top + row - 9.0 } else { top + row / 2.0 };
        let (paint, form) = match one.better {
            Some(true) => (Paint::Series(1), Form::Triangle),
            Some(false) => (Paint::Alert, Form::Diamond),
            None => (Paint::Series(5), Form::Disc),
        };
        if narrow {
            let name = fit(&one.name, LABEL, Face::Plain, wide - 4.0);
            drawing.label(Paint::Ink, (0.0, top + 11.0), Anchor::Start, name);
        } else {
            let name = fit(&one.name, LABEL, Face::Plain, left - 14.0);
            drawing.label(Paint::Ink, (left - 12.0, y + 4.0), Anchor::End, name);
        }
        let [ratio, low, high] = one.ratio;
        let points = vec![(x(low), y), (x(high), y)];
        drawing.data(paint, 0.45, Shape::Line { points, width: 3.0, dashed: false });
        drawing.data(paint, 1.0, Shape::Dot { at: (x(ratio), y), radius: 4.2, form });
        drawing.strong(paint, (wide - 2.0, y + 4.0), Anchor::End, change(ratio));
        let interval = format!("95 % interval {} to {}", change(low), change(high));
        drawing.tip((x(ratio), y), 9.0, vec![fit(&one.name, LABEL, Face::Bold, 300.0), interval]);
    }
    let sure = each.iter().filter(|r| r.better.is_some()).count();
    drawing.about = format!("{} places, {sure} of them changed significantly", each.len());
    drawing
}

/// A ratio as people say it: `+12 %`, `-74 %`, `x 3.2`.
pub fn change(ratio: f64) -> String {
    if !ratio.is_finite() || ratio < 0.0 {
        return number::NONE.to_owned();
    }
    if ratio >= 2.0 {
        return format!("x {}", number::tick((ratio * 10.0).round() / 10.0));
    }
    let percent = ((ratio - 1.0) * 1000.0).round() / 10.0;
    let digits = usize::from(percent.abs() < 10.0 && percent.fract() != 0.0);
    if percent > 0.0 { format!("+{percent:.digits$} %") } else { format!("{percent:.digits$} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a change is said the way people say it.
    #[test]
    fn changes_are_said() {
        let said = [1.0, 1.12, 0.26, 3.21, 1.034, 0.0, f64::NAN].map(change);
        assert_eq!(said, ["0 %", "+12 %", "-74 %", "x 3.2", "+3.4 %", "-100 %", "-"]);
    }

    /// Goal: better lies to the right of worse, the interval round its ratio, nonsense within the chart.
    #[test]
    fn ratios_lie_in_their_order() {
        let ratio = |v: f64| Ratio { name: "n".into(), ratio: [v, v * 0.9, v * 1.1], better: Some(v > 1.0) };
        let each = [0.5, 1.0, 2.0, f64::NAN, 0.0, 1e9].map(ratio);
        let drawing = ratios(500.0, "t", &each);
        let places: Vec<f32> = drawing
            .marks
            .iter()
            .filter_map(|m| match m.shape {
                Shape::Dot { at, .. } => Some(at.0),
                _ => None,
            })
            .collect();
        assert!(places[0] < places[1] && places[1] < places[2], "{places:?}");
        assert!(places.iter().all(|x| (0.0..=500.0).contains(x)), "{places:?}");
    }
}

//! Many members side by side, in the order of their medians: the ends tell.

use super::super::axis::Axis;
use super::super::draw::{Anchor, Drawing, Form, LABEL, Paint, Shape};
use super::super::letters::{Face, clean};
use super::super::number;
use super::super::spread::Spread;
use super::{Members, fit, range, width};

/// Members whose names are written; of more, the table has them.
const MOST_NAMES: usize = 6;
/// Distance of written names.
const APART: f32 = 14.0;

pub fn strip(wide: f32, members: &Members) -> Drawing {
    let mut sorted: Vec<(&str, Spread, bool)> = members
        .each
        .iter()
        .filter_map(|(name, samples, stands_out)| Some((*name, Spread::of(samples)?, *stands_out)))
        .collect();
    sorted.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let mut drawing = Drawing::new(wide, 250.0, members.title);
    let values: Vec<f64> = sorted.iter().flat_map(|(_, s, _)| [s.min, s.max]).collect();
    let axis = Axis::of_values(&values, &[], 5);
    let labels = axis.ticks.iter().map(|(_, l)| width(l, LABEL, Face::Plain)).fold(24.0, f32::max);
    let (left, right, top, bottom) = (labels + 10.0, wide - 10.0, 26.0, 222.0);
    let y = |value: f64| bottom - (bottom - top) * axis.share(value);
    let count = sorted.len().max(1) as f32;
    let x = |rank: usize| left + 8.0 + (right - left - 16.0) * (rank as f32 + 0.5) / count;
    drawing.label(Paint::Muted, (0.0, 11.0), Anchor::Start, super::unit(members.unit, wide));
    for (value, label) in &axis.ticks {
        drawing.rule(Paint::Grid, (left, y(*value)), (right, y(*value)), false);
        drawing.label(Paint::Muted, (left - 7.0, y(*value) + 4.0), Anchor::End, label);
    }
    let medians: Vec<f64> = sorted.iter().map(|(_, s, _)| s.median).collect();
    let middle = Spread::of(&medians).map(|s| s.median);
    if let Some(middle) = middle {
        drawing.rule(Paint::Muted, (left, y(middle)), (right, y(middle)), true);
        let text = format!("median {}", number::number(middle));
        drawing.label(Paint::Muted, (right, 11.0), Anchor::End, text);
    }
    let below = format!("{} members, by median", sorted.len());
    drawing.label(Paint::Muted, ((left + right) / 2.0, bottom + 20.0), Anchor::Middle, below);
    let radius = (120.0 / count).clamp(1.4, 3.4);
    let mut outliers = Vec::new();
    for (rank, (name, spread, stands_out)) in sorted.iter().enumerate() {
        let paint = if *stands_out { Paint::Alert } else { Paint::Series(0) };
        if spread.max > spread.min {
            let points = vec![(x(rank), y(spread.min)), (x(rank), y(spread.max))];
            drawing.data(paint, 0.3, Shape::Line { points, width: radius, dashed: false });
        }
        let at = (x(rank), y(spread.median));
        if *stands_out {
            outliers.push((at, *name, spread.median));
            drawing.data(paint, 1.0, Shape::Dot { at, radius: radius.max(3.4), form: Form::Diamond });
        } else {
            drawing.data(paint, 0.9, Shape::Dot { at, radius, form: Form::Disc });
        }
        let value = number::with_unit(spread.median, members.unit);
        let name = fit(name, LABEL, Face::Bold, 260.0);
        drawing.tip(at, (radius * 2.0).max(4.0), vec![name, value, range(spread, members.unit)]);
    }
    names(&mut drawing, &outliers, (left, right, top, bottom));
    drawing.about = about(members, middle);
    drawing
}

/// Left, right, top and bottom.
type Edges = (f32, f32, f32, f32);

fn names(drawing: &mut Drawing, outliers: &[((f32, f32), &str, f64)], (left, right, top, bottom): Edges) {
    let mut taken: Vec<f32> = Vec::new();
    for ((x, y), name, median) in outliers.iter().take(MOST_NAMES) {
        let text = format!("{}  {}", clean(name), number::number(*median));
        let text = fit(&text, LABEL, Face::Bold, (right - left) * 0.6);
        let mut line = (y + 4.0).clamp(top + 8.0, bottom - 4.0);
        while taken.iter().any(|t| (t - line).abs() < APART) && line > top + 8.0 {
            line -= APART / 2.0;
        }
        taken.push(line);
        let to_the_right = *x < (left + right) / 2.0;
        let anchor = if to_the_right { Anchor::Start } else { Anchor::End };
        let at = (if to_the_right { x + 9.0 } else { x - 9.0 }, line);
        drawing.strong(Paint::Alert, at, anchor, text);
    }
    if outliers.len() > MOST_NAMES {
        let text = format!("and {} more: see the table", outliers.len() - MOST_NAMES);
        drawing.strong(Paint::Alert, (right, bottom - 5.0), Anchor::End, text);
    }
}

/// What members show, in words.
pub fn about(members: &Members, middle: Option<f64>) -> String {
    let mut text = format!("{} members", members.each.len());
    if let Some(middle) = middle {
        text += &format!(", median {}", number::with_unit(middle, members.unit));
    }
    let outliers: Vec<&str> = members.each.iter().filter(|m| m.2).map(|m| m.0).take(MOST_NAMES).collect();
    if outliers.is_empty() {
        text += "; none stands out";
    } else {
        text += &format!("; {} stands out", clean(&outliers.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a thousand targets are drawn, each with a mark, and the slow ones are named.
    #[test]
    fn a_thousand_members_are_drawn() {
        let owned: Vec<(String, Vec<f64>)> =
            (0..1000).map(|i| (format!("target-{i}"), vec![800.0 + f64::from(i % 7), 801.0])).collect();
        let mut each: Vec<(&str, &[f64], bool)> =
            owned.iter().map(|(name, samples)| (name.as_str(), samples.as_slice(), false)).collect();
        each[500].2 = true;
        let members = Members { title: "t", unit: "MB/s", more_is_better: true, each };
        let drawing = strip(360.0, &members);
        assert!(drawing.marks.iter().filter(|m| m.data).count() >= 1000);
        let named = drawing.marks.iter().any(|m| match &m.shape {
            Shape::Text { text, .. } => text.contains("target-500"),
            _ => false,
        });
        assert!(named);
    }
}

//! Members side by side, a row for each: its samples, its median, and what its siblings do.

use super::super::axis::Axis;
use super::super::draw::{Anchor, Drawing, Form, LABEL, Paint, Shape};
use super::super::letters::Face;
use super::super::number;
use super::super::spread::Spread;
use super::{Members, fit, range, width};

/// Height of a row.
const ROW: f32 = 22.0;

/// Above the first row: the unit, and what the broken line stands for.
const TOP: f32 = 48.0;

/// Draws them; for as many as a reader goes through one by one.
pub fn dots(wide: f32, members: &Members) -> Drawing {
    let rows: Vec<Option<Spread>> = members.each.iter().map(|(_, samples, _)| Spread::of(samples)).collect();
    let bottom = TOP + rows.len().max(1) as f32 * ROW;
    let mut drawing = Drawing::new(wide, bottom + 24.0, members.title);
    let names = members.each.iter().map(|(name, ..)| width(name, LABEL, Face::Bold));
    let left = names.fold(40.0, f32::max).min(wide * 0.38) + 14.0;
    let right = wide - 62.0;
    let values: Vec<f64> = rows.iter().flatten().flat_map(|s| [s.min, s.max]).collect();
    let steps = if wide < super::NARROW { 3 } else { 5 };
    let axis = Axis::of_values(&values, &[], steps);
    let x = |value: f64| left + (right - left) * axis.share(value);
    drawing.label(Paint::Muted, (0.0, 12.0), Anchor::Start, super::unit(members.unit, wide));
    for (value, label) in &axis.ticks {
        drawing.rule(Paint::Grid, (x(*value), TOP - 6.0), (x(*value), bottom), false);
        drawing.label(Paint::Muted, (x(*value), bottom + 16.0), Anchor::Middle, label);
    }
    let medians: Vec<f64> = rows.iter().flatten().map(|s| s.median).collect();
    let middle = Spread::of(&medians).map(|s| s.median);
    if let Some(middle) = middle {
        drawing.rule(Paint::Muted, (x(middle), TOP - 14.0), (x(middle), bottom), true);
        let text = format!("median {}", number::number(middle));
        let half = width(&text, LABEL, Face::Plain) / 2.0;
        let at = (x(middle).clamp(half, wide - half), TOP - 19.0);
        drawing.label(Paint::Muted, at, Anchor::Middle, text);
    }
    for (which, ((name, samples, stands_out), spread)) in members.each.iter().zip(&rows).enumerate() {
        let y = TOP + (which as f32 + 0.5) * ROW;
        let (ink, paint, face) = if *stands_out {
            (Paint::Alert, Paint::Alert, Face::Bold)
        } else {
            (Paint::Ink, Paint::Series(0), Face::Plain)
        };
        let shown = fit(name, LABEL, face, left - 14.0);
        let at = (left - 12.0, y + 4.0);
        if *stands_out {
            drawing.strong(ink, at, Anchor::End, shown);
        } else {
            drawing.label(ink, at, Anchor::End, shown);
        }
        let Some(spread) = spread else {
            drawing.label(Paint::Muted, (left + 6.0, y + 4.0), Anchor::Start, "no number");
            continue;
        };
        let points = vec![(x(spread.min), y), (x(spread.max), y)];
        drawing.data(paint, 0.4, Shape::Line { points, width: 3.0, dashed: false });
        for sample in samples.iter().filter(|v| v.is_finite()).take(MOST_SAMPLES) {
            drawing.data(paint, 0.45, Shape::Dot { at: (x(*sample), y), radius: 2.2, form: Form::Disc });
        }
        let form = if *stands_out { Form::Diamond } else { Form::Disc };
        drawing.data(paint, 1.0, Shape::Dot { at: (x(spread.median), y), radius: 4.2, form });
        drawing.strong(ink, (wide - 2.0, y + 4.0), Anchor::End, number::number(spread.median));
        let value = number::with_unit(spread.median, members.unit);
        drawing.tip((x(spread.median), y), 9.0, vec![shown_full(name), value, range(spread, members.unit)]);
    }
    drawing.about = super::strip::about(members, middle);
    drawing
}

/// Samples of one member that are drawn as points; the line shows the range of all.
const MOST_SAMPLES: usize = 64;

fn shown_full(name: &str) -> String {
    fit(name, LABEL, Face::Bold, 260.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each member has a row with its median; the one that stands out looks different.
    #[test]
    fn members_have_rows_and_outliers_another_form() {
        let (good, bad): (&[f64], &[f64]) = (&[800.0, 810.0, 820.0], &[200.0, 210.0, 220.0]);
        let members = Members {
            title: "Write",
            unit: "MB/s",
            more_is_better: true,
            each: vec![("target-101", good, false), ("target-102", bad, true), ("target-103", &[], false)],
        };
        let drawing = dots(520.0, &members);
        let medians: Vec<(Paint, Form)> = drawing
            .marks
            .iter()
            .filter_map(|m| match m.shape {
                Shape::Dot { radius, form, .. } if radius > 4.0 => Some((m.paint, form)),
                _ => None,
            })
            .collect();
        assert_eq!(medians, [(Paint::Series(0), Form::Disc), (Paint::Alert, Form::Diamond)]);
        assert!(drawing.about.contains("target-102"), "{}", drawing.about);
    }
}

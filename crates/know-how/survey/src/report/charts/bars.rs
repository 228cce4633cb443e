//! Layer by layer: what was achieved within what was possible.

use super::super::draw::{Anchor, Drawing, LABEL, Paint, STRONG, Shape};
use super::super::letters::Face;
use super::super::number;
use super::{NARROW, fit, width};

/// One layer.
#[derive(Debug, Clone)]
pub struct Bar {
    pub name: String,
    /// What was measured.
    pub achieved: f64,
    /// What it could be.
    pub possible: Option<f64>,
    /// Said beside the name: `limits`.
    pub note: Option<String>,
    /// It holds what is wrong.
    pub alert: bool,
}

/// Height of a bar.
const THICK: f32 = 18.0;

pub fn bars(wide: f32, title: &str, unit: &str, each: &[Bar]) -> Drawing {
    let narrow = wide < NARROW;
    let row = if narrow { 46.0 } else { 34.0 };
    let mut drawing = Drawing::new(wide, 26.0 + each.len().max(1) as f32 * row + 4.0, title);
    drawing.label(Paint::Muted, (0.0, 12.0), Anchor::Start, super::unit(unit, wide - 240.0));
    key(&mut drawing);
    let names =
        each.iter().map(|b| width(&b.name, STRONG, Face::Plain)).fold(60.0, f32::max).min(wide * 0.34) + 14.0;
    let left = if narrow { 0.0 } else { names };
    let numbers = each.iter().map(|b| width(&said(b), LABEL, Face::Bold)).fold(60.0, f32::max);
    let shares = each.iter().map(|b| width(&share(b), LABEL, Face::Bold)).fold(36.0, f32::max) + 14.0;
    let right = if narrow { wide - shares } else { wide - numbers - 16.0 - shares };
    let most = each
        .iter()
        .flat_map(|bar| [Some(bar.achieved), bar.possible])
        .flatten()
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max);
    let scale = |value: f64| {
        let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
        if share.is_finite() { (right - left) * share as f32 } else { 0.0 }
    };
    for (which, bar) in each.iter().enumerate() {
        let y = 26.0 + which as f32 * row + if narrow { 18.0 } else { (row - THICK) / 2.0 };
        if let Some(possible) = bar.possible.filter(|v| v.is_finite()) {
            let (at, width, height) = ((left, y), scale(possible), THICK);
            drawing.frame(Paint::Track, Shape::Bar { at, width, height });
            let x = left + scale(possible);
            drawing.rule(Paint::Muted, (x, y - 2.0), (x, y + THICK + 2.0), false);
        }
        let paint = if bar.alert { Paint::Alert } else { Paint::Series(0) };
        let (at, width, height) = ((left, y + 3.0), scale(bar.achieved).max(1.0), THICK - 6.0);
        drawing.data(paint, 1.0, Shape::Bar { at, width, height });
        words(&mut drawing, bar, y, left, shares);
        drawing.tip((left + width / 2.0, y + THICK / 2.0), THICK / 2.0, tip(bar, unit));
    }
    drawing.about = each.iter().map(|bar| tip(bar, unit).join(" ")).collect::<Vec<_>>().join("; ");
    drawing
}

fn key(drawing: &mut Drawing) {
    let text = "possible";
    let x = drawing.width - width(text, LABEL, Face::Plain) - 2.0;
    drawing.label(Paint::Muted, (x, 12.0), Anchor::Start, text);
    let swatch = |at| Shape::Bar { at, width: 14.0, height: 9.0 };
    drawing.frame(Paint::Track, swatch((x - 19.0, 3.0)));
    drawing.rule(Paint::Muted, (x - 5.0, 1.0), (x - 5.0, 14.0), false);
    let text = "achieved";
    let x = x - 19.0 - 12.0 - width(text, LABEL, Face::Plain);
    drawing.label(Paint::Muted, (x, 12.0), Anchor::Start, text);
    drawing.frame(Paint::Series(0), swatch((x - 19.0, 3.0)));
}

fn said(bar: &Bar) -> String {
    let achieved = number::number(bar.achieved);
    match bar.possible.filter(|v| v.is_finite()) {
        Some(possible) => format!("{achieved} of {}", number::number(possible)),
        None => achieved,
    }
}

fn share(bar: &Bar) -> String {
    let share = bar.possible.and_then(|possible| number::percent(bar.achieved, possible));
    share.unwrap_or_else(|| number::NONE.to_owned())
}

fn tip(bar: &Bar, unit: &str) -> Vec<String> {
    let mut lines = vec![format!("{}:", bar.name), format!("{} {}", said(bar), number::unit(unit))];
    if let Some(share) = bar.possible.and_then(|possible| number::percent(bar.achieved, possible)) {
        lines.push(format!("{share} of what is possible"));
    }
    lines
}

fn words(drawing: &mut Drawing, bar: &Bar, y: f32, left: f32, shares: f32) {
    let narrow = drawing.width < NARROW;
    let paint = if bar.alert { Paint::Alert } else { Paint::Ink };
    let numbers = said(bar);
    let note = bar.note.as_deref().unwrap_or_default();
    if narrow {
        let room =
            drawing.width - width(&numbers, LABEL, Face::Plain) - width(note, LABEL, Face::Bold) - 30.0;
        let name = fit(&bar.name, STRONG, Face::Plain, room.max(40.0));
        let after = width(&name, STRONG, Face::Plain) + 8.0;
        text(drawing, paint, (0.0, y - 5.0), Anchor::Start, &name);
        drawing.strong(Paint::Alert, (after, y - 5.0), Anchor::Start, note);
        drawing.label(Paint::Muted, (drawing.width - 2.0, y - 5.0), Anchor::End, numbers);
    } else {
        let name = fit(&bar.name, STRONG, Face::Plain, left - 12.0);
        let line = if note.is_empty() { y + 13.0 } else { y + 7.0 };
        text(drawing, paint, (left - 12.0, line), Anchor::End, &name);
        drawing.strong(Paint::Alert, (left - 12.0, y + 20.0), Anchor::End, note);
        drawing.label(Paint::Muted, (drawing.width - shares - 2.0, y + 13.0), Anchor::End, numbers);
    }
    let at = (drawing.width - 2.0, y + 13.0);
    drawing.strong(paint, at, Anchor::End, share(bar));
}

fn text(drawing: &mut Drawing, paint: Paint, at: (f32, f32), anchor: Anchor, text: &str) {
    let (size, text) = (STRONG, text.to_owned());
    drawing.frame(paint, Shape::Text { at, size, anchor, bold: false, halo: false, text });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(achieved: f64, possible: Option<f64>) -> Bar {
        Bar { name: "Storage".to_owned(), achieved, possible, note: None, alert: false }
    }

    /// Goal: the bar's length is its part of the largest number, and the percentage is written.
    #[test]
    fn bars_are_as_long_as_their_numbers() {
        let drawing = bars(700.0, "Write", "MB/s", &[bar(500.0, Some(1000.0)), bar(250.0, None)]);
        let lengths: Vec<f32> = drawing
            .marks
            .iter()
            .filter_map(|m| match m.shape {
                Shape::Bar { width, .. } if m.data => Some(width),
                _ => None,
            })
            .collect();
        assert!((lengths[0] / lengths[1] - 2.0).abs() < 1e-3, "{lengths:?}");
        let texts: Vec<&str> = drawing
            .marks
            .iter()
            .filter_map(|m| match &m.shape {
                Shape::Text { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert!(texts.contains(&"50 %") && texts.contains(&"500 of 1,000"), "{texts:?}");
    }

    /// Goal: no numbers, negative and endless ones leave bars of finite length.
    #[test]
    fn odd_numbers_leave_finite_bars() {
        let odd = [f64::NAN, f64::INFINITY, -5.0, 0.0, 1e300];
        for value in odd {
            for possible in odd.iter().copied().map(Some).chain([None]) {
                let drawing = bars(360.0, "t", "MB/s", &[bar(value, possible)]);
                for mark in drawing.marks {
                    if let Shape::Bar { width, .. } = mark.shape {
                        assert!((0.0..=360.0).contains(&width), "{value} {possible:?}: {width}");
                    }
                }
            }
        }
    }
}

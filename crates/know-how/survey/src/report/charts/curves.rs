//! Values over places: a line through the means, a band from the smallest to the largest.

use super::super::axis::Axis;
use super::super::draw::{Anchor, Drawing, Form, LABEL, Paint, Shape, Spot};
use super::super::letters::Face;
use super::super::number;
use super::super::spread::Spread;
use super::{fit, range, width};

/// Lines that one chart carries and a reader still tells apart.
pub const MOST_LINES: usize = 5;

/// One line of the chart.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// Short: how it differs from the others of the chart.
    pub name: String,
    /// Place and samples.
    pub points: Vec<(f64, &'a [f64])>,
}

/// Where the data lie.
struct Field {
    left: f32,
    right: f32,
    top: f32,
    bottom: f32,
    x: Axis,
    y: Axis,
}

impl Field {
    fn spot(&self, x: f64, y: f64) -> Spot {
        let right = self.left + (self.right - self.left) * self.x.share(x);
        (right, self.bottom - (self.bottom - self.top) * self.y.share(y))
    }
}

/// Distance between the lines of a legend.
const LEGEND: f32 = 17.0;
/// Labels of the y axis that fit.
const STEPS: usize = 5;

pub fn curves(wide: f32, title: &str, unit: &str, axis: &str, lines: &[Line]) -> Drawing {
    let spreads: Vec<Vec<(f64, Spread)>> = lines.iter().map(numbers).collect();
    let legend = legend_rows(wide, lines);
    let top = 24.0 + legend.len() as f32 * LEGEND;
    let mut drawing = Drawing::new(wide, top + 178.0 + 40.0, title);
    drawing.about = about(unit, axis, lines, &spreads);
    let field = field(&drawing, top, axis, &spreads);
    paper(&mut drawing, &field, unit, axis);
    draw_legend(&mut drawing, &legend, lines);
    for (which, points) in spreads.iter().enumerate() {
        band(&mut drawing, &field, which, points);
    }
    for (which, points) in spreads.iter().enumerate() {
        line(&mut drawing, &field, which, points);
    }
    peaks(&mut drawing, &field, &spreads);
    for (line, points) in lines.iter().zip(&spreads) {
        for (x, spread) in points {
            let at = field.spot(*x, spread.mean);
            let value = number::with_unit(spread.mean, unit);
            let place = format!("{}: {value}", place_in_words(*x, axis));
            drawing.tip(at, 9.0, vec![line.name.clone(), place, range(spread, unit)]);
        }
    }
    drawing
}

fn numbers(line: &Line) -> Vec<(f64, Spread)> {
    let mut points: Vec<(f64, Spread)> = line
        .points
        .iter()
        .filter(|(x, _)| x.is_finite())
        .filter_map(|(x, samples)| Some((*x, Spread::of(samples)?)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn place_in_words(x: f64, axis: &str) -> String {
    let name = axis.split(" (").next().unwrap_or(axis);
    if axis.contains("byte") { number::bytes(x) } else { format!("{} {name}", number::tick(x)) }
}

fn about(unit: &str, axis: &str, lines: &[Line], spreads: &[Vec<(f64, Spread)>]) -> String {
    let mut parts = Vec::new();
    for (line, points) in lines.iter().zip(spreads) {
        let best = points.iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
        parts.push(best.map_or_else(
            || format!("{}: no numbers", line.name),
            |(x, spread)| {
                let value = number::with_unit(spread.mean, unit);
                format!("{}: at most {value} at {}", line.name, place_in_words(*x, axis))
            },
        ));
    }
    parts.join("; ")
}

fn field(drawing: &Drawing, top: f32, axis: &str, spreads: &[Vec<(f64, Spread)>]) -> Field {
    let all = || spreads.iter().flatten();
    let places: Vec<f64> = all().map(|(x, _)| *x).collect();
    let values: Vec<f64> = all().flat_map(|(_, s)| [s.min, s.max]).collect();
    let typical: Vec<f64> =
        spreads.iter().filter_map(|line| line.iter().map(|(_, s)| s.mean).max_by(f64::total_cmp)).collect();
    let y = Axis::of_values(&values, &typical, STEPS);
    let labels = y.ticks.iter().map(|(_, label)| width(label, LABEL, Face::Plain)).fold(24.0, f32::max);
    Field {
        left: labels + 10.0,
        right: drawing.width - 22.0,
        top,
        bottom: drawing.height - 40.0,
        x: Axis::of_places(&places, axis),
        y,
    }
}

fn paper(drawing: &mut Drawing, field: &Field, unit: &str, axis: &str) {
    drawing.label(Paint::Muted, (0.0, 11.0), Anchor::Start, super::unit(unit, drawing.width));
    for (value, label) in &field.y.ticks {
        let (_, y) = field.spot(f64::NAN, *value);
        let paint = if y >= field.bottom - 0.5 { Paint::Muted } else { Paint::Grid };
        drawing.rule(paint, (field.left, y), (field.right, y), false);
        drawing.label(Paint::Muted, (field.left - 7.0, y + 4.0), Anchor::End, label);
    }
    let mut free = f32::MIN;
    for (value, label) in &field.x.ticks {
        let (x, _) = field.spot(*value, 0.0);
        let wide = width(label, LABEL, Face::Plain);
        let middle = x.min(drawing.width - wide / 2.0 - 1.0);
        drawing.rule(Paint::Muted, (x, field.bottom), (x, field.bottom + 4.0), false);
        if middle - wide / 2.0 > free {
            drawing.label(Paint::Muted, (middle, field.bottom + 17.0), Anchor::Middle, label);
            free = middle + wide / 2.0 + 5.0;
        }
    }
    let name = fit(axis, LABEL, Face::Plain, field.right - field.left);
    let at = ((field.left + field.right) / 2.0, field.bottom + 33.0);
    drawing.label(Paint::Muted, at, Anchor::Middle, name);
}

/// Which lines stand in which row of the legend, with their places.
fn legend_rows(wide: f32, lines: &[Line]) -> Vec<Vec<(f32, usize, String)>> {
    let mut rows: Vec<Vec<(f32, usize, String)>> = Vec::new();
    if lines.len() < 2 {
        return rows;
    }
    let mut x = f32::MAX;
    for (which, line) in lines.iter().enumerate() {
        let name = fit(&line.name, LABEL, Face::Plain, wide - 40.0);
        let room = 28.0 + width(&name, LABEL, Face::Plain) + 14.0;
        if x + room > wide {
            rows.push(Vec::new());
            x = 0.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, which, name));
        }
        x += room;
    }
    rows
}

fn draw_legend(drawing: &mut Drawing, rows: &[Vec<(f32, usize, String)>], lines: &[Line]) {
    for (row, entries) in rows.iter().enumerate() {
        let y = 24.0 + row as f32 * LEGEND;
        for (x, which, name) in entries.iter().filter(|(_, which, _)| *which < lines.len()) {
            let points = vec![(*x, y), (x + 22.0, y)];
            drawing.frame(Paint::Series(*which), Shape::Line { points, width: 2.0, dashed: false });
            let at = (x + 11.0, y);
            drawing.frame(Paint::Series(*which), Shape::Dot { at, radius: 3.4, form: Form::of(*which) });
            drawing.label(Paint::Ink, (x + 28.0, y + 4.0), Anchor::Start, name);
        }
    }
}

fn band(drawing: &mut Drawing, field: &Field, which: usize, points: &[(f64, Spread)]) {
    if points.iter().all(|(_, s)| s.min >= s.max) {
        return;
    }
    if let [(x, spread)] = points {
        let points = vec![field.spot(*x, spread.min), field.spot(*x, spread.max)];
        drawing.data(Paint::Series(which), 0.5, Shape::Line { points, width: 2.0, dashed: false });
        return;
    }
    let upper = points.iter().map(|(x, s)| field.spot(*x, s.max));
    let lower = points.iter().rev().map(|(x, s)| field.spot(*x, s.min));
    drawing.data(Paint::Series(which), 0.2, Shape::Area { points: upper.chain(lower).collect() });
}

fn line(drawing: &mut Drawing, field: &Field, which: usize, points: &[(f64, Spread)]) {
    let spots: Vec<Spot> = points.iter().map(|(x, s)| field.spot(*x, s.mean)).collect();
    if spots.len() > 1 {
        let shape = Shape::Line { points: spots.clone(), width: 2.0, dashed: false };
        drawing.data(Paint::Series(which), 1.0, shape);
    }
    for at in spots {
        let form = Form::of(which);
        drawing.frame(Paint::Surface, Shape::Dot { at, radius: 4.6, form });
        drawing.data(Paint::Series(which), 1.0, Shape::Dot { at, radius: 3.4, form });
    }
}

/// The best value of each line is written beside it, where nothing else is written.
fn peaks(drawing: &mut Drawing, field: &Field, spreads: &[Vec<(f64, Spread)>]) {
    let best =
        |points: &Vec<(f64, Spread)>| points.iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean)).copied();
    let mut peaks: Vec<(f64, Spread)> = spreads.iter().filter_map(best).collect();
    // From the highest down: of two that are close, the upper one is written above.
    peaks.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
    let mut taken: Vec<(f32, f32, f32)> = Vec::new();
    for (x, spread) in peaks {
        let (right, y) = field.spot(x, spread.mean);
        let text = number::number(spread.mean);
        let half = width(&text, LABEL, Face::Bold) / 2.0;
        let middle = right.clamp(field.left + half, drawing.width - half - 1.0);
        let free = |y: f32| {
            y > field.top - 4.0
                && y < field.bottom - 4.0
                && taken
                    .iter()
                    .all(|(l, r, t)| middle + half < *l || middle - half > *r || (y - t).abs() > 12.0)
        };
        // Not onto another line: where lines run close on both sides, the tip and the table have the number.
        let beside = spreads.iter().flatten().filter(|(other, _)| *other == x);
        let gaps: Vec<f32> = beside.map(|(_, other)| y - field.spot(x, other.mean).1).collect();
        let clear = |near: std::ops::Range<f32>| !gaps.iter().any(|gap| near.contains(gap));
        let above = Some(y - 9.0).filter(|_| clear(1.0..24.0));
        let below = Some(y + 18.0).filter(|_| clear(-24.0..-1.0));
        let Some(y) = [above, below].into_iter().flatten().find(|y| free(*y)) else { continue };
        taken.push((middle - half, middle + half, y));
        drawing.strong(Paint::Ink, (middle, y), Anchor::Middle, text);
    }
}

/// What titles have in common, and what each says besides: `Sequential write, a file per process` and
/// `Sequential write, one shared file` give `Sequential write` with `a file per process`, `one shared file`.
pub fn short_names(titles: &[&str]) -> (String, Vec<String>) {
    let parts: Vec<Vec<&str>> = titles.iter().map(|title| title.split(", ").collect()).collect();
    let everywhere = |part: &str| parts.iter().all(|other| other.contains(&part));
    let common: Vec<&str> = parts
        .first()
        .map(|first| first.iter().copied().filter(|p| everywhere(p)).collect())
        .unwrap_or_default();
    let names: Vec<String> = parts
        .iter()
        .map(|own| own.iter().copied().filter(|p| !everywhere(p)).collect::<Vec<_>>().join(", "))
        .collect();
    if names.iter().any(String::is_empty) {
        return (common.join(", "), titles.iter().map(|title| (*title).to_owned()).collect());
    }
    (common.join(", "), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every sample that is a number leaves a mark; the band spans smallest to largest.
    #[test]
    fn lines_and_bands_stand_where_the_numbers_are() {
        let (low, high) = ([100.0, 120.0, 140.0], [200.0]);
        let line = Line { name: "write".to_owned(), points: vec![(1.0, &low), (16.0, &high)] };
        let drawing = curves(520.0, "t", "MB/s", "processes", &[line]);
        let dots = drawing.marks.iter().filter(|m| m.data && matches!(m.shape, Shape::Dot { .. })).count();
        assert_eq!(dots, 2);
        let area = drawing.marks.iter().find_map(|m| match &m.shape {
            Shape::Area { points } => Some(points.clone()),
            _ => None,
        });
        let area = area.expect("a band");
        assert_eq!(area.len(), 4);
        assert!(area[0].1 < area[3].1, "the largest lies above the smallest: {area:?}");
        assert_eq!(drawing.about, "write: at most 200 MB/s at 16 processes");
        assert_eq!(drawing.tips.len(), 2);
    }

    /// Goal: the legend names what differs, the title what is common.
    #[test]
    fn names_are_cut_to_what_differs() {
        let (common, names) = short_names(&["Sequential write, N-N", "Sequential read, N-N"]);
        assert_eq!(
            (common.as_str(), names),
            ("N-N", vec!["Sequential write".into(), "Sequential read".into()])
        );
        let (common, names) = short_names(&["Write", "Write"]);
        assert_eq!((common.as_str(), names.len()), ("Write", 2));
        assert_eq!(short_names(&[]).1.len(), 0);
    }
}

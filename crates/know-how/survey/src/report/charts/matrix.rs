//! Every pair of nodes: who talks to whom, and how fast. Weak pairs are coloured, the rest is calm.

use super::super::draw::{Anchor, Drawing, LABEL, Paint, Shape};
use super::super::letters::Face;
use super::super::number;
use super::super::spread::Spread;
use super::{Members, fit, range, width};

/// Nodes of which a matrix is drawn; of more, members are drawn as a strip.
const MOST_NODES: usize = 40;
/// Nodes from which on a matrix says more than rows.
const FEWEST_NODES: usize = 3;

/// Part of the median that a pair may lack and still look like the others.
const WEAK: f64 = 0.2;

/// Between the two ends of a pair.
const ARROW: &str = " -> ";

/// Pairs by their ends.
#[derive(Debug, Clone)]
pub struct Grid<'a> {
    /// Those who send, in order of their names as measured.
    from: Vec<&'a str>,
    /// Those who receive.
    to: Vec<&'a str>,
    /// Sender, receiver, place among the members.
    cells: Vec<(usize, usize, usize)>,
}

/// The grid of members that are pairs of nodes; none when they are not, or too few or many.
pub fn grid_of<'a>(members: &Members<'a>) -> Option<Grid<'a>> {
    let mut grid = Grid { from: Vec::new(), to: Vec::new(), cells: Vec::new() };
    let place = |names: &mut Vec<&'a str>, name: &'a str| {
        names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        })
    };
    for (which, (name, ..)) in members.each.iter().enumerate() {
        let (from, to) = name.split_once(ARROW)?;
        let cell = (place(&mut grid.from, from), place(&mut grid.to, to), which);
        if grid.from.len().max(grid.to.len()) > MOST_NODES {
            return None;
        }
        grid.cells.push(cell);
    }
    // Columns in the order of the rows, so that the diagonal is one.
    let mut order: Vec<usize> = (0..grid.to.len()).collect();
    order.sort_by_key(|to| grid.from.iter().position(|from| *from == grid.to[*to]).unwrap_or(usize::MAX));
    for cell in &mut grid.cells {
        cell.1 = order.iter().position(|to| *to == cell.1).unwrap_or(cell.1);
    }
    grid.to = order.iter().map(|to| grid.to[*to]).collect();
    let full = grid.cells.len() * 4 >= grid.from.len() * grid.to.len();
    (grid.from.len().max(grid.to.len()) >= FEWEST_NODES && full).then_some(grid)
}

/// Draws it.
pub fn grid(wide: f32, members: &Members, grid: &Grid) -> Drawing {
    let names = grid.from.iter().map(|name| width(name, LABEL, Face::Plain)).fold(30.0, f32::max);
    let left = (names + 34.0).min(wide * 0.36);
    let columns = grid.to.len().max(1) as f32;
    let cell = ((wide - left - 2.0) / columns).min(72.0);
    let high = cell.clamp(9.0, 30.0);
    let top = 42.0;
    let mut drawing = Drawing::new(wide, top + high * grid.from.len() as f32 + 8.0, members.title);
    let medians: Vec<Option<f64>> =
        members.each.iter().map(|(_, samples, _)| Spread::of(samples).map(|s| s.median)).collect();
    let numbers: Vec<f64> = medians.iter().flatten().copied().collect();
    let middle = Spread::of(&numbers).map(|s| s.median);
    let unit = super::unit(members.unit, wide);
    let head = middle.map_or_else(|| unit.clone(), |m| format!("{unit}, median {}", number::number(m)));
    drawing.label(Paint::Muted, (0.0, 12.0), Anchor::Start, head);
    drawing.label(Paint::Muted, (0.0, top - 8.0), Anchor::Start, "from \\ to");
    // Columns are numbered as the rows are, or named where names fit.
    let fits = grid.to.iter().all(|name| width(name, LABEL, Face::Plain) < cell - 4.0);
    for (column, name) in grid.to.iter().enumerate() {
        let row = grid.from.iter().position(|from| from == name);
        let label = match row {
            Some(row) if !fits => (row + 1).to_string(),
            _ => fit(name, LABEL, Face::Plain, cell - 4.0),
        };
        let x = left + (column as f32 + 0.5) * cell;
        if cell >= 12.0 {
            drawing.label(Paint::Muted, (x, top - 8.0), Anchor::Middle, label);
        }
    }
    for (row, name) in grid.from.iter().enumerate() {
        let y = top + (row as f32 + 0.5) * high + 4.0;
        if !fits {
            drawing.label(Paint::Muted, (16.0, y), Anchor::End, (row + 1).to_string());
        }
        let begin = if fits { 0.0 } else { 22.0 };
        let name = fit(name, LABEL, Face::Plain, left - begin - 8.0);
        drawing.label(Paint::Ink, (begin, y), Anchor::Start, name);
    }
    for (row, column, which) in &grid.cells {
        let at = (left + *column as f32 * cell + 1.0, top + *row as f32 * high + 1.0);
        one(&mut drawing, members, *which, middle, at, (cell - 2.0, high - 2.0));
    }
    drawing.about = super::strip::about(members, middle);
    drawing
}

fn one(
    drawing: &mut Drawing,
    members: &Members,
    which: usize,
    middle: Option<f64>,
    (x, y): (f32, f32),
    (wide, high): (f32, f32),
) {
    let Some((name, samples, stands_out)) = members.each.get(which) else { return };
    let Some(spread) = Spread::of(samples) else { return };
    let worse = match middle {
        Some(m) if m != 0.0 && members.more_is_better => 1.0 - spread.median / m,
        Some(m) if m != 0.0 => spread.median / m - 1.0,
        _ => 0.0,
    };
    // What only looks weak gets a colour of its own: to judge is not the chart's business.
    let (paint, opacity) = if *stands_out {
        (Paint::Alert, (worse as f32).clamp(0.25, 0.6))
    } else if worse > WEAK {
        (Paint::Series(2), (worse as f32).clamp(0.2, 0.5))
    } else {
        (Paint::Series(0), 0.1)
    };
    let bar = Shape::Bar { at: (x, y), width: wide, height: high };
    drawing.data(paint, opacity, bar);
    if *stands_out {
        let points = vec![(x, y), (x + wide, y), (x + wide, y + high), (x, y + high), (x, y)];
        drawing.data(Paint::Alert, 1.0, Shape::Line { points, width: 2.0, dashed: false });
    }
    let text = number::number(spread.median);
    if width(&text, LABEL, Face::Plain) < wide - 2.0 && high >= 13.0 {
        drawing.label(Paint::Ink, (x + wide / 2.0, y + high / 2.0 + 4.0), Anchor::Middle, text);
    }
    let value = number::with_unit(spread.median, members.unit);
    let name = fit(name, LABEL, Face::Bold, 260.0);
    drawing.tip(
        (x + wide / 2.0, y + high / 2.0),
        high / 2.0,
        vec![name, value, range(&spread, members.unit)],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(nodes: usize) -> Option<Drawing> {
        let mut names = Vec::new();
        for from in 0..nodes {
            for to in (0..nodes).filter(|to| *to != from) {
                names.push(format!("node-{from} -> node-{to}"));
            }
        }
        let each: Vec<(&str, &[f64], bool)> = names
            .iter()
            .map(|name| (name.as_str(), [900.0].as_slice(), name.starts_with("node-1 ")))
            .collect();
        let members = Members { title: "t", unit: "MB/s", more_is_better: true, each };
        grid_of(&members).map(|found| grid(500.0, &members, &found))
    }

    /// Goal: columns follow the rows, and every pair stays in its cell.
    #[test]
    fn rows_and_columns_have_one_order() {
        let pairs = ["a -> c", "a -> b", "b -> a", "b -> c", "c -> a", "c -> b"];
        let each = pairs.iter().map(|name| (*name, [1.0].as_slice(), false)).collect();
        let found =
            grid_of(&Members { title: "t", unit: "u", more_is_better: true, each }).expect("a matrix");
        assert_eq!((&found.from, &found.to), (&vec!["a", "b", "c"], &vec!["a", "b", "c"]));
        for (from, to, which) in found.cells {
            assert_eq!(format!("{} -> {}", found.from[from], found.to[to]), pairs[which]);
        }
    }

    /// Goal: each pair has a cell; two nodes or too many are no matrix.
    #[test]
    fn every_pair_has_a_cell() {
        let drawing = drawn(4).expect("a matrix");
        let bars = drawing.marks.iter().filter(|m| matches!(m.shape, Shape::Bar { .. })).count();
        assert_eq!(bars, 12);
        assert!(drawn(2).is_none() && drawn(MOST_NODES + 1).is_none());
        assert!(drawn(MOST_NODES).is_some());
    }
}

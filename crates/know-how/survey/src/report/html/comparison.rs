//! Two surveys beside each other: what changed significantly, then everything.

use super::super::super::compare::{Change, Comparison, Outcome};
use super::super::super::model::{Curve, Survey};
use super::super::charts::{self, Line, Ratio};
use super::super::draw::Drawing;
use super::super::figures::{Row, Table};
use super::super::number;
use super::page::{escape, shell};
use super::parts::{self, Figures};

/// Changes drawn as a chart; the table has all.
const MOST_RATIOS: usize = 40;
/// Curves drawn before and after.
const MOST_CURVES: usize = 24;

/// The page on two surveys.
pub fn compare_html(before: &Survey, after: &Survey, comparison: &Comparison) -> String {
    let mut figures = Figures::default();
    let mut body = head(before, after);
    body += "<main>\n";
    body += &verdict(comparison);
    body += &ratios(after, comparison, &mut figures);
    body += &curves(before, after, comparison, &mut figures);
    body += &section("settings", "Settings and facts that differ", &settings(comparison), "None differs.");
    body += &section("all", "Everything that both measured", &changes(comparison), "Nothing.");
    let mut alone = Table::new(&[("what only one of them measured", false)]);
    alone.rows = comparison.alone.iter().map(|text| row(vec![text.clone()], false)).collect();
    if !alone.rows.is_empty() {
        body += &section("alone", "Measured once only", &alone, "");
    }
    body += "</main>\n";
    let version = escape(&after.version);
    body += &format!("<footer>Made by skep {version}. This file fetches nothing.</footer>\n");
    shell(&format!("{}, compared", after.title), &body)
}

fn row(cells: Vec<String>, alert: bool) -> Row {
    Row { cells, alert }
}

fn section(id: &str, title: &str, table: &Table, none: &str) -> String {
    let inner = if table.rows.is_empty() {
        format!("<p class=\"nothing\">{none}</p>\n")
    } else {
        format!("<div class=\"card\"><div class=\"scroll\">\n{}</div></div>\n", parts::table(table, ""))
    };
    format!("<section id=\"{id}\">\n<h2>{title}</h2>\n{inner}</section>\n")
}

fn head(before: &Survey, after: &Survey) -> String {
    let mut out = "<header>\n<h1>Two surveys compared</h1>\n<ul class=\"meta\">\n".to_owned();
    for (name, survey) in [("Before", before), ("After", after)] {
        let when = survey.started.replace('T', " ").replace('Z', " UTC");
        let (title, version) = (escape(&survey.title), escape(&survey.version));
        out += &format!("<li>{name} <b>{title}</b>, {}, skep {version}</li>\n", escape(&when));
    }
    out += "</ul>\n</header>\n";
    out
}

fn verdict(comparison: &Comparison) -> String {
    let count = |outcome| comparison.count(outcome);
    let (better, worse) = (count(Outcome::Better), count(Outcome::Worse));
    let maybe = (count(Outcome::MaybeBetter), count(Outcome::MaybeWorse));
    let class = if worse > 0 { " bad" } else { "" };
    let certain = match (better, worse) {
        (0, 0) if maybe == (0, 0) => "Nothing changed that can be told from chance.".to_owned(),
        (0, 0) => "Nothing changed for certain.".to_owned(),
        (better, 0) => format!("{better} places became better, none worse."),
        (0, worse) => format!("{worse} places became worse, none better."),
        (better, worse) => format!("{worse} places became worse, {better} better."),
    };
    let headline = match maybe {
        (0, 0) => certain,
        (better, worse) => format!(
            "{certain} {worse} places may have become worse, {better} better; repeat: one survey a side cannot tell \
             drift from change."
        ),
    };
    let mut out = format!("<div id=\"verdict\" class=\"card verdict{class}\">\n");
    out += &format!("<p class=\"badge\">{} places compared</p>\n", comparison.changes.len());
    out += &format!("<p class=\"headline\">{headline}</p>\n");
    out += &format!(
        "<p class=\"about\">{} stayed the same as far as that can be told, of {} it cannot (twice or half as much is \
         not ruled out), {} had too few samples. Marks are so chosen that at most one in twenty of them is chance, as \
         far as surveys drift no more than the notes say.</p>\n",
        count(Outcome::Same) - comparison.untold(),
        comparison.untold(),
        count(Outcome::Unknown)
    );
    for text in &comparison.remarks {
        out += &format!("<p class=\"about\">{}</p>\n", escape(text));
    }
    let name = |culprit: &Option<String>| culprit.as_deref().map_or_else(|| "nobody".to_owned(), escape);
    let [before, after] = &comparison.culprits;
    out += &format!("<p>Looked at first: before {}, after {}.</p>\n</div>\n", name(before), name(after));
    out
}

fn curve<'a>(survey: &'a Survey, id: &str) -> Option<&'a Curve> {
    survey.layers.iter().flat_map(|layer| &layer.curves).find(|curve| curve.id == id)
}

fn better(change: &Change) -> Option<bool> {
    change.outcome.better()
}

/// How far a ratio lies from 1, in either direction.
fn far(ratio: f64) -> f64 {
    ratio.max(1e-9).ln().abs()
}

/// A row for each member that changed; of a curve, one for each direction: the middle one of its places.
fn rows(after: &Survey, comparison: &Comparison) -> Vec<Ratio> {
    let mut rows = Vec::new();
    let mut done: Vec<(&str, bool)> = Vec::new();
    for change in &comparison.changes {
        let (Some(better), Some(ratio)) = (self::better(change), change.ratio) else { continue };
        let title = &change.title;
        if curve(after, &change.id).is_none() {
            rows.push(Ratio { name: format!("{title}, {}", change.place), ratio, better: Some(better) });
            continue;
        }
        if done.contains(&(&change.id, better)) {
            continue;
        }
        done.push((&change.id, better));
        let all = comparison.changes.iter().filter(|other| other.id == change.id);
        let mut alike: Vec<&Change> = all.clone().filter(|o| self::better(o) == Some(better)).collect();
        alike.sort_by(|a, b| {
            far(a.ratio.map_or(1.0, |r| r[0])).total_cmp(&far(b.ratio.map_or(1.0, |r| r[0])))
        });
        let middle = alike[alike.len() / 2];
        let name = match alike.len() {
            1 => format!("{title}, {}", middle.place),
            count => format!("{title}, {count} of {} places", all.count()),
        };
        rows.push(Ratio { name, ratio: middle.ratio.unwrap_or(ratio), better: Some(better) });
    }
    rows
}

fn ratios(after: &Survey, comparison: &Comparison, figures: &mut Figures) -> String {
    let mut each = rows(after, comparison);
    if each.is_empty() {
        return String::new();
    }
    each.sort_by(|a, b| far(b.ratio[0]).total_cmp(&far(a.ratio[0])));
    let left_out = each.len().saturating_sub(MOST_RATIOS);
    each.truncate(MOST_RATIOS);
    let subtitle = if left_out > 0 {
        format!("after over before, with the 95 % interval; {left_out} smaller ones are in the table")
    } else {
        "after over before, with the 95 % interval; of a curve, its middle place".to_owned()
    };
    let name = "Significant changes";
    let draw = |wide: f32| charts::ratios(wide, name, &each);
    let figure = figures.put(name, &subtitle, true, &draw, "");
    format!(
        "<section id=\"changes\">\n<h2>What changed</h2>\n<div class=\"figures full\">\n{figure}</div>\n</section>\n"
    )
}

fn curves(before: &Survey, after: &Survey, comparison: &Comparison, figures: &mut Figures) -> String {
    let mut ids: Vec<&str> = Vec::new();
    for change in comparison.changes.iter().filter(|change| better(change).is_some()) {
        if !ids.contains(&change.id.as_str()) {
            ids.push(&change.id);
        }
    }
    let mut out = String::new();
    let pairs = ids.into_iter().filter_map(|id| Some((curve(before, id)?, curve(after, id)?)));
    for (then, now) in pairs.take(MOST_CURVES) {
        let line = |name: &str, curve: &'_ Curve| (name.to_owned(), curve.points.clone());
        let owned = [line("after", now), line("before", then)];
        let draw = |wide: f32| {
            let lines: Vec<Line> = owned
                .iter()
                .map(|(name, points)| Line {
                    name: name.clone(),
                    points: points.iter().map(|point| (point.x, point.samples.as_slice())).collect(),
                })
                .collect();
            let shows = vec![now.id.clone(), now.id.clone()];
            Drawing { shows, ..charts::curves(wide, &now.title, &now.unit, &now.axis, &lines) }
        };
        out += &figures.put(&now.title, &number::unit(&now.unit), false, &draw, "");
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "<section id=\"curves\">\n<h2>Before and after</h2>\n<div class=\"figures\">\n{out}</div>\n</section>\n"
    )
}

fn settings(comparison: &Comparison) -> Table {
    let mut table = Table::new(&[("what", false), ("before", false), ("after", false)]);
    table.rows = comparison.settings.iter().map(|cells| row(cells.to_vec(), false)).collect();
    table
}

fn changes(comparison: &Comparison) -> Table {
    let mut table = Table::new(&[
        ("what", false),
        ("where", false),
        ("before, geometric mean", true),
        ("after, geometric mean", true),
        ("change", true),
        ("95 % interval", true),
        ("outcome", false),
    ]);
    for change in &comparison.changes {
        let outcome = match change.outcome {
            Outcome::Unknown => "too few samples",
            _ => change.words(),
        };
        let mean = |of: Option<f64>| {
            of.map_or_else(|| number::NONE.to_owned(), |value| number::with_unit(value, &change.unit))
        };
        let (ratio, interval) = change.ratio.map_or_else(
            || (number::NONE.to_owned(), number::NONE.to_owned()),
            |[r, l, h]| (charts::change(r), format!("{} to {}", charts::change(l), charts::change(h))),
        );
        let cells = vec![
            change.title.clone(),
            change.place.clone(),
            mean(change.means[0]),
            mean(change.means[1]),
            ratio,
            interval,
            outcome.to_owned(),
        ];
        table.rows.push(row(cells, change.outcome == Outcome::Worse));
    }
    table
}

//! What the report shows of a survey, before it is HTML or PDF: figures and tables.

use super::super::model::{Curve, Evidence, Layer, LayerId, Limit, SideBySide, Survey, Waterfall};
use super::charts::{self, Bar, Line, MOST_LINES, Members};
use super::draw::Drawing;
use super::number;
use super::spread::Spread;

/// How a waterfall is called among what charts show.
const WATERFALL: &str = "waterfall";
/// How waterfalls are read: by the rule after which the judge names a limit.
pub const ABOUT_LAYERS: &str = "What each layer achieved within what it could, given the layers below it. A share says how much \
     a layer passes on, not that it limits. The bar marked \u{201c}limits\u{201d} does: with storage daemons and clients on \
     machines of their own the slowest layer, on one machine the one that adds most to the time of a byte (a network of its own, between \
     namespaces, limits by itself). The remarks say how that was told. Layers that \
     are too close to be told apart are all marked. Where no bar is marked, none could be told.";
/// Members that get a row each in a chart; more are drawn as a strip.
const MOST_ROWS: usize = 20;

/// The name of a layer for people.
pub fn layer_name(layer: LayerId) -> &'static str {
    match layer {
        LayerId::Processor => "Processor",
        LayerId::Device => "Device",
        LayerId::Log => "Metadata log",
        LayerId::Storage => "Storage daemon",
        LayerId::Network => "Network",
        LayerId::Client => "One client",
        LayerId::Clients => "All clients",
        LayerId::Metadata => "Metadata",
    }
}

/// A table: heads, and rows that may stand out.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Name of each column, and whether it holds numbers.
    pub heads: Vec<(String, bool)>,
    /// Each as long as the heads.
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone)]
pub struct Row {
    /// What the cells say.
    pub cells: Vec<String>,
    /// It stands out.
    pub alert: bool,
}

impl Table {
    /// An empty table; `numbers` says which columns hold numbers.
    pub fn new(heads: &[(&str, bool)]) -> Self {
        Self { heads: heads.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(), rows: Vec::new() }
    }

    fn add(&mut self, alert: bool, cells: Vec<String>) {
        self.rows.push(Row { cells, alert });
    }
}

/// Something to look at.
#[derive(Debug, Clone)]
pub enum Figure<'a> {
    /// Curves with the same axes.
    Curves(Vec<&'a Curve>),
    /// Members that should be equal.
    Side(&'a SideBySide),
    /// Layers on top of each other.
    Waterfall(&'a Waterfall, &'a Survey),
}

/// The figures of a layer.
pub fn of_layer(layer: &Layer) -> Vec<Figure<'_>> {
    let mut questions: Vec<(Question<'_>, Vec<&Curve>)> = Vec::new();
    for curve in &layer.curves {
        let asked = Question::of(curve);
        match questions.iter_mut().find(|(known, _)| *known == asked) {
            Some((_, curves)) => curves.push(curve),
            None => questions.push((asked, vec![curve])),
        }
    }
    let groups: Vec<Vec<&Curve>> = questions.into_iter().flat_map(|(_, curves)| evenly(&curves)).collect();
    // Two stand beside each other; what belongs together is not torn apart by a single one before it.
    let sides_first = groups.len() % 2 == 1 && layer.sides.len().is_multiple_of(2);
    let curves = groups.into_iter().map(Figure::Curves);
    let sides = layer.sides.iter().map(Figure::Side);
    if sides_first { sides.chain(curves).collect() } else { curves.chain(sides).collect() }
}

/// What a chart answers. Its curves differ by the kind of work only, which is the second word of their names:
/// `clients.write.n-n` and `clients.read.n-n`, but neither `clients.write.n-1` nor `sweep.processes`.
#[derive(PartialEq)]
struct Question<'a> {
    layer: &'a str,
    setting: &'a str,
    unit: &'a str,
    axis: &'a str,
}

impl<'a> Question<'a> {
    fn of(curve: &'a Curve) -> Self {
        let (layer, rest) = curve.id.split_once('.').unwrap_or((&curve.id, ""));
        let setting = rest.split_once('.').map_or("", |(_, setting)| setting);
        Self { layer, setting, unit: &curve.unit, axis: &curve.axis }
    }
}

/// More lines than a reader tells apart stand in several charts of about the same number.
fn evenly<'a>(curves: &[&'a Curve]) -> Vec<Vec<&'a Curve>> {
    let charts = curves.len().div_ceil(MOST_LINES).max(1);
    curves.chunks(curves.len().div_ceil(charts).max(1)).map(<[&Curve]>::to_vec).collect()
}

/// The waterfalls of a survey.
pub fn waterfalls(survey: &Survey) -> impl Iterator<Item = Figure<'_>> {
    survey.waterfalls.iter().map(move |waterfall| Figure::Waterfall(waterfall, survey))
}

impl Figure<'_> {
    /// What it shows.
    pub fn title(&self) -> String {
        match self {
            Self::Curves(curves) => match curves.as_slice() {
                [one] => one.title.clone(),
                many => {
                    let titles: Vec<&str> = many.iter().map(|curve| curve.title.as_str()).collect();
                    let (common, names) = charts::short_names(&titles);
                    // Where names say nothing of their own, they are the titles, which the common part begins with.
                    let own = common.is_empty() || names != titles;
                    let alike = if own { first_words(&names) } else { String::new() };
                    let unit = many.first().map_or("", |curve| curve.unit.as_str());
                    let parts = [alike.as_str(), common.as_str()].into_iter().filter(|part| !part.is_empty());
                    let title = parts.collect::<Vec<&str>>().join(", ");
                    capital(if title.is_empty() { what(unit) } else { &title })
                }
            },
            Self::Side(side) => side.title.clone(),
            Self::Waterfall(waterfall, _) => waterfall.title.clone(),
        }
    }

    /// What stands below the title.
    pub fn subtitle(&self) -> String {
        match self {
            Self::Curves(curves) => {
                let first = curves.first();
                let (unit, axis) = first.map_or(("", ""), |curve| (curve.unit.as_str(), curve.axis.as_str()));
                let bands =
                    curves.iter().flat_map(|curve| &curve.points).any(|point| point.samples.len() > 1);
                let band = if bands { "; mean, band from minimum to maximum" } else { "" };
                format!("{} over {}{band}", number::unit(unit), axis.split(" (").next().unwrap_or(axis))
            }
            Self::Side(side) => {
                let better = if side.more_is_better { "more is better" } else { "less is better" };
                format!("{}, {better}", number::unit(&side.unit))
            }
            Self::Waterfall(waterfall, _) => {
                format!("{}, from the device to all clients", number::unit(&waterfall.unit))
            }
        }
    }

    /// Names of what it shows, in the order of its series.
    fn shows(&self) -> Vec<String> {
        match self {
            Self::Curves(curves) => curves.iter().map(|curve| curve.id.clone()).collect(),
            Self::Side(side) => vec![side.id.clone()],
            Self::Waterfall(..) => vec![WATERFALL.to_owned()],
        }
    }

    /// The drawing in that width.
    pub fn draw(&self, wide: f32) -> Drawing {
        Drawing { shows: self.shows(), ..self.marks(wide) }
    }

    fn marks(&self, wide: f32) -> Drawing {
        match self {
            Self::Curves(curves) => {
                let titles: Vec<&str> = curves.iter().map(|curve| curve.title.as_str()).collect();
                let (_, names) = charts::short_names(&titles);
                let lines: Vec<Line> = names
                    .into_iter()
                    .zip(curves)
                    .map(|(name, curve)| {
                        let points = curve.points.iter().map(|p| (p.x, p.samples.as_slice())).collect();
                        Line { name, points }
                    })
                    .collect();
                let (unit, axis) =
                    curves.first().map_or(("", ""), |curve| (curve.unit.as_str(), curve.axis.as_str()));
                charts::curves(wide, &self.title(), unit, axis, &lines)
            }
            Self::Side(side) => {
                let members = members(side);
                if let Some(grid) = charts::grid_of(&members) {
                    charts::grid(wide, &members, &grid)
                } else if members.each.len() <= MOST_ROWS {
                    charts::dots(wide, &members)
                } else {
                    charts::strip(wide, &members)
                }
            }
            Self::Waterfall(waterfall, survey) => {
                charts::bars(wide, &waterfall.title, &waterfall.unit, &steps(waterfall, survey))
            }
        }
    }

    /// The numbers of the drawing.
    pub fn table(&self) -> Table {
        match self {
            Self::Curves(curves) => curve_table(curves),
            Self::Side(side) => side_table(side),
            Self::Waterfall(waterfall, _) => waterfall_table(waterfall),
        }
    }

    /// The command lines that measure it again.
    pub fn commands(&self) -> Vec<&str> {
        let mut commands: Vec<&str> = match self {
            Self::Curves(curves) => curves.iter().map(|curve| curve.command.as_str()).collect(),
            Self::Side(side) => vec![side.command.as_str()],
            Self::Waterfall(..) => Vec::new(),
        };
        commands.retain(|command| !command.trim().is_empty());
        commands.dedup();
        commands
    }

    /// True when there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Curves(curves) => curves.iter().all(|curve| {
                curve.points.iter().all(|point| Spread::of(&point.samples).is_none() || !point.x.is_finite())
            }),
            Self::Side(side) => side.members.iter().all(|member| Spread::of(&member.samples).is_none()),
            Self::Waterfall(waterfall, _) => waterfall.steps.is_empty(),
        }
    }
}

/// The words with which all names begin: `Random` of `Random reads` and `Random writes`.
fn first_words(names: &[String]) -> String {
    let Some((first, rest)) = names.split_first() else { return String::new() };
    let alike = |(at, word): &(usize, &str)| rest.iter().all(|name| name.split(' ').nth(*at) == Some(word));
    first.split(' ').enumerate().take_while(alike).map(|(_, word)| word).collect::<Vec<&str>>().join(" ")
}

/// What a unit counts.
fn what(unit: &str) -> &str {
    match unit {
        "MB/s" | "MiB/s" | "GB/s" | "GiB/s" => "throughput",
        "operations/s" => "operations per second",
        "us" | "ms" | "s" => "latency",
        other => other,
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn members(side: &SideBySide) -> Members<'_> {
    Members {
        title: &side.title,
        unit: &side.unit,
        more_is_better: side.more_is_better,
        each: side
            .members
            .iter()
            .map(|member| (member.name.as_str(), member.samples.as_slice(), member.outlier.is_some()))
            .collect(),
    }
}

fn steps(waterfall: &Waterfall, survey: &Survey) -> Vec<Bar> {
    let title = waterfall.title.to_lowercase();
    let limits: Vec<LayerId> = survey
        .verdict
        .limits
        .iter()
        .filter(|limit| limit.work.to_lowercase().starts_with(&title))
        .flat_map(Limit::layers)
        .collect();
    // A layer's first step is the work that was judged: a file per process, not one file for all.
    let judged =
        |at: usize| !waterfall.steps[..at].iter().any(|step| step.layer == waterfall.steps[at].layer);
    let culprit = survey.verdict.culprit.as_ref().map(|culprit| culprit.layer);
    let bar = |(at, step): (usize, &super::super::model::Step)| Bar {
        name: step.name.clone(),
        achieved: step.achieved,
        possible: step.theoretical,
        note: (judged(at) && limits.contains(&step.layer)).then(|| "limits".to_owned()),
        alert: culprit == Some(step.layer),
    };
    waterfall.steps.iter().enumerate().map(bar).collect()
}

const NUMBERS: [(&str, bool); 6] =
    [("samples", true), ("min", true), ("mean", true), ("median", true), ("max", true), ("std. dev.", true)];

fn numbers(samples: &[f64]) -> Vec<String> {
    let Some(spread) = Spread::of(samples) else {
        let mut none = vec!["0".to_owned()];
        none.resize(NUMBERS.len(), number::NONE.to_owned());
        return none;
    };
    let mut cells = vec![spread.count.to_string()];
    let values = [spread.min, spread.mean, spread.median, spread.max, spread.deviation];
    cells.extend(values.map(number::number));
    cells
}

/// Samples of one place that are written out; the JSON holds all of them.
const MOST_SAMPLES: usize = 50;

fn raw(samples: &[f64]) -> String {
    let mut text: Vec<String> = samples.iter().take(MOST_SAMPLES).map(|v| number::number(*v)).collect();
    if samples.len() > MOST_SAMPLES {
        text.push(format!("and {} more", samples.len() - MOST_SAMPLES));
    }
    text.join("  ")
}

fn heads(first: &[(&str, bool)]) -> Table {
    let mut table = Table::new(first);
    table.heads.extend(NUMBERS.iter().map(|(name, n)| ((*name).to_owned(), *n)));
    table.heads.push((RAW.to_owned(), false));
    table
}

/// Name of the column with every sample.
pub const RAW: &str = "each sample";

fn curve_table(curves: &[&Curve]) -> Table {
    let axis = curves.first().map_or("", |curve| curve.axis.as_str());
    let place = axis.split(" (").next().unwrap_or(axis);
    let mut table = heads(&[("curve", false), (place, true)]);
    let titles: Vec<&str> = curves.iter().map(|curve| curve.title.as_str()).collect();
    for (curve, name) in curves.iter().zip(charts::short_names(&titles).1) {
        for point in &curve.points {
            let mut cells = vec![if curves.len() > 1 { name.clone() } else { curve.title.clone() }];
            cells.push(number::place(point.x, axis));
            cells.extend(numbers(&point.samples));
            cells.push(raw(&point.samples));
            table.add(false, cells);
        }
    }
    table
}

fn side_table(side: &SideBySide) -> Table {
    let mut table = heads(&[("member", false)]);
    let remarks = side.members.iter().any(|member| member.outlier.is_some());
    if remarks {
        table.heads.insert(1, ("differs".to_owned(), false));
    }
    for member in &side.members {
        let mut cells = vec![member.name.clone()];
        if remarks {
            cells.push(member.outlier.clone().unwrap_or_default());
        }
        cells.extend(numbers(&member.samples));
        cells.push(raw(&member.samples));
        table.add(member.outlier.is_some(), cells);
    }
    table
}

fn waterfall_table(waterfall: &Waterfall) -> Table {
    let unit = number::unit(&waterfall.unit);
    let mut table = Table::new(&[
        ("layer", false),
        (&format!("achieved, {unit}"), true),
        (&format!("possible, {unit}"), true),
        ("share", true),
        ("what is possible, and why", false),
    ]);
    for step in &waterfall.steps {
        let possible = step.theoretical.map_or_else(|| number::NONE.to_owned(), number::number);
        let share = step.theoretical.and_then(|possible| number::percent(step.achieved, possible));
        let share = share.unwrap_or_else(|| number::NONE.to_owned());
        let cells =
            vec![step.name.clone(), number::number(step.achieved), possible, share, step.because.clone()];
        table.add(false, cells);
    }
    table
}

/// The numbers that show something.
pub fn evidence(evidence: &[Evidence]) -> Table {
    let mut table =
        Table::new(&[("what", false), ("measured", true), ("compared with", true), ("share", true)]);
    for number in evidence {
        let share = number::percent(number.value, number.expected).unwrap_or_else(|| number::NONE.to_owned());
        let unit = &number.unit;
        let (value, expected) =
            (number::with_unit(number.value, unit), number::with_unit(number.expected, unit));
        table.add(false, vec![number.what.clone(), value, expected, share]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(id: &str, title: &str, unit: &str, axis: &str) -> Curve {
        Curve {
            id: id.to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            axis: axis.to_owned(),
            points: Vec::new(),
            command: String::new(),
        }
    }

    fn shown(curves: Vec<Curve>) -> Vec<(String, Vec<String>)> {
        let layer = Layer { id: LayerId::Clients, about: String::new(), curves, sides: Vec::new() };
        of_layer(&layer).iter().map(|figure| (figure.title(), figure.shows())).collect()
    }

    /// Goal: every chart is one question: own files, one file, random access, each axis of the search, each record
    /// size and each kind of directory have a chart of their own, and reading stands beside writing.
    #[test]
    fn a_chart_is_one_question() {
        let mut curves = Vec::new();
        let mut add =
            |id: &str, title: &str, unit: &str, axis: &str| curves.push(curve(id, title, unit, axis));
        for (suffix, words) in [("n-n", "a file per process"), ("n-1", "all processes in one file")] {
            add(&format!("clients.write.{suffix}"), &format!("Write, {words}"), "MB/s", "processes");
            add(&format!("clients.read.{suffix}"), &format!("Read, {words}"), "MB/s", "processes");
        }
        add("clients.random-read", "Random reads of 4 KiB, own files", "operations/s", "processes");
        add("clients.random-write", "Random writes of 4 KiB, own files", "operations/s", "processes");
        add("sweep.processes", "both over processes, the rest as found best", "MB/s", "processes");
        add("sweep.transfer", "both over transfer size, the rest as found best", "MB/s", "transfer size");
        for suffix in ["", ".256KiB", ".1MiB.objects-1"] {
            let of = |work: &str| format!("{work}, records{suffix}");
            add(&format!("storage.write{suffix}"), &of("Write"), "MB/s", "threads per target");
            add(&format!("storage.read{suffix}"), &of("Read"), "MB/s", "threads per target");
        }
        for suffix in ["", ".shared"] {
            for work in ["create", "stat", "open", "remove"] {
                let title = format!("{work}, directory{suffix}");
                add(&format!("metadata.{work}{suffix}"), &title, "operations/s", "processes");
            }
        }
        let found = shown(curves);
        let ids: Vec<String> = found.iter().map(|(_, ids)| ids.join(" ")).collect();
        assert_eq!(
            ids,
            [
                "clients.write.n-n clients.read.n-n",
                "clients.write.n-1 clients.read.n-1",
                "clients.random-read clients.random-write",
                "sweep.processes",
                "sweep.transfer",
                "storage.write storage.read",
                "storage.write.256KiB storage.read.256KiB",
                "storage.write.1MiB.objects-1 storage.read.1MiB.objects-1",
                "metadata.create metadata.stat metadata.open metadata.remove",
                "metadata.create.shared metadata.stat.shared metadata.open.shared metadata.remove.shared",
            ]
        );
        let titles: Vec<&str> = found.iter().map(|(title, _)| title.as_str()).take(3).collect();
        assert_eq!(titles, ["A file per process", "All processes in one file", "Random, own files"]);
    }

    /// Goal: too many lines for one chart are shared out evenly; names without dots are names as well.
    #[test]
    fn many_lines_are_shared_out() {
        let many = (0..7).map(|n| curve(&format!("metadata.{n}"), &format!("w{n}"), "u", "x")).collect();
        let counts: Vec<usize> = shown(many).iter().map(|(_, ids)| ids.len()).collect();
        assert_eq!(counts, [4, 3]);
        let odd = ["", "a", "..", "a.b."].map(|id| curve(id, "t", "u", "x"));
        let lines: usize = shown(odd.into()).iter().map(|(_, ids)| ids.len()).sum();
        assert_eq!(lines, 4);
    }
}

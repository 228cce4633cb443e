//! Pieces of the page: figures with their numbers, tables, commands.

use super::super::super::model::Fact;
use super::super::draw::Drawing;
use super::super::figures::{Figure, Table};
use super::super::svg::svg;
use super::page::escape;

/// Width of drawings beside each other.
const HALF: f32 = 480.0;
/// Width of drawings over the whole page.
const FULL: f32 = 860.0;
/// Width of drawings on a telephone.
const NARROW: f32 = 340.0;

/// Figures, numbered through the page.
#[derive(Debug, Default)]
pub struct Figures {
    count: usize,
}

impl Figures {
    /// Figures beside each other, or each over the whole width.
    pub fn grid(&mut self, figures: Vec<Figure>, full: bool) -> String {
        let mut out = format!("<div class=\"figures{}\">\n", if full { " full" } else { "" });
        for figure in figures {
            let (title, subtitle) = (figure.title(), figure.subtitle());
            let draw = |wide: f32| figure.draw(wide);
            out += &if figure.is_empty() {
                caption(&title, &subtitle) + "<p class=\"nothing\">Nothing was measured.</p>\n</figure>\n"
            } else {
                self.put(&title, &subtitle, full, &draw, &details(&figure))
            };
        }
        out += "</div>\n";
        out
    }

    /// One figure: drawn for a desk and for a telephone, with `below` it whatever belongs to it.
    pub fn put(
        &mut self,
        title: &str,
        subtitle: &str,
        full: bool,
        draw: &dyn Fn(f32) -> Drawing,
        below: &str,
    ) -> String {
        self.count += 1;
        let wide = draw(if full { FULL } else { HALF });
        let mut out = caption(title, subtitle);
        out += &svg(&wide, &format!("f{}w", self.count), "chart wide");
        out += &svg(&draw(NARROW), &format!("f{}n", self.count), "chart narrow");
        out += below;
        out += "</figure>\n";
        out
    }
}

fn caption(title: &str, subtitle: &str) -> String {
    let (title, subtitle) = (escape(title), escape(subtitle));
    format!("<figure>\n<figcaption><h3>{title}</h3><span>{subtitle}</span></figcaption>\n")
}

/// The numbers of a figure and how to measure them again, folded.
fn details(figure: &Figure) -> String {
    let commands = figure.commands();
    let summary = if commands.is_empty() { "Numbers" } else { "Numbers and commands" };
    let print = if matches!(figure, Figure::Waterfall(..)) { " class=\"print\"" } else { "" };
    let mut out = format!("<details{print}><summary>{summary}</summary>\n");
    for command in commands {
        out += &format!("<pre>{}</pre>\n", escape(command));
    }
    out += &format!("<div class=\"scroll\">\n{}</div>\n</details>\n", table(&figure.table(), ""));
    out
}

/// From this length on, a cell may break its lines.
const LONG_CELL: usize = 40;

/// Up to this length, a number stays on its line.
const SHORT_CELL: usize = 12;

/// A table; nothing where there are no rows.
pub fn table(table: &Table, class: &str) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let mut out = format!("<table class=\"{class}\">\n<thead><tr>");
    let number = |column: usize| table.heads.get(column).is_some_and(|(_, number)| *number);
    for (column, (name, _)) in table.heads.iter().enumerate() {
        let class = if number(column) { " class=\"n\"" } else { "" };
        out += &format!("<th scope=\"col\"{class}>{}</th>", escape(name));
    }
    out += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        out += if row.alert { "<tr class=\"alert\">" } else { "<tr>" };
        for (column, cell) in row.cells.iter().enumerate() {
            let class = match (number(column), cell.len() >= LONG_CELL) {
                (true, _) if cell.len() <= SHORT_CELL => " class=\"n s\"",
                (true, _) => " class=\"n\"",
                (_, true) => " class=\"w\"",
                _ => "",
            };
            out += &format!("<td{class}>{}</td>", escape(cell));
        }
        out += "</tr>\n";
    }
    out += "</tbody></table>\n";
    out
}

/// Names and values.
pub fn facts(facts: &[Fact]) -> String {
    let mut out = "<table class=\"facts\"><tbody>\n".to_owned();
    for fact in facts {
        out += &format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(&fact.name), escape(&fact.value));
    }
    out += "</tbody></table>\n";
    out
}

/// Command lines, each selected by a click.
pub fn commands<'a>(commands: impl Iterator<Item = &'a str>) -> String {
    let mut out = "<ol class=\"commands\">\n".to_owned();
    for command in commands {
        out += &format!("<li><pre>{}</pre></li>\n", escape(command));
    }
    out += "</ol>\n";
    out
}

//! The result for people.

use super::load::empty_of;
use super::result::{Cell, Line, Placed, Report};
use super::systems::{self, EMPTY, GLUSTER, MOOSE, SKEP};
use crate::bench::place::Place;
use crate::bench::system::LOCAL;
use crate::bench::table::table;

/// Everything.
pub fn text(report: &Report) -> String {
    let mut text = head(report);
    for placed in &report.places {
        text.push_str(&rates_of(report, placed));
        text.push_str(&costs(placed));
        text.push_str(&verdicts_of(report, placed));
    }
    text
}

/// What was measured.
pub fn rates(report: &Report) -> String {
    let of = |placed: &Placed| rates_of(report, placed) + &costs(placed);
    head(report) + &report.places.iter().map(of).collect::<String>()
}

/// What was to be reached.
pub fn verdicts(report: &Report) -> String {
    report.places.iter().map(|placed| verdicts_of(report, placed)).collect()
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{}: median of {} rounds ({} of trees); {} cores of {}, Linux {}\n{}\n",
        report.date,
        report.rounds.0,
        report.rounds.1,
        machine.cores,
        machine.processor,
        machine.kernel,
        report.command
    );
    let (names, tree, large) = report.files;
    text.push_str(&format!(
        "files: {names} of the rows about names, {tree} of a tree, {large} of a large directory\n"
    ));
    if let Some(rpc) = report.rpc_us {
        text.push_str(&format!("one RPC of 200 bytes, pinned: {rpc:.1} us\n"));
    }
    for absent in &report.absent {
        text.push_str(&format!("without {}: {}\n", absent.system, absent.why));
    }
    text
}

fn place(report: &Report, placed: &Placed) -> String {
    match placed.place {
        Place::Pinned => format!("pinned to core {}", report.pinned_to),
        Place::Free => "free placement".to_owned(),
    }
}

fn cell<'a>(line: &'a Line, system: &str) -> Option<&'a Cell> {
    line.cells.iter().find(|cell| cell.system == system)
}

/// The systems that are in these rows at all.
fn present(lines: &[Line]) -> Vec<&'static str> {
    let is_there = |system: &&str| lines.iter().any(|line| cell(line, system).is_some());
    systems::ALL.into_iter().filter(is_there).collect()
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        "s" => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn shown(line: &Line, system: &str) -> String {
    let Some(cell) = cell(line, system) else { return "-".to_owned() };
    let value = number(cell.value, &line.unit);
    if cell.cut_off { format!("> {value}") } else { value }
}

fn rates_of(report: &Report, placed: &Placed) -> String {
    // Rows with one empty file system show it in one column.
    let systems: Vec<&str> = present(&placed.rows).into_iter().filter(|s| *s != systems::PAGES).collect();
    let mut header = vec![place(report, placed), "proc.".to_owned(), String::new()];
    for system in &systems {
        header.push((*system).to_owned());
        if *system == SKEP {
            header.push("(min-max)".to_owned());
        }
    }
    let mut all = table(header);
    for line in &placed.rows {
        let mut cells = vec![line.row.clone(), line.processes.to_string(), line.unit.clone()];
        for system in &systems {
            cells.push(shown(line, if *system == EMPTY { empty_of(&line.row) } else { system }));
            if *system == SKEP {
                let range = |cell: &Cell| {
                    format!("({}-{})", number(cell.min, &line.unit), number(cell.max, &line.unit))
                };
                cells.push(cell(line, SKEP).map_or("-".to_owned(), range));
            }
        }
        all.add_row(cells);
    }
    format!("\n{all}\n")
}

/// Processor time of all processes of a system, messages and RPCs, of one operation.
fn costs(placed: &Placed) -> String {
    let of = [LOCAL, EMPTY, SKEP, MOOSE, GLUSTER];
    let mut header = vec!["per operation (file, MiB)".to_owned(), "proc.".to_owned()];
    header.extend(of.iter().map(|system| format!("CPU us {system}")));
    header.extend(["messages skep", "RPCs skep"].map(str::to_owned));
    let mut all = table(header);
    for line in &placed.rows {
        let mut cells = vec![line.row.clone(), line.processes.to_string()];
        for system in of {
            let system = if system == EMPTY { empty_of(&line.row) } else { system };
            cells.push(cell(line, system).map_or("-".to_owned(), |cell| format!("{:.0}", cell.cpu_us)));
        }
        let skep = cell(line, SKEP);
        for counted in [skep.and_then(|cell| cell.messages), skep.and_then(|cell| cell.rpcs)] {
            cells.push(counted.map_or("-".to_owned(), |value| format!("{value:.1}")));
        }
        all.add_row(cells);
    }
    format!("\n{all}\n")
}

fn verdicts_of(report: &Report, placed: &Placed) -> String {
    let header = [place(report, placed).as_str(), "proc.", "to reach", "measured", ""].map(str::to_owned);
    let mut all = table(header.to_vec());
    for verdict in &placed.verdicts {
        let word = if verdict.reached { "reached" } else { "MISSED" };
        all.add_row([
            verdict.row.clone(),
            verdict.processes.to_string(),
            verdict.target.clone(),
            verdict.measured.clone(),
            word.to_owned(),
        ]);
    }
    let reached = placed.verdicts.iter().filter(|verdict| verdict.reached).count();
    format!("\n{all}\n{reached} of {} reached\n", placed.verdicts.len())
}

#[cfg(test)]
mod tests {
    use super::super::result::{Samples, tests::sample};
    use super::super::rows;
    use super::super::systems::PAGES;
    use super::*;

    /// Goal: what was cut off is a lower bound, and rows with pages show the empty file system that has them.
    #[test]
    fn special_cells() {
        let mut listing = sample(SKEP, rows::LISTING, 0, 1e5, 60.0);
        listing.of.cut_off = true;
        let all = [
            listing,
            sample(SKEP, rows::TINY_READ, 0, 100.0, 1.0),
            sample(EMPTY, rows::TINY_READ, 0, 200.0, 1.0),
            sample(PAGES, rows::TINY_READ, 0, 300.0, 1.0),
        ];
        let lines = Samples { all: &all, place: Place::Pinned }.lines();
        assert_eq!(shown(&lines[1], SKEP), "> 60.00");
        assert_eq!(shown(&lines[0], empty_of(&lines[0].row)), "300");
        assert_eq!(shown(&lines[1], MOOSE), "-");
    }
}

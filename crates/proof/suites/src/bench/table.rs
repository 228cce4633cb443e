//! The result for people.

use super::place::Place;
use super::profile::Profile;
use super::result::{On, Placed, Report, Row};
use super::verdict::verdicts;
use comfy_table::{Table, presets::NOTHING};

/// A further column: its name, and what it says of a transport.
type Column<'a> = (&'a str, &'a dyn Fn(&On) -> String);

/// Symbol groups shown of a profile; the rest is one line.
const GROUPS_SHOWN: usize = 12;

/// Everything, as text for a terminal.
pub fn text(report: &Report) -> String {
    format!("{}{}", rates(report), profiles(report))
}

/// The rates, and what was to be reached.
pub fn rates(report: &Report) -> String {
    let mut text = head(report);
    for placed in &report.places {
        text.push_str(&place_line(report, placed));
        text.push_str(&operations(&placed.rows));
        text.push_str(&streams(&placed.rows));
    }
    text + &targets(report)
}

/// Where the time goes.
pub fn profiles(report: &Report) -> String {
    report.profiles.iter().map(costs).collect()
}

/// What an operation costs each process, one line per operation and transport.
pub fn paths(report: &Report) -> String {
    let parts = ["load", "mount", "metad", "storaged"];
    let mut header = vec!["operation".to_owned(), "on".to_owned(), "us".to_owned(), "FUSE".to_owned()];
    header.extend(parts.iter().map(|part| format!("{part} us / calls / switches")));
    let mut table = table(header);
    for profile in &report.profiles {
        let mut cells = vec![
            profile.operation.clone(),
            profile.transport.name().to_owned(),
            format!("{:.1}", profile.us_per_op),
            format!("{:.1}", profile.fuse_messages),
        ];
        cells.extend(parts.iter().map(|part| {
            profile.processes.iter().find(|process| process.name == *part).map_or("-".to_owned(), |process| {
                format!("{:.1} / {:.1} / {:.1}", process.cpu_us, process.system_calls, process.switches)
            })
        }));
        table.add_row(cells);
    }
    format!("{}\n{table}\n", head(report))
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "{}: median of {} rounds; {} cores of {}, Linux {}\n{}\n",
        report.date, report.rounds, machine.cores, machine.processor, machine.kernel, report.command
    )
}

fn place_line(report: &Report, placed: &Placed) -> String {
    let place = match placed.place {
        Place::Pinned => format!("pinned to core {}", report.pinned_to),
        Place::Free => "free placement".to_owned(),
    };
    format!("\n{place}; socket alone {} MiB/s\n", number(placed.socket_mib_per_s))
}

/// An empty table.
pub fn table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    table
}

fn number(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// The columns that both kinds of rows have, and whether another build was measured too.
fn common(rows: &[&Row], unit: &str) -> (Vec<String>, bool) {
    let mut header = vec![unit.to_owned(), "proc.".to_owned(), "tmpfs".to_owned()];
    let on = rows.first().map_or(&[][..], |row| &row.on[..]);
    header.extend(on.iter().map(|on| format!("empty {}", on.transport.name())));
    for on in on {
        header.push(format!("skep {}", on.transport.name()));
        header.push("(min-max)".to_owned());
    }
    if on.len() > 1 {
        header.push("uring/dev".to_owned());
    }
    (header, on.iter().any(|on| on.skep_over_beside.is_some()))
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![row.phase.clone(), row.processes.to_string(), number(row.local)];
    cells.extend(row.on.iter().map(|on| number(on.empty)));
    for on in &row.on {
        cells.push(number(on.skep));
        cells.push(format!("({}-{})", number(on.skep_min), number(on.skep_max)));
    }
    if row.on.len() > 1 {
        cells.push(times(row.uring_over_dev));
    }
    cells
}

/// A table of `rows` with further columns, one per transport each.
fn of_rows(rows: &[&Row], unit: &str, further: &[Column<'_>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let (mut header, beside) = common(rows, unit);
    let other = |on: &On| times(on.skep_over_beside);
    let other: Column<'_> = ("skep/beside", &other);
    let further: Vec<_> = further.iter().chain(beside.then_some(&other)).collect();
    for (name, _) in &further {
        header.extend(rows[0].on.iter().map(|on| format!("{name} {}", on.transport.name())));
    }
    let mut table = table(header);
    for row in rows {
        let more = further.iter().flat_map(|(_, cell)| row.on.iter().map(cell));
        table.add_row(cells(row).into_iter().chain(more));
    }
    format!("\n{table}\n")
}

fn operations(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.stream).collect();
    of_rows(&rows, "operations per second", &[("empty/skep", &|on| times(on.empty_over_skep))])
}

fn streams(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.stream).collect();
    let ceiling = |on: &On| format!("{} {}", number(on.ceiling), percent(on.of_ceiling));
    let shared = |on: &On| percent(on.shared_over_own);
    of_rows(&rows, "MiB per second", &[("ceiling, of it", &ceiling), ("N-1/N-N", &shared)])
}

fn targets(report: &Report) -> String {
    let mut table = table(["target", "best to worst", ""].map(str::to_owned).to_vec());
    let verdicts = verdicts(report);
    if verdicts.is_empty() {
        return String::new();
    }
    for verdict in verdicts {
        let word = if verdict.reached { "reached" } else { "MISSED" };
        table.add_row([verdict.what, verdict.measured, word.to_owned()]);
    }
    format!("\n{table}\n")
}

/// One profile: what an operation costs each process, and what the time is spent with.
fn costs(profile: &Profile) -> String {
    let mut text = format!(
        "\n{}, {}: {:.1} us, {:.1} FUSE messages per operation\n",
        profile.operation,
        profile.transport.name(),
        profile.us_per_op,
        profile.fuse_messages
    );
    let mut processes = table(["process", "CPU us", "system calls", "switches"].map(str::to_owned).to_vec());
    for process in &profile.processes {
        processes.add_row([
            process.name.clone(),
            format!("{:.1}", process.cpu_us),
            format!("{:.1}", process.system_calls),
            format!("{:.1}", process.switches),
        ]);
    }
    text.push_str(&format!("{processes}\n"));
    let mut groups = table(["cost", "us", "share"].map(str::to_owned).to_vec());
    for group in profile.groups.iter().take(GROUPS_SHOWN) {
        groups.add_row([group.name.clone(), format!("{:.2}", group.us), percent(Some(group.share))]);
    }
    text.push_str(&format!("{groups}\n"));
    let largest: Vec<&str> = profile.groups.iter().take(3).map(|group| group.name.as_str()).collect();
    text.push_str(&format!("largest: {}\n", largest.join("; ")));
    text
}

//! `skep stats --watch`: the live view, and lines when nobody looks.

use super::rates::{RateRow, Sample, between, busiest, bytes, count, milliseconds};
use super::screen::{self, Event, Screen};
use super::{StatsArgs, collect};
use crate::session::SILENT_MS;
use skep_base::Outcome;
use skep_base::access::Cluster;
use skep_base::daemon::Stop;
use skep_base::output::{self, Format, ago};
use skep_base::units::Period;
use skep_types::Reachability;
use skep_wire::mgmt::{NodeEntry, StatusReply};
use std::io::Write;
use std::time::{Duration, Instant};

/// Looks more often than this would be load without use.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Keys and the size of the terminal are looked at this often.
const SLICE: Duration = Duration::from_millis(200);
/// Messages in the list of the busiest.
const BUSIEST: usize = 5;

/// What the rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Name,
    Operations,
    Bytes,
    Latency,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Name => Self::Operations,
            Self::Operations => Self::Bytes,
            Self::Bytes => Self::Latency,
            Self::Latency => Self::Name,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Operations => "operations",
            Self::Bytes => "bytes",
            Self::Latency => "latency",
        }
    }

    fn sort(self, rows: &mut [&RateRow]) {
        let key = |row: &RateRow| match self {
            Self::Name => 0.0,
            Self::Operations => row.operations_per_second,
            Self::Bytes => row.read_bytes_per_second + row.written_bytes_per_second,
            Self::Latency => row.latency_ms.unwrap_or(0.0),
        };
        rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    }
}

/// What is on the screen.
struct View {
    rows: Vec<RateRow>,
    busiest: Vec<(String, f64)>,
    /// First lines: what is looked at.
    head: Vec<String>,
    /// What did not answer.
    trouble: Vec<String>,
    sort: Sort,
    paused: bool,
}

/// Shows what happens until it is told to end.
pub fn watch(
    cluster: &mut Cluster,
    args: &StatsArgs,
    every: Period,
    wanted: &dyn Fn(&NodeEntry) -> bool,
    out: &mut dyn Write,
) -> Outcome {
    let every = every.duration().max(INTERVAL_MIN);
    let stop = Stop::on_signals()?;
    let live = screen::is_terminal() && args.output.output == Format::Table;
    let screen = if live { Some(Screen::take()?) } else { None };
    let mut look = || -> Outcome<(Sample, StatusReply, Vec<String>)> {
        let status = cluster.status()?;
        let (rows, failures) = collect(cluster, &status, wanted);
        Ok((Sample::new(rows), status, failures.iter().map(ToString::to_string).collect()))
    };
    let (mut before, status, trouble) = look()?;
    let mut view = View {
        rows: Vec::new(),
        busiest: Vec::new(),
        head: head(&status, every),
        trouble,
        sort: Sort::Name,
        paused: false,
    };
    for round in 0.. {
        if args.count.is_some_and(|count| round >= count) {
            break;
        }
        if !pause(&stop, every, screen.as_ref(), &mut view)? {
            break;
        }
        match look() {
            Ok((now, status, trouble)) => {
                view.rows = between(&before, &now);
                view.busiest = busiest(&before, &now, BUSIEST);
                (view.head, view.trouble) = (head(&status, every), trouble);
                before = now;
            }
            // On a screen it may come back while one watches.
            Err(failure) if screen.is_some() => view.trouble = vec![failure.to_string()],
            Err(failure) => return Err(failure),
        }
        if screen.is_none() {
            view.trouble.iter().for_each(|text| eprintln!("skep: {text}"));
            output::rows(args.output.output, &view.rows, out)?;
            out.flush()?;
        }
    }
    Ok(())
}

/// Until the next look; false: it is to end.
fn pause(stop: &Stop, every: Duration, screen: Option<&Screen>, view: &mut View) -> Outcome<bool> {
    let until = Instant::now() + every;
    let Some(screen) = screen else {
        return Ok(!stop.wait(every));
    };
    let mut shown = None;
    loop {
        let size = screen.size();
        if shown != Some(size) {
            screen.show(&view.lines(size.0, size.1))?;
            shown = Some(size);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() && !view.paused {
            return Ok(true);
        }
        match screen::wait(stop, if view.paused { SLICE } else { left.min(SLICE) }) {
            Event::End | Event::Key(b'q' | b'Q' | 3 | 4) => return Ok(false),
            Event::Key(b'p' | b' ') => view.paused = !view.paused,
            Event::Key(b's') => view.sort = view.sort.next(),
            Event::Key(_) | Event::Nothing => continue,
        }
        shown = None;
    }
}

fn head(status: &StatusReply, every: Duration) -> Vec<String> {
    let online = status.nodes.iter().filter(|node| node.node.reachability == Reachability::Online).count();
    let silent: Vec<_> = status
        .sessions
        .iter()
        .filter(|session| session.silent_ms.is_none_or(|ms| ms > SILENT_MS))
        .map(|session| format!("{}:{} ({})", session.host, session.mount, ago(session.silent_ms)))
        .collect();
    let mut lines = vec![format!(
        "skep  {}  every {:.1} s   {online}/{} nodes online  {} targets  {} sessions",
        &skep_base::log::format_time(std::time::SystemTime::now())[11..19],
        every.as_secs_f64(),
        status.nodes.len(),
        status.targets.len(),
        status.sessions.len()
    )];
    if !silent.is_empty() {
        lines.push(format!("silent sessions: {}", silent.join(", ")));
    }
    lines
}

impl View {
    /// The screen as text, no longer and no wider than it is.
    fn lines(&self, columns: usize, rows: usize) -> Vec<String> {
        let mut lines = self.head.clone();
        lines.extend(self.trouble.iter().map(|text| format!("! {}", text.replace('\n', " "))));
        if self.rows.is_empty() {
            lines.push("looking ...".to_owned());
        } else {
            self.metadata(&mut lines);
            // What is below the targets, and the targets as far as there is room.
            let room = rows.saturating_sub(lines.len() + 6);
            self.targets(&mut lines, room);
            if !self.busiest.is_empty() {
                let list: Vec<_> =
                    self.busiest.iter().map(|(name, rate)| format!("{name} {}/s", count(*rate))).collect();
                lines.push(String::new());
                lines.push(format!("busiest: {}", list.join("  ")));
            }
        }
        lines.truncate(rows.saturating_sub(1));
        lines.resize(rows.saturating_sub(1), String::new());
        let paused = if self.paused { "PAUSED   " } else { "" };
        lines.push(format!("{paused}q quit   p pause   s sort: {}", self.sort.as_str()));
        lines.iter().map(|line| line.chars().take(columns).collect()).collect()
    }

    fn metadata(&self, lines: &mut Vec<String>) {
        let mut rows: Vec<_> = self.rows.iter().filter(|row| row.target.is_empty()).collect();
        self.sort.sort(&mut rows);
        lines.push(String::new());
        lines.push(format!(
            "{:<20}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "METADATA", "OPS/S", "LATENCY", "SYNCS/S", "SYNC", "IN WORK"
        ));
        for row in rows {
            lines.push(format!(
                "{:<20}{:>10}{:>10}{:>10}{:>10}{:>10}",
                short(&row.node),
                count(row.operations_per_second),
                milliseconds(row.latency_ms),
                count(row.syncs_per_second),
                milliseconds(row.sync_ms),
                row.in_flight
            ));
        }
    }

    fn targets(&self, lines: &mut Vec<String>, room: usize) {
        let mut rows: Vec<_> = self.rows.iter().filter(|row| !row.target.is_empty()).collect();
        self.sort.sort(&mut rows);
        let line = |name: &str, node: &str, cells: [String; 5]| {
            let [ops, latency, read, written, work] = cells;
            format!(
                "{:<14}{:<14}{ops:>9}{latency:>10}{read:>12}{written:>12}{work:>9}",
                cut(name, 13),
                cut(node, 13)
            )
        };
        lines.push(String::new());
        let titles = ["OPS/S", "LATENCY", "READ/S", "WRITTEN/S", "IN WORK"].map(str::to_owned);
        lines.push(line("TARGET", "SERVER", titles));
        for row in rows.iter().take(room) {
            let cells = [
                count(row.operations_per_second),
                milliseconds(row.latency_ms),
                bytes(row.read_bytes_per_second),
                bytes(row.written_bytes_per_second),
                row.in_flight.to_string(),
            ];
            lines.push(line(&row.target, &row.node, cells));
        }
        let sum = |value: fn(&RateRow) -> f64| rows.iter().map(|row| value(row)).sum::<f64>();
        let left_out = rows.len().saturating_sub(room);
        let name = if left_out == 0 { "all".to_owned() } else { format!("all (+{left_out})") };
        let cells = [
            count(sum(|row| row.operations_per_second)),
            String::new(),
            bytes(sum(|row| row.read_bytes_per_second)),
            bytes(sum(|row| row.written_bytes_per_second)),
            format!("{:.0}", sum(|row| row.in_flight as f64)),
        ];
        lines.push(line(&name, "", cells));
    }
}

/// A name that fits a column of 20.
fn short(name: &str) -> String {
    cut(name, 19)
}

fn cut(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        name.to_owned()
    } else {
        name.chars().take(most - 1).chain(['~']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::samples;
    use super::*;

    fn view(targets: u64) -> View {
        let (before, now) = samples::two(targets);
        View {
            rows: between(&before, &now),
            busiest: busiest(&before, &now, BUSIEST),
            head: head(&skep_base::namespace::samples::status(), Duration::from_secs(1)),
            trouble: vec!["storaged-9: no route".to_owned()],
            sort: Sort::Name,
            paused: false,
        }
    }

    /// Goal: on 80 columns and 24 lines everything important is there, with few targets and with many;
    /// no size breaks it.
    #[test]
    fn fits_any_terminal() {
        for targets in [1, 4, 500] {
            let lines = view(targets).lines(80, 24);
            assert_eq!(lines.len(), 24);
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
            let text = lines.join("\n");
            for part in [
                "METADATA",
                "metad-1",
                "100",
                "TARGET",
                "target-1",
                "busiest: Lookup 75/s",
                "q quit",
                "! storaged-9",
            ] {
                assert!(text.contains(part), "{part} is missing:\n{text}");
            }
        }
        for size in [(1, 1), (5, 3), (80, 8), (300, 100), (0, 0)] {
            let lines = view(9).lines(size.0, size.1);
            assert!(lines.len() <= size.1.max(1), "{size:?}");
        }
    }

    /// Goal: a mount that was heard at its last renewal is not called silent; one that missed two is.
    #[test]
    fn sessions_are_silent_after_missed_renewals() {
        let mut status = skep_base::namespace::samples::status();
        for (ms, silent) in [(0, false), (skep_client::HOUSEKEEPING_MAX_MS, false), (SILENT_MS + 1, true)] {
            status.sessions[0].silent_ms = Some(ms);
            let lines = head(&status, Duration::from_secs(1));
            assert_eq!(lines.iter().any(|line| line.contains("silent sessions")), silent, "{ms}: {lines:?}");
        }
    }

    /// Goal: sorting puts the busiest first, and comes back to names.
    #[test]
    fn sorted() {
        let mut view = view(3);
        view.sort = Sort::Bytes;
        let text = view.lines(80, 24).join("\n");
        assert!(text.find("target-3").unwrap() < text.find("target-1").unwrap(), "{text}");
        let mut sort = Sort::Name;
        for _ in 0..4 {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Name);
    }
}

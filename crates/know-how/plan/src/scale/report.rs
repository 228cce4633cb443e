//! What the simulation shows, step by step, as text and as JSON.

use super::calibration::Calibration;
use super::costs::{Costs, Operation};
use super::management;
use super::namespace::{self, Place};
use super::real;
use super::recovery;
use super::saturation::{self, Found, Point};
use super::scenario::{Cluster, Scenario};
use super::streams::{self, Direction};
use serde::Serialize;
use std::fmt::Write;

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// When and where the costs were measured.
    pub calibrated: String,
    /// What was asked.
    pub scenario: Scenario,
    /// By size.
    pub steps: Vec<Step>,
    /// What saturates, the first first.
    pub points: Vec<Point>,
}

/// A cluster of one size. Shares are of 1; above it stands what would be needed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// Its size.
    pub cluster: Cluster,
    /// mgmtd's thread as simulated, at most 1.
    pub mgmt_thread: f64,
    /// ... and as needed by arithmetic.
    pub mgmt_needed: f64,
    /// ... and by what a real mgmtd took for 1 of that, at most ([`super::real`]).
    pub mgmt_needed_real: f64,
    /// What needs most of it.
    pub mgmt_largest: String,
    /// mgmtd's link.
    pub mgmt_link: f64,
    /// Heartbeat to answer: average and longest, in seconds; `None`: none is answered in time.
    pub heartbeat_s: Option<(f64, f64)>,
    /// Share of the living daemons that are taken for silent, because their heartbeats wait.
    pub wrongly_silent: f64,
    /// The busiest metadata server's thread for what clients demand.
    pub metadata_needed: f64,
    /// The same thread as simulated, at most 1.
    pub metadata_thread: f64,
    /// Share of time that the busiest metadata server's log is being synced; `None`: nothing changes, or its
    /// thread is overloaded.
    pub metadata_log: Option<f64>,
    /// Creates per second that all clients together can get, each process in its own directory.
    pub creates_per_s: f64,
    /// The same in one shared directory.
    pub shared_creates_per_s: f64,
    /// Stats per second.
    pub stats_per_s: f64,
    /// Streaming write and read in GB/s.
    pub stream_gb_s: (f64, f64),
    /// What clients demand of it.
    pub stream_demanded_gb_s: f64,
    /// Bytes of the map.
    pub map_bytes: f64,
    /// Bytes of the list of sessions and fences.
    pub fences_bytes: f64,
    /// Seconds from the death of a storage server until new files avoid it.
    pub avoided_s: Option<f64>,
    /// Seconds for all mounts to learn a changed map.
    pub clients_learn_s: Option<f64>,
    /// Seconds from the eviction of a client until all servers refuse its late writes.
    pub fenced_s: Option<f64>,
    /// Seconds for all daemons to register and learn the map when the whole cluster is switched on.
    pub cold_start_s: Option<f64>,
    /// Seconds from the death of a metadata server until it serves all its clients again.
    pub metadata_back_s: Option<f64>,
    /// Hours to write a target's content anew.
    pub rebuild_target_h: f64,
    /// Hours to write a server's content anew.
    pub rebuild_server_h: f64,
    /// Targets being rebuilt on average.
    pub rebuilds_at_once: f64,
    /// Limits that this size is beyond.
    pub beyond: Vec<String>,
}

/// One size.
pub fn step(calibration: &Calibration, scenario: &Scenario, servers: u32) -> Step {
    let cluster = scenario.cluster(servers);
    let costs = Costs::at(calibration, scenario, &cluster);
    let managed = management::simulate(calibration, scenario, &cluster);
    let needed = saturation::mgmt_load(calibration, scenario, &cluster);
    let metadata = namespace::load(calibration, scenario, &cluster);
    let rate = |operation: Operation, place| {
        namespace::simulate(calibration, scenario, &cluster, &operation, place).per_second
    };
    let stream = |direction| streams::simulate(calibration, scenario, &cluster, direction).gb_s;
    let rebuild = recovery::rebuild(calibration, scenario, &cluster);
    let beyond = saturation::limits(calibration, scenario)
        .into_iter()
        .filter(|point| point.servers.is_some_and(|from| servers >= from))
        .map(|point| point.what);
    Step {
        cluster,
        mgmt_thread: managed.thread.utilisation,
        mgmt_needed: needed.thread(),
        mgmt_needed_real: needed.thread() * real::factor().unwrap_or(1.0),
        mgmt_largest: needed.largest().into(),
        mgmt_link: needed.link,
        heartbeat_s: managed.heartbeat_s,
        wrongly_silent: managed.wrongly_silent,
        metadata_needed: namespace::demanded(calibration, scenario, &cluster),
        metadata_thread: metadata.busiest,
        metadata_log: metadata.log,
        creates_per_s: rate(Operation::create(calibration), Place::Own),
        shared_creates_per_s: rate(Operation::create(calibration), Place::Shared),
        stats_per_s: rate(Operation::stat(calibration), Place::Own),
        stream_gb_s: (stream(Direction::Write), stream(Direction::Read)),
        stream_demanded_gb_s: cluster.clients as f64 * scenario.stream_per_client_gb_s,
        map_bytes: costs.map_bytes,
        fences_bytes: costs.fences_bytes,
        avoided_s: managed.noticed_s.zip(managed.metadata_know_s).map(|(noticed, know)| noticed + know),
        clients_learn_s: managed.clients_know_s,
        fenced_s: managed.fenced_s,
        cold_start_s: recovery::cold_start_s(calibration, scenario, &cluster),
        metadata_back_s: recovery::metadata_restart_s(calibration, scenario, &cluster),
        rebuild_target_h: rebuild.target_h,
        rebuild_server_h: rebuild.server_h,
        rebuilds_at_once: rebuild.at_once,
        beyond: beyond.collect(),
    }
}

/// A column: title, and a cell of each step.
type Column<'a> = (&'static str, Box<dyn Fn(&Step) -> String + 'a>);

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.first(&mut out);
        let share = |share: f64| format!("{:.0} %", share * 100.0);
        let time = |s: Option<f64>| s.map_or_else(|| "never".to_owned(), |s| format!("{s:.1}"));
        let wait = |s: Option<f64>| s.map_or_else(|| "never".to_owned(), |s| format!("{s:.4}"));
        let size: Vec<Column<'_>> = vec![
            ("servers", Box::new(|s| s.cluster.servers.to_string())),
            ("clients", Box::new(|s| s.cluster.clients.to_string())),
            ("targets", Box::new(|s| s.cluster.targets.to_string())),
        ];
        let management: Vec<Column<'_>> = vec![
            ("servers", Box::new(|s| s.cluster.servers.to_string())),
            ("mgmtd thread", Box::new(move |s| share(s.mgmt_thread))),
            ("needed", Box::new(move |s| share(s.mgmt_needed))),
            ("real, up to", Box::new(move |s| share(s.mgmt_needed_real))),
            ("most of it", Box::new(|s| s.mgmt_largest.clone())),
            ("link", Box::new(move |s| share(s.mgmt_link))),
            ("heartbeat s", Box::new(move |s| wait(s.heartbeat_s.map(|(average, _)| average)))),
            ("longest s", Box::new(move |s| wait(s.heartbeat_s.map(|(_, longest)| longest)))),
            ("wrongly silent", Box::new(move |s| share(s.wrongly_silent))),
            ("map KiB", Box::new(|s| format!("{:.0}", s.map_bytes / 1024.0))),
            ("sessions KiB", Box::new(|s| format!("{:.0}", s.fences_bytes / 1024.0))),
        ];
        let files: Vec<Column<'_>> = vec![
            ("metad thread", Box::new(move |s| share(s.metadata_thread))),
            ("needed", Box::new(move |s| share(s.metadata_needed))),
            ("log synced", Box::new(move |s| s.metadata_log.map_or_else(|| "-".to_owned(), share))),
            ("creates/s", Box::new(|s| format!("{:.0}", s.creates_per_s))),
            ("in one dir.", Box::new(|s| format!("{:.0}", s.shared_creates_per_s))),
            ("stats/s", Box::new(|s| format!("{:.0}", s.stats_per_s))),
            ("write GB/s", Box::new(|s| format!("{:.1}", s.stream_gb_s.0))),
            ("read GB/s", Box::new(|s| format!("{:.1}", s.stream_gb_s.1))),
            ("demanded GB/s", Box::new(|s| format!("{:.1}", s.stream_demanded_gb_s))),
        ];
        let losses: Vec<Column<'_>> = vec![
            ("servers", Box::new(|s| s.cluster.servers.to_string())),
            ("avoided after s", Box::new(move |s| time(s.avoided_s))),
            ("clients know s", Box::new(move |s| time(s.clients_learn_s))),
            ("fenced s", Box::new(move |s| time(s.fenced_s))),
            ("cold start s", Box::new(move |s| time(s.cold_start_s))),
            ("metadata back s", Box::new(move |s| time(s.metadata_back_s))),
            ("target anew h", Box::new(|s| format!("{:.1}", s.rebuild_target_h))),
            ("server anew h", Box::new(|s| format!("{:.1}", s.rebuild_server_h))),
            ("at once", Box::new(|s| format!("{:.2}", s.rebuilds_at_once))),
            ("limits passed", Box::new(|s| s.beyond.len().to_string())),
        ];
        let title = |out: &mut String, text: &str| {
            let _ = writeln!(out, "\n{text}");
        };
        title(&mut out, "Files: what all clients together can get, and what they demand");
        self.table(&mut out, &size.into_iter().chain(files).collect::<Vec<_>>());
        title(&mut out, "Management service");
        self.table(&mut out, &management);
        title(&mut out, "After a loss");
        self.table(&mut out, &losses);
        self.ends(&mut out);
        out
    }

    fn first(&self, out: &mut String) {
        let s = &self.scenario;
        let _ = writeln!(
            out,
            "{} targets and {} clients per storage server, {} metadata server(s) of {} group(s); costs of {}",
            s.targets_per_server,
            s.clients_per_server,
            s.metadata_servers,
            s.metadata_groups,
            self.calibrated
        );
        match self.points.iter().find_map(|point| point.servers.map(|servers| (point, servers))) {
            Some((point, servers)) => {
                let clients = point.clients.unwrap_or_default();
                let _ = writeln!(
                    out,
                    "First: {} at {servers} storage servers{}, {clients} clients\nChange: {}",
                    point.what,
                    by_the_real(point.servers_real.map(u64::from)),
                    point.change
                );
            }
            None => {
                let _ = writeln!(out, "Nothing saturates up to the largest cluster that can be asked for");
            }
        }
    }

    fn table(&self, out: &mut String, columns: &[Column<'_>]) {
        let mut lines: Vec<Vec<String>> =
            vec![columns.iter().map(|(title, _)| (*title).to_owned()).collect()];
        lines.extend(self.steps.iter().map(|step| columns.iter().map(|(_, cell)| cell(step)).collect()));
        align(out, &lines);
    }

    fn ends(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\nWhat ends where (threads and links: busy {:.0} % of the time)",
            saturation::SATURATED * 100.0
        );
        let mut lines = vec![["servers", "clients", "what", "found"].map(str::to_owned).to_vec()];
        for point in &self.points {
            let number = |n: Option<u64>, real: Option<u64>| match (n, real) {
                (None, _) => "-".to_owned(),
                (Some(n), None) => n.to_string(),
                (Some(n), Some(real)) => format!("{real} to {n}"),
            };
            let band = by_the_real(point.servers_real.map(u64::from));
            let what = match (point.servers, band.is_empty()) {
                (Some(servers), false) => format!("{}: {servers}{band}", point.what),
                _ => point.what.clone(),
            };
            let found = match point.found {
                Found::Simulated => "simulated",
                Found::Computed => "computed",
                Found::Limit => "limit",
            };
            let servers = number(point.servers.map(u64::from), point.servers_real.map(u64::from));
            lines.push(vec![servers, number(point.clients, point.clients_real), what, found.to_owned()]);
        }
        align(out, &lines);
        let _ = writeln!(out, "\nWhat to change, in this order");
        for point in self.points.iter().filter(|point| point.servers.is_some()) {
            let _ = writeln!(out, "- {}: {}", point.what, point.change);
        }
    }
}

/// What a number is by the real daemon, when that is known.
fn by_the_real(servers: Option<u64>) -> String {
    servers.map_or_else(String::new, |servers| format!(", or as few as {servers} by the real daemon"))
}

/// Columns under their titles; texts to the left, numbers to the right.
fn align(out: &mut String, lines: &[Vec<String>]) {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let is_number = |at: usize| {
        lines.iter().skip(1).all(|line| line[at].starts_with(|c: char| c.is_ascii_digit() || c == '-'))
            && lines.len() > 1
    };
    for line in lines {
        let mut text = String::new();
        for (at, cell) in line.iter().enumerate().take(columns) {
            let wide = width(at);
            let _ = match is_number(at) {
                true => write!(text, " {cell:>wide$} "),
                false => write!(text, " {cell:<wide$} "),
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a whole report has a step for each size, in order, its text names the first that saturates, and the same
    /// seed gives the same report.
    #[test]
    fn whole() {
        let calibration = Calibration::shipped().expect("the calibration");
        let scenario = Scenario { servers: vec![300, 10, 10], ..Scenario::default() };
        let report = super::super::run(&calibration, &scenario).expect("a report");
        let sizes: Vec<u32> = report.steps.iter().map(|step| step.cluster.servers).collect();
        assert_eq!(sizes, [10, 300]);
        let first = &report.points[0];
        assert!(first.servers.is_some());
        assert!(report.points.windows(2).all(|pair| pair[0].least() <= pair[1].least()));
        let text = report.text();
        assert!(text.lines().nth(1).is_some_and(|line| line.contains(&first.what)), "{text}");
        assert_eq!(super::super::run(&calibration, &scenario).expect("a report"), report);
        // mgmtd's number never stands alone.
        let mgmt = report.points.iter().find(|point| point.what.starts_with("mgmtd, thread")).expect("mgmtd");
        let (simulated, real) = (mgmt.servers.expect("found"), mgmt.servers_real.expect("found"));
        assert!(text.contains(&format!("{simulated}, or as few as {real} by the real daemon")), "{text}");
        assert!(text.contains(&format!("{real} to {simulated}")), "{text}");
        let alone = |line: &&str| line.split_whitespace().next() == Some(&simulated.to_string());
        assert_eq!(text.lines().filter(alone).count(), 0, "{text}");
        let step = &report.steps[1];
        assert!(step.mgmt_needed_real > 2.0 * step.mgmt_needed, "{step:?}");
    }

    /// Goal: the table of docs/plan/scale.md is what the program shows. SKEP_WRITE_TABLES=1 writes it anew.
    #[test]
    fn the_committed_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/plan/scale.md");
        let page = std::fs::read_to_string(path).expect("docs/plan/scale.md");
        let (begin, end) = ("<!-- scale -->\n\n```text\n", "```\n\n<!-- /scale -->");
        let from = page.find(begin).expect("the mark of the beginning") + begin.len();
        let to = from + page[from..].find(end).expect("the mark of the end");
        let calibration = Calibration::shipped().expect("the calibration");
        let report = super::super::run(&calibration, &Scenario::default()).expect("a report");
        let text = report.text();
        let mgmt = report.points.iter().find(|point| point.what.starts_with("mgmtd, thread")).expect("mgmtd");
        let real = mgmt.servers_real.expect("found");
        assert!(page.contains(&format!("or as few as {real} by the real daemon, mgmtd's thread")), "{real}");
        if std::env::var_os("SKEP_WRITE_TABLES").is_some() {
            let page = format!("{}{text}{}", &page[..from], &page[to..]);
            std::fs::write(path, page).expect("docs/plan/scale.md");
            return;
        }
        assert_eq!(&page[from..to], text, "SKEP_WRITE_TABLES=1 cargo test -p skep-plan writes the page anew");
    }

    /// Goal: larger clusters never need less, and deliver no less.
    #[test]
    fn monotony() {
        let calibration = Calibration::shipped().expect("the calibration");
        let scenario = Scenario::default();
        let steps: Vec<Step> = [10, 40, 160, 640].iter().map(|n| step(&calibration, &scenario, *n)).collect();
        for pair in steps.windows(2) {
            let (few, many) = (&pair[0], &pair[1]);
            assert!(many.mgmt_needed > few.mgmt_needed);
            assert!(many.metadata_needed > few.metadata_needed);
            assert!(many.map_bytes > few.map_bytes);
            assert!(many.stream_gb_s.0 > few.stream_gb_s.0);
            assert!(many.creates_per_s > few.creates_per_s * 0.98);
            assert!(many.rebuild_server_h <= few.rebuild_server_h);
        }
    }

    /// Goal: a scenario that cannot be is refused, not simulated.
    #[test]
    fn refused() {
        let calibration = Calibration::shipped().expect("the calibration");
        let scenario = Scenario { servers: Vec::new(), ..Scenario::default() };
        assert!(super::super::run(&calibration, &scenario).is_err());
    }
}

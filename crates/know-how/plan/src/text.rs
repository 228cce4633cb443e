//! A forecast as people read it: what limits first, then everything else with its sum.

use crate::forward::stream::Stream;
use crate::forward::{Direction, Figure, Forecast};
use crate::units::Rate;
use std::fmt::Write;

/// Columns of names.
const NAME: usize = 24;
/// Columns of values.
const VALUE: usize = 22;
/// Why a figure is missing.
const NOT_KNOWN: &str = "nothing is known about this software, or cores are not given";
/// Why random operations are missing.
const NO_IOPS: &str =
    "nobody knows the IOPS of a drive: write read_iops and write_iops in [catalogue.drives.NAME]";
/// Why a figure about names is missing where nothing keeps them.
const NO_NAMES: &str = "there is no metadata server: no server has role \"meta\"";

/// The whole forecast; `components` adds the component rates and their sources.
pub fn forecast(forecast: &Forecast, components: bool) -> String {
    let mut page = Page(String::new());
    page.line(&format!("{} (catalogue: {})", forecast.name, forecast.preset));
    for stream in [&forecast.write, &forecast.read] {
        verdict(&mut page, stream);
    }
    for stream in [&forecast.write, &forecast.read] {
        chain(&mut page, stream);
    }
    other_load(&mut page, forecast);
    space(&mut page, forecast);
    names(&mut page, forecast);
    page.title("memory for connections");
    page.figure("one client, one server", Some(&forecast.memory.per_client));
    for (server, figure) in &forecast.memory.per_server {
        page.figure(&format!("one {server}"), Some(figure));
    }
    failures(&mut page, forecast);
    money(&mut page, forecast);
    if !forecast.notes.is_empty() {
        page.title("notes");
        forecast.notes.iter().for_each(|note| page.line(&format!("  - {note}")));
    }
    if components {
        page.title("components");
        for part in &forecast.components {
            page.row(&part.name, &part.rate.to_string(), &part.source);
        }
    }
    page.0
}

struct Page(String);

impl Page {
    fn line(&mut self, text: &str) {
        self.0.push_str(text.trim_end());
        self.0.push('\n');
    }

    fn title(&mut self, text: &str) {
        self.0.push('\n');
        self.line(text);
    }

    fn row(&mut self, name: &str, value: &str, why: &str) {
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(line, "  {name:NAME$} {value:>VALUE$}  {why}");
        self.line(&line);
    }

    fn figure(&mut self, name: &str, figure: Option<&Figure>) {
        self.figure_or(name, figure, NOT_KNOWN);
    }

    /// Nothing where there is no such figure.
    fn known(&mut self, name: &str, figure: &Option<Figure>) {
        if let Some(figure) = figure {
            self.row(name, &figure.show(), &figure.why);
        }
    }

    /// `unless`: why it is not known.
    fn figure_or(&mut self, name: &str, figure: Option<&Figure>, unless: &str) {
        match figure {
            Some(figure) => self.row(name, &figure.show(), &figure.why),
            None => self.row(name, "not known", unless),
        }
    }
}

fn titles(stages: &[crate::forward::Stage]) -> String {
    stages.iter().map(|stage| stage.title()).collect::<Vec<_>>().join(" and ")
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Write => "write",
        Direction::Read => "read",
    }
}

fn verdict(page: &mut Page, stream: &Stream) {
    let next = match stream.next.is_empty() {
        true => "nothing else limits".to_owned(),
        false => format!(
            "without that limit {} ({:.0} % more), then {}",
            stream.next_expected,
            stream.headroom * 100.0,
            titles(&stream.next)
        ),
    };
    page.line(&format!(
        "  {:5} {:>11}  limited by {}; {next}",
        way(stream.direction),
        stream.expected.to_string(),
        titles(&stream.bottleneck),
    ));
}

fn chain(page: &mut Page, stream: &Stream) {
    page.title(&format!("{}: what each component alone would allow", way(stream.direction)));
    for limit in &stream.limits {
        let mark = if stream.bottleneck.contains(&limit.stage) { " <- limits" } else { "" };
        let rate = format!("{}{mark:10}", limit.rate);
        page.row(limit.stage.title(), &rate, &limit.why);
    }
    page.row("together", &format!("{}{:10}", stream.limit, ""), "");
    let why = format!("{:.1} %: {}", stream.efficiency * 100.0, stream.efficiency_source);
    page.row("programs see", &format!("{}{:10}", stream.expected, ""), &why);
}

fn other_load(page: &mut Page, forecast: &Forecast) {
    page.title("other load");
    page.figure("one shared file, write", forecast.single_file.write.as_ref());
    page.figure("one shared file, read", forecast.single_file.read.as_ref());
    page.figure_or("random 4 KiB write", forecast.random.write.as_ref(), NO_IOPS);
    page.figure_or("random 4 KiB read", forecast.random.read.as_ref(), NO_IOPS);
}

fn space(page: &mut Page, forecast: &Forecast) {
    page.title("space");
    page.figure("drives as labelled", Some(&forecast.capacity.raw));
    page.figure("usable", Some(&forecast.capacity.usable));
}

fn names(page: &mut Page, forecast: &Forecast) {
    let metadata = &forecast.metadata;
    page.title("metadata");
    // A server with the role has a target for it, or the description would have been refused.
    let unless = if metadata.space.value > 0.0 { NOT_KNOWN } else { NO_NAMES };
    page.figure_or("creates", metadata.creates.as_ref(), unless);
    page.figure_or("stats", metadata.stats.as_ref(), unless);
    page.figure_or("removes", metadata.removes.as_ref(), unless);
    page.known("opens of small files", &metadata.opens);
    if let Some(rows) = &metadata.rows {
        page.figure("memory of a file's rows", Some(&rows.per_file));
        page.figure("memory for rows", Some(&rows.room));
        page.known("rows of all files", &rows.all);
        page.figure("files in memory", Some(&rows.files));
        page.known("stats of others", &rows.cold_stats);
        page.known("opens of others", &rows.cold_opens);
    }
    page.figure("space", Some(&metadata.space));
    page.known("needed", &metadata.needed);
    page.known("contents in it", &metadata.contents);
    page.known("files", &metadata.files);
    page.known("files of inline limit", &metadata.largest_small);
    if let Some(inodes) = &metadata.inodes {
        page.figure("inodes", Some(&inodes.made));
        page.figure("table of inodes", Some(&inodes.table));
        if let Some(one) = &inodes.per_file {
            page.figure("least of a file", Some(one));
        }
    }
    if let Some(mean) = &metadata.mean_file {
        page.figure("mean file when full", Some(mean));
    }
    page.figure("part of usable space", Some(&metadata.part));
    for rule in &metadata.rules {
        let range = format!("{} to {}", crate::units::decimal(rule.least), crate::units::decimal(rule.most));
        page.row("  rule", rule.verdict, &format!("{range} ({})", rule.source));
    }
}

fn failures(page: &mut Page, forecast: &Forecast) {
    page.title("after a failure");
    forecast.losses.iter().for_each(|loss| page.line(&format!("  {}", loss.said)));
    for rebuild in &forecast.rebuild {
        page.line(&format!("  {}: survives {} failed drives", rebuild.targets, rebuild.survives));
        for (name, figure) in [
            ("rebuild, idle", &rebuild.idle),
            ("rebuild, in use", &rebuild.loaded),
            ("resync", &rebuild.resync),
        ] {
            if let Some(figure) = figure {
                page.figure(&format!("  {name}"), Some(figure));
            }
        }
    }
}

fn money(page: &mut Page, forecast: &Forecast) {
    let Some(cost) = &forecast.cost else { return };
    page.title(&format!("cost ({})", cost.currency));
    page.figure("total", Some(&cost.total));
    page.figure("per usable TB", Some(&cost.per_tb));
    page.figure("per GB/s written", Some(&cost.per_gbs_write));
    page.figure("per GB/s read", Some(&cost.per_gbs_read));
    if !cost.unpriced.is_empty() {
        page.line(&format!("  without a price, so counted as free: {}", cost.unpriced.join(", ")));
    }
}

/// The general catalogue.
pub fn catalogue() -> String {
    let listing = crate::catalogue::listing();
    let crate::catalogue::Listing { drives, links: nics, controllers, core_copy, presets } = listing;
    let mut page = Page(String::new());
    page.line("drives: read, write; random 4 KiB reads and writes per second");
    for drive in drives {
        let rates = format!("{}, {}", drive.read, drive.write);
        let why = format!("{:.0}, {:.0}; {}", drive.read_iops, drive.write_iops, drive.source);
        page.row(&drive.name, &rates, &why);
    }
    let software = ("RAID in software: what a core copies", vec![core_copy]);
    for (title, parts) in [("links: one direction", nics), ("controllers", controllers), software] {
        page.title(title);
        for part in parts {
            page.row(&part.name, &part.rate.to_string(), &part.source);
        }
    }
    page.title("presets");
    for preset in presets {
        page.row(&preset.name, "", &preset.about);
    }
    page.title("PCIe, one lane");
    for generation in 1..=6 {
        let rate: Rate = crate::catalogue::pcie(crate::hardware::Pcie { generation, lanes: 1 });
        page.row(&format!("generation {generation}"), &rate.to_string(), "");
    }
    page.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Hardware;

    /// Goal: the first lines name the bottleneck, and every line fits its columns without blanks at the end.
    #[test]
    fn bottleneck_first() {
        let text = include_str!("../systems/sizing-6gbs-a.toml");
        let hardware = Hardware::from_toml("a", text).unwrap();
        let page = forecast(&crate::forward::forecast(&hardware).unwrap(), true);
        let lines: Vec<&str> = page.lines().collect();
        assert!(
            lines[1].starts_with("  write   2.00 GB/s  limited by server links; without that limit"),
            "{}",
            lines[1]
        );
        assert!(lines[1].ends_with("then controllers"), "{}", lines[1]);
        assert!(lines.iter().all(|line| line.trim_end() == *line));
        assert!(page.contains("001, table of component throughputs: new SSD"));
    }

    /// Goal: random operations that nobody can know are missing for that reason, not for the software's or the cores'.
    #[test]
    fn why_random_operations_are_missing() {
        let text = crate::systems::system("example").unwrap().text.replace("\"p5600\"", "\"mine\"")
            + "[catalogue.drives.mine]\nread = \"3 GB/s\"\nwrite = \"1 GB/s\"\nread_iops = 1e5\n";
        let hardware = Hardware::from_toml("x", &text).unwrap();
        let page = forecast(&crate::forward::forecast(&hardware).unwrap(), false);
        let line = |way: &str| page.lines().find(|line| line.contains(way)).unwrap();
        assert!(line("random 4 KiB write").ends_with(NO_IOPS), "{page}");
        assert!(!line("random 4 KiB read").contains("not known"), "{page}");
    }

    /// Goal: rates of names that nothing keeps are missing for that reason; where something keeps them, for another.
    #[test]
    fn why_names_have_no_rate() {
        let text = crate::systems::system("example").unwrap().text;
        let creates = |text: &str| {
            let hardware = Hardware::from_toml("x", text).unwrap();
            let page = forecast(&crate::forward::forecast(&hardware).unwrap(), false);
            page.lines().find(|line| line.starts_with("  creates")).unwrap().to_owned()
        };
        let mut nameless = Hardware::from_toml("x", text).unwrap();
        nameless.servers[0].roles.retain(|role| *role == crate::hardware::Role::Storage);
        nameless.servers[0].targets.retain(|group| group.role == crate::hardware::Role::Storage);
        let page = forecast(&crate::forward::forecast(&nameless).unwrap(), false);
        for name in ["creates", "stats", "removes"] {
            let line = page.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            assert!(line.contains("not known") && line.ends_with(NO_NAMES), "{line}");
        }
        assert!(!creates(text).contains("not known"), "{}", creates(text));
        let coreless = creates(&text.replace("cores = 32 ", "# cores = 32 "));
        assert!(coreless.ends_with(NOT_KNOWN), "{coreless}");
    }

    /// Goal: the percentage is the one between the two rates that stand beside it, whatever the efficiency: both are
    /// what programs see.
    #[test]
    fn percentages_follow_from_what_is_shown() {
        let mut limited = 0;
        for system in crate::systems::SYSTEMS {
            let hardware = Hardware::from_toml(system.name, system.text).unwrap();
            let page = forecast(&crate::forward::forecast(&hardware).unwrap(), false);
            for line in page.lines().skip(1).take(2) {
                let Some((first, rest)) = line.split_once("; without that limit ") else { continue };
                let rate = |text: &str| text.trim().parse::<Rate>().unwrap().0;
                let (next, rest) = rest.split_once(" (").unwrap();
                let percent: f64 = rest.split_once(" % more").unwrap().0.parse().unwrap();
                let seen = rate(first.split_once("  limited by").unwrap().0.trim()[5..].trim());
                // Rates are shown with three digits, percentages without decimals.
                let expected = (rate(next) / seen - 1.0) * 100.0;
                let most = 0.5 + (100.0 + percent) * 0.01;
                assert!((percent - expected).abs() <= most, "{}: {line}", system.name);
                limited += 1;
            }
        }
        assert!(limited > 10, "{limited}");
    }
}

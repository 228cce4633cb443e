//! Small files, whose contents lie in the metadata, and the memory in which rows are found.
//!
//! Rates of names are those of rows in memory. A row that is not there is read from a drive by the thread that serves all
//! names, which waits for it.

use super::metadata::{Holder, threads};
use super::{Figure, Unit};
use crate::catalogue::{Catalogue, DriveKind};
use crate::check::NUMBER_MAX;
use crate::hardware::{Files, Hardware, Software, TargetGroup};
use crate::measured;
use crate::units::{binary, count, decimal};
use serde::Serialize;

/// Skep's `inline_limit`: what it ships with, and the most it takes (`INLINE_MAX` of crates/vocabulary/types/src/limits.rs).
pub const INLINE_MAX: u64 = 8 << 10;
/// Bytes on the drives for each byte of contents in the rows: at most 1.97 were measured while 3 GiB were written, old and new
/// runs of merges included (crates/hands/disk/examples/row_space.rs, contents of 1 to 8 KiB that no compression shortens).
pub const CONTENTS_SPACE: f64 = 2.0;
const CONTENTS_SOURCE: &str = "1.97 measured while runs are merged, crates/hands/disk/examples/row_space.rs";
/// Bytes of memory that a row takes beside its key and value (`ROW_OVERHEAD` of crates/hands/disk/src/rows/cache.rs).
const ROW_OVERHEAD: f64 = 128.0;
/// Keys and values of the rows of a file: its entry in a directory, with a name of 20 bytes (19 + 32), and its inode (11 + 218;
/// crates/rules/meta/formats).
const NAME_ROW: f64 = ROW_OVERHEAD + 19.0 + 32.0;
const INODE_ROW: f64 = ROW_OVERHEAD + 11.0 + 218.0;
/// Key of the row of contents.
const CONTENTS_KEY: f64 = 11.0;
/// Part of a server's memory for rows (assumed).
const ROOM: f64 = 0.5;
/// Rows that a stat looks up: name and inode. An open of a small file looks up its contents too.
const STAT_ROWS: f64 = 2.0;
const OPEN_ROWS: f64 = 3.0;

/// Memory for rows, and what happens without.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rows {
    /// Memory of the rows of one file.
    pub per_file: Figure,
    /// Memory for rows.
    pub room: Figure,
    /// Files whose rows fit into it.
    pub files: Figure,
    /// Memory for the rows of all files that are to be stored.
    pub all: Option<Figure>,
    /// Stats per second of files whose rows are on the drives.
    pub cold_stats: Option<Figure>,
    /// Small files opened and read per second whose rows are on the drives.
    pub cold_opens: Option<Figure>,
}

/// Bytes up to which contents lie in the metadata.
pub fn inline_limit(software: Software, own: Option<crate::units::Size>) -> f64 {
    match software {
        Software::Skep => own.map_or(INLINE_MAX as f64, crate::units::Size::bytes),
        Software::Beegfs | Software::Lustre => 0.0,
    }
}

impl Files {
    /// Part of the files whose contents lie in the metadata.
    pub fn small(&self, limit: f64) -> f64 {
        let by_mean = if self.mean_size.bytes() <= limit { 1.0 } else { 0.0 };
        if limit > 0.0 { self.small_part.unwrap_or(by_mean) } else { 0.0 }
    }

    /// Bytes of contents that a file has in the metadata, on the average of all files.
    pub fn inline(&self, limit: f64) -> f64 {
        let usual = self.mean_size.bytes().min(limit);
        self.small(limit) * self.small_size.map_or(usual, crate::units::Size::bytes)
    }

    /// Fields that cannot be, each with what to write.
    pub fn wrong(&self, limit: f64) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if !(1.0..=NUMBER_MAX).contains(&self.count) {
            wrong.push(("count", format!("{}: write a number from 1 to {NUMBER_MAX}", self.count)));
        }
        if self.mean_size.0 == 0 {
            wrong.push((
                "mean_size",
                "files without contents: write their mean size, such as \"1 MB\"".to_owned(),
            ));
        }
        if self.small_part.is_some_and(|part| !(0.0..=1.0).contains(&part)) {
            wrong.push(("small_part", "write a part from 0 to 1, such as 0.8".to_owned()));
            return wrong;
        }
        if let Some(size) = self.small_size.filter(|size| size.bytes() > limit) {
            let message = format!(
                "{size}: small files are those up to the inline limit of {}; write less",
                binary(limit)
            );
            wrong.push(("small_size", message));
        } else if self.mean_size.0 > 0 && self.inline(limit) > self.mean_size.bytes() {
            let message = format!(
                "{:.0} % of {} are more than the mean of all files, {}: write smaller ones, or a larger mean_size",
                self.small(limit) * 100.0,
                self.small_size.unwrap_or_default(),
                self.mean_size
            );
            wrong.push(("small_size", message));
        }
        wrong
    }

    /// Bytes of contents that lie on the storage targets.
    pub fn elsewhere(&self, limit: f64) -> f64 {
        self.count * (self.mean_size.bytes() - self.inline(limit)).max(0.0)
    }
}

/// Bytes of contents that a file of this description has in the metadata.
pub fn inline(hardware: &Hardware) -> f64 {
    let limit = inline_limit(hardware.software, hardware.inline_limit);
    hardware.files.as_ref().map_or(0.0, |files| files.inline(limit))
}

/// Contents of the files that are to be stored which lie in the metadata.
pub fn contents(hardware: &Hardware) -> Option<Figure> {
    let files = hardware.files.as_ref()?;
    let limit = inline_limit(hardware.software, hardware.inline_limit);
    let (part, each) = (files.small(limit), files.inline(limit));
    if part <= 0.0 {
        return None;
    }
    let why = format!(
        "{} of {} files are no larger than {}, of {} each, and lie in the rows",
        percent(part),
        count(files.count),
        binary(limit),
        binary(each / part)
    );
    Some(Figure::new(files.count * each, Unit::Bytes, why))
}

/// Space for the names of the files that are to be stored, with the contents of small ones.
pub fn needed(hardware: &Hardware, bytes_per_file: f64) -> Option<Figure> {
    let files = hardware.files.as_ref()?;
    let each = inline(hardware);
    let sum = files.count * (bytes_per_file + CONTENTS_SPACE * each);
    let contents = match each > 0.0 {
        true => format!(" + {each:.0} of contents x {CONTENTS_SPACE} ({CONTENTS_SOURCE})"),
        false => String::new(),
    };
    let why = format!("{} files x ({bytes_per_file:.0} bytes{contents})", count(files.count));
    Some(Figure::new(sum, Unit::Bytes, why))
}

/// Files that fit when each is as large as the limit, where contents lie in the metadata.
pub fn largest(hardware: &Hardware, space: f64, bytes_per_file: f64) -> Option<Figure> {
    let limit = inline_limit(hardware.software, hardware.inline_limit);
    let each = bytes_per_file + CONTENTS_SPACE * limit;
    let why = format!(
        "{} of {each:.0} bytes each: {bytes_per_file:.0} and {limit:.0} of contents x {CONTENTS_SPACE} ({CONTENTS_SOURCE})",
        decimal(space)
    );
    (limit > 0.0 && space > 0.0).then(|| Figure::new(space / each, Unit::Count, why))
}

/// Memory for rows; `None` where nothing is known of the software's rows, or nothing holds names.
pub fn rows(
    hardware: &Hardware,
    catalogue: &Catalogue<'_>,
    holders: &[Holder<'_>],
    rates: [Option<&Figure>; 2],
) -> Option<Rows> {
    if hardware.software != Software::Skep || holders.is_empty() {
        return None;
    }
    let each = inline(hardware);
    let contents = if each > 0.0 { ROW_OVERHEAD + CONTENTS_KEY + each } else { 0.0 };
    let one = NAME_ROW + INODE_ROW + contents;
    let also = if each > 0.0 { " and its contents" } else { "" };
    let why =
        format!("rows of name (20 bytes) and inode{also}, {ROW_OVERHEAD} bytes of each beside key and value");
    let per_file = Figure::new(one, Unit::MemoryBytes, why);
    let memory: f64 = holders.iter().map(|(servers, s)| *servers as f64 * s.memory.bytes()).sum();
    let one_holds_all = hardware.metadata_servers == 1;
    let whose = if one_holds_all { "the server that holds all names" } else { "all servers with names" };
    let room = Figure::new(
        memory * ROOM,
        Unit::MemoryBytes,
        format!(
            "half the memory of {whose} (assumed: page cache, connections and other services have the rest); write it \
             as cache_size of metad, which ships with 256 MiB"
        ),
    );
    let files = Figure::new(
        room.value / one,
        Unit::Count,
        format!("{} at {one:.0} bytes; the rates above are for so many files in use", binary(room.value)),
    );
    let all = hardware.files.as_ref().map(|files| {
        let why = format!("{} files x {one:.0} bytes", count(files.count));
        Figure::new(files.count * one, Unit::MemoryBytes, why)
    });
    let wait = slowest(catalogue, holders);
    let threads = threads(hardware).map_or(1.0, |(threads, _)| threads);
    let cold = |rate: Option<&Figure>, us: f64, rows: f64| {
        let ((wait, source), rate) = (wait.as_ref()?, rate?);
        let shared = if threads > 1.0 { format!(", over {threads} threads") } else { String::new() };
        let why = format!(
            "{rows} rows from a drive at {:.0} us each ({source}){shared} beside {us:.0} us",
            wait * 1e6
        );
        // What the busiest thread takes for each, and its part of the reads, which the root directory is none of.
        Some(Figure::new(1.0 / (1.0 / rate.value + rows * wait / threads), Unit::PerSecond, why))
    };
    let us = measured::shipped();
    let [stats, opens] = rates;
    Some(Rows {
        cold_stats: us.and_then(|us| cold(stats, us.stat, STAT_ROWS)),
        cold_opens: us.and_then(|us| cold(opens, open_us(&us, each), OPEN_ROWS)),
        per_file,
        room,
        files,
        all,
    })
}

/// Microseconds of an open that answers so many bytes of contents.
pub fn open_us(us: &measured::Measured, contents: f64) -> f64 {
    us.open + us.answered_byte * contents
}

/// Seconds of one read, one after the other, of the slowest drives that hold names, and who says so.
fn slowest(catalogue: &Catalogue<'_>, holders: &[Holder<'_>]) -> Option<(f64, String)> {
    let groups = holders.iter().flat_map(|(_, server)| &server.targets);
    let of_names = groups.filter(|group| group.role == crate::hardware::Role::Meta);
    of_names.filter_map(|group| wait(catalogue, group)).max_by(|a, b| a.0.total_cmp(&b.0))
}

fn wait(catalogue: &Catalogue<'_>, group: &TargetGroup) -> Option<(f64, String)> {
    let drive = catalogue.drive(&group.drive)?;
    Some(match drive.kind {
        DriveKind::Nvme => (100e-6, "assumed for NVMe".to_owned()),
        DriveKind::Ssd => (200e-6, "assumed for SSDs on SATA or SAS".to_owned()),
        DriveKind::Hdd => (1.0 / drive.read_iops?, "one seek of the disk".to_owned()),
    })
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use crate::forward::{Forecast, forecast};
    use crate::hardware::Hardware;

    fn plan(software: &str, more: &str) -> Forecast {
        let text = crate::systems::system("example").unwrap().text;
        let text = text.replacen("software = \"skep\"", &format!("software = \"{software}\""), 1) + more;
        forecast(&Hardware::from_toml("x", &text).unwrap()).unwrap()
    }

    const FILES: &str = "[files]\ncount = 5e9\nmean_size = \"4 kB\"\n";

    /// Goal: contents of files up to the inline limit count in the metadata, where they lie, and larger ones do not; files
    /// that do not fit are told, with what they need.
    #[test]
    fn contents_lie_in_the_metadata() {
        let names = plan("skep", "").metadata;
        assert!(names.contents.is_none() && names.needed.is_none());
        let small = plan("skep", FILES);
        let metadata = &small.metadata;
        assert_eq!(metadata.contents.as_ref().unwrap().value, 5e9 * 4000.0);
        assert_eq!(metadata.needed.as_ref().unwrap().value, 5e9 * (488.0 + 2.0 * 4000.0));
        let ratio = names.files.as_ref().unwrap().value / metadata.files.as_ref().unwrap().value;
        assert!((ratio - 8488.0 / 488.0).abs() < 1e-9, "{ratio}");
        assert!(
            small.notes.iter().any(|note| note.contains("contents of small files included")),
            "{:?}",
            small.notes
        );
        let part = plan(
            "skep",
            &format!("{}small_part = 0.5\nsmall_size = \"1 kB\"\n", FILES.replace("4 kB", "1 MB")),
        );
        assert_eq!(part.metadata.contents.as_ref().unwrap().value, 5e9 * 500.0);
        let large = plan("skep", &FILES.replace("4 kB", "1 MB"));
        assert!(large.metadata.contents.is_none());
        assert!(large.notes.iter().any(|note| note.contains("on the storage targets")), "{:?}", large.notes);
        assert!(plan("beegfs", FILES).metadata.contents.is_none(), "contents of BeeGFS lie in chunk files");
        // Without any word about files: what fits when each is as large as the limit.
        let largest = names.largest_small.unwrap().value;
        assert!((names.files.unwrap().value / largest - (488.0 + 16_384.0) / 488.0).abs() < 1e-9);
    }

    /// Goal: rates of names say for how many files they hold, and what happens when rows are on the drives: a hard disk is
    /// far slower than flash, and both are slower than memory.
    #[test]
    fn rows_need_memory() {
        let rows = |plan: &Forecast| plan.metadata.rows.clone().unwrap();
        let few = plan("skep", &FILES.replace("5e9", "1e6"));
        assert!(rows(&few).all.unwrap().value < rows(&few).room.value);
        assert!(!few.notes.iter().any(|note| note.contains("take") && note.contains("of memory, there are")));
        let many = plan("skep", FILES);
        let told = many.notes.iter().find(|note| note.contains("of memory, there are")).expect("a note");
        assert!(told.contains("stats") && told.contains("opens of small files"), "{told}");
        // Half of 256 GiB.
        assert_eq!(rows(&many).room.value, 128.0 * 1_073_741_824.0);
        let stats = many.metadata.stats.as_ref().unwrap().value;
        let cold = rows(&many).cold_stats.unwrap();
        let us = 1e6 / stats;
        assert!((cold.value - 1e6 / (us + 200.0)).abs() < 1.0, "two rows of 100 us: {cold:?}");
        let opens = many.metadata.opens.as_ref().unwrap().value;
        assert!(opens < stats && rows(&many).cold_opens.unwrap().value < cold.value, "{opens} {stats}");
        assert!(plan("beegfs", FILES).metadata.rows.is_none());
    }

    /// Goal: files that cannot be are told with the field and what to write.
    #[test]
    fn files_that_cannot_be() {
        let text = crate::systems::system("example").unwrap().text;
        for (more, field, advice) in [
            ("[files]\ncount = 0\nmean_size = \"1 MB\"\n", ": files.count: ", "write a number from 1"),
            ("[files]\ncount = 5\nmean_size = \"0 B\"\n", ": files.mean_size: ", "write their mean size"),
            (
                "[files]\ncount = 5\nmean_size = \"1 MB\"\nsmall_part = 2\n",
                ": files.small_part: ",
                "from 0 to 1",
            ),
            (
                "[files]\ncount = 5\nmean_size = \"1 MB\"\nsmall_size = \"9 KiB\"\n",
                ": files.small_size: ",
                "8.00 KiB",
            ),
            (
                "[files]\ncount = 5\nmean_size = \"1 kB\"\nsmall_size = \"2 kB\"\n",
                ": files.small_size: ",
                "larger mean_size",
            ),
        ] {
            let text = format!("{text}{more}");
            let faults = Hardware::from_toml("x", &text).expect_err(more);
            let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
            assert!(told.iter().any(|line| line.contains(field) && line.contains(advice)), "{told:?}");
        }
        let large = text.replacen("software =", "inline_limit = \"16 KiB\"\nsoftware =", 1);
        let told = Hardware::from_toml("x", &large).unwrap_err()[0].to_string();
        assert!(told.contains(": inline_limit: ") && told.contains("8 KiB at most"), "{told}");
    }

    /// Goal: the rules of thumb, made for files of 3.4 kB of metadata, do not contradict the files that fit: for Skep
    /// they ask for as many files, in the space that its rows take.
    #[test]
    fn rules_are_for_files_of_their_size() {
        let text = crate::systems::system("example").unwrap().text;
        let plan = |software: &str, size: &str| {
            let text = text.replacen("\"skep\"", software, 1).replacen(
                "size = \"960 GB\"",
                &format!("size = \"{size}\""),
                1,
            );
            forecast(&Hardware::from_toml("x", &text).unwrap()).unwrap()
        };
        // 0.1 % of 98.3 TB: short by the rule as printed, and room for 200 million files.
        let skep = plan("\"skep\"", "98 GB");
        assert!(skep.metadata.part.value < 0.003 && skep.metadata.files.as_ref().unwrap().value > 190e6);
        let verdicts: Vec<&str> = skep.metadata.rules.iter().map(|rule| rule.verdict).collect();
        assert_eq!(verdicts, ["ample", "met"]);
        assert!(skep.metadata.rules[0].source.contains("0.04 % to 0.07 %"), "{:?}", skep.metadata.rules);
        assert!(
            !skep.notes.iter().any(|note| note.contains("less than the rules ask for")),
            "{:?}",
            skep.notes
        );
        let short = plan("\"skep\"", "20 GB");
        assert!(
            short.notes.iter().any(|note| note.contains("less than the rules ask for")),
            "{:?}",
            short.notes
        );
        let other = plan("\"beegfs\"", "98 GB");
        assert_eq!(other.metadata.rules[0].verdict, "short");
        assert_eq!(other.metadata.rules[0].source, super::super::metadata::RULES[0].2);
    }
}

//! Inodes of the local file systems that hold names: how many mkfs makes, what their table takes, and what a file takes
//! with inodes of that size.
//!
//! BeeGFS and Lustre keep a file for every file: one inode, whose spare bytes hold the attributes when they are enough.
//! Skep keeps rows in a few large files: for it inodes are space lost.

use super::{Figure, Unit};
use crate::hardware::{FileSystem, Software, TargetGroup};
use crate::units::{Size, count, decimal};
use serde::Serialize;

/// Bytes of a block of ext4: what attributes take that do not fit into the inode.
const BLOCK: u64 = 4096;
/// Bytes of directory entries of a file (assumed: two names of 20 letters, directory blocks two thirds full).
const ENTRIES: u64 = 100;

/// What mkfs makes, and what it is good for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inodes {
    /// Inodes that mkfs makes.
    pub made: Figure,
    /// What their table takes of the space.
    pub table: Figure,
    /// What one file takes; `None` where files are rows and need no inode each.
    pub per_file: Option<Figure>,
}

/// Does mkfs make a table? XFS and ZFS make inodes as they are needed.
pub fn has_table(file_system: FileSystem) -> bool {
    matches!(file_system, FileSystem::Ext4 | FileSystem::Ldiskfs)
}

/// Space of one target.
fn target_bytes(group: &TargetGroup) -> f64 {
    f64::from(group.raid.data_drives(group.drives)) * group.size.bytes()
}

/// mke2fs's own ratio and size of inodes (`mke2fs.conf`): fewer inodes on larger file systems.
fn own(group: &TargetGroup) -> (u64, u64) {
    const TIB: f64 = (1u64 << 40) as f64;
    let ratio = match target_bytes(group) / TIB {
        tib if tib < 4.0 => 16_384,
        tib if tib < 16.0 => 32_768,
        _ => 65_536,
    };
    (ratio, 256)
}

/// Ratio and size that are taken when the description gives none, and why.
fn usual(software: Software, group: &TargetGroup) -> (u64, u64, &'static str) {
    match (software, group.file_system) {
        (Software::Beegfs, _) => (2048, 512, "as 000 and 001 format: -i 2048 -I 512"),
        (Software::Lustre, _) => (2560, 1024, "assumed: Lustre's mkfs, -i 2560 -I 1024"),
        (Software::Skep, _) => {
            let (ratio, size) = own(group);
            (ratio, size, "mke2fs's own")
        }
    }
}

/// Bytes of target for one inode, and bytes of one inode: as given, else as usual.
pub fn geometry(software: Software, group: &TargetGroup) -> (u64, u64) {
    let (ratio, size, _) = usual(software, group);
    (group.bytes_per_inode.unwrap_or(ratio), group.inode_size.unwrap_or(size))
}

/// Part of a target that the table takes.
pub fn table_part(software: Software, group: &TargetGroup) -> f64 {
    if !has_table(group.file_system) {
        return 0.0;
    }
    let (ratio, size) = geometry(software, group);
    size as f64 / ratio as f64
}

/// Bytes of inode that hold a file's attributes; `None`: a file takes no inode.
fn holding(software: Software) -> Option<(u64, &'static str)> {
    match software {
        Software::Skep => None,
        Software::Beegfs => Some((512, "001 formats with -I 512")),
        Software::Lustre => Some((512, "assumed: a file with a few stripes")),
    }
}

/// Bytes of one file with inodes of this size, and the sum. `None`: a file takes no inode, or nothing is known.
pub fn per_file(software: Software, group: &TargetGroup) -> Option<(f64, String)> {
    let (needed, source) = holding(software).filter(|_| has_table(group.file_system))?;
    let (_, size) = geometry(software, group);
    let entries = format!("{ENTRIES} of directory entries (assumed)");
    if size >= needed {
        let why = format!("an inode of {size}, which holds the attributes too, and {entries}");
        return Some(((size + ENTRIES) as f64, why));
    }
    let why = format!(
        "an inode of {size}, a block of {BLOCK} because the attributes need one of {needed} ({source}), and {entries}"
    );
    Some(((size + BLOCK + ENTRIES) as f64, why))
}

/// Of these groups, each on so many servers; `None` when none of them has a table.
pub fn inodes(software: Software, groups: &[(u64, &TargetGroup)]) -> Option<Inodes> {
    let (mut made, mut table, mut space) = (0.0, 0.0, 0.0);
    let (mut made_why, mut table_why) = (Vec::new(), Vec::new());
    let mut dearest: Option<(f64, String)> = None;
    for (servers, group) in groups.iter().filter(|(_, group)| has_table(group.file_system)) {
        let (ratio, size) = geometry(software, group);
        let targets = servers * u64::from(group.count);
        let bytes = targets as f64 * target_bytes(group);
        let inodes = bytes / ratio as f64;
        (made, table, space) = (made + inodes, table + inodes * size as f64, space + bytes);
        let given = group.bytes_per_inode.is_some() && group.inode_size.is_some();
        let usual = if given { String::new() } else { format!(" ({})", usual(software, group).2) };
        made_why.push(format!(
            "{targets} targets x {}, one for every {ratio} bytes{usual}",
            Size(target_bytes(group) as u64)
        ));
        table_why.push(format!("{} of {size} bytes", count(inodes)));
        if let Some(one) = per_file(software, group)
            && dearest.as_ref().is_none_or(|known| known.0 < one.0)
        {
            dearest = Some(one);
        }
    }
    if space <= 0.0 {
        return None;
    }
    let part = format!("{:.1} % of {} before the first file", table / space * 100.0, decimal(space));
    let rows = if software == Software::Skep {
        "; Skep keeps rows in a few large files and needs few: `mkfs.ext4 -i 1048576` gives the space to rows"
    } else {
        ""
    };
    Some(Inodes {
        made: Figure::new(made, Unit::Count, made_why.join(" + ")),
        table: Figure::new(table, Unit::Bytes, format!("{}: {part}{rows}", table_why.join(" + "))),
        per_file: dearest.map(|(bytes, why)| Figure::new(bytes, Unit::MemoryBytes, why)),
    })
}

#[cfg(test)]
mod tests {
    use crate::forward::{Forecast, forecast};
    use crate::hardware::Hardware;

    fn plan(system: &str, inodes: &str) -> Result<Forecast, String> {
        let text = crate::systems::system(system).unwrap().text;
        let kept: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("bytes_per_inode") && !line.starts_with("inode_size"))
            .collect();
        let text = kept.join("\n").replacen(
            "file_system = \"ext4\"",
            &format!("file_system = \"ext4\"\n{inodes}"),
            1,
        );
        let faults = |all: Vec<crate::load::Fault>| all.iter().map(ToString::to_string).collect::<String>();
        Ok(forecast(&Hardware::from_toml("x", &text).map_err(faults)?).unwrap())
    }

    /// Goal: for a file system with a file for every file, ratio and size of inodes decide how many files fit, what the
    /// table takes, and whether a block more is needed for each; a pair of 400 GiB by hand.
    #[test]
    fn a_file_for_every_file() {
        let space = 400.0 * (1u64 << 30) as f64;
        let rule = 512e9 / 150e6;
        for (given, made, table, per_file, files) in [
            // As 000 formats: the rule is the least.
            ("bytes_per_inode = 2048\ninode_size = 512", space / 2048.0, 0.25, 612.0, space / rule),
            ("", space / 2048.0, 0.25, 612.0, space / rule),
            ("bytes_per_inode = 4096\ninode_size = 1024", space / 4096.0, 0.25, 1124.0, space / 4096.0),
            // Attributes do not fit: a block for each file, more than the rule reckons with.
            ("bytes_per_inode = 2048\ninode_size = 256", space / 2048.0, 0.125, 4452.0, space / 4452.0),
            // mke2fs's own ratio: the inodes end first.
            ("bytes_per_inode = 16384\ninode_size = 512", space / 16384.0, 0.03125, 612.0, space / 16384.0),
        ] {
            let metadata = plan("hp-apollo", given).unwrap().metadata;
            let inodes = metadata.inodes.unwrap();
            assert_eq!(inodes.made.value, made, "{given}");
            assert_eq!(inodes.table.value, table * space, "{given}");
            assert_eq!(inodes.per_file.unwrap().value, per_file, "{given}");
            let of = metadata.files.unwrap();
            assert!((of.value / files - 1.0).abs() < 1e-12, "{given}: {} for {files}", of.value);
            assert!(!of.why.is_empty() && inodes.table.why.contains('%'));
        }
        let why = plan("hp-apollo", "inode_size = 256").unwrap().metadata.files.unwrap().why;
        assert!(why.contains("a block of 4096 because the attributes need one of 512"), "{why}");
        let why = plan("hp-apollo", "bytes_per_inode = 16384").unwrap().metadata.files.unwrap().why;
        assert!(why.starts_with("inodes of mkfs"), "{why}");
    }

    /// Goal: the table of the manual page is what the program computes.
    #[test]
    fn the_manual_page() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/admin/plan.md");
        let page = std::fs::read_to_string(path).unwrap();
        for (ratio, size) in [(2048, 512), (2048, 256), (4096, 1024), (16_384, 256)] {
            let text = crate::systems::system("hp-apollo").unwrap().text;
            let text = text
                .replace("size = \"400 GiB\"", "size = \"512 GB\"")
                .replace("bytes_per_inode = 2048", &format!("bytes_per_inode = {ratio}"))
                .replace("inode_size = 512", &format!("inode_size = {size}"));
            let metadata = forecast(&Hardware::from_toml("x", &text).unwrap()).unwrap().metadata;
            let inodes = metadata.inodes.unwrap();
            let begin = format!("| `-i {ratio} -I {size}`");
            let row = page.lines().find(|line| line.starts_with(&begin)).expect(&begin);
            let cells: Vec<&str> = row.split(" | ").collect();
            let part = (inodes.table.value / 512e9 * 1000.0).round() / 10.0;
            assert_eq!(cells[1], format!("{part} %"), "{row}");
            let bytes = inodes.per_file.unwrap().value as u64;
            let bytes = if bytes < 1000 {
                bytes.to_string()
            } else {
                format!("{},{:03}", bytes / 1000, bytes % 1000)
            };
            assert!(cells[2].starts_with(&format!("{bytes} bytes")), "{row}");
            let millions = metadata.files.unwrap().value / 1e6;
            assert!(cells[3].starts_with(&format!("{millions:.0} million")), "{row}: {millions}");
        }
    }

    /// Goal: where names are rows, no number of inodes bounds the files, and a table that is larger leaves less to them.
    #[test]
    fn rows_need_no_inodes() {
        for (given, part) in [
            ("", 256.0 / 16_384.0),
            ("bytes_per_inode = 2048\ninode_size = 512", 0.25),
            ("bytes_per_inode = 1048576", 256.0 / 1_048_576.0),
        ] {
            let metadata = plan("example", given).unwrap().metadata;
            let inodes = metadata.inodes.unwrap();
            assert!((inodes.table.value / 960e9 - part).abs() < 1e-12, "{given}");
            assert!(inodes.per_file.is_none());
            let expected = 960e9 * (1.0 - part) / 488.0;
            assert!((metadata.files.unwrap().value / expected - 1.0).abs() < 1e-12, "{given}");
        }
        let page = crate::text::forecast(&plan("example", "").unwrap(), false);
        assert!(page.contains("table of inodes") && page.contains("-i 1048576"), "{page}");
    }

    /// Goal: what mkfs.ext4 refuses is refused, and what it is not asked for.
    #[test]
    fn refused() {
        for (given, said) in [
            ("inode_size = 300", "power of two"),
            ("inode_size = 8192", "power of two"),
            ("bytes_per_inode = 2048\ninode_size = 2048", "larger bytes_per_inode"),
            ("bytes_per_inode = 0", "such as 2048"),
        ] {
            let fault = plan("hp-apollo", given).unwrap_err();
            assert!(fault.contains(said), "{given}: {fault}");
        }
        let storage = crate::systems::system("example")
            .unwrap()
            .text
            .replace("raid = \"raidz2\"", "inode_size = 512\nraid = \"raidz2\"");
        let faults = Hardware::from_toml("x", &storage).unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains("only a metadata target")), "{faults:?}");
    }
}

//! Numbers that `docs/design/wire.md` keeps for later are used by nothing: a tag, the number of a message, of an event or of
//! a table of rows means one thing for ever. Bits of flags, and the byte of the handshake, stand in no list that could be
//! read here; a test refuses that byte (`skep-fuzz`, `stranger.rs`).

use super::{Report, Tree};
use std::collections::BTreeSet;

const PAGE: &str = "docs/design/wire.md";
const HEADING: &str = "### Reserved";

const FIX: &str =
    "take another number; or, if this is what it was kept for, take its row out of the table and describe it";

/// Words of the table that stand for records.
const RECORDS: [(&str, &[&str]); 4] = [
    (
        "chunk requests",
        &[
            "ReadChunk",
            "WriteChunk",
            "PunchChunk",
            "ReserveChunk",
            "MapChunk",
            "CopyChunk",
            "SyncChunks",
            "StatChunks",
        ],
    ),
    ("inode row", &["Inode"]),
    ("header row", &["Header"]),
    ("slot row", &["SlotRow"]),
];

/// The enumeration of tables of rows.
const ROW_TABLES: &str = "Table";

/// Checks every record, event, table and message of vocabulary and rules.
pub fn check(tree: &Tree, report: &mut Report) {
    let Some(page) = tree.file(PAGE) else { return };
    let (tags, messages) = reserved(&page.text);
    for file in tree.rust().filter(|file| is_of_formats(&file.path)) {
        let mut record = String::new();
        for (number, line) in file.code_lines() {
            if let Some((name, message)) = begins(line) {
                record = name;
                if message.is_some_and(|message| messages.contains(&message)) {
                    report.add(&file.path, number, format!("{record} has a number that {PAGE} keeps"), FIX);
                }
            } else if let Some(used) = tag_in(line).or_else(|| variant_in(line))
                && tags.contains(&(record.clone(), used))
            {
                report.add(&file.path, number, format!("{record} uses {used}, which {PAGE} keeps"), FIX);
            }
        }
    }
}

fn is_of_formats(path: &str) -> bool {
    path.starts_with("crates/vocabulary/") || path.starts_with("crates/rules/")
}

/// The name of the record or enumeration that begins in the line, and the number of a message.
fn begins(line: &str) -> Option<(String, Option<u32>)> {
    let line = line.trim();
    let named = ["pub struct ", "pub enum "].iter().find_map(|kind| line.strip_prefix(kind));
    if let Some(name) = named.and_then(|rest| rest.strip_suffix(" {")) {
        return Some((name.to_owned(), None));
    }
    let (name, rest) = line.split_once(" = 0x")?;
    let (number, _) = rest.split_once(" -> ")?;
    Some((name.to_owned(), Some(u32::from_str_radix(number, 16).ok()?)))
}

/// `3 => pub name: Option<...>`.
fn tag_in(line: &str) -> Option<u32> {
    let (number, rest) = line.trim().split_once(" => ")?;
    number.parse().ok().filter(|_| rest.starts_with("pub "))
}

/// `Lock(LockOutcome) = 1,`.
fn variant_in(line: &str) -> Option<u32> {
    line.trim().strip_suffix(',')?.rsplit_once(" = ")?.1.parse().ok()
}

/// What the table keeps: tags of records and numbers in enumerations, each by its name, and numbers of messages.
fn reserved(page: &str) -> (BTreeSet<(String, u32)>, BTreeSet<u32>) {
    let (mut tags, mut messages) = (BTreeSet::new(), BTreeSet::new());
    let table = page.split(HEADING).nth(1).unwrap_or_default().lines().filter(|line| line.starts_with("| "));
    for row in table {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, _, place, kept, ..] = cells[..] else { continue };
        let mut records: Vec<&str> = place.split('`').skip(1).step_by(2).collect();
        let named = RECORDS.iter().filter(|(words, _)| place.contains(words));
        records.extend(named.flat_map(|(_, records)| *records));
        if let Some(table) = place.strip_prefix("row, table ").and_then(|number| number.parse().ok()) {
            tags.insert((ROW_TABLES.to_owned(), table));
        }
        for part in kept.split(';') {
            let numbers = numbers_in(part);
            if part.contains("0x") {
                messages.extend(numbers);
            } else if part.contains("tag") || part.contains("number") {
                let each = |record: &&str| {
                    numbers.iter().map(|tag| ((*record).to_owned(), *tag)).collect::<Vec<_>>()
                };
                tags.extend(records.iter().flat_map(each));
            }
        }
    }
    (tags, messages)
}

/// `tags 23, 24`, `0x0230, 0x0231`, `0x0234 to 0x0236`.
fn numbers_in(part: &str) -> Vec<u32> {
    let read = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    let words: Vec<&str> = part.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let mut numbers: Vec<u32> = words.iter().filter_map(|word| read(word)).collect();
    for range in words.windows(3).filter(|range| range[1] == "to") {
        if let (Some(first), Some(last)) = (read(range[0]), read(range[2])) {
            numbers.extend(first..last);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    const TABLE: &str = "# Wire\n\n### Reserved\n\n| field | message or row | number | meaning |\n| --- | --- | --- | --- |\n\
                         | job | `ShardCall`, chunk requests | tag 17 | x |\n\
                         | quotas | messages; `SetAttr` | 0x0234 to 0x0236, 0x0118; tag 1 | x |\n\
                         | recall | `Event` | number 3 | x |\n\
                         | usage | row, table 22 | shard, u8 kind (1 user, 2 group) -> used | x |\n\
                         | owner | row, table of deletions | tag 1 | x |\n";

    /// Goal: events and tables of rows may not take a kept number, other enumerations may.
    #[test]
    fn kept_numbers_are_in_no_enumeration() {
        let path = "crates/rules/meta/src/a.rs";
        for (variant, found) in [
            ("Event {\n    Lock(LockOutcome) = 3,", 1),
            ("Event {\n    Lock(LockOutcome) = 1,", 0),
            ("Table {\n    Usage = 22,", 1),
            ("Table {\n    Header = 1,", 0),
            ("Other {\n    A = 22,\n    B = 3,", 0),
        ] {
            let code = format!("pub enum {variant}\n}}\n");
            assert_eq!(findings(check, &[(PAGE, TABLE), (path, &code)]).len(), found, "{variant}");
        }
    }

    /// Goal: what is kept is found in records and messages, one by one, in ranges, and where words stand for several; other
    /// numbers pass.
    #[test]
    fn kept_numbers_are_not_used() {
        let record = |name: &str, tag: u32| {
            format!("pub struct {name} {{\n}} tags {{\n    {tag} => pub x: Option<u8>,\n}}\n")
        };
        let path = "crates/vocabulary/wire/src/a.rs";
        for (name, tag, found) in [
            ("ShardCall", 17, 1),
            ("ShardCall", 1, 0),
            ("MapChunk", 17, 1),
            ("SetAttr", 1, 1),
            ("Other", 17, 0),
        ] {
            let code = record(name, tag);
            assert_eq!(findings(check, &[(PAGE, TABLE), (path, &code)]).len(), found, "{name} {tag}");
        }
        for (number, found) in [(0x0234, 1), (0x0235, 1), (0x0236, 1), (0x0118, 1), (0x0237, 0)] {
            let code = format!("crate::message! {{\n    Quota = {number:#06x} -> Empty {{\n    }}\n}}\n");
            assert_eq!(findings(check, &[(PAGE, TABLE), (path, &code)]).len(), found, "{number:#x}");
        }
    }
}

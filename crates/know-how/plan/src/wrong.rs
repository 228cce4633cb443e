//! What in a TOML text has the wrong type, name or unit: where, which field, and what to write.
//!
//! A reader stops at the first such fault. So what is at fault is replaced by something that is right, in a copy, and
//! the copy is read again, until all is found.

use crate::check::Step;
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Most faults that are told; beyond that something else is meant than what is read.
const FAULTS_MAX: usize = 50;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Offset in the text.
    pub at: usize,
    /// Field; empty when the text is no TOML at all.
    pub place: Vec<Step>,
    /// What is wrong and what to write.
    pub message: String,
}

/// A text in which faults are replaced, with the place of every byte in the text that was given.
struct Copy {
    text: String,
    origin: Vec<usize>,
}

impl Copy {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), origin: (0..=text.len()).collect() }
    }

    fn origin(&self, at: usize) -> usize {
        self.origin.get(at).copied().unwrap_or_default()
    }

    /// `None` where the range is none of the text.
    fn replace(&mut self, range: Range<usize>, put: &str) -> Option<()> {
        self.text.get(range.clone())?;
        let at = self.origin(range.start);
        self.text.replace_range(range.clone(), put);
        self.origin.splice(range, std::iter::repeat_n(at, put.len()));
        Some(())
    }
}

/// Reads a text, or finds what is wrong with it.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Vec<Wrong>> {
    let mut copy = Copy::new(text);
    let mut found: Vec<Wrong> = Vec::new();
    // What is added for a key that is missing may need a second look.
    for _ in 0..4 * FAULTS_MAX {
        let error = match toml::from_str::<T>(&copy.text) {
            Ok(read) if found.is_empty() => return Ok(read),
            Ok(_) => break,
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        let Ok(root) = DeTable::parse(&copy.text) else {
            // Once something was found, the text is TOML and only the copy is not.
            if found.is_empty() {
                let message = format!("{}: this is no TOML (https://toml.io)", said(error.message()));
                found.push(Wrong { at: span.start, place: Vec::new(), message });
            }
            break;
        };
        let (message, missing) = advice(error.message());
        // A key is missing in a table; what is no table stands where the whole text begins.
        let spot = find(root.get_ref(), &span).filter(|spot| missing.is_none() || spot.is_table);
        let mut place = spot.as_ref().map_or_else(Vec::new, |spot| spot.place.clone());
        place.extend(missing.clone().map(Step::Field));
        let at = copy.origin(span.start);
        let known = found.iter().any(|other| other.place == place);
        let unclear = error.message().contains(ANY_NAME);
        if !known && (!unclear || spot.is_none()) {
            found.push(Wrong { at, place, message });
        }
        let mended = match (missing, spot) {
            (Some(key), spot) => add(&mut copy, spot.as_ref(), &span, &key),
            (None, Some(spot)) => mend(&mut copy, &spot, error.message()),
            (None, None) => None,
        };
        if mended.is_none() || found.len() >= FAULTS_MAX {
            break;
        }
    }
    found.sort_by_key(|wrong| wrong.at);
    Err(found)
}

/// A key with its value, or an element of a list, at which a reader stopped.
struct Spot {
    place: Vec<Step>,
    key: Option<Range<usize>>,
    value: Range<usize>,
    is_table: bool,
}

/// The innermost key or value that holds the span.
fn find(root: &DeTable<'_>, span: &Range<usize>) -> Option<Spot> {
    let mut best = None;
    in_table(root, span, &mut Vec::new(), &mut best);
    best
}

fn in_table(table: &DeTable<'_>, span: &Range<usize>, place: &mut Vec<Step>, best: &mut Option<Spot>) {
    for (key, value) in table {
        place.push(Step::Field(key.get_ref().to_string()));
        visit(value.get_ref(), Some(key.span()), value.span(), span, place, best);
        place.pop();
    }
}

fn visit(
    value: &DeValue<'_>,
    key: Option<Range<usize>>,
    at: Range<usize>,
    span: &Range<usize>,
    place: &mut Vec<Step>,
    best: &mut Option<Spot>,
) {
    let holds = |range: &Range<usize>| range.start <= span.start && span.end <= range.end;
    let length = |range: &Range<usize>| range.end - range.start;
    if let Some(within) = [key.clone(), Some(at.clone())].into_iter().flatten().find(holds)
        && best.as_ref().is_none_or(|best| length(&within) <= length(&best.value) || holds(&at))
    {
        let is_table = value.as_table().is_some();
        *best = Some(Spot { place: place.clone(), key, value: at, is_table });
    }
    if let Some(table) = value.as_table() {
        in_table(table, span, place, best);
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        place.push(Step::Item(number));
        visit(item.get_ref(), None, item.span(), span, place, best);
        place.pop();
    }
}

/// Puts something right in this place; `None` when nobody knows what.
fn mend(copy: &mut Copy, spot: &Spot, message: &str) -> Option<()> {
    if message.contains("unknown field") {
        let key = spot.key.clone()?;
        // A whole line becomes a comment; of an inline table nobody knows where the comma goes.
        let before = copy.text.get(..key.start)?;
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        let whole = before.get(line..)?.trim().is_empty() && !spot.is_table;
        return whole.then(|| copy.replace(key.start..spot.value.end, "#"))?;
    }
    if spot.is_table {
        return None;
    }
    let put = if message.contains(ANY_NAME) {
        format!("{:?}", copy.text.get(spot.value.clone())?)
    } else {
        right(message)?
    };
    if copy.text.get(spot.value.clone())? == put {
        return None;
    }
    copy.replace(spot.value.clone(), &put)
}

/// Writes a missing key; what a reader says of its value tells which one it takes.
fn add(copy: &mut Copy, spot: Option<&Spot>, span: &Range<usize>, key: &str) -> Option<()> {
    let Some(spot) = spot else { return copy.replace(0..0, &format!("{key} = false\n")) };
    match copy.text.get(span.start..)?.chars().next()? {
        '{' => copy.replace(span.start + 1..span.start + 1, &format!("{key} = false, ")),
        '[' => {
            let header =
                copy.text.get(span.start..)?.find('\n').map_or(copy.text.len(), |end| span.start + end);
            copy.replace(header..header, &format!("\n{key} = false"))
        }
        _ => spot.key.clone().and(None),
    }
}

/// What a reader says of a name that is none.
const ANY_NAME: &str = "wanted string or table";

/// A value that a reader would take.
fn right(message: &str) -> Option<String> {
    if let Some(first) = variants(message).first() {
        return Some(format!("\"{first}\""));
    }
    if message.contains("a size such as") {
        return Some("\"1 B\"".to_owned());
    }
    if message.contains("a rate such as") {
        return Some("\"1 B/s\"".to_owned());
    }
    let expected = message.rsplit_once("expected ").map_or("", |(_, expected)| expected.trim());
    let value = match expected {
        "a boolean" => "true",
        "a string" => "\"\"",
        "a sequence" => "[]",
        text if WHOLE.iter().any(|(name, _)| *name == text) || text == "f64" => "1",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Whole numbers, and the most of each.
const WHOLE: [(&str, &str); 6] = [
    ("u8", "255"),
    ("u16", "65535"),
    ("u32", "4294967295"),
    ("u64", "9223372036854775807"),
    ("usize", "9223372036854775807"),
    ("i64", "9223372036854775807"),
];

fn variants(message: &str) -> Vec<&str> {
    let unknown = message.split_once("unknown variant ");
    match unknown.and_then(|(_, rest)| rest.split_once("expected ")) {
        Some((_, list)) => quoted(list),
        None => Vec::new(),
    }
}

/// Everything between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// In words for people, and the key that is missing, if that is the fault.
fn advice(message: &str) -> (String, Option<String>) {
    let names = quoted(message);
    if let (Some(key), true) = (names.first(), message.contains("missing field")) {
        return (
            "is missing: write it (`skep plan example` shows a whole description)".to_owned(),
            Some((*key).to_owned()),
        );
    }
    if let (Some(key), true) = (names.first(), message.contains("unknown field")) {
        let known = names.get(1..).unwrap_or_default().join(", ");
        return (format!("there is no key {key:?} here: write one of {known}, or leave it out"), None);
    }
    if message.contains("unknown variant") {
        let found = names.first().copied().unwrap_or_default();
        return (format!("{found:?} is not known here: write one of {}", variants(message).join(", ")), None);
    }
    let Some((found, expected)) = message.split_once(", expected ") else { return (said(message), None) };
    let found = ["invalid type: ", "invalid value: ", "invalid length "]
        .into_iter()
        .find_map(|start| found.strip_prefix(start))
        .unwrap_or(found);
    (format!("{}: write {}", said(found), wanted(expected.trim())), None)
}

fn wanted(expected: &str) -> String {
    if let Some((_, most)) = WHOLE.iter().find(|(name, _)| *name == expected) {
        return format!("a whole number from 0 to {most}");
    }
    match expected {
        "f64" => "a number, such as 0.5 or 1e9".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => "a list in brackets, or tables under [[...]]".to_owned(),
        "a map" => "a table".to_owned(),
        text if text.starts_with("struct ") => "a table".to_owned(),
        text => text.to_owned(),
    }
}

/// On one line, without the marks of a parser.
fn said(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "")
}

#[cfg(test)]
mod tests {
    use crate::load::tests::{GOOD, faults, line_with};

    /// Goal: a wrong type, unit or name is told with line, field and what to write, in words for people.
    #[test]
    fn line_field_and_advice() {
        for (from, to, field, advice) in [
            ("drives = 6", "drives = -2", "servers[0].targets[0].drives", "write a whole number from 0"),
            ("drives = 6", "drives = \"6\"", "servers[0].targets[0].drives", "write a whole number from 0"),
            ("drives = 6", "drives = 1.5", "servers[0].targets[0].drives", "write a whole number from 0"),
            ("size = \"1 TB\"", "size = 5", "servers[0].targets[0].size", "write a size such as \"1.6 TB\""),
            (
                "size = \"1 TB\"",
                "size = \"1T\"",
                "servers[0].targets[0].size",
                "write a size such as \"1.6 TB\"",
            ),
            (
                "raid = \"raid6\"",
                "raid = \"raid7\"",
                "servers[0].targets[0].raid",
                "write one of none, raid0",
            ),
            ("raid = \"raid6\"", "raid = 6", "servers[0].targets[0].raid", "write"),
            ("drives = 6", "drivse = 6", "servers[0].targets[0].drivse", "write one of role, count, drive"),
            ("count = 64", "count = true", "clients.count", "write a whole number from 0"),
            ("count = 64\n", "", "clients.count", "is missing: write it"),
            ("kind = \"10gbe\"", "kind = 10", "servers[0].nics[0].kind", "write a text in quotes"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from} is in the example");
            let faults = faults(&text);
            let place = format!(": {field}: ");
            let fault = faults.iter().find(|fault| fault.contains(&place));
            let fault = fault.unwrap_or_else(|| panic!("{from} {to}: {faults:?}"));
            assert!(fault.contains(advice), "{fault}");
            for word in ["u32", "u64", "f64", "expected", "invalid", "struct", "enum", "`", "serde"] {
                assert!(!fault.replace("`skep plan example`", "").contains(word), "{word}: {fault}");
            }
            let line = if to.is_empty() { line_with(&text, "[clients]") } else { line_with(&text, to) };
            assert!(fault.starts_with(&format!("lab.toml:{line}: ")), "{line}: {fault}");
        }
        let nameless = faults(&GOOD.replacen("name = \"sizing-6gbs-a\"", "", 1));
        assert!(nameless.len() == 1 && nameless[0].contains(": name: is missing"), "{nameless:?}");
        let empty = faults("");
        assert!(empty.iter().any(|fault| fault.contains(": servers: is missing")), "{empty:?}");
    }

    /// Goal: not only the first fault is told.
    #[test]
    fn all_of_them() {
        let text = GOOD
            .replacen("drives = 6", "drives = -2", 1)
            .replacen("size = \"1 TB\"", "size = \"1T\"", 1)
            .replacen("raid = \"raid6\"", "raid = \"raid7\"", 1)
            .replacen("count = 64", "cuont = 64", 1);
        let faults = faults(&text);
        for wanted in ["].drives: ", "].size: ", "].raid: ", "clients.cuont: ", "clients.count: is missing"] {
            assert!(faults.iter().any(|fault| fault.contains(wanted)), "{wanted}: {faults:#?}");
        }
        assert_eq!(faults.len(), 5, "{faults:#?}");
    }

    /// Goal: a text that is no TOML says the line.
    #[test]
    fn no_toml() {
        let text = GOOD.replacen("drives = 6", "drives = ", 1);
        let faults = faults(&text);
        let line = line_with(&text, "drives = ");
        assert!(faults.len() == 1 && faults[0].starts_with(&format!("lab.toml:{line}: ")), "{faults:?}");
    }
}

//! How commands show what they found: a table for people, JSON for programs.
//!
//! Data goes to standard output, everything said to people to standard error. Field names of JSON
//! are those of the row types and stay once released; new fields may be added.

use crate::log::{printable, printable_lines};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use std::io::{self, Write};

/// `--output`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON object per line
    Ndjson,
}

/// The flag that every command has which shows something.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OutputArgs {
    /// How to show it
    #[arg(long, short = 'O', value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// One line of a table.
pub trait Row: Serialize {
    /// Titles; one that begins with `>` is for a column of numbers.
    const TITLES: &'static [&'static str];
    /// As many cells as titles.
    fn cells(&self) -> Vec<String>;
}

pub fn rows<R: Row>(format: Format, rows: &[R], out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Table => table(rows, out),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, rows)?;
            writeln!(out)
        }
        Format::Ndjson => rows.iter().try_for_each(|row| line(row, out)),
    }
}

/// Writes documents that are too deep for a table; `text` is how people see one.
pub fn documents<T: Serialize>(
    format: Format,
    documents: &[T],
    text: impl Fn(&T) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table => documents
            .iter()
            .try_for_each(|document| out.write_all(printable_lines(&text(document)).as_bytes())),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, documents)?;
            writeln!(out)
        }
        Format::Ndjson => documents.iter().try_for_each(|document| line(document, out)),
    }
}

/// Standard output, for data. A reader that has seen enough (`| head`) is no failure.
pub struct Stdout(io::StdoutLock<'static>);

/// Takes standard output.
pub fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Whole texts come here, of which a control character can be part only by somebody else's doing.
        let text = String::from_utf8_lossy(bytes);
        match self.0.write_all(printable_lines(&text).as_bytes()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            other => other.map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

fn line<T: Serialize>(value: &T, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

fn table<R: Row>(rows: &[R], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(R::TITLES.iter().map(|title| title.trim_start_matches('>')));
    for row in rows {
        table.add_row(row.cells().iter().map(|cell| printable(cell)));
    }
    for (at, title) in R::TITLES.iter().enumerate() {
        let Some(column) = table.column_mut(at) else { continue };
        column.set_padding((0, 2));
        if title.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    // Without the blanks that fill the last column.
    for text in table.lines() {
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

/// Bytes as people read them: three digits and a binary unit.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = ((63 - bytes.leading_zeros()) / 10).min(6);
    let whole = bytes as f64 / (1u64 << (10 * power)) as f64;
    let decimals = match whole {
        w if w < 10.0 => 2,
        w if w < 100.0 => 1,
        _ => 0,
    };
    format!("{whole:.decimals$} {}", UNITS[power as usize - 1])
}

/// Milliseconds as people read them.
pub fn ago(ms: Option<u64>) -> String {
    match ms {
        None => "never".to_owned(),
        Some(ms) if ms < 1_000 => format!("{ms} ms"),
        Some(ms) if ms < 120_000 => format!("{} s", ms / 1_000),
        Some(ms) if ms < 7_200_000 => format!("{} min", ms / 60_000),
        Some(ms) => format!("{} h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Fruit {
        name: &'static str,
        count: u64,
    }

    impl Row for Fruit {
        const TITLES: &'static [&'static str] = &["NAME", ">COUNT"];
        fn cells(&self) -> Vec<String> {
            vec![self.name.to_owned(), self.count.to_string()]
        }
    }

    const FRUITS: [Fruit; 2] = [Fruit { name: "apple", count: 5 }, Fruit { name: "fig", count: 12_345 }];

    fn shown(format: Format) -> String {
        let mut out = Vec::new();
        rows(format, &FRUITS, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Goal: the three formats look as documented: aligned columns, an array, a line per row.
    #[test]
    fn formats() {
        assert_eq!(shown(Format::Table), "NAME   COUNT\napple      5\nfig    12345\n");
        assert_eq!(
            shown(Format::Ndjson),
            "{\"name\":\"apple\",\"count\":5}\n{\"name\":\"fig\",\"count\":12345}\n"
        );
        let back: serde_json::Value = serde_json::from_str(&shown(Format::Json)).unwrap();
        assert_eq!(back[1]["count"], 12_345);
        let mut nothing = Vec::new();
        rows::<Fruit>(Format::Json, &[], &mut nothing).unwrap();
        assert_eq!(nothing, b"[]\n");
    }

    /// Goal: a name that somebody else chose paints nothing on the terminal, and adds no line.
    #[test]
    fn names_paint_nothing() {
        let mut out = Vec::new();
        let fruit = Fruit { name: "fig\x1b[2J\nDONE \u{9b}1m", count: 1 };
        rows(Format::Table, &[fruit], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME                       COUNT\nfig\\x1b[2J\\x0aDONE \\x9b1m      1\n");
        let mut out = Vec::new();
        documents(Format::Table, &["a\x1bb\n"], |text| text.to_string(), &mut out).unwrap();
        assert_eq!(out, b"a\\x1bb\n");
    }

    /// Goal: sizes keep three digits over the whole range.
    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536 * 1024, "1.50 MiB"),
            (25 << 30, "25.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    /// Goal: silence reads well from milliseconds to days.
    #[test]
    fn silences() {
        assert_eq!(ago(None), "never");
        assert_eq!((ago(Some(999)), ago(Some(61_000))), ("999 ms".to_owned(), "61 s".to_owned()));
        assert_eq!((ago(Some(600_000)), ago(Some(86_400_000))), ("10 min".to_owned(), "24 h".to_owned()));
    }
}

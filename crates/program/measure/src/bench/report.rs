//! How `bench storage` and `bench net` show what they found: a table with a summary, a document, or a table for
//! spreadsheets.

use super::output::Format;
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use skep_base::output::{self, Row};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// `--output` with all the formats of `skep bench`.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct ReportArgs {
    /// How to show it
    #[arg(long, short = 'O', value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

impl ReportArgs {
    /// A table, for people?
    pub fn is_for_people(self) -> bool {
        self.output == Format::Table
    }
}

/// Writes `document`; people and spreadsheets get its `rows`, people `words` below them.
pub fn write<R: Row>(
    args: ReportArgs,
    document: &impl Serialize,
    rows: &[R],
    words: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let documents = |format, out: &mut dyn Write| {
        output::documents(format, std::slice::from_ref(document), |_| String::new(), out)
    };
    match args.output {
        Format::Table => {
            output::rows(output::Format::Table, rows, out)?;
            out.write_all(words.as_bytes())
        }
        Format::Json => documents(output::Format::Json, out),
        Format::Ndjson => documents(output::Format::Ndjson, out),
        Format::Csv => csv(rows, out),
    }
}

/// A line per row; what is nested has a name with a dot, a list its values with blanks between them.
fn csv(rows: &[impl Serialize], out: &mut dyn Write) -> io::Result<()> {
    for (number, row) in rows.iter().enumerate() {
        let mut fields = BTreeMap::new();
        flatten("", &serde_json::to_value(row)?, &mut fields);
        if number == 0 {
            writeln!(out, "{}", fields.keys().map(|name| quoted(name)).collect::<Vec<_>>().join(","))?;
        }
        writeln!(out, "{}", fields.values().map(|text| quoted(text)).collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

fn flatten(name: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, fields);
            }
        }
        Value::Array(values) => {
            fields.insert(name.to_owned(), values.iter().map(text).collect::<Vec<_>>().join(" "));
        }
        other => {
            fields.insert(name.to_owned(), text(other));
        }
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Inner {
        p50: f64,
    }

    #[derive(Serialize)]
    struct Sample {
        name: &'static str,
        latency: Inner,
        rounds: Vec<u32>,
        error: Option<String>,
    }

    /// Goal: nested values, lists, absent ones and awkward texts survive the way into a spreadsheet.
    #[test]
    fn spreadsheets() {
        let row = |name, error| Sample { name, latency: Inner { p50: 1.5 }, rounds: vec![1, 2], error };
        let mut out = Vec::new();
        csv(&[row("a", None), row("b, \"c\"", Some("no".to_owned()))], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "error,latency.p50,name,rounds\n,1.5,a,1 2\nno,1.5,\"b, \"\"c\"\"\",1 2\n");
    }
}

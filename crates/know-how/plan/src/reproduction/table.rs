//! The table as a page of the documentation.

use super::{Contradiction, How, Line, Published, Sheet, Shown, Verdict, predictions};
use crate::forward::Stage;
use std::fmt::Write;

/// The whole page.
pub fn markdown(sheets: &[Sheet], contradictions: &[Contradiction]) -> String {
    let mut page = INTRODUCTION.replace("PREDICTIONS", &predictions(sheets).sentence());
    for sheet in sheets {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {}: {}\n\n", sheet.document, sheet.title);
        page.push_str("| quantity | unit | published | computed | error | how | remark |\n");
        page.push_str("| --- | --- | ---: | ---: | ---: | --- | --- |\n");
        sheet.lines.iter().for_each(|line| page.push_str(&row(line)));
        page.push_str(
            "\n| what limits | published | computed | then | remark |\n| --- | --- | --- | --- | --- |\n",
        );
        sheet.verdicts.iter().for_each(|verdict| page.push_str(&limits(verdict)));
    }
    page.push_str(CONTRADICTIONS);
    for found in contradictions {
        let _ =
            writeln!(page, "| {} | {} | {} | {} |", found.documents, found.said, found.against, found.choice);
    }
    page
}

const INTRODUCTION: &str = "# `skep plan` against five published systems

Written by `SKEP_WRITE_TABLES=1 cargo test -p skep-plan`; a test keeps this page equal to what the code computes, and each line within
its tolerance. The descriptions are `crates/know-how/plan/systems/*.toml` (`skep plan example NAME`), the rates `skep plan catalogue`.

* **predicted**: computed from other sources than the measurement that was published. These alone show how good the model is: PREDICTIONS
* **arithmetic**: a sum, product or rule that the document prints with its numbers; agreement shows that they were copied rightly.
* **extrapolated**: what was published is the document's own expectation, not a measurement: two extrapolations agree or not.
* **again**: a prediction that stands here already, once more (its inverse, a part, a multiple); it proves nothing new.
* **computed**: nothing was published to compare it with.
* **input**: the model was fed with this number (a measured rate of a component); agreement proves nothing.
* **from inputs**: put together by the model from inputs of the same document (sums, the slowest, the least); only that is tested.
* **quotient**: a rate that the document measured over one that the model computes.
* **both measured**: one measured rate of the document over another; the model has no part in it.

A number in brackets is not printed in the document: it was computed here from numbers that are (a ratio of two of its tables, a multiple of one).

Documents: 000 to 004 in the order in which they were given to this project. Units: GB and MB are decimal, MiB and TiB binary.
";

const CONTRADICTIONS: &str = "
## Contradictions of the documents

| document | said | against | taken here |
| --- | --- | --- | --- |
";

fn row(line: &Line) -> String {
    let published = match line.published {
        Published::Number(number) => digits(line.shown, number),
        Published::Derived(number) => format!("({})", digits(line.shown, number)),
        Published::Within(least, most) => {
            format!("{} to {}", digits(line.shown, least), digits(line.shown, most))
        }
        Published::Nothing => "not published".to_owned(),
    };
    let error = match (line.error(), &line.published) {
        (Some(error), _) => signed(error),
        (None, Published::Within(least, most)) if (*least..=*most).contains(&line.computed) => {
            "within".to_owned()
        }
        (None, Published::Within(..)) => "outside".to_owned(),
        _ => "-".to_owned(),
    };
    let how = match line.how {
        How::Predicted => "predicted",
        How::Arithmetic => "arithmetic",
        How::Extrapolated => "extrapolated",
        How::Again => "again",
        How::Computed => "computed",
        How::Input => "input",
        How::Combined => "from inputs",
        How::Quotient => "quotient",
        How::Measured => "both measured",
    };
    let (what, unit) = (&line.what, unit(line.shown));
    let computed = digits(line.shown, line.computed);
    format!("| {what} | {unit} | {published} | {computed} | {error} | {how} | {} |\n", line.note)
}

fn signed(error: f64) -> String {
    let percent = error * 100.0;
    // Not "-0.0".
    if percent.abs() < 0.05 { "0.0 %".to_owned() } else { format!("{percent:+.1} %") }
}

fn digits(shown: Shown, number: f64) -> String {
    match shown {
        Shown::Tib if number.fract() == 0.0 => format!("{number:.0}"),
        Shown::Number | Shown::MbPerSecond if number.abs() >= 1000.0 => grouped(number),
        Shown::Number => format!("{number:.0}"),
        Shown::ToOne => format!("{number:.0}:1"),
        Shown::Percent if number.abs() < 1.0 => format!("{number:.2}"),
        _ => format!("{number:.1}"),
    }
}

/// Thousands apart.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn unit(shown: Shown) -> &'static str {
    match shown {
        Shown::GbPerSecond => "GB/s",
        Shown::MbPerSecond => "MB/s",
        Shown::MibPerSecond => "MiB/s",
        Shown::Mb => "MB",
        Shown::Tib => "TiB",
        Shown::Percent => "%",
        Shown::Number | Shown::ToOne => "",
    }
}

fn limits(verdict: &Verdict) -> String {
    let titles =
        |stages: &[Stage]| stages.iter().map(|stage| stage.title()).collect::<Vec<_>>().join(" and ");
    let published =
        verdict.published.as_deref().map_or("not published".to_owned(), |words| format!("\"{words}\""));
    let (computed, next) = (titles(&verdict.computed), titles(&verdict.next));
    format!("| {} | {published} | {computed} | {next} | {} |\n", verdict.what, verdict.note)
}

//! What is left of a survey: the files, and what is printed.

use crate::admin::{Failure, Outcome};
use crate::cli::output::{self, Format, Row};
use serde::Serialize;
use skep_bench::significance::median;
use skep_survey::ceiling;
use skep_survey::model::{Layer, Survey};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The document.
pub const JSON: &str = "survey.json";
/// The report for browsers.
pub const HTML: &str = "report.html";
/// The report on paper.
pub const PDF: &str = "report.pdf";

/// Writes the document and both reports.
pub fn write(survey: &Survey, out: &Path) -> Outcome {
    let put = |name: &str, bytes: &[u8]| {
        let path = out.join(name);
        std::fs::write(&path, bytes).map_err(|e| Failure::local(path.display(), e))
    };
    let mut json = serde_json::to_vec_pretty(survey).map_err(|e| Failure::local(JSON, e))?;
    json.push(b'\n');
    put(JSON, &json)?;
    put(HTML, skep_survey::report::html(survey).as_bytes())?;
    put(PDF, &skep_survey::report::pdf(survey))
}

/// Reads a document: the file itself, or the directory with it.
pub fn read(path: &Path) -> Outcome<Survey> {
    let path: PathBuf = if path.is_dir() { path.join(JSON) } else { path.to_owned() };
    let text = std::fs::read(&path).map_err(|e| Failure::local(path.display(), e))?;
    let survey: Survey = serde_json::from_slice(&text)
        .map_err(|e| Failure::new(format!("{}: is not a {JSON} of this release: {e}", path.display())))?;
    if survey.format != skep_survey::model::FORMAT {
        let expected = skep_survey::model::FORMAT;
        let text = format!("{}: has format {}, this release reads {expected}", path.display(), survey.format);
        return Err(Failure::new(text));
    }
    Ok(survey)
}

/// One line of what is printed: a curve's best place, or the range of members.
#[derive(Debug, Serialize)]
pub struct FigureRow {
    layer: String,
    id: String,
    what: String,
    /// Best median of a curve, median over all members.
    figure: f64,
    unit: String,
    /// Where a curve has its best place; the members that lag.
    place: String,
}

impl Row for FigureRow {
    const TITLES: &'static [&'static str] = &["LAYER", "WHAT", ">FIGURE", "UNIT", "WHERE"];

    fn cells(&self) -> Vec<String> {
        let figure =
            if self.figure < 10.0 { format!("{:.2}", self.figure) } else { format!("{:.0}", self.figure) };
        vec![self.layer.clone(), self.what.clone(), figure, self.unit.clone(), self.place.clone()]
    }
}

fn rows(layer: &Layer) -> Vec<FigureRow> {
    let name =
        serde_json::to_value(layer.id).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let sides = layer.sides.iter().filter_map(|side| {
        let all: Vec<f64> = side.members.iter().flat_map(|member| member.samples.clone()).collect();
        let lag: Vec<&str> =
            side.members.iter().filter(|m| m.outlier.is_some()).map(|m| m.name.as_str()).collect();
        let place = match lag.is_empty() {
            true if side.members.len() == 1 => "1 without likes".to_owned(),
            true => format!("{} alike", side.members.len()),
            false => format!("not alike: {}", lag.join(", ")),
        };
        Some(FigureRow {
            layer: name.clone(),
            id: side.id.clone(),
            what: side.title.clone(),
            figure: median(&all)?,
            unit: side.unit.clone(),
            place,
        })
    });
    let curves = layer.curves.iter().filter_map(|curve| {
        let (x, figure) = ceiling::best(curve)?;
        Some(FigureRow {
            layer: name.clone(),
            id: curve.id.clone(),
            what: curve.title.clone(),
            figure,
            unit: curve.unit.clone(),
            place: format!("{} = {x:.0}", curve.axis),
        })
    });
    sides.chain(curves).collect()
}

/// Prints it: figures and verdict for people, the document for programs.
pub fn show(survey: &Survey, out: &Path, format: Format) -> Outcome {
    let stdout = &mut output::stdout();
    if format != Format::Table {
        return Ok(output::documents(format, std::slice::from_ref(survey), |_| String::new(), stdout)?);
    }
    let all: Vec<FigureRow> = survey.layers.iter().flat_map(rows).collect();
    output::rows(format, &all, stdout)?;
    writeln!(stdout, "\n{}", survey.verdict.headline)?;
    for culprit in survey.verdict.culprit.iter().chain(&survey.verdict.also) {
        let told = format!("{}: {}", culprit.member, culprit.finding);
        if told != survey.verdict.headline {
            writeln!(stdout, "{told}")?;
        }
        writeln!(stdout, "  What to do: {}", culprit.advice)?;
    }
    for limit in &survey.verdict.limits {
        writeln!(stdout, "- {}: {}", limit.work, limit.finding)?;
    }
    for remark in &survey.remarks {
        writeln!(stdout, "Note: {remark}")?;
    }
    let (json, html, pdf) = (out.join(JSON), out.join(HTML), out.join(PDF));
    writeln!(stdout, "\n{:.0} s; {}, {}, {}", survey.seconds, json.display(), html.display(), pdf.display())?;
    Ok(())
}

//! What is left of a survey: the files, and what is printed.

use serde::Serialize;
use skep_base::output::{self, Format, Row};
use skep_base::{Failure, Outcome};
use skep_bench::significance::median;
use skep_survey::ceiling;
use skep_survey::model::{Layer, Survey};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

pub const JSON: &str = "survey.json";
/// The report for browsers.
pub const HTML: &str = "report.html";
/// The report on paper.
pub const PDF: &str = "report.pdf";

const DATE_DIGITS: usize = 8;
/// Digits of a time of day.
const TIME_DIGITS: usize = 6;

/// Where the files go. A directory that was made for them goes again when none came.
pub struct Out {
    dir: PathBuf,
    fresh: bool,
}

impl Out {
    /// A place of its own for every survey, unless it is named. To be called before anything is measured: what cannot be
    /// written should not cost the time.
    pub fn make(named: Option<&Path>, force: bool, started: &str) -> Outcome<Self> {
        let Some(dir) = named.map(Path::to_owned) else {
            return Ok(Self { dir: make_new(&by_time(started))?, fresh: true });
        };
        may_write(&dir, force)?;
        let fresh = !dir.exists();
        std::fs::create_dir_all(&dir).map_err(|e| Failure::local(dir.display(), e))?;
        Ok(Self { dir, fresh })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if self.fresh {
            // Not when the files are in it.
            let _ = std::fs::remove_dir(&self.dir);
        }
    }
}

fn by_time(started: &str) -> PathBuf {
    let digits: String = started.chars().filter(char::is_ascii_digit).collect();
    let (day, time) = digits.split_at_checked(DATE_DIGITS).unwrap_or((&digits, ""));
    format!("skep-survey-{day}-{}", time.get(..TIME_DIGITS).unwrap_or(time)).into()
}

/// Makes a directory that was not there: of that name, or with a number behind it. Two surveys may begin in one second.
fn make_new(dir: &Path) -> Outcome<PathBuf> {
    for number in 1_u32.. {
        let dir = if number == 1 { dir.to_owned() } else { format!("{}-{number}", dir.display()).into() };
        match std::fs::create_dir(&dir) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| dir.clone()).map_err(|e| Failure::local(dir.display(), e)),
        }
    }
    Err(Failure::new(format!("{}: no number behind it is free", dir.display())))
}

/// A survey that is there is not written over unless that was asked for.
fn may_write(dir: &Path, force: bool) -> Outcome {
    if !dir.join(JSON).exists() || force {
        return Ok(());
    }
    let text = format!("{}: holds a survey: name another directory by --out, or add --force", dir.display());
    Err(Failure::new(text))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a directory that was made for a survey goes when there is none, one that was there stays, as does one with
    /// a survey in it; that is not written over unless it is asked for.
    #[test]
    fn whose_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (fresh, own) = (dir.path().join("a/fresh"), dir.path().join("own"));
        std::fs::create_dir(&own).unwrap();
        let make = |dir: &Path, force| Out::make(Some(dir), force, "");
        for dir in [&fresh, &own] {
            let out = make(dir, false).unwrap();
            assert!(out.dir().is_dir());
        }
        assert!(!fresh.exists() && own.exists());
        let out = make(&fresh, false).unwrap();
        std::fs::write(out.dir().join(JSON), "{}").unwrap();
        drop(out);
        let refused = make(&fresh, false).err().unwrap().to_string();
        assert!(refused.contains("a/fresh: holds a survey") && refused.contains("--force"), "{refused}");
        drop(make(&fresh, true).unwrap());
        assert!(fresh.join(JSON).exists());
        assert_eq!(by_time("2026-11-22T06:11:05Z"), Path::new("skep-survey-20261122-061105"));
    }

    /// Goal: surveys that begin in the same second have a place each, and what has no place says so.
    #[test]
    fn surveys_of_one_second_have_a_place_each() {
        let place = tempfile::tempdir().unwrap();
        let name = place.path().join("survey");
        let made: Vec<PathBuf> = (0..3).map(|_| make_new(&name).unwrap()).collect();
        let expected = ["survey", "survey-2", "survey-3"].map(|name| place.path().join(name));
        assert_eq!(made, expected);
        assert!(made.iter().all(|dir| dir.is_dir()));
        assert!(make_new(&place.path().join("missing/survey")).is_err());
    }
}

//! `cargo xtask browser`: the survey's report in a real browser without a window.
//!
//! Each survey of `cases` is drawn, opened light and dark, on a desk and on a telephone, and printed; no
//! request may leave the page, nothing may complain, every chart has marks within its frame and labels that can be
//! read, and every measurement of the document is on the page with all its numbers. The PDF that Skep writes itself is
//! given to poppler. Then each canary must be caught.

mod base64;
mod cases;
mod devtools;
mod expected;
mod paper;
mod view;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use cases::{CANARIES, CASES, LOSSES, with_canary};
use devtools::{Browser, installed};
use expected::Expected;
use view::{VIEWS, View, look};

/// Where the sample is, and the pictures of its report.
const PLACE: &str = "docs/survey";

/// Picture of the first screen, for pages that are no place for a long one.
const FIRST: &str = "light-first.png";

/// What to open.
#[derive(clap::Args)]
pub struct Arguments {
    /// Write the pictures of the sample's report to docs/survey.
    #[arg(long)]
    update: bool,
    /// Look at this page too: a report that `skep survey` wrote.
    #[arg(long)]
    page: Vec<PathBuf>,
    /// Keep pages, pictures and paper in this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// What passed and what failed.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn note(&mut self, name: &str, said: &str, faults: &[String]) {
        if faults.is_empty() {
            self.passed += 1;
            println!("ok    {name}: {said}");
        } else {
            self.failed += 1;
            println!("WRONG {name}");
            for fault in faults {
                println!("      {fault}");
            }
        }
    }
}

/// A directory that goes when the test does.
struct Work {
    path: PathBuf,
    keep: bool,
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn work(arguments: &Arguments) -> Result<Work, String> {
    let path = arguments
        .keep
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("skep-browser-{}", std::process::id())));
    fs::create_dir_all(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
    let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Work { path, keep: arguments.keep.is_some() })
}

/// Runs all of it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    for program in paper::NEEDED {
        if installed(program).is_none() {
            return Err(format!(
                "{program} is not installed, so PDFs cannot be tested: run `make test-packages`, or: apt-get \
                 install poppler-utils"
            ));
        }
    }
    let work = work(arguments)?;
    let mut browser = Browser::start(&work.path)?;
    let draw = drawing_program(root)?;
    let sample = root.join(PLACE).join("sample.json");
    let text = fs::read_to_string(&sample).map_err(|error| format!("{}: {error}", sample.display()))?;
    let survey: Value =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", sample.display()))?;
    let mut tally = Tally::default();
    for case in CASES {
        let files = Files::of(&work.path, case.name);
        let made = (case.make)(survey.clone());
        files.draw(&draw, &made)?;
        pages(&mut browser, case.name, &files, &Expected::of(&made), &mut tally)?;
        own_paper(&survey, case.name, &files, &mut tally)?;
    }
    let files = Files::of(&work.path, "compared");
    let before = Files::of(&work.path, "sample").survey;
    let later = cases::later(survey.clone());
    files.compare(&draw, &before, &later)?;
    let changed = Expected::compared(&survey, &later, |layer| cases::CHANGED.contains(&layer));
    pages(&mut browser, "compared", &files, &changed, &mut tally)?;
    for page in &arguments.page {
        let page = page.canonicalize().map_err(|error| format!("{}: {error}", page.display()))?;
        let expected = beside(&page)?;
        for view in VIEWS {
            let seen = look(&mut browser, &page, view, expected.as_ref())?;
            let said = format!("{} charts with {} marks", seen.charts, seen.marks);
            tally.note(&format!("{}, {}", page.display(), view.name), &said, &seen.faults);
        }
    }
    let good = fs::read_to_string(Files::of(&work.path, "sample").page).map_err(|error| error.to_string())?;
    canaries(&mut browser, &good, &work.path, &mut tally)?;
    losses(&mut browser, &good, &Expected::of(&survey), &work.path, &mut tally)?;
    paper_canaries(&work.path, &mut tally)?;
    if arguments.update {
        let whole = VIEWS.iter().filter(|view| view.print).map(|view| format!("{}.png", view.name));
        for picture in whole.chain([FIRST.to_owned()]) {
            let to = root.join(PLACE).join(&picture);
            let from = work.path.join(format!("sample-{picture}"));
            fs::copy(from, &to).map_err(|error| format!("{}: {error}", to.display()))?;
        }
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(tally.failed == 0)
}

/// What a page that `skep survey` wrote must show, if its document lies beside it.
fn beside(page: &Path) -> Result<Option<Expected>, String> {
    let document = page.with_file_name("survey.json");
    if !document.is_file() {
        return Ok(None);
    }
    let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", document.display());
    let text = fs::read_to_string(&document).map_err(|error| fault(&error))?;
    let survey: Value = serde_json::from_str(&text).map_err(|error| fault(&error))?;
    Ok(Some(Expected::of(&survey)))
}

/// The files of one case.
struct Files {
    directory: PathBuf,
    survey: PathBuf,
    page: PathBuf,
    paper: PathBuf,
}

impl Files {
    fn of(directory: &Path, name: &str) -> Self {
        let file = |end: &str| directory.join(format!("{name}.{end}"));
        let directory = directory.to_owned();
        Self { survey: file("json"), page: file("html"), paper: file("pdf"), directory }
    }

    fn draw(&self, program: &Path, survey: &Value) -> Result<(), String> {
        self.run(program, survey, &[&self.survey, &self.page, &self.paper])
    }

    fn compare(&self, program: &Path, before: &Path, after: &Value) -> Result<(), String> {
        self.run(program, after, &[Path::new("--compare"), before, &self.survey, &self.page])
    }

    fn run(&self, program: &Path, survey: &Value, arguments: &[&Path]) -> Result<(), String> {
        fs::write(&self.survey, survey.to_string()).map_err(|error| error.to_string())?;
        let status = Command::new(program).args(arguments).status();
        let status = status.map_err(|error| format!("{}: {error}", program.display()))?;
        if status.success() { Ok(()) } else { Err(format!("drawing {}: {status}", self.survey.display())) }
    }
}

/// The program that draws a report from its document.
fn drawing_program(root: &Path) -> Result<PathBuf, String> {
    // Of the whole workspace: its dependencies then have the features that the tests were built with.
    let build = ["build", "--quiet", "--workspace", "--example", "report"];
    let status = Command::new("cargo").args(build).current_dir(root).status();
    let status = status.map_err(|error| format!("cargo build: {error}"))?;
    if !status.success() {
        return Err(format!("cargo build --example report: {status}"));
    }
    let target = crate::target_directory(root);
    Ok(target.join("debug/examples/report"))
}

fn pages(
    browser: &mut Browser,
    case: &str,
    files: &Files,
    expected: &Expected,
    tally: &mut Tally,
) -> Result<(), String> {
    let put = |name: String, bytes: &[u8]| {
        let file = files.directory.join(format!("{case}-{name}"));
        fs::write(&file, bytes).map(|()| file.clone()).map_err(|error| format!("{}: {error}", file.display()))
    };
    let mut papers: Vec<Vec<f64>> = Vec::new();
    for view in VIEWS {
        let mut seen = look(browser, &files.page, view, Some(expected))?;
        put(format!("{}.png", view.name), &seen.picture)?;
        put(format!("{}-first.png", view.name), &seen.first_screen)?;
        let mut said = format!("{} charts with {} marks", seen.charts, seen.marks);
        if view.print {
            let printed = put(format!("{}-printed.pdf", view.name), &seen.paper_copy)?;
            let count = paper::check(&printed, &seen.headings, &mut seen.faults)?;
            said += &format!(", printed on {count} pages");
        }
        tally.note(&format!("{case}, {}, {} pixels", view.name, view.wide), &said, &seen.faults);
        papers.push(seen.paper);
    }
    if let [light, dark, ..] = papers.as_slice()
        && light == dark
    {
        tally.note(case, "", &[format!("light and dark have the same paper: {light:?}")]);
    }
    Ok(())
}

/// The PDF that Skep writes itself.
fn own_paper(survey: &Value, case: &str, files: &Files, tally: &mut Tally) -> Result<(), String> {
    let mut words = vec!["Verdict".to_owned(), "Page 1 of".to_owned()];
    if case == "sample" {
        let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        words.extend([said(&survey["title"]), said(&survey["verdict"]["headline"])]);
        words.extend(survey["commands"].as_array().into_iter().flatten().take(3).map(said));
    }
    let mut faults = Vec::new();
    let pages = paper::check(&files.paper, &words, &mut faults)?;
    tally.note(&format!("{case}, own PDF"), &format!("{pages} pages"), &faults);
    Ok(())
}

fn canaries(browser: &mut Browser, good: &str, directory: &Path, tally: &mut Tally) -> Result<(), String> {
    let view = View { name: "canary", wide: 1280, scheme: "light", print: false };
    for canary in &CANARIES {
        let page = directory.join("canary.html");
        fs::write(&page, with_canary(good, canary))
            .map_err(|error| format!("{}: {error}", page.display()))?;
        let seen = look(browser, &page, view, None)?;
        caught(canary.name, canary.fault, &seen.faults, tally);
    }
    Ok(())
}

/// Notes whether a canary was caught.
fn caught(name: &str, fault: &str, found: &[String], tally: &mut Tally) {
    let caught = found.iter().find(|known| known.contains(fault));
    let missed = format!("passed, but \"{fault}\" should have been found: {found:?}");
    let faults = if caught.is_some() { Vec::new() } else { vec![missed] };
    let said = caught.map(|fault| fault.chars().take(90).collect::<String>()).unwrap_or_default();
    tally.note(&format!("canary, {name}"), &said, &faults);
}

/// Pages on which something that was measured is missing.
fn losses(
    browser: &mut Browser,
    good: &str,
    expected: &Expected,
    directory: &Path,
    tally: &mut Tally,
) -> Result<(), String> {
    let view = View { name: "canary", wide: 1280, scheme: "light", print: false };
    for loss in &LOSSES {
        let page = directory.join("canary.html");
        let lost = (loss.lose)(good).ok_or_else(|| format!("canary, {}: nothing to lose", loss.name))?;
        fs::write(&page, lost).map_err(|error| format!("{}: {error}", page.display()))?;
        let seen = look(browser, &page, view, Some(expected))?;
        caught(loss.name, loss.fault, &seen.faults, tally);
    }
    Ok(())
}

/// A PDF that was cut, and one that does not say what it should.
fn paper_canaries(directory: &Path, tally: &mut Tally) -> Result<(), String> {
    let good = Files::of(directory, "sample").paper;
    let bytes = fs::read(&good).map_err(|error| format!("{}: {error}", good.display()))?;
    let cut = directory.join("canary.pdf");
    fs::write(&cut, &bytes[..bytes.len() / 2]).map_err(|error| format!("{}: {error}", cut.display()))?;
    let mut faults = Vec::new();
    paper::check(&cut, &[], &mut faults)?;
    let missed = if faults.is_empty() { vec!["a cut PDF passed".to_owned()] } else { Vec::new() };
    tally.note("canary, a PDF that was cut", &format!("{} faults", faults.len()), &missed);
    faults.clear();
    paper::check(&good, &["words that stand nowhere".to_owned()], &mut faults)?;
    let missed = if faults.len() == 1 { Vec::new() } else { vec![format!("{faults:?}")] };
    tally.note("canary, a PDF that says too little", &faults.join(" "), &missed);
    Ok(())
}

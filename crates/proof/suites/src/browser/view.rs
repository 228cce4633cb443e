//! One look at a page: what it asked for, what it complained about, what it shows.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::base64;
use super::devtools::{Browser, Tab};
use super::expected::{Expected, Shown};

/// The question to the page.
const PROBE: &str = include_str!("probe.js");
/// Letters of a chart are at least so high on the screen, in pixels.
const SMALLEST_LETTERS: f64 = 9.0;
/// A picture is cut here: browsers refuse larger ones.
const HIGHEST_PICTURE: f64 = 16_000.0;
/// Height of the picture of the beginning, in pixels: down to the first chart.
const FIRST_SCREEN: f64 = 1_200.0;

/// How the page is looked at.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// For the log and the name of the picture.
    pub name: &'static str,
    /// Width of the window.
    pub wide: u32,
    /// `light` or `dark`.
    pub scheme: &'static str,
    /// Printed, too.
    pub print: bool,
}

/// The ways in which readers open a report.
pub const VIEWS: [View; 4] = [
    View { name: "light", wide: 1280, scheme: "light", print: true },
    View { name: "dark", wide: 1280, scheme: "dark", print: true },
    View { name: "phone", wide: 390, scheme: "light", print: false },
    View { name: "tablet", wide: 820, scheme: "dark", print: false },
];

/// What was seen.
#[derive(Debug, Default)]
pub struct Look {
    /// What is wrong; nothing when all is well.
    pub faults: Vec<String>,
    /// Charts that were on the screen.
    pub charts: usize,
    /// Marks in them.
    pub marks: usize,
    /// Colour of the page.
    pub paper: Vec<f64>,
    /// Headings of the parts.
    pub headings: Vec<String>,
    /// The page as PNG.
    pub picture: Vec<u8>,
    /// What a reader sees of it first: the verdict and a chart.
    pub first_screen: Vec<u8>,
    /// The page as the browser prints it, if the view asks for it.
    pub paper_copy: Vec<u8>,
}

#[derive(Deserialize)]
struct Page {
    charts: Vec<Chart>,
    pale: Vec<String>,
    paper: Vec<f64>,
    figures: usize,
    headings: Vec<String>,
    scripts: usize,
    wide: f64,
    inner: f64,
    high: f64,
    ids: Vec<String>,
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Chart {
    title: String,
    named: bool,
    marks: usize,
    bare: usize,
    shown: Shown,
    unseen: usize,
    outside: Vec<String>,
    over: Vec<String>,
    spilled: Vec<String>,
    letters: f64,
}

/// Opens the file and looks, and compares it with what it must show.
pub fn look(
    browser: &mut Browser,
    file: &Path,
    view: View,
    expected: Option<&Expected>,
) -> Result<Look, String> {
    let tab = browser.open()?;
    let seen = with_tab(browser, &tab, file, view);
    browser.close(&tab)?;
    let (mut look, page) = seen?;
    if let Some(expected) = expected {
        let charts: Vec<&Shown> = page.charts.iter().map(|chart| &chart.shown).collect();
        look.faults.extend(expected.faults(&charts));
    }
    judge(page, &mut look);
    Ok(look)
}

fn with_tab(browser: &mut Browser, tab: &Tab, file: &Path, view: View) -> Result<(Look, Page), String> {
    let metrics =
        json!({ "width": view.wide, "height": 900, "deviceScaleFactor": 1, "mobile": view.wide < 600 });
    browser.call(tab, "Emulation.setDeviceMetricsOverride", metrics)?;
    let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": view.scheme }] });
    browser.call(tab, "Emulation.setEmulatedMedia", scheme)?;
    let url = format!("file://{}", file.display());
    browser.navigate(tab, &url)?;
    // Two frames: by then the page is painted, and what it wanted to fetch has been asked for.
    let frames = "new Promise(f => requestAnimationFrame(() => requestAnimationFrame(() => f(1))))";
    browser.evaluate(tab, frames)?;
    let answer = browser.evaluate(tab, PROBE)?;
    let page: Page = serde_json::from_str(answer.as_str().unwrap_or_default())
        .map_err(|error| format!("the page's answer cannot be read: {error}"))?;
    let mut look = Look::default();
    look.faults.extend(point(browser, tab, page.charts.is_empty())?);
    let high = page.high.min(HIGHEST_PICTURE);
    look.picture = picture(browser, tab, view.wide, high)?;
    look.first_screen = picture(browser, tab, view.wide, high.min(FIRST_SCREEN))?;
    browser.call(tab, "Emulation.clearDeviceMetricsOverride", json!({}))?;
    if view.print {
        let paper = json!({ "printBackground": true, "paperWidth": 8.27, "paperHeight": 11.69 });
        look.paper_copy = bytes(&browser.call(tab, "Page.printToPDF", paper)?)?;
    }
    for event in browser.events(tab) {
        look.faults.extend(complaint(&event, &url));
    }
    Ok((look, page))
}

/// Where the first mark with a tip is, once it is on the screen.
const FIRST_TIP: &str = "(() => { const mark = [...document.querySelectorAll('svg.chart .p > circle')]\
    .find(e => e.getClientRects().length); if (!mark) return null; mark.scrollIntoView({ block: 'center', \
    behavior: 'instant' }); const box = mark.getBoundingClientRect(); \
    return [box.x + box.width / 2, box.y + box.height / 2]; })()";
/// What is said at the place that is pointed at.
const SAID: &str = "[...document.querySelectorAll('.tip')]\
    .filter(e => getComputedStyle(e).visibility === 'visible').map(e => e.textContent).join(' ')";

/// Points at a mark: its numbers must show up, and only then.
fn point(browser: &mut Browser, tab: &Tab, no_charts: bool) -> Result<Option<String>, String> {
    let place = browser.evaluate(tab, FIRST_TIP)?;
    let (Some(x), Some(y)) = (place[0].as_f64(), place[1].as_f64()) else {
        return Ok((!no_charts).then(|| "no mark has a tip".to_owned()));
    };
    let before = browser.evaluate(tab, SAID)?;
    let moved = json!({ "type": "mouseMoved", "x": x, "y": y });
    browser.call(tab, "Input.dispatchMouseEvent", moved)?;
    let after = browser.evaluate(tab, SAID)?;
    let away = json!({ "type": "mouseMoved", "x": 0, "y": 0 });
    browser.call(tab, "Input.dispatchMouseEvent", away)?;
    browser.evaluate(tab, "scrollTo({ top: 0, behavior: 'instant' })")?;
    let quiet = before.as_str() == Some("");
    let speaks = after.as_str().is_some_and(|said| said.chars().any(|c| c.is_ascii_digit()));
    Ok((!quiet || !speaks).then(|| format!("pointing at a mark says {after}, before it {before}")))
}

/// The upper part of the page as PNG.
fn picture(browser: &mut Browser, tab: &Tab, wide: u32, high: f64) -> Result<Vec<u8>, String> {
    let clip = json!({ "x": 0, "y": 0, "width": wide, "height": high, "scale": 1 });
    let shot = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
    bytes(&browser.call(tab, "Page.captureScreenshot", shot)?)
}

fn bytes(answer: &Value) -> Result<Vec<u8>, String> {
    let text = answer["data"].as_str().unwrap_or_default();
    base64::decode(text).ok_or_else(|| "the browser sent no base64".to_owned())
}

/// What is wrong with an event: a request to anywhere but the file, or an error.
fn complaint(event: &Value, url: &str) -> Option<String> {
    let said = &event["params"];
    match event["method"].as_str().unwrap_or_default() {
        "Network.requestWillBeSent" => {
            let asked = said["request"]["url"].as_str().unwrap_or_default();
            let own = asked.split('#').next() == Some(url) || asked == "about:blank";
            (!own).then(|| format!("request leaves the page: {asked}"))
        }
        "Network.webSocketCreated" => Some(format!("request leaves the page: {}", said["url"])),
        "Runtime.exceptionThrown" => {
            Some(format!("exception: {}", said["exceptionDetails"]["exception"]["description"]))
        }
        "Runtime.consoleAPICalled" => Some(format!("console: {}", said["args"])),
        "Log.entryAdded" => Some(format!("console: {}", said["entry"]["text"])),
        _ => None,
    }
}

fn judge(page: Page, look: &mut Look) {
    let faults = &mut look.faults;
    for chart in &page.charts {
        let title: String = chart.title.chars().take(60).collect();
        let mut fault = |what: String| faults.push(format!("chart \"{title}\": {what}"));
        if chart.marks == 0 {
            fault("no marks".to_owned());
        }
        if chart.bare > 0 {
            fault(format!("{} numbers are told where no mark stands", chart.bare));
        }
        if chart.unseen > 0 {
            fault(format!("{} marks are invisible", chart.unseen));
        }
        if !chart.named || chart.title.trim().is_empty() {
            fault("no name for those who hear it".to_owned());
        }
        if let Some(first) = chart.outside.first() {
            fault(format!("{} marks lie outside of it, such as {first}", chart.outside.len()));
        }
        if let Some(first) = chart.over.first() {
            fault(format!("{} labels lie on top of others, such as {first}", chart.over.len()));
        }
        if let Some(first) = chart.spilled.first() {
            fault(format!("{} tips do not fit their frames, such as {first}", chart.spilled.len()));
        }
        if chart.letters < SMALLEST_LETTERS {
            fault(format!("letters of {:.1} pixels are too small", chart.letters));
        }
    }
    if page.wide > page.inner + 1.0 {
        faults.push(format!("the page is wider than its window: {} of {}", page.wide, page.inner));
    }
    if let Some(first) = page.pale.first() {
        faults.push(format!("{} texts are too pale to read, such as \"{first}\"", page.pale.len()));
    }
    if page.scripts > 0 {
        faults.push(format!("{} scripts: a report has none", page.scripts));
    }
    if let Some(first) = page.ids.first() {
        faults.push(format!("two elements are called {first}"));
    }
    if let Some(first) = page.targets.first() {
        faults.push(format!("a link leads to {first}, which is not there"));
    }
    if page.charts.len() > page.figures {
        faults.push(format!("{} charts in {} figures", page.charts.len(), page.figures));
    }
    look.charts = page.charts.len();
    look.marks = page.charts.iter().map(|chart| chart.marks).sum();
    look.paper = page.paper;
    look.headings = page.headings;
}

//! What is opened: the sample, surveys that a hostile or a huge cluster would give, and broken pages that
//! must be caught.

use serde_json::{Value, json};

/// Members of the crowd.
const CROWD: usize = 1000;

/// A survey to open, made from the sample.
pub struct Case {
    /// For the log.
    pub name: &'static str,
    /// From the sample to it.
    pub make: fn(Value) -> Value,
}

/// All of them.
pub const CASES: [Case; 5] = [
    Case { name: "sample", make: |survey| survey },
    Case { name: "hostile", make: hostile },
    Case { name: "crowd", make: crowd },
    Case { name: "odd", make: odd },
    Case { name: "empty", make: empty },
];

/// Names that a host, a target or a setting could carry.
const HOSTILE: [&str; 8] = [
    "<script>lost()</script>",
    "<img src=http://127.0.0.1:9/x.png onerror=lost()>",
    "\"'><svg onload=lost()>",
    "]]><!--",
    "\u{202e}tegrat\u{5d0}\u{5d1}\u{5d2}",
    "</style></title></textarea>&lt;&#0;",
    "javascript:lost()",
    "averyveryveryverylongnamewithoutasingleplacetobreakitaveryveryveryverylongnamewithoutasingleplacetobreakit",
];

/// Every text that a host could have chosen is hostile.
fn hostile(mut survey: Value) -> Value {
    let mut count = 0;
    spoil(&mut survey, &mut count);
    survey
}

/// Texts whose form the reader of the document relies on.
const FIXED: [&str; 2] = ["id", "layer"];

fn spoil(value: &mut Value, count: &mut usize) {
    match value {
        Value::String(text) => {
            let hostile = HOSTILE[*count % HOSTILE.len()];
            *text = format!("{hostile} {text}");
            *count += 1;
        }
        Value::Array(values) => values.iter_mut().for_each(|value| spoil(value, count)),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if !FIXED.contains(&name.as_str()) {
                    spoil(value, count);
                }
            }
        }
        _ => {}
    }
}

fn layers(survey: &mut Value) -> impl Iterator<Item = &mut Value> {
    survey["layers"].as_array_mut().into_iter().flatten()
}

/// A thousand targets, two of which lag.
fn crowd(mut survey: Value) -> Value {
    for layer in layers(&mut survey).filter(|layer| layer["id"] == "device" || layer["id"] == "storage") {
        for side in layer["sides"].as_array_mut().into_iter().flatten() {
            let member = |i: usize| {
                let lags = i == 17 || i == 801;
                let rate = if lags { 200.0 } else { 800.0 + (i * 37 % 91) as f64 };
                let outlier = lags.then_some("a quarter of its siblings");
                json!({ "name": format!("target-{i}"), "samples": [rate, rate + 9.0], "outlier": outlier })
            };
            side["members"] = (1..=CROWD).map(member).collect();
        }
    }
    survey
}

/// A single sample, zero, negative and huge ones, no samples, one place only.
fn odd(mut survey: Value) -> Value {
    let odd: [&[f64]; 7] = [&[0.0], &[-5.0, 5.0], &[1e300, 1e-300], &[], &[1e15], &[7.0], &[0.0, 0.0]];
    let mut count = 0;
    let mut next = || {
        count += 1;
        json!(odd[count % odd.len()])
    };
    for layer in layers(&mut survey) {
        for curve in layer["curves"].as_array_mut().into_iter().flatten() {
            for point in curve["points"].as_array_mut().into_iter().flatten() {
                point["samples"] = next();
            }
        }
        for side in layer["sides"].as_array_mut().into_iter().flatten() {
            for member in side["members"].as_array_mut().into_iter().flatten() {
                member["samples"] = next();
            }
        }
    }
    let first = layers(&mut survey).find_map(|layer| layer.pointer_mut("/curves/0/points")?.as_array_mut());
    if let Some(points) = first {
        points.truncate(1);
    }
    for (place, value) in [
        ("/waterfalls/0/steps/0/theoretical", Value::Null),
        ("/waterfalls/0/steps/1/achieved", json!(-1.0)),
        ("/waterfalls/1/steps/0/achieved", json!(1e300)),
    ] {
        if let Some(place) = survey.pointer_mut(place) {
            *place = value;
        }
    }
    survey
}

/// Nothing was measured, nothing stands out.
fn empty(mut survey: Value) -> Value {
    for list in ["commands", "hosts", "settings", "layers", "waterfalls", "remarks"] {
        survey[list] = json!([]);
    }
    survey["verdict"]["culprit"] = Value::Null;
    survey["verdict"]["limits"] = json!([]);
    survey
}

/// Layers of which every curve changes in [`later`].
pub const CHANGED: [&str; 1] = ["clients"];

/// The same cluster a day later: its slow target was repaired, metadata became slower.
pub fn later(mut survey: Value) -> Value {
    fn scale(samples: &mut Value, factor: f64) {
        for sample in samples.as_array_mut().into_iter().flatten() {
            *sample = json!(sample.as_f64().unwrap_or_default() * factor);
        }
    }
    survey["started"] = json!("2026-11-22T09:30:00Z");
    if let Some(setting) = survey.pointer_mut("/settings/0/value") {
        *setting = json!("another");
    }
    survey["verdict"]["culprit"] = Value::Null;
    for layer in layers(&mut survey) {
        let factor = match layer["id"].as_str().unwrap_or_default() {
            id if CHANGED.contains(&id) => 2.3,
            "metadata" => 0.85,
            _ => 1.0,
        };
        for curve in layer["curves"].as_array_mut().into_iter().flatten() {
            for point in curve["points"].as_array_mut().into_iter().flatten() {
                scale(&mut point["samples"], factor);
            }
        }
        for side in layer["sides"].as_array_mut().into_iter().flatten() {
            for member in side["members"].as_array_mut().into_iter().flatten() {
                if member["outlier"].is_string() {
                    scale(&mut member["samples"], 3.9);
                    member["outlier"] = Value::Null;
                }
            }
        }
    }
    survey
}

/// A page that must not pass.
pub struct Canary {
    /// For the log.
    pub name: &'static str,
    /// Put at the end of a good page.
    pub added: &'static str,
    /// The page forbids scripts and requests; these canaries live without that.
    pub without_policy: bool,
    /// A word of the fault that must be found.
    pub fault: &'static str,
}

/// All of them.
pub const CANARIES: [Canary; 12] = [
    Canary {
        name: "a picture from outside",
        added: "<img alt=\"x\" src=\"http://127.0.0.1:9/x.png\">",
        without_policy: true,
        fault: "request leaves the page",
    },
    Canary {
        name: "a picture from outside, forbidden by the page",
        added: "<img alt=\"x\" src=\"http://127.0.0.1:9/x.png\">",
        without_policy: false,
        fault: "console: ",
    },
    Canary {
        name: "a font from outside",
        added: "<style>@font-face{font-family:x;src:url(http://127.0.0.1:9/x.woff2)}h1{font-family:x}</style>",
        without_policy: true,
        fault: "request leaves the page",
    },
    Canary {
        name: "an error in a script",
        added: "<script>lost()</script>",
        without_policy: true,
        fault: "exception: ",
    },
    Canary {
        name: "a script that the page forbids",
        added: "<script>lost()</script>",
        without_policy: false,
        fault: "console: ",
    },
    Canary {
        name: "a chart without marks",
        added: "<svg class=\"chart\" viewBox=\"0 0 9 9\"><text x=\"1\" y=\"8\">x</text></svg>",
        without_policy: false,
        fault: "no marks",
    },
    Canary {
        name: "a mark outside of its chart",
        added: "<svg class=\"chart\" viewBox=\"0 0 9 9\"><rect class=\"f s0 m\" x=\"7\" y=\"1\" width=\"9\" \
                height=\"2\"/></svg>",
        without_policy: false,
        fault: "outside of it",
    },
    Canary {
        name: "a mark without paint",
        added: "<svg class=\"chart\" viewBox=\"0 0 9 9\"><rect class=\"m\" fill=\"none\" x=\"1\" y=\"1\" \
                width=\"2\" height=\"2\"/></svg>",
        without_policy: false,
        fault: "invisible",
    },
    Canary {
        name: "labels on top of each other",
        added: "<svg class=\"chart\" viewBox=\"0 0 99 99\"><text x=\"9\" y=\"50\">one</text>\
                <text x=\"12\" y=\"52\">two</text></svg>",
        without_policy: false,
        fault: "on top of others",
    },
    Canary {
        name: "a tip that says nothing",
        added: "<style>.tip{visibility:hidden!important}</style>",
        without_policy: false,
        fault: "pointing at a mark",
    },
    Canary {
        name: "a page wider than its window",
        added: "<div style=\"width:9000px\">x</div>",
        without_policy: false,
        fault: "wider than its window",
    },
    Canary {
        name: "text without contrast",
        added: "<p style=\"color:#ddd;background:#fff\">pale</p>",
        without_policy: false,
        fault: "too pale",
    },
];

/// The page with the canary in it.
pub fn with_canary(page: &str, canary: &Canary) -> String {
    let page = if canary.without_policy {
        page.lines().filter(|line| !line.contains("Content-Security-Policy")).collect::<Vec<_>>().join("\n")
    } else {
        page.to_owned()
    };
    page.replace("</body>", &format!("{}</body>", canary.added))
}

/// A page that lost something that was measured.
pub struct Loss {
    /// For the log.
    pub name: &'static str,
    /// From a good page to it; none when the page has nothing of the kind.
    pub lose: fn(&str) -> Option<String>,
    /// A word of the fault that must be found.
    pub fault: &'static str,
}

/// All of them.
pub const LOSSES: [Loss; 5] = [
    Loss { name: "a line that is not drawn", lose: without_line, fault: " marks instead of " },
    Loss { name: "a line that the chart does not know", lose: without_name, fault: "is in 0 charts" },
    Loss { name: "a chart that is not there", lose: without_chart, fault: "is in 0 charts" },
    Loss { name: "a number without its mark", lose: without_mark, fault: "where no mark stands" },
    Loss { name: "a waterfall that is not there", lose: without_waterfall, fault: "waterfalls instead of" },
];

/// The first drawing for a desk whose names fit: where it begins and ends.
fn drawing(page: &str, fits: impl Fn(&str) -> bool) -> Option<std::ops::Range<usize>> {
    page.match_indices("<svg class=\"chart wide\"").find_map(|(at, _)| {
        let end = at + page[at..].find("</svg>")?;
        let names = page[at..end].split_once("data-shows=\"")?.1.split_once('"')?.0;
        fits(names).then_some(at..end)
    })
}

/// The page with another text in the place of one drawing.
fn replaced(page: &str, drawing: std::ops::Range<usize>, change: impl Fn(&str) -> String) -> String {
    format!("{}{}{}", &page[..drawing.start], change(&page[drawing.clone()]), &page[drawing.end..])
}

fn several(names: &str) -> bool {
    names.contains(' ')
}

fn without_second_line(svg: &str) -> String {
    svg.lines().filter(|line| !line.contains(" s1 m\"")).collect::<Vec<_>>().join("\n")
}

fn without_line(page: &str) -> Option<String> {
    Some(replaced(page, drawing(page, several)?, without_second_line))
}

fn without_name(page: &str) -> Option<String> {
    let change = |svg: &str| {
        let names = svg.split_once("data-shows=\"").and_then(|(_, rest)| rest.split_once('"'));
        let names = names.map_or("", |(names, _)| names);
        let second = names.split(' ').nth(1).unwrap_or_default();
        without_second_line(svg).replace(&format!(" {second}"), "")
    };
    Some(replaced(page, drawing(page, several)?, change))
}

fn without_chart(page: &str) -> Option<String> {
    Some(replaced(page, drawing(page, several)?, |_| "<svg>".to_owned()))
}

fn without_mark(page: &str) -> Option<String> {
    let change = |svg: &str| {
        let at = svg.lines().position(|line| line.starts_with("<circle class=\"f s0 m\""));
        let rest = svg.lines().enumerate().filter(|(number, _)| Some(*number) != at);
        rest.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
    };
    Some(replaced(page, drawing(page, several)?, change))
}

fn without_waterfall(page: &str) -> Option<String> {
    Some(replaced(page, drawing(page, |names| names == "waterfall")?, |_| "<svg>".to_owned()))
}

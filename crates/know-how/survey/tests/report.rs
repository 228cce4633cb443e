//! The report of surveys that nobody would make up: hostile names, no numbers, too many members. No panic, no
//! broken markup, nothing that runs or asks.

use skep_survey::compare::compare;
use skep_survey::model::{Culprit, LayerId, MemberResult, SideBySide, Survey};
use skep_survey::report;

const SAMPLE: &str = include_str!("../../../../docs/survey/sample.json");

fn sample() -> Survey {
    serde_json::from_str(SAMPLE).expect("the committed sample is a survey")
}

/// Elements of HTML that have no end.
const VOID: [&str; 1] = ["meta"];
/// Elements that a report is made of.
const KNOWN: [&str; 42] = [
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "div",
    "header",
    "main",
    "footer",
    "nav",
    "section",
    "h1",
    "h2",
    "h3",
    "p",
    "ul",
    "ol",
    "li",
    "a",
    "b",
    "span",
    "figure",
    "figcaption",
    "details",
    "summary",
    "pre",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "svg",
    "g",
    "path",
    "rect",
    "circle",
    "text",
    "desc",
    "code",
    "em",
];

/// What is wrong with the nesting of tags, the quotes of attributes, or tags that a report never has.
fn broken(page: &str) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    let Some(mut rest) = page.strip_prefix("<!doctype html>") else { return Some("no doctype".to_owned()) };
    while let Some(at) = rest.find('<') {
        let inner = &rest[at + 1..];
        let end = inner.find('>').unwrap_or(inner.len());
        let tag = &inner[..end];
        rest = inner.get(end + 1..).unwrap_or_default();
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Some(format!("</{name}> closes nothing"));
            }
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        if !KNOWN.contains(&name) {
            return Some(format!("<{name}> has no place in a report"));
        }
        if tag.matches('"').count() % 2 == 1 || (tag.contains('\'') && name != "meta") {
            return Some(format!("quotes of <{tag}>"));
        }
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        // What a style says is not markup.
        if name == "style" {
            rest = &rest[rest.find("</style>").unwrap_or(0)..];
        }
    }
    open.pop().map(|name| format!("<{name}> is never closed"))
}

fn check(survey: &Survey, what: &str) -> String {
    let page = report::html(survey);
    assert_eq!(broken(&page), None, "{what}");
    assert!(!page.contains("NaN") && !page.contains("\"inf"), "{what}");
    assert!(page.contains("default-src 'none'"), "{what}");
    let paper = report::pdf(survey);
    assert!(paper.starts_with(b"%PDF-1.7") && paper.trim_ascii_end().ends_with(b"%%EOF"), "{what}");
    page
}

type Change<'a, T> = &'a mut dyn FnMut(&mut T);

/// Every text that a host may have chosen, in place.
fn texts(survey: &mut Survey, change: Change<String>) {
    let Survey { title, version, started, preset, commands, hosts, settings, remarks, .. } = survey;
    [title, version, started, preset].into_iter().for_each(&mut *change);
    commands.iter_mut().chain(remarks).for_each(&mut *change);
    for host in hosts.iter_mut() {
        change(&mut host.name);
        host.roles.iter_mut().for_each(&mut *change);
    }
    for fact in hosts.iter_mut().flat_map(|host| &mut host.facts).chain(settings) {
        change(&mut fact.name);
        change(&mut fact.value);
    }
    texts_of_layers(survey, change);
    for waterfall in &mut survey.waterfalls {
        change(&mut waterfall.title);
        change(&mut waterfall.unit);
        for step in &mut waterfall.steps {
            change(&mut step.name);
            change(&mut step.because);
        }
    }
    change(&mut survey.verdict.headline);
    if let Some(culprit) = &mut survey.verdict.culprit {
        [&mut culprit.member, &mut culprit.finding, &mut culprit.advice].into_iter().for_each(&mut *change);
        culprit.evidence.iter_mut().for_each(|evidence| change(&mut evidence.what));
    }
    for limit in &mut survey.verdict.limits {
        change(&mut limit.work);
        change(&mut limit.finding);
    }
}

fn texts_of_layers(survey: &mut Survey, change: Change<String>) {
    for layer in &mut survey.layers {
        change(&mut layer.about);
        for curve in &mut layer.curves {
            change(&mut curve.title);
            change(&mut curve.unit);
            change(&mut curve.axis);
            change(&mut curve.command);
        }
        for side in &mut layer.sides {
            change(&mut side.title);
            change(&mut side.unit);
            change(&mut side.command);
            for member in &mut side.members {
                change(&mut member.name);
                member.outlier.iter_mut().for_each(&mut *change);
            }
        }
    }
}

/// Every list of samples, in place.
fn samples(survey: &mut Survey, change: Change<Vec<f64>>) {
    for layer in &mut survey.layers {
        for point in layer.curves.iter_mut().flat_map(|curve| &mut curve.points) {
            change(&mut point.samples);
        }
        for member in layer.sides.iter_mut().flat_map(|side| &mut side.members) {
            change(&mut member.samples);
        }
    }
}

/// Goal: the sample's report says what the survey found, and holds each of its parts.
#[test]
fn the_report_says_what_was_found() {
    let mut survey = sample();
    let page = check(&survey, "sample");
    let headline = report::html::escape(&survey.verdict.headline);
    assert!(page.contains(&headline));
    let culprit = survey.verdict.culprit.get_or_insert_with(|| Culprit {
        layer: LayerId::Device,
        member: "target-103".to_owned(),
        finding: String::new(),
        evidence: Vec::new(),
        advice: String::new(),
    });
    let badge = format!("Look first at {}", culprit.member);
    assert!(check(&survey, "culprit").contains(&badge));
    survey.verdict.culprit = None;
    assert!(page.find("id=\"verdict\"") < page.find("<svg"), "the verdict comes first");
    let parts =
        ["limits", "remarks", "layers", "device", "network", "metadata", "machines", "settings", "commands"];
    for part in parts {
        assert!(page.contains(&format!("id=\"{part}\"")), "{part}");
    }
    let charts = page.matches("class=\"chart wide\"").count();
    assert!(charts >= 10 && page.matches("class=\"chart narrow\"").count() == charts, "{charts}");
    assert!(check(&survey, "calm").contains("Nothing stands out"));
}

/// Goal: crowded processors are what the page says first, not that nothing stands out; work without a layer has no
/// name of one beside it.
#[test]
fn crowded_processors_are_no_calm() {
    let mut survey = sample();
    survey.verdict.culprit = None;
    survey.verdict.limits[0].layer = Some(LayerId::Processor);
    let page = check(&survey, "crowded");
    assert!(page.contains("Crowded processors") && !page.contains("Nothing stands out"));
    survey.verdict.limits[0].layer = None;
    let page = check(&survey, "no layer");
    assert!(page.contains("<h3>Write, a file per process</h3>") && page.contains("Nothing stands out"));
}

/// Goal: the text above the waterfalls follows the judge's rule, and `limits` stands at the step that was judged: of
/// the steps of all clients the one with own files.
#[test]
fn the_mark_stands_where_the_judge_says() {
    let mut survey = sample();
    survey.verdict.limits[0].layer = Some(LayerId::Clients);
    survey.waterfalls.truncate(1);
    let mut one_file = survey.waterfalls[0].steps.last().expect("a step").clone();
    one_file.name = "All processes, one file".to_owned();
    survey.waterfalls[0].steps.push(one_file);
    let page = check(&survey, "clients limit");
    assert!(page.contains("the one that adds most to the time of a byte") && !page.contains("where to look"));
    let steps = survey.waterfalls[0].steps.iter().filter(|step| step.layer == LayerId::Clients).count();
    assert!(steps > 1, "the sample has {steps} steps of all clients");
    let chart = page.split("data-shows=\"waterfall\"").nth(1).unwrap_or_default();
    let chart = chart.split("</svg>").next().unwrap_or_default();
    assert_eq!(chart.matches(">limits<").count(), 1);
}

/// Goal: where layers are too close to be told apart, marks, chips and text name the same ones.
#[test]
fn close_layers_are_all_marked() {
    let mut survey = sample();
    survey.waterfalls.truncate(1);
    let limit = &mut survey.verdict.limits[0];
    (limit.layer, limit.also) = (Some(LayerId::Device), vec![LayerId::Clients]);
    let page = check(&survey, "close layers");
    let card = page.split("<h3>Write, a file per process").nth(1).unwrap_or_default();
    let chips = " <span class=\"chip\">Device</span> <span class=\"chip\">All clients</span></h3>";
    assert!(card.starts_with(chips), "{}", card.get(..200).unwrap_or_default());
    let chart = page.split("data-shows=\"waterfall\"").nth(1).unwrap_or_default();
    let chart = chart.split("</svg>").next().unwrap_or_default();
    assert_eq!(chart.matches(">limits<").count(), 2);
}

/// Goal: the page has no address, no script and no handler, so nothing can leave it or run in it.
#[test]
fn the_page_asks_nobody() {
    let page = report::html(&sample()).to_lowercase();
    for word in
        ["http:", "https:", "src=", "@import", "url(", "<script", "<link", "<iframe", "onload", "onclick"]
    {
        assert!(!page.contains(word), "{word}");
    }
}

/// Goal: names that try to break out stay text, in every place where a host can put them.
#[test]
fn hostile_names_stay_text() {
    let long = "x".repeat(100_000);
    let hostile = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "'><svg/onload=alert(1)>",
        "]]><!-- --></style></title>",
        "\u{202e}gnihtyreve\u{5d0}\u{0}\u{1b}[31m\u{ffff}",
        "&amp;&#0;%00",
        "",
        "\n\t ",
        " -> ",
        long.as_str(),
    ];
    for text in hostile {
        let mut survey = sample();
        texts(&mut survey, &mut |place| *place = text.to_owned());
        let page = check(&survey, &text.chars().take(40).collect::<String>());
        assert!(!page.contains('\u{202e}') && !page.contains('\u{0}') && !page.contains('\u{1b}'));
    }
}

/// Goal: no number, endless, negative, zero, single and enormous samples draw without a panic.
#[test]
fn odd_samples_are_drawn() {
    let odd: [&[f64]; 11] = [
        &[],
        &[f64::NAN],
        &[f64::INFINITY, f64::NEG_INFINITY],
        &[0.0],
        &[0.0, 0.0, 0.0],
        &[-7.0, -8.0],
        &[-1.0, 1.0],
        &[f64::MAX, f64::MIN],
        &[f64::MIN_POSITIVE],
        &[3.5],
        &[1.0, f64::NAN, 2.0],
    ];
    for values in odd {
        let mut survey = sample();
        samples(&mut survey, &mut |place| *place = values.to_vec());
        let value = values.first().copied().unwrap_or(0.0);
        for step in survey.waterfalls.iter_mut().flat_map(|waterfall| &mut waterfall.steps) {
            (step.achieved, step.theoretical) = (value, Some(value));
        }
        for evidence in survey.verdict.culprit.iter_mut().flat_map(|culprit| &mut culprit.evidence) {
            (evidence.value, evidence.expected) = (value, -value);
        }
        let curves = survey.layers.iter_mut().flat_map(|layer| &mut layer.curves);
        for point in curves.flat_map(|curve| &mut curve.points) {
            point.x *= value;
        }
        survey.seconds = value;
        check(&survey, &format!("{values:?}"));
    }
}

/// Goal: a survey without any part still has a report; so has one whose parts are empty.
#[test]
fn empty_lists_are_no_problem() {
    let mut empty = sample();
    for layer in &mut empty.layers {
        layer.curves.iter_mut().for_each(|curve| curve.points.clear());
        layer.sides.iter_mut().for_each(|side| side.members.clear());
    }
    empty.waterfalls.iter_mut().for_each(|waterfall| waterfall.steps.clear());
    empty.hosts.iter_mut().for_each(|host| host.facts.clear());
    assert!(check(&empty, "empty parts").contains("Nothing was measured"));
    empty.layers.clear();
    empty.waterfalls.clear();
    empty.hosts.clear();
    empty.settings.clear();
    empty.commands.clear();
    empty.remarks.clear();
    empty.verdict.limits.clear();
    empty.verdict.culprit = None;
    let headline = report::html::escape(&empty.verdict.headline);
    assert!(check(&empty, "no parts").contains(&headline));
}

/// Goal: a thousand targets make a page of bearable size on which the slow one is named.
#[test]
fn a_thousand_targets_are_shown() {
    let mut survey = sample();
    let mut sides = survey.layers.iter_mut().flat_map(|layer| &mut layer.sides);
    let side = sides.next().expect("members side by side");
    let mut one = side.members.first().expect("a member").clone();
    side.members = (1..=1000)
        .map(|at| {
            one.name = format!("target-{at}");
            one.samples = vec![800.0 + f64::from(at % 13)];
            one.outlier = None;
            one.clone()
        })
        .collect();
    side.members[500].samples = vec![211.0];
    side.members[500].outlier = Some("a quarter of its siblings".to_owned());
    drop(sides);
    let page = check(&survey, "a thousand");
    assert!(page.len() < 4_000_000, "{} bytes", page.len());
    assert!(page.contains("target-501  211"), "the slow one is written into its chart");
}

/// Goal: a host of clients that lags is shown as a target is: named first, marked in its chart and in the table, in
/// every layer of clients.
#[test]
fn slow_client_hosts_are_shown() {
    let mut survey = sample();
    for layer in &mut survey.layers {
        let name = match layer.id {
            LayerId::Client => "client.write.n-n.hosts",
            LayerId::Clients => "clients.write.n-n.hosts",
            LayerId::Metadata => "metadata.create.hosts",
            _ => continue,
        };
        let members = (1..=4).map(|at| MemberResult {
            name: format!("compute-{at}"),
            samples: (0..5).map(|round| f64::from(if at == 3 { 110 + round } else { 400 + round })).collect(),
            outlier: None,
        });
        layer.sides.push(SideBySide {
            id: name.to_owned(),
            title: format!("{name}, each host of clients"),
            unit: "MB/s".to_owned(),
            more_is_better: true,
            members: members.collect(),
            command: String::new(),
        });
    }
    skep_survey::judge::judge(&mut survey);
    let named = |member: &str| {
        survey.verdict.culprit.iter().chain(&survey.verdict.also).filter(|c| c.member == member).count()
    };
    assert_eq!((named("compute-3"), named("compute-1")), (1, 0), "{}", survey.verdict.headline);
    let page = check(&survey, "hosts of clients");
    for id in ["client.write.n-n.hosts", "clients.write.n-n.hosts", "metadata.create.hosts"] {
        let charts: Vec<&str> =
            page.split("<figure>").filter(|part| part.contains(&format!("data-shows=\"{id}\""))).collect();
        assert_eq!(charts.len(), 1, "{id}");
        assert!(charts[0].contains("compute-3 stands out"), "{id}");
        let row = charts[0].split("<tr class=\"alert\">").nth(1).unwrap_or_default();
        assert!(row.starts_with("<td>compute-3</td>"), "{id}: {row}");
    }
}

/// Goal: the comparison says what became better and worse, and survives hostile names as well.
#[test]
fn comparisons_are_shown() {
    let (mut before, mut after) = (sample(), sample());
    samples(&mut before, &mut |place| *place = vec![100.0, 101.0, 99.0, 100.5, 99.5]);
    samples(&mut after, &mut |place| *place = vec![50.0, 51.0, 49.0, 50.5, 49.5]);
    let page = report::compare_html(&before, &after, &compare(&before, &after));
    assert_eq!(broken(&page), None);
    assert!(page.contains("Nothing changed for certain") && page.contains("may have become worse"));
    assert!(page.contains("maybe worse") && page.contains("-50 %") && page.contains("chart wide"));
    samples(&mut after, &mut |place| *place = vec![10.0, 11.0, 9.0, 10.5, 9.5]);
    let page = report::compare_html(&before, &after, &compare(&before, &after));
    assert!(page.contains("places became worse") && page.contains("-90 %") && !page.contains("maybe"));
    let same = report::compare_html(&before, &before, &compare(&before, &before));
    assert!(same.contains("Nothing changed that can be told from chance"));
    texts(&mut after, &mut |place| *place = "<script>\"'".to_owned());
    assert_eq!(broken(&report::compare_html(&before, &after, &compare(&before, &after))), None);
}

/// Goal: the check of markup itself finds what is broken.
#[test]
fn broken_markup_is_found() {
    assert_eq!(broken("<!doctype html><p>a<b>c</b></p>"), None);
    for page in ["<p>", "<p></b></p>", "<script></script>", "<p class=\"a></p>", "<p>a</p></p>"] {
        assert!(broken(&format!("<!doctype html>{page}")).is_some(), "{page}");
    }
}

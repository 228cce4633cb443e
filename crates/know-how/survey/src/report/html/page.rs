//! The page from its head to its foot.

use super::super::super::model::{LayerId, Survey, Verdict};
use super::super::figures::{self, layer_name};
use super::super::letters;
use super::super::number;
use super::parts::{self, Figures};

/// Colours, type and measures of the page.
const STYLE: &str = include_str!("style.css");
/// Nothing may be fetched and nothing run; only the styles of the page itself count.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Text for between tags and within quotes.
pub fn escape(text: &str) -> String {
    let text = letters::clean(text);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A whole page round its body.
pub fn shell(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<div class=\"page\">\n{body}</div>\n</body>\n</html>\n",
        escape(title)
    )
}

/// The report on one survey.
pub fn html(survey: &Survey) -> String {
    let mut figures = Figures::default();
    let mut body = head(survey);
    body += "<main>\n";
    body += &verdict(&survey.verdict);
    body += &waterfalls(survey, &mut figures);
    body += &limits(survey);
    body += &remarks(survey);
    for layer in &survey.layers {
        let name = layer_name(layer.id);
        body += &format!("<section id=\"{}\">\n<h2>{name}</h2>\n", anchor(layer.id));
        body += &format!("<p class=\"about\">{}</p>\n", escape(&layer.about));
        body += &figures.grid(figures::of_layer(layer), false);
        body += "</section>\n";
    }
    body += &machines(survey);
    body += &settings(survey);
    body += &commands(survey);
    body += "</main>\n";
    body += &format!(
        "<footer>Made by skep {}. This file holds everything it shows and fetches nothing; every sample stands \
         in the tables and in the JSON beside it.</footer>\n",
        escape(&survey.version)
    );
    shell(&survey.title, &body)
}

fn anchor(layer: LayerId) -> &'static str {
    match layer {
        LayerId::Processor => "processor",
        LayerId::Device => "device",
        LayerId::Log => "log",
        LayerId::Storage => "storage",
        LayerId::Network => "network",
        LayerId::Client => "client",
        LayerId::Clients => "clients",
        LayerId::Metadata => "metadata",
    }
}

fn head(survey: &Survey) -> String {
    let mut out = format!("<header>\n<h1>{}</h1>\n<ul class=\"meta\">\n", escape(&survey.title));
    let hosts = match survey.hosts.len() {
        1 => "1 machine".to_owned(),
        count => format!("{count} machines"),
    };
    let facts = [
        ("Begun", survey.started.replace('T', " ").replace('Z', " UTC")),
        ("Took", number::span(survey.seconds)),
        ("Preset", survey.preset.clone()),
        ("Version", survey.version.clone()),
        ("On", hosts),
    ];
    for (name, value) in facts {
        out += &format!("<li>{name} <b>{}</b></li>\n", escape(&value));
    }
    out += "</ul>\n<nav aria-label=\"Parts of the report\">\n<a href=\"#verdict\">Verdict</a>\n";
    if !survey.waterfalls.is_empty() {
        out += "<a href=\"#layers\">Layer by layer</a>\n";
    }
    for layer in &survey.layers {
        out += &format!("<a href=\"#{}\">{}</a>\n", anchor(layer.id), layer_name(layer.id));
    }
    out += "<a href=\"#machines\">Machines</a>\n<a href=\"#settings\">Settings</a>\n";
    out += "<a href=\"#commands\">Commands</a>\n</nav>\n</header>\n";
    out
}

fn verdict(verdict: &Verdict) -> String {
    let (class, badge) = match &verdict.culprit {
        Some(culprit) => (" bad", format!("Look first at {}", escape(&culprit.member))),
        None if verdict.crowded().is_some() => (" bad", "Crowded processors".to_owned()),
        None => ("", "Nothing stands out".to_owned()),
    };
    let mut out =
        format!("<div id=\"verdict\" class=\"card verdict{class}\">\n<p class=\"badge\">{badge}</p>\n");
    out += &format!("<p class=\"headline\">{}</p>\n", escape(&verdict.headline));
    for culprit in verdict.culprit.iter().chain(&verdict.also) {
        let (member, layer) = (escape(&culprit.member), layer_name(culprit.layer));
        out += &format!(
            "<div class=\"culprit\">\n<h3><b>{member}</b> <span class=\"chip\">{layer}</span></h3>\n"
        );
        out += &format!("<p>{}</p>\n", escape(&culprit.finding));
        out += &parts::table(&figures::evidence(&culprit.evidence), "");
        out += &format!("<p class=\"advice\">{}</p>\n</div>\n", escape(&culprit.advice));
    }
    out += "</div>\n";
    out
}

fn limits(survey: &Survey) -> String {
    let limits = &survey.verdict.limits;
    if limits.is_empty() {
        return String::new();
    }
    let mut out = "<section id=\"limits\">\n<h2>What limits</h2>\n".to_owned();
    out += "<p class=\"about\">Some layer always does. These are the ones that end each kind of work here, with \
            the numbers that show it; where what was measured names none, it says why.</p>\n<div class=\"limits\">\n";
    for limit in limits {
        let chip = |layer| format!(" <span class=\"chip\">{}</span>", layer_name(layer));
        let chips: String = limit.layers().map(chip).collect();
        out += &format!("<div class=\"card\">\n<h3>{}{chips}</h3>\n", escape(&limit.work));
        out += &format!("<p>{}</p>\n", escape(&limit.finding));
        out += &parts::table(&figures::evidence(&limit.evidence), "");
        out += "</div>\n";
    }
    out += "</div>\n</section>\n";
    out
}

fn remarks(survey: &Survey) -> String {
    if survey.remarks.is_empty() {
        return String::new();
    }
    let mut out = "<section id=\"remarks\">\n<h2>To know before trusting a number</h2>\n".to_owned();
    out += "<ul class=\"card remarks\">\n";
    for remark in &survey.remarks {
        out += &format!("<li>{}</li>\n", escape(remark));
    }
    out += "</ul>\n</section>\n";
    out
}

fn waterfalls(survey: &Survey, figures: &mut Figures) -> String {
    if survey.waterfalls.is_empty() {
        return String::new();
    }
    let mut out = "<section id=\"layers\">\n<h2>Layer by layer</h2>\n".to_owned();
    out += &format!("<p class=\"about\">{}</p>\n", figures::ABOUT_LAYERS);
    out += &figures.grid(figures::waterfalls(survey).collect(), true);
    out += "</section>\n";
    out
}

fn machines(survey: &Survey) -> String {
    let mut out = "<section id=\"machines\">\n<h2>Machines</h2>\n<div class=\"hosts\">\n".to_owned();
    for host in &survey.hosts {
        let roles = escape(&host.roles.join(", "));
        out += &format!(
            "<div class=\"card\">\n<h3>{}</h3>\n<p class=\"about\">{roles}</p>\n",
            escape(&host.name)
        );
        out += &parts::facts(&host.facts);
        out += "</div>\n";
    }
    if survey.hosts.is_empty() {
        out += "<p class=\"nothing\">No machine was asked.</p>\n";
    }
    out += "</div>\n</section>\n";
    out
}

fn settings(survey: &Survey) -> String {
    let mut out = "<section id=\"settings\">\n<h2>Settings of the file system</h2>\n".to_owned();
    if survey.settings.is_empty() {
        out += "<p class=\"nothing\">None were read.</p>\n";
    } else {
        out += &format!("<div class=\"card\">\n{}</div>\n", parts::facts(&survey.settings));
    }
    out += "</section>\n";
    out
}

fn commands(survey: &Survey) -> String {
    let mut out = "<section id=\"commands\">\n<h2>Commands</h2>\n".to_owned();
    if survey.commands.is_empty() {
        out += "<p class=\"nothing\">None were run.</p>\n";
    } else {
        out += "<p class=\"about\">In the order in which they ran. A click selects a whole line.</p>\n";
        out += &parts::commands(survey.commands.iter().map(String::as_str));
    }
    out += "</section>\n";
    out
}

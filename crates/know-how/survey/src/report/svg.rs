//! The pen for the screen: a drawing as SVG, painted by the classes of the page's style.

use std::fmt::Write;

use super::charts;
use super::draw::{Anchor, Drawing, Form, LABEL, Mark, Paint, SERIES, Shape, Spot, Tip};
use super::html::escape;
use super::letters::Face;

/// The drawing as an element; `id` must be its own in the page.
pub fn svg(drawing: &Drawing, id: &str, class: &str) -> String {
    let mut out = String::new();
    let (wide, high) = (coordinate(drawing.width), coordinate(drawing.height));
    put(&mut out, format_args!("<svg class=\"{class}\" viewBox=\"0 0 {wide} {high}\" role=\"img\" "));
    put(&mut out, format_args!("data-shows=\"{}\" ", escape(&drawing.shows.join(" "))));
    put(&mut out, format_args!("aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">"));
    put(&mut out, format_args!("{}</title><desc id=\"{id}-d\">", escape(&drawing.title)));
    put(&mut out, format_args!("{}</desc>\n", escape(&drawing.about)));
    for mark in &drawing.marks {
        put_mark(&mut out, mark);
    }
    for tip in &drawing.tips {
        put_tip(&mut out, tip, drawing);
    }
    out.push_str("</svg>\n");
    out
}

fn put(out: &mut String, arguments: std::fmt::Arguments) {
    // Writing into a string cannot fail.
    let _ = out.write_fmt(arguments);
}

/// A coordinate with two digits; what is no number lies at the edge.
fn coordinate(value: f32) -> String {
    let text = format!("{:.2}", if value.is_finite() { value } else { 0.0 });
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn class(paint: Paint) -> String {
    match paint {
        Paint::Ink => "ink".to_owned(),
        Paint::Muted => "muted".to_owned(),
        Paint::Grid => "grid".to_owned(),
        Paint::Track => "track".to_owned(),
        Paint::Surface => "surface".to_owned(),
        Paint::Series(which) => format!("s{}", which % SERIES),
        Paint::Alert => "alert".to_owned(),
    }
}

fn path(points: &[Spot], closed: bool) -> String {
    let mut out = String::new();
    for (which, (x, y)) in points.iter().enumerate() {
        let letter = if which == 0 { 'M' } else { 'L' };
        put(&mut out, format_args!("{letter}{} {}", coordinate(*x), coordinate(*y)));
    }
    if closed {
        out.push('Z');
    }
    out
}

fn put_mark(out: &mut String, mark: &Mark) {
    let paint = class(mark.paint);
    let data = if mark.data { " m" } else { "" };
    let opacity =
        if mark.opacity < 1.0 { format!(" opacity=\"{:.2}\"", mark.opacity) } else { String::new() };
    match &mark.shape {
        Shape::Line { points, width, dashed } => {
            let dash = if *dashed { " stroke-dasharray=\"4 3\"" } else { "" };
            let (d, width) = (path(points, false), coordinate(*width));
            put(out, format_args!("<path class=\"k {paint}{data}\" d=\"{d}\" stroke-width=\"{width}\""));
            put(out, format_args!("{dash}{opacity}/>\n"));
        }
        Shape::Area { points } => {
            put(
                out,
                format_args!("<path class=\"f {paint}{data}\" d=\"{}\"{opacity}/>\n", path(points, true)),
            );
        }
        Shape::Bar { at: (x, y), width, height } => {
            let (x, y) = (coordinate(*x), coordinate(*y));
            let (wide, high) = (coordinate(width.max(0.0)), coordinate(height.max(0.0)));
            put(out, format_args!("<rect class=\"f {paint}{data}\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" "));
            put(out, format_args!("height=\"{high}\" rx=\"1.5\"{opacity}/>\n"));
        }
        Shape::Dot { at, radius, form: Form::Disc } => {
            let (x, y, r) = (coordinate(at.0), coordinate(at.1), coordinate(*radius));
            let circle = format_args!("cx=\"{x}\" cy=\"{y}\" r=\"{r}\"{opacity}/>\n").to_string();
            put(out, format_args!("<circle class=\"f {paint}{data}\" {circle}"));
        }
        Shape::Dot { at, radius, form } => {
            let d = path(&form.corners(*at, *radius), true);
            put(out, format_args!("<path class=\"f {paint}{data}\" d=\"{d}\"{opacity}/>\n"));
        }
        Shape::Text { text, .. } if text.is_empty() => {}
        Shape::Text { at, size, anchor, bold, halo, text } => {
            let (x, y, size) = (coordinate(at.0), coordinate(at.1), coordinate(*size));
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let (bold, halo) = (if *bold { " b" } else { "" }, if *halo { " halo" } else { "" });
            put(out, format_args!("<text class=\"f {paint}{bold}{halo}\" x=\"{x}\" y=\"{y}\" "));
            put(out, format_args!("font-size=\"{size}\"{anchor}>{}</text>\n", escape(text)));
        }
    }
}

/// Distance between the lines of a tip.
const LINE: f32 = 15.0;

fn put_tip(out: &mut String, tip: &Tip, drawing: &Drawing) {
    let wide = tip
        .lines
        .iter()
        .map(|line| charts::width(line, LABEL, Face::Bold))
        .fold(40.0, f32::max)
        .min(drawing.width - 20.0)
        + 16.0;
    let high = tip.lines.len() as f32 * LINE + 9.0;
    let (x, y) = tip.at;
    let left = (x - wide / 2.0).clamp(0.0, (drawing.width - wide).max(0.0));
    let above = y - tip.radius - high - 3.0;
    let top = if above >= 0.0 { above } else { y + tip.radius + 3.0 };
    let top = top.clamp(0.0, (drawing.height - high).max(0.0));
    let (cx, cy, r) = (coordinate(x), coordinate(y), coordinate(tip.radius));
    put(out, format_args!("<g class=\"p\"><circle cx=\"{cx}\" cy=\"{cy}\" r=\"{r}\"/><g class=\"tip\">"));
    let (rx, ry) = (coordinate(left), coordinate(top));
    let (rw, rh) = (coordinate(wide), coordinate(high));
    put(out, format_args!("<rect x=\"{rx}\" y=\"{ry}\" width=\"{rw}\" height=\"{rh}\" rx=\"4\"/>"));
    for (which, line) in tip.lines.iter().enumerate() {
        let (x, y) = (coordinate(left + 8.0), coordinate(top + 15.0 + which as f32 * LINE));
        let bold = if which == 0 { " class=\"b\"" } else { "" };
        let line = charts::fit(line, LABEL, Face::Bold, wide - 15.0);
        put(out, format_args!("<text{bold} x=\"{x}\" y=\"{y}\" font-size=\"11\">{}</text>", escape(&line)));
    }
    out.push_str("</g></g>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: hostile text and places that are no numbers leave valid markup.
    #[test]
    fn hostile_marks_are_harmless() {
        let mut drawing = Drawing::new(100.0, 50.0, "<script>");
        drawing.about = "\"quoted\" & ]]>".to_owned();
        drawing.label(Paint::Ink, (f32::NAN, f32::INFINITY), Anchor::Start, "</text><script>");
        let bar = Shape::Bar { at: (0.0, 0.0), width: -5.0, height: f32::NAN };
        drawing.data(Paint::Series(99), 0.5, bar);
        drawing.tip((1.0, 1.0), 3.0, vec!["<b>".to_owned()]);
        let text = svg(&drawing, "c1", "wide");
        assert!(!text.contains("<script") && !text.contains("<b>") && !text.contains("NaN"), "{text}");
        assert!(!text.contains("inf") && !text.contains("width=\"-"), "{text}");
        assert!(text.contains("class=\"f s3 m\""), "{text}");
    }

    /// Goal: lines of equal places are written the same on every machine.
    #[test]
    fn coordinates_are_short() {
        assert_eq!(
            [1.0, 1.5, 0.125, -0.001, f32::NAN].map(coordinate),
            ["1", "1.5", "0.12", "0", "0"].map(str::to_owned)
        );
    }
}

//! The pen for paper: marks of a drawing as operators of a page.

use pdf_writer::types::{LineCapStyle, LineJoinStyle};
use pdf_writer::{Content, Name, Str};

use super::super::draw::{Anchor, Drawing, Form, Mark, Paint, Shape, Spot};
use super::super::letters::{self, Face};

/// Steps of opacity that a page knows.
pub const OPACITIES: usize = 20;
/// Circles are drawn with four curves whose handles are this part of the radius long.
const HANDLE: f32 = 0.552_285;

/// Name of the font of a face among a page's resources.
pub fn font(face: Face) -> Name<'static> {
    match face {
        Face::Plain => Name(b"F1"),
        Face::Bold => Name(b"F2"),
        Face::Mono => Name(b"F3"),
    }
}

/// Name of a step of opacity among a page's resources.
pub fn opacity(step: usize) -> String {
    format!("A{}", step.clamp(1, OPACITIES))
}

/// Text in the encoding of the fonts; what they lack becomes a question mark.
pub fn encode(text: &str) -> Vec<u8> {
    letters::clean(text).chars().flat_map(one).collect()
}

fn one(c: char) -> Vec<u8> {
    match c {
        ' '..='~' => vec![c as u8],
        '\u{a0}'..='\u{ff}' => vec![c as u32 as u8],
        '\u{20ac}' => vec![0x80],
        '\u{2026}' => vec![0x85],
        '\u{2018}' => vec![0x91],
        '\u{2019}' => vec![0x92],
        '\u{201c}' => vec![0x93],
        '\u{201d}' => vec![0x94],
        '\u{2022}' => vec![0x95],
        '\u{2013}' => vec![0x96],
        '\u{2014}' => vec![0x97],
        '\u{2192}' => b"->".to_vec(),
        '\u{2264}' => b"<=".to_vec(),
        '\u{2265}' => b">=".to_vec(),
        _ => vec![b'?'],
    }
}

/// Sets the colour for filling and drawing.
pub fn colour(content: &mut Content, paint: Paint) {
    let [r, g, b] = paint.on_white().map(|part| f32::from(part) / 255.0);
    content.set_fill_rgb(r, g, b);
    content.set_stroke_rgb(r, g, b);
}

/// Writes a line of text.
pub fn write(content: &mut Content, text: &str, at: Spot, size: f32, face: Face, paint: Paint) {
    colour(content, paint);
    content.begin_text();
    content.set_font(font(face), size);
    content.next_line(at.0, at.1);
    content.show(Str(&encode(text)));
    content.end_text();
}

/// Where a drawing lies on the page, and how large.
struct Frame {
    left: f32,
    top: f32,
    scale: f32,
}

impl Frame {
    fn spot(&self, (x, y): Spot) -> Spot {
        let number = |v: f32| if v.is_finite() { v } else { 0.0 };
        (self.left + number(x) * self.scale, self.top - number(y) * self.scale)
    }
}

/// Puts the drawing with its upper left corner at that place of the page, `wide` points wide.
pub fn draw(content: &mut Content, drawing: &Drawing, (left, top): Spot, wide: f32) {
    let frame = Frame { left, top, scale: wide / drawing.width.max(1.0) };
    for mark in &drawing.marks {
        content.save_state();
        put(content, &frame, mark);
        content.restore_state();
    }
}

fn put(content: &mut Content, frame: &Frame, mark: &Mark) {
    if mark.opacity < 1.0 {
        let step = (mark.opacity * OPACITIES as f32).round() as usize;
        content.set_parameters(Name(opacity(step).as_bytes()));
    }
    colour(content, mark.paint);
    match &mark.shape {
        Shape::Line { points, width, dashed } => {
            content.set_line_width(width * frame.scale);
            content.set_line_cap(LineCapStyle::RoundCap);
            content.set_line_join(LineJoinStyle::RoundJoin);
            if *dashed {
                content.set_dash_pattern([3.0, 2.4], 0.0);
            }
            if trace(content, frame, points) {
                content.stroke();
            }
        }
        Shape::Area { points } => {
            if trace(content, frame, points) {
                content.fill_nonzero();
            }
        }
        Shape::Bar { at, width, height } => {
            let number = |v: f32| if v.is_finite() { v.max(0.0) * frame.scale } else { 0.0 };
            let ((x, y), high) = (frame.spot(*at), number(*height));
            content.rect(x, y - high, number(*width), high);
            content.fill_nonzero();
        }
        Shape::Dot { at, radius, form: Form::Disc } => {
            disc(content, frame.spot(*at), radius * frame.scale);
            content.fill_nonzero();
        }
        Shape::Dot { at, radius, form } => {
            if trace(content, frame, &form.corners(*at, *radius)) {
                content.fill_nonzero();
            }
        }
        Shape::Text { at, size, anchor, bold, halo, text } => {
            let (size, face) = (size * frame.scale, if *bold { Face::Bold } else { Face::Plain });
            let (x, y) = frame.spot(*at);
            let wide = letters::width(text, size, face);
            let x = match anchor {
                Anchor::Start => x,
                Anchor::Middle => x - wide / 2.0,
                Anchor::End => x - wide,
            };
            if *halo && !text.is_empty() {
                content.save_state();
                content.set_parameters(Name(opacity(OPACITIES * 3 / 4).as_bytes()));
                colour(content, Paint::Surface);
                content.rect(x - 1.0, y - size * 0.2, wide + 2.0, size * 1.05);
                content.fill_nonzero();
                content.restore_state();
            }
            write(content, text, (x, y), size, face, mark.paint);
        }
    }
}

fn trace(content: &mut Content, frame: &Frame, points: &[Spot]) -> bool {
    for (which, point) in points.iter().enumerate() {
        let (x, y) = frame.spot(*point);
        if which == 0 {
            content.move_to(x, y);
        } else {
            content.line_to(x, y);
        }
    }
    !points.is_empty()
}

fn disc(content: &mut Content, (x, y): Spot, r: f32) {
    let h = r * HANDLE;
    content.move_to(x + r, y);
    content.cubic_to(x + r, y + h, x + h, y + r, x, y + r);
    content.cubic_to(x - h, y + r, x - r, y + h, x - r, y);
    content.cubic_to(x - r, y - h, x - h, y - r, x, y - r);
    content.cubic_to(x + h, y - r, x + r, y - h, x + r, y);
    content.close_path();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: letters of the fonts keep their codes, all others become harmless ones.
    #[test]
    fn text_is_encoded_for_the_fonts() {
        assert_eq!(encode("a\u{b5}\u{e9}\u{20ac}"), [b'a', 0xb5, 0xe9, 0x80]);
        assert_eq!(encode("\u{4e2d}\u{202e}\u{0}\u{2192}"), b"???->");
    }
}

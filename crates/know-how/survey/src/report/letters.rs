//! How wide text is, what of it fits, where it breaks, and which characters are harmless.

/// Longest text of one place in a report; the rest of a longer one is cut.
pub const LONGEST: usize = 4_000;

/// Widths of the printable ASCII letters of Helvetica, in thousandths of the size.
const PLAIN: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];
/// The same of Helvetica Bold.
const BOLD: [u16; 95] = [
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278,
    556, 722, 611, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584,
    556, 333, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556,
    333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
];
/// Width of a letter of Courier.
const MONO: f32 = 0.6;
/// Width of letters that no table knows.
const OTHER: f32 = 0.6;

/// Which letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// Ordinary.
    Plain,
    /// Heavier.
    Bold,
    /// All of one width.
    Mono,
}

fn letter(c: char, face: Face) -> f32 {
    let table = match face {
        Face::Mono => return MONO,
        Face::Plain => &PLAIN,
        Face::Bold => &BOLD,
    };
    let at = (c as usize).checked_sub(32);
    at.and_then(|at| table.get(at)).map_or(OTHER, |width| f32::from(*width) / 1000.0)
}

/// How wide a text is at that size.
pub fn width(text: &str, size: f32, face: Face) -> f32 {
    text.chars().map(|c| letter(c, face)).sum::<f32>() * size
}

/// The text without what would break a page or deceive its reader: control characters, marks that
/// turn the direction of writing, and the rest of what is longer than [`LONGEST`].
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (count, c) in text.chars().enumerate() {
        if count == LONGEST {
            out.push_str("...");
            break;
        }
        match c {
            '\n' | '\t' => out.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}');
            }
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The text, or its beginning with three dots where it is too wide.
pub fn fit(text: &str, size: f32, face: Face, room: f32) -> String {
    let text = clean(text);
    if width(&text, size, face) <= room {
        return text;
    }
    let dots = width("...", size, face);
    let mut used = 0.0;
    let mut out = String::new();
    for c in text.chars() {
        used += letter(c, face) * size;
        if used + dots > room {
            break;
        }
        out.push(c);
    }
    format!("{}...", out.trim_end())
}

/// The text in lines no wider than `room`; words that are too long are broken.
pub fn wrap(text: &str, size: f32, face: Face, room: f32) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0.0;
    // Sums of the same widths in another order differ by a little.
    let room = room + 0.05;
    let space = letter(' ', face) * size;
    for word in clean(text).split_whitespace() {
        let wide = width(word, size, face);
        if !line.is_empty() && used + space + wide > room {
            lines.push(std::mem::take(&mut line));
            used = 0.0;
        }
        if !line.is_empty() {
            line.push(' ');
            used += space;
        }
        for c in word.chars() {
            let wide = letter(c, face) * size;
            if !line.is_empty() && used + wide > room {
                lines.push(std::mem::take(&mut line));
                used = 0.0;
            }
            line.push(c);
            used += wide;
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines stay within their room whatever the words are; nothing is lost.
    #[test]
    fn wrapping_keeps_the_width_and_the_letters() {
        let long = "x".repeat(300);
        for text in ["", "a b c", "one two three four five six seven", long.as_str(), "a  \n b"] {
            let lines = wrap(text, 10.0, Face::Plain, 60.0);
            assert!(!lines.is_empty());
            assert!(lines.iter().all(|line| width(line, 10.0, Face::Plain) <= 60.1), "{lines:?}");
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            assert_eq!(letters(&lines.concat()), letters(text));
        }
    }

    /// Goal: what does not fit is cut visibly; what fits stays.
    #[test]
    fn cut_text_shows_that_it_is_cut() {
        assert_eq!(fit("target-101", 10.0, Face::Plain, 100.0), "target-101");
        let cut = fit(&"target-".repeat(20), 10.0, Face::Bold, 100.0);
        assert!(cut.ends_with("...") && width(&cut, 10.0, Face::Bold) <= 100.0, "{cut}");
        assert_eq!(fit("x", 10.0, Face::Plain, 0.0), "...");
    }

    /// Goal: nothing that turns the writing direction or controls a terminal goes through.
    #[test]
    fn dangerous_characters_are_replaced() {
        assert_eq!(clean("a\u{202e}b\u{0}c\nd\u{1b}"), "a\u{fffd}b\u{fffd}c d\u{fffd}");
        assert_eq!(clean(&"y".repeat(LONGEST + 9)).len(), LONGEST + 3);
    }
}

//! As much of Rust's grammar as the checks need: what is code, what is a test.

use core::ops::RangeInclusive;

/// Replaces comments and the contents of strings and characters by spaces; lines stay where they are.
pub fn blank(source: &str) -> String {
    let text: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < text.len() {
        let end = match text[at] {
            '/' if text.get(at + 1) == Some(&'/') => line_end(&text, at),
            '/' if text.get(at + 1) == Some(&'*') => block_end(&text, at),
            '"' => string_end(&text, at + 1),
            'r' | 'b' | 'c' if !is_word_before(&text, at) => literal_end(&text, at),
            '\'' => char_end(&text, at),
            _ => at,
        };
        if end == at {
            out.push(text[at]);
            at += 1;
        } else {
            out.extend(text[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

fn is_word_before(text: &[char], at: usize) -> bool {
    at.checked_sub(1).and_then(|i| text.get(i)).is_some_and(|c| c.is_alphanumeric() || *c == '_')
}

fn line_end(text: &[char], at: usize) -> usize {
    text[at..].iter().position(|c| *c == '\n').map_or(text.len(), |i| at + i)
}

/// Block comments nest.
fn block_end(text: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn string_end(text: &[char], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// The end of `r"..."`, `br#"..."#`, `b"..."`, `b'x'`, `c"..."`, or `at` when none begins here.
fn literal_end(text: &[char], at: usize) -> usize {
    let mut next = at + 1;
    let raw = text[at] == 'r' || text.get(next) == Some(&'r');
    if text[at] != 'r' && text.get(next) == Some(&'r') {
        next += 1;
    }
    if !raw {
        return match text.get(next) {
            Some('"') => string_end(text, next + 1),
            Some('\'') if text[at] == 'b' => char_end(text, next),
            _ => at,
        };
    }
    let hashes = text[next..].iter().take_while(|c| **c == '#').count();
    next += hashes;
    if text.get(next) != Some(&'"') {
        return at;
    }
    next += 1;
    while next < text.len() {
        let closes = text[next] == '"'
            && text[next + 1..].len() >= hashes
            && text[next + 1..next + 1 + hashes].iter().all(|c| *c == '#');
        if closes {
            return next + 1 + hashes;
        }
        next += 1;
    }
    text.len()
}

/// The end of a character literal, or `at` when this quote begins a lifetime.
fn char_end(text: &[char], at: usize) -> usize {
    if text.get(at + 1) == Some(&'\\') {
        let close = text.iter().skip(at + 3).position(|c| *c == '\'');
        return close.map_or(text.len(), |i| at + 3 + i + 1);
    }
    if text.get(at + 2) == Some(&'\'') { at + 3 } else { at }
}

/// Lines of blanked code that belong to items marked `#[cfg(test)]`.
pub fn test_regions(code: &str) -> Vec<RangeInclusive<usize>> {
    let mut regions = Vec::new();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        let end = item_end(code, at + "#[cfg(test)]".len());
        regions.push(line_of(code, at)..=line_of(code, end));
    }
    regions
}

/// Where the item that begins after `from` ends: at its `;`, or at the brace that closes it.
pub fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0_i32;
    let mut brackets = 0_i32;
    for (at, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth <= 0 {
                    return from + at;
                }
            }
            ';' if depth == 0 && brackets == 0 => return from + at,
            _ => {}
        }
    }
    code.len()
}

/// The line, counted from 1, of a position in a text.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Positions where `word` stands for itself and not as a part of a longer one.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        !code[..*at].chars().next_back().is_some_and(inside)
            && !code[at + word.len()..].chars().next().is_some_and(inside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: comments and contents of literals vanish, code and line numbers stay.
    #[test]
    fn blanks_what_is_no_code() {
        // In the expected text `~` stands for a blanked character.
        for (source, code) in [
            ("a // {\nb", "a ~~~~\nb"),
            ("a /* { /* } */ { */ b", "a ~~~~~~~~~~~~~~~~~ b"),
            ("f(\"}\\\"{\") {", "f(~~~~~~) {"),
            ("x = r#\"{\"}\"#;", "x = ~~~~~~~~;"),
            ("x = br\"\\\"; y", "x = ~~~~~; y"),
            ("'{' '\\'' 'a b'a'", "~~~ ~~~~ 'a ~~~~"),
            ("b'{' c\"{\" bar\"{\"", "~~~~ ~~~~ bar~~~"),
            ("\"two\n{lines\" }", "~~~~\n~~~~~~~ }"),
        ] {
            assert_eq!(blank(source), code.replace('~', " "), "{source}");
        }
    }

    /// Goal: the region of a test item ends where the item ends, with or without a body.
    #[test]
    fn test_regions_are_items() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nuse x;\nfn d() {}";
        assert_eq!(test_regions(code), [2..=5, 7..=8]);
    }

    /// Goal: whole words only.
    #[test]
    fn words_are_whole() {
        assert_eq!(words("fn a; fnord; _fn; fn", "fn").collect::<Vec<_>>(), [0, 18]);
    }
}

//! Is a PDF one that others can read? poppler says.

use std::path::Path;
use std::process::Command;

/// The programs of poppler-utils that are used.
pub const NEEDED: [&str; 3] = ["pdfinfo", "pdftotext", "pdftoppm"];
/// Ink on a page that is not empty, in dots above its foot at [`DOTS`] per inch.
const LEAST_INK: usize = 40;
/// Resolution of the look at a page.
const DOTS: &str = "60";
/// Part of a page, in percent, above the line with the page number.
const ABOVE_FOOT: usize = 92;

/// Checks the file: readable without complaint, pages that are not empty, and these words on them.
pub fn check(file: &Path, words: &[String], faults: &mut Vec<String>) -> Result<usize, String> {
    let info = run("pdfinfo", &[], file, faults)?;
    let pages = String::from_utf8_lossy(&info)
        .lines()
        .find_map(|line| line.strip_prefix("Pages:"))
        .and_then(|count| count.trim().parse::<usize>().ok())
        .unwrap_or(0);
    if pages == 0 {
        faults.push("the PDF has no pages".to_owned());
        return Ok(0);
    }
    let text = run("pdftotext", &["-layout"], file, faults)?;
    // Lines may break anywhere: only the letters count.
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
    let text = letters(&String::from_utf8_lossy(&text));
    for word in words {
        if !text.contains(&letters(word)) {
            faults.push(format!("the PDF does not say \"{word}\""));
        }
    }
    let pictures = run("pdftoppm", &["-gray", "-r", DOTS], file, faults)?;
    let inks = inks(&pictures);
    if inks.len() != pages {
        faults.push(format!("{} of {pages} pages of the PDF could be drawn", inks.len()));
    }
    for (page, ink) in inks.iter().enumerate().filter(|(_, ink)| **ink < LEAST_INK) {
        faults.push(format!("page {} of the PDF is empty ({ink} dark dots)", page + 1));
    }
    Ok(pages)
}

fn run(program: &str, arguments: &[&str], file: &Path, faults: &mut Vec<String>) -> Result<Vec<u8>, String> {
    let mut command = Command::new(program);
    command.args(arguments).arg(file);
    if program == "pdftotext" {
        command.arg("-");
    }
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !complaint.trim().is_empty() {
        faults.push(format!("{program} complains about the PDF: {} {complaint}", output.status));
    }
    Ok(output.stdout)
}

/// Dark dots of every picture in a row of PGM pictures.
fn inks(mut bytes: &[u8]) -> Vec<usize> {
    let mut inks = Vec::new();
    while let Some((wide, high, start)) = header(bytes) {
        let end = start + wide * high;
        let Some(dots) = bytes.get(start..end) else { break };
        let above = &dots[..wide * (high * ABOVE_FOOT / 100)];
        inks.push(above.iter().filter(|dot| **dot < 160).count());
        bytes = &bytes[end..];
    }
    inks
}

/// Width and height of a PGM picture, and where its dots begin.
fn header(bytes: &[u8]) -> Option<(usize, usize, usize)> {
    let mut at = bytes.starts_with(b"P5").then_some(2)?;
    let mut number = || {
        while bytes.get(at)?.is_ascii_whitespace() {
            at += 1;
        }
        let start = at;
        while bytes.get(at)?.is_ascii_digit() {
            at += 1;
        }
        std::str::from_utf8(&bytes[start..at]).ok()?.parse::<usize>().ok()
    };
    let (wide, high, _) = (number()?, number()?, number()?);
    Some((wide, high, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: dark dots are counted picture by picture; cut pictures do not count.
    #[test]
    fn ink_is_counted() {
        let picture = [b"P5\n3 2\n255\n".as_slice(), &[0, 255, 90, 10, 10, 10]].concat();
        let two = [picture.clone(), picture.clone()].concat();
        assert_eq!(inks(&two), [2, 2], "the foot does not count");
        assert_eq!(inks(&two[..two.len() - 1]), [2]);
        assert!(inks(b"P6\n").is_empty() && inks(b"").is_empty());
    }
}

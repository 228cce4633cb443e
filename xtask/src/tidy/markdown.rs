//! Markdown: one title per page, relative links that lead somewhere, and lines that a screen shows whole.

use super::{File, Report, Tree};

/// Columns of a line outside of tables and code.
const COLUMNS_MAX: usize = 120;
/// Pages that a program writes, in lines of its own.
const GENERATED: [&str; 4] =
    ["THIRD-PARTY.md", "docs/bench/fio.md", "docs/plan/reproduction.md", "docs/survey/rigged.md"];

/// Checks every page.
pub fn check(tree: &Tree, report: &mut Report) {
    for file in tree.files.iter().filter(|file| file.is_markdown()) {
        let prose = prose(&file.text);
        titles(file, &prose, report);
        widths(file, &prose, report);
        for (line, text) in &prose {
            for target in links(text) {
                link(tree, file, *line, target, report);
            }
        }
    }
}

/// The lines outside of fenced code, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => lines.push((i + 1, line)),
            _ => {}
        }
    }
    lines
}

/// Tables cannot be broken, and what is made by a program is as long as it is.
fn widths(file: &File, prose: &[(usize, &str)], report: &mut Report) {
    if GENERATED.contains(&file.path.as_str()) {
        return;
    }
    for (line, text) in prose.iter().filter(|(_, text)| !text.trim_start().starts_with('|')) {
        let columns = text.chars().count();
        if columns > COLUMNS_MAX {
            report.add(
                &file.path,
                *line,
                format!("the line has {columns} columns"),
                "break it at 120 or before",
            );
        }
    }
}

fn titles(file: &File, prose: &[(usize, &str)], report: &mut Report) {
    let titles: Vec<usize> =
        prose.iter().filter(|(_, text)| text.starts_with("# ")).map(|(line, _)| *line).collect();
    match titles.as_slice() {
        [] => report.add(&file.path, 1, "the page has no title", "begin it with `# Title`"),
        [_] => {}
        [_, second, ..] => {
            report.add(&file.path, *second, "the page has a second title", "make it `##`, or another page");
        }
    }
}

/// Targets of `[text](target)` and `[name]: target`, code spans left out.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for part in line.split('`').step_by(2) {
        for (at, _) in part.match_indices("](") {
            let rest = &part[at + 2..];
            let end = rest.find([')', ' ']).unwrap_or(rest.len());
            found.push(rest[..end].trim_start_matches('<').trim_end_matches('>'));
        }
    }
    if let Some((name, target)) = line.split_once("]: ")
        && name.starts_with('[')
        && !name.starts_with("[^")
    {
        found.push(target.split_whitespace().next().unwrap_or(""));
    }
    found
}

fn link(tree: &Tree, file: &File, line: usize, target: &str, report: &mut Report) {
    let path = target.split('#').next().unwrap_or("");
    if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return;
    }
    let fix = "correct the path, relative to this page";
    match resolve(&file.path, path) {
        Some(resolved) if resolved.is_empty() || tree.paths.contains(&resolved) => {}
        Some(_) => report.add(&file.path, line, format!("the link to {target} leads nowhere"), fix),
        None => report.add(&file.path, line, format!("the link to {target} leaves the tree"), fix),
    }
}

/// The path from the root that `target` on `page` means; `None` when it leaves the tree.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => page.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    /// Goal: no title and two titles fail; a `#` in fenced code is none.
    #[test]
    fn one_title_per_page() {
        let found = findings(
            check,
            &[
                ("a.md", "# A\n```sh\n# comment\n```\n## B\n"),
                ("b.md", "text\n"),
                ("c.md", "# A\n\n# B\n"),
                ("d.txt", "no title\n"),
            ],
        );
        assert_eq!(found, ["b.md:1: the page has no title", "c.md:3: the page has a second title"]);
    }

    /// Goal: a long line fails, but in tables and code, and columns are characters.
    #[test]
    fn lines_are_seen_whole() {
        let (long, exact) = ("x".repeat(121), "\u{e9}".repeat(120));
        let page = format!("# A\n{exact}\n{long}\n| {long} |\n```\n{long}\n```\n");
        assert_eq!(
            findings(check, &[("a.md", &page), ("THIRD-PARTY.md", &page)]),
            ["a.md:3: the line has 121 columns"]
        );
    }

    /// Goal: links that lead nowhere or out of the tree fail, with their line.
    #[test]
    fn relative_links_resolve() {
        let page = "# A\n[x](../README.md) [y](gone.md#part) [z](https://example.com/q) [w](#here)\n\
                    [d](../docs) [out](../../x) `[code](no.md)`\n[ref]: lost.md\n```\n[fenced](no.md)\n```\n";
        let found = findings(check, &[("docs/a.md", page), ("README.md", "# R\n[a](docs/a.md#x)\n")]);
        assert_eq!(
            found,
            [
                "docs/a.md:2: the link to gone.md#part leads nowhere",
                "docs/a.md:3: the link to ../../x leaves the tree",
                "docs/a.md:4: the link to lost.md leads nowhere",
            ]
        );
    }
}

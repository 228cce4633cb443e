//! Words that must not reach the tree: unfinished code, tests switched off, places of one machine;
//! and characters that do not belong into source.

use super::{File, Report, Tree};

/// Banned in Rust code (not in strings or comments).
const IN_CODE: [(&str, &str); 4] = [
    ("todo!", "finish it, or return an error that says what is missing"),
    ("unimplemented!", "finish it, or return an error that says what is missing"),
    ("dbg!", "remove it, or log it with a level"),
    ("#[ignore", "make the test pass, or remove it"),
];

/// Banned in every text. Cut in two so that this file does not name them itself.
const ANYWHERE: [(&str, &str, &str); 8] = [
    ("/wo", "rk/", "write the path from the root of the tree"),
    ("/ro", "ot/", "write the path from the root of the tree"),
    ("/Us", "ers/", "write the path from the root of the tree"),
    ("static.crates", ".io", "name no registry host; cargo knows it"),
    ("index.crates", ".io", "name no registry host; cargo knows it"),
    ("pypi", ".org", "name no registry host"),
    ("registry.npmjs", ".org", "name no registry host"),
    ("proxy.golang", ".org", "name no registry host"),
];

/// The one source a lock file may name.
const CRATES_IO: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Checks all of it.
pub fn check(tree: &Tree, report: &mut Report) {
    for file in &tree.files {
        code(file, report);
        anywhere(file, report);
        if file.name() == "Cargo.lock" {
            sources(file, report);
        }
        if !file.is_markdown() && !file.path.starts_with("docs/") {
            ascii(file, report);
        }
    }
}

fn code(file: &File, report: &mut Report) {
    for (line, text) in file.code_lines() {
        for (word, fix) in IN_CODE {
            let begins =
                |at: usize| !text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
            if text.match_indices(word).any(|(at, _)| begins(at)) {
                report.add(&file.path, line, format!("{word} is banned"), fix);
            }
        }
    }
}

fn anywhere(file: &File, report: &mut Report) {
    for (line, text) in file.lines() {
        for (first, second, fix) in ANYWHERE {
            let word = format!("{first}{second}");
            // `a/work/b` is a path inside something; only one from the root of a machine is meant.
            let absolute = |at: usize| {
                let before = text[..at].chars().next_back();
                !first.starts_with('/')
                    || !before.is_some_and(|c| c.is_alphanumeric() || "._-}>)/*".contains(c))
            };
            if text.match_indices(word.as_str()).any(|(at, _)| absolute(at)) {
                report.add(&file.path, line, format!("{word} is a place of one machine"), fix);
            }
        }
    }
}

fn sources(file: &File, report: &mut Report) {
    for (line, text) in file.lines() {
        if text.starts_with("source = ") && text != CRATES_IO {
            let fix = "take crates from crates.io only";
            report.add(&file.path, line, format!("foreign registry: {text}"), fix);
        }
    }
}

fn ascii(file: &File, report: &mut Report) {
    for (line, text) in file.lines() {
        if let Some(c) = text.chars().find(|c| !c.is_ascii()) {
            let what = format!("U+{:04X} outside of the documents", u32::from(c));
            report.add(&file.path, line, what, "write it as an escape, or in plain letters");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    /// Goal: unfinished code is found with its line; in strings, comments and longer names it is none.
    #[test]
    fn unfinished_code_fails() {
        let text = "fn a() {\n    todo!()\n}\n#[ignore = \"slow\"]\nfn b() { dbg!(1); unimplemented!() }\n";
        assert_eq!(
            findings(check, &[("a.rs", text)]),
            [
                "a.rs:2: todo! is banned",
                "a.rs:4: #[ignore is banned",
                "a.rs:5: dbg! is banned",
                "a.rs:5: unimplemented! is banned",
            ]
        );
        assert!(findings(check, &[("a.rs", "// todo!\nlet x = \"dbg!\"; my_todo!();\n")]).is_empty());
    }

    /// Goal: a path of one machine or a registry host fails in any text.
    #[test]
    fn machine_places_fail() {
        for (first, second, _) in ANYWHERE {
            let text = format!("see \"{first}{second}x\"\n");
            assert_eq!(findings(check, &[("a.toml", &text)]).len(), 1, "{text}");
        }
        let inside = format!("a{}{}b ../ro{}c\n", "/wo", "rk/", "ot/");
        assert!(findings(check, &[("a.md", &inside)]).is_empty());
    }

    /// Goal: a lock file names crates.io alone.
    #[test]
    fn foreign_registries_fail() {
        let lock = format!("{CRATES_IO}\nsource = \"registry+https://mirror.example\"\n");
        let found = findings(check, &[("Cargo.lock", &lock)]);
        assert_eq!(found, ["Cargo.lock:2: foreign registry: source = \"registry+https://mirror.example\""]);
    }

    /// Goal: other than ASCII stands in documents only.
    #[test]
    fn non_ascii_is_for_documents() {
        let found =
            findings(check, &[("a.rs", "// \u{b5}s\n"), ("b.md", "\u{b5}\n"), ("docs/c.txt", "\u{b5}\n")]);
        assert_eq!(found, ["a.rs:1: U+00B5 outside of the documents"]);
    }
}

//! Files and functions that grew too long to be read at one go.

use super::rust::{item_end, line_of, words};
use super::{Report, Tree};

/// Longest source file, in lines. The aim is 600; this is where it stops.
pub const FILE_LINES_MAX: usize = 650;
/// Longest function, in lines from `fn` to its closing brace. The aim is 70.
pub const FUNCTION_LINES_MAX: usize = 80;

/// Source has a length limit; data, documents and licences have none.
const SOURCE: [&str; 5] = [".rs", ".sh", ".py", ".c", ".mk"];

/// Checks both limits.
pub fn check(tree: &Tree, report: &mut Report) {
    for file in &tree.files {
        let source = SOURCE.iter().any(|end| file.path.ends_with(end));
        let lines = file.text.lines().count();
        if (source || matches!(file.name(), "Makefile" | "run")) && lines > FILE_LINES_MAX {
            let what = format!("the file has {lines} lines, more than {FILE_LINES_MAX}");
            report.add(&file.path, FILE_LINES_MAX + 1, what, "cut it where its subjects part");
        }
        for (name, line, lines) in functions(&file.code) {
            if lines > FUNCTION_LINES_MAX {
                let what = format!("function {name} has {lines} lines, more than {FUNCTION_LINES_MAX}");
                report.add(&file.path, line, what, "give its steps functions of their own");
            }
        }
    }
}

/// Name, first line and number of lines of every function with a body.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let rest = code[at + 2..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if name.is_empty() {
            continue;
        }
        let end = item_end(code, at);
        let first = line_of(code, at);
        found.push((name, first, line_of(code, end) - first + 1));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    /// Goal: the line after the limit is one too many, in source only.
    #[test]
    fn long_files_fail() {
        let long = "\n".repeat(FILE_LINES_MAX + 1);
        let fits = "\n".repeat(FILE_LINES_MAX);
        let files = [("a.rs", long.as_str()), ("b.rs", &fits), ("c.toml", &long), ("Makefile", &long)];
        let found = findings(check, &files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("Makefile:651:") && found[1].starts_with("a.rs:651:"), "{found:?}");
    }

    /// Goal: a function is measured from `fn` to its own closing brace, named with its line.
    #[test]
    fn long_functions_fail() {
        let body =
            |lines: usize| format!("\n\nfn long(x: [u8; 2]) {{{}}}\nfn short() {{}}\n", "\n".repeat(lines));
        let over = body(FUNCTION_LINES_MAX);
        let found = findings(check, &[("a.rs", &over)]);
        assert_eq!(found, ["a.rs:3: function long has 81 lines, more than 80"]);
        let fits = body(FUNCTION_LINES_MAX - 1);
        assert!(findings(check, &[("a.rs", &fits)]).is_empty());
    }

    /// Goal: a brace in a string or a comment, a declaration and a function type do not mislead.
    #[test]
    fn only_functions_are_measured() {
        let gap = "\n".repeat(FUNCTION_LINES_MAX + 1);
        let code = format!(
            "trait T {{ fn declared(&self); {gap} }}\nfn f() {{ \"{{\"; }} // {{\n{gap}type F = fn(u8) -> u8;{gap}"
        );
        assert!(findings(check, &[("a.rs", &code)]).is_empty());
    }
}

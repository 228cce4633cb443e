//! Vocabulary, rules and model stay free of `std`, so that they run the same in the simulator.

use super::arrows::{is_pure, layer};
use super::manifest::packages;
use super::rust::{line_of, test_regions, words};
use super::{Report, Tree};

/// Checks the attribute in each such crate, and that only tests bring `std` back.
pub fn check(tree: &Tree, report: &mut Report) {
    for manifest in packages(tree) {
        if !layer(&manifest.name).is_some_and(is_pure) {
            continue;
        }
        let root = format!("{}src/lib.rs", manifest.directory());
        match tree.file(&root) {
            None => report.add(manifest.path, 1, format!("{root} is missing"), "these crates are libraries"),
            Some(file) if !file.code.contains("#![no_std]") => {
                report.add(&root, 1, format!("{} is not no_std", manifest.name), "add `#![no_std]`");
            }
            Some(_) => {}
        }
        let sources = format!("{}src/", manifest.directory());
        for file in tree.rust().filter(|file| file.path.starts_with(&sources)) {
            let tests = test_regions(&file.code);
            for at in words(&file.code, "extern") {
                let line = line_of(&file.code, at);
                let mut rest = file.code[at..].split_whitespace().skip(1);
                let std = rest.next() == Some("crate")
                    && rest.next().is_some_and(|name| name.trim_end_matches(';') == "std");
                if std && !tests.iter().any(|region| region.contains(&line)) {
                    let what = format!("{} takes std outside of its tests", manifest.name);
                    report.add(&file.path, line, what, "put `#[cfg(test)]` before it, or use core and alloc");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    const META: &str = "[package]\nname = \"skep-meta\"\n";

    fn of(lib: &str) -> Vec<String> {
        findings(check, &[("crates/rules/meta/Cargo.toml", META), ("crates/rules/meta/src/lib.rs", lib)])
    }

    /// Goal: the attribute must be there as code; in a comment it does not count.
    #[test]
    fn attribute_is_required() {
        assert!(of("#![no_std]\nextern crate alloc;\n").is_empty());
        assert_eq!(of("// #![no_std]\n"), ["crates/rules/meta/src/lib.rs:1: skep-meta is not no_std"]);
        assert_eq!(findings(check, &[("crates/rules/meta/Cargo.toml", META)]).len(), 1);
    }

    /// Goal: std comes back for tests only; hands may use it at will.
    #[test]
    fn std_is_for_tests() {
        assert!(of("#![no_std]\n#[cfg(test)]\nextern crate std;\n").is_empty());
        assert_eq!(
            of("#![no_std]\n\nextern  crate std;\n"),
            ["crates/rules/meta/src/lib.rs:3: skep-meta takes std outside of its tests"]
        );
        assert_eq!(of("#![no_std]\nextern crate std as s;\n").len(), 1);
        let net = "[package]\nname = \"skep-net\"\n";
        assert!(findings(check, &[("n/Cargo.toml", net), ("n/src/lib.rs", "extern crate std;")]).is_empty());
    }
}

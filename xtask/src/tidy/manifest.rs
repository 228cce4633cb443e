//! The Cargo.toml of each crate: which crates it names, and that it takes the workspace's lints.

use super::{Report, Tree};

/// Which table a dependency stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Part of the program.
    Normal,
    /// For tests and build scripts only.
    Development,
}

/// What a check needs to know of a Cargo.toml.
#[derive(Debug, Default)]
pub struct Manifest<'a> {
    /// Its path.
    pub path: &'a str,
    /// Name of the package; empty in a bare workspace root.
    pub name: String,
    /// Packages it depends on, with the line of each.
    pub dependencies: Vec<(String, Kind, usize)>,
    /// Lines on which it takes test support of another crate, not for tests only.
    pub testing: Vec<usize>,
    /// Whether it says `[lints] workspace = true`.
    pub workspace_lints: bool,
}

impl Manifest<'_> {
    /// The directory of the crate, with a slash at its end.
    pub fn directory(&self) -> &str {
        self.path.trim_end_matches("Cargo.toml")
    }
}

/// Every package of the tree.
pub fn packages(tree: &Tree) -> Vec<Manifest<'_>> {
    let manifests = tree.files.iter().filter(|file| file.name() == "Cargo.toml");
    manifests.map(|file| parse(&file.path, &file.text)).filter(|found| !found.name.is_empty()).collect()
}

/// Reads the few lines of a Cargo.toml that matter here.
fn parse<'a>(path: &'a str, text: &str) -> Manifest<'a> {
    let mut manifest = Manifest { path, ..Manifest::default() };
    let mut table = String::new();
    for (line, raw) in text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
        if let Some(header) = raw.strip_prefix('[') {
            table = header.trim_start_matches('[').split(']').next().unwrap_or("").trim().to_owned();
            // `[dependencies.name]`
            if let Some((kind, Some(name))) = dependency_table(&table) {
                manifest.dependencies.push((name.to_owned(), kind, line));
            }
            continue;
        }
        let Some((key, value)) = raw.split_once('=') else { continue };
        if raw.starts_with('#') {
            continue;
        }
        let (key, value) = (key.trim(), value.trim());
        match (table.as_str(), key) {
            ("package", "name") => manifest.name = value.trim_matches('"').to_owned(),
            ("lints", "workspace") => manifest.workspace_lints = value.starts_with("true"),
            _ => {}
        }
        match dependency_table(&table) {
            Some((Kind::Normal, _)) if value.contains("\"testing\"") => manifest.testing.push(line),
            _ => {}
        }
        match dependency_table(&table) {
            Some((kind, None)) => {
                let name = key.split('.').next().unwrap_or(key).trim_matches('"');
                manifest.dependencies.push((renamed(value).unwrap_or(name).to_owned(), kind, line));
            }
            Some((kind, Some(_))) if key == "package" => {
                manifest.dependencies.push((value.trim_matches('"').to_owned(), kind, line));
            }
            _ => {}
        }
    }
    manifest
}

/// Kind of a dependency table, and the dependency when the header itself names it.
fn dependency_table(table: &str) -> Option<(Kind, Option<&str>)> {
    for (word, kind) in [
        ("dev-dependencies", Kind::Development),
        ("build-dependencies", Kind::Development),
        ("dependencies", Kind::Normal),
    ] {
        let Some(at) = table.find(word) else { continue };
        let before = &table[..at];
        if !before.is_empty() && !before.starts_with("target.") {
            return None;
        }
        return Some((kind, table[at + word.len()..].strip_prefix('.').map(|name| name.trim_matches('"'))));
    }
    None
}

/// The package behind `name = { package = "...", ... }`.
fn renamed(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("package")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    rest.split('"').next()
}

/// Checks that every crate takes the lints of the workspace, and that no test support is built into the product.
pub fn check(tree: &Tree, report: &mut Report) {
    for manifest in packages(tree) {
        let proves = manifest.path.starts_with("crates/proof/") || manifest.path.starts_with("xtask/");
        for line in manifest.testing.iter().filter(|_| !proves) {
            let what = format!("{} takes test support into the product", manifest.name);
            report.add(manifest.path, *line, what, "ask for the feature in [dev-dependencies]");
        }
        if !manifest.workspace_lints {
            let what = format!("{} does not take the workspace's lints", manifest.name);
            report.add(manifest.path, 1, what, "add `[lints]` with `workspace = true`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    /// Goal: every way to write a dependency is seen, with its kind and line.
    #[test]
    fn dependencies_are_found() {
        let text = "[package]\nname = \"skep-x\"\n[dependencies]\nskep-types.workspace = true\n# no = 1\n\
                    a = { path = \"..\", package = \"skep-a\" }\n[dev-dependencies.skep-b]\npath = \"..\"\n\
                    [target.'cfg(unix)'.dependencies]\nc = \"1\"\n[workspace.dependencies]\nd = \"1\"\n";
        let manifest = parse("crates/x/Cargo.toml", text);
        assert_eq!(manifest.name, "skep-x");
        let expected = [
            ("skep-types", Kind::Normal, 4),
            ("skep-a", Kind::Normal, 6),
            ("skep-b", Kind::Development, 7),
            ("c", Kind::Normal, 10),
        ];
        let expected: Vec<_> = expected.iter().map(|(n, k, l)| ((*n).to_owned(), *k, *l)).collect();
        assert_eq!(manifest.dependencies, expected);
    }

    /// Goal: test support is for tests, and for proof.
    #[test]
    fn test_support_stays_out_of_the_product() {
        let text = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n[dependencies]\n\
                    b = { workspace = true, features = [\"testing\"] }\n[dependencies.c]\n\
                    features = [\"testing\"]\n[dev-dependencies]\n\
                    d = { workspace = true, features = [\"testing\"] }\n";
        let found =
            findings(check, &[("crates/hands/a/Cargo.toml", text), ("crates/proof/a/Cargo.toml", text)]);
        assert_eq!(
            found,
            [6, 8].map(|line| format!(
                "crates/hands/a/Cargo.toml:{line}: a takes test support into the product"
            ))
        );
    }

    /// Goal: a crate without the workspace's lints fails, one with them and a bare workspace pass.
    #[test]
    fn lints_must_be_the_workspaces() {
        let without = "[package]\nname = \"a\"\n[lints.rust]\nunsafe_code = \"allow\"\n";
        let with = "[package]\nname = \"b\"\n[lints]\nworkspace = true\n";
        let root = "[workspace]\nmembers = []\n";
        let found =
            findings(check, &[("a/Cargo.toml", without), ("b/Cargo.toml", with), ("Cargo.toml", root)]);
        assert_eq!(found, ["a/Cargo.toml:1: a does not take the workspace's lints"]);
    }
}

//! Dependencies point one way: vocabulary <- rules <- hands <- programs; rules never on each other.

use super::manifest::{Kind, packages};
use super::{Report, Tree};

/// What a crate is for, which decides on what it may depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Nouns and messages.
    Vocabulary,
    /// Protocol logic without clock, thread, socket or file.
    Rules,
    /// The oracle of the tests.
    Oracle,
    /// Network, disk, FUSE.
    Hands,
    /// What is known about machines and measured on them, without knowing this system's messages.
    Knowledge,
    /// What is installed.
    Program,
    /// What proves the rest.
    Proof,
}

/// Every crate: its name, its layer and the crates of the workspace it may depend on.
const CRATES: [(&str, Layer, Crates); 28] = [
    ("skep-types", Layer::Vocabulary, &[]),
    ("skep-wire", Layer::Vocabulary, &[&["skep-types"]]),
    ("skep-rows", Layer::Vocabulary, &[&["skep-types"]]),
    ("skep-cluster", Layer::Rules, &[VOCABULARY]),
    ("skep-meta", Layer::Rules, &[VOCABULARY]),
    ("skep-storage", Layer::Rules, &[VOCABULARY]),
    ("skep-client", Layer::Rules, &[VOCABULARY]),
    ("skep-model", Layer::Oracle, &[&["skep-types"]]),
    ("skep-ring", Layer::Hands, &[]),
    // One thread can serve FUSE and sockets together, so both know the ring.
    ("skep-net", Layer::Hands, &[VOCABULARY, RULES, &["skep-ring"]]),
    ("skep-disk", Layer::Hands, &[VOCABULARY, RULES]),
    ("skep-fuse", Layer::Hands, &[VOCABULARY, RULES, &["skep-ring"]]),
    ("skep-bench", Layer::Knowledge, &[]),
    ("skep-plan", Layer::Knowledge, &[]),
    ("skep-tune", Layer::Knowledge, &[]),
    ("skep-survey", Layer::Knowledge, &[&["skep-bench"]]),
    ("skep-base", Layer::Program, &[VOCABULARY, RULES, HANDS, KNOWLEDGE]),
    ("skep-instruments", Layer::Program, &[VOCABULARY, RULES, HANDS, KNOWLEDGE, &["skep-base"]]),
    (
        "skep-measure",
        Layer::Program,
        &[VOCABULARY, RULES, HANDS, KNOWLEDGE, &["skep-base", "skep-instruments"]],
    ),
    (
        "skep-admin",
        Layer::Program,
        &[VOCABULARY, RULES, HANDS, KNOWLEDGE, &["skep-base", "skep-instruments"]],
    ),
    // mgmtd carries out over HTTP what administrators may do, and a mount shows what they see.
    (
        "skep-daemons",
        Layer::Program,
        &[VOCABULARY, RULES, HANDS, KNOWLEDGE, &["skep-base", "skep-instruments", "skep-admin"]],
    ),
    ("skep", Layer::Program, &[VOCABULARY, RULES, HANDS, KNOWLEDGE, PROGRAM]),
    ("skep-sim", Layer::Proof, &[VOCABULARY, RULES, &["skep-model"]]),
    ("skep-conform", Layer::Proof, &[]),
    ("skep-rig", Layer::Proof, &[&["skep-types", "skep-model"]]),
    ("skep-fuzz", Layer::Proof, &[VOCABULARY, RULES, HANDS, KNOWLEDGE, PROGRAM, PROOF]),
    ("skep-suites", Layer::Proof, &[VOCABULARY, RULES, HANDS, KNOWLEDGE, PROGRAM, PROOF]),
    ("xtask", Layer::Proof, &[&["skep-rig"]]),
];

/// Groups of crates.
type Crates = &'static [&'static [&'static str]];

const VOCABULARY: &[&str] = &["skep-types", "skep-wire", "skep-rows"];
const RULES: &[&str] = &["skep-cluster", "skep-meta", "skep-storage", "skep-client"];
const HANDS: &[&str] = &["skep-ring", "skep-net", "skep-disk", "skep-fuse"];
const KNOWLEDGE: &[&str] = &["skep-bench", "skep-plan", "skep-tune", "skep-survey"];
/// But for `skep`, which ties them together.
const PROGRAM: &[&str] = &["skep-base", "skep-instruments", "skep-measure", "skep-admin", "skep-daemons"];
const PROOF: &[&str] = &["skep-model", "skep-sim", "skep-conform", "skep-rig"];

/// What tests of any crate may use besides what its program may.
const IN_TESTS: &[&str] = &["skep-model"];
/// What tests of the programs may use besides.
const IN_TESTS_OF_PROGRAMS: &[&str] = PROOF;

/// Crates of others that bring clocks, sockets, files or randomness: for hands and programs only.
const OF_THE_HANDS: [&str; 13] = [
    "rustix",
    "io-uring",
    "libc",
    "nix",
    "snow",
    "fjall",
    "getrandom",
    "rand",
    "tokio",
    "compio",
    "clap",
    "toml",
    "serde_json",
];

/// The layer of a package, if it is known.
pub fn layer(package: &str) -> Option<Layer> {
    CRATES.iter().find(|(name, ..)| *name == package).map(|(_, layer, _)| *layer)
}

/// Every crate that must do without `std`.
pub fn pure_crates() -> impl Iterator<Item = &'static str> {
    CRATES.iter().filter(|(_, layer, _)| is_pure(*layer)).map(|(name, ..)| *name)
}

/// True for crates that must do without `std`.
pub fn is_pure(layer: Layer) -> bool {
    matches!(layer, Layer::Vocabulary | Layer::Rules | Layer::Oracle)
}

/// Checks every arrow.
pub fn check(tree: &Tree, report: &mut Report) {
    for manifest in packages(tree) {
        let Some((_, layer, allowed)) = CRATES.iter().find(|(name, ..)| *name == manifest.name) else {
            let what = format!("{} has no place among the layers", manifest.name);
            report.add(manifest.path, 1, what, "give it one in xtask/src/tidy/arrows.rs");
            continue;
        };
        for (dependency, kind, line) in &manifest.dependencies {
            let ours = CRATES.iter().any(|(name, ..)| name == dependency);
            let extra = match (kind, layer) {
                (Kind::Normal, _) => &[][..],
                (Kind::Development, Layer::Program) => IN_TESTS_OF_PROGRAMS,
                (Kind::Development, _) => IN_TESTS,
            };
            let itself = *kind == Kind::Development && *dependency == manifest.name;
            let mut may = allowed.iter().copied().flatten().chain(extra);
            if ours && !itself && !may.any(|name| name == dependency) {
                let what = format!("{} ({layer:?}) must not depend on {dependency}", manifest.name);
                let fix = "move what is needed down a layer, or let the caller pass it in (docs/design/README.md, \"2. Boundaries\", 5)";
                report.add(manifest.path, *line, what, fix);
            }
            if *kind == Kind::Normal && is_pure(*layer) && OF_THE_HANDS.contains(&dependency.as_str()) {
                let what = format!("{} ({layer:?}) must not depend on {dependency}", manifest.name);
                report.add(manifest.path, *line, what, "leave the outside world to a hands crate");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    fn manifest(name: &str, dependencies: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[dependencies]\n{dependencies}")
    }

    /// Goal: every kind of wrong arrow is found, with its line.
    #[test]
    fn wrong_arrows_fail() {
        for (name, dependency) in [
            ("skep-types", "skep-wire"),
            ("skep-wire", "skep-meta"),
            ("skep-meta", "skep-storage"),
            ("skep-client", "skep-net"),
            ("skep-model", "skep-wire"),
            ("skep-disk", "skep-net"),
            ("skep-net", "skep-model"),
            ("skep", "skep-sim"),
            ("skep-base", "skep-admin"),
            ("skep-measure", "skep-admin"),
            ("skep-admin", "skep-daemons"),
            ("skep-sim", "skep-disk"),
            ("skep-conform", "skep-types"),
            ("skep-suites", "skep-fuzz"),
            ("xtask", "skep-meta"),
            ("skep-cluster", "rustix"),
            ("skep-wire", "getrandom"),
        ] {
            let text = manifest(name, &format!("{dependency}.workspace = true\n"));
            let found = findings(check, &[("crates/x/Cargo.toml", &text)]);
            assert_eq!(found.len(), 1, "{name} -> {dependency}: {found:?}");
            assert!(found[0].starts_with("crates/x/Cargo.toml:4: ") && found[0].contains(dependency));
        }
    }

    /// Goal: right arrows pass, the oracle in tests too; an unknown crate must be placed first.
    #[test]
    fn right_arrows_pass() {
        let good = manifest("skep-meta", "skep-types.workspace = true\nsiphasher.workspace = true\n");
        let tests = format!("{good}[dev-dependencies]\nskep-model.workspace = true\n");
        let disk = manifest("skep-disk", "skep-meta.workspace = true\nrustix.workspace = true\n");
        assert!(findings(check, &[("a/Cargo.toml", &tests), ("b/Cargo.toml", &disk)]).is_empty());
        let rules = format!("{good}[dev-dependencies]\nskep-client.workspace = true\n");
        assert_eq!(findings(check, &[("a/Cargo.toml", &rules)]).len(), 1);
        let unknown = manifest("skep-new", "");
        assert_eq!(
            findings(check, &[("a/Cargo.toml", &unknown)]),
            ["a/Cargo.toml:1: skep-new has no place among the layers"]
        );
    }
}

//! `cargo xtask notices`: writes THIRD-PARTY.md, the notices that must go with the program.
//!
//! Who is offered the licence of this project takes it: its text is in LICENSE. All others have their texts in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const FILE: &str = "THIRD-PARTY.md";
/// The licence of this project.
const OURS: &str = "Apache-2.0";
/// The platform that is released.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// How names of files with licences begin, in capitals.
const LICENCE_FILES: [&str; 4] = ["LICEN", "COPYING", "UNLICENSE", "COPYRIGHT"];

/// Whether to write.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only say whether the file is as it must be.
    #[arg(long)]
    check: bool,
}

/// A crate of others that the program is made of.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Foreign {
    name: String,
    version: String,
    licence: String,
    /// What must be handed on.
    texts: Vec<String>,
}

/// Writes the file, or compares; true when it is as it must be.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let text = page(&foreign(&metadata(root)?)?);
    let path = root.join(FILE);
    if !arguments.check {
        fs::write(&path, &text).map_err(|e| format!("{FILE}: {e}"))?;
        println!("{FILE}: {} lines", text.lines().count());
        return Ok(true);
    }
    let current = fs::read_to_string(&path).unwrap_or_default();
    let differs = current.lines().zip(text.lines()).find(|(is, must)| is != must);
    let same = current == text;
    if let (false, Some((is, must))) = (same, differs) {
        println!("{FILE} says: {is}\nit must say: {must}");
    }
    if !same {
        println!("{FILE} does not say what Cargo.lock does: cargo xtask notices");
    }
    println!("{} passed, {} failed", u8::from(same), u8::from(!same));
    Ok(same)
}

fn metadata(root: &Path) -> Result<Value, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM]);
    let output = cargo.current_dir(root).output().map_err(|e| format!("{cargo:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{cargo:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("{cargo:?}: {e}"))
}

/// What `skep` depends on, tests and build scripts left out.
fn foreign(metadata: &Value) -> Result<Vec<Foreign>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let id = |value: &Value| value["id"].as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<_, _> = list(&metadata["packages"]).into_iter().map(|p| (id(&p), p)).collect();
    let nodes: BTreeMap<_, _> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|n| (id(&n), n)).collect();
    let program = packages.iter().find(|(_, package)| package["name"] == "skep");
    let mut waiting = vec![program.ok_or("cargo knows no package skep")?.0.clone()];
    let mut seen = BTreeSet::new();
    while let Some(next) = waiting.pop() {
        for dependency in nodes.get(&next).map(|node| list(&node["deps"])).unwrap_or_default() {
            if list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                waiting
                    .extend(dependency["pkg"].as_str().filter(|id| !seen.contains(*id)).map(str::to_owned));
            }
        }
        seen.insert(next);
    }
    let others = packages.iter().filter(|(id, package)| seen.contains(*id) && !package["source"].is_null());
    let mut found: Vec<Foreign> = others.map(|(_, package)| one(package)).collect::<Result<_, _>>()?;
    found.sort();
    Ok(found)
}

fn one(package: &Value) -> Result<Foreign, String> {
    let word = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let (name, licence) = (word("name"), word("license"));
    let directory = Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent();
    let entries = fs::read_dir(directory.unwrap_or(Path::new(""))).map_err(|e| format!("{name}: {e}"))?;
    let mut files: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        let title = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_licence = LICENCE_FILES.iter().any(|word| title.starts_with(word));
        // A file NOTICE must go with what is taken under this project's licence as well.
        if title.starts_with("NOTICE") || (is_licence && !offers_ours(&licence)) {
            let text = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            texts.push(tidied(&String::from_utf8_lossy(&text)));
        }
    }
    Ok(Foreign { name, version: word("version"), licence, texts })
}

/// Whether it may be taken under the licence of this project alone.
fn offers_ours(licence: &str) -> bool {
    !licence.contains("AND") && licence.replace('/', " OR ").split(" OR ").any(|one| one.trim() == OURS)
}

/// Without what differs between copies of one text: spaces at the ends of lines, empty lines around it.
fn tidied(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

fn page(all: &[Foreign]) -> String {
    let mut page = String::from(
        "# Third-party notices\n\n\
         What `skep` is made of besides its own sources; `cargo xtask notices` writes this page, `make test` checks it.\n\
         Whatever offers Apache-2.0 is taken under it; its text is in [LICENSE](LICENSE). Texts of all others are below.\n\n\
         | crate | version | licence |\n| --- | --- | --- |\n",
    );
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Foreign { name, version, licence, texts: own } in all {
        let _ = writeln!(page, "| {name} | {version} | {licence} |");
        for text in own {
            texts.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|a, b| (&a.1, a.0).cmp(&(&b.1, b.0)));
    for (text, names) in texts {
        let _ = write!(page, "\n## {}\n\n~~~text\n{text}\n~~~\n", names.join(", "));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what may be taken under this project's licence is told from what may not.
    #[test]
    fn choice_of_licence() {
        for ours in ["Apache-2.0", "MIT OR Apache-2.0", "MIT/Apache-2.0", "Apache-2.0 OR GPL-2.0-only"] {
            assert!(offers_ours(ours), "{ours}");
        }
        for other in ["MIT", "ISC AND (Apache-2.0 OR ISC)", "Apache-2.0 WITH LLVM-exception", ""] {
            assert!(!offers_ours(other), "{other}");
        }
    }

    /// Goal: crates of tests and of this tree are left out; equal texts stand once, with all who have them.
    #[test]
    fn what_is_listed() {
        let metadata = r#"{"packages": [
            {"id": "s", "name": "skep", "source": null}, {"id": "w", "name": "skep-wire", "source": null},
            {"id": "a", "name": "a", "version": "1.0.0", "license": "MIT OR Apache-2.0", "source": "r", "manifest_path": "/x.toml"},
            {"id": "t", "name": "t", "version": "1.0.0", "license": "MIT", "source": "r", "manifest_path": "/x.toml"}],
            "resolve": {"nodes": [{"id": "s", "deps": [{"pkg": "w", "dep_kinds": [{"kind": null}]},
            {"pkg": "t", "dep_kinds": [{"kind": "dev"}]}]}, {"id": "w", "deps": [{"pkg": "a", "dep_kinds": [{"kind": null}]}]}]}}"#;
        let found = foreign(&serde_json::from_str(metadata).unwrap()).unwrap();
        assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a"]);
        let with = |name: &str| Foreign {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            licence: "MIT".to_owned(),
            texts: vec![tidied("\nPermission  \nis granted\n\n")],
        };
        let page = page(&[with("a"), with("b")]);
        assert!(
            page.contains(
                "| b | 1.2.3 | MIT |\n\n## a 1.2.3, b 1.2.3\n\n~~~text\nPermission\nis granted\n~~~\n"
            ),
            "{page}"
        );
    }
}

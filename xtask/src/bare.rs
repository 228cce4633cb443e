//! `cargo xtask bare`: vocabulary, rules and model in a program without `std`, without libc and with nothing below it.
//!
//! For the bare-metal target where the toolchain has it; otherwise for this machine, with a linker that is told to bring no
//! library. Either way the compiler must refuse a second program, which names `std`: so much for whether it can fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tidy::pure_crates;

/// Nothing at all below a program.
const TARGET: &str = "x86_64-unknown-none";
/// What a linker must be told on a target that has a system.
const NO_LIBRARY: [&str; 4] =
    ["-Clink-arg=-nostdlib", "-Clink-arg=-nostartfiles", "-Clink-arg=-static", "-Crelocation-model=static"];
/// Why what names `std` is refused: here its panic handler is a second one, for bare metal there is none.
const NO_STD: [&str; 2] = ["panic_impl", "can't find crate for `std`"];
const PROGRAM: &str = "xtask/src/bare/program.rs";

/// Builds and links; true when only what has `std` is refused.
pub fn run(root: &Path) -> Result<bool, String> {
    let target = has_target(root)?.then_some(TARGET);
    if target.is_none() {
        println!(
            "==> NOT FOR BARE METAL: this toolchain has no {TARGET}; linked for this machine, without any library,"
        );
        println!("==> instead. To have it: rustup target add {TARGET}");
    }
    let libraries = build(root, target)?;
    let scratch = crate::target_directory(root).join("bare");
    fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let mut failed = 0;
    for (name, with_std) in [("without std", false), ("with std, which must be refused", true)] {
        let output = link(root, target, &libraries, &scratch, with_std)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let refused = !output.status.success() && NO_STD.iter().any(|why| said.contains(why));
        let good = if with_std { refused } else { output.status.success() };
        println!("{} {} crates {name}", if good { "ok  " } else { "FAIL" }, libraries.len());
        if !good {
            failed += 1;
            println!("{said}");
        }
    }
    println!("{} passed, {failed} failed", 2 - failed);
    Ok(failed == 0)
}

/// Whether the toolchain has `core` and `alloc` for it.
fn has_target(root: &Path) -> Result<bool, String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(root);
    let output = rustc.output().map_err(|e| format!("{rustc:?}: {e}"))?;
    Ok(output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// A library of the tree, and where cargo put it.
struct Library {
    name: String,
    path: PathBuf,
}

/// Builds each crate that claims to do without `std`.
fn build(root: &Path, target: Option<&str>) -> Result<Vec<Library>, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--message-format", "json-render-diagnostics"]).current_dir(root);
    cargo.args(target.iter().flat_map(|target| ["--target", target]));
    cargo.args(pure_crates().flat_map(|name| ["--package", name]));
    let output =
        cargo.stderr(std::process::Stdio::inherit()).output().map_err(|e| format!("{cargo:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{cargo:?}: {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let libraries: Vec<_> = messages.lines().filter_map(library).collect();
    let expected = pure_crates().count();
    if libraries.len() == expected {
        Ok(libraries)
    } else {
        Err(format!("cargo built {} libraries, not {expected}", libraries.len()))
    }
}

/// The library of this tree that a message of cargo tells of.
fn library(message: &str) -> Option<Library> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let name = message["target"]["name"].as_str()?.replace('-', "_");
    let mut files = message["filenames"].as_array()?.iter().filter_map(serde_json::Value::as_str);
    let path = PathBuf::from(files.find(|file| file.ends_with(".rlib"))?);
    pure_crates().any(|known| known.replace('-', "_") == name).then_some(Library { name, path })
}

fn link(
    root: &Path,
    target: Option<&str>,
    libraries: &[Library],
    scratch: &Path,
    with_std: bool,
) -> Result<std::process::Output, String> {
    let mut source = fs::read_to_string(root.join(PROGRAM)).map_err(|e| format!("{PROGRAM}: {e}"))?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "--crate-name", "bare", "-Cpanic=abort", "--check-cfg=cfg(with_std)"]);
    match target {
        Some(target) => rustc.args(["--target", target]),
        None => rustc.args(NO_LIBRARY),
    };
    if with_std {
        rustc.args(["--cfg", "with_std"]);
    }
    for Library { name, path } in libraries {
        source.push_str(&format!("extern crate {name};\n"));
        rustc.arg("--extern").arg(format!("{name}={}", path.display()));
        let directory = path.parent().unwrap_or(root);
        // Cargo puts a copy beside the directory of all libraries.
        for directory in [directory.to_owned(), directory.join("deps")] {
            rustc.arg("-L").arg(format!("dependency={}", directory.display()));
        }
    }
    let main = scratch.join("main.rs");
    fs::write(&main, source).map_err(|e| format!("{}: {e}", main.display()))?;
    rustc.arg(&main).arg("-o").arg(scratch.join("bare")).current_dir(root);
    rustc.output().map_err(|e| format!("{rustc:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: libraries of the tree are told from those of others.
    #[test]
    fn libraries_are_found() {
        let line =
            |name: &str, file: &str| format!(r#"{{"target":{{"name":"{name}"}},"filenames":["{file}"]}}"#);
        let found = library(&line("skep_meta", "/t/debug/libskep_meta.rlib")).unwrap();
        assert_eq!(
            (found.name.as_str(), found.path),
            ("skep_meta", PathBuf::from("/t/debug/libskep_meta.rlib"))
        );
        assert!(library(&line("siphasher", "/t/debug/deps/libsiphasher.rlib")).is_none());
        assert!(library(&line("skep_meta", "/t/debug/deps/libskep_meta.rmeta")).is_none());
        assert!(library(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}

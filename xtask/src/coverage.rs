//! `cargo xtask coverage`: which lines of the rules their unit tests reach.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde_json::Value;

/// The compiler with counters.
const COMPILER: &str = "xtask/src/coverage/instrumented";
/// What is measured when nothing is named.
const RULES: [&str; 4] = ["skep-cluster", "skep-meta", "skep-storage", "skep-client"];

/// What to measure.
#[derive(clap::Args)]
pub struct Arguments {
    /// Packages below crates/rules; none: all.
    packages: Vec<String>,
}

/// Builds with counters, runs, and prints a table; true when all tests passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let tools = Tools::find(root)?;
    let named: Vec<&str> = arguments.packages.iter().map(String::as_str).collect();
    let packages = if named.is_empty() { &RULES[..] } else { &named };
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["crate", "lines", "reached", "share"]);
    for package in packages {
        let directory = format!("crates/rules/{}/src/", package.trim_start_matches("skep-"));
        let (lines, reached) = measure(root, &tools, package, &directory)?;
        let share = 100.0 * reached as f64 / (lines as f64).max(1.0);
        table.add_row([
            (*package).to_owned(),
            lines.to_string(),
            reached.to_string(),
            format!("{share:.1} %"),
        ]);
    }
    println!("{table}");
    Ok(true)
}

/// Of the compiler's own LLVM, or of one as new: an older one does not read what the compiler writes.
struct Tools {
    profdata: PathBuf,
    cov: PathBuf,
}

impl Tools {
    fn find(root: &Path) -> Result<Self, String> {
        let said = |arguments: &[&str]| -> Result<String, String> {
            let mut rustc = Command::new("rustc");
            let output =
                rustc.args(arguments).current_dir(root).output().map_err(|e| format!("rustc: {e}"))?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let libraries = said(&["--print", "target-libdir"])?;
        let version = said(&["-vV"])?;
        let version =
            version.lines().find_map(|line| line.strip_prefix("LLVM version: ")).unwrap_or_default();
        let major = version.split('.').next().unwrap_or_default();
        let own = Path::new(&libraries).with_file_name("bin");
        let apt = PathBuf::from(format!("/usr/lib/llvm-{major}/bin"));
        let directory = [own, apt].into_iter().find(|directory| directory.join("llvm-cov").is_file());
        let directory = directory.ok_or(format!(
            "llvm-profdata and llvm-cov of LLVM {major} are missing: rustup component add llvm-tools, or apt-get install llvm-{major}"
        ))?;
        Ok(Self { profdata: directory.join("llvm-profdata"), cov: directory.join("llvm-cov") })
    }
}

/// Lines of a package and those that its tests reached.
fn measure(root: &Path, tools: &Tools, package: &str, directory: &str) -> Result<(u64, u64), String> {
    let scratch = crate::target_directory(root).join("coverage").join(package);
    // Numbers of an earlier run must not count.
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--quiet", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.args(["--package", package, "--lib", "--tests"]).current_dir(root);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", root.join(COMPILER));
    let built = text(&mut cargo)?;
    let programs: Vec<PathBuf> = built.lines().filter_map(program).collect();
    for program in &programs {
        let mut test = Command::new(program);
        test.arg("--quiet").env("LLVM_PROFILE_FILE", scratch.join("%p-%m.profraw"));
        // Where cargo would run it.
        text(test.current_dir(root.join(directory).with_file_name("")))?;
    }
    let merged = scratch.join("all.profdata");
    let raw = fs::read_dir(&scratch).map_err(|e| e.to_string())?.flatten().map(|entry| entry.path());
    text(Command::new(&tools.profdata).args(["merge", "--sparse", "-o"]).arg(&merged).args(raw))?;
    let mut cov = Command::new(&tools.cov);
    cov.args(["export", "--format=lcov", "--ignore-filename-regex=tests?.rs|/tests?/|/testing|formats.rs"]);
    cov.arg(format!("--instr-profile={}", merged.display()));
    for (number, program) in programs.iter().enumerate() {
        cov.args((number > 0).then_some("--object")).arg(program);
    }
    Ok(count(&text(&mut cov)?, directory, |file| fs::read_to_string(file).unwrap_or_default()))
}

/// What a program prints.
fn text(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = [output.stdout, output.stderr].concat();
        Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&said)))
    }
}

/// The test program that a message of cargo tells of.
fn program(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    message["executable"].as_str().filter(|_| is_test).map(PathBuf::from)
}

/// Lines with code and lines reached, in files below `directory`; modules of tests do not count.
fn count(lcov: &str, directory: &str, source: impl Fn(&str) -> String) -> (u64, u64) {
    let (mut lines, mut reached) = (0, 0);
    // The first line of the tests of the file; none while its lines are not wanted.
    let mut tests = None;
    for record in lcov.lines() {
        if let Some(file) = record.strip_prefix("SF:") {
            let begin = || {
                source(file).lines().position(|line| line.starts_with("#[cfg(test)]")).unwrap_or(usize::MAX)
            };
            tests = file.contains(directory).then(begin);
        } else if let (Some(data), Some(tests)) = (record.strip_prefix("DA:"), tests)
            && let Some((line, times)) = data.split_once(',')
            && line.parse().is_ok_and(|line: usize| line <= tests)
        {
            lines += 1;
            reached += u64::from(times != "0");
        }
    }
    (lines, reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines of the crate count, those of other crates and of its tests do not.
    #[test]
    fn lines_are_counted() {
        let lcov = "SF:/t/crates/rules/meta/src/a.rs\nDA:1,0\nDA:2,7\nDA:4,9\nend_of_record\n\
                    SF:/t/crates/vocabulary/types/src/b.rs\nDA:1,5\nend_of_record\n";
        let source = |_: &str| "fn a() {}\nfn b() {}\n#[cfg(test)]\nmod tests {}\n".to_owned();
        assert_eq!(count(lcov, "crates/rules/meta/src/", source), (2, 1));
    }
}

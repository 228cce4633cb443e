//! A compiler and a linker: this project's vocabulary crates, source and output on the mount.

use super::Stage;
use super::shell::{must, same};

pub fn run(stage: &Stage<'_>) -> Result<String, String> {
    let tests = "CARGO_TARGET_DIR=$PWD/out cargo test --offline --locked -q -p skep-types -p skep-wire -p skep-rows 2>&1";
    must(&stage.work, &format!("git clone -q '{}' source", stage.root.display()))?;
    let said = must(&stage.work, &format!("cd source; export CARGO_TARGET_DIR=; {tests}"))?;
    if said.contains("FAILED") || !said.contains("test result: ok") {
        return Err(said);
    }
    // Nothing changed: nothing is compiled again (the build tool compares modification times).
    let again = must(
        &stage.work,
        "cd source; CARGO_TARGET_DIR=$PWD/out cargo build --offline --locked -p skep-types --tests 2>&1",
    )?;
    same("crates compiled again", &again.matches("Compiling").count().to_string(), "0")?;
    Ok("cargo test of three crates, built and run on the mount; a second build compiles nothing".to_owned())
}

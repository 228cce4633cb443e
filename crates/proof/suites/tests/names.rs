//! The command line of the suites.

use std::process::Command;

/// What the program prints when it is asked for help.
fn help(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_skep-suites")).args(words).arg("--help").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Goal: every suite is found by its name and says what it does and takes. (clap looks for contradictions among the
/// arguments of those only that are called.)
#[test]
fn every_suite_explains_itself() {
    let all = help(&[]);
    let commands = all.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<&str> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 15 && names.contains(&"conform") && names.contains(&"crash"), "{names:?}");
    for name in names.iter().filter(|name| **name != "help") {
        let text = help(&[name]);
        assert!(text.contains(&format!("Usage: cargo xtask {name}")), "{text}");
    }
}

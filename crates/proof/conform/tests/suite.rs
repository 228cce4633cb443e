//! The suite over the local file system, and proof that it can fail.

use skep_conform::runner::{Options, run};
use skep_conform::{Report, table};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

/// A directory of this test, removed when it ends.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("skep-conform-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh directory");
        Place(path)
    }

    fn options(&self) -> Options {
        Options::new(self.0.clone())
    }

    /// Everything the suite left behind.
    fn rest(&self) -> usize {
        std::fs::read_dir(&self.0).expect("lists").count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run_text(place: &Place, text: &str) -> Report {
    run(table::from_text(text).expect("the table of the test loads"), &place.options()).expect("runs")
}

fn binary(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_skep-conform")).args(arguments).output().expect("starts")
}

/// Goal: the committed table holds on the local file system, is as large as promised and leaves nothing.
#[test]
fn passes_on_the_local_file_system() {
    let place = Place::new("local");
    let options = Options { jobs: 2, ..place.options() };
    let report = run(table::all().expect("loads"), &options).expect("runs");
    assert!(report.clean(), "{}", report.table());
    assert!(report.passed >= 900, "only {} cases", report.passed);
    assert_eq!(place.rest(), 0, "the suite left something behind");
}

/// Goal: every kind of expectation and assertion can fail: each of these rows is wrong on purpose.
#[test]
fn wrong_expectations_are_reported() {
    const WRONG: &[(&str, &str, &str)] = &[
        ("mkdir d 0755", "EPERM", ""),
        ("rmdir d", "ok", ""),
        ("rmdir d", "ENOTDIR", ""),
        ("write h text", "ok:5", ""),
        ("chmod f 0600", "ok", "lstat f mode=0644"),
        ("chmod f 0600", "ok", "lstat f type=dir"),
        ("chmod f 0600", "ok", "lstat f uid=u1"),
        ("chmod f 0600", "ok", "lstat f size=1"),
        ("chmod f 0600", "ok", "lstat f nlink=2"),
        ("chmod f 0600", "ok", "lstat f mtime=1.2"),
        ("chmod f 0600", "ok", "moved f mtime"),
        ("chmod f 0600", "ok", "kept f ctime"),
        ("chmod f 0600", "ok", "list . f g"),
        ("chmod f 0600", "ok", "list ."),
        ("chmod f 0600", "ok", "content f other"),
        ("chmod f 0600", "ok", "absent f"),
        ("chmod f 0600", "ok", "same f ."),
        ("chmod f 0600", "ok", "differ f f"),
        ("utimensat cwd f 1.2 3.4", "ok", "near-now f mtime"),
        ("chmod f 0600", "ok", "@u2 open f O_RDONLY"),
        ("chmod f 0600", "ok", "open f O_RDONLY => EACCES"),
        ("chmod nowhere 0600", "ok", ""),
        ("fchmod nobody 0600", "EBADF", ""),
    ];
    let mut text = "call = 'wrong'\n".to_owned();
    for (n, (call, expect, check)) in WRONG.iter().enumerate() {
        let checks = if check.is_empty() { String::new() } else { format!("'{check}'") };
        text += &format!(
            "[[case]]\nname = 'n{n:02}'\nsetup = ['file f', 'open f O_RDWR as=h']\ncall = '{call}'\nexpect = '{expect}'\nchecks = [{checks}]\n"
        );
    }
    let place = Place::new("wrong");
    let report = run_text(&place, &text);
    let failed: Vec<&str> = report.failures.iter().map(|f| f.case.as_str()).collect();
    let all: Vec<String> = (0..WRONG.len()).map(|n| format!("wrong/n{n:02}")).collect();
    assert_eq!(failed, all, "{}", report.table());
    assert_eq!(report.passed, 0);
    assert_eq!(place.rest(), 0, "a failed case left something behind");
}

/// Goal: a call that never returns is a failure after the deadline, and the run goes on.
#[test]
fn a_hanging_case_fails() {
    let place = Place::new("hang");
    let text = "call = 'x'\n[[case]]\nname = 'a'\nsetup = ['mkfifo p 0600']\ncall = 'open p O_RDONLY'\n\
                [[case]]\nname = 'b'\ncall = 'mkdir d 0755'\n";
    let options = Options { deadline: Duration::from_secs(1), ..place.options() };
    let report = run(table::from_text(text).expect("loads"), &options).expect("runs");
    assert_eq!(report.passed, 1);
    assert_eq!(report.failures.len(), 1);
    assert!(report.failures[0].happened.contains("none within 1 s"), "{}", report.table());
}

/// Goal: the program lists, filters, leaves out only what it is told and says so, and its exit codes hold.
#[test]
fn the_program_keeps_its_word() {
    let place = Place::new("program");
    let dir = place.0.to_str().expect("a plain path");
    let listed = binary(&["--list"]);
    let ids = String::from_utf8_lossy(&listed.stdout).lines().count();
    assert!(listed.status.success() && ids >= 900, "{ids} listed");
    let sample = binary(&["--list", "--every", "4"]);
    assert_eq!(String::from_utf8_lossy(&sample.stdout).lines().count(), ids.div_ceil(4));

    let one = binary(&["--dir", dir, "--filter", "mkdir/times-are-now"]);
    let text = String::from_utf8_lossy(&one.stdout).into_owned();
    assert!(one.status.success() && text == "1 passed, 0 failed\n", "{text}");

    let out = binary(&["--dir", dir, "--filter", "rmdir/dot/", "--unsupported", "rmdir/dot"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("left out as --unsupported says: rmdir/dot/path=."), "{text}");
    assert!(text.ends_with("\n0 passed, 0 failed\n"), "{text}");

    let some = binary(&["--dir", dir, "--filter", "mkdir/owner/user", "--every", "4"]);
    assert_eq!(String::from_utf8_lossy(&some.stdout), "2 passed, 0 failed\n");

    let json = binary(&["--dir", dir, "--filter", "mkdir/owner/user", "--output", "json"]);
    assert!(String::from_utf8_lossy(&json.stdout).contains("\"passed\": 5"));

    for wrong in [
        vec!["--dir", dir, "--filter", "no-such-case"],
        vec!["--dir", dir, "--unsupported", "no/such"],
        vec!["--dir", "/no/such/directory"],
    ] {
        let out = binary(&wrong);
        assert_eq!(out.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

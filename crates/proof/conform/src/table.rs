//! The committed table and its expansion into single cases.
//!
//! A file holds the cases of one call. `each` and `table` multiply a case: every `{name}` in its strings is
//! replaced; a `~` in a value stands for a blank. `form` entries say how the call is written; the files under `cases/every/` hold what POSIX
//! demands of every call that takes a path or changes a directory, and are applied to the forms by tag.

use crate::step::{Expect, Step};
use crate::users::User;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// One runnable case.
#[derive(Clone, Debug)]
pub struct Case {
    /// `call/name/variable=value...`, unique.
    pub id: String,
    /// Capabilities without which the case cannot be run.
    pub needs: Vec<String>,
    /// Which errno, file kind or script it is.
    pub body: Body,
}

/// What a case does.
#[derive(Clone, Debug)]
pub enum Body {
    /// Steps from the table.
    Steps {
        /// Preparation, as root unless a step says otherwise.
        setup: Vec<Step>,
        /// The call under test.
        call: Box<Step>,
        /// What must hold afterwards.
        checks: Vec<Step>,
    },
    /// A case the table cannot express.
    Script(crate::scripts::Script),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    call: String,
    #[serde(default)]
    form: Vec<Form>,
    #[serde(default)]
    case: Vec<Row>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    name: String,
    step: String,
    #[serde(default)]
    setup: Vec<String>,
    /// The step that makes the object at `{P}`, for the shared rows that want one there.
    target: Option<String>,
    #[serde(default)]
    needs: Vec<String>,
    tags: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    setup: Vec<String>,
    user: Option<String>,
    call: Option<String>,
    #[serde(default = "ok")]
    expect: String,
    #[serde(default)]
    checks: Vec<String>,
    #[serde(default)]
    each: BTreeMap<String, String>,
    #[serde(default)]
    table: Vec<Columns>,
    #[serde(default)]
    needs: Vec<String>,
    /// Shared rows only: the tag of the forms the row is for.
    #[serde(rename = "for")]
    tag: Option<String>,
    /// Shared rows only: the path put into the form's `{P}`.
    path: Option<String>,
    /// Shared rows only: the form's target is made at the path.
    #[serde(default)]
    target: bool,
    /// Shared rows only: steps after the target was made.
    #[serde(default)]
    settle: Vec<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    columns: String,
    rows: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    case: Vec<Row>,
}

fn ok() -> String {
    "ok".to_owned()
}

macro_rules! embed {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../cases/", $name, ".toml")))),*] };
}

/// The calls, one file each.
const CALLS: &[(&str, &str)] = embed!(
    "access",
    "acl",
    "chmod",
    "chown",
    "copy_file_range",
    "directory",
    "fallocate",
    "fsync",
    "link",
    "locks",
    "mkdir",
    "mknod",
    "names",
    "open",
    "read_write",
    "readlink",
    "rename",
    "rmdir",
    "stat",
    "statfs",
    "symlink",
    "tmpfile",
    "truncate",
    "unlink",
    "utimensat",
    "xattr",
);

/// What holds for many calls alike.
const SHARED: &[(&str, &str)] = embed!("every/path", "every/parent");

/// The whole table, expanded, with the scripted cases.
pub fn all() -> Result<Vec<Case>, String> {
    let mut shared = Vec::new();
    for (name, text) in SHARED {
        let file: Shared = toml::from_str(text).map_err(|e| format!("cases/{name}.toml: {e}"))?;
        shared.extend(file.case);
    }
    let mut cases = Vec::new();
    for (name, text) in CALLS {
        load(text, &shared, &mut cases).map_err(|e| format!("cases/{name}.toml: {e}"))?;
    }
    for script in crate::scripts::ALL.iter().copied() {
        cases.push(Case {
            id: script.id.to_owned(),
            needs: script.needs.iter().map(|n| (*n).to_owned()).collect(),
            body: Body::Script(*script),
        });
    }
    let mut seen = BTreeSet::new();
    match cases.iter().find(|c| !seen.insert(&c.id)) {
        Some(twice) => Err(format!("case {:?} is in the table twice: give one another name", twice.id)),
        None => Ok(cases),
    }
}

/// Expands one file of the table, given as text, without the shared rows: for tests of the suite itself.
pub fn from_text(text: &str) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    load(text, &[], &mut cases)?;
    Ok(cases)
}

fn load(text: &str, shared: &[Row], cases: &mut Vec<Case>) -> Result<(), String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    for row in &file.case {
        multiply(&file.call, row, cases)?;
    }
    for form in &file.form {
        let tags: Vec<&str> = form.tags.split_whitespace().collect();
        for row in shared.iter().filter(|r| r.tag.as_deref().is_some_and(|t| tags.contains(&t))) {
            let path =
                row.path.as_deref().ok_or_else(|| format!("shared row {:?} lacks a path", row.name))?;
            let put = |s: &String| s.replace("{P}", path);
            let mut row = row.clone();
            row.name = format!("{}/{}", form.name, row.name);
            row.setup.extend(form.setup.iter().cloned());
            if row.target {
                row.setup.extend(form.target.iter().cloned());
            }
            row.setup.append(&mut row.settle);
            row.needs.extend(form.needs.iter().cloned());
            row.setup = row.setup.iter().map(put).collect();
            row.checks = row.checks.iter().map(put).collect();
            row.call = Some(put(&form.step));
            (row.tag, row.path, row.target) = (None, None, false);
            multiply(&file.call, &row, cases)?;
        }
    }
    Ok(())
}

/// The sets of variables a row is run with: the cross product of its `each` lists and its tables.
fn bindings(row: &Row) -> Result<Vec<Vec<(String, String)>>, String> {
    let mut factors: Vec<Vec<Vec<(String, String)>>> = Vec::new();
    for (name, values) in &row.each {
        factors.push(values.split_whitespace().map(|v| vec![(name.clone(), v.to_owned())]).collect());
    }
    for table in &row.table {
        let columns: Vec<&str> = table.columns.split_whitespace().collect();
        let mut factor = Vec::new();
        for line in &table.rows {
            let values: Vec<&str> = line.split_whitespace().collect();
            if values.len() != columns.len() {
                return Err(format!(
                    "case {:?}: row {line:?} does not have {} columns",
                    row.name,
                    columns.len()
                ));
            }
            factor.push(columns.iter().zip(values).map(|(c, v)| ((*c).to_owned(), v.to_owned())).collect());
        }
        factors.push(factor);
    }
    let mut out = vec![Vec::new()];
    for factor in factors {
        out = out
            .iter()
            .flat_map(|head| factor.iter().map(move |tail| [head.as_slice(), tail.as_slice()].concat()))
            .collect();
    }
    Ok(out)
}

fn multiply(call: &str, row: &Row, cases: &mut Vec<Case>) -> Result<(), String> {
    if row.tag.is_some() || row.path.is_some() || row.target || !row.settle.is_empty() {
        return Err(format!(
            "case {:?}: 'for', 'path', 'target' and 'settle' belong into cases/shared",
            row.name
        ));
    }
    for binding in bindings(row)? {
        let mut id = format!("{call}/{}", row.name);
        for (name, value) in &binding {
            id.push_str(&format!("/{name}={value}"));
        }
        let once = |text: String| {
            binding
                .iter()
                .fold(text, |t, (name, value)| t.replace(&format!("{{{name}}}"), &value.replace('~', " ")))
        };
        // twice: a value may itself hold a variable
        let put = |text: &str| once(once(text.to_owned()));
        cases.push(single(&id, row, &put).map_err(|e| format!("case {id:?}: {e}"))?);
    }
    Ok(())
}

fn single(id: &str, row: &Row, put: &dyn Fn(&str) -> String) -> Result<Case, String> {
    let steps = |lines: &[String]| {
        lines.iter().map(|l| checked(&put(l), None, Expect::Ok)).collect::<Result<Vec<_>, String>>()
    };
    let user = match &row.user {
        Some(name) => {
            let name = put(name);
            Some(User::named(&name).ok_or_else(|| format!("unknown user {name:?}"))?)
        }
        None => None,
    };
    let call = row.call.as_deref().ok_or("no call")?;
    Ok(Case {
        id: id.to_owned(),
        needs: row.needs.iter().map(|n| put(n)).collect(),
        body: Body::Steps {
            setup: steps(&row.setup)?,
            call: Box::new(checked(&put(call), user, Expect::parse(&put(&row.expect))?)?),
            checks: steps(&row.checks)?,
        },
    })
}

fn checked(line: &str, user: Option<User>, expect: Expect) -> Result<Step, String> {
    if line.contains(['{', '}']) {
        return Err(format!("step {line:?} has a variable nobody sets"));
    }
    let step = Step::parse(line, user, expect)?;
    if crate::calls::find(&step.verb).is_none() {
        return Err(format!("unknown call {:?} in step {line:?}", step.verb));
    }
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the committed table loads, is as large as promised, names only known capabilities.
    #[test]
    fn committed_table_loads() {
        let cases = all().expect("the committed table loads");
        assert!(cases.len() >= 900, "only {} cases", cases.len());
        for case in &cases {
            for need in &case.needs {
                assert!(crate::capability::known(need), "{}: unknown capability {need}", case.id);
            }
        }
    }

    /// Goal: `each` and `table` multiply, and every variable is replaced.
    #[test]
    fn rows_multiply() {
        let text = r#"
            call = "chmod"
            [[case]]
            name = "x"
            user = "{who}"
            call = "chmod f {mode}"
            expect = "{want}"
            each = { mode = "0600 0644 0755" }
            [[case.table]]
            columns = "who want"
            rows = ["u1 ok", "u2 EPERM"]
        "#;
        let cases = from_text(text).expect("expands");
        assert_eq!(cases.len(), 6);
        assert!(cases.iter().any(|c| c.id == "chmod/x/mode=0644/who=u2/want=EPERM"));
    }

    /// Goal: mistakes in the table are refused when it is loaded, with the place.
    #[test]
    fn mistakes_are_refused() {
        for bad in ["chmood f 0644", "chmod {x} 0644", "@u99 chmod f 0644", ""] {
            let text = format!("call = 'chmod'\n[[case]]\nname = 'x'\ncall = '{bad}'\n");
            let error = from_text(&text).expect_err("must be refused");
            assert!(error.contains("chmod/x"), "{error}");
        }
        assert!(from_text("call = 'x'\n[[case]]\nname = 'x'\ncoll = 'y'\n").is_err());
    }
}

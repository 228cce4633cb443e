//! Checks documents against the committed schemas: the few words of JSON Schema that those use, strictly.
//! A word that is not known here is an error, so that nothing is passed over.

use serde_json::Value;
use std::path::Path;

/// Words that say something to people only.
const WORDS: [&str; 6] = ["$schema", "$defs", "title", "description", "format", "default"];

/// The schema with this name.
pub fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../docs/schemas/{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Panics with the place where `document` is not as the schema says.
pub fn check(name: &str, document: &Value) {
    let root = schema(name);
    if let Err(what) = fits(&root, &root, document, "") {
        panic!("{name}: {what}\n{document:#}");
    }
}

/// Like [`check`], of one element of a list: a line of ndjson.
pub fn check_element(name: &str, line: &Value) {
    let root = schema(name);
    if let Err(what) = fits(&root, &root["items"], line, "") {
        panic!("{name}: {what}\n{line:#}");
    }
}

fn fits(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let words = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Object(words) => words,
        _ => return Err(format!("{at}: not a schema: {schema}")),
    };
    let wrong = |what: &str| Err(format!("{at}: {what}"));
    for (word, said) in words {
        match word.as_str() {
            "type" => {
                let named = |name: &Value| name.as_str().is_some_and(|name| is_of(name, value));
                let types = said.as_array().cloned().unwrap_or_else(|| vec![said.clone()]);
                if !types.iter().any(named) {
                    return wrong(&format!("{value} is not {said}"));
                }
            }
            "properties" => properties(root, said, value, at)?,
            "required" => {
                let missing = |name: &&Value| name.as_str().is_some_and(|name| value.get(name).is_none());
                if let Some(name) = said.as_array().unwrap().iter().find(missing) {
                    return wrong(&format!("{name} is missing"));
                }
            }
            "additionalProperties" => {}
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    fits(root, said, item, &format!("{at}[{n}]"))?;
                }
            }
            "minimum" if value.as_f64().is_some_and(|number| number < said.as_f64().unwrap()) => {
                return wrong("too small");
            }
            "maximum" if value.as_f64().is_some_and(|number| number > said.as_f64().unwrap()) => {
                return wrong("too large");
            }
            "minimum" | "maximum" => {}
            "const" if said != value => return wrong(&format!("{value} is not {said}")),
            "enum" if !said.as_array().unwrap().contains(value) => {
                return wrong(&format!("{value} is none of {said}"));
            }
            "const" | "enum" => {}
            "anyOf" | "oneOf" => {
                if !said.as_array().unwrap().iter().any(|one| fits(root, one, value, at).is_ok()) {
                    return wrong(&format!("{value} is none of {word}"));
                }
            }
            "$ref" => {
                let target = root.pointer(said.as_str().unwrap().trim_start_matches('#'));
                fits(root, target.ok_or(format!("{said} is not there"))?, value, at)?;
            }
            other if WORDS.contains(&other) => {}
            other => return Err(format!("the check does not know {other}")),
        }
    }
    Ok(())
}

/// Fields that a released schema does not know would be news to every reader: they are errors here.
fn properties(root: &Value, said: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (name, field) in value.as_object().into_iter().flatten() {
        let schema = said.get(name).ok_or(format!("{at}: the schema does not know {name}"))?;
        fits(root, schema, field, &format!("{at}.{name}"))?;
    }
    Ok(())
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// Goal: the check itself finds every kind of fault, or the tests that use it prove nothing.
#[test]
fn faults_are_found() {
    use serde_json::json;
    let good = json!([{"id": 1, "alias": "a", "service": "metad", "state": "online", "silent_ms": null}]);
    let root = schema("session-list");
    let session = json!([{"client": 7, "host": "h", "mount": "/m", "silent_ms": null}]);
    assert_eq!(fits(&root, &root, &session, ""), Ok(()));
    for wrong in [
        good,
        json!({}),
        json!([{"client": 7, "host": "h", "mount": "/m"}]).pointer("/0").unwrap().clone(),
        json!([{"client": "7", "host": "h", "mount": "/m", "silent_ms": null}]),
        json!([{"client": -1, "host": "h", "mount": "/m", "silent_ms": null}]),
        json!([{"client": 7, "host": "h", "silent_ms": null}]),
        json!([{"client": 7, "host": "h", "mount": "/m", "silent_ms": null, "new": 1}]),
    ] {
        assert!(fits(&root, &root, &wrong, "").is_err(), "{wrong}");
    }
    assert!(fits(&root, &json!({"pattern": "x"}), &json!("x"), "").is_err(), "an unknown word");
}

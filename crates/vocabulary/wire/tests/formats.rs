//! Messages of this release and of those before it: their bytes stand in `crates/vocabulary/wire/formats`.

use skep_types::limits::FORMAT;
use std::fs;

/// Goal: messages that a release sent are read by every later one, and mean the same.
#[test]
fn messages_stay_readable() {
    let formats = skep_wire::formats::all();
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/formats");
    let own = format!("{dir}/{FORMAT}.txt");
    if std::env::var_os("SKEP_WRITE_FIXTURES").is_some() {
        fs::create_dir_all(dir).unwrap();
        fs::write(&own, formats.text()).unwrap();
    }
    for file in fs::read_dir(dir).unwrap().flatten() {
        let text = fs::read_to_string(file.path()).unwrap();
        formats.reads(&text).unwrap_or_else(|e| panic!("{}: {e}", file.path().display()));
    }
    formats.is(&fs::read_to_string(&own).unwrap()).unwrap();
}

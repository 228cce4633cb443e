//! The schemas of what commands and the API answer, below docs/schemas.
//!
//! They follow from the types. After a change of one: `SKEP_WRITE_SCHEMAS=1 cargo test -p skep schemas`.

use crate::admin::{df, entry_info, health, node, pool, session, stats, target};
use crate::http::documents;
use crate::up;
use schemars::{Schema, schema_for};
use std::path::Path;

fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("df", schema_for!(Vec<df::SpaceRow>)),
        ("entry-info", schema_for!(Vec<entry_info::EntryInfo>)),
        ("health", schema_for!(Vec<health::Check>)),
        ("node-list", schema_for!(Vec<node::NodeRow>)),
        ("pool-list", schema_for!(Vec<pool::PoolRow>)),
        ("session-list", schema_for!(Vec<session::SessionRow>)),
        ("stats", schema_for!(Vec<stats::CounterRow>)),
        ("stats-watch", schema_for!(Vec<stats::RateRow>)),
        ("status", schema_for!(up::UpStatus)),
        ("target-list", schema_for!(Vec<target::TargetRow>)),
        ("cluster", schema_for!(up::ClusterSummary)),
        ("done", schema_for!(documents::Done)),
        ("error", schema_for!(documents::ErrorDocument)),
        ("map", schema_for!(documents::MapDocument)),
        ("body-alias", schema_for!(documents::AliasBody)),
        ("body-new-pool", schema_for!(documents::NewPoolBody)),
        ("body-pool", schema_for!(documents::PoolBody)),
        ("body-state", schema_for!(documents::StateBody)),
    ]
}

/// Goal: the committed schemas are those of the types, and there are no others.
#[test]
fn schemas_are_those_of_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let write = std::env::var_os("SKEP_WRITE_SCHEMAS").is_some();
    let mut names = Vec::new();
    for (name, schema) in all() {
        let path = dir.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if write {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, text, "{name}: run SKEP_WRITE_SCHEMAS=1 cargo test -p skep schemas");
        names.push(format!("{name}.json"));
    }
    for entry in std::fs::read_dir(&dir).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(names.contains(&name), "{name} is the schema of nothing");
    }
}

//! The schemas of what commands and the API answer, below docs/schemas.
//!
//! They follow from the types. After a change of one: `SKEP_WRITE_SCHEMAS=1 cargo test -p skep schemas`.

use clap::CommandFactory;
use schemars::{Schema, schema_for};
use skep_admin::{api, up};
use skep_admin::{df, entry_info, entry_set, health, node, pool, session, shard, stats, target};
use skep_base::http::ErrorDocument;
use skep_measure::tune;
use std::path::Path;

fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("bench-run", schema_for!(Vec<skep_bench::result::Document>)),
        ("bench-net-pairs", schema_for!(Vec<skep_measure::bench::net::PairsReport>)),
        ("bench-storage", schema_for!(Vec<skep_measure::bench::storage::StorageReport>)),
        ("df", schema_for!(Vec<df::SpaceRow>)),
        ("entry-info", schema_for!(Vec<entry_info::EntryInfo>)),
        ("entry-set", schema_for!(Vec<entry_set::SetRow>)),
        ("health", schema_for!(Vec<health::Check>)),
        ("node-list", schema_for!(Vec<node::NodeRow>)),
        ("plan", schema_for!(Vec<skep_plan::forward::Forecast>)),
        ("plan-catalogue", schema_for!(Vec<skep_plan::catalogue::Listing>)),
        ("plan-propose", schema_for!(Vec<skep_plan::propose::Proposals>)),
        ("plan-reproduction", schema_for!(Vec<skep_plan::reproduction::Reproduction>)),
        ("plan-scale", schema_for!(Vec<skep_plan::scale::Report>)),
        ("pool-list", schema_for!(Vec<pool::PoolRow>)),
        ("shard-list", schema_for!(Vec<shard::ShardRow>)),
        ("session-list", schema_for!(Vec<session::SessionRow>)),
        ("stats", schema_for!(Vec<stats::CounterRow>)),
        ("stats-watch", schema_for!(Vec<stats::RateRow>)),
        ("status", schema_for!(up::UpStatus)),
        ("target-list", schema_for!(Vec<target::TargetRow>)),
        ("survey", schema_for!(Vec<skep_survey::model::Survey>)),
        ("survey-compare", schema_for!(Vec<skep_survey::compare::Comparison>)),
        ("survey-sweep", schema_for!(Vec<skep_measure::survey::sweep::PlaceRow>)),
        ("tune-auto", schema_for!(Vec<tune::CandidateRow>)),
        ("tune-check", schema_for!(Vec<tune::SettingRow>)),
        ("cluster", schema_for!(up::ClusterSummary)),
        ("done", schema_for!(api::Done)),
        ("error", schema_for!(ErrorDocument)),
        ("map", schema_for!(api::MapDocument)),
        ("body-alias", schema_for!(api::AliasBody)),
        ("body-new-pool", schema_for!(api::NewPoolBody)),
        ("body-pool", schema_for!(api::PoolBody)),
        ("body-state", schema_for!(api::StateBody)),
    ]
}

/// The schema of each command that prints documents. Commands that change something print what they
/// changed, as the lists do.
const COMMANDS: &[(&str, &str)] = &[
    ("bench elbencho", "bench-run"),
    ("bench files", "bench-run"),
    ("bench fio", "bench-run"),
    ("bench io", "bench-run"),
    ("bench ior", "bench-run"),
    ("bench iozone", "bench-run"),
    ("bench job", "bench-run"),
    ("bench mdtest", "bench-run"),
    ("bench meta", "bench-run"),
    ("bench net pairs", "bench-net-pairs"),
    ("bench net run", "bench-run"),
    ("bench storage run", "bench-storage"),
    ("bench storage status", "bench-storage"),
    ("bench storage stop", "bench-storage"),
    ("df", "df"),
    ("entry info", "entry-info"),
    ("entry set", "entry-set"),
    ("health", "health"),
    ("node list", "node-list"),
    ("node remove", "node-list"),
    ("node set-alias", "node-list"),
    ("plan", "plan"),
    ("plan catalogue", "plan-catalogue"),
    ("plan propose", "plan-propose"),
    ("plan reproduction", "plan-reproduction"),
    ("plan scale", "plan-scale"),
    ("pool assign", "pool-list"),
    ("pool create", "pool-list"),
    ("pool delete", "pool-list"),
    ("pool list", "pool-list"),
    ("pool rename", "pool-list"),
    ("pool set-limits", "pool-list"),
    ("session list", "session-list"),
    ("shard list", "shard-list"),
    ("stats", "stats"),
    ("status", "status"),
    ("survey", "survey"),
    ("survey compare", "survey-compare"),
    ("survey sweep", "survey-sweep"),
    ("target list", "target-list"),
    ("target remove", "target-list"),
    ("target set-alias", "target-list"),
    ("target set-state", "target-list"),
    ("tune auto", "tune-auto"),
    ("tune check", "tune-check"),
];

fn printing(command: &clap::Command, path: &str, found: &mut Vec<String>) {
    if command.get_arguments().any(|argument| argument.get_id() == "output") {
        found.push(path.to_owned());
    }
    for below in command.get_subcommands() {
        printing(below, format!("{path} {}", below.get_name()).trim_start(), found);
    }
}

/// Goal: every command with --output has a schema, and the manual says which.
#[test]
fn every_command_has_a_schema() {
    let mut found = Vec::new();
    printing(&crate::cli::Cli::command(), "", &mut found);
    found.sort();
    assert_eq!(found, COMMANDS.iter().map(|(command, _)| (*command).to_owned()).collect::<Vec<_>>());
    let manual = include_str!("../../../../docs/schemas/README.md");
    for (command, schema) in COMMANDS {
        let row = format!("| `skep {command}` | [{schema}.json]({schema}.json) |");
        assert!(manual.contains(&row), "docs/schemas/README.md lacks: {row}");
    }
}

/// Goal: the committed schemas are those of the types, and there are no others.
#[test]
fn schemas_are_those_of_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schemas");
    let write = std::env::var_os("SKEP_WRITE_SCHEMAS").is_some();
    let mut names = vec!["README.md".to_owned()];
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

//! Tests of the layers, over the real services.

use super::super::address::Address;
use super::super::metad::{Chooser, StripeTargets, Sync};
use super::super::{MetadConfig, MgmtdConfig, MountConfig, StoragedConfig};
use super::*;
use crate::units::{Period, Size};

const PATH: &str = "/etc/skep/metad.toml";

fn vars(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn sets(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn metad(text: &str, environment: &[(&str, &str)], flags: &[&str]) -> Result<MetadConfig, String> {
    assemble::<MetadConfig>(Some((Path::new(PATH), text)), &vars(environment), &sets(flags))
        .map(|loaded| loaded.config)
        .map_err(|error| error.to_string())
}

/// The shipped file with its defaults in force: lines that begin with `#` and no space.
fn uncommented(shipped: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => key.to_owned(),
        _ => line.to_owned(),
    };
    shipped.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn shipped_file_is_the_defaults<S: Service + PartialEq + core::fmt::Debug>() {
    let untouched: Table = toml::from_str(S::SHIPPED).expect("the shipped file is TOML");
    assert!(untouched.is_empty(), "{}.toml sets a key; comment it", S::NAME);
    let shown: Table = toml::from_str(&uncommented(S::SHIPPED)).expect("its commented lines are TOML");
    let defaults = Table::try_from(S::default()).expect("serializes");
    let keys = |table: &Table| table.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&shown), keys(&defaults), "{}.toml must show every key, and no other", S::NAME);
    assert_eq!(shown.try_into::<S>().expect("types"), S::default(), "{}.toml shows a wrong default", S::NAME);
    for line in S::SHIPPED.lines().filter(|line| !line.is_empty()) {
        assert!(line.starts_with('#'), "{}.toml: {line}", S::NAME);
    }
}

/// Goal: the shipped files show every key of the typed configuration with its true default.
#[test]
fn shipped_files_are_the_defaults() {
    shipped_file_is_the_defaults::<MgmtdConfig>();
    shipped_file_is_the_defaults::<MetadConfig>();
    shipped_file_is_the_defaults::<StoragedConfig>();
    shipped_file_is_the_defaults::<MountConfig>();
}

/// Goal: each layer wins over the one below, and the last flag over earlier ones.
#[test]
fn precedence_is_default_file_environment_flag() {
    let file = "grace = \"1s\"\nsync_interval = \"2ms\"\ncache_size = \"3MiB\"\n";
    let environment = [("SKEP_METAD_SYNC_INTERVAL", "4ms"), ("SKEP_METAD_CACHE_SIZE", "5MiB")];
    let config = metad(file, &environment, &["cache_size=6MiB", "cache-size=7MiB"]).expect("loads");
    assert_eq!(config.inline_limit, Size::kib(8));
    assert_eq!(config.grace, Period::secs(1));
    assert_eq!(config.sync_interval, Period::millis(4));
    assert_eq!(config.cache_size, Size::mib(7));
}

/// Goal: a value of every type arrives from the environment and from a flag as from a file.
#[test]
fn texts_take_the_type_of_their_key() {
    let from_file = metad(
        "insecure = true\nmax_connections = 7\nmgmtd = [\"a:1\", \"unix:/s\"]\nstripe_targets = 4\n\
         sync = \"always\"\nchooser = \"randomized\"\nunix_socket = \"/m\"\nchunk_size = 65536\n",
        &[],
        &[],
    )
    .expect("loads");
    let texts = [
        ("insecure", "1"),
        ("max_connections", "7"),
        ("mgmtd", "a:1, unix:/s"),
        ("stripe_targets", "4"),
        ("sync", "always"),
        ("chooser", "randomized"),
        ("unix_socket", "/m"),
        ("chunk_size", "64KiB"),
    ];
    let names: Vec<String> =
        texts.iter().map(|(key, _)| format!("SKEP_METAD_{}", key.to_uppercase())).collect();
    let environment: Vec<(&str, &str)> =
        names.iter().zip(&texts).map(|(name, (_, value))| (name.as_str(), *value)).collect();
    assert_eq!(metad("", &environment, &[]).as_ref(), Ok(&from_file));
    let flags: Vec<String> = texts.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    assert_eq!(metad("", &[], &flags).as_ref(), Ok(&from_file));
    assert_eq!(metad("", &[], &["mgmtd=[\"a:1\", \"unix:/s\"]"]).expect("loads").mgmtd_text(), "a:1 unix:/s");
    assert_eq!(from_file.stripe_targets, StripeTargets::Fixed(4));
    assert_eq!(from_file.sync, Sync::Always);
    assert_eq!(from_file.chooser, Chooser::Randomized);
}

impl MetadConfig {
    fn mgmtd_text(&self) -> String {
        self.membership.mgmtd.iter().map(Address::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// Goal: an unknown key names file, line and the key that was meant; a table header is one too.
#[test]
fn unknown_keys_are_errors_that_suggest() {
    let error = metad("# a comment\n\nsync_intervall = \"1s\"\n", &[], &[]).expect_err("unknown");
    assert_eq!(
        error,
        "/etc/skep/metad.toml:3: `sync_intervall` is not a key of metad; did you mean `sync_interval`?"
    );
    let error = metad("[metad]\ngrace = \"1s\"\n", &[], &[]).expect_err("unknown");
    assert!(error.starts_with("/etc/skep/metad.toml:1: `metad` is not a key"), "{error}");
    let error = metad("", &[], &["xyzzyxyzzy=1"]).expect_err("unknown");
    assert!(error.contains("--set xyzzyxyzzy=1: ") && error.contains("its keys are alias, "), "{error}");
    let error = metad("", &[], &["grace"]).expect_err("no value");
    assert!(error.contains("--set key=value"), "{error}");
}

/// Goal: a foreign environment variable is a warning, for platforms set such ones unasked.
#[test]
fn unknown_environment_variables_are_warnings() {
    let environment = vars(&[
        ("SKEP_METAD_GRACEE", "1s"),
        ("SKEP_METAD_PORT_7730_TCP_PROTO", "tcp"),
        ("SKEP_STORAGED_RESERVE", "x"),
        ("HOME", "/"),
    ]);
    let loaded = assemble::<MetadConfig>(None, &environment, &[]).expect("loads");
    assert_eq!(loaded.config, MetadConfig::default());
    assert_eq!(loaded.warnings.len(), 2);
    assert!(loaded.warnings[0].ends_with("did you mean SKEP_METAD_GRACE?"), "{:?}", loaded.warnings);
}

/// Goal: a wrong value is blamed on the layer that set it, and all problems come at once.
#[test]
fn wrong_values_name_their_place() {
    let error = metad(
        "grace = \"30\"\nsync = \"never\"\ninsecure = \"maybe\"\nlisten = [\"here\"]\nstripe_targets = 0\n",
        &[("SKEP_METAD_CACHE_SIZE", "4M"), ("SKEP_METAD_MGMTD", "h:0")],
        &["max_connections=many", "chunk_size=-1"],
    )
    .expect_err("wrong");
    for part in [
        "metad.toml:1: `grace`: \"30\" has no unit of time; write \"30s\" or \"30ms\"",
        "metad.toml:2: `sync`: unknown variant `never`, expected `interval` or `always`",
        "metad.toml:3: `insecure`: ",
        "metad.toml:4: `listen`: ",
        "the default is listen = [\"0.0.0.0:7730\"]",
        "metad.toml:5: `stripe_targets`: ",
        "environment variable SKEP_METAD_CACHE_SIZE: `cache_size`: ",
        "environment variable SKEP_METAD_MGMTD: `mgmtd`: ",
        "--set max_connections=many: `max_connections`: ",
        "--set chunk_size=-1: `chunk_size`: ",
    ] {
        assert!(error.contains(part), "missing {part:?} in\n{error}");
    }
    assert_eq!(error.lines().count(), 9, "{error}");
}

/// Goal: a file that is no TOML, or sets a key twice, names the line.
#[test]
fn broken_files_name_the_line() {
    for text in ["grace = \"1s\"\ngrace = \"2s\"\n", "grace = \"1s\"\ncache_size = 5MiB\n", "a = 1\n= 3\n"] {
        let error = metad(text, &[], &[]).expect_err("broken");
        assert!(error.starts_with("/etc/skep/metad.toml:2: "), "{error}");
    }
}

/// Goal: what types cannot say is checked: ranges, powers of two, relations, required keys.
#[test]
fn checks_refuse_what_cannot_work() {
    for (flag, part) in [
        ("chunk_size=96KiB", "not a power of two; set \"128KiB\""),
        ("chunk_size=4KiB", "set \"64KiB\" to \"1GiB\""),
        ("inline_limit=1MiB", "out of range"),
        ("lease_time=1s", "out of range"),
        ("lease_time=5s", "out of range"),
        ("sync_interval=0", "sync = \"always\""),
        ("sync_interval=1h", "at most"),
        ("grace=1d", "at most"),
        ("alias=two words", "is not an alias"),
        ("alias=7", "is not an alias"),
        ("listen=", "nothing can reach"),
        ("mgmtd=", "at least one address"),
        ("heartbeat=0", "too short"),
        ("key_file=", "insecure = true"),
        ("max_connections=0", "set 1 to"),
        ("state_dir=", "name a directory"),
    ] {
        let error = metad("", &[], &[flag]).expect_err(flag);
        assert!(error.starts_with("--set ") && error.contains(part), "{flag}: {error}");
    }
    let long = format!("unix_socket=/{}", "x".repeat(200));
    assert!(metad("", &[], &[long.as_str()]).expect_err("too long").contains("107"));

    let refused =
        |texts: &[&str]| assemble::<MgmtdConfig>(None, &[], &sets(texts)).expect_err("refused").to_string();
    assert!(refused(&["shards=48"]).contains("set 64"));
    assert!(refused(&["shards=0"]).contains("out of range"));
    assert!(refused(&["node_offline=5s"]).contains("more than \"5s\""));
    assert!(refused(&["session_timeout=5s"]).contains("more than \"5s\""));
}

/// Goal: what has no sensible default must be set, and is enough when it is.
#[test]
fn required_keys() {
    let error = assemble::<StoragedConfig>(None, &[], &[]).expect_err("no target").to_string();
    assert!(error.contains("at least one target directory"), "{error}");
    let loaded = assemble::<StoragedConfig>(None, &[], &sets(&["targets=/a,/b"])).expect("loads");
    assert_eq!(loaded.config.targets.len(), 2);
    assert!(assemble::<StoragedConfig>(None, &[], &sets(&["targets=/a,/a"])).is_err());
    let error = assemble::<MountConfig>(None, &[], &[]).expect_err("no mount point").to_string();
    assert!(error.contains("`mount_point` is not set"), "{error}");
    let good = sets(&["mount_point=/mnt", "threads=3", "retry=0"]);
    assert!(assemble::<MountConfig>(None, &[], &good).expect("loads").config.retry.is_zero());
    for bad in [
        "threads=65",
        "max_threads=0",
        "queue_depth=0",
        "transport=tcp",
        "request_size=5000",
        "request_size=2MiB",
        "leases=maybe",
        "cache=1KiB",
        "cache=65GiB",
    ] {
        assert!(assemble::<MountConfig>(None, &[], &sets(&["mount_point=/mnt", bad])).is_err(), "{bad}");
    }
}

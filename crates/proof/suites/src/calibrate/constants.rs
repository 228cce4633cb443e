//! Intervals and limits, read from where the code and the shipped configurations state them.

use std::path::Path;

/// A number with the place where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Key in the calibration.
    pub key: &'static str,
    /// Its value.
    pub value: u64,
    /// File and name.
    pub source: String,
}

/// Key, file, name there: `const NAME: T = value;` of a source, `#name = value` of a shipped configuration.
const PLACES: [(&str, &str, &str); 21] = [
    ("heartbeat_ms", "crates/program/base/config/storaged.toml", "heartbeat"),
    ("answer_limit_ms", "crates/program/base/src/membership.rs", "ANSWER_LIMIT"),
    ("retry_pause_ms", "crates/program/base/src/membership.rs", "RETRY_PAUSE"),
    ("tick_ms", "crates/program/daemons/src/mgmtd/service.rs", "TICK_MAX_MS"),
    ("probably_offline_ms", "crates/rules/cluster/src/limits.rs", "PROBABLY_OFFLINE_MS"),
    ("offline_ms", "crates/rules/cluster/src/limits.rs", "OFFLINE_MS"),
    ("session_timeout_ms", "crates/rules/cluster/src/limits.rs", "SESSION_TIMEOUT_MS"),
    ("capacity_every_ms", "crates/rules/cluster/src/limits.rs", "CAPACITY_EVERY_MS"),
    ("housekeeping_max_ms", "crates/rules/client/src/limits.rs", "HOUSEKEEPING_MAX_MS"),
    ("grace_ms", "crates/program/base/config/metad.toml", "grace"),
    ("shards", "crates/program/base/config/mgmtd.toml", "shards"),
    ("nodes_max", "crates/program/base/config/mgmtd.toml", "max_nodes"),
    ("nodes_highest", "crates/program/base/src/config/mgmtd.rs", "NODES_MAX"),
    ("targets_max", "crates/program/base/config/mgmtd.toml", "max_targets"),
    ("targets_highest", "crates/program/base/src/config/mgmtd.rs", "TARGETS_MAX"),
    ("sessions_max", "crates/program/base/config/mgmtd.toml", "max_sessions"),
    ("sessions_highest", "crates/program/base/src/config/mgmtd.rs", "SESSIONS_MAX"),
    ("metad_sessions_max", "crates/rules/meta/src/limit.rs", "SESSIONS_MAX"),
    ("metad_connections_max", "crates/program/base/config/metad.toml", "max_connections"),
    ("storaged_connections_max", "crates/program/base/config/storaged.toml", "max_connections"),
    ("body_max", "crates/vocabulary/types/src/limits.rs", "BODY_MAX"),
];
/// A session is renewed when this part of its time-out has passed: stands in the code, not in a constant.
const RENEWAL: (&str, &str, u64) =
    ("crates/rules/client/src/housekeeping.rs", "now.since(session.renewed) >= session.timeout_ms / 4", 4);

/// All of them.
pub fn constants(root: &Path) -> Result<Vec<Constant>, String> {
    let mut found = Vec::new();
    for (key, file, name) in PLACES {
        let text = read(root, file)?;
        let value = find(&text, name).ok_or_else(|| {
            format!("{file} does not state {name} in a way that is understood here: mend crates/proof/suites/src/calibrate/constants.rs")
        })?;
        found.push(Constant { key, value, source: format!("{name} of {file}") });
    }
    let (file, line, parts) = RENEWAL;
    if !read(root, file)?.contains(line) {
        return Err(format!(
            "{file} does not hold `{line}` any more: mend crates/proof/suites/src/calibrate/constants.rs"
        ));
    }
    found.push(Constant { key: "renewals_per_timeout", value: parts, source: format!("`renew` of {file}") });
    Ok(found)
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(file)).map_err(|e| format!("{file}: {e}"))
}

fn find(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let line = line.trim();
        let value = match line.strip_prefix('#') {
            Some(setting) => setting.trim().strip_prefix(name)?.trim().strip_prefix('=')?,
            None => {
                let rest = line.trim_start_matches("pub ").trim_start_matches("const ").strip_prefix(name)?;
                rest.strip_prefix(':')?.split_once('=')?.1.trim_end_matches(';')
            }
        };
        number(value.trim())
    })
}

/// `10_000`, `1 << 20`, `Duration::from_secs(5)` and `"15s"`; times are milliseconds.
fn number(text: &str) -> Option<u64> {
    let plain = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    if let Some(inside) = text.strip_prefix("Duration::from_secs(").and_then(|t| t.strip_suffix(')')) {
        return Some(plain(inside)? * 1_000);
    }
    if let Some(inside) = text.strip_prefix("Duration::from_millis(").and_then(|t| t.strip_suffix(')')) {
        return plain(inside);
    }
    if let Some(quoted) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        return match quoted.strip_suffix("ms") {
            Some(ms) => plain(ms),
            None => Some(plain(quoted.strip_suffix('s')?)? * 1_000),
        };
    }
    match text.split_once("<<") {
        Some((one, by)) => plain(one)?.checked_shl(u32::try_from(plain(by)?).ok()?),
        None => plain(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: all ways in which the code writes its numbers are understood, and others are not guessed.
    #[test]
    fn numbers() {
        assert_eq!(number("10_000"), Some(10_000));
        assert_eq!(number("1 << 20"), Some(1 << 20));
        assert_eq!(number("Duration::from_secs(5)"), Some(5_000));
        assert_eq!(number("Duration::from_millis(200)"), Some(200));
        assert_eq!(number("\"75s\""), Some(75_000));
        assert_eq!(number("\"50ms\""), Some(50));
        assert_eq!(number("2 * OTHER"), None);
    }

    /// Goal: the committed calibration states the intervals and limits that the code has now. When this fails, the
    /// code changed: run `cargo xtask calibrate` again.
    #[test]
    fn the_committed_calibration_has_the_codes_numbers() {
        let root = crate::root();
        let committed = read(&root, super::super::FILE).expect("the calibration");
        for constant in constants(&root).expect("the sources") {
            let line = format!("{} = {} ", constant.key, constant.value);
            assert!(committed.contains(&line), "{}: {line}is not in the file", constant.source);
        }
    }
}

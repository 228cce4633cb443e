//! How long each test took the last time, kept beside what cargo builds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds by name.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub struct Times(BTreeMap<String, f64>);

impl Times {
    /// Those of the last runs; empty where there was none.
    pub fn read(root: &Path) -> Self {
        let text = std::fs::read_to_string(path(root)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps them for the next run.
    pub fn write(&self, root: &Path) -> Result<(), String> {
        let path = path(root);
        let text = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// A test took this long.
    pub fn took(&mut self, name: &str, time: Duration) {
        self.0.insert(name.to_owned(), time.as_secs_f64());
    }

    /// In the order that ends soonest: what is not known yet may be long, so it goes first.
    pub fn longest_first(&self, mut names: Vec<String>) -> Vec<String> {
        let time = |name: &String| self.0.get(name).copied().unwrap_or(f64::INFINITY);
        names.sort_by(|a, b| time(b).total_cmp(&time(a)));
        names
    }
}

fn path(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("process-times.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the longest go first, and those that never ran before them.
    #[test]
    fn long_ones_go_first() {
        let mut times = Times::default();
        for (name, seconds) in [("a", 1), ("b", 9), ("c", 3)] {
            times.took(name, Duration::from_secs(seconds));
        }
        let names = ["a", "b", "new", "c"].map(str::to_owned).to_vec();
        assert_eq!(times.longest_first(names), ["new", "b", "c", "a"]);
    }
}

//! How long each test took the last time, kept beside what cargo builds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds that the longest take on two processors, for a tree in which none has run yet: begun last, one of them would run
/// alone at the end.
const LONGEST: &[(&str, f64)] = &[
    ("survey::every_layer", 117.0),
    ("pages::opens_at_the_same_moment_see_the_last_close", 97.0),
    ("survey::hosts_of_clients", 68.0),
    ("signals::a_killed_writer_ends_at_last", 45.0),
    ("survey::a_dead_daemon", 41.0),
    ("opens::set_group_id_goes_with_a_foreign_change", 38.0),
    ("survey::another_program_that_fails_once", 34.0),
    ("locks::one_holder_at_a_time", 31.0),
    ("pages::locks_hold_beside_opens", 29.0),
    ("signals::no_interrupted_calls", 27.0),
    ("survey::another_program", 27.0),
    ("tune::a_directory_is_tuned_by_measurement", 27.0),
    ("away::commands_answer_while_servers_are_away", 26.0),
];

/// What a test is taken to need that nobody has measured: it may be long, so it goes before most.
const UNKNOWN: f64 = 25.0;

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

    /// In the order that ends soonest.
    pub fn longest_first(&self, mut names: Vec<String>) -> Vec<String> {
        let usual =
            |name: &str| LONGEST.iter().find(|(long, _)| *long == name).map_or(UNKNOWN, |(_, time)| *time);
        let time = |name: &String| self.0.get(name).copied().unwrap_or_else(|| usual(name));
        names.sort_by(|a, b| time(b).total_cmp(&time(a)));
        names
    }
}

fn path(root: &Path) -> PathBuf {
    let target = crate::target_directory(root);
    target.join("process-times.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the longest go first, also where none has run, and those that never ran before most.
    #[test]
    fn long_ones_go_first() {
        let mut times = Times::default();
        for (name, seconds) in [("a", 1), ("b", 90), ("c", 3)] {
            times.took(name, Duration::from_secs(seconds));
        }
        let names = ["a", "b", "new", "c", LONGEST[0].0].map(str::to_owned).to_vec();
        assert_eq!(times.longest_first(names), [LONGEST[0].0, "b", "new", "c", "a"]);
    }
}

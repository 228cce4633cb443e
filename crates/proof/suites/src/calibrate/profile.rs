//! What the daemons cost per operation, from a committed report of `cargo xtask bench --profile`.

use serde::Deserialize;
use std::path::Path;

/// The parts of the report that are wanted.
#[derive(Debug, Deserialize)]
pub struct Profiles {
    /// The file.
    #[serde(skip)]
    pub file: String,
    /// When.
    pub date: String,
    /// How.
    pub command: String,
    profiles: Vec<Operation>,
}

#[derive(Debug, Deserialize)]
struct Operation {
    operation: String,
    transport: String,
    us_per_op: f64,
    processes: Vec<Process>,
}

#[derive(Debug, Deserialize)]
struct Process {
    name: String,
    cpu_us: f64,
}

impl Profiles {
    /// Reads the report.
    pub fn read(root: &Path, file: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(root.join(file)).map_err(|e| format!("{file}: {e}"))?;
        let mut read: Self = serde_json::from_str(&text).map_err(|e| format!("{file}: {e}"))?;
        read.file = file.to_owned();
        Ok(read)
    }

    /// Microseconds of CPU of a process per operation, over /dev/fuse.
    pub fn cpu(&self, operation: &str, process: &str) -> Result<f64, String> {
        let found = self.operation(operation)?.processes.iter().find(|p| p.name == process);
        found
            .map(|process| process.cpu_us)
            .ok_or_else(|| format!("{}: {process} is not in the profile of `{operation}`", self.file))
    }

    /// Microseconds that one operation of one process took.
    pub fn took(&self, operation: &str) -> Result<f64, String> {
        self.operation(operation).map(|p| p.us_per_op)
    }

    fn operation(&self, operation: &str) -> Result<&Operation, String> {
        let found = self.profiles.iter().find(|p| p.operation == operation && p.transport == "dev");
        found.ok_or_else(|| format!("{}: no profile of `{operation}`; make one with --profile", self.file))
    }
}

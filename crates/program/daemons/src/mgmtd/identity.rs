//! The identity file of a management service: whose registry a directory holds.

use super::journal::JournalError;
use serde::{Deserialize, Serialize};
use skep_disk::disk::{Disk, OpenMode};
use skep_disk::target::check_format;
use skep_types::limits::FORMAT;
use skep_types::{ClusterId, NamesKey, Uuid};
use std::path::Path;

/// Name of the identity file.
pub const IDENTITY_FILE: &str = "skep-mgmtd.toml";
/// Longest identity or snapshot file that is read.
pub const FILE_MAX: u64 = 256 << 20;
/// What stands at the top of the file.
const COMMENT: &str = "# Whose registry this directory holds. Written by skep mgmtd; do not edit.\n";

/// Who a management service is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, named when its first management service was formatted.
    pub cluster: ClusterId,
    /// This service.
    pub node: Uuid,
    /// Key of the routes of names, made with the cluster.
    pub names: NamesKey,
    /// Metadata shards, fixed.
    pub shards: u16,
    /// The log was made: from now on its absence is a loss.
    pub formatted: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: String,
    cluster: String,
    node: String,
    names: String,
    shards: u16,
    formatted: bool,
}

impl Identity {
    /// Reads the file; `None` when there is none.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, JournalError> {
        let path = dir.join(IDENTITY_FILE);
        let Some(bytes) = read_file(disk, &path)? else { return Ok(None) };
        let wrong = |what: String| {
            JournalError(format!("{}: {what}; restore the file from a backup", path.display()))
        };
        let text = String::from_utf8(bytes).map_err(|e| wrong(e.to_string()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        check_format(table.get("format"))
            .map_err(|what| JournalError(format!("{}: {what}", path.display())))?;
        let text: Text = table.try_into().map_err(|e| wrong(e.to_string()))?;
        let uuid = |text: &str| Uuid::parse(text).ok_or_else(|| wrong(format!("\"{text}\" is no uuid")));
        if !text.shards.is_power_of_two() {
            return Err(wrong(format!("{} shards, not a power of two", text.shards)));
        }
        Ok(Some(Self {
            cluster: uuid(&text.cluster)?,
            node: uuid(&text.node)?,
            names: NamesKey(uuid(&text.names)?.0),
            shards: text.shards,
            formatted: text.formatted,
        }))
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), JournalError> {
        let text = toml::to_string(&Text {
            format: FORMAT.to_owned(),
            cluster: self.cluster.to_string(),
            node: self.node.to_string(),
            names: Uuid(self.names.0).to_string(),
            shards: self.shards,
            formatted: self.formatted,
        });
        let text = text.map_err(|e| JournalError(format!("cannot write {IDENTITY_FILE}: {e}")))?;
        replace_file(disk, dir, IDENTITY_FILE, format!("{COMMENT}{text}").as_bytes())
    }
}

/// The whole file; `None` when there is none.
pub fn read_file(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, JournalError> {
    let file = match disk.open(path, OpenMode::Existing) {
        Err(e) if e.is_missing() => return Ok(None),
        opened => opened?,
    };
    let len = file.len()?;
    if len > FILE_MAX {
        return Err(JournalError(format!("{} is longer than {FILE_MAX} bytes", path.display())));
    }
    let mut bytes = vec![0; len as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Replaces a file: after a crash it is the old one or the new one, whole.
pub fn replace_file(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
    let new = dir.join(format!("{name}.skep-tmp"));
    let file = disk.open(&new, OpenMode::Fresh)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    disk.rename(&new, &dir.join(name))?;
    Ok(disk.sync_dir(dir)?)
}

//! How new files are striped, on the file system that lets one say so by extended attributes: Skep.

use crate::engine::Trouble;
use crate::job::{Striping, format_size};
use rustix::fd::OwnedFd;
use rustix::fs::XattrFlags;
use std::path::Path;

/// What a file is to be striped over, and how it came.
const LAYOUT: &str = "skep.layout";
/// Every target of the file system, a row of JSON each.
const SPACE: &str = "skep.space";
/// Longest value of an attribute that the kernel passes on.
const VALUE_MAX: usize = 64 << 10;

pub(crate) fn stripe(file: &OwnedFd, path: &Path, striping: &Striping) -> Result<(), Trouble> {
    let mut layout = Vec::new();
    if let Some(bytes) = striping.chunk_size {
        layout.push(format!("chunk={}", format_size(bytes).to_uppercase()));
    }
    if let Some(targets) = striping.targets {
        layout.push(format!("targets={targets}"));
    }
    let layout = layout.join(" ");
    rustix::fs::fsetxattr(file, LAYOUT, layout.as_bytes(), XattrFlags::empty()).map_err(|errno| {
        let reason = format!(
            "{LAYOUT}={layout:?} is not taken ({}); leave striping out on other file systems than Skep, or check the values",
            std::io::Error::from(errno)
        );
        Trouble::found("stripe", path, reason)
    })
}

fn value(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; VALUE_MAX];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

/// Whether the file system around `dir` has so many targets. One that does not tell says so when a file is striped.
pub(crate) fn there_are(wanted: u32, dir: &Path) -> Result<(), Trouble> {
    let Some(names) = value(dir, SPACE).and_then(|value| targets(&value)) else { return Ok(()) };
    if wanted as usize <= names.len() {
        return Ok(());
    }
    let reason = format!(
        "files over {wanted} targets are asked for, and there are {} here ({}); ask for no more",
        names.len(),
        shown(&names)
    );
    Err(Trouble::found("stripe files in", dir, reason))
}

/// The first few.
fn shown(names: &[String]) -> String {
    const NAMED: usize = 8;
    let more = if names.len() > NAMED { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(NAMED)].join(", "))
}

fn targets(space: &[u8]) -> Option<Vec<String>> {
    let rows: Vec<serde_json::Value> = serde_json::from_slice(space).ok()?;
    let targets = rows.iter().filter(|row| row["kind"] == "target");
    targets.map(|row| row["alias"].as_str().map(str::to_owned)).collect()
}

/// What is to be said of a file that lies on fewer targets than were asked for: its pool has no more that take files.
pub(super) fn fewer(path: &Path, wanted: u32) -> Option<String> {
    let layout = String::from_utf8(value(path, LAYOUT)?).ok()?;
    let word =
        |name: &str| layout.split_whitespace().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
    Some(format!(
        "{}: it lies on {} targets, not on {wanted} as was asked for: pool {} has no more that take new files",
        path.display(),
        word("got=")?,
        word("pool=")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: targets are counted without the line of the total, also where there are many; what is not understood
    /// counts as not told, and so does a file system without such attributes.
    #[test]
    fn counted() {
        let row = |kind: &str, alias: &str| serde_json::json!({ "kind": kind, "alias": alias, "bytes": 1 });
        let rows =
            serde_json::json!([row("target", "a"), row("target", "b"), row("total", "total")]).to_string();
        assert_eq!(targets(rows.as_bytes()), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((targets(b"[1"), targets(b"{}")), (None, None));
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert_eq!(shown(&many), "0, 1, 2, 3, 4, 5, 6, 7, ...");
        let dir = tempfile::tempdir().unwrap();
        assert_eq!((there_are(99, dir.path()), fewer(dir.path(), 99)), (Ok(()), None));
    }
}

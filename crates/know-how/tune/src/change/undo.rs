//! Puts everything back as it was before the first change. Doing it twice, or after a crash, is harmless.

use super::hands::{Hands, UNFINISHED};
use super::journal::{Journal, OldValue, UNDO_DIR};
use super::{reading, remaining};
use crate::host::{Identity, identity::BOOT_ID};
use std::io;

/// End of the name that a file of somebody else is kept under before it is put back.
pub const SAVED: &str = ".skep-saved";
/// Most files of one name that are kept so.
const SAVED_MAX: usize = 100;

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undone {
    /// Values of the running kernel.
    pub values: usize,
    pub files: usize,
    /// What must be done before everything counts.
    pub after: Vec<String>,
    /// What is worth knowing: things that are gone, things that others changed since.
    pub notes: Vec<String>,
}

/// Puts back what the undo file holds, then removes it; none when there is none. A disk that cannot be found is an error,
/// and nothing is changed; with `leave_missing` its values are left out.
pub fn undo(hands: &mut dyn Hands, leave_missing: bool) -> Result<Option<Undone>, String> {
    let journal = Journal::read(hands).map_err(|e| e.to_string())?;
    let undone = journal.as_ref().map(|journal| put_back(journal, hands, leave_missing)).transpose()?;
    Journal::remove(hands).map_err(|e| format!("{UNDO_DIR}: {e}"))?;
    Ok(undone)
}

/// Puts back what the journal holds.
pub(super) fn put_back(
    journal: &Journal,
    hands: &mut dyn Hands,
    leave_missing: bool,
) -> Result<Undone, String> {
    let (mut undone, mut changed) = (Undone::default(), Vec::new());
    let values = found(journal, hands, leave_missing, &mut undone.notes)?;
    changed_since(&values, hands, &mut undone.notes)?;
    for (old, path) in &values {
        let named = |e: io::Error| format!("{path}: {e}");
        let Some(text) = hands.read(path).map_err(named)? else { continue };
        // A limit that is given in bytes is 0 when it is given as a share, and the other way round; writing the
        // share puts the bytes to 0, which nobody can do by hand.
        let is_other_form = old.after.is_none() && old.before == "0";
        if reading(&text) != old.before && !is_other_form {
            hands.set(path, &old.before).map_err(named)?;
            undone.values += 1;
            changed.push(path.as_str());
        }
    }
    for old in &journal.files {
        let named = |e: io::Error| format!("{}: {e}", old.path);
        hands.remove(&format!("{}{UNFINISHED}", old.path)).map_err(named)?;
        let now = hands.read(&old.path).map_err(named)?;
        if now == old.before {
            continue;
        }
        if let Some(text) = now.filter(|now| old.edited || *now != old.after) {
            let saved = save(&old.path, &text, hands).map_err(named)?;
            undone.notes.push(format!("{} was changed since: what it held is in {saved}", old.path));
        }
        match &old.before {
            None => hands.remove(&old.path),
            Some(text) => hands.write_unfinished(&old.path, text).and_then(|()| hands.finish(&old.path)),
        }
        .map_err(named)?;
        undone.files += 1;
        changed.push(old.path.as_str());
    }
    for dir in journal.made_dirs.iter().rev() {
        hands.remove_dir(dir).map_err(|e| format!("{dir}: {e}"))?;
    }
    undone.after = remaining(changed.into_iter());
    Ok(undone)
}

/// Keeps a text beside the file, under a name that nothing reads at boot and that is free, or holds the same (after a
/// crash); says which.
fn save(path: &str, text: &str, hands: &mut dyn Hands) -> io::Result<String> {
    let names = std::iter::once(format!("{path}{SAVED}"))
        .chain((2..=SAVED_MAX).map(|n| format!("{path}{SAVED}-{n}")));
    for name in names {
        match hands.read(&name)? {
            Some(kept) if kept == text => return Ok(name),
            Some(_) => continue,
            None => {
                hands.write_unfinished(&name, text)?;
                hands.finish(&name)?;
                return Ok(name);
            }
        }
    }
    Err(io::Error::other(format!("{SAVED_MAX} files {path}{SAVED}* are there; remove some")))
}

/// Where each value is now: disks are looked up by the names that stay.
fn found<'j>(
    journal: &'j Journal,
    hands: &mut dyn Hands,
    leave_missing: bool,
    notes: &mut Vec<String>,
) -> Result<Vec<(&'j OldValue, String)>, String> {
    let is_asked = journal.live.iter().any(|old| old.disk.is_some());
    let disks = if is_asked { hands.disks().map_err(|e| format!("/sys/block: {e}"))? } else { Vec::new() };
    let boot = hands.read(BOOT_ID).map_err(|e| format!("{BOOT_ID}: {e}"))?;
    let mut values = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    for old in &journal.live {
        let Some(owner) = &old.disk else {
            values.push((old, old.path.clone()));
            continue;
        };
        match place(&owner.identity, &disks) {
            Ok(name) => values.push((old, old.at(name))),
            Err(_) if owner.identity.is_past(boot.as_deref().map(str::trim)) => {
                note(notes, format!("{}: its values were gone with the last boot", owner.name));
            }
            Err(why) => note(&mut missing, format!("{} (it was {}): {why}", owner.identity, owner.name)),
        }
    }
    match (missing.is_empty(), leave_missing) {
        (true, _) => {}
        (false, true) => {
            notes.extend(missing.into_iter().map(|one| format!("{one}; its values stay as they are")))
        }
        (false, false) => {
            return Err(format!(
                "the disk with {}; nothing was put back. Connect it, or leave its values: skep tune undo{} \
                 --leave-missing",
                missing.join("; the disk with "),
                hands.flag()
            ));
        }
    }
    Ok(values)
}

fn note(notes: &mut Vec<String>, text: String) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

/// The one disk with this name.
fn place<'d>(identity: &Identity, disks: &'d [(String, Vec<Identity>)]) -> Result<&'d str, String> {
    let mut holders =
        disks.iter().filter(|(_, names)| names.contains(identity)).map(|(name, _)| name.as_str());
    match (holders.next(), holders.next()) {
        (Some(name), None) => Ok(name),
        (None, _) => Err("no disk here has this name".to_owned()),
        (Some(one), Some(two)) => Err(format!("{one} and {two} both have this name")),
    }
}

/// Values that others changed, or that are gone. Asked before the first is put back: one may change another.
fn changed_since(
    values: &[(&OldValue, String)],
    hands: &mut dyn Hands,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    for (old, path) in values {
        match hands.read(path).map_err(|e| format!("{path}: {e}"))? {
            None => notes.push(format!("{path} is gone, nothing is put back there")),
            Some(text) => {
                let now = reading(&text);
                if now != old.before && old.after.as_ref().is_some_and(|after| *after != now) {
                    notes.push(format!("{path} was changed since, to {now}"));
                }
            }
        }
    }
    Ok(())
}

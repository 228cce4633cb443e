//! Puts everything back as it was before the first change. Doing it twice, or after a crash, is harmless.

use super::hands::{Hands, UNFINISHED};
use super::journal::{Journal, UNDO_DIR};
use super::reading;
use std::io;

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undone {
    /// Values of the running kernel.
    pub values: usize,
    /// Files.
    pub files: usize,
    /// What is worth knowing: things that are gone, things that others changed since.
    pub notes: Vec<String>,
}

/// Puts back what the undo file holds, then removes it; none when there is none.
pub fn undo(hands: &mut dyn Hands) -> Result<Option<Undone>, String> {
    let journal = Journal::read(hands).map_err(|e| e.to_string())?;
    let undone = journal.as_ref().map(|journal| put_back(journal, hands)).transpose()?;
    Journal::remove(hands).map_err(|e| format!("{UNDO_DIR}: {e}"))?;
    Ok(undone)
}

/// Puts back what the journal holds.
pub(super) fn put_back(journal: &Journal, hands: &mut dyn Hands) -> Result<Undone, String> {
    let mut undone = Undone { notes: changed_since(journal, hands)?, ..Undone::default() };
    for old in &journal.live {
        let named = |e: io::Error| format!("{}: {e}", old.path);
        let Some(text) = hands.read(&old.path).map_err(named)? else { continue };
        // A limit that is given in bytes is 0 when it is given as a share, and the other way round; writing the
        // share puts the bytes to 0, which nobody can do by hand.
        let is_other_form = old.after.is_none() && old.before == "0";
        if reading(&text) != old.before && !is_other_form {
            hands.set(&old.path, &old.before).map_err(named)?;
            undone.values += 1;
        }
    }
    for old in &journal.files {
        let named = |e: io::Error| format!("{}: {e}", old.path);
        hands.remove(&format!("{}{UNFINISHED}", old.path)).map_err(named)?;
        let now = hands.read(&old.path).map_err(named)?;
        if now == old.before {
            continue;
        }
        if now.as_ref() != Some(&old.after) {
            undone.notes.push(format!("{} was changed since; that is gone too", old.path));
        }
        match &old.before {
            None => hands.remove(&old.path),
            Some(text) => hands.write_unfinished(&old.path, text).and_then(|()| hands.finish(&old.path)),
        }
        .map_err(named)?;
        undone.files += 1;
    }
    for dir in journal.made_dirs.iter().rev() {
        hands.remove_dir(dir).map_err(|e| format!("{dir}: {e}"))?;
    }
    Ok(undone)
}

/// Values that others changed, or that are gone. Asked before the first is put back: one may change another.
fn changed_since(journal: &Journal, hands: &mut dyn Hands) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for old in &journal.live {
        match hands.read(&old.path).map_err(|e| format!("{}: {e}", old.path))? {
            None => notes.push(format!("{} is gone, nothing is put back there", old.path)),
            Some(text) => {
                let now = reading(&text);
                if now != old.before && old.after.as_ref().is_some_and(|after| *after != now) {
                    notes.push(format!("{} was changed since, to {now}", old.path));
                }
            }
        }
    }
    Ok(notes)
}

//! Cases that a table row cannot express: loops over thousands of names, mappings, several processes.
//!
//! A script runs as root, its working directory is the fresh directory of the case, its umask is 0.

mod contents;
mod directories;
mod locks;
mod mappings;
mod processes;
mod races;

/// A case written as a function.
#[derive(Clone, Copy)]
pub struct Script {
    /// Unique id, as that of a table case.
    pub id: &'static str,
    /// What must hold.
    pub goal: &'static str,
    /// Capabilities it needs.
    pub needs: &'static [&'static str],
    /// The case itself; an error says what was found instead.
    pub run: fn() -> Outcome,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

/// Nothing, or what was found instead of what should be.
pub type Outcome = Result<(), String>;

/// All scripts.
pub const ALL: &[&Script] = &[
    &directories::COMPLETE,
    &directories::COMPLETE_WIDE_BUFFER,
    &directories::TELLDIR,
    &directories::REWIND,
    &directories::TYPES,
    &directories::REMOVED,
    &directories::DEEP,
    &directories::EVERY_BYTE,
    &directories::MANY_LINKS,
    &directories::REMOVE_WHILE_LISTING,
    &mappings::SHARED_TO_READ,
    &mappings::WRITE_TO_SHARED,
    &mappings::PRIVATE,
    &mappings::TWO_MAPPINGS,
    &mappings::HOLE,
    &mappings::AFTER_UNLINK,
    &mappings::BEYOND_LENGTH,
    &mappings::GROWS_UNDER_MAPPING,
    &mappings::TWO_PROCESSES,
    &processes::APPEND,
    &processes::FILE_SIZE_LIMIT,
    &processes::TEXT_BUSY,
    &processes::SHARED_OFFSET,
    &processes::INHERITED_UNLINKED,
    &contents::AGAINST_MEMORY,
    &contents::SCATTERED_THREADS,
    &contents::VECTORS,
    &contents::COPY_RANGE,
    &contents::LARGE_BLOCKS,
    &contents::TRUNCATE_TAIL,
    &locks::OFD_WAITS,
    &locks::FLOCK_WAITS,
    &locks::FLOCK_LAST_CLOSE,
    &locks::OFD_LAST_CLOSE,
    &locks::PROCESS_END,
    &locks::INTERRUPTED,
    &locks::DEADLOCK,
    &locks::OFD_COUNT,
    &locks::FLOCK_COUNT,
    &races::EXCLUSIVE_CREATE,
    &races::EXCLUSIVE_MKDIR,
    &races::RENAME_OVER,
    &races::UNLINK_ONCE,
    &races::EXCHANGE,
];

/// An error with what was being done.
fn at<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|e| format!("{what}: {e}"))
}

/// Refuses when a rule does not hold.
fn hold(rule: bool, found: impl FnOnce() -> String) -> Outcome {
    if rule { Ok(()) } else { Err(found()) }
}

//! The source tree in memory.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::rust;

/// Directories at the root that hold no source.
const NO_SOURCE: [&str; 2] = ["target", "run"];
/// Hidden directories at the root that do.
const HIDDEN_SOURCE: [&str; 3] = [".ci", ".cargo", ".github"];

/// One text file.
#[derive(Debug)]
pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
    /// For Rust: the text with comments and the contents of literals blanked, lines kept.
    pub code: String,
}

impl File {
    fn new(path: String, text: String) -> Self {
        let code = if path.ends_with(".rs") { rust::blank(&text) } else { String::new() };
        Self { path, text, code }
    }

    /// True for Rust sources.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// True for Markdown.
    pub fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Lines of the text with their numbers.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// Lines of the blanked Rust code with their numbers.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(i, line)| (i + 1, line))
    }
}

/// All text files, and the paths of everything.
#[derive(Debug, Default)]
pub struct Tree {
    /// Text files, in order of their paths.
    pub files: Vec<File>,
    /// Every file (binary ones too) and directory.
    pub paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the tree at `root`; build output and what git keeps for itself (in a worktree a file) left out.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn walk(&mut self, directory: &Path, prefix: &str) -> Result<(), String> {
        let fail = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
        for entry in fs::read_dir(directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().map_err(fail)?;
            if kind.is_dir() {
                let hidden = name.starts_with('.') && !HIDDEN_SOURCE.contains(&path.as_str());
                if hidden || NO_SOURCE.contains(&path.as_str()) {
                    continue;
                }
                self.paths.insert(path.clone());
                self.walk(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() && name != ".git" && !name.ends_with(".skep-tmp") {
                self.paths.insert(path.clone());
                let bytes = match fs::read(entry.path()) {
                    Ok(bytes) => bytes,
                    // Somebody removed it between listing and reading.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(format!("cannot read {path}: {error}")),
                };
                if let Ok(text) = String::from_utf8(bytes) {
                    self.files.push(File::new(path, text));
                }
            }
        }
        Ok(())
    }

    /// A tree of these files, for tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            for (at, _) in path.match_indices('/') {
                tree.paths.insert(path[..at].to_owned());
            }
            tree.paths.insert((*path).to_owned());
            tree.files.push(File::new((*path).to_owned(), (*text).to_owned()));
        }
        tree
    }

    /// The file at this path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust sources.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

//! Blocks of an administrator's page that say on which host they are: commands and files.

/// What a block does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Commands of a shell, each of which must succeed.
    Run(String),
    /// The content of a file.
    Write {
        /// Where it stands.
        path: String,
        /// What stands in it.
        text: String,
    },
}

/// A block of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The host.
    pub host: String,
    /// The heading above it.
    pub heading: String,
    /// What it does.
    pub action: Action,
}

/// The blocks of a page, in order: fenced ones whose first line is `sh on HOST` or `toml on HOST: PATH`. Others
/// are for reading only.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut found = Vec::new();
    let mut heading = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix('#') {
            heading = title.trim_start_matches('#').trim().to_owned();
        }
        let Some(info) = line.strip_prefix("```") else { continue };
        let mut text = String::new();
        let mut closed = false;
        for line in lines.by_ref() {
            closed = line == "```";
            if closed {
                break;
            }
            text.push_str(line);
            text.push('\n');
        }
        if !closed {
            return Err(format!("under \"{heading}\": a block has no end"));
        }
        let Some((language, place)) = info.split_once(" on ") else { continue };
        let (host, action) = match (language, place.split_once(": ")) {
            ("sh", None) => (place, Action::Run(text)),
            ("toml", Some((host, path))) => (host, Action::Write { path: path.to_owned(), text }),
            _ => {
                return Err(format!(
                    "under \"{heading}\": write `sh on HOST` or `toml on HOST: PATH`, not `{info}`"
                ));
            }
        };
        found.push(Block { host: host.to_owned(), heading: heading.clone(), action });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: commands and files are found with their host and heading, other blocks are left alone, and a
    /// block that is neither is no silent omission.
    #[test]
    fn blocks_of_a_page() {
        let page = "# A\n```sh\nnot run\n```\n## B\n```sh on alpha\necho 1\necho 2\n```\ntext\n```toml on beta: /x\na = 1\n```\n";
        let block = |host: &str, action| Block { host: host.into(), heading: "B".into(), action };
        let write = Action::Write { path: "/x".into(), text: "a = 1\n".into() };
        assert_eq!(
            blocks(page).unwrap(),
            [block("alpha", Action::Run("echo 1\necho 2\n".into())), block("beta", write)]
        );
        assert!(blocks("```sh on a: /x\n```\n").unwrap_err().contains("sh on HOST"));
        assert!(blocks("# T\n```sh on a\necho\n").unwrap_err().contains("\"T\""));
    }
}

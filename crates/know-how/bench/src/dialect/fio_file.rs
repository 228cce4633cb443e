//! Sections of fio: job files and `--name` on the command line come to the same lists of options.

use super::Cause;

/// Most sections of a job file or command line.
pub const SECTIONS_MAX: usize = 256;

/// One job: its name and its options, those of the global section first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// As fio shows it.
    pub name: String,
    /// (name, value); a value may be missing, which means 1 for most.
    pub options: Vec<(String, Option<String>)>,
}

/// Collects sections in fio's order.
#[derive(Debug, Default)]
pub struct Sections {
    global: Vec<(String, Option<String>)>,
    done: Vec<Section>,
    in_global: bool,
}

impl Sections {
    /// `[name]` or `--name=name`.
    pub fn begin(&mut self, name: &str) -> Result<(), Cause> {
        if self.done.len() >= SECTIONS_MAX {
            return Err(Cause::new(
                format!("job {name}"),
                format!("is one too many: at most {SECTIONS_MAX}"),
            ));
        }
        self.in_global = name == "global";
        if !self.in_global {
            self.done.push(Section { name: name.to_owned(), options: self.global.clone() });
        }
        Ok(())
    }

    /// An option of the section that was begun last; before the first it is global.
    pub fn option(&mut self, name: &str, value: Option<&str>) {
        let entry = (name.to_owned(), value.map(str::to_owned));
        match self.done.last_mut() {
            Some(section) if !self.in_global => section.options.push(entry),
            _ => self.global.push(entry),
        }
    }

    /// A job file.
    pub fn file(&mut self, path: &str, text: &str) -> Result<(), Cause> {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                self.begin(name.trim())?;
                continue;
            }
            if line.contains("${") || line.starts_with("include") {
                let why = "variables and includes of job files are not followed: write the values";
                return Err(Cause::new(format!("{path}, line {}", at + 1), why));
            }
            // A comment may follow the value.
            let line = line.split(" #").next().unwrap_or(line).split(" ;").next().unwrap_or(line);
            match line.split_once('=') {
                Some((name, value)) => self.option(name.trim(), Some(value.trim())),
                None => self.option(line.trim(), None),
            }
        }
        Ok(())
    }

    /// All jobs.
    pub fn finish(self) -> Vec<Section> {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: global options come first in every later job, comments and blank lines are nothing.
    #[test]
    fn job_file() {
        let text = "; a test\n[global]\nbs=4k\ndirect=1 # raw\n\n[one]\nrw=read\nstonewall\n[two]\nbs=8k\n";
        let mut sections = Sections::default();
        sections.file("x.fio", text).unwrap();
        let sections = sections.finish();
        let names: Vec<_> = sections.iter().map(|section| section.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        let option = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        assert_eq!(
            sections[0].options,
            [option("bs", "4k"), option("direct", "1"), option("rw", "read"), ("stonewall".to_owned(), None)]
        );
        assert_eq!(sections[1].options, [option("bs", "4k"), option("direct", "1"), option("bs", "8k")]);
    }

    /// Goal: what is not followed says so, with the line.
    #[test]
    fn refusals() {
        let error = Sections::default().file("x.fio", "[a]\nsize=${SIZE}\n").unwrap_err();
        assert!(error.to_string().contains("x.fio, line 2"), "{error}");
        let many: String = (0..=SECTIONS_MAX).map(|at| format!("[j{at}]\n")).collect();
        assert!(Sections::default().file("x.fio", &many).is_err());
    }
}

//! `skep completions`, `skep man`: what a shell and man(1) want to know, from the command line itself.

use crate::cli::Cli;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;
use skep_base::{Failure, Outcome};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the mount helper's page, which is that of `skep mount`.
const HELPER_PAGE: &str = "mount.skep.8";

/// Arguments of `skep completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// For which shell
    shell: ShellName,
}

/// Shells that are known.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `skep man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to write the pages; made when it does not exist
    directory: PathBuf,
}

/// `skep completions`.
pub fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> Outcome {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "skep", &mut text);
    Ok(out.write_all(&text)?)
}

/// `skep man`.
pub fn man(args: &ManArgs) -> Outcome {
    let dir = &args.directory;
    let fail = |e: std::io::Error| Failure::local(dir.display(), e);
    std::fs::create_dir_all(dir).map_err(fail)?;
    write_pages(dir).map_err(fail)
}

fn write_pages(dir: &Path) -> std::io::Result<()> {
    // The built-in help command has pages of its own for every word: nobody needs them twice.
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), dir)?;
    std::fs::write(dir.join(HELPER_PAGE), ".so man1/skep-mount.1\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every shell gets a text that knows every command.
    #[test]
    fn shells_know_every_command() {
        for shell in [ShellName::Bash, ShellName::Zsh, ShellName::Fish] {
            let mut text = Vec::new();
            completions(&CompletionsArgs { shell }, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell:?} misses {}", command.get_name());
            }
        }
    }

    /// Goal: there is a page for every command that people type, and man(1) would find the mount helper's.
    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        man(&ManArgs { directory: dir.path().join("man") }).unwrap();
        let page = |name: &str| std::fs::read_to_string(dir.path().join("man").join(name)).unwrap();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let text = page(&format!("skep-{}.1", command.get_name()));
            assert!(text.contains(".SH NAME"), "{}", command.get_name());
        }
        assert!(page("skep-target-list.1").contains("output"));
        assert!(page(HELPER_PAGE).contains("skep-mount.1"));
    }
}

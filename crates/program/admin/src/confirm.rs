//! A question before what cannot be taken back, to the person at the terminal. Scripts are not asked: they have nobody.

use skep_base::{Failure, Outcome};
use std::io::{BufRead, IsTerminal};

/// Goes on when `yes` was given, when nobody can be asked, or when the answer is yes.
pub fn ask(what: &str, yes: bool) -> Outcome {
    if yes || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    eprint!("{what}. Do it? [y/N] ");
    answer(&mut std::io::stdin().lock())
}

fn answer(input: &mut dyn BufRead) -> Outcome {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| Failure::local("standard input", e))?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was done; --yes does not ask")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only a clear yes is one; an empty line and the end of the input are none.
    #[test]
    fn only_yes_is_yes() {
        for (line, agreed) in
            [("y\n", true), ("yes\n", true), ("Y", true), ("\n", false), ("", false), ("no\n", false)]
        {
            assert_eq!(answer(&mut line.as_bytes()).is_ok(), agreed, "{line:?}");
        }
    }
}

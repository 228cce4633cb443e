//! Words of a command line, taken apart as getopt does: bundles, attached values, long options.

use super::{Cause, Tool};

/// Most words of a foreign command line; longer ones are mistakes.
pub const WORDS_MAX: usize = 1_024;

/// What follows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing: `-w`. A long one may still say `=0` or `=1`.
    Nothing,
    /// A value, attached or the next word: `-t512k`, `-t 512k`, `--size=1g`.
    Value,
    /// A value that must be attached when there is one: `-R17`.
    Attached,
    /// All words up to the next option: `-F a b c`.
    List,
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It means something here.
    Used,
    /// It changes nothing that is measured here; the text says why.
    Ignored(&'static str),
    /// It cannot be honoured; the text says why or what to use.
    Refused(&'static str),
}

/// An option that the tool knows.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Without the dash; two characters for IOzone's `-+n`. Empty: long only.
    pub short: &'static str,
    /// Without the dashes; also how the rest of the dialect calls it.
    pub long: &'static str,
    /// What follows.
    pub takes: Takes,
    /// What becomes of it.
    pub fate: Fate,
}

/// Shorthand for the tables.
pub const fn used(short: &'static str, long: &'static str, takes: Takes) -> Known {
    Known { short, long, takes, fate: Fate::Used }
}

/// Shorthand for the tables.
pub const fn ignored(short: &'static str, long: &'static str, takes: Takes, why: &'static str) -> Known {
    Known { short, long, takes, fate: Fate::Ignored(why) }
}

/// Shorthand for the tables.
pub const fn refused(short: &'static str, long: &'static str, takes: Takes, why: &'static str) -> Known {
    Known { short, long, takes, fate: Fate::Refused(why) }
}

/// An option as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Its name in the table.
    pub name: &'static str,
    /// As it stood there, with its value: `-t 512k`.
    pub written: String,
    /// The value, empty without one.
    pub value: String,
    /// [`Takes::List`]: the words.
    pub list: Vec<String>,
    /// What becomes of it.
    pub fate: Fate,
}

/// How this tool writes its options.
#[derive(Debug, Clone, Copy)]
pub struct Syntax {
    /// Whose command line it is.
    pub tool: Tool,
    /// What it knows.
    pub known: &'static [Known],
    /// One dash is enough for a long option (mpirun).
    pub single_dash_long: bool,
    /// Long options match whatever their case.
    pub any_case: bool,
}

/// The options, and the words that belong to none.
pub type Split = (Vec<Given>, Vec<String>);

/// Takes `words` apart.
pub fn split(syntax: &Syntax, words: &[String]) -> Result<Split, Cause> {
    if words.len() > WORDS_MAX {
        return Err(Cause::new("the command line", format!("has more than {WORDS_MAX} words")));
    }
    let (mut given, mut rest) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if word == "--" {
            rest.extend_from_slice(&words[at + 1..]);
            break;
        }
        if !step(syntax, words, &mut at, &mut given)? {
            rest.push(word.clone());
            at += 1;
        }
    }
    Ok((given, rest))
}

/// Takes the option (or bundle) at `at`, and its value; false when no option stands there.
pub fn step(
    syntax: &Syntax,
    words: &[String],
    at: &mut usize,
    given: &mut Vec<Given>,
) -> Result<bool, Cause> {
    let Some(word) = words.get(*at).filter(|word| word.len() > 1 && word.starts_with('-')) else {
        return Ok(false);
    };
    *at += 1;
    match long_name(syntax, word) {
        Some(long) => given.push(long_option(syntax, word, long, words, at)?),
        None => bundle(syntax, word, words, at, given)?,
    }
    Ok(true)
}

fn long_name<'a>(syntax: &Syntax, word: &'a str) -> Option<&'a str> {
    if let Some(long) = word.strip_prefix("--") {
        return Some(long);
    }
    let long = word.strip_prefix('-').filter(|_| syntax.single_dash_long)?;
    let name = long.split('=').next().unwrap_or(long);
    syntax.known.iter().any(|known| known.long == name).then_some(long)
}

fn long_option(
    syntax: &Syntax,
    word: &str,
    long: &str,
    words: &[String],
    at: &mut usize,
) -> Result<Given, Cause> {
    let (name, value) = match long.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (long, None),
    };
    let same =
        |known: &&Known| known.long == name || (syntax.any_case && known.long.eq_ignore_ascii_case(name));
    let known = syntax.known.iter().find(same).ok_or_else(|| unknown(syntax, word, name))?;
    finish(known, word, value.map(str::to_owned), words, at)
}

/// `-wr`, `-i5`, `-+n`, `-F a b`.
fn bundle(
    syntax: &Syntax,
    word: &str,
    words: &[String],
    at: &mut usize,
    given: &mut Vec<Given>,
) -> Result<(), Cause> {
    let mut left = &word[1..];
    while !left.is_empty() {
        let letters = left.chars().next().map_or(1, |c| if c == '+' { 2 } else { 1 });
        let end = left.char_indices().nth(letters).map_or(left.len(), |(end, _)| end);
        let (letter, behind) = left.split_at(end);
        let known = syntax
            .known
            .iter()
            .find(|known| !known.short.is_empty() && known.short == letter)
            .ok_or_else(|| unknown(syntax, &format!("-{letter}"), letter))?;
        let shown = format!("-{letter}");
        if known.takes == Takes::Nothing {
            given.push(finish(known, &shown, None, words, at)?);
            left = behind;
            continue;
        }
        let attached = (!behind.is_empty()).then(|| behind.strip_prefix('=').unwrap_or(behind).to_owned());
        let shown = if attached.is_some() { format!("-{left}") } else { shown };
        given.push(finish(known, &shown, attached, words, at)?);
        return Ok(());
    }
    Ok(())
}

fn finish(
    known: &Known,
    shown: &str,
    attached: Option<String>,
    words: &[String],
    at: &mut usize,
) -> Result<Given, Cause> {
    let mut written = shown.to_owned();
    let mut list = Vec::new();
    let value = match (known.takes, attached) {
        (Takes::List, attached) => {
            list.extend(attached);
            while let Some(word) = words.get(*at).filter(|word| !word.starts_with('-')) {
                written = format!("{written} {word}");
                list.push(word.clone());
                *at += 1;
            }
            if list.is_empty() {
                return Err(Cause::new(shown, "needs at least one value".to_owned()));
            }
            String::new()
        }
        (_, Some(value)) => value,
        (Takes::Nothing | Takes::Attached, None) => String::new(),
        (Takes::Value, None) => {
            let next = words.get(*at).ok_or_else(|| Cause::new(shown, "needs a value".to_owned()))?;
            *at += 1;
            written = format!("{written} {next}");
            next.clone()
        }
    };
    Ok(Given { name: known.long, written, value, list, fate: known.fate })
}

fn unknown(syntax: &Syntax, word: &str, name: &str) -> Cause {
    let tool = syntax.tool;
    let near = syntax.known.iter().filter(|known| !known.long.is_empty()).find(|known| {
        name.len() > 2 && (known.long.starts_with(name) || known.long.eq_ignore_ascii_case(name))
    });
    let hint = near.map_or_else(
        || "see its manual; what is understood here: docs/admin/bench-tools.md".to_owned(),
        |near| format!("did you mean --{}?", near.long),
    );
    Cause::new(word, format!("is no option of {tool}; {hint}"))
}

/// True for what a switch may be set to: empty, 1, true, yes.
pub fn switch(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "" | "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("\"{value}\" is neither 0 nor 1")),
    }
}

/// A whole number that fits.
pub fn number<N: std::str::FromStr>(value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("\"{value}\" is not a whole number that fits here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Known] = &[
        used("w", "write", Takes::Nothing),
        used("r", "read", Takes::Nothing),
        used("t", "transfer", Takes::Value),
        used("R", "random", Takes::Attached),
        used("F", "files", Takes::List),
        used("+n", "no-retest", Takes::Nothing),
        used("+m", "machines", Takes::Value),
    ];
    const SYNTAX: Syntax = Syntax { tool: Tool::Ior, known: KNOWN, single_dash_long: false, any_case: true };

    fn taken(line: &str) -> Result<Vec<(&'static str, String)>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (given, rest) = split(&SYNTAX, &words).map_err(|e| e.to_string())?;
        let mut all: Vec<_> = given
            .into_iter()
            .map(|given| (given.name, if given.list.is_empty() { given.value } else { given.list.join("+") }))
            .collect();
        all.extend(rest.into_iter().map(|word| ("", word)));
        Ok(all)
    }

    /// Goal: bundles, attached and separate values, IOzone's two letters and lists come apart as getopt does it.
    #[test]
    fn taken_apart() {
        for (line, expected) in [
            ("-wr", vec![("write", ""), ("read", "")]),
            ("-wt512k -r", vec![("write", ""), ("transfer", "512k"), ("read", "")]),
            ("-t 512k x", vec![("transfer", "512k"), ("", "x")]),
            ("--transfer=1m --WRITE=0", vec![("transfer", "1m"), ("write", "0")]),
            ("-R -R17", vec![("random", ""), ("random", "17")]),
            ("-+n -+m list -w", vec![("no-retest", ""), ("machines", "list"), ("write", "")]),
            ("-F a b -w", vec![("files", "a+b"), ("write", "")]),
            ("-w -- -r", vec![("write", ""), ("", "-r")]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(n, v)| (n, v.to_owned())).collect();
            assert_eq!(taken(line).unwrap(), expected, "{line}");
        }
    }

    /// Goal: what is wrong is named.
    #[test]
    fn refusals() {
        for (line, says) in [
            ("-wq", "-q is no option of ior"),
            ("--trans=1", "did you mean --transfer?"),
            ("-t", "-t needs a value"),
            ("-F -w", "-F needs at least one value"),
            ("-+x", "-+x is no option"),
            ("-\u{e9}", "is no option"),
        ] {
            let error = taken(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        assert!(taken(&"-w ".repeat(WORDS_MAX + 1)).is_err());
    }
}

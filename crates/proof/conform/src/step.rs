//! The language of the table: one step is one line, `[@user] verb word... [key=word...] [=> expectation]`.
//!
//! Words are separated by blanks. `<...>` inside a word stands for bytes that are awkward to write out:
//! `<rep:x:300>` (300 times x), `<name:255>` (a name of 255 bytes), `<path:4095:f>` (a path to `f` of exactly
//! 4,095 bytes), `<hex:c3a4>`, `<acl:u=6,u61002=4,g=4,m=4,o=0>` (an access control list as an attribute), `<empty>`, and the whole word `<bad>`: an address that is not mapped.

use crate::errno::Errno;
use crate::users::{ROOT, User};
use std::collections::BTreeMap;

/// Longest word a `<...>` form may produce: bounds what a typing error in the table can allocate.
const MAX_WORD: usize = 1 << 20;

/// One argument word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Bytes as written, after expansion.
    Bytes(Vec<u8>),
    /// A pointer that is not mapped.
    Bad,
}

/// What a step should come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Success, whatever the value.
    Ok,
    /// Success with exactly this value (a number in decimal, or the bytes).
    Value(Vec<u8>),
    Errors(Vec<Errno>),
}

/// One parsed step.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line as written, for reports.
    pub text: String,
    /// Who does it.
    pub user: User,
    /// Which call or assertion.
    pub verb: String,
    /// Positional words.
    pub words: Vec<Word>,
    /// `key=word` words.
    pub options: BTreeMap<String, Word>,
    /// What should come of it.
    pub expect: Expect,
}

impl Step {
    /// Parses a line; `user` and `expect` hold where the line says nothing itself.
    pub fn parse(line: &str, user: Option<User>, expect: Expect) -> Result<Step, String> {
        let (body, expect) = match line.split_once("=>") {
            Some((body, wanted)) => (body, Expect::parse(wanted.trim())?),
            None => (line, expect),
        };
        let mut user = user.unwrap_or(ROOT);
        let mut words = body.split_whitespace().peekable();
        if let Some(name) = words.peek().and_then(|w| w.strip_prefix('@')) {
            user = User::named(name).ok_or_else(|| format!("unknown user {name:?} in step {line:?}"))?;
            words.next();
        }
        let verb = words.next().ok_or_else(|| format!("empty step {line:?}"))?.to_owned();
        let mut step = Step {
            text: line.trim().to_owned(),
            user,
            verb,
            words: vec![],
            options: BTreeMap::new(),
            expect,
        };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) if !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase()) => {
                    step.options.insert(key.to_owned(), expand(value)?);
                }
                _ => step.words.push(expand(word)?),
            }
        }
        Ok(step)
    }
}

impl Expect {
    /// Parses `ok`, `ok:VALUE`, `ENOENT` or `EPERM|EISDIR`.
    pub fn parse(text: &str) -> Result<Expect, String> {
        if text == "ok" {
            return Ok(Expect::Ok);
        }
        if let Some(value) = text.strip_prefix("ok:") {
            return match expand(value)? {
                Word::Bytes(bytes) => Ok(Expect::Value(bytes)),
                Word::Bad => Err("a value cannot be <bad>".to_owned()),
            };
        }
        let named = |n: &str| Errno::named(n.trim()).ok_or_else(|| format!("unknown expectation {text:?}"));
        text.split('|').map(named).collect::<Result<_, _>>().map(Expect::Errors)
    }

    /// The expectation in words.
    pub fn describe(&self) -> String {
        match self {
            Expect::Ok => "success".to_owned(),
            Expect::Value(bytes) => format!("success with {}", show(bytes)),
            Expect::Errors(list) => list.iter().map(Errno::to_string).collect::<Vec<_>>().join(" or "),
        }
    }
}

/// Bytes for a report: printable, and cut where they are long.
pub fn show(bytes: &[u8]) -> String {
    const LONGEST: usize = 48;
    let head: String = bytes.iter().take(LONGEST).flat_map(|b| b.escape_ascii()).map(char::from).collect();
    if bytes.len() > LONGEST {
        format!("\"{head}\"... ({} bytes)", bytes.len())
    } else {
        format!("\"{head}\"")
    }
}

fn expand(word: &str) -> Result<Word, String> {
    if word == "<bad>" {
        return Ok(Word::Bad);
    }
    let mut out = Vec::new();
    let mut rest = word;
    while let Some(start) = rest.find('<') {
        out.extend_from_slice(&rest.as_bytes()[..start]);
        let tail = &rest[start + 1..];
        let end = tail.find('>').ok_or_else(|| format!("{word:?} has '<' without '>'"))?;
        form(&tail[..end], &mut out)?;
        rest = &tail[end + 1..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(Word::Bytes(out))
}

fn form(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let wrong = || format!("unknown form <{text}>");
    let count = |t: &str| t.parse::<usize>().ok().filter(|n| *n <= MAX_WORD).ok_or_else(wrong);
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["empty"] => {}
        ["rep", unit, n] => out.extend(unit.as_bytes().repeat(count(n)?)),
        ["name", n] => out.extend(std::iter::repeat_n(b'n', count(n)?)),
        ["path", n, last] => {
            let lead = count(n)?.checked_sub(last.len()).ok_or_else(wrong)?;
            // "./" pairs lead nowhere; an odd length takes one more slash
            out.extend(b"./".repeat(lead / 2));
            out.extend(std::iter::repeat_n(b'/', lead % 2));
            out.extend_from_slice(last.as_bytes());
        }
        ["acl", entries] => acl(entries, out).ok_or_else(wrong)?,
        ["hex", digits] => {
            for pair in digits.as_bytes().chunks(2) {
                let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
                out.push(u8::from_str_radix(pair, 16).map_err(|_| wrong())?);
            }
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// `u=6,u61002=4,g=4,g61002=1,m=4,o=0` as Linux keeps an access control list in an extended attribute.
fn acl(entries: &str, out: &mut Vec<u8>) -> Option<()> {
    out.extend(2u32.to_le_bytes());
    for entry in entries.split(',') {
        let (who, perm) = entry.split_once('=')?;
        let (tag, id) = who.split_at_checked(1)?;
        let tag: u16 = match (tag, id) {
            ("u", "") => 1,
            ("u", _) => 2,
            ("g", "") => 4,
            ("g", _) => 8,
            ("m", "") => 0x10,
            ("o", "") => 0x20,
            _ => return None,
        };
        out.extend(tag.to_le_bytes());
        out.extend(perm.parse::<u16>().ok()?.to_le_bytes());
        out.extend(if id.is_empty() { u32::MAX } else { id.parse().ok()? }.to_le_bytes());
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(word: &str) -> Vec<u8> {
        match expand(word) {
            Ok(Word::Bytes(b)) => b,
            other => panic!("{word}: {other:?}"),
        }
    }

    /// Goal: every form yields exactly the bytes it names.
    #[test]
    fn forms_expand() {
        assert_eq!(bytes("a<hex:c3a4>b"), b"a\xc3\xa4b");
        assert_eq!(bytes("<rep:ab:3>"), b"ababab");
        assert_eq!(bytes("d/<name:255>").len(), 257);
        assert_eq!(bytes("<path:4095:f>").len(), 4095);
        assert_eq!(bytes("<path:4096:f>").len(), 4096);
        assert_eq!(bytes("<empty>"), b"");
        assert_eq!(bytes("<acl:u7=6>"), [2, 0, 0, 0, 2, 0, 6, 0, 7, 0, 0, 0]);
        assert!(expand("<acl:x=6>").is_err() && expand("<acl:m7=6>").is_err());
        assert_eq!(expand("<bad>"), Ok(Word::Bad));
        assert!(
            expand("<nope>").is_err() && expand("<rep:x:999999999999>").is_err() && expand("<x").is_err()
        );
    }

    /// Goal: a line falls apart into user, verb, words, options and expectation.
    #[test]
    fn lines_parse() {
        let step = Step::parse("@u1 open f O_RDONLY as=h => EACCES|EPERM", None, Expect::Ok).expect("parses");
        assert_eq!((step.user.name, step.verb.as_str(), step.words.len()), ("u1", "open", 2));
        assert_eq!(step.options.get("as"), Some(&Word::Bytes(b"h".to_vec())));
        assert_eq!(step.expect.describe(), "EACCES or EPERM");
        assert!(Step::parse("", None, Expect::Ok).is_err());
        assert!(Step::parse("@nobody stat f", None, Expect::Ok).is_err());
        assert!(Step::parse("stat f => ENOPE", None, Expect::Ok).is_err());
    }
}

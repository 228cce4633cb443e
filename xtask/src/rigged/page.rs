//! The table of what was rigged and what was named.

use super::Outcome;
use super::rig::Rig;
use std::fmt::Write;

const ABOUT: &str = "\
# Rigged set-ups: does the survey name what was made slow?

Made by `cargo xtask rigged --write`; see [the design](../design/survey.md). A cluster on four hosts (network
namespaces of one machine with two processors): `alpha` runs mgmtd and metad, `beta`, `gamma` and `delta` a storage
daemon each, with four targets together, on disks of their own (ext4 on a loop device on a file behind FUSE, whose
rate can be limited). Before each survey one thing was drawn at random and made slow: the disk of a target, the
network of a node (tbf at both ends of its cable), or the processor time of a daemon (quota of its control group).
In a control nothing was. No line of the product knows of it. Each survey measured the four lowest layers at the
`quick` preset, unless `--survey` said otherwise.
";

/// The page.
pub fn text(outcomes: &[Outcome], seed: u64) -> String {
    let mut out = ABOUT.to_owned();
    let count = |control: bool| {
        let of: Vec<&Outcome> = outcomes.iter().filter(|o| (o.rig == Rig::Nothing) == control).collect();
        (of.iter().filter(|o| o.right()).count(), of.len())
    };
    let ((rigged, all), (quiet, controls)) = (count(false), count(true));
    let _ = write!(
        out,
        "\nSeed {seed}. Right culprit named: **{rigged} of {all}**. Controls in which nobody was named: **{quiet} of \
         {controls}**.\n\n| # | made slow | named | seconds | what the survey said |\n| ---: | --- | --- | ---: | --- |\n"
    );
    for (number, outcome) in outcomes.iter().enumerate() {
        let named = outcome.named.as_ref().map_or_else(|| "nobody".to_owned(), |(l, m)| format!("{l}: {m}"));
        let mark = if outcome.right() { "" } else { " **(wrong)**" };
        let said = outcome.headline.replace('|', "/");
        let rig = outcome.rig.describe();
        let _ = writeln!(out, "| {} | {rig} | {named}{mark} | {:.0} | {said} |", number + 1, outcome.seconds);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the counts tell rigged runs and controls apart, and a wrong one is marked.
    #[test]
    fn counts() {
        let of = |rig: Rig, named: Option<(&str, &str)>| Outcome {
            rig,
            named: named.map(|(l, m)| (l.to_owned(), m.to_owned())),
            headline: "a | b".to_owned(),
            seconds: 1.0,
        };
        let target = Rig::Target { index: 0, rate: 20_000_000 };
        let page =
            text(&[of(target.clone(), target.expected()), of(target, None), of(Rig::Nothing, None)], 7);
        assert!(page.contains("**1 of 2**") && page.contains("**1 of 1**"), "{page}");
        assert!(page.contains("| nobody **(wrong)** |") && page.contains("a / b"), "{page}");
    }
}

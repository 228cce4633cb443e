//! The table of what was rigged and what was named.

use super::Outcome;
use super::rig::Rig;
use super::state::State;
use std::collections::BTreeMap;
use std::fmt::Write;

const ABOUT: &str = "\
# Rigged set-ups: does the survey name what was made slow?

Made by `cargo xtask rigged --write`; see [the design](../design/survey.md). A cluster on four hosts (network
namespaces of one machine with PROCESSORS processors): `alpha` runs mgmtd and metad, `beta`, `gamma` and `delta` a storage
daemon each, with four targets together, on disks of their own (ext4 on a loop device on a file behind FUSE, 500 MB/s
each) and links of 2 Gbit/s. Before each survey one thing was drawn at random and made slow. In a control nothing was.
No line of the product knows of it.

| kind | how | strength |
| --- | --- | --- |
| disk of a target | a lower rate | 3 to 50 % of its likes |
| network of a node | a lower rate at both ends of its cable (tbf) | 3 to 50 % of its likes |
| processor: quota | control group of the daemon | 6 to 40 % of one processor, 20 % always among them |
| processor: neighbours | kept on one processor with others that are busy, at nice levels; no quota | 5 to 43 % are left |

Kinds have equal numbers, and the strengths of each are spread over its range. A verdict is right when it names this
member in this layer and accuses nobody else beside it; in a control, when it accuses nobody. Surveys that failed
stand in the table and count as wrong; none was left out. The line below gives the words of the survey, `--only`
its layers";

/// Of a series in which some surveys were whole.
const WHOLE: &str =
    "; where the table says \"all\", it was a whole survey at the small preset, with a mount on `alpha`";

/// What is known of cuts when no file is kept.
const ONE_PIECE: &str =
    "not known (this was done in one piece, without --state, which leaves no trace of an earlier beginning)";

/// The page.
pub fn text(state: &State) -> String {
    let (outcomes, series) = (&state.outcomes, &state.series);
    let mut out = ABOUT.replace("PROCESSORS", &series.processors.to_string());
    if outcomes.iter().any(|outcome| outcome.whole) {
        out += WHOLE;
    }
    let cuts = state.interrupted.map_or_else(|| ONE_PIECE.to_owned(), |times| times.to_string());
    let _ = write!(
        out,
        ".\n\nSeed {}; survey: `{}`; program: {}, {} (SHA-256 {}), source at commit {} when the series began; set-ups that \
         were cut off and done again: {cuts}; set-ups done: {} of {}.\n\n| kind | right | of |\n| --- | ---: | ---: |\n",
        series.seed,
        series.survey,
        series.version,
        series.build,
        series.hash.get(..16).unwrap_or(&series.hash),
        state.commit,
        outcomes.len(),
        series.set_ups.len()
    );
    for (kind, (right, all)) in counts(outcomes) {
        let _ = writeln!(out, "| {kind} | {right} | {all} |");
    }
    let rigged = outcomes.iter().filter(|o| o.rig != Rig::Nothing);
    let right = rigged.clone().filter(|o| o.right()).count();
    let _ = write!(
        out,
        "| **all rigs** | **{right}** | **{}** |\n\n| # | made slow | layers | accused | seconds | what the survey said |\n\
         | ---: | --- | --- | --- | ---: | --- |\n",
        rigged.count()
    );
    for (number, outcome) in outcomes.iter().enumerate() {
        let names: Vec<String> = outcome.accused.iter().map(|(l, m)| format!("{l}: {m}")).collect();
        let named = match (&outcome.failed, names.is_empty()) {
            (Some(_), _) if outcome.headline.is_empty() => "no verdict".to_owned(),
            (_, true) => "nobody".to_owned(),
            (_, false) => names.join(", "),
        };
        let mark = if outcome.right() { "" } else { " **(wrong)**" };
        let said = outcome.failed.as_ref().map_or_else(|| outcome.headline.clone(), |why| first_line(why));
        let (rig, said) = (outcome.rig.describe(), said.replace('|', "/"));
        let layers = if outcome.whole { "all" } else { "some" };
        let _ = writeln!(
            out,
            "| {} | {rig} | {layers} | {named}{mark} | {:.0} | {said} |",
            number + 1,
            outcome.seconds
        );
    }
    out
}

/// Right ones and all of them, by kind.
fn counts(outcomes: &[Outcome]) -> BTreeMap<&'static str, (usize, usize)> {
    let mut kinds = BTreeMap::new();
    for outcome in outcomes {
        let (right, all) = kinds.entry(outcome.rig.kind()).or_insert((0, 0));
        *right += usize::from(outcome.right());
        *all += 1;
    }
    kinds
}

fn first_line(why: &str) -> String {
    format!("failed: {}", why.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::state::an_example;
    use super::*;

    fn state(outcomes: Vec<Outcome>) -> State {
        State { series: an_example(), commit: "c".into(), outcomes, begun: None, interrupted: None }
    }

    /// Goal: the page says on how many processors, how the program was built, and whether a cut would be known; whole
    /// surveys are explained where there are some, and only there.
    #[test]
    fn of_what() {
        let outcome = |whole: bool| Outcome {
            rig: Rig::Nothing,
            accused: vec![],
            headline: "x".to_owned(),
            seconds: 1.0,
            whole,
            failed: None,
        };
        let page = text(&state(vec![outcome(false)]));
        assert!(
            page.contains("one machine with 3 processors") && page.contains("skep 0.1.0, built (SHA"),
            "{page}"
        );
        assert!(page.contains("done again: not known (") && !page.contains("\"all\""), "{page}");
        let page = text(&State { interrupted: Some(2), ..state(vec![outcome(false), outcome(true)]) });
        assert!(page.contains("done again: 2; set-ups done: 2 of 1.") && page.contains("\"all\""), "{page}");
    }

    /// Goal: the counts tell kinds and controls apart; wrong ones, false accusations and failures are shown.
    #[test]
    fn counted() {
        let of = |rig: &Rig, accused: &[(&str, &str)], failed: Option<&str>| Outcome {
            rig: rig.clone(),
            accused: accused.iter().map(|(l, m)| ((*l).to_owned(), (*m).to_owned())).collect(),
            headline: if failed.is_some() { String::new() } else { "a | b".to_owned() },
            seconds: 1.0,
            whole: *rig == Rig::Nothing,
            failed: failed.map(str::to_owned),
        };
        let target = Rig::Target { index: 0, percent: 20 };
        let right = target.expected().unwrap();
        let outcomes = vec![
            of(&target, &[right], None),
            of(&target, &[right, ("network", "beta")], None),
            of(&target, &[], None),
            of(&target, &[], Some("no answer\nlog")),
            of(&Rig::Nothing, &[], None),
        ];
        let state = state(outcomes);
        let page = text(&state);
        assert!(page.contains("| disk of a target | 1 | 4 |"), "{page}");
        assert!(page.contains("| 5 | nothing | all | nobody |"), "{page}");
        assert!(page.contains("| 1 | disk of beta-0: 20 % of its likes | some | device: beta-0 |"), "{page}");
        assert!(page.contains("| nothing (control) | 1 | 1 |") && page.contains("**1** | **4**"), "{page}");
        assert!(
            page.contains("device: beta-0, network: beta **(wrong)**") && page.contains("a / b"),
            "{page}"
        );
        assert!(page.contains("no verdict **(wrong)**") && page.contains("failed: no answer |"), "{page}");
    }
}

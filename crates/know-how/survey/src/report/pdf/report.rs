//! The survey, written page by page.

use super::super::super::model::{Fact, Limit, Survey};
use super::super::draw::Paint;
use super::super::figures::{self, Figure, RAW, Table, layer_name};
use super::super::letters::Face;
use super::super::number;
use super::flow::{Cell, Flow};

/// Drawings over the whole page are laid out this wide, then scaled.
const FULL: f32 = 700.0;
/// Drawings beside each other.
const HALF: f32 = 350.0;
/// From their layout to the paper, about.
const SCALE: f32 = 0.7;
/// Rows of a table of one figure; the JSON has the others.
const MOST_ROWS: usize = 48;

/// The report on one survey.
pub fn pdf(survey: &Survey) -> Vec<u8> {
    let mut flow = Flow::default();
    flow.heading(0, &survey.title, 60.0);
    flow.text(
        &format!(
            "Begun {}, took {}, preset {}, skep {}, {} machines",
            survey.started.replace('T', " ").replace('Z', " UTC"),
            number::span(survey.seconds),
            survey.preset,
            survey.version,
            survey.hosts.len()
        ),
        Cell::QUIET,
    );
    verdict(&mut flow, survey);
    limits(&mut flow, survey);
    if !survey.remarks.is_empty() {
        flow.heading(1, "To know before trusting a number", 30.0);
        for remark in &survey.remarks {
            flow.text(&format!("\u{2022} {remark}"), Cell::BODY);
        }
    }
    if !survey.waterfalls.is_empty() {
        flow.heading(1, "Layer by layer", 190.0);
        flow.text(figures::ABOUT_LAYERS, Cell::QUIET);
        for figure in figures::waterfalls(survey) {
            flow.heading(2, &figure.title(), 130.0);
            flow.drawing(&figure.draw(FULL));
            flow.table(&figure.table());
        }
    }
    for layer in &survey.layers {
        let drawn: Vec<_> = figures::of_layer(layer)
            .iter()
            .filter(|figure| !figure.is_empty())
            .map(|figure| (figure.title(), figure.subtitle(), figure.draw(HALF)))
            .collect();
        // The heading does not stay alone at the foot of a page.
        let first = drawn.iter().take(2).map(|(.., drawing)| drawing.height * SCALE).fold(0.0, f32::max);
        flow.heading(1, layer_name(layer.id), first + 80.0);
        flow.text(&layer.about, Cell::QUIET);
        flow.gap(4.0);
        flow.pairs(&drawn);
    }
    machines(&mut flow, survey);
    if !survey.commands.is_empty() {
        flow.heading(1, "Commands", 40.0);
        for command in &survey.commands {
            flow.code(command);
        }
    }
    numbers(&mut flow, survey);
    flow.finish(&survey.title)
}

fn verdict(flow: &mut Flow, survey: &Survey) {
    flow.heading(1, "Verdict", 60.0);
    let from = flow.place();
    let verdict = &survey.verdict;
    flow.text(&verdict.headline, Cell { size: 12.0, face: Face::Bold, paint: Paint::Ink });
    for culprit in verdict.culprit.iter().chain(&verdict.also) {
        let head = format!("{} ({})", culprit.member, layer_name(culprit.layer));
        flow.text(&head, Cell { size: 10.5, face: Face::Bold, paint: Paint::Alert });
        flow.text(&culprit.finding, Cell::BODY);
        flow.table(&figures::evidence(&culprit.evidence));
        flow.text(&culprit.advice, Cell::BODY);
    }
    flow.side_bar(
        from,
        if verdict.culprit.is_some() || verdict.crowded().is_some() {
            Paint::Alert
        } else {
            Paint::Series(1)
        },
    );
}

/// The work, and every layer that limits it.
fn limit_head(limit: &Limit) -> String {
    let names: Vec<&str> = limit.layers().map(layer_name).collect();
    if names.is_empty() { limit.work.clone() } else { format!("{}: {}", limit.work, names.join(", ")) }
}

fn limits(flow: &mut Flow, survey: &Survey) {
    if survey.verdict.limits.is_empty() {
        return;
    }
    flow.heading(1, "What limits", 70.0);
    for limit in &survey.verdict.limits {
        let head = limit_head(limit);
        flow.heading(2, &head, 40.0);
        flow.text(&limit.finding, Cell::BODY);
        flow.table(&figures::evidence(&limit.evidence));
    }
}

fn facts(facts: &[Fact]) -> Table {
    let mut table = Table::new(&[("fact", false), ("value", false)]);
    for fact in facts {
        let cells = vec![fact.name.clone(), fact.value.clone()];
        table.rows.push(figures::Row { cells, alert: false });
    }
    table
}

fn machines(flow: &mut Flow, survey: &Survey) {
    if !survey.hosts.is_empty() {
        flow.heading(1, "Machines", 60.0);
    }
    for host in &survey.hosts {
        flow.heading(2, &host.name, 40.0);
        flow.text(&host.roles.join(", "), Cell::QUIET);
        flow.table(&facts(&host.facts));
    }
    if !survey.settings.is_empty() {
        flow.heading(1, "Settings of the file system", 40.0);
        flow.table(&facts(&survey.settings));
    }
}

/// Tables of everything that was drawn, without each single sample.
fn numbers(flow: &mut Flow, survey: &Survey) {
    flow.heading(1, "Numbers", 60.0);
    flow.text("Every single sample stands in the HTML page and in the JSON.", Cell::QUIET);
    for layer in &survey.layers {
        for figure in figures::of_layer(layer) {
            let title = format!("{}: {}", layer_name(layer.id), figure.title());
            flow.heading(2, &title, 50.0);
            for command in figure.commands() {
                flow.code(command);
            }
            let (table, left_out) = short(&figure);
            flow.table(&table);
            if left_out > 0 {
                flow.text(&format!("{left_out} more rows stand in the HTML page."), Cell::QUIET);
            }
        }
    }
}

fn short(figure: &Figure) -> (Table, usize) {
    let mut table = figure.table();
    if let Some(raw) = table.heads.iter().position(|(name, _)| name == RAW) {
        table.heads.remove(raw);
        for row in &mut table.rows {
            if raw < row.cells.len() {
                row.cells.remove(raw);
            }
        }
    }
    // What stands out stays, whatever is cut.
    if table.rows.len() > MOST_ROWS {
        table.rows.sort_by_key(|row| !row.alert);
    }
    let left_out = table.rows.len().saturating_sub(MOST_ROWS);
    table.rows.truncate(MOST_ROWS);
    (table, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LayerId;

    /// Goal: paper names every layer that a limit names.
    #[test]
    fn every_layer_is_in_the_heading() {
        let mut limit = Limit {
            work: "Write, a file per process".to_owned(),
            layer: Some(LayerId::Device),
            also: vec![LayerId::Clients],
            finding: String::new(),
            evidence: Vec::new(),
        };
        assert_eq!(limit_head(&limit), "Write, a file per process: Device, All clients");
        limit.also.clear();
        assert_eq!(limit_head(&limit), "Write, a file per process: Device");
        limit.layer = None;
        assert_eq!(limit_head(&limit), "Write, a file per process");
    }
}

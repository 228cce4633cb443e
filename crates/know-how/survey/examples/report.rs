//! Draws the report of a survey, or the comparison of two: `report SURVEY.json PAGE.html [PAPER.pdf]`,
//! `report --compare BEFORE.json AFTER.json PAGE.html`.

use std::error::Error;
use std::fs;

use skep_survey::{compare::compare, model::Survey, report};

fn read(path: &str) -> Result<Survey, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{path} is no survey: {error}"))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["--compare", before, after, page] => {
            let (before, after) = (read(before)?, read(after)?);
            fs::write(page, report::compare_html(&before, &after, &compare(&before, &after)))?;
        }
        [survey, page, rest @ ..] => {
            let survey = read(survey)?;
            fs::write(page, report::html(&survey))?;
            if let Some(paper) = rest.first() {
                fs::write(paper, report::pdf(&survey))?;
            }
        }
        _ => return Err("usage: report SURVEY.json PAGE.html [PAPER.pdf]".into()),
    }
    Ok(())
}

//! Draws the report of a survey: `report SURVEY.json PAGE.html [PAPER.pdf]`.

use std::error::Error;
use std::fs;

use skep_survey::{model::Survey, report};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [survey, page, rest @ ..] = arguments.as_slice() else {
        return Err("usage: report SURVEY.json PAGE.html [PAPER.pdf]".into());
    };
    let text = fs::read_to_string(survey).map_err(|error| format!("cannot read {survey}: {error}"))?;
    let survey: Survey = serde_json::from_str(&text).map_err(|error| format!("no survey: {error}"))?;
    fs::write(page, report::html(&survey))?;
    if let Some(paper) = rest.first() {
        fs::write(paper, report::pdf(&survey))?;
    }
    Ok(())
}

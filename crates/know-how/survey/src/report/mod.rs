//! The report: one self-contained HTML page and a PDF, drawn from the document alone.
//!
//! `draw` is the vocabulary, `axis`, `letters`, `number` and `spread` what drawing needs, `charts` turn
//! numbers into drawings, `svg` and `pdf` are the two pens.

pub mod axis;
pub mod charts;
pub mod draw;
pub mod figures;
pub mod html;
pub mod letters;
pub mod number;
pub mod pdf;
pub mod spread;
pub mod svg;

use super::compare::Comparison;
use super::model::Survey;

/// The report as a page that fetches nothing.
pub fn html(survey: &Survey) -> String {
    html::html(survey)
}

/// The report on A4 paper.
pub fn pdf(survey: &Survey) -> Vec<u8> {
    pdf::pdf(survey)
}

/// Two surveys and what differs between them, as a page that fetches nothing.
pub fn compare_html(before: &Survey, after: &Survey, comparison: &Comparison) -> String {
    html::compare_html(before, after, comparison)
}

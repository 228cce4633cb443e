//! The report on paper: A4, the fonts that every viewer has, bookmarks and page numbers.

mod flow;
mod pen;
mod report;

pub use flow::{Cell, Flow};
pub use report::pdf;

//! The report as one file that asks nobody for anything: no script, no font, no picture from outside.

mod comparison;
mod page;
mod parts;

pub use comparison::compare_html;
pub use page::{escape, html, shell};
pub use parts::{commands, table};

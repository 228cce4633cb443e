//! What part of the rates of components programs see.

use crate::catalogue::WHOLE;

/// Two parts closer than this are the same: rates are sums made in different orders.
const SAME: f64 = 1e-9;

/// Parts of the rates of components that programs see, in one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Efficiency {
    /// Of every component.
    pub all: f64,
    /// Of drives that count with the rate of their data sheet, on top of that.
    pub data_sheet: f64,
    /// Where the one of the two that is not 1 comes from.
    pub source: String,
}

impl Efficiency {
    /// What programs see as a part of the limit, and who says so. `seen`: what passes with drives at their part.
    pub fn of_limit(&self, limit: f64, seen: f64) -> (f64, String) {
        let (drives, sheet) = (seen / limit, self.data_sheet);
        if sheet >= 1.0 {
            (self.all, self.source.clone())
        } else if drives >= 1.0 - SAME {
            (self.all, WHOLE.to_owned())
        } else if (drives - sheet).abs() < SAME {
            (self.all * sheet, self.source.clone())
        } else {
            let sheet = sheet * 100.0;
            let source = format!("{sheet:.1} % of drives with the rate of a data sheet ({})", self.source);
            (self.all * drives, source)
        }
    }
}

//! Requests that measure. Every daemon answers them, and so does a bench agent.

mod discard;
mod fabricate;
mod measure;

pub use discard::Discard;
pub use fabricate::Fabricate;
pub use measure::{Measure, MeasureReply};

crate::family! {
    /// Everything an administrator, a bench agent or another daemon asks to measure.
    InstrumentRequest { Measure, Discard, Fabricate }
}

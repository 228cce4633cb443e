//! `Measure`: a measurement is described, started, asked for or stopped.

use alloc::vec::Vec;
use skep_types::record;

crate::message! {
    /// One call of the measuring plane. What can be measured grows faster than a format should, and no call
    /// is on a path that counts microseconds, so both bodies are JSON documents.
    Measure = 0x0401 -> MeasureReply {
        /// The question, a JSON document.
        pub question: Vec<u8>,
    }
}

record! {
    /// Answer to `Measure`.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct MeasureReply {
        /// The answer, a JSON document.
        pub answer: Vec<u8>,
    }
}

//! What a coordinator asks an agent, and what it answers: JSON in the bodies of `Measure`, like the questions
//! of the instruments, from which it is told apart by its only field.
//!
//! Every question may come twice (a connection broke before the answer arrived): orders are numbered, reports
//! are fetched by their place.

use serde::{Deserialize, Serialize};
use skep_bench::engine::Order;
use skep_bench::job::Job;

/// Longest question: less than a frame's body.
pub const QUESTION_MAX: usize = 1_000_000;
/// Longest piece of reports in one answer; escaped in JSON it still fits into a frame's body.
pub const PIECE_MAX: usize = 256 << 10;
/// An agent answers a request for reports within this time, with or without any.
pub const WAIT_MAX_MS: u64 = 500;

/// Around every question to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToAgent {
    /// The question.
    pub agent: AgentQuestion,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentQuestion {
    /// Who are you?
    Hello,
    /// What time is it? On the clock that measurements use.
    Clock,
    /// Start worker processes for a job.
    Begin {
        /// Drawn by the coordinator; names the run from now on.
        run: u64,
        /// The whole job.
        job: Box<Job>,
        /// Numbers of the processes that run here.
        processes: Vec<u32>,
    },
    /// Orders to the processes, in this order.
    Orders {
        run: u64,
        /// Rises by one; one that was seen already is passed over.
        number: u64,
        /// Places in the list of [`AgentQuestion::Begin`], and what they are to do.
        orders: Vec<(Vec<u32>, Relayed)>,
    },
    /// What the processes report, from that byte of the stream on.
    Reports {
        run: u64,
        /// Everything before it has arrived and may be forgotten.
        from: u64,
    },
    /// The run is over.
    End { run: u64 },
}

/// An order; the job, which the agent has, is left out of the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relayed {
    /// [`Order::Start`] of the run's job.
    Start {
        /// Hosts of the run.
        hosts: u32,
        /// Processes of the run on this host.
        host_processes: u32,
        /// Whether it checks what concerns the host.
        first_on_host: bool,
        /// How often to report progress.
        progress_ms: u32,
    },
    /// Any other.
    Order(Order),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentAnswer {
    /// Who it is.
    Hello {
        /// Name of its machine.
        host: String,
        /// Its release.
        version: String,
        /// Worker processes that it starts at most.
        processes_max: u32,
    },
    /// Nanoseconds on its clock.
    Clock {
        /// When the question was answered.
        now_ns: u64,
    },
    /// A piece of the stream of reports: a line `[place, report]` each.
    Reports {
        /// From the byte that was asked for.
        text: String,
    },
    Done,
}

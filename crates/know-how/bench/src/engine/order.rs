//! What director and workers say to each other: one JSON object per line.

use super::{Made, Part, Trouble};
use crate::job::Job;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, BufRead, Write};

/// Bytes of one line. A job that names many paths is the longest order, timelines of many threads the
/// longest report.
pub const MAX_LINE: u64 = 64 << 20;

/// The first order: the job and the worker's place in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub job: Job,
    /// Number of this process over all hosts.
    pub process: u32,
    /// Hosts of the run.
    pub hosts: u32,
    /// Processes of the run on this host.
    pub host_processes: u32,
    /// Whether it is the first of its host (which checks what concerns the host).
    pub first_on_host: bool,
    /// How often to report progress, milliseconds.
    pub progress_ms: u32,
    /// The job's paths are free of links already: who started it has checked just these, and a link that
    /// turns up in one is refused.
    #[serde(default)]
    pub settled: bool,
}

/// From the director.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Check the job and the places; answered by Ready.
    Start(Box<Start>),
    /// Get ready for a step; answered by Ready.
    Prepare {
        /// Place in [`super::steps`].
        step: u32,
        /// From 0.
        repetition: u32,
        /// How much of its data each worker made, in transfers or items, where the clock stopped it;
        /// empty: all of it.
        reach: Vec<u64>,
    },
    /// Do a part of the prepared step from that moment of the host's clock; answered by Done.
    Go {
        part: Part,
        /// Start, nanoseconds of the worker's host.
        start_ns: u64,
    },
    /// After Walled: go on until so many operations.
    Level {
        /// Operations of the fastest worker.
        ops: u64,
    },
    /// A repetition is over: remove what the next one makes anew; answered by Ready.
    Tidy {
        /// Which repetition.
        repetition: u32,
    },
    /// Remove what the workers of this process made; answered by Cleaned.
    Clean {
        /// And what processes made that are gone.
        made: Vec<Made>,
    },
    /// Stop at once; answered by Stopped.
    Stop,
    /// Exit.
    End,
}

/// From a worker process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// Done with what was ordered last; warnings for the user.
    Ready {
        /// Sentences.
        warnings: Vec<String>,
    },
    /// Something was made, which has to be removed if this process cannot do so itself.
    Made(Made),
    /// A part is done.
    Done(PartReport),
    /// The stonewall is reached, all threads wait for Level.
    Walled {
        /// Operations of the fastest thread.
        ops: u64,
    },
    /// How far the running part is; also a sign of life.
    Progress {
        bytes: u64,
        /// Operations done.
        ops: u64,
    },
    /// Cleaned up.
    Cleaned {
        /// Paths that could not be removed, with the reason.
        left: Vec<String>,
    },
    /// All threads have stopped.
    Stopped,
    /// A worker cannot go on.
    Failed { worker: u32, trouble: Trouble },
    /// The process is gone (said by the crew, not by the process).
    Gone { reason: String },
}

/// What the threads of one process did in a part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    /// One per thread.
    pub workers: Vec<WorkerReport>,
    /// Latencies of all threads, one list per side: pairs of nanoseconds and count.
    pub latencies: Vec<Vec<(u64, u64)>>,
}

/// What one thread did in a part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its number over all processes.
    pub worker: u32,
    /// First operation, on the host's clock.
    pub start_ns: u64,
    /// End of the last, on the host's clock.
    pub end_ns: u64,
    /// Reads and writes apart where a phase has both; one side otherwise.
    pub sides: Vec<SideReport>,
    /// Samples of how far it was: (clock, bytes, operations), rising.
    pub timeline: Vec<(u64, u64, u64)>,
}

/// One side of a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideReport {
    pub bytes: u64,
    /// Operations done.
    pub ops: u64,
}

/// Reads one line; None at the end of the input.
pub fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let read = io::Read::take(&mut *input, MAX_LINE).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        let what = if read as u64 == MAX_LINE { "a line is too long" } else { "the last line is cut" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
}

pub fn write_line<T: Serialize>(output: &mut impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{IoJob, Work};

    /// Goal: messages survive the way, a cut line and nonsense are errors, the end is the end.
    #[test]
    fn lines() {
        let job = Job::new(Work::Io(IoJob::new("/tmp")));
        let start = Start {
            job,
            process: 1,
            hosts: 2,
            host_processes: 1,
            first_on_host: true,
            progress_ms: 250,
            settled: false,
        };
        let orders = [Order::Start(Box::new(start)), Order::Go { part: Part::All, start_ns: 5 }, Order::End];
        let mut wire = Vec::new();
        for order in &orders {
            write_line(&mut wire, order).unwrap();
        }
        let mut input = wire.as_slice();
        for order in &orders {
            assert_eq!(read_line::<Order>(&mut input).unwrap().as_ref(), Some(order));
        }
        assert_eq!(read_line::<Order>(&mut input).unwrap(), None);
        assert!(read_line::<Order>(&mut &b"\"end\""[..]).is_err());
        assert!(read_line::<Order>(&mut &b"{}\n"[..]).is_err());
    }
}

//! What the machines are on which clients run: this one, or those of agents.

use crate::bench::{AGENT_PORT, HostsArgs};
use skep_base::caller::{Caller, hello};
use skep_instruments::facts::look;
use skep_instruments::question::{Findings, JobState, Measurement, NodeFacts, Order, Question, Reply};
use skep_net::{Endpoint, Keyring};
use skep_types::Role;
use skep_wire::instrument::Measure;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An agent tells its facts within this time.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at whether it is ready.
const LOOK: Duration = Duration::from_millis(5);

/// Name and facts of every host of clients, or why they are not known.
pub fn facts(hosts: &HostsArgs) -> Vec<(String, Result<NodeFacts, String>)> {
    if hosts.hosts.is_empty() {
        let own = look("client", &[]);
        return vec![(own.host.clone(), Ok(own))];
    }
    let keyring = hosts.keyring().map(Arc::new);
    std::thread::scope(|scope| {
        let asked = hosts.hosts.iter().map(|name| {
            let keyring = keyring.clone();
            (name, scope.spawn(move || of_agent(name, keyring?)))
        });
        let asked: Vec<_> = asked.collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<NodeFacts, String>>| {
            thread.join().unwrap_or_else(|_| Err("a thread ended badly".to_owned()))
        };
        asked.into_iter().map(|(name, thread)| (name.clone(), ended(thread))).collect()
    })
}

fn of_agent(name: &str, keyring: Arc<Keyring>) -> Result<NodeFacts, String> {
    let endpoint = Endpoint::with_default_port(name, AGENT_PORT).map_err(|e| e.to_string())?;
    let role = if keyring.has(Role::Admin) { Role::Admin } else { Role::Client };
    let mut caller = Caller::new(keyring, vec![endpoint], hello(role));
    let until = Instant::now() + LIMIT;
    let mut put = |question: &Question| -> Result<Reply, String> {
        let question = serde_json::to_vec(question).map_err(|e| format!("the question: {e}"))?;
        let reply = caller.call(&Measure { question }, until).map_err(|e| e.to_string())?;
        let other = "the answer cannot be understood; is it an agent, and of the same release?";
        serde_json::from_slice(&reply.answer).map_err(|e| format!("{other} ({e})"))
    };
    let mut question = Question::Start(Order::leased(Measurement::Facts));
    loop {
        let Reply::Job(job) = put(&question)? else {
            return Err("a list of jobs came instead of one".to_owned());
        };
        match (job.state, job.findings, job.error) {
            (_, _, Some(error)) => return Err(error),
            (_, Some(Findings::Facts(facts)), None) => return Ok(*facts),
            (JobState::Running, ..) if Instant::now() < until => {}
            _ => return Err("it told no facts".to_owned()),
        }
        std::thread::sleep(LOOK);
        question = Question::Status(job.job);
    }
}

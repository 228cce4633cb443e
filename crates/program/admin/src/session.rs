//! `skep session list`, `skep session evict`.

use clap::{Args, Subcommand};
use serde::Serialize;
use skep_base::access::AccessArgs;
use skep_base::output::{self, OutputArgs, Row, ago};
use skep_base::{Failure, Outcome};
use skep_types::ClientId;
use skep_wire::mgmt::{Evict, EvictionStatus, SessionStatus, StatusReply};
use std::io::Write;

/// A mount renews its session every 15 s at the latest (`HOUSEKEEPING_MAX_MS`). One that is silent for longer than this has
/// missed two renewals, and is evicted unless it comes back.
pub const SILENT_MS: u64 = 2 * skep_client::HOUSEKEEPING_MAX_MS + 5_000;

/// `skep session ...`
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the mounts, and those that were evicted in the last day
    List(ListArgs),
    /// End a session by force: its late writes are refused from now on
    Evict(EvictArgs),
}

/// Flags of `skep session list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep session evict`.
#[derive(Debug, Args)]
pub struct EvictArgs {
    /// Number of the client, or HOST:MOUNTPOINT, as in `skep session list`
    client: String,
    #[command(flatten)]
    access: AccessArgs,
}

/// A mount.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionRow {
    client: u64,
    host: String,
    mount: String,
    silent_ms: Option<u64>,
    /// Ended by force so long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    evicted_ms: Option<u64>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Row for SessionRow {
    const TITLES: &'static [&'static str] = &[">CLIENT", "HOST", "MOUNT", "HEARD", "STATE"];

    fn cells(&self) -> Vec<String> {
        let (heard, state) = match (&self.evicted_ms, &self.why) {
            (Some(ms), Some(why)) => ("-".to_owned(), format!("evicted {} ago: {why}", ago(Some(*ms)))),
            _ => (ago(self.silent_ms), "open".to_owned()),
        };
        vec![self.client.to_string(), self.host.clone(), self.mount.clone(), heard, state]
    }
}

fn row(session: &SessionStatus) -> SessionRow {
    SessionRow {
        client: session.client.0,
        host: session.host.clone(),
        mount: session.mount.clone(),
        silent_ms: session.silent_ms,
        evicted_ms: None,
        why: None,
    }
}

fn evicted(eviction: &EvictionStatus) -> SessionRow {
    SessionRow {
        client: eviction.client.0,
        host: eviction.host.clone(),
        mount: eviction.mount.clone(),
        silent_ms: None,
        evicted_ms: Some(eviction.ago_ms),
        why: Some(eviction.why.clone()),
    }
}

/// The mount with this number, or called `HOST:PLACE`.
pub fn find(status: &StatusReply, text: &str) -> Outcome<ClientId> {
    let number = text.parse().ok().map(ClientId);
    let called = |session: &&SessionStatus| {
        Some(session.client) == number || format!("{}:{}", session.host, session.mount) == text
    };
    let mut found = status.sessions.iter().filter(called);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.client),
        (None, _) => Err(Failure::new(format!("there is no session \"{text}\"; see `skep session list`"))),
        (Some(_), Some(_)) => Err(Failure::new(format!(
            "several sessions are called {text}; name one by its number, from `skep session list`"
        ))),
    }
}

/// All mounts, and those that were evicted in the last day.
pub fn rows(status: &StatusReply) -> Vec<SessionRow> {
    status.sessions.iter().map(row).chain(status.evictions.iter().map(evicted)).collect()
}

pub fn run(command: &SessionCommand, out: &mut dyn Write) -> Outcome {
    match command {
        SessionCommand::List(args) => {
            let status = args.access.connect(None)?.status()?;
            Ok(output::rows(args.output.output, &rows(&status), out)?)
        }
        SessionCommand::Evict(args) => {
            let mut cluster = args.access.connect(None)?;
            cluster.require_admin("evicting a client")?;
            let client = find(&cluster.status()?, &args.client)?;
            cluster.ask(&Evict { client })?;
            eprintln!("client {client} is evicted; a living mount opens a new session by itself");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the released field names, and a cell for every title.
    #[test]
    fn field_names() {
        let status =
            SessionStatus { client: ClientId(7), host: "h".into(), mount: "/m".into(), silent_ms: Some(5) };
        let json = serde_json::to_string(&row(&status)).unwrap();
        assert_eq!(json, r#"{"client":7,"host":"h","mount":"/m","silent_ms":5}"#);
        assert_eq!(row(&status).cells(), ["7", "h", "/m", "5 ms", "open"]);
        let gone = EvictionStatus {
            client: ClientId(6),
            host: "h".into(),
            mount: "/m".into(),
            ago_ms: 60_000,
            why: "silent for 60 s".into(),
        };
        let json = serde_json::to_string(&evicted(&gone)).unwrap();
        let expected = r#"{"client":6,"host":"h","mount":"/m","silent_ms":null,"evicted_ms":60000,"why":"silent for 60 s"}"#;
        assert_eq!(json, expected);
        assert!(evicted(&gone).cells()[4].starts_with("evicted 60 s ago"), "{:?}", evicted(&gone).cells());
    }

    /// Goal: a session is found by number and by host and mount point; two of one name are told apart by
    /// number only.
    #[test]
    fn found_by_number_and_place() {
        let mut status = skep_base::namespace::samples::status();
        assert_eq!((find(&status, "7"), find(&status, "host:/mnt")), (Ok(ClientId(7)), Ok(ClientId(7))));
        assert!(find(&status, "8").unwrap_err().to_string().contains("session list"));
        let twin = SessionStatus { client: ClientId(8), ..status.sessions[0].clone() };
        status.sessions.push(twin);
        assert!(find(&status, "host:/mnt").unwrap_err().to_string().contains("number"));
        assert_eq!(find(&status, "8"), Ok(ClientId(8)));
    }
}

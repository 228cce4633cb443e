//! `skep session list`, `skep session evict`.

use super::access::AccessArgs;
use super::failure::Outcome;
use crate::cli::output::{self, OutputArgs, Row, ago};
use clap::{Args, Subcommand};
use serde::Serialize;
use skep_types::ClientId;
use skep_wire::mgmt::{Evict, SessionStatus};
use std::io::Write;

/// `skep session ...`
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the mounts
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
    /// Number of the client, from `skep session list`
    client: u64,
    #[command(flatten)]
    access: AccessArgs,
}

/// A mount.
#[derive(Debug, Serialize)]
struct SessionRow {
    client: u64,
    host: String,
    mount: String,
    silent_ms: Option<u64>,
}

impl Row for SessionRow {
    const TITLES: &'static [&'static str] = &[">CLIENT", "HOST", "MOUNT", "HEARD"];

    fn cells(&self) -> Vec<String> {
        vec![self.client.to_string(), self.host.clone(), self.mount.clone(), ago(self.silent_ms)]
    }
}

fn row(session: &SessionStatus) -> SessionRow {
    SessionRow {
        client: session.client.0,
        host: session.host.clone(),
        mount: session.mount.clone(),
        silent_ms: session.silent_ms,
    }
}

/// Does it.
pub fn run(command: &SessionCommand, out: &mut dyn Write) -> Outcome {
    match command {
        SessionCommand::List(args) => {
            let status = args.access.connect(None)?.status()?;
            let rows: Vec<_> = status.sessions.iter().map(row).collect();
            Ok(output::rows(args.output.output, &rows, out)?)
        }
        SessionCommand::Evict(args) => {
            let mut cluster = args.access.connect(None)?;
            cluster.require_admin("evicting a client")?;
            cluster.ask(&Evict { client: ClientId(args.client) })?;
            eprintln!(
                "client {} is evicted; a living mount must be unmounted and mounted again",
                args.client
            );
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
        assert_eq!(row(&status).cells(), ["7", "h", "/m", "5 ms"]);
    }
}

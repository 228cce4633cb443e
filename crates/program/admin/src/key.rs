//! `skep key generate`, `skep key client`, `skep key token`.

use clap::{Args, Subcommand};
use skep_base::access::KEY_FILE;
use skep_base::{Failure, Outcome};
use skep_net::{KeyFile, Keyring};
use skep_types::Role;
use std::io::Write;
use std::path::PathBuf;

/// `skep key ...`
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make the key of a new cluster (an existing file is never overwritten)
    Generate(GenerateArgs),
    /// Derive the key file that mounts need from the cluster key
    Client(ClientArgs),
    /// Print the token of the HTTP API, which the cluster key makes
    Token(TokenArgs),
}

/// Arguments of `skep key generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Where to write it
    #[arg(default_value = KEY_FILE)]
    file: PathBuf,
}

/// Arguments of `skep key client`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// Where to write it
    file: PathBuf,
    /// The cluster key
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    key: PathBuf,
}

/// Arguments of `skep key token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// The cluster key
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    key: PathBuf,
}

pub fn run(command: &KeyCommand, out: &mut dyn Write) -> Outcome {
    match command {
        KeyCommand::Generate(args) => {
            let key = KeyFile::generate().map_err(|e| Failure::local("random source of the kernel", e))?;
            key.write(&args.file).map_err(|e| Failure::new(e.to_string()))?;
            eprintln!(
                "{}: the cluster key; copy it to every server, keep it from everybody else",
                args.file.display()
            );
        }
        KeyCommand::Client(args) => {
            let keyring = Keyring::from_file(&args.key).map_err(|e| Failure::new(e.to_string()))?;
            if !keyring.has(Role::Server) {
                let path = args.key.display();
                return Err(Failure::new(format!(
                    "{path} is a client key already; name the cluster key by --key"
                )));
            }
            keyring.client_file().write(&args.file).map_err(|e| Failure::new(e.to_string()))?;
            eprintln!(
                "{}: the key for mounts; it makes nobody a server or administrator",
                args.file.display()
            );
        }
        KeyCommand::Token(args) => {
            let keyring = Keyring::from_file(&args.key).map_err(|e| Failure::new(e.to_string()))?;
            let token = keyring.http_token().ok_or_else(|| {
                let path = args.key.display();
                Failure::new(format!("{path} is the key of a client; name the cluster key by --key"))
            })?;
            writeln!(out, "{token}")?;
        }
    }
    Ok(())
}

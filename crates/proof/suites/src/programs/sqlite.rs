//! SQLite: its locks and its journals, from two mounts, and while servers die.

use super::shell::{command, must, same};
use super::{Stage, chaos};
use std::process::Stdio;

const ROWS: u32 = 150;

fn insert(rows: u32, who: &str) -> String {
    // One transaction each; the row's number is printed once SQLite has acknowledged it.
    format!(
        "for n in $(seq {rows}); do sqlite3 -cmd '.timeout 120000' data.db \
         \"insert into t(who, n, blob) values ('{who}', $n, randomblob(3000));\"; echo $n; done"
    )
}

const CREATE: &str =
    "create table t(id integer primary key, who text, n integer, blob blob, unique(who, n));";

/// Writers on both mounts with the rollback journal (fcntl locks between hosts), then WAL (shared memory map)
/// by several processes of one mount.
pub fn run(stage: &Stage<'_>) -> Result<String, String> {
    must(&stage.work, &format!("sqlite3 data.db \"pragma journal_mode=delete; {CREATE}\""))?;
    let start = |dir, who: &str| {
        command(dir, &insert(ROWS, who)).stdout(Stdio::null()).spawn().map_err(|e| e.to_string())
    };
    let (mut one, mut two) = (start(&stage.work, "one")?, start(&stage.other, "two")?);
    for child in [&mut one, &mut two] {
        let status = child.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("a writer with the rollback journal ended with {status}"));
        }
    }
    for dir in [&stage.work, &stage.other] {
        let found =
            must(dir, "sqlite3 data.db 'pragma integrity_check; select who, count(*) from t group by who'")?;
        same("database after two mounts wrote", &found, &format!("ok\none|{ROWS}\ntwo|{ROWS}"))?;
    }
    must(&stage.work, "sqlite3 data.db 'pragma journal_mode=wal' | grep -qx wal")?;
    let mut crew = Vec::new();
    for who in ["a", "b", "c"] {
        crew.push(start(&stage.work, who)?);
    }
    for mut child in crew {
        let status = child.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("a writer with WAL ended with {status}"));
        }
    }
    let found = must(&stage.work, "sqlite3 data.db 'pragma integrity_check; select count(*) from t'")?;
    same("database after WAL", &found, &format!("ok\n{}", 5 * ROWS))?;
    Ok(format!(
        "{ROWS} transactions from each of two mounts, then by three processes in WAL mode; integrity ok"
    ))
}

/// Daemons are killed and stopped, again and again, below one writer: what was acknowledged is there.
pub fn kills(stage: &Stage<'_>) -> Result<String, String> {
    must(&stage.work, &format!("sqlite3 data.db \"pragma journal_mode=delete; {CREATE}\""))?;
    let rows = 10 * ROWS;
    let told = std::fs::File::create(stage.local.join("told")).map_err(|e| e.to_string())?;
    let mut child =
        command(&stage.work, &insert(rows, "one")).stdout(told).spawn().map_err(|e| e.to_string())?;
    let kills = chaos::until_done(stage.cluster, &mut child)?;
    let status = child.wait().map_err(|e| e.to_string())?;
    if !status.success() || kills < 2 {
        return Err(format!("the writer ended with {status} after {kills} kills and stops"));
    }
    let told = must(&stage.local, "wc -l < told")?;
    let found = must(&stage.other, "sqlite3 data.db 'pragma integrity_check; select count(*) from t'")?;
    same("database after kills", &found, &format!("ok\n{told}"))?;
    Ok(format!("{told} acknowledged transactions, {kills} kills and stops of daemons; integrity ok"))
}

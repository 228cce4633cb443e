//! PostgreSQL: pgbench while servers die or are silent, then its own checks, then a crash of the database itself.

use super::shell::{command, must, same};
use super::{Stage, chaos};
use std::path::{Path, PathBuf};

/// Branches of pgbench: 100,000 accounts each.
const SCALE: u32 = 3;
const SECONDS: u32 = 60;
/// Each kind of daemon is killed and stopped once, at least.
const BLOWS_MIN: u32 = 6;

const CONSISTENT: &str = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from \
    pgbench_history) and (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history) \
    and (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)";

struct Database {
    programs: PathBuf,
    data: PathBuf,
    run: PathBuf,
}

impl Database {
    /// As the user `postgres`: the database refuses to run as root.
    fn script(&self, script: &str) -> String {
        let variables = format!(
            "export PATH={}:$PATH PGDATA={} PGHOST={} PGUSER=postgres PGDATABASE=postgres; ",
            self.programs.display(),
            self.data.display(),
            self.run.display()
        );
        format!("runuser -u postgres -- sh -eu -c '{variables}{}'", script.replace('\'', "'\\''"))
    }

    fn must(&self, dir: &Path, script: &str) -> Result<String, String> {
        must(dir, &self.script(script))
    }

    fn start(&self) -> Result<(), String> {
        let listen = format!("-c listen_addresses= -c unix_socket_directories={}", self.run.display());
        self.must(
            &self.run,
            &format!("pg_ctl start -w -t 60 -l {}/log -o \"{listen}\" >&2", self.run.display()),
        )
        .map(drop)
    }

    fn stop(&self, how: &str) -> Result<(), String> {
        self.must(&self.run, &format!("pg_ctl stop -w -t 120 -m {how} >&2")).map(drop)
    }
}

pub fn run(stage: &Stage<'_>) -> Result<String, String> {
    let programs = must(&stage.local, "ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1")?;
    let database =
        Database { programs: programs.into(), data: stage.work.join("data"), run: stage.local.join("run") };
    let open = "chmod 755 .. . && install -d -o postgres -m 700 run";
    must(&stage.local, open)?;
    must(&stage.work, "chown postgres .")?;
    database.must(&stage.work, "initdb --data-checksums --no-instructions >&2")?;
    database.start()?;
    let outcome = work(stage, &database);
    let stopped = database.stop("fast");
    let outcome = outcome?;
    stopped?;
    database.must(&stage.work, "pg_checksums --check >&2")?;
    Ok(outcome)
}

fn work(stage: &Stage<'_>, database: &Database) -> Result<String, String> {
    database.must(&stage.work, &format!("pgbench -q -i -s {SCALE} 2>&1"))?;
    let bench = format!("pgbench -n -c 4 -j 2 -T {SECONDS} > {}/bench 2>&1", database.run.display());
    let mut child = command(&stage.work, &database.script(&bench)).spawn().map_err(|e| e.to_string())?;
    let blows = chaos::until_done(stage.cluster, &mut child)?;
    let status = child.wait().map_err(|e| e.to_string())?;
    let said = must(&database.run, "cat bench")?;
    if !status.success() || blows < BLOWS_MIN {
        return Err(format!("pgbench ended with {status} after {blows} kills and stops of daemons:\n{said}"));
    }
    let committed = said
        .lines()
        .find_map(|line| line.strip_prefix("number of transactions actually processed: "))
        .ok_or_else(|| format!("pgbench said:\n{said}"))?
        .to_owned();
    // The database saw nothing of it.
    let errors = must(&database.run, "grep -E 'PANIC|ERROR|FATAL' log || true")?;
    same("errors in the log of the database", &errors, "")?;
    let query = |text: &str| database.must(&database.run, &format!("psql -XAtc \"{text}\""));
    same("transactions in the history", &query("select count(*) from pgbench_history")?, &committed)?;
    same("sums agree", &query(CONSISTENT)?, "t")?;
    // Now the database itself dies, and recovers from its log.
    let mut child =
        command(&stage.work, &database.script("pgbench -n -c 4 -j 2 -T 20 >/dev/null 2>&1 || true"))
            .spawn()
            .map_err(|e| e.to_string())?;
    std::thread::sleep(std::time::Duration::from_secs(4));
    database.stop("immediate")?;
    let _ = child.wait();
    database.start()?;
    same("sums agree after recovery", &query(CONSISTENT)?, "t")?;
    query("create extension if not exists amcheck")?;
    database.must(&database.run, "pg_amcheck --heapallindexed --parent-check >&2")?;
    Ok(format!(
        "pgbench {committed} transactions over {blows} kills and stops of storaged, metad and mgmtd, none lost, no \
         error; crash and recovery of the database; pg_amcheck and pg_checksums clean"
    ))
}

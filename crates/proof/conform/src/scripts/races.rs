//! Several threads at the same name: what must be atomic.

use super::{Outcome, Script, at, hold};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads that race.
const RACERS: usize = 4;
/// How often.
const ROUNDS: usize = 100;

/// Lets all racers try `act` at once on a fresh name, many times: exactly one may win each time.
fn one_winner(loser: ErrorKind, prepare: fn(&Path), act: fn(&Path) -> std::io::Result<()>) -> Outcome {
    // threads started here share this case's working directory, but a name in full is safe anyway
    let dir = at("cwd", std::env::current_dir())?;
    for round in 0..ROUNDS {
        let path = dir.join(format!("race-{round}"));
        prepare(&path);
        let start = Barrier::new(RACERS);
        let results: Vec<std::io::Result<()>> = std::thread::scope(|scope| {
            let racer = || {
                start.wait();
                act(&path)
            };
            let threads: Vec<_> = (0..RACERS).map(|_| scope.spawn(racer)).collect();
            threads.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        let winners = results.iter().filter(|r| r.is_ok()).count();
        hold(winners == 1, || format!("round {round}: {winners} of {RACERS} won"))?;
        for error in results.iter().filter_map(|r| r.as_ref().err()) {
            hold(error.kind() == loser, || format!("round {round}: a loser got {error}"))?;
        }
    }
    Ok(())
}

pub(super) const EXCLUSIVE_CREATE: Script = Script {
    id: "open/exclusive-create-has-one-winner",
    goal: "of four O_CREAT|O_EXCL at once exactly one succeeds, the others get EEXIST",
    needs: &[],
    run: || {
        let act = |p: &Path| OpenOptions::new().write(true).create_new(true).open(p).map(drop);
        one_winner(ErrorKind::AlreadyExists, |_| {}, act)
    },
};

pub(super) const EXCLUSIVE_MKDIR: Script = Script {
    id: "mkdir/has-one-winner",
    goal: "of four mkdir at once exactly one succeeds, the others get EEXIST",
    needs: &[],
    run: || one_winner(ErrorKind::AlreadyExists, |_| {}, |p| fs::create_dir(p)),
};

pub(super) const UNLINK_ONCE: Script = Script {
    id: "unlink/has-one-winner",
    goal: "of four unlink at once exactly one succeeds, the others get ENOENT",
    needs: &[],
    run: || {
        // a file that could not be made shows as a round without a winner
        let prepare = |p: &Path| drop(File::create(p));
        one_winner(ErrorKind::NotFound, prepare, |p| fs::remove_file(p))
    },
};

/// Runs `change` over and over while `look` must never fail.
fn while_changing(change: impl Fn() -> Outcome + Sync, look: impl Fn() -> Outcome) -> Outcome {
    const LOOKS: usize = 300;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                change()?;
            }
            Ok(())
        });
        let seen = (0..LOOKS).try_for_each(|_| look());
        stop.store(true, Ordering::Relaxed);
        let changed: Outcome = changer.join().map_err(|_| "the changing thread panicked".to_owned())?;
        seen.and(changed)
    })
}

pub(super) const RENAME_OVER: Script = Script {
    id: "rename/replaces-atomically",
    goal: "while a file is replaced by rename over and over, its name always leads to a whole file",
    needs: &[],
    run: || {
        let dir = at("cwd", std::env::current_dir())?;
        let (new, name) = (dir.join("new"), dir.join("name"));
        at("write", fs::write(&name, b"whole"))?;
        let change = || {
            at("write", fs::write(&new, b"whole"))?;
            at("rename", fs::rename(&new, &name))
        };
        while_changing(change, || {
            let got = at("read", fs::read(&name))?;
            hold(got == b"whole", || format!("read {} bytes of a half-made file", got.len()))
        })
    },
};

pub(super) const EXCHANGE: Script = Script {
    id: "rename/exchange-is-atomic",
    goal: "while two names are exchanged over and over, both always exist",
    needs: &[],
    run: || {
        let dir = at("cwd", std::env::current_dir())?;
        let (a, b) = (dir.join("a"), dir.join("b"));
        at("write", fs::write(&a, b"1"))?;
        at("write", fs::write(&b, b"2"))?;
        let change = || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            at("exchange", renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE))
        };
        while_changing(change, || {
            at("stat a", fs::metadata(&a))?;
            at("stat b", fs::metadata(&b)).map(drop)
        })
    },
};

//! `skep tune apply` and `skep tune undo`.

use super::machine::{MachineArgs, directory};
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use skep_base::{Failure, Outcome};
use skep_tune::change::{Applied, Plan, RealHands, UNDO_FILE, apply, undo as put_back};
use skep_tune::{Finding, Host, Root, Verdict, check};
use std::fs::File;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

/// Arguments of `skep tune apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Show what would be changed, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short = 'y', conflicts_with = "dry_run")]
    yes: bool,
    /// Only these settings, as check calls them, several times or separated by commas
    #[arg(long = "setting", value_delimiter = ',', value_name = "NAME")]
    settings: Vec<String>,
    #[command(flatten)]
    machine: MachineArgs,
}

/// Arguments of `skep tune undo`.
#[derive(Debug, Args)]
pub struct UndoArgs {
    /// Go on when a disk cannot be found; its values stay as they are
    #[arg(long)]
    leave_missing: bool,
    /// Undo in a directory that looks like a machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// One that changes settings at a time: a lock on the directory that every change goes through.
pub fn lock(root: &Root) -> Outcome<File> {
    let path = root.path("/etc");
    let dir = File::open(&path).map_err(|e| Failure::local(path.display(), e))?;
    flock(&dir, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Failure::new(format!("{}: another skep tune is at work on this machine; wait for it", path.display()))
    })?;
    Ok(dir)
}

/// Those that were named; a name that nothing has is an error.
fn chosen(findings: Vec<Finding>, names: &[String]) -> Outcome<Vec<Finding>> {
    if let Some(name) = names.iter().find(|name| findings.iter().all(|one| one.setting != **name)) {
        let all = findings.iter().map(|one| one.setting);
        let hint =
            skep_base::config::nearest::nearest(name, all).map(|near| format!("; did you mean {near}?"));
        return Err(Failure::usage(format!(
            "there is no setting \"{name}\"{}; skep tune check --all lists them",
            hint.unwrap_or_default()
        )));
    }
    Ok(findings
        .into_iter()
        .filter(|one| names.is_empty() || names.iter().any(|name| name == one.setting))
        .collect())
}

pub fn run(args: &ApplyArgs, out: &mut dyn Write) -> Outcome {
    run_when(args, out, &mut agreed)
}

/// Does it when the person agrees.
pub fn run_when(args: &ApplyArgs, out: &mut dyn Write, agreed: &mut dyn FnMut() -> Outcome<bool>) -> Outcome {
    let root = args.machine.open()?;
    let _lock = if args.dry_run { None } else { Some(lock(&root)?) };
    let host = Host::read(&root, args.machine.part(&root)?);
    let findings = chosen(check(&host), &args.settings)?;
    let plan = Plan::of(&root, &findings).map_err(Failure::new)?;
    let by_hand =
        findings.iter().filter(|one| one.verdict == Verdict::Change && one.change.is_none()).count();
    let rest = match by_hand {
        0 => String::new(),
        count => {
            format!("; {count} more are to be changed by hand: skep tune check --explain{}", root.flag())
        }
    };
    if plan.is_empty() {
        eprintln!("nothing to change{rest}");
        // Written earlier, and not done since.
        still_to_do(&root, &plan.after);
        return Ok(());
    }
    out.write_all(plan.diff().as_bytes())?;
    out.flush()?;
    if args.dry_run {
        eprintln!("nothing was changed{rest}");
        return Ok(());
    }
    if !args.yes && !agreed()? {
        eprintln!("nothing was changed");
        return Ok(());
    }
    let done = apply(&plan, &mut RealHands(&root)).map_err(Failure::new)?;
    eprintln!("{}{rest}", changed(&root, &done));
    still_to_do(&root, &plan.after);
    Ok(())
}

/// What was changed, and the command that puts it back where it was changed.
pub fn changed(root: &Root, done: &Applied) -> String {
    format!(
        "{} values and {} files are changed, the old ones are in {}: skep tune undo{} puts them back",
        done.values,
        done.files,
        root.path(UNDO_FILE).display(),
        root.flag()
    )
}

/// Of another root it is said that it is not to be done here.
fn still_to_do(root: &Root, all: &[String]) {
    let place = match root.is_live() {
        true => String::new(),
        false => format!(" (on the machine of {}, not here)", root.path("/").display()),
    };
    all.iter().for_each(|one| eprintln!("still to do: {one}{place}"));
}

/// Asks the person at the terminal.
pub fn agreed() -> Outcome<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new("nobody can be asked here: give --yes, or --dry-run to look only"));
    }
    eprint!("Change this? [y/N] ");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Failure::local("standard input", e))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Puts everything back.
pub fn undo(args: &UndoArgs) -> Outcome {
    let root = directory(&args.root)?;
    let _lock = lock(&root)?;
    match put_back(&mut RealHands(&root), args.leave_missing).map_err(Failure::new)? {
        None => eprintln!("nothing to undo: there is no {}", root.path(UNDO_FILE).display()),
        Some(undone) => {
            undone.notes.iter().for_each(|note| eprintln!("note: {note}"));
            eprintln!("{} values and {} files are as they were", undone.values, undone.files);
            still_to_do(&root, &undone.after);
        }
    }
    Ok(())
}

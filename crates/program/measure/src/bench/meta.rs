//! `skep bench meta`: files and directories as such.

use super::load::{LoadArgs, absolute, on_signals, readers, size};
use crate::dealt::Scratch;
use clap::Args;
use skep_base::access::AccessArgs;
use skep_base::{Failure, Outcome};
use skep_bench::job::{Items, Lookup, MetaJob, MetaPhase, Readers, Things, TreeShape, Work};
use std::io::Write;
use std::path::{Path, PathBuf};

/// `skep bench meta DIR...`
#[derive(Debug, Args)]
pub struct MetaArgs {
    /// Directories; workers take turns
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// What is done with each item, in this order
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "create,stat,open-read,readdir,rename,remove",
        value_name = "PHASES",
        value_parser = phase
    )]
    phases: Vec<MetaPhase>,
    /// What the items are
    #[arg(long, default_value = "files", value_name = "files|directories|both", value_parser = things)]
    things: Things,
    /// Items of each worker
    #[arg(long, short = 'n', default_value_t = 1000, value_name = "N")]
    items: u64,
    /// Items of each worker in each directory that holds any, instead
    #[arg(long, short = 'I', conflicts_with = "items", value_name = "N")]
    items_per_directory: Option<u64>,
    /// Levels of directories below the root
    #[arg(long, short = 'z', default_value_t = 0, value_name = "N")]
    depth: u32,
    /// Children of each directory
    #[arg(long, short = 'b', default_value_t = 1, value_name = "N")]
    branching: u32,
    /// Items in the lowest level only
    #[arg(long, short = 'L')]
    leaf_only: bool,
    /// All workers in the same directories, instead of a tree each
    #[arg(long)]
    shared: bool,
    /// On a mount of Skep: a directory for each worker that is dealt to a shard of its own, so over all metadata servers,
    /// instead of all in what lies on one; needs the key of an administrator
    #[arg(long, conflicts_with_all = ["shared", "keep", "existing", "print_job"])]
    spread: bool,
    /// Bytes written to each file
    #[arg(long, default_value = "0", value_name = "SIZE", value_parser = size)]
    write: u64,
    /// Bytes read from each file: of those that this run writes no more than it writes
    #[arg(long, default_value = "0", value_name = "SIZE", value_parser = size)]
    read: u64,
    /// Bytes of one call; 0: all at once
    #[arg(long, default_value = "0", value_name = "SIZE", value_parser = size)]
    transfer: u64,
    /// O_DIRECT
    #[arg(long)]
    direct: bool,
    /// fsync of each file
    #[arg(long)]
    fsync: bool,
    /// Compare what is read with what was written
    #[arg(long)]
    verify: bool,
    /// Whose items are used: own, shift:WORKERS, node:HOSTS, random
    #[arg(long, default_value = "own", value_name = "WHOSE", value_parser = readers)]
    readers: Readers,
    /// Remove one's own all the same
    #[arg(long)]
    remove_own: bool,
    /// Stat, open and rename in random order
    #[arg(long)]
    random: bool,
    /// Show the making and removing of the tree as well
    #[arg(long)]
    time_tree: bool,
    /// How stat, rename, remove and mkdir name an item: by its directory, which is held open, or by its full path
    #[arg(long, default_value = "directory", value_name = "directory|path", value_parser = lookup)]
    lookup: Lookup,
    /// Name of the directory that is made
    #[arg(long, default_value = "skep-bench-meta", value_name = "NAME")]
    name: String,
    /// How it is done.
    #[command(flatten)]
    load: LoadArgs,
    /// With --spread.
    #[command(flatten)]
    access: AccessArgs,
}

impl MetaArgs {
    /// The load these arguments mean.
    fn work(&self) -> Result<MetaJob, Failure> {
        Ok(MetaJob {
            paths: absolute(&self.paths)?,
            name: self.name.clone(),
            tree: TreeShape { branching: self.branching, depth: self.depth, leaf_only: self.leaf_only },
            items: self.items_per_directory.map_or(Items::Total(self.items), Items::PerDirectory),
            things: self.things,
            phases: self.phases.clone(),
            own_tree: !self.shared,
            write_bytes: self.write,
            read_bytes: self.read,
            transfer: self.transfer,
            direct: self.direct,
            fsync: self.fsync,
            verify: self.verify,
            readers: self.readers,
            remove_own: self.remove_own,
            readers_move_on: false,
            stonewall_creates: false,
            random_order: self.random,
            time_tree: self.time_tree,
            lookup: self.lookup,
            striping: None,
        })
    }
}

pub fn run(args: &MetaArgs, out: &mut dyn Write) -> Outcome {
    let mut work = args.work()?;
    compares(&work, args.load.existing)?;
    if !args.spread {
        return args.load.perform(Work::Meta(work), out);
    }
    // From here on a signal ends the load, and what was made is removed.
    on_signals()?;
    let workers = args.load.processes.saturating_mul(args.load.threads);
    let below = |above: &String| Scratch::below(&args.access, Path::new(above), workers);
    let scratches: Vec<Scratch> = work.paths.iter().map(below).collect::<Outcome<_>>()?;
    scratches.iter().for_each(|scratch| eprintln!("{}", scratch.dealt));
    let dirs = scratches.iter().flat_map(|scratch| &scratch.dealt.dirs);
    work.paths = dirs.map(|dir| dir.display().to_string()).collect();
    args.load.perform(Work::Meta(work), out)
}

/// A comparison that is asked for takes place, or there is something to compare later.
fn compares(meta: &MetaJob, existing: bool) -> Outcome {
    let files = meta.things != Things::Directories;
    let writes = files && meta.phases.contains(&MetaPhase::Create) && meta.write_bytes > 0;
    let reads = files && meta.phases.contains(&MetaPhase::OpenRead) && meta.read_of_each(existing) > 0;
    let writes_for_later = writes && !meta.phases.contains(&MetaPhase::OpenRead);
    if !meta.verify || reads || writes_for_later {
        return Ok(());
    }
    let reason = "--verify: nothing would be compared; have files written (--write SIZE) and read (--read SIZE, in a \
         phase open-read)";
    Err(Failure::usage(reason))
}

fn phase(text: &str) -> Result<MetaPhase, String> {
    use MetaPhase::{Create, OpenRead, Readdir, Remove, Rename, Stat};
    let known = [Create, Stat, OpenRead, Readdir, Rename, Remove];
    let found = known.into_iter().find(|phase| phase.name() == text);
    found.ok_or_else(|| "write some of create,stat,open-read,readdir,rename,remove".to_owned())
}

fn lookup(text: &str) -> Result<Lookup, String> {
    match text {
        "directory" => Ok(Lookup::Directory),
        "path" => Ok(Lookup::Path),
        _ => Err("write directory or path".to_owned()),
    }
}

fn things(text: &str) -> Result<Things, String> {
    match text {
        "files" => Ok(Things::Files),
        "directories" => Ok(Things::Directories),
        "both" => Ok(Things::Both),
        _ => Err("write files, directories or both".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        meta: MetaArgs,
    }

    fn job(words: &[&str]) -> MetaJob {
        Line::try_parse_from([&["meta", "/d"], words].concat()).unwrap().meta.work().unwrap()
    }

    /// Goal: the command line reaches the fields of the job.
    #[test]
    fn fields() {
        assert_eq!(job(&[]), MetaJob::new("/d"));
        let full = job(&[
            "--phases",
            "create,stat",
            "--things",
            "both",
            "-I",
            "122",
            "-z",
            "2",
            "-b",
            "8",
            "-L",
            "--shared",
            "--write",
            "4k",
            "--read",
            "4k",
            "--readers",
            "node:1",
            "--random",
            "--time-tree",
            "--remove-own",
            "--lookup",
            "path",
        ]);
        assert_eq!(full.items.per_worker(&full.tree), 7_808);
        assert_eq!((full.own_tree, full.write_bytes, full.things), (false, 4096, Things::Both));
        assert_eq!(full.readers, Readers::ShiftNode { nodes: 1 });
        assert!(full.random_order && full.time_tree && full.remove_own);
        assert_eq!(full.lookup, Lookup::Path);
        assert!(Line::try_parse_from(["meta", "/d", "--phases", "sing"]).is_err());
    }

    /// Goal: a comparison that would not take place is refused with what is missing.
    #[test]
    fn comparisons() {
        let verified = |words: &[&str], existing: bool| {
            compares(&job(&[&["--verify"], words].concat()), existing).map_err(|failure| failure.to_string())
        };
        for words in [
            &[][..],
            &["--write", "4k"],
            &["--read", "4k"],
            &["--write", "4k", "--phases", "create,open-read"],
        ] {
            assert!(verified(words, false).unwrap_err().contains("--read SIZE"), "{words:?}");
        }
        assert!(verified(&["--phases", "stat", "--read", "4k"], true).is_err());
        verified(&["--write", "4k", "--read", "4k"], false).unwrap();
        verified(&["--write", "4k", "--phases", "create"], false).unwrap();
        verified(&["--read", "4k", "--phases", "open-read"], true).unwrap();
        compares(&job(&[]), false).unwrap();
    }
}

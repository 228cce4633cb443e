//! Checks that commands which are named in advice exist.

use crate::cli::Cli;
use clap::Parser;
use skep_bench::dialect::relative;

/// Goal: the commands that are named instead of StorageBench and qperf can be typed as they stand.
#[test]
fn commands_that_are_named_exist() {
    for line in [
        "beegfs-ctl --storagebench --write --blocksize=512K --size=640G --threads=4 --alltargets",
        "beegfs-ctl --storagebench --read --odirect --targetids=101,102",
        "beegfs-ctl --storagebench --status --alltargets",
        "beegfs-ctl --storagebench --stop --servers=1",
        "beegfs-ctl --storagebench --cleanup --alltargets",
        "qperf beegfs002 tcp_bw tcp_lat",
        "beegfs-ctl --listnodes --nodetype=client --sysMgmtHost=10.140.63.10",
        "beegfs-ctl --listnodes --nodetype=storage",
        "beegfs-ctl --getentryinfo --mount=/mnt/beegfs /mnt/beegfs/benchmark --verbose",
        "beegfs-ctl --setpattern --chunksize=512K --numtargets=4 /mnt/beegfs/benchmark",
        "echo 1 > /proc/fs/beegfs/<clientID>/netbench_mode",
        "pdsh -g oss TERM=linux thrlo=256 thrhi=256 nobjlo=1 nobjhi=1 rsz=1024K size=32768 obdfilter-survey",
        "nobjlo=1 nobjhi=16 thrlo=1 thrhi=64 size=1024 obdfilter-survey",
    ] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let instead = relative(&words).unwrap().unwrap().instead;
        let parsed = Cli::try_parse_from(instead.split(' '));
        assert!(parsed.is_ok(), "{line}: {instead}: {:?}", parsed.err());
    }
}

/// Goal: every command of this program that a refusal or a remark names is understood as far as it goes: no
/// operand, but also no option and no value that there is not.
#[test]
fn commands_that_are_advised_exist() {
    use clap::error::ErrorKind as Kind;
    let far_enough = [
        Kind::DisplayHelp,
        Kind::DisplayHelpOnMissingArgumentOrSubcommand,
        Kind::DisplayVersion,
        Kind::MissingRequiredArgument,
        Kind::MissingSubcommand,
    ];
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../know-how/bench/src/dialect");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        // Not what a format fills in.
        for line in text.split('`').filter(|part| part.starts_with("skep ") && !part.contains('{')) {
            // Texts are broken by a backslash.
            let words = line.split_whitespace().filter(|word| *word != "\\");
            let parsed = Cli::try_parse_from(words);
            if let Err(error) = parsed {
                assert!(far_enough.contains(&error.kind()), "{line}: {error}");
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

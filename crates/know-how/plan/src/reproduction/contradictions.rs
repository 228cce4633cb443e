//! Where the documents contradict themselves or each other, with the sum that shows it.

use super::seed004;
use crate::units::MIB;
use serde::Serialize;

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Contradiction {
    /// Documents.
    pub documents: &'static str,
    /// What is said.
    pub said: String,
    /// What else is said, or follows.
    pub against: String,
    /// What this program does.
    pub choice: String,
}

fn entry(documents: &'static str, said: &str, against: String, choice: &str) -> Contradiction {
    Contradiction { documents, said: said.to_owned(), against, choice: choice.to_owned() }
}

/// All that were found.
pub fn contradictions() -> Vec<Contradiction> {
    let mut all = of_000();
    all.extend(file_counts());
    all.extend(of_001());
    all.extend(outputs_of_001());
    all.extend(rates_of_003());
    all.extend(of_003());
    all.extend(of_002_and_004());
    all.extend(words_of_004());
    all
}

/// 000: its benchmarks and settings, also against 001, which shows the same system.
fn of_000() -> Vec<Contradiction> {
    let processes = 128;
    vec![
        entry(
            "000",
            "\"a total of 320 GiB was written and read in each IOR execution\"",
            format!(
                "the command divides in whole numbers: -b $((320/{processes}))g is {} GiB, {} GiB of {processes} processes",
                320 / processes,
                320 / processes * processes
            ),
            "rates are taken as printed",
        ),
        entry(
            "000",
            "24 disks on the P840ar: \"both read and write throughput were lower\" than with the P440 as well",
            "with one process both were higher: 1133 MiB/s written (Table 3) against 1054.31 (Table 1), 1396 read against 1377.4".to_owned(),
            "a comparison of the maxima, which are lower; not taken as naming a bottleneck",
        ),
        entry(
            "000, 001",
            "metadata on 2 SSDs of 400 GiB (000)",
            "2 x 400 GB in the same system (001)".to_owned(),
            "as 000 has it: nothing here depends on the 7 %",
        ),
        entry(
            "000, 001",
            "large inodes: -l 512 (000)",
            "-I 512 (001); -l of mkfs.ext4 names a list of bad blocks".to_owned(),
            "-I 512",
        ),
    ]
}

/// 000 and 001: how many files.
fn file_counts() -> Vec<Contradiction> {
    let creates = 52_808.687;
    let per_second = 1e9 / (33.0 * 60.0);
    // Files of `-z 2 -b 8 -I 122 -L`, 128 tasks.
    let (leaves, nodes) = (8.0 * 8.0, 1.0 + 8.0 + 64.0);
    let files = |directories: f64| directories * 122.0 * 128.0;
    vec![
        entry(
            "000",
            "\"a total of 1,000,000 empty files\"",
            format!(
                "the command divides by 64 and by the processes in whole numbers: with 128 processes it makes 122 files in each of 64 directories, {:.0}",
                files(leaves)
            ),
            "rates are taken as printed",
        ),
        entry(
            "001",
            "mdtest: \"more than 1,000,000,000 files in ~33 minutes\"",
            format!(
                "that needs {per_second:.0} creates/s; the output below it shows {creates:.0} creates/s, which take {:.1} hours, and a run of {:.0} files, which takes {:.0} s",
                1e9 / creates / 3600.0,
                files(nodes),
                files(nodes) / creates
            ),
            "the measured rate; the headline is not used",
        ),
        entry(
            "001",
            "mdtest with -L: files only at the leaves",
            format!(
                "1139968 files are all {nodes:.0} directories of the tree times 122 times 128; the leaves alone hold {:.0}",
                files(leaves)
            ),
            "not used",
        ),
    ]
}

fn of_001() -> Vec<Contradiction> {
    vec![
        entry(
            "001",
            "connection memory \"~12 MB\" per client",
            format!("8192 x 70 x 2 x 12 = {} bytes, 13.8 MB or 13.1 MiB", 8192 * 70 * 2 * 12),
            "the product",
        ),
        entry(
            "001",
            "Mellanox EDR: 11 GB/s (table of component throughputs)",
            "\"Mellanox EDR (12 GB/s)\" under tuning of NUMA zones; 12.4 GB/s in 002".to_owned(),
            "11 GB/s in the general catalogue, which is meant to be conservative; 12.4 in the preset of 002",
        ),
        entry(
            "001, 003",
            "metadata space: 0.3 % to 0.5 % of the storage space (001)",
            "0.5 % to 1 %, another metadata server below 1 % (003)".to_owned(),
            "both rules are shown",
        ),
    ]
}

/// 001: what its benchmarks print.
fn outputs_of_001() -> Vec<Contradiction> {
    let aggregate = 64.0 * 320.0;
    vec![
        entry(
            "001",
            "IOzone: `-s 40g -t 64`",
            "its output: 32 processes of 83886080 kB, that is 80 GiB".to_owned(),
            "not used; both are parser tests of `skep bench iozone`",
        ),
        entry(
            "001",
            "IOR: 64 processes, blocksize 320 GiB, aggregate 640 GiB",
            format!("64 x 320 GiB are {:.0} TiB; two processes (`-N 2`) make 640 GiB", aggregate / 1024.0),
            "not used",
        ),
        entry(
            "001",
            "IOR write: minimum 4977, mean 6034, maximum 6089 of 5 repetitions, standard deviation 43",
            format!(
                "with one of five at 4977 the mean is at most {:.0} and the deviation at least {:.0}",
                (4977.01 + 4.0 * 6088.56) / 5.0,
                ((6034.04f64 - 4977.01).powi(2) / 5.0).sqrt()
            ),
            "not used",
        ),
        entry(
            "001",
            "IOR read: minimum 4957.82, mean 6099.51, maximum 6190.62 of 5 repetitions",
            format!(
                "with one of five at the minimum the mean is at most {:.0}",
                (4957.82 + 4.0 * 6190.62) / 5.0
            ),
            "not used",
        ),
        entry(
            "001",
            "IOR: 6088.56 MiB/s are 6190.01 MB/s, 6190.62 MiB/s are 6297.03 MB/s",
            format!("1 MiB is 1.048576 MB: {:.1} and {:.1} MB/s", 6088.56 * MIB / 1e6, 6190.62 * MIB / 1e6),
            "not used; a parser must take the MiB/s",
        ),
        entry(
            "001",
            "IOzone: average per process 243446 kB/s written, 180185 kB/s read",
            format!(
                "the sums over 32 processes are {:.0} and {:.0} kB/s each (7310362.51 and 5242248.32 kB/s)",
                7_310_362.51 / 32.0,
                5_242_248.32 / 32.0
            ),
            "not used",
        ),
        entry(
            "001",
            "StorageBench: average 1683 MiB/s, aggregate 6890 MiB/s",
            format!("four targets at the average are {} MiB/s", 4 * 1683),
            "not used",
        ),
    ]
}

fn rates_of_003() -> Vec<Contradiction> {
    let percent = |part: f64| part * 100.0;
    let kib = |kilobytes: f64| kilobytes * 1024.0 / 1e9;
    vec![
        entry(
            "003",
            "reading reaches 92 % (Small) and 93 % (Small+1) of the links (section on scaling)",
            format!(
                "116.3 / 125 = {:.1} % and 161.6 / 175 = {:.1} %: the two are swapped; Findings and Conclusion have 93 % for Small",
                percent(116.3 / 125.0),
                percent(161.6 / 175.0)
            ),
            "93 % Small, 92 % Small+1",
        ),
        entry(
            "003",
            "theoretical network maximum of Small 123 GB/s (Table 9)",
            "125 GB/s everywhere else (5 x 25 GB/s); 123 is the NetBench result of the next column"
                .to_owned(),
            "125 GB/s",
        ),
        entry(
            "003",
            "NetBench 123 and 163 GB/s",
            format!(
                "IOzone's kB are 1024 bytes (8g are shown as 8388608 kB): 123,460,329 and 163,330,853 kB/s are {:.1} and {:.1} GB/s, \
                 the first {:.1} % of what the links can carry",
                kib(123_460_328.84),
                kib(163_330_853.41),
                percent(kib(123_460_328.84) / 125.0)
            ),
            "as published; if the other IOzone figures (62.3, 116.3, ...) were converted the same way they are 2.4 % too low",
        ),
        entry(
            "003",
            "24 drives: writing ~89 GB/s (Small) and ~125 GB/s (Small+1)",
            format!(
                "Small reached {:.0} % of its drives with 16 of them, which would give {:.0} GB/s; both cells use the {:.0} % of Small+1",
                percent(62.3 / 68.0),
                102.0 * 62.3 / 68.0,
                percent(83.8 / 95.2)
            ),
            "both are shown",
        ),
    ]
}

fn of_003() -> Vec<Contradiction> {
    vec![
        entry(
            "003",
            "with 24 drives \"each NVMe SSD has the bandwidth of four PCIe lanes\", so the connection does not limit",
            "96 lanes of drives share 32 lanes of the processors (3:1, same page): 1.33 each when all work; reading 24 x 3.5 GB/s does not fit through 63 GB/s".to_owned(),
            "the switches are a component of the chain; here the links (50 GB/s a server) limit before them",
        ),
        entry(
            "003",
            "Small and Medium have three and six dedicated storage servers (section on metadata)",
            "two and five (Table 8), beside the server that holds metadata and file contents".to_owned(),
            "Table 8: the drives of Table 8 fit it",
        ),
        entry(
            "003",
            "drives allow 140 GB/s for reads and 68 GB/s for writes, \"however, here the network is the limiting factor\" (Findings)",
            "the links carry 125 GB/s: they limit reading only; the section on scaling says that the drives limit writing".to_owned(),
            "drives for writing, links for reading",
        ),
        entry(
            "003",
            "reading is slower than writing \"for thread counts from 8 to 128\"",
            "\"from 16 threads to 128 threads\" on the next page".to_owned(),
            "not used: peaks only",
        ),
        entry(
            "003",
            "random: ~2.5 and ~2.45 million IOPS (Findings)",
            "2.47 and 2.41 million (Table 10)".to_owned(),
            "Table 10",
        ),
        entry(
            "002, 003",
            "one shared file, Medium: 37.4 GB/s written, 31 % of a file per process (002)",
            "\"write performance is similar for the small and medium configurations\" (003), that is about 17.6 GB/s with twice the servers".to_owned(),
            "the rate of a data path from 002, which fits Small of 003 to 4 %; for writing in Medium of 003 it would be twice too high, whose striping is not given",
        ),
        entry(
            "003",
            "Table 3: \"EDR card (slots 1 & 8)\"",
            "HDR adapters in slots 3 and 6 (section on the environment)".to_owned(),
            "HDR",
        ),
    ]
}

fn of_002_and_004() -> Vec<Contradiction> {
    let sum: f64 = seed004::WRITE.iter().sum();
    vec![
        entry(
            "002, 003",
            "writing reaches 89 % (002) and 92 % (003)",
            format!(
                "of the network in 002, of the drives in 003: in the other measure {:.0} % of the drives and {:.0} % of the network",
                120.7 / 171.6 * 100.0,
                62.3 / 125.0 * 100.0
            ),
            "efficiency is always a part of the component that limits",
        ),
        entry(
            "004",
            "6,055 MB/s written are 75.9 MB/s per disk",
            format!("{sum:.2} / 80 disks = {:.1} MB/s", sum / seed004::DISKS),
            "the sum",
        ),
        entry(
            "004",
            "\"both read and write performances in excess of 6 GB/s\" of one enclosure, measured by clients (abstract)",
            format!(
                "IOR reads {:.2} MB/s from two: {:.0} MB/s each",
                seed004::IOR_READ,
                seed004::IOR_READ / 2.0
            ),
            "the measurement",
        ),
        entry(
            "004",
            "write benchmark 3: block size 12g",
            "its command line: -b 24g".to_owned(),
            "not used; the command line is a parser test of `skep bench ior`",
        ),
        entry(
            "004",
            "the disks limit (\"balanced solution pushing the bottleneck to the disk backend\")",
            format!(
                "IOR reads {:.0} MB/s where the disks deliver {:.0}: something above them limits reading",
                seed004::IOR_READ,
                2.0 * seed004::READ.iter().sum::<f64>()
            ),
            "the model follows the disks and is wrong for reading by a third",
        ),
    ]
}

/// 004: what it says about its own runs.
fn words_of_004() -> Vec<Contradiction> {
    let survey = |sides: [f64; 2]| 2.0 * sides.iter().sum::<f64>();
    let (write, read) =
        (seed004::IOR_WRITE / survey(seed004::WRITE), seed004::IOR_READ / survey(seed004::READ));
    vec![
        entry(
            "004",
            "buffered writing \"peaks just above 12 GB/s\" (with figure 3)",
            format!("its best run, benchmark 3, writes {:.2} MB/s", seed004::IOR_WRITE),
            "the run",
        ),
        entry(
            "004",
            "\"Buffered I/O directly creates an RPC and run it in synchronized mode\"",
            "the sentence before it has buffered I/O in the page cache, the one after it new chunks of direct I/O that wait".to_owned(),
            "direct I/O is meant",
        ),
        entry(
            "004",
            "obdfilter-survey and IOR both in MB/s",
            format!(
                "a doubt: obdfilter-survey counts MiB; were IOR's MB decimal, its {:.0} % and {:.0} % would be {:.0} % and {:.0} %",
                write * 100.0,
                read * 100.0,
                write * 1e8 / MIB,
                read * 1e8 / MIB
            ),
            "as printed, both as MB",
        ),
    ]
}

//! Command lines, files and outputs of other benchmarks.

use skep_bench::dialect::{Surroundings, Tool, host_file, relative, translate};
use skep_bench::foreign::parse;
use skep_bench::job::parse_size;

use super::{Reader, Understood, file};

/// Where the outputs are that tests of the reader read.
const OUTPUTS: [&str; 2] = ["know-how/bench/tests/tools/real.rs", "know-how/bench/tests/tools/composed.rs"];
const LINES: [&str; 7] = [
    "mpirun -np 8 --map-by node /opt/ior -w -r -t 1m -b 16m -s 4 -F -e -i 3 -o /mnt/t/f",
    "ior -f script -O api=POSIX,blockSize=1g",
    "mdtest -n 1000 -u -z 2 -b 3 -I 10 -i 3 -d /mnt/t",
    "iozone -i0 -i1 -c -e -w -r 1m -s 8g -t 2 -+n -+m hosts\nnode1 /mnt/t /usr/bin/iozone\nnode2 /mnt/t /x\n",
    "fio --name=a --rw=randrw --rwmixread=70 --bs=4k,8k --size=1g --numjobs=4 --runtime=30 --time_based --directory=/t",
    "fio jobs.fio\n[global]\nbs=4k\nsize=1g\ndirectory=/mnt/t\n[a]\nrw=randread\nnumjobs=4\n[b]\nstonewall\nrw=write\n",
    "elbencho -w -r -t 16 -n 2 -N 10 -s 4k --hosts a,b --rwmixpct 30 /mnt/t",
];

pub fn readers() -> Vec<Reader> {
    let outputs: Vec<String> = OUTPUTS.iter().flat_map(|path| texts(&file(path))).collect();
    vec![
        Reader::new("other tools' lines", line, &LINES),
        Reader { name: "other tools' outputs", again: output, examples: outputs },
        Reader::new("host file", hosts, &["a slots=4 max_slots=12\nb:4 # c\nnode1 /mnt/t /usr/bin/iozone\n"]),
    ]
}

/// Longer texts that stand in constants of a test.
fn texts(source: &str) -> Vec<String> {
    let constants = source.split("\nconst ").skip(1);
    let text = |constant: &str| {
        let (_, value) = constant.split_once(": &str = ")?;
        let (value, end) = match value.strip_prefix("r#\"") {
            Some(value) => (value, "\"#;"),
            None => (value.strip_prefix('"')?, "\";"),
        };
        value.split_once(end).map(|(text, _)| text.to_owned())
    };
    constants.filter_map(text).collect()
}

/// The first line is the command, the rest is in every file that it names.
fn line(text: &str) -> Understood {
    let (line, named) = text.split_once('\n').unwrap_or((text, ""));
    let words = line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let around = Surroundings {
        directory: "/mnt/here",
        read: &|_| Ok(named.to_owned()),
        is_dir: &|path| path.ends_with('t'),
        file_size: &|path| path.ends_with('f').then_some(1 << 30),
        hosts: &[],
        drawn: 4_711,
    };
    words.iter().for_each(|word| drop(parse_size(word)));
    let is_relative = relative(&words).is_some_and(|read| read.is_ok());
    let read = |tool| translate(tool, &words, &around).map_err(|error| error.to_string()).is_ok();
    (understood(read) || is_relative).into()
}

/// Of whichever tool it is.
fn output(text: &str) -> Understood {
    understood(|tool| parse(tool, text).map_err(|error| error.to_string()).is_ok()).into()
}

/// Every tool reads it; does one understand it?
fn understood(read: impl Fn(Tool) -> bool) -> bool {
    Tool::ALL.iter().filter(|tool| read(**tool)).count() > 0
}

fn hosts(text: &str) -> Understood {
    host_file(text).is_ok().into()
}

//! What stands before the tool: `mpirun -np 128 --byslot -machinefile F`, and the program's own path.

use super::words::{Fate, Known, Syntax, Takes, ignored, number, refused, step, used};
use super::{Cause, Tool, Understood};
use crate::job::Placement;
use std::path::PathBuf;

/// Who runs the workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// Number of processes, when the command line says one.
    pub processes: Option<u32>,
    /// How they are spread.
    pub placement: Option<Placement>,
    /// File with a host per line.
    pub host_file: Option<PathBuf>,
    /// Hosts named on the command line.
    pub hosts: Vec<String>,
    /// Processes on each host, when the command line says so.
    pub per_host: Option<u32>,
}

const LAUNCHERS: [&str; 6] = ["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "srun"];
const MPI: &str = "concerns MPI; workers here talk over their own connections";
const PLACE: &str = "where a worker's processor is, is left to the kernel";

const KNOWN: &[Known] = &[
    used("n", "np", Takes::Value),
    used("c", "c", Takes::Value),
    used("", "n", Takes::Value),
    used("", "ntasks", Takes::Value),
    used("", "machinefile", Takes::Value),
    used("", "hostfile", Takes::Value),
    used("f", "default-hostfile", Takes::Value),
    used("H", "host", Takes::Value),
    used("", "hosts", Takes::Value),
    used("", "map-by", Takes::Value),
    used("", "bynode", Takes::Nothing),
    used("", "byslot", Takes::Nothing),
    used("N", "npernode", Takes::Value),
    used("", "ppn", Takes::Value),
    used("", "ntasks-per-node", Takes::Value),
    ignored("", "rank-by", Takes::Value, PLACE),
    ignored("", "bind-to", Takes::Value, PLACE),
    ignored("", "bind-to-core", Takes::Nothing, PLACE),
    ignored("", "report-bindings", Takes::Nothing, PLACE),
    ignored("", "oversubscribe", Takes::Nothing, "any number of workers is allowed"),
    ignored("", "allow-run-as-root", Takes::Nothing, "agents run as whoever started them"),
    ignored("x", "x", Takes::Value, "workers take no environment from here"),
    ignored("", "prefix", Takes::Value, MPI),
    ignored("", "tag-output", Takes::Nothing, "workers print nothing"),
    ignored("q", "quiet", Takes::Nothing, "launcher's words only"),
    ignored("v", "verbose", Takes::Nothing, "launcher's words only"),
    refused("", "wdir", Takes::Value, "name the directory in the benchmark's own path option"),
];

const SYNTAX: Syntax = Syntax { tool: Tool::Ior, known: KNOWN, single_dash_long: true, any_case: false };

/// What a launcher's words come to, and how many words they and the program's path are.
pub fn strip(tool: Tool, words: &[String], notes: &mut Vec<Understood>) -> Result<(Launch, usize), Cause> {
    let mut launch = Launch::default();
    let mut at = 0;
    let first = words.first().map_or("", |word| basename(word));
    if LAUNCHERS.contains(&first) {
        at = launcher(words, &mut launch, notes)?;
    }
    if let Some(word) = words.get(at)
        && is_program(tool, word)?
    {
        if !basename(word).eq_ignore_ascii_case(tool.name()) {
            notes.push(Understood::new(word, format!("a program of another name: taken for {tool}")));
        }
        at += 1;
    }
    Ok((launch, at))
}

fn basename(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// A path or a file can follow where other tools have only their name.
fn is_program(tool: Tool, word: &str) -> Result<bool, Cause> {
    if word.starts_with('-') {
        return Ok(false);
    }
    let name = basename(word).to_ascii_lowercase();
    if let Some(other) = Tool::ALL.into_iter().find(|other| *other != tool && other.name() == name) {
        let why = format!("is the program of another benchmark: use `skep bench {other} -- ...`");
        return Err(Cause::new(word, why));
    }
    Ok(match tool {
        Tool::Fio | Tool::Elbencho => name == tool.name(),
        Tool::Ior | Tool::Mdtest | Tool::Iozone => true,
    })
}

fn launcher(words: &[String], launch: &mut Launch, notes: &mut Vec<Understood>) -> Result<usize, Cause> {
    let mut at = 1;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
        // `-mca key value` takes two words, which no other option of a launcher does.
        if matches!(word.as_str(), "-mca" | "--mca" | "-gmca" | "--gmca" | "-genv") {
            let end = (at + 3).min(words.len());
            notes.push(Understood::new(words[at..end].join(" "), format!("no effect: {MPI}")));
            at = end;
            continue;
        }
        let mut given = Vec::new();
        if !step(&SYNTAX, words, &mut at, &mut given).map_err(unknown)? {
            return Err(Cause::new(word, "is no launcher option"));
        }
        for given in given {
            let meaning = match given.fate {
                Fate::Used => {
                    apply(launch, given.name, &given.value).map_err(|why| Cause::new(&given.written, why))?
                }
                Fate::Ignored(why) => format!("no effect: {why}"),
                Fate::Refused(why) => return Err(Cause::new(&given.written, why)),
            };
            notes.push(Understood::new(&given.written, meaning));
        }
    }
    Ok(at)
}

/// The tool's manual says nothing of these.
fn unknown(cause: Cause) -> Cause {
    if !cause.why.contains("is no option") {
        return cause;
    }
    let why =
        "is no launcher option that is understood; leave it out, or say --workers and --hosts to skep bench";
    Cause::new(cause.word, why)
}

fn apply(launch: &mut Launch, name: &str, value: &str) -> Result<String, String> {
    Ok(match name {
        "np" | "n" | "c" | "ntasks" => {
            let processes: u32 = number(value)?;
            if processes == 0 {
                return Err("at least one process is needed".to_owned());
            }
            launch.processes = Some(processes);
            format!("{processes} worker processes")
        }
        "machinefile" | "hostfile" | "default-hostfile" => {
            launch.host_file = Some(PathBuf::from(value));
            "hosts from this file; each must run `skep bench agent`".to_owned()
        }
        "host" | "hosts" => {
            launch.hosts = value.split(',').map(str::to_owned).collect();
            "these hosts; each must run `skep bench agent`".to_owned()
        }
        "npernode" | "ppn" | "ntasks-per-node" => {
            let per_host = number(value)?;
            launch.per_host = Some(per_host);
            format!("{per_host} worker processes on each host")
        }
        "bynode" => place(launch, Placement::ByNode),
        "byslot" => place(launch, Placement::BySlot),
        "map-by" => match value.split(':').next().unwrap_or(value) {
            "node" => place(launch, Placement::ByNode),
            "slot" | "core" | "socket" | "numa" => place(launch, Placement::BySlot),
            _ => return Err(format!("\"{value}\" is not understood; use node or slot")),
        },
        _ => return Err("is not understood".to_owned()),
    })
}

fn place(launch: &mut Launch, placement: Placement) -> String {
    launch.placement = Some(placement);
    match placement {
        Placement::ByNode => "node by node: neighbours of a worker are on other hosts".to_owned(),
        Placement::BySlot => "slot by slot: a host is filled before the next".to_owned(),
    }
}

/// A line of a host file: `name slots=4 max_slots=12`, `name:4`, IOzone's `name directory program`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// Name or address, without slots.
    pub host: String,
    /// Worker processes that it takes; one when the line says nothing.
    pub slots: u32,
}

/// Reads a host file. Comments begin with `#`.
pub fn host_file(text: &str) -> Result<Vec<Slots>, String> {
    let mut hosts: Vec<Slots> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(host) = words.next() else { continue };
        let mut slots = 1;
        for word in words {
            if let Some(count) = word.strip_prefix("slots=") {
                slots = number(count).map_err(|why| format!("line {}: {why}", at + 1))?;
            }
        }
        match hosts.iter_mut().find(|known| known.host == host) {
            Some(known) => known.slots = known.slots.saturating_add(slots),
            None => hosts.push(Slots { host: host.to_owned(), slots }),
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(line: &str) -> Result<(Launch, String), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (launch, at) = strip(Tool::Ior, &words, &mut Vec::new()).map_err(|e| e.to_string())?;
        Ok((launch, words[at..].join(" ")))
    }

    /// Goal: launchers of the papers and their relatives are read up to the tool's own options.
    #[test]
    fn launchers() {
        let by = |processes, placement, file: &str| Launch {
            processes: Some(processes),
            placement,
            host_file: (!file.is_empty()).then(|| PathBuf::from(file)),
            ..Launch::default()
        };
        for (line, expected) in [
            ("mpirun -hostfile /tmp/nodefile -np 8 /opt/ior/src/ior -w", by(8, None, "/tmp/nodefile")),
            (
                "mpirun -machinefile m.txt -np 128 --byslot ./IOR/src/C/IOR -w",
                by(128, Some(Placement::BySlot), "m.txt"),
            ),
            (
                "mpirun -machinefile m --map-by node -np 4 -mca btl openib,self ~/bin/ior -w",
                by(4, Some(Placement::ByNode), "m"),
            ),
            ("mpiexec -n 2 --oversubscribe ior -w", by(2, None, "")),
            ("mpirun --map-by=node --np=3 --bind-to core ior -w", by(3, Some(Placement::ByNode), "")),
            ("srun -n 16 ior -w", by(16, None, "")),
        ] {
            assert_eq!(stripped(line).unwrap(), (expected, "-w".to_owned()), "{line}");
        }
        assert_eq!(stripped("-w").unwrap(), (Launch::default(), "-w".to_owned()));
        let hosts = stripped("mpirun -H a,b -N 2 ior -w").unwrap().0;
        assert_eq!((hosts.hosts, hosts.per_host), (vec!["a".to_owned(), "b".to_owned()], Some(2)));
    }

    /// Goal: what is not understood is named; another tool's program is sent to where it belongs.
    #[test]
    fn refusals() {
        for (line, says) in [
            ("mpirun --weird 3 ior -w", "--weird is no launcher option"),
            ("mpirun -np x ior", "\"x\" is not a whole number"),
            ("mpirun -np 0 ior", "at least one process"),
            ("mpirun --map-by ring ior", "use node or slot"),
            ("/opt/mdtest -C", "skep bench mdtest"),
        ] {
            let error = stripped(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    /// Goal: slots of repeated hosts add up; IOzone's client files give hosts too.
    #[test]
    fn host_files() {
        let text = "# nodes\nn1 slots=4 max_slots=12\nn2\n\nn2 /mnt/skep /usr/bin/iozone\n";
        let host = |host: &str, slots| Slots { host: host.to_owned(), slots };
        assert_eq!(host_file(text).unwrap(), [host("n1", 4), host("n2", 2)]);
        assert!(host_file("n1 slots=x\n").unwrap_err().contains("line 1"));
    }
}

//! Command lines as a reader can paste them: with the cluster and the hosts of this survey, and every place spelled out.

use super::preset::PresetName;
use crate::bench::HostsArgs;
use skep_base::access::AccessArgs;
use skep_bench::job::format_size;
use std::fmt::Display;
use std::path::Path;

/// What every line needs besides its own words.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// ` --cluster FILE`, or nothing.
    cluster: String,
    /// Hosts of clients, none: this one.
    hosts: Vec<String>,
    /// ` --agent-key FILE`, or nothing.
    agents: String,
    preset: &'static str,
}

/// A word that a shell takes as it is.
pub fn word(text: impl Display) -> String {
    let text = text.to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A path as a word.
pub fn path(path: &Path) -> String {
    word(path.display())
}

/// ` --flag VALUE` when there is a value.
fn flag(name: &str, value: Option<String>) -> String {
    value.map_or_else(String::new, |value| format!(" {name} {}", word(value)))
}

impl Lines {
    /// With the flags of this survey; `hosts` are the hosts that its flags name.
    pub fn new(access: &AccessArgs, agents: &HostsArgs, hosts: Vec<String>, preset: PresetName) -> Self {
        let file = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let mgmtd: Vec<String> = access.mgmtd.iter().map(ToString::to_string).collect();
        let mut cluster = match mgmtd.is_empty() {
            true => flag("--cluster", file(&access.cluster)),
            false => flag("--mgmtd", Some(mgmtd.join(","))),
        };
        cluster += &flag("--key", file(&access.key));
        let mut keys = flag("--agent-key", file(&agents.key));
        if access.insecure {
            cluster += " --insecure";
        }
        if agents.insecure {
            keys += " --agents-insecure";
        }
        Self { cluster, hosts, agents: keys, preset: preset.as_str() }
    }

    /// Flags that say which cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Flags that say where `processes` (a number, or a variable of the shell) run: one host each, as far as they reach.
    pub fn hosts(&self, processes: &str) -> String {
        let all = self.hosts.join(",");
        match (self.hosts.len(), processes) {
            (0, _) => String::new(),
            (1, _) => format!(" --hosts {}{}", word(all), self.agents),
            (_, "1") => format!(" --hosts {}{}", word(&self.hosts[0]), self.agents),
            _ => format!(" --hosts $(echo {} | cut -d, -f1-{processes}){}", word(all), self.agents),
        }
    }

    /// Flags that name all hosts.
    pub fn all_hosts(&self) -> String {
        let named = Some(self.hosts.join(",")).filter(|hosts| !hosts.is_empty());
        flag("--hosts", named.clone()) + if named.is_some() { &self.agents } else { "" }
    }

    /// Flags for one host, named by a variable of the shell.
    pub fn one_host(&self, variable: &str) -> String {
        format!(" --hosts ${variable}{}", self.agents)
    }

    /// The layer by itself, where no other command measures it.
    pub fn only(&self, layer: &str) -> String {
        format!("skep survey --only {layer} --preset {}{}", self.preset, self.cluster)
    }
}

/// `line` for every value of a variable of the shell; with one value the line itself.
pub fn each<T: Display>(variable: &str, values: &[T], line: impl Fn(&str) -> String) -> String {
    match values {
        [one] => line(&word(one)),
        many => {
            let words: Vec<String> = many.iter().map(word).collect();
            format!("for {variable} in {}; do {}; done", words.join(" "), line(&format!("${variable}")))
        }
    }
}

/// Sizes as words.
pub fn sizes(all: &[u64]) -> Vec<String> {
    all.iter().map(|size| format_size(*size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Line;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        access: AccessArgs,
        #[command(flatten)]
        hosts: HostsArgs,
    }

    fn lines(words: &[&str]) -> Lines {
        let flags = Flags::try_parse_from([&["x"], words].concat()).unwrap();
        let names = flags.hosts.names().unwrap();
        Lines::new(&flags.access, &flags.hosts, names, PresetName::Quick)
    }

    /// Goal: cluster, hosts and keys stand in every line, hosts only as many as there are processes, and a path with
    /// blanks is one word.
    #[test]
    fn flags() {
        let lines =
            lines(&["--mgmtd", "m1:1,m2:2", "--key", "/a b/key", "--hosts", "h1,h2,h3", "--agent-key", "/k"]);
        assert_eq!(lines.cluster(), " --mgmtd m1:1,m2:2 --key '/a b/key'");
        assert_eq!(lines.hosts("1"), " --hosts h1 --agent-key /k");
        assert_eq!(lines.hosts("$n"), " --hosts $(echo h1,h2,h3 | cut -d, -f1-$n) --agent-key /k");
        assert_eq!(lines.all_hosts(), " --hosts h1,h2,h3 --agent-key /k");
        let plain = super::tests::lines(&["--cluster", "/d/cluster.toml"]);
        assert_eq!((plain.hosts("$n"), plain.all_hosts()), (String::new(), String::new()));
        assert_eq!(
            plain.only("network"),
            "skep survey --only network --preset quick --cluster /d/cluster.toml"
        );
        assert_eq!(word("it's"), "'it'\\''s'");
    }

    /// Goal: a loop over places is what a shell runs, and every line of it is understood by this program.
    #[test]
    fn loops() {
        let hosts = lines(&["--hosts", "h1,h2"]);
        let line = each("n", &[1, 2, 4], |n| {
            format!("skep bench io /mnt --processes {n} --block 1m{}", hosts.hosts(n))
        });
        let script = format!("skep() {{ echo \"$@\"; }}\n{line}");
        let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let shown: Vec<&str> = said.lines().collect();
        assert_eq!(shown[0], "bench io /mnt --processes 1 --block 1m --hosts h1");
        assert_eq!(shown[2], "bench io /mnt --processes 4 --block 1m --hosts h1,h2");
        for line in shown {
            Line::try_parse_from(["skep"].into_iter().chain(line.split(' '))).unwrap();
        }
        assert_eq!(each("t", &sizes(&[1 << 20]), |t| format!("x {t}")), "x 1m");
    }
}

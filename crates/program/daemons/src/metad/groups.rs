//! Several groups of shards in one process: each a member of the cluster of its own, with its own directory, port,
//! log, rows and threads. They end together.

use skep_base::config::MetadConfig;
use skep_base::config::metad::port_of_group;
use skep_base::daemon::{Readiness, Stop};
use std::path::{Path, PathBuf};

/// Runs `serve` for each group, until all have ended. What one of them ended with is what the process ends with.
pub fn serve(
    config: &MetadConfig,
    serve: impl Fn(&MetadConfig, Stop, Readiness) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let stop = Stop::of_daemon().map_err(|e| format!("cannot watch for signals: {e}"))?;
    require_all_groups(config)?;
    let readiness = Readiness::of("metad", config.groups);
    if config.groups == 1 {
        return serve(config, stop, readiness);
    }
    std::thread::scope(|scope| {
        let group = |number: u32| {
            let (config, stop, readiness) = (of_group(config, number), stop.clone(), readiness.clone());
            let serve = &serve;
            scope.spawn(move || {
                skep_base::log::name_thread(&format!("metad.{number}"));
                let ended = serve(&config, stop.clone(), readiness);
                if let Err(e) = &ended {
                    error!("{e}");
                    // Half a server would leave half of the names unanswered: a restart of the process mends both.
                    stop.set();
                }
                ended.map_err(|e| format!("group {number}: {e}"))
            })
        };
        let running: Vec<_> = (0..config.groups).map(group).collect();
        let ended =
            running.into_iter().map(|thread| thread.join().map_err(|_| "a thread ended badly".to_owned()));
        ended.map(|ended| ended.and_then(|ended| ended)).fold(Ok(()), Result::and)
    })
}

/// Directory of a group beside that of the first, which is the state directory itself.
fn directory(state_dir: &Path, number: u32) -> PathBuf {
    match number {
        0 => state_dir.to_owned(),
        _ => state_dir.join(format!("group-{number}")),
    }
}

/// The configuration of one of several groups.
fn of_group(config: &MetadConfig, number: u32) -> MetadConfig {
    let mut own = config.clone();
    own.cache_size = skep_base::units::Size(config.cache_size.bytes() / u64::from(config.groups));
    if number == 0 {
        return own;
    }
    let further = |port: u16| port_of_group(port, number);
    if !own.alias.is_empty() {
        own.alias = format!("{}.{number}", own.alias);
    }
    own.state_dir = directory(&config.state_dir, number);
    own.listen.iter_mut().for_each(|address| address.set_port(further(address.port())));
    own.http.iter_mut().for_each(|address| address.set_port(further(address.port())));
    own.unix_socket = own.unix_socket.map(|path| path.with_extension(format!("{number}.sock")));
    own
}

/// Shards do not move by themselves: a group that was there must be there again.
fn require_all_groups(config: &MetadConfig) -> Result<(), String> {
    let found = |number: &u32| directory(&config.state_dir, *number).is_dir();
    let Some(last) = (config.groups..skep_base::config::metad::GROUPS_MAX).rfind(found) else {
        return Ok(());
    };
    Err(format!(
        "{} has a group-{last}, whose shards nobody would serve: this server was made with more groups than the {} of \
         its configuration; set `groups` to {} again",
        config.state_dir.display(),
        config.groups,
        last + 1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::units::Size;

    /// Goal: groups of one process meet nowhere: names, directories, ports and sockets are all different, and what
    /// they take of memory is together what one would take.
    #[test]
    fn groups_share_nothing() {
        let config = MetadConfig {
            alias: "meta-1".into(),
            groups: 3,
            unix_socket: Some("/run/skep/metad.sock".into()),
            cache_size: Size::mib(300),
            ..MetadConfig::default()
        };
        let all: Vec<_> = (0..3).map(|number| of_group(&config, number)).collect();
        assert_eq!((all[0].alias.as_str(), &all[0].state_dir), ("meta-1", &config.state_dir));
        assert_eq!((all[2].alias.as_str(), all[2].state_dir.ends_with("group-2")), ("meta-1.2", true));
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let (one, other): (&MetadConfig, &MetadConfig) = (&all[one], &all[other]);
            assert!(
                one.listen != other.listen && one.http != other.http && one.unix_socket != other.unix_socket
            );
        }
        assert!(all.iter().all(|group| group.cache_size == Size::mib(100)));
    }

    /// Goal: no group takes a port that another service of the machine has by default.
    #[test]
    fn default_ports_of_groups_are_their_own() {
        use skep_base::config::address::{HTTP_PORT, METAD_PORT, MGMTD_PORT, STORAGED_PORT};
        let config = MetadConfig { groups: 16, ..MetadConfig::default() };
        let groups: Vec<_> = (1..16).map(|number| of_group(&config, number)).collect();
        let ports: Vec<u16> =
            groups.iter().flat_map(|group| [group.listen[0].port(), group.http.unwrap().port()]).collect();
        let taken =
            [MGMTD_PORT, METAD_PORT, STORAGED_PORT, HTTP_PORT, HTTP_PORT + 1, HTTP_PORT + 2, HTTP_PORT + 3];
        assert!(ports.iter().all(|port| !taken.contains(port)), "{ports:?}");
        let once: std::collections::BTreeSet<_> = ports.iter().collect();
        assert_eq!(once.len(), ports.len());
    }

    /// Goal: a server that comes back with fewer groups than it has says so, instead of leaving shards without an
    /// answer.
    #[test]
    fn a_group_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("group-1")).unwrap();
        let config = |groups| MetadConfig { state_dir: dir.path().into(), groups, ..MetadConfig::default() };
        let refused = require_all_groups(&config(1)).unwrap_err();
        assert!(refused.contains("group-1") && refused.contains("`groups` to 2"), "{refused}");
        require_all_groups(&config(2)).unwrap();
    }
}

//! mgmtd was put back from a backup of before a shard moved, and who had the shard then is gone for good: what
//! docs/admin/restore.md says to do, word for word.

use super::ages::{
    Second, check_files, copy, logged, put_back, second, state, stop, told_to_restore, write_files,
};
use super::away::waiting_in_fuse;
use super::moves::{arrives, directory, give, place};
use super::pools::rows;
use super::{Running, plan, start_with_room};
use skep_rig::{PATIENCE, Plan, patiently, until};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

const SHARD: u64 = 2;
/// The server that is gone, beside those of `skep up`: that starts all of its own.
const GONE: &str = "metad-3";

/// A cluster whose map gives the shard to a server that is gone, and does not know that another one has served it since.
struct Scene {
    /// A file that stays open over all of it.
    open: File,
    cluster: Running,
    /// On the shard.
    dir: PathBuf,
    /// It had the shard before the one that is gone, and has let its rows go.
    first: String,
    /// It had the shard last.
    last: String,
}

/// When a silent server counts as offline, from the next start of mgmtd on.
fn offline_after(cluster: &Running, period: &str) {
    const KEY: &str = "node_offline";
    let path = cluster.dir().join("etc/mgmtd.toml");
    let text = fs::read_to_string(&path).unwrap();
    let others: String =
        text.lines().filter(|line| !line.starts_with(KEY)).flat_map(|line| [line, "\n"]).collect();
    fs::write(&path, format!("{others}{KEY} = \"{period}\"\n")).unwrap();
}

/// What `skep node list` says of a server.
fn state_of(cluster: &Running, alias: &str) -> String {
    let nodes = rows(cluster, &["node", "list"]);
    let node = nodes.iter().find(|node| node["alias"] == alias);
    node.and_then(|node| node["state"].as_str()).unwrap_or("not registered").to_owned()
}

/// Starts a third metadata server, and gives it the shard; with its state directory.
fn third_server(cluster: &Running, first: &str) -> (Second, PathBuf) {
    let own = cluster.beside(GONE);
    let process = second(cluster, ("metad", "metad-1"), &own, &[format!("alias={GONE}")]);
    patiently("the third server is heard", || state_of(cluster, GONE) == "online").unwrap();
    give(cluster, SHARD, GONE);
    arrives(cluster, SHARD, GONE);
    until("its rows go", PATIENCE, || logged(cluster, first, "shard 2 has gone to another server")).unwrap();
    (process, own)
}

impl Scene {
    /// Files are made before the backup of mgmtd, between that and the move, and after the move.
    fn set_up() -> Self {
        // Who waits for the shard does so for as long as this takes.
        let cluster =
            start_with_room(Plan { metas: 2, shards: 4, ..plan() }.with("SKEP_MOUNT_RETRY", "400s"));
        let (_, first) = place(&cluster, SHARD);
        let last = if first == "metad-1" { "metad-2" } else { "metad-1" }.to_owned();
        let (process, own) = third_server(&cluster, &first);
        let dir = directory(&cluster, SHARD);
        write_files(&dir, 10);
        let (registry, backup) = (state(&cluster, "mgmtd"), cluster.beside("backup"));
        stop(&cluster.one("mgmtd").unwrap());
        copy(&registry, &backup);
        cluster.up().unwrap();
        write_files(&dir, 20);
        give(&cluster, SHARD, &last);
        arrives(&cluster, SHARD, &last);
        write_files(&dir, 30);
        let mut open = File::options().create_new(true).append(true).open(dir.join("open")).unwrap();
        open.write_all(b"before").unwrap();
        open.sync_all().unwrap();

        // The server has been emptied, so it is taken out of the cluster.
        let is_it = |word: &std::ffi::OsString| word.to_string_lossy().contains(&*own.to_string_lossy());
        stop(cluster.of("metad").iter().find(|daemon| daemon.words.iter().any(is_it)).unwrap());
        drop(process);
        fs::remove_dir_all(&own).unwrap();
        removed(&cluster);
        cluster.one("mgmtd").unwrap().kill().unwrap();
        put_back(&backup, &registry);
        // Until the test has seen what is said meanwhile.
        offline_after(&cluster, "1h");
        told_to_restore(&cluster, "mgmtd", "mgmtd");
        cluster.up().unwrap();
        patiently("who is silent is not believed to be there", || state_of(&cluster, GONE) != "online")
            .unwrap();
        // Until it hears of that map, which begins an era of its own shards, it serves the shard.
        until("it serves nobody", PATIENCE, || logged(&cluster, &last, "begins era 1")).unwrap();
        Self { open, cluster, dir, first, last }
    }

    /// Words of the order by which `to` is to have the shard.
    fn order(&self, to: &str, more: &[&str]) -> Vec<String> {
        let words = ["shard", "give", &SHARD.to_string(), to].map(str::to_owned);
        words.into_iter().chain(more.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Obeyed, once all servers that must be online are heard.
    fn obeyed(&self, words: &[String]) {
        until("the order is obeyed", PATIENCE, || self.cluster.admin(words).map(drop)).unwrap();
    }

    /// What is said when this is refused, which it must be.
    fn refused(&self, words: &[String], text: &str) -> String {
        let ask = || {
            let output = self.cluster.run(self.cluster.admin_words(words)).unwrap();
            assert!(!output.status.success(), "skep {words:?} succeeded");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if said.contains(text) { Ok(said) } else { Err(said) }
        };
        until(text, PATIENCE, ask).unwrap()
    }

    /// Words of the command that is advised when the shard is given to who had it last, and nothing is said of who is gone.
    fn advised(&self) -> Vec<String> {
        let said = self.refused(&self.order(&self.last, &[]), "--source-is-gone");
        assert!(said.contains("is not online") && said.contains("only if it is gone for good"), "{said}");
        let from = said.find("skep shard give").unwrap();
        let words: Vec<String> = said[from..].split_whitespace().skip(1).map(str::to_owned).collect();
        words.into_iter().take(5).collect()
    }

    /// A program that makes a file there meanwhile, and waits.
    fn late(&self) -> JoinHandle<std::io::Result<()>> {
        let path = self.dir.join("late");
        let late = thread::spawn(move || fs::write(path, b"late"));
        patiently("the program waits", || waiting_in_fuse(&late)).unwrap();
        late
    }

    /// Who is gone counts as offline soon; then health says that nobody has the shard.
    fn counts_as_offline(&self) {
        offline_after(&self.cluster, "7s");
        stop(&self.cluster.one("mgmtd").unwrap());
        self.cluster.up().unwrap();
        self.health("1 of 4 shards have no server that is online");
    }

    /// `skep health` fails and says so.
    fn health(&self, text: &str) {
        let look = || {
            let output = self.cluster.run(self.cluster.admin_words(["health"])).unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_said = said.lines().any(|line| line.contains(text));
            if is_said && output.status.code() == Some(2) { Ok(()) } else { Err(said) }
        };
        until(text, PATIENCE, look).unwrap();
    }

    fn era(&self) -> u64 {
        let shards = rows(&self.cluster, &["shard", "list"]);
        shards[SHARD as usize]["era"].as_u64().unwrap()
    }

    /// The shard is served by who had it last, from its own rows, and all is well.
    fn goes_on(mut self, era: u64, late: JoinHandle<std::io::Result<()>>) {
        arrives(&self.cluster, SHARD, &self.last);
        let said = "shard 2 is served from the copy that is here";
        until(said, PATIENCE, || logged(&self.cluster, &self.last, said)).unwrap();
        assert_eq!(self.era(), era);
        late.join().unwrap().unwrap();
        self.open.write_all(b", and after").unwrap();
        self.open.sync_all().unwrap();
        write_files(&self.dir, 40);
        let second = self.cluster.second_mount("mnt1", &[]).unwrap().join(self.dir.file_name().unwrap());
        for dir in [&self.dir, &second] {
            all_is_there(dir);
        }
        write_files(&second, 50);
        check_files(&self.dir, 50);
        removed(&self.cluster);
        let health = self.cluster.admin_words(["health"]);
        until("all is well", PATIENCE, || self.cluster.must(&health).map(drop)).unwrap();
    }
}

fn all_is_there(dir: &Path) {
    for tag in [10, 20, 30, 40] {
        check_files(dir, tag);
    }
    assert_eq!(fs::read(dir.join("late")).unwrap(), b"late");
    assert_eq!(fs::read(dir.join("open")).unwrap(), b"before, and after");
}

/// The server that is gone is taken out of the cluster, as soon as it counts as offline.
fn removed(cluster: &Running) {
    until("it is removed", PATIENCE, || cluster.admin(["node", "remove", GONE]).map(drop)).unwrap();
    assert_eq!(state_of(cluster, GONE), "not registered");
}

/// Goal: a shard of which mgmtd's map, put back from a backup, names a server that is gone for good is served from the rows of
/// who had it last: not before an administrator says that it is gone, nor before it counts as offline. Programs that waited
/// go on, nothing is missing, and the server can be removed.
#[test]
fn who_had_it_last_goes_on() {
    let scene = Scene::set_up();
    let (late, era) = (scene.late(), scene.era());
    let advised = scene.advised();
    scene.refused(&advised, "does not count as offline yet");
    scene.counts_as_offline();
    scene.obeyed(&advised);
    scene.goes_on(era + 1, late);
}

/// Goal: a server that has no rows of it makes none up: its log and `skep health` say so, and the shard goes to one that has,
/// by the same command. The server that is gone stays in the map until then.
#[test]
fn who_has_no_rows_makes_none_up() {
    let scene = Scene::set_up();
    let (late, era) = (scene.late(), scene.era());
    scene.counts_as_offline();
    scene.obeyed(&scene.order(&scene.first, &["--source-is-gone"]));
    let said = "shard 2 does not come: who had its rows is gone for good, and none are here";
    until(said, PATIENCE, || logged(&scene.cluster, &scene.first, said)).unwrap();
    scene.health("1 shards that mgmtd gives to it are not served");
    scene.refused(&["node", "remove", GONE].map(str::to_owned), "holds 1 metadata shards");
    assert!(!late.is_finished());
    scene.obeyed(&scene.advised());
    scene.goes_on(era + 2, late);
}

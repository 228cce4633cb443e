//! Metrics of every daemon and the API of mgmtd, against a living cluster.

use super::schema::{check, check_element};
use super::{bytes, plan, refusal, start, start_with_room};
use rustix::process::Signal;
use serde_json::Value;
use skep_rig::{Cluster, Daemon, patiently};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[path = "../../../base/src/metrics/parse.rs"]
mod parse;
use parse::{Parsed, parse};

/// Where each daemon shows its metrics.
pub fn ports(cluster: &Cluster) -> BTreeMap<String, u16> {
    let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let http = table["http"].as_table().unwrap();
    http.iter().map(|(name, port)| (name.clone(), port.as_integer().unwrap() as u16)).collect()
}

/// Status and body of the answer.
fn ask(port: u16, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let authorization = token.map_or(String::new(), |token| format!("authorization: bEARER {token}\r\n"));
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: x\r\n{authorization}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub fn metrics(port: u16) -> Parsed {
    let (status, text) = ask(port, "GET", "/metrics", None, "");
    assert_eq!(status, 200, "{text}");
    parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// How often the kernel has asked the mount for names.
pub fn lookups(cluster: &Cluster) -> f64 {
    let mount = metrics(ports(cluster)["mount"]);
    mount.value("skep_mount_fuse_requests_total", &[("operation", "lookup")]).unwrap_or(0.0)
}

/// Goal: what was just written is synced by a clean unmount, and has been when `skep umount` returns.
#[test]
fn an_unmount_syncs_before_it_ends() {
    let cluster = start(plan());
    let ports = ports(&cluster);
    let asked = || -> f64 {
        let of = |name: &str| {
            metrics(ports[name]).value("skep_storaged_requests_total", &[("message", "SyncChunks")])
        };
        ["storaged-1", "storaged-2"].into_iter().filter_map(of).sum()
    };
    let point = cluster.second_mount("second", &[]).unwrap();
    let before = asked();
    fs::write(point.join("file"), bytes(1, 3 << 20)).unwrap();
    cluster.must(["umount", point.to_str().unwrap()]).unwrap();
    assert!(asked() > before, "{before}");
}

/// Goal: a storage server that stands still keeps files on another one waiting for their background sync for seconds, not for
/// as long as an answer may take. Method: the second files are closed while the first ones wait for the silent server.
#[test]
fn a_silent_server_keeps_no_other_waiting() {
    let cluster = start(plan());
    let port = ports(&cluster)["storaged-2"];
    let asked = || {
        metrics(port).value("skep_storaged_requests_total", &[("message", "SyncChunks")]).unwrap_or_default()
    };
    let dir = cluster.mount().join("everywhere");
    fs::create_dir(&dir).unwrap();
    let set = ["entry", "set", dir.to_str().unwrap(), "--chunk-size", "256KiB", "--targets", "4"];
    cluster.must(set).unwrap();
    let files = |name: &str| -> Vec<File> {
        let open = |number| File::create(dir.join(format!("{name}-{number}"))).unwrap();
        (0..4).map(open).inspect(|mut file| file.write_all(&bytes(1, 3 << 20)).unwrap()).collect()
    };
    let (first, second) = (files("first"), files("second"));
    // Then there are connections, on which an answer is waited for the longest.
    drop(files("before"));
    patiently("what was closed before is synced", || asked() >= 2.0).unwrap();
    let is_first =
        |daemon: &Daemon| daemon.words.iter().any(|word| word.to_string_lossy().contains("storaged-1"));
    let silent = cluster.of("storaged").into_iter().find(is_first).unwrap();
    silent.signal(Signal::STOP).unwrap();
    let before = asked();
    drop(first);
    // With one request for each of its targets.
    patiently("the first files are synced", || asked() >= before + 2.0).unwrap();
    let before = asked();
    drop(second);
    let begun = Instant::now();
    patiently("the second files are synced", || asked() > before).unwrap();
    let took = begun.elapsed();
    silent.signal(Signal::CONT).unwrap();
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// Goal: every daemon shows well-formed metrics, and those that count work move with it.
#[test]
fn metrics_move_with_work() {
    let cluster = start(plan());
    let ports = ports(&cluster);
    assert_eq!(ports.keys().collect::<Vec<_>>(), ["metad-1", "mgmtd", "mount", "storaged-1", "storaged-2"]);
    let look =
        || ports.iter().map(|(name, port)| (name.as_str(), metrics(*port))).collect::<BTreeMap<_, _>>();
    let before = look();
    for (name, shown) in &before {
        let service = name.split('-').next().unwrap();
        assert_eq!(shown.value("skep_build_info", &[("service", service)]), Some(1.0), "{name}");
        assert_eq!(ask(ports[*name], "GET", "/healthz", None, "").0, 200, "{name}");
    }
    for number in 0..8 {
        let path = cluster.mount().join(format!("file-{number}"));
        fs::write(&path, bytes(number, 3 << 20)).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 3 << 20);
    }
    let after = look();
    let grown = |daemon: &str, name: &str, labels: &[(&str, &str)]| {
        let value = |looks: &BTreeMap<&str, Parsed>| looks[daemon].value(name, labels).unwrap_or(0.0);
        value(&after) - value(&before)
    };
    assert!(grown("metad-1", "skep_metad_requests_total", &[("message", "Create")]) >= 8.0);
    assert!(grown("metad-1", "skep_metad_request_seconds_count", &[("message", "Create")]) >= 8.0);
    assert!(grown("metad-1", "skep_metad_request_seconds_sum", &[("message", "Create")]) > 0.0);
    assert!(grown("metad-1", "skep_metad_log_records_total", &[]) >= 8.0);
    assert!(grown("metad-1", "skep_metad_log_sync_seconds_count", &[]) >= 1.0);
    let written: f64 = ["storaged-1", "storaged-2"]
        .iter()
        .flat_map(|name| {
            after[name].samples.iter().filter(|s| s.name == "skep_storaged_target_written_bytes_total")
        })
        .map(|sample| sample.value)
        .sum();
    assert!(written >= f64::from(8 * (3 << 20)), "{written}");
    assert!(grown("mount", "skep_mount_fuse_requests_total", &[("operation", "create")]) >= 8.0);
    assert!(grown("mount", "skep_mount_written_bytes_total", &[]) >= f64::from(8 * (3 << 20)));
    assert!(grown("mgmtd", "skep_mgmtd_requests_total", &[("message", "ClusterStatus")]) >= 1.0);
    let mgmtd = &after["mgmtd"];
    assert_eq!(mgmtd.samples.iter().filter(|s| s.name == "skep_mgmtd_target_free_bytes").count(), 4);
    assert_eq!(
        (mgmtd.value("skep_mgmtd_up", &[]), mgmtd.value("skep_mgmtd_sessions", &[])),
        (Some(1.0), Some(1.0))
    );
    cluster.of("storaged")[0].kill().unwrap();
    let away = || {
        metrics(ports["mgmtd"]).samples.iter().any(|s| s.name == "skep_mgmtd_node_online" && s.value == 0.0)
    };
    patiently("a killed node is shown as away", away).unwrap();
}

fn token(cluster: &Cluster) -> String {
    let key = cluster.dir().join("cluster.key");
    cluster.must(["key", "token", "--key", key.to_str().unwrap()]).unwrap().trim().to_owned()
}

/// Without what changes from one moment to the next.
fn steady(mut rows: Value) -> Value {
    for row in rows.as_array_mut().unwrap() {
        for name in ["silent_ms", "bytes_free", "bytes_used", "inodes", "inodes_free", "heard", "map"] {
            row.as_object_mut().unwrap().remove(name);
        }
    }
    rows
}

/// Goal: the API shows what the commands show, by the same schemas, to those only who have the token.
#[test]
fn the_api_shows_what_commands_show() {
    let cluster = start(plan());
    let (port, token) = (ports(&cluster)["mgmtd"], token(&cluster));
    let get = |path: &str| -> Value {
        let (status, body) = ask(port, "GET", path, Some(&token), "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    for (path, schema, words) in [
        ("/v1/nodes", "node-list", &["node", "list"][..]),
        ("/v1/targets", "target-list", &["target", "list"]),
        ("/v1/sessions", "session-list", &["session", "list"]),
        ("/v1/pools", "pool-list", &["pool", "list"]),
        ("/v1/df", "df", &["df"]),
    ] {
        let shown = get(path);
        check(schema, &shown);
        let text = cluster.admin([words, &["--output", "json"]].concat()).unwrap();
        assert_eq!(steady(shown), steady(serde_json::from_str(&text).unwrap()), "{path}");
    }
    for (path, schema) in
        [("/v1/status", "cluster"), ("/v1/map", "map"), ("/v1/stats", "stats"), ("/v1/health", "health")]
    {
        check(schema, &get(path));
    }
    for wrong in [
        None,
        Some(""),
        Some(&token[1..]),
        Some("0000000000000000000000000000000000000000000000000000000000000000"),
    ] {
        let (status, body) = ask(port, "GET", "/v1/nodes", wrong, "");
        check("error", &serde_json::from_str(&body).unwrap());
        assert_eq!(status, 401, "{body}");
    }
    let client = cluster.dir().join("client.key");
    assert!(refusal(&cluster, &["key", "token", "--key", client.to_str().unwrap()]).contains("cluster key"));
}

/// Goal: what the API changes, the commands show changed; what it cannot do is refused with advice.
#[test]
fn the_api_changes_what_commands_change() {
    let cluster = start(plan());
    let (port, token) = (ports(&cluster)["mgmtd"], token(&cluster));
    let send = |method: &str, path: &str, body: &str| {
        let (status, body) = ask(port, method, path, Some(&token), body);
        let document: Value = serde_json::from_str(&body).unwrap();
        check(if status == 200 { "done" } else { "error" }, &document);
        status
    };
    let rows = |words: &[&str]| -> Vec<Value> {
        let text = cluster.admin([words, &["--output", "json"]].concat()).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let first = rows(&["target", "list"])[0]["id"].to_string();
    assert_eq!(send("PUT", &format!("/v1/targets/{first}/alias"), r#"{"alias": "disk-a"}"#), 200);
    assert_eq!(send("PUT", "/v1/targets/disk-a/state", r#"{"state": "needs-resync"}"#), 200);
    assert_eq!(send("POST", "/v1/pools", r#"{"alias": "fast", "targets": ["disk-a"]}"#), 200);
    let target = rows(&["target", "list"]).remove(0);
    assert_eq!(
        (&target["alias"], &target["consistency"], &target["pool_alias"]),
        (&"disk-a".into(), &"needs-resync".into(), &"fast".into())
    );
    assert_eq!(send("PUT", "/v1/targets/disk-a/state", r#"{"state": "good"}"#), 200);
    assert_eq!(send("DELETE", "/v1/pools/fast", ""), 409, "it has a target");
    assert_eq!(send("PUT", "/v1/targets/disk-a/pool", r#"{"pool": "default"}"#), 200);
    assert_eq!(send("PUT", "/v1/pools/fast/alias", r#"{"alias": "nvme"}"#), 200);
    assert_eq!(send("DELETE", "/v1/pools/nvme", ""), 200);
    assert_eq!(rows(&["pool", "list"]).len(), 1);
    assert_eq!(send("PUT", "/v1/nodes/metad-1/alias", r#"{"alias": "meta-a"}"#), 200);
    assert!(rows(&["node", "list"]).iter().any(|node| node["alias"] == "meta-a"));
    for (method, path, body, status) in [
        ("PUT", "/v1/targets/nonesuch/alias", r#"{"alias": "x"}"#, 404),
        ("PUT", "/v1/targets/disk-a/alias", "{", 400),
        ("PUT", "/v1/targets/disk-a/alias", r#"{"alias": "x", "more": 1}"#, 400),
        ("PUT", "/v1/targets/disk-a/state", r#"{"state": "splendid"}"#, 400),
        ("POST", "/v1/pools", r#"{"alias": "none"}"#, 400),
        ("DELETE", "/v1/nodes/meta-a", "", 409),
        ("POST", "/v1/sessions/999/evict", "", 404),
        ("POST", "/v1/nodes", "", 405),
        ("GET", "/v1/nothing", "", 404),
    ] {
        assert_eq!(send(method, path, body), status, "{method} {path}");
    }
    let client = rows(&["session", "list"])[0]["client"].clone();
    assert_eq!(send("POST", &format!("/v1/sessions/{client}/evict"), ""), 200);
    let listed = rows(&["session", "list"]);
    let evicted = listed.iter().find(|row| row["client"] == client);
    assert!(evicted.is_some_and(|row| row["evicted_ms"].is_u64()), "{listed:?}");
}

/// Goal: whatever a command prints as JSON, and every line of it as ndjson, is as its schema says.
#[test]
fn commands_print_what_their_schemas_say() {
    let cluster = start_with_room(plan());
    let file = cluster.mount().join("file");
    fs::write(&file, bytes(1, 100_000)).unwrap();
    let _open = fs::File::open(&file).unwrap();
    let file = file.to_str().unwrap();
    let text = |words: &[&str], form: &str| cluster.admin([words, &["--output", form]].concat()).unwrap();
    for (schema, words) in [
        ("node-list", &["node", "list"][..]),
        ("target-list", &["target", "list"]),
        ("session-list", &["session", "list"]),
        ("pool-list", &["pool", "list"]),
        ("df", &["df"]),
        ("stats", &["stats"]),
        ("health", &["health", "--all"]),
        ("entry-info", &["entry", "info", file]),
    ] {
        check(schema, &serde_json::from_str(&text(words, "json")).unwrap());
        let lines = text(words, "ndjson");
        assert!(lines.lines().count() > 0, "{words:?}");
        lines.lines().for_each(|line| check_element(schema, &serde_json::from_str(line).unwrap()));
    }
    let directory = cluster.mount().join("directory");
    fs::create_dir(&directory).unwrap();
    let directory = directory.to_str().unwrap();
    // A target is removed below, so it must be one that holds nothing of the file.
    let rows = |words: &[&str]| serde_json::from_str::<Vec<Value>>(&text(words, "json")).unwrap();
    let info = rows(&["entry", "info", file]).remove(0);
    let stripes = info["extents"][0]["stripes"].as_array().unwrap().iter();
    let holders: Vec<&Value> = stripes.flat_map(|stripe| stripe["targets"].as_array().unwrap()).collect();
    let targets = rows(&["target", "list"]);
    let first = targets.iter().find(|target| !holders.iter().any(|held| held["target"] == target["id"]));
    let first = first.unwrap()["alias"].as_str().unwrap();
    // Commands that change something print what they changed.
    for (schema, words) in [
        ("entry-set", &["entry", "set", directory, "--targets", "2"][..]),
        ("target-list", &["target", "set-alias", first, "disk-a"]),
        ("target-list", &["target", "set-state", "disk-a", "good"]),
        ("pool-list", &["pool", "create", "fast"]),
        ("pool-list", &["pool", "rename", "fast", "nvme"]),
        ("pool-list", &["pool", "set-limits", "nvme", "--space-low", "1GiB"]),
        ("pool-list", &["pool", "assign", "nvme", "disk-a"]),
        ("target-list", &["target", "remove", "disk-a"]),
        ("pool-list", &["pool", "delete", "nvme"]),
        ("node-list", &["node", "set-alias", "metad-1", "meta-a"]),
    ] {
        let printed: Value = serde_json::from_str(&text(words, "json")).unwrap();
        assert_eq!(printed.as_array().unwrap().len(), 1, "{words:?}: {printed}");
        check(schema, &printed);
    }
    let watched = text(&["stats", "--watch", "100ms", "--count", "2"], "ndjson");
    assert!(watched.lines().count() >= 2 * 5, "{watched}");
    watched.lines().for_each(|line| check_element("stats-watch", &serde_json::from_str(line).unwrap()));
    let dir = cluster.dir();
    let status = cluster.must(["status", "--dir", dir.to_str().unwrap(), "--output", "json"]).unwrap();
    check("status", &serde_json::from_str(&status).unwrap());
}

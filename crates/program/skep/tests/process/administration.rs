//! Administrative commands against a living cluster.

use super::{bytes, plan, start, start_with_room};
use serde_json::Value;
use skep_rig::{Cluster, PATIENCE, until};
use std::fs::{self, File};

fn json(cluster: &Cluster, words: &[&str]) -> Value {
    let text = cluster.admin([words, &["--output", "json"]].concat()).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}"))
}

/// Goal: every list comes as a table, as JSON and as one JSON object per line, with the same rows.
#[test]
fn lists_come_in_three_forms() {
    let cluster = start(plan());
    for (words, count) in
        [(&["node", "list"][..], 4), (&["target", "list"], 4), (&["session", "list"], 1), (&["df"], 0)]
    {
        let rows = json(&cluster, words);
        let rows = rows.as_array().unwrap();
        assert!(rows.len() == count || count == 0 && rows.len() >= 5, "{words:?}: {rows:?}");
        let lines = cluster.admin([words, &["--output", "ndjson"]].concat()).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), rows.len());
        for (line, row) in lines.iter().zip(rows) {
            let (line, row) = (line.as_object().unwrap(), row.as_object().unwrap());
            assert!(line.keys().eq(row.keys()), "{words:?}");
        }
        let table = cluster.admin(words.to_vec()).unwrap();
        assert_eq!(table.lines().count(), rows.len() + 1, "{table}");
    }
    let nodes = json(&cluster, &["node", "list"]);
    let services: Vec<&str> =
        nodes.as_array().unwrap().iter().map(|node| node["service"].as_str().unwrap()).collect();
    for service in ["metad", "storaged"] {
        assert!(services.contains(&service), "{services:?}");
    }
    for target in json(&cluster, &["target", "list"]).as_array().unwrap() {
        assert_eq!((&target["reachability"], &target["consistency"]), (&"online".into(), &"good".into()));
    }
    assert!(cluster.admin(["stats"]).unwrap().lines().count() > 3);
    assert!(!json(&cluster, &["stats"]).is_null());
}

fn info(cluster: &Cluster, name: &str) -> Value {
    let path = cluster.mount().join(name);
    let found = json(cluster, &["entry", "info", path.to_str().unwrap()]);
    match found {
        Value::Array(mut all) => all.remove(0),
        one => one,
    }
}

fn stripes(entry: &Value) -> Vec<usize> {
    let extents = entry["extents"].as_array().unwrap();
    extents.iter().map(|extent| extent["stripes"].as_array().unwrap().len()).collect()
}

/// Goal: entry info tells where an inline file, a grown one and a striped one are; the chunk files that
/// it names exist; it counts who has a file open.
#[test]
fn entry_info_tells_where_bytes_are() {
    let cluster = start(plan());
    let mount = cluster.mount();
    fs::write(mount.join("inline"), b"small").unwrap();
    fs::write(mount.join("grown"), bytes(1, 100_000)).unwrap();
    let entry = info(&cluster, "inline");
    assert_eq!((&entry["inline"], &entry["size"], &entry["kind"]), (&true.into(), &5.into(), &"file".into()));
    assert_eq!(stripes(&entry), [0; 0]);
    let entry = info(&cluster, "grown");
    assert_eq!((&entry["inline"], stripes(&entry)), (&false.into(), vec![1]));
    let large = File::create(mount.join("large")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&large, &bytes(2, 1 << 20), 20 << 20).unwrap();
    let entry = info(&cluster, "large");
    assert_eq!(stripes(&entry), [1, 4]);
    assert_eq!(entry["sessions"].as_array().unwrap().len(), 1, "{entry}");
    drop(large);
    until("the close arrives", PATIENCE, || {
        let sessions = info(&cluster, "large")["sessions"].clone();
        if sessions.as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(sessions.to_string()) }
    })
    .unwrap();
    let there = super::deletion::chunk_files(&cluster);
    let text = info(&cluster, "grown").to_string();
    let named = there.iter().filter(|path| text.contains(path.file_name().unwrap().to_str().unwrap()));
    assert_eq!(named.count(), 1, "{text} names a chunk file of {there:?}");
    let entry = info(&cluster, "");
    assert_eq!((&entry["kind"], &entry["entries"]), (&"directory".into(), &3.into()), "{entry}");
}

/// Goal: a slip in a path is told as such, with the path, wherever the command looks for it.
#[test]
fn wrong_paths_are_named() {
    let cluster = start(plan());
    let directory = cluster.mount().join("directory");
    fs::create_dir(&directory).unwrap();
    let directory = directory.to_str().unwrap();
    for (words, parts) in [
        (
            &["entry", "info", "mnt/typo"][..],
            &["mnt/typo: does not exist on this machine", "begins with /"][..],
        ),
        (
            &["entry", "info", "/etc/passwd"],
            &["/etc/passwd is on no mount", "taken as a path in its name space", "No such"],
        ),
        (&["entry", "set", "/nowhere", "--targets", "1"], &["/nowhere is on no mount of this cluster"]),
        (&["entry", "repair", "--zero", directory], &[directory, "Is a directory"]),
    ] {
        let said = cluster.admin(words.iter().copied()).unwrap_err();
        assert!(parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
    }
}

/// Goal: what entry set says is inherited by new files and directories; more targets than there are is
/// reported, never silent.
#[test]
fn entry_set_is_inherited() {
    let cluster = start(plan());
    let wide = cluster.mount().join("wide");
    fs::create_dir(&wide).unwrap();
    let path = wide.to_str().unwrap();
    cluster.admin(["entry", "set", path, "--chunk-size", "128KiB", "--targets", "3"]).unwrap();
    fs::create_dir(wide.join("below")).unwrap();
    let content = bytes(3, 2 << 20);
    fs::write(wide.join("below/f"), &content).unwrap();
    let entry = info(&cluster, "wide/below/f");
    assert_eq!((stripes(&entry), &entry["extents"][0]["chunk_size"]), (vec![3], &131_072.into()));
    assert!(fs::read(wide.join("below/f")).unwrap() == content);
    cluster.admin(["entry", "set", path, "--targets", "9"]).unwrap();
    fs::write(wide.join("many"), &content).unwrap();
    let entry = info(&cluster, "wide/many");
    assert_eq!((stripes(&entry), &entry["policy"]["targets"]), (vec![4], &9.into()), "{entry}");
    let refused = cluster.admin(["entry", "set", path, "--chunk-size", "100KiB"]).unwrap_err();
    assert!(refused.contains("power of two"), "{refused}");
}

/// Goal: health exits with 0 when all is well, else not, and says what is wrong and what to do.
#[test]
fn health_has_exit_codes() {
    let cluster = start_with_room(
        plan().with("SKEP_MGMTD_NODE_PROBABLY_OFFLINE", "1500ms").with("SKEP_MGMTD_NODE_OFFLINE", "3s"),
    );
    let health = || {
        let output = cluster.run(cluster.admin_words(["health"])).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code().unwrap(), said + &String::from_utf8_lossy(&output.stderr))
    };
    until("all is well", PATIENCE, || match health() {
        (0, _) => Ok(()),
        (code, said) => Err(format!("{code}: {said}")),
    })
    .unwrap();
    let victim = cluster.of("storaged").remove(0);
    victim.kill().unwrap();
    let said = until("health notices", PATIENCE, || match health() {
        (1 | 2, said) if said.contains("offline") => Ok(said),
        (code, said) => Err(format!("{code}: {said}")),
    })
    .unwrap();
    assert!(said.contains("storaged"), "{said}");
    cluster.up().unwrap();
    until("all is well again", PATIENCE, || match health() {
        (0, _) => Ok(()),
        (code, said) => Err(format!("{code}: {said}")),
    })
    .unwrap();
    cluster.one("mgmtd").unwrap().kill().unwrap();
    let output = cluster
        .run([cluster.admin_words(["health"]), vec!["--timeout".into(), "1s".into()]].concat())
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Goal: names that a client or a user chose paint nothing on an administrator's terminal, in no table, document, error
/// or log.
#[test]
fn control_characters_reach_no_terminal() {
    let cluster = start(plan());
    let point = cluster.second_mount("m\x1b[31mred", &[]).unwrap();
    let file = point.join("f\x1b[2J DONE");
    std::fs::write(&file, b"x").unwrap();
    let sessions = cluster.admin(["session", "list"]).unwrap();
    assert!(sessions.contains("m\\x1b[31mred"), "{sessions}");
    let info = cluster.must(cluster.admin_words(["entry", "info", file.to_str().unwrap()])).unwrap();
    assert!(info.contains("f\\x1b[2J DONE"), "{info}");
    let missing = point.join("n\x1b[2J");
    let output = cluster.run(cluster.admin_words(["entry", "info", missing.to_str().unwrap()])).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("n\\x1b[2J"), "{error}");
    let logs = cluster.logs();
    assert!(logs.iter().any(|(name, log)| name.starts_with("mgmtd") && log.contains("m\\x1b[31mred")));
    for text in logs.iter().map(|(_, log)| log).chain([&sessions, &info, &error]) {
        assert!(!text.contains('\x1b'), "{text}");
    }
}

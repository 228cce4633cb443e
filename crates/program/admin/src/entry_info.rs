//! What `skep entry info` knows of an entry.

use super::lost;
use super::through_mount;
use serde::{Deserialize, Serialize};
use skep_base::access::AccessArgs;
use skep_base::log::printable;
use skep_base::mounted::Link;
use skep_base::namespace::{Names, Namespace};
use skep_base::output::human;
use skep_base::{Failure, Outcome};
use skep_client::LostChunk;
use skep_storage::PieceName;
use skep_types::{ChunkId, Extent, Ino, Kind, NodeId, Stripe, TargetId};
use skep_wire::meta::{Inspect, InspectReply, OpenMode};
use skep_wire::storage::TargetStats;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// An entry.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EntryInfo {
    path: String,
    ino: u64,
    /// As in the names of chunk files.
    id: String,
    kind: Cow<'static, str>,
    shard: u16,
    node: u32,
    node_alias: String,
    parent: u64,
    /// Permission bits, octal.
    mode: String,
    uid: u32,
    gid: u32,
    links: u32,
    size: u64,
    blocks: u64,
    change: u64,
    generation: u32,
    /// Are the bytes in the metadata?
    inline: bool,
    inline_bytes: Option<u64>,
    /// Of a directory.
    entries: Option<u64>,
    policy: PolicyInfo,
    extents: Vec<ExtentInfo>,
    sessions: Vec<OpenInfo>,
}

/// What new chunks follow.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PolicyInfo {
    /// Set on this entry itself?
    own: bool,
    /// Absent: the cluster's default.
    chunk_size: Option<u32>,
    /// Absent: progressive.
    targets: Option<u32>,
    /// Absent: the cluster's default.
    inline_limit: Option<u32>,
    /// Number of the storage pool. Absent: the default pool.
    pool: Option<u32>,
    /// Does each directory that is made in it get a shard of its own?
    #[serde(default)]
    spread: bool,
}

/// A range of the file.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ExtentInfo {
    /// In the names of its chunk files.
    number: u16,
    start: u64,
    /// Absent: no end.
    end: Option<u64>,
    code: Cow<'static, str>,
    chunk_size: u32,
    /// Its chunks go round these.
    stripes: Vec<StripeInfo>,
}

/// One stripe of an extent.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StripeInfo {
    stripe: usize,
    /// All of them have its chunk file.
    targets: Vec<HolderInfo>,
    /// Bytes that the chunk file has at least: 0 = never written, 1 = written, more = synced.
    floor: u64,
    /// Closed: from this offset in the chunk file on its bytes are in a later extent.
    cut: Option<u64>,
    /// Its length; absent when no server of it answers.
    size: Option<u64>,
    /// It is shorter than it can be: reads of it give EIO.
    lost: bool,
    /// What is left and what became of the rest, as far as is known.
    loss: Option<String>,
}

/// A target that holds a stripe.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct HolderInfo {
    target: u32,
    alias: String,
    node: u32,
    node_alias: String,
    reachability: Cow<'static, str>,
    consistency: Cow<'static, str>,
    /// Of the first piece on the server; absent when the server does not answer.
    path: Option<String>,
}

/// Somebody who has it open.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct OpenInfo {
    client: u64,
    host: String,
    mount: String,
    mode: Cow<'static, str>,
}

/// Extended attribute of a mount that holds what a user without the key may know.
const ENTRY: &str = "skep.entry";

/// Asks for everything about `path`: the cluster, or without its key the mount.
pub fn gather(access: &AccessArgs, path: &Path) -> Outcome<EntryInfo> {
    if let Some(value) = through_mount::ask(access, Some(path), Link::Itself, ENTRY)? {
        let found: Result<EntryInfo, _> = serde_json::from_slice(&value);
        let found = found.map_err(|e| Failure::local(format_args!("{}: {ENTRY}", path.display()), e))?;
        return Ok(EntryInfo { path: path.display().to_string(), ..found });
    }
    let mut namespace = Namespace::connect(access, path)?;
    let ino = namespace.resolve(path)?;
    let reply = namespace.ask(ino, &Inspect { ino });
    let reply = reply.map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    let directories = target_directories(&namespace, &reply);
    let (lost, sizes) = match reply.layout.is_inline() {
        true => Default::default(),
        false => {
            let answers = |target| directories.contains_key(&target);
            lost::look(&mut namespace, ino, answers)
                .map(|found| (found.lost(), found.sizes))
                .unwrap_or_default()
        }
    };
    let names = Names::of(&namespace.status);
    let leader = names.leader(ino.shard())?;
    let mut info = describe(path, ino, &reply);
    (info.node, info.node_alias) = (leader.node.0, leader.alias.clone());
    let extents = reply.layout.extents.iter();
    info.extents =
        extents.map(|extent| describe_extent(&names, &directories, (&sizes, &lost), extent)).collect();
    info.sessions = reply
        .sessions
        .iter()
        .map(|open| {
            let session = namespace.status.sessions.iter().find(|session| session.client == open.client);
            OpenInfo {
                client: open.client.0,
                host: session.map_or_else(String::new, |session| session.host.clone()),
                mount: session.map_or_else(String::new, |session| session.mount.clone()),
                mode: mode_name(open.mode).into(),
            }
        })
        .collect();
    Ok(info)
}

/// Where the servers keep the targets of the layout; a server that is away leaves its out.
fn target_directories(namespace: &Namespace, reply: &InspectReply) -> BTreeMap<TargetId, String> {
    let names = Names::of(&namespace.status);
    let targets = reply.layout.chunks().filter_map(|(_, target)| names.target(target));
    let mut nodes: Vec<NodeId> = targets.map(|target| target.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let cluster = &namespace.cluster;
    // All at once: each of them may be silent.
    let answers: Vec<_> = std::thread::scope(|scope| {
        let nodes = nodes.iter().filter_map(|node| names.entry(*node));
        let asked: Vec<_> =
            nodes.map(|node| scope.spawn(move || cluster.node(node).ask(&TargetStats {}))).collect();
        asked.into_iter().filter_map(|answer| answer.join().ok()).collect()
    });
    let mut directories = BTreeMap::new();
    for answer in answers {
        match answer {
            Ok(stats) => directories.extend(stats.targets.into_iter().map(|stat| (stat.target, stat.path))),
            Err(failure) => eprintln!("note: no chunk paths of its targets: {failure}"),
        }
    }
    directories
}

/// What a file is open for.
pub fn mode_name(mode: OpenMode) -> &'static str {
    match mode {
        OpenMode::Read => "read",
        OpenMode::Write => "write",
        OpenMode::ReadWrite => "read-write",
    }
}

/// What an entry is.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDev => "char-device",
        Kind::BlockDev => "block-device",
    }
}

fn describe(path: &Path, ino: Ino, reply: &InspectReply) -> EntryInfo {
    let attr = &reply.attr;
    let given = |value: u32| (value != 0).then_some(value);
    EntryInfo {
        path: path.display().to_string(),
        ino: ino.0,
        id: ino.to_string(),
        kind: kind_name(attr.kind).into(),
        shard: ino.shard().0,
        node: 0,
        node_alias: String::new(),
        parent: reply.parent.0,
        mode: format!("{:04o}", attr.mode),
        uid: attr.uid,
        gid: attr.gid,
        links: attr.nlink,
        size: attr.size,
        blocks: attr.blocks,
        change: attr.change,
        generation: attr.generation.0,
        inline: reply.inline_len.is_some(),
        inline_bytes: reply.inline_len,
        entries: (attr.kind == Kind::Dir).then_some(reply.entries),
        policy: PolicyInfo {
            own: reply.policy_is_own,
            chunk_size: given(reply.policy.chunk_size),
            targets: given(reply.policy.targets),
            inline_limit: reply.policy.inline_limit,
            pool: given(reply.policy.pool.0),
            spread: reply.spread,
        },
        extents: Vec::new(),
        sessions: Vec::new(),
    }
}

fn describe_extent(
    names: &Names<'_>,
    directories: &BTreeMap<TargetId, String>,
    (sizes, lost): (&BTreeMap<ChunkId, u64>, &[LostChunk]),
    extent: &Extent,
) -> ExtentInfo {
    let holder = |chunk: ChunkId, target: &TargetId| {
        let entry = names.target(*target);
        let node = entry.map_or(NodeId(0), |entry| entry.node);
        let file = PieceName::first(chunk).path();
        HolderInfo {
            target: target.0,
            alias: entry.map_or_else(|| format!("target {target}"), |entry| entry.alias.clone()),
            node: node.0,
            node_alias: names.node(node),
            reachability: entry.map_or("unknown", |entry| names.target_reachability(entry)).into(),
            consistency: entry.map_or("unknown", |entry| entry.consistency.as_str()).into(),
            path: directories.get(target).map(|directory| format!("{directory}/{file}")),
        }
    };
    let stripe = |(chunk, on): (ChunkId, &Stripe)| {
        let stripe = usize::from(chunk.stripe);
        let lost = lost.iter().find(|lost| lost.chunk == chunk);
        StripeInfo {
            stripe,
            targets: on.targets().iter().map(|target| holder(chunk, target)).collect(),
            floor: extent.floor(stripe),
            cut: Some(extent.cut(stripe)).filter(|cut| *cut != u64::MAX),
            size: sizes.get(&chunk).copied(),
            lost: lost.is_some(),
            loss: lost.map(LostChunk::to_string),
        }
    };
    ExtentInfo {
        number: extent.number,
        start: extent.start,
        end: (extent.end != u64::MAX).then_some(extent.end),
        code: match extent.code {
            skep_types::Code::Copies => "copies".into(),
        },
        chunk_size: extent.chunk_size,
        stripes: extent.named().map(stripe).collect(),
    }
}

impl EntryInfo {
    /// As people read it.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", printable(&self.path));
        // Writing to a String cannot fail.
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<10} {}", printable(&value));
        };
        line("id", format!("{} ({})", self.ino, self.id));
        line("kind", self.kind.to_string());
        line("shard", format!("{} on {} (node {})", self.shard, self.node_alias, self.node));
        line(
            "owner",
            format!("uid {}, gid {}, mode {}, {} links", self.uid, self.gid, self.mode, self.links),
        );
        match self.entries {
            Some(entries) => line("entries", entries.to_string()),
            None => line("size", format!("{} ({})", self.size, human(self.size))),
        }
        if let Some(bytes) = self.inline_bytes {
            line("content", format!("inline: {bytes} bytes in the metadata, no chunks"));
        }
        if matches!(&*self.kind, "file" | "directory") {
            line("policy", self.policy.text());
        }
        if Ino(self.ino) == Ino::ROOT {
            let text = "each directory that is made in it gets a shard of its own, if there are several metadata servers";
            line("placement", text.to_owned());
        } else if self.policy.spread {
            line("placement", "spread: each directory that is made in it gets a shard of its own".to_owned());
        }
        for extent in &self.extents {
            line("extent", extent.text());
            for (stripe, holder) in extent.holders() {
                line("", holder.text(stripe));
            }
        }
        for open in &self.sessions {
            let (client, mode) = (open.client, &open.mode);
            line("open", format!("client {client} for {mode}: {} on {}", open.mount, open.host));
        }
        text
    }
}

impl PolicyInfo {
    fn text(&self) -> String {
        let size = |value: Option<u32>| value.map_or("default".to_owned(), |bytes| human(u64::from(bytes)));
        format!(
            "chunk size {}, targets {}, inline up to {}, {} ({})",
            size(self.chunk_size),
            self.targets.map_or("progressive".to_owned(), |count| count.to_string()),
            size(self.inline_limit),
            self.pool.map_or("the default pool".to_owned(), |pool| format!("pool {pool}")),
            if self.own { "set here" } else { "inherited" }
        )
    }
}

impl ExtentInfo {
    fn text(&self) -> String {
        let end = self.end.map_or("the end".to_owned(), human);
        let (start, chunk) = (human(self.start), human(u64::from(self.chunk_size)));
        format!("{}: {start} to {end}, {chunk} chunks over {} targets", self.number, self.holders().count())
            + if self.stripes.iter().any(|stripe| stripe.cut.is_some()) { ", closed" } else { "" }
    }

    /// Every stripe with each of its targets.
    fn holders(&self) -> impl Iterator<Item = (&StripeInfo, &HolderInfo)> {
        self.stripes.iter().flat_map(|stripe| stripe.targets.iter().map(move |holder| (stripe, holder)))
    }
}

impl HolderInfo {
    fn text(&self, of: &StripeInfo) -> String {
        let (stripe, Self { alias, node_alias, .. }) = (of.stripe, self);
        let state = match (&*self.reachability, &*self.consistency) {
            ("online", "good") => String::new(),
            (reachability, consistency) => format!(" [{reachability}, {consistency}]"),
        };
        if self.consistency == "unknown" {
            return format!(
                "{stripe}: target {}, which was removed from the cluster with what it held",
                self.target
            );
        }
        let path =
            self.path.as_deref().unwrap_or("(path unknown: it takes the key, and a server that answers)");
        let lost = match &of.loss {
            _ if !of.lost => String::new(),
            Some(loss) => format!(" [LOST: {loss}]"),
            None => " [LOST: see skep entry repair]".to_owned(),
        };
        format!("{stripe}: {alias} on {node_alias}{state}{lost} {path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;
    use skep_types::{Attr, Code, Generation, Layout, Policy, Timestamp};

    fn attr(kind: Kind) -> Attr {
        let time = Timestamp::default();
        Attr {
            ino: Ino(5),
            kind,
            mode: 0o640,
            nlink: 1,
            uid: 7,
            gid: 8,
            project: skep_types::ProjectId(0),
            rdev: 0,
            size: 1 << 20,
            blocks: 2048,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            change: 3,
            generation: Generation(2),
            cuts: 1,
            time_sets: 0,
            flags: 0,
        }
    }

    fn reply() -> InspectReply {
        let extent = Extent {
            number: 0,
            cuts: Vec::new(),
            start: 0,
            end: u64::MAX,
            origin: Ino(5),
            generation: Generation(2),
            code: Code::Copies,
            chunk_size: 1 << 20,
            stripes: Stripe::each(&[TargetId(101), TargetId(999)]),
            floors: skep_types::Floors::default(),
        };
        InspectReply {
            attr: attr(Kind::File),
            parent: Ino::ROOT,
            layout: Layout { generation: Generation(2), trims: Default::default(), extents: vec![extent] },
            asked: vec![1],
            policy: Policy::default(),
            policy_is_own: false,
            spread: false,
            inline_len: None,
            sessions: Vec::new(),
            entries: 0,
        }
    }

    /// Goal: targets in stripe order with names and chunk paths; one that is not known any more
    /// is shown as such; JSON names are the released ones.
    #[test]
    fn layout_is_shown() {
        let (status, reply) = (samples::status(), reply());
        let names = Names::of(&status);
        let directories = BTreeMap::from([(TargetId(101), "/data/t1".to_owned())]);
        let extent = describe_extent(&names, &directories, (&BTreeMap::new(), &[]), &reply.layout.extents[0]);
        let file = PieceName::first(reply.layout.extents[0].chunk(0)).path();
        let holders: Vec<&HolderInfo> = extent.holders().map(|(_, holder)| holder).collect();
        assert_eq!(holders[0].path.as_deref(), Some(format!("/data/t1/{file}").as_str()));
        assert_eq!((holders[1].alias.as_str(), &holders[1].path), ("target 999", &None));
        let mut info = describe(Path::new("/mnt/x"), Ino(5), &reply);
        info.extents.push(extent);
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!(json["extents"][0]["stripes"][0]["targets"][0]["node_alias"], "storaged-2");
        assert_eq!((&json["extents"][0]["end"], &json["inline"]), (&serde_json::Value::Null, &false.into()));
        assert_eq!((&json["mode"], &json["policy"]["targets"]), (&"0640".into(), &serde_json::Value::Null));
        let text = info.text();
        for part in [
            "1.00 MiB",
            "targets progressive",
            "over 2 targets",
            "/data/t1/chunks/",
            "target 999, which was removed",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }

    /// Goal: inline content and directories are told apart.
    #[test]
    fn inline_and_directories() {
        let mut small = reply();
        (small.layout, small.inline_len) = (Layout::default(), Some(12));
        let text = describe(Path::new("/x"), Ino(5), &small).text();
        assert!(text.contains("inline: 12 bytes"), "{text}");
        let dir = InspectReply { attr: attr(Kind::Dir), inline_len: None, entries: 3, ..small };
        let text = describe(Path::new("/d"), Ino(5), &dir).text();
        assert!(text.contains("entries    3") && !text.contains("size  "), "{text}");
    }
}

//! What a section of a page presupposes is made so before its blocks, and what it promises is looked at after them.

use super::page::Block;
use Step::{Becomes, Do, Is, Load};

/// One thing that the test does beside the blocks of a page.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Commands on a host, each of which must succeed.
    Do(&'static str, &'static str),
    /// What commands on a host must print, now.
    Is(&'static str, &'static str, &'static str),
    /// What they must print before long: servers tell each other with heartbeats.
    Becomes(&'static str, &'static str, &'static str),
    /// The load on this host must go on, without a failure.
    Load(&'static str),
}

/// Steps beside a block of a page.
pub struct Scene {
    page: &'static str,
    heading: &'static str,
    /// Behind which block of the section, counted from 1; 0: in front of the first.
    after: usize,
    steps: &'static [Step],
}

/// The steps behind a block.
pub fn steps(page: &str, heading: &str, after: usize) -> &'static [Step] {
    let here = |scene: &&Scene| (scene.page, scene.heading, scene.after) == (page, heading, after);
    SCENES.iter().find(here).map_or(&[], |scene| scene.steps)
}

/// A scene whose block is not on its page: left out, it would be missed by nobody.
pub fn lost(page: &str, blocks: &[Block]) -> Option<String> {
    let count = |heading: &str| blocks.iter().filter(|block| block.heading == heading).count();
    let is_lost = |scene: &&Scene| scene.page == page && count(scene.heading) < scene.after.max(1);
    SCENES.iter().find(is_lost).map(|scene| {
        let (heading, block) = (scene.heading, scene.after.max(1));
        format!("the test has steps beside block {block} of \"{heading}\", which is not there")
    })
}

/// The section that moves mgmtd; the page on backups has it where it was before.
pub const MOVE: &str = "Another address of mgmtd";

/// What `skep health` says of targets, and its exit code.
const HEALTH: &str = "{ skep health && echo exit 0 || echo exit $?; } |
    grep -oE 'target archive-.: (bad on|offline: its server) delta|exit .$' | paste -sd ' '";
/// The targets of the pool.
const TARGETS: &str =
    "skep target list --pool archive | awk 'NR > 1 { print $2, $4, $5 }' | paste -sd , | sed 's/,/, /g'";
/// A program writes to every target of the pool, and asks whether that is safe: what it is told, and where its bytes are.
const WRITE: &str = "file=$(mktemp /mnt/skep/archive/wide/XXXXXX)
    {
        dd if=/dev/urandom of=$file bs=1M count=64 conv=fsync 2>&1 | grep -o 'Input/output error' || true
        skep entry info $file 2> /dev/null | grep -o 'archive-.' | sort
    } | paste -sd ' '";
/// The file system below the failing disk is filled to its last byte.
const FILL: &str = "sync -f /data/archive1; cat /dev/zero > /srv/below/ballast 2> /dev/null || true";
/// What is on every target is read.
const READ: &str = "skep-archive read";
/// Nodes that mgmtd has heard since it was started; until then it takes them for online.
const HEARD_NODES: &str =
    "skep node list -O ndjson | grep '\"state\":\"online\"' | grep -E '\"silent_ms\":[0-9]' |
    grep -o '\"alias\":\"[^\"]*' | cut -d '\"' -f 4 | sort | xargs";
/// Was the mount of delta heard since mgmtd was started?
const HEARD_DELTA: &str =
    "skep session list -O ndjson | grep '\"host\":\"delta\"' | grep -cE '\"silent_ms\":[0-9]' || true";
/// A client works.
const LOAD: &str = "setsid skep-load /mnt/skep/load < /dev/null > /dev/null 2>&1 &";
const OTHER_LOAD: &str = "setsid skep-load /mnt/skep/other-load < /dev/null > /dev/null 2>&1 &";

/// A storage server with a pool of its own. Its disks stand in fstab, as the page expects. The first can be made to fail:
/// it is in an image on another file system; when that one is full, blocks that are new cannot be written. It has no
/// journal, whose end would tell of a failure by itself.
pub const ARCHIVE: &[Step] = &[
    Do(
        "alpha",
        "scp -p /etc/skep/cluster.key delta:/etc/skep/
         scp -p /etc/skep/client.key delta:/etc/skep/",
    ),
    Do(
        "delta",
        "mkdir -p /data/archive{1,2,3,4} /srv/below /srv/disk2 /etc/skep/storaged
         mount -t tmpfs -o size=96m below /srv/below
         truncate -s 1g /srv/below/image
         mkfs.ext4 -q -b 4096 -N 4096 -E lazy_itable_init=0,nodiscard -O ^has_journal /srv/below/image
         mount -t tmpfs -o size=1g disk2 /srv/disk2
         cat > /etc/fstab <<< '/srv/below/image /data/archive1 ext4 loop 0 0
/srv/disk2 /data/archive2 none bind 0 0
disk3 /data/archive3 tmpfs size=1g 0 0
disk4 /data/archive4 tmpfs size=1g 0 0'
         mount -a
         cat > /etc/skep/storaged/s1.toml <<< 'alias = \"delta\"
mgmtd = [\"alpha\"]
targets = [\"/data/archive1\", \"/data/archive2\", \"/data/archive3\", \"/data/archive4\"]'
         skep storaged --instance s1 --init-only",
    ),
    Do(
        "alpha",
        "for number in 1 2 3 4; do skep target set-alias target-$((101 + number)) archive-$number; done
         skep pool create archive --targets archive-1,archive-2,archive-3,archive-4",
    ),
    Do("delta", "systemctl enable --now skep-storaged@s1"),
    Do(
        "alpha",
        "skep dir create --mgmtd alpha --pool archive /archive
         skep entry set --mgmtd alpha --targets 1 /archive
         skep dir create --mgmtd alpha /archive/wide
         skep entry set --mgmtd alpha --targets 4 --chunk-size 64KiB /archive/wide",
    ),
    Becomes("alpha", HEALTH, "exit 0"),
    Do("gamma", "skep-archive fill archive-1 archive-2 archive-3 archive-4"),
    Is("gamma", READ, "archive-1: whole, archive-2: whole, archive-3: whole, archive-4: whole"),
];

/// All of them, in the order of the pages.
const SCENES: &[Scene] = &[
    Scene {
        page: "replace",
        heading: "A storage server whose system disk is lost",
        after: 0,
        // A program that writes at this moment is told of a loss.
        steps: &[
            Do("gamma", "skep-load /mnt/skep/load stop"),
            Do("gamma", "sync -f /mnt/skep && skep-archive write /mnt/skep/first/open"),
        ],
    },
    Scene {
        page: "replace",
        heading: "A storage server whose system disk is lost",
        after: 3,
        steps: &[
            Is("gamma", "skep-archive sync", "Input/output error"),
            Do("gamma", LOAD),
            Load("gamma"),
        ],
    },
    Scene {
        page: "replace",
        heading: "The disk is good again",
        after: 0,
        steps: &[
            Do("gamma", "skep-archive write /mnt/skep/archive/wide/open"),
            Do("delta", FILL),
            Is("gamma", WRITE, "Input/output error archive-1 archive-2 archive-3 archive-4"),
            // What the kernel could not write is told once more.
            Do("delta", "rm /srv/below/ballast; sync -f /data/archive1 || true"),
            Becomes("alpha", HEALTH, "target archive-1: bad on delta exit 2"),
            Is(
                "alpha",
                TARGETS,
                "archive-1 online bad, archive-2 online good, archive-3 online good, archive-4 online good",
            ),
            Is("gamma", READ, "archive-1: EIO, archive-2: whole, archive-3: whole, archive-4: whole"),
            Load("gamma"),
        ],
    },
    Scene {
        page: "replace",
        heading: "The disk is good again",
        after: 1,
        steps: &[
            // Its server hears of it with its next heartbeat.
            Becomes("gamma", READ, "archive-1: whole, archive-2: whole, archive-3: whole, archive-4: whole"),
            Is("gamma", "skep-archive sync", "Input/output error"),
            Do("gamma", "rm /mnt/skep/archive/wide/*"),
            // The metadata server hears of it with its next heartbeat.
            Becomes("gamma", WRITE, "archive-1 archive-2 archive-3 archive-4"),
            // Once more.
            Do("delta", FILL),
            Is("gamma", WRITE, "Input/output error archive-1 archive-2 archive-3 archive-4"),
            Becomes("alpha", HEALTH, "target archive-1: bad on delta exit 2"),
            Do("gamma", "rm /mnt/skep/archive/wide/*"),
        ],
    },
    Scene {
        page: "replace",
        heading: "The disk is lost",
        after: 3,
        steps: &[
            Is("alpha", TARGETS, "archive-2 online good, archive-3 online good, archive-4 online good"),
            Is("gamma", READ, "archive-1: EIO, archive-2: whole, archive-3: whole, archive-4: whole"),
        ],
    },
    Scene {
        page: "replace",
        heading: "The disk is lost",
        after: 4,
        steps: &[
            Is("gamma", READ, "archive-1: whole, archive-2: whole, archive-3: whole, archive-4: whole"),
            Is("alpha", HEALTH, "exit 0"),
            Load("gamma"),
            // They are on the other targets now.
            Do("gamma", "skep-archive drop archive-1"),
            Do("delta", "umount /data/archive1 && sed -i /archive1/d /etc/fstab"),
        ],
    },
    Scene {
        page: "replace",
        heading: "A target that nobody serves",
        after: 0,
        steps: &[
            Do("delta", "systemctl stop skep-storaged@s1 && umount /data/archive2"),
            Is(
                "delta",
                "{ skep storaged --instance s1 2>&1 || echo exit $?; } |
                     grep -oE '/data/archive2: has no .*, or not mounted|exit .$' | paste -sd ' '",
                "/data/archive2: has no skep-target.toml: the wrong disk, or not mounted exit 1",
            ),
        ],
    },
    Scene {
        page: "replace",
        heading: "A target that nobody serves",
        after: 2,
        steps: &[
            Becomes("alpha", HEALTH, "target archive-2: offline: its server delta exit 2"),
            Is("alpha", TARGETS, "archive-2 offline good, archive-3 online good, archive-4 online good"),
            Do("gamma", "skep-archive begin archive-2"),
            Is("gamma", "skep-archive read archive-3", "archive-3: whole"),
            Load("gamma"),
            Is("gamma", "skep-archive came", ""),
        ],
    },
    Scene {
        page: "replace",
        heading: "Its files are still there",
        after: 2,
        steps: &[
            Becomes("gamma", "skep-archive came", "archive-2: whole"),
            Is("gamma", READ, "archive-2: whole, archive-3: whole, archive-4: whole"),
            Is("alpha", TARGETS, "archive-2 online good, archive-3 online good, archive-4 online good"),
        ],
    },
    Scene {
        page: "replace",
        heading: "Its files are gone",
        after: 0,
        steps: &[
            Do(
                "delta",
                "systemctl stop skep-storaged@s1
                 umount /data/archive2 && sed -i /archive2/d /etc/fstab && rm -r /srv/disk2/*
                 sed -i 's|\"/data/archive2\", ||' /etc/skep/storaged/s1.toml
                 systemctl start skep-storaged@s1",
            ),
            Becomes("alpha", HEALTH, "target archive-2: offline: its server delta exit 2"),
            Do("gamma", "skep-archive begin archive-2"),
            Load("gamma"),
            Is("gamma", "skep-archive came", ""),
        ],
    },
    Scene {
        page: "replace",
        heading: "Its files are gone",
        after: 1,
        steps: &[
            Becomes("gamma", "skep-archive came", "archive-2: EIO"),
            Is("gamma", READ, "archive-2: EIO, archive-3: whole, archive-4: whole"),
            Is("alpha", TARGETS, "archive-3 online good, archive-4 online good"),
            Do("gamma", "skep-archive drop archive-2"),
            Is("alpha", HEALTH, "exit 0"),
            Load("gamma"),
        ],
    },
    Scene {
        page: "replace",
        heading: "A target that shall go, in good order",
        after: 1,
        steps: &[
            Is(
                "alpha",
                "{ skep target remove --timeout 2s archive-3 2>&1 || echo exit $?; } |
                     grep -oE 'holds chunks|exit .$' | paste -sd ' '",
                "holds chunks exit 1",
            ),
            Is("alpha", TARGETS, "archive-4 online good"),
            Is("alpha", "skep target list --pool none | awk 'NR > 1 { print $2, $4, $5 }'", "archive-3 online good"),
            Is("gamma", READ, "archive-3: whole, archive-4: whole"),
        ],
    },
    Scene {
        page: "replace",
        heading: "A target that shall go, in good order",
        after: 3,
        steps: &[
            Is("alpha", "skep target list | grep -c archive-3 || true", "0"),
            Becomes(
                "delta",
                "grep -c 'was removed from the cluster: it is served no more' /var/log/skep-storaged@s1.log || true",
                "1",
            ),
            Is("gamma", READ, "archive-3: whole, archive-4: whole"),
        ],
    },
    Scene {
        page: "replace",
        heading: "A target that shall go, in good order",
        after: 5,
        steps: &[
            Is("gamma", READ, "archive-3: whole, archive-4: whole"),
            Is("alpha", TARGETS, "archive-4 online good"),
        ],
    },
    Scene {
        page: "replace",
        heading: MOVE,
        after: 0,
        steps: &[
            Do("gamma", "mount -a"),
            Do("gamma", LOAD),
            // This one names both machines.
            Do(
                "delta",
                "mkdir -p /mnt/skep
                 echo 'alpha,beta:/ /mnt/skep skep _netdev,nofail,key_file=/etc/skep/client.key 0 0' >> /etc/fstab
                 mount -a",
            ),
            Do("delta", OTHER_LOAD),
            Load("gamma"),
            Load("delta"),
        ],
    },
    Scene { page: "replace", heading: MOVE, after: 1, steps: &[Load("gamma"), Load("delta")] },
    Scene {
        page: "replace",
        heading: MOVE,
        after: 7,
        steps: &[Load("gamma"), Load("delta"), Do("gamma", "skep-load /mnt/skep/load stop")],
    },
    Scene {
        page: "replace",
        heading: MOVE,
        after: 8,
        steps: &[
            Do("gamma", LOAD),
            Load("gamma"),
            Is("beta", HEARD_NODES, "beta delta gamma meta-1 mgmtd-1"),
            Is(
                "beta",
                "skep node list -O ndjson | grep mgmtd-1 | grep -o '10.77.0.[0-9]*:7720'",
                "10.77.0.2:7720",
            ),
            Is("alpha", "{ skep node list 2>&1 || true; } | grep -o 'Connection refused'", "Connection refused"),
            Is("gamma", READ, "archive-3: whole, archive-4: whole"),
            Do("gamma", "skep-load /mnt/skep/load stop && skep umount /mnt/skep"),
            // A mount tells every few seconds that it is there.
            Becomes("beta", HEARD_DELTA, "1"),
            Load("delta"),
            Do("delta", "skep-load /mnt/skep/other-load stop"),
            Do("delta", "umount /mnt/skep && mount -a && skep-load /mnt/skep/other-load check && umount /mnt/skep"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::page::blocks;

    /// Goal: steps behind a block that went from its page, or whose heading has another name now, are no silent omission.
    #[test]
    fn scenes_have_their_blocks() {
        let page = |count: usize, heading: &str| {
            let block = "```sh on alpha\ntrue\n```\n".repeat(count);
            let sections = SCENES.iter().filter(|scene| scene.heading != MOVE);
            let others: String =
                sections.map(|scene| format!("## {}\n{}", scene.heading, block.repeat(8))).collect();
            blocks(&format!("{others}## {heading}\n{block}")).unwrap()
        };
        assert_eq!(lost("replace", &page(8, MOVE)), None);
        assert!(lost("replace", &page(7, MOVE)).unwrap().contains("block 8"));
        assert!(lost("replace", &page(8, "Moved")).unwrap().contains(MOVE));
        assert_eq!(lost("setup", &[]), None);
    }
}

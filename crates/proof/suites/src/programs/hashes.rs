//! Files from 4 KiB to 1 GiB, compared by their hashes through both mounts and after a restart.

use super::Stage;
use super::shell::{must, same};

/// Sizes around every border: pages, the inline limit, chunks, extents.
const SIZES: &[u64] = &[
    4 << 10,
    8 << 10,
    (8 << 10) + 1,
    64 << 10,
    (1 << 20) - 1,
    (1 << 20) + 1,
    16 << 20,
    (16 << 20) + 7,
    100 << 20,
    1 << 30,
];

pub fn run(stage: &Stage<'_>) -> Result<String, String> {
    for size in SIZES {
        // A stream that no hole or repeated block can imitate.
        let make = format!(
            "openssl enc -aes-128-ctr -nosalt -pass pass:{size} < /dev/zero 2>/dev/null | head -c {size} | \
             tee '{}' > {size}",
            stage.work.join(size.to_string()).display()
        );
        must(&stage.local, &make)?;
    }
    let sums = must(&stage.local, "sha256sum $(ls)")?;
    for (what, dir) in [("the writing mount", &stage.work), ("the other mount", &stage.other)] {
        same(&format!("hashes through {what}"), &must(dir, "sha256sum $(ls)")?, &sums)?;
    }
    stage.cluster.down()?;
    stage.cluster.up()?;
    same("hashes after a restart of everything", &must(&stage.work, "sha256sum $(ls)")?, &sums)?;
    Ok(format!("{} files from 4 KiB to 1 GiB, through both mounts and after a restart", SIZES.len()))
}

//! tar and rsync: whole trees there and back, with owners, times, links and attributes.

use super::Stage;
use super::shell::{must, same};

const SPECIALS: &str = "
mkdir special; cd special
echo x > plain; ln plain hard; ln -s plain soft; ln -s /nowhere dangling; mkfifo pipe
chmod 6751 plain; touch -d '1999-12-31 23:59:59.123456789' old; chown 1234:4321 old
mkdir sticky; chmod 1777 sticky; mkdir deep; (cd deep; for n in $(seq 60); do mkdir d; cd d; done; echo end > file)
printf 'spaces and\\nnewlines' > 'a b
c'
truncate -s 30M hole; printf data | dd of=hole bs=1 seek=20000000 conv=notrunc status=none
";

fn source(stage: &Stage<'_>) -> Result<(), String> {
    must(&stage.local, &format!("git clone -q '{}' tree; cd tree; {SPECIALS}", stage.root.display()))
        .map(drop)
}

pub fn tar(stage: &Stage<'_>) -> Result<String, String> {
    source(stage)?;
    must(&stage.local, "tar --sparse --xattrs -cf tree.tar tree")?;
    let archive = stage.local.join("tree.tar");
    must(&stage.work, &format!("tar --xattrs -xpf '{}'", archive.display()))?;
    // Compares content, mode, owner, times and link targets of every member.
    for dir in [&stage.work, &stage.other] {
        let said = must(dir, &format!("tar --compare -f '{}' 2>&1 || true", archive.display()))?;
        same("differences that tar finds", &said, "")?;
    }
    must(&stage.work, "tar --sparse -cf back.tar tree; mkdir back; tar -C back -xpf back.tar")?;
    let tree = stage.local.join("tree");
    must(&stage.work, &format!("diff -r --no-dereference -x pipe '{}' back/tree", tree.display()))?;
    must(&stage.work, "rm -rf tree back back.tar; test -z \"$(ls -A)\"")?;
    Ok("extracted, compared by tar on both mounts, packed and extracted on the mount, removed".to_owned())
}

pub fn rsync(stage: &Stage<'_>) -> Result<String, String> {
    source(stage)?;
    let to = |dir: &std::path::Path| format!("rsync -aHAXS --delete tree/ '{}/'", dir.join("tree").display());
    must(&stage.local, &to(&stage.work))?;
    for dir in [&stage.work, &stage.other] {
        let left = must(&stage.local, &format!("{} -nci", to(dir)))?;
        same("differences that rsync finds", &left, "")?;
    }
    must(&stage.local, "echo more >> tree/README.md; rm -r tree/special/deep; touch tree/new")?;
    must(&stage.local, &to(&stage.other))?;
    let left = must(&stage.local, &format!("{} -nci", to(&stage.work)))?;
    same("differences after an update through the other mount", &left, "")?;
    Ok("with hard links, ACLs, attributes and holes; checksums agree on both mounts; update with --delete"
        .to_owned())
}

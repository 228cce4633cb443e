//! git: a clone, work in it, repacking, and its own check.

use super::Stage;
use super::shell::{must, same};

const SCRIPT: &str = "
git clone -q \"$ROOT\" clone
cd clone
git config user.email bee@example.org
git config user.name Bee
git fsck --full --strict
test -z \"$(git status --porcelain)\"
git checkout -q -b work
for n in $(seq 40); do mkdir -p d$n; echo $n > d$n/file; git add d$n; git commit -q -m \"change $n\"; done
git gc -q --aggressive --prune=now
git fsck --full --strict
git checkout -q -
git merge -q --no-edit work
git clone -q . ../second
git -C ../second fsck --full --strict
git rev-parse HEAD^{tree}
";

pub fn run(stage: &Stage<'_>) -> Result<String, String> {
    let script = format!("ROOT='{}'; {SCRIPT}", stage.root.display());
    let tree = must(&stage.work, &script)?;
    let tree = tree.lines().last().unwrap_or_default();
    // Through the other mount: the same commit, nothing changed in the work tree, nothing missing.
    let status = must(
        &stage.other.join("clone"),
        "git fsck --full; git status --porcelain; git rev-parse HEAD^{tree}",
    )?;
    same("tree through the other mount", status.lines().last().unwrap_or_default(), tree)?;
    same("files that changed", &(status.lines().count() - 1).to_string(), "0")?;
    let local = must(
        &stage.local,
        &format!(
            "git clone -q '{}' back; git -C back fsck --full; git -C back rev-parse HEAD^{{tree}}",
            stage.work.join("clone").display()
        ),
    )?;
    same("tree cloned back", local.lines().last().unwrap_or_default(), tree)?;
    Ok("clone, 40 commits, gc --aggressive, merge, fsck on both mounts and cloned back".to_owned())
}

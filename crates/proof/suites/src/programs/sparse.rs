//! cp: holes stay holes, on the way in, within the mount and on the way out.

use super::Stage;
use super::shell::must;

/// 600 MiB, 5 MiB of it data.
const MAKE: &str = "truncate -s 600M sparse; for at in 0 17 255 300 599; do dd if=/dev/urandom of=sparse bs=1M \
                    seek=$at count=1 conv=notrunc status=none; done";

pub fn run(stage: &Stage<'_>) -> Result<String, String> {
    must(&stage.local, MAKE)?;
    let local = stage.local.join("sparse");
    let local = local.display();
    let small = |name: &str| format!("test $(stat -c %b {name}) -lt 40000");
    must(&stage.work, &format!("cp --sparse=always '{local}' in; cmp in '{local}'; {}", small("in")))?;
    must(&stage.work, &format!("cp --sparse=auto in within; cmp within '{local}'; {}", small("within")))?;
    must(
        &stage.work,
        &format!("cp --reflink=auto within copied; cmp copied '{local}'; {}", small("copied")),
    )?;
    must(&stage.other, &format!("cp --sparse=auto copied '{local}.back'"))?;
    must(&stage.local, &format!("cmp sparse sparse.back; {}", small("sparse.back")))?;
    must(&stage.work, "cp --sparse=never in full; cmp in full; test $(stat -c %b full) -gt 1200000")?;
    Ok("600 MiB with 5 MiB of data: holes kept into, within and out of the mount".to_owned())
}

//! `cargo xtask old-kernel`: what mounts rely on of a kernel, a cluster and the conformance table on another Linux, in a
//! virtual machine without acceleration. What newer kernels grant (direct I/O with mmap, FUSE over io_uring ...) must be
//! missed by nobody but the stopwatch.

use super::{boot, cleared, copy, make, pack, plant, workshop, write};
use crate::program::{built, built_test};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernels before 6.10 that have the security module `bpf` in their list (Debian's) ask nobody who sets attributes of
/// security.*, on no file system. Without it they do.
const MODULES: &str = "lsm=landlock,yama,apparmor";
/// What the machine prints when all went well.
const GOOD: &str = "SKEP-OLD-KERNEL: passed";

/// What the machine does. The root directory is in memory.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp /mnt /run /var /etc; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run
mkdir -p /tmp/var; echo 'root:x:0:0:root:/:/bin/sh' > /etc/passwd
ip link set lo up
uname -r
[ -f /fuse.ko ] && insmod /fuse.ko
[ -e /sys/module/fuse/parameters/enable_uring ] || without='--skip uring'
fuse-facts facts:: $without && $CLUSTER echo 'SKEP-OLD-KERNEL: passed'
poweroff -f
";

/// What it does besides, unless only facts are asked for.
const CLUSTER: &str = "{
skep up --dir /tmp/c --mount /mnt --targets 4 --shards 4 --servers 2 &&
skep status --dir /tmp/c
skep-conform --require-all --deadline 300 --dir /mnt $CONFORM &&
$CONTENDED
skep down --dir /tmp/c; ended=$?
cat /tmp/c/log/mount*.log | tail -5
[ $ended = 0 ]; } &&";

/// And that, if two mounts are to change one directory.
const CONTENDED: &str = "mkdir /mnt2 /mnt/contended &&
skep mount --config /tmp/c/etc/mount.toml --set mount_point=/mnt2 --set http= &&
skep-suites contended --seconds $SECONDS --through /mnt/contended,/mnt2/contended --local /tmp &&";

/// What to boot.
#[derive(clap::Args)]
pub struct Arguments {
    /// Kernel image (Debian: /boot/vmlinuz-* of a linux-image package).
    #[arg(long)]
    kernel: PathBuf,
    /// Its fuse.ko, when FUSE is a module.
    #[arg(long)]
    module: Option<PathBuf>,
    /// Only what mounts rely on of the kernel, without a cluster.
    #[arg(long, conflicts_with_all = ["filter", "program"])]
    facts: bool,
    /// Only conformance cases whose id contains this.
    #[arg(long)]
    filter: Option<String>,
    /// For so many seconds programs on two mounts change one directory, as in `contended`.
    #[arg(long, value_name = "SECONDS", conflicts_with = "facts", value_parser = clap::value_parser!(u64).range(1..=900))]
    contended: Option<u64>,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Boots it; true when everything in it passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let mut programs = vec![(built_test(root, "kernel")?, "fuse-facts")];
    if !arguments.facts {
        programs.push((built(root, "skep-conform", true)?, "skep-conform"));
        let program = match &arguments.program {
            Some(program) => program.clone(),
            None => built(root, "skep", true)?,
        };
        programs.push((program, "skep"));
        if arguments.contended.is_some() {
            let this = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
            programs.push((this, "skep-suites"));
        }
    }
    let work = workshop();
    let image = image(&work, &programs, arguments);
    let outcome = image.and_then(|image| boot(&arguments.kernel, &image, MODULES, None, GOOD));
    cleared(&work, outcome)
}

/// A file system in memory with the programs and the libraries they need.
fn image(work: &Path, programs: &[(PathBuf, &str)], arguments: &Arguments) -> Result<PathBuf, String> {
    let tree = work.join("tree");
    plant(&tree)?;
    for (program, name) in programs {
        copy(program, &tree.join("bin").join(name))?;
        for library in libraries(program)? {
            let place = tree.join(library.strip_prefix("/").unwrap_or(&library));
            make(place.parent().unwrap_or(&tree))?;
            copy(&library, &place)?;
        }
    }
    if let Some(module) = &arguments.module {
        copy(module, &tree.join("fuse.ko"))?;
    }
    let conform = arguments.filter.as_ref().map_or(String::new(), |filter| format!("--filter '{filter}'"));
    let contended = arguments
        .contended
        .map_or(String::new(), |seconds| CONTENDED.replace("$SECONDS", &seconds.to_string()));
    let cluster = match arguments.facts {
        true => String::new(),
        false => CLUSTER.replace("$CONFORM", &conform).replace("$CONTENDED", &contended),
    };
    write(&tree.join("init"), &INIT.replace("$CLUSTER", &cluster))?;
    let image = work.join("image");
    pack(&tree, &image)?;
    Ok(image)
}

fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|e| format!("ldd: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let words = said.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words.map(PathBuf::from).collect())
}

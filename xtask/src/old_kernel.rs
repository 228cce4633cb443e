//! `cargo xtask old-kernel`: a cluster and the conformance table on another Linux, in a virtual machine
//! without acceleration. What newer kernels grant (direct I/O with mmap, FUSE over io_uring ...) must be missed
//! by nobody but the stopwatch.

use crate::program::built;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Longest time of a run: the machine is emulated.
const LIMIT_SECONDS: u32 = 1_500;
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
skep up --dir /tmp/c --mount /mnt --targets 4 --shards 4 --servers 2 &&
skep status --dir /tmp/c
skep-conform --require-all --deadline 300 --dir /mnt $CONFORM &&
skep down --dir /tmp/c && echo 'SKEP-OLD-KERNEL: passed'
cat /tmp/c/log/mount*.log | tail -5
poweroff -f
";

/// What to boot.
#[derive(clap::Args)]
pub struct Arguments {
    /// Kernel image (Debian: /boot/vmlinuz-* of a linux-image package).
    #[arg(long)]
    kernel: PathBuf,
    /// Its fuse.ko, when FUSE is a module.
    #[arg(long)]
    module: Option<PathBuf>,
    /// Only conformance cases whose id contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Boots it; true when everything in it passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let suite = built(root, "skep-conform", true)?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", true)?,
    };
    let work = std::env::temp_dir().join(format!("skep-kernel-{}", std::process::id()));
    let image = image(&work, &[(&program, "skep"), (&suite, "skep-conform")], arguments);
    let outcome = image.and_then(|image| boot(&arguments.kernel, &image));
    std::fs::remove_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    outcome
}

fn boot(kernel: &Path, image: &Path) -> Result<bool, String> {
    // Seen as it happens: an emulated machine takes its time.
    let console = image.with_file_name("console");
    let script = "timeout \"$0\" qemu-system-x86_64 -nographic -no-reboot -m 2048 -smp 2 -cpu max -append \
                  'console=ttyS0 quiet panic=-1 rdinit=/init' -kernel \"$1\" -initrd \"$2\" < /dev/null | tee \"$3\"";
    let status = Command::new("sh")
        .args(["-c", script, &LIMIT_SECONDS.to_string()])
        .args([kernel, image, &console])
        .stdin(Stdio::null())
        .status()
        .map_err(|e| format!("sh: {e}"))?;
    let said = std::fs::read(&console).map_err(|e| format!("{}: {e}", console.display()))?;
    let said = String::from_utf8_lossy(&said);
    if !status.success() || said.is_empty() {
        return Err("qemu-system-x86_64 did not run (Debian: apt-get install qemu-system-x86)".to_owned());
    }
    Ok(said.contains(GOOD))
}

/// A file system in memory with the programs and the libraries they need.
fn image(work: &Path, programs: &[(&Path, &str)], arguments: &Arguments) -> Result<PathBuf, String> {
    let tree = work.join("tree");
    for dir in ["bin", "dev", "proc", "sys", "etc"] {
        make(&tree.join(dir))?;
    }
    copy(Path::new("/bin/busybox"), &tree.join("bin/busybox"))
        .map_err(|e| format!("{e} (Debian: apt-get install busybox-static)"))?;
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
    let init = tree.join("init");
    std::fs::write(&init, INIT.replace("$CONFORM", &conform))
        .map_err(|e| format!("{}: {e}", init.display()))?;
    let pack = "chmod 755 tree/init && cd tree && find . | cpio -o -H newc --quiet > ../image";
    let status = Command::new("sh").args(["-c", pack]).current_dir(work).status();
    match status.map_err(|e| format!("sh: {e}"))?.success() {
        true => Ok(work.join("image")),
        false => Err("packing the image failed (Debian: apt-get install cpio)".to_owned()),
    }
}

fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|e| format!("ldd: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let words = said.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words.map(PathBuf::from).collect())
}

fn make(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|e| format!("{}: {e}", from.display()))
}

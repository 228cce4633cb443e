//! Tests in virtual machines without acceleration: other kernels, and a whole system with systemd, reboots and power cuts.

pub mod old_kernel;
pub mod systemd;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Longest time of a run: the machine is emulated.
const LIMIT_SECONDS: u32 = 1_800;

/// Boots it, and shows what it says. True when that contains the last word of a machine in which all went well. One
/// with a disk may boot again.
fn boot(kernel: &Path, image: &Path, words: &str, disk: Option<&Path>, good: &str) -> Result<bool, String> {
    // Seen as it happens: an emulated machine takes its time.
    let console = image.with_file_name("console");
    let disk = disk.map(|disk| format!("file={},if=virtio,format=raw,cache=writeback", disk.display()));
    let script = "limit=$1 words=$2 kernel=$3 image=$4 console=$5; shift 5; timeout \"$limit\" qemu-system-x86_64 -nographic \
                  -m 4096 -smp 2 -cpu max -append \"console=ttyS0 quiet panic=-1 rdinit=/init $words\" \
                  -kernel \"$kernel\" -initrd \"$image\" \"$@\" < /dev/null | tee \"$console\"";
    let status = Command::new("sh")
        .args(["-c", script, "sh", &LIMIT_SECONDS.to_string(), words])
        .args([kernel, image, &console])
        .args(disk.as_ref().map_or(vec!["-no-reboot"], |disk| vec!["-drive", disk]))
        .stdin(Stdio::null())
        .status()
        .map_err(|e| format!("sh: {e}"))?;
    let said = std::fs::read(&console).map_err(|e| format!("{}: {e}", console.display()))?;
    let said = String::from_utf8_lossy(&said);
    if !status.success() || said.is_empty() {
        return Err("qemu-system-x86_64 did not run (Debian: apt-get install qemu-system-x86)".to_owned());
    }
    Ok(said.contains(good) && !said.contains("Kernel panic"))
}

/// Packs a directory into the file system with which a kernel begins.
fn pack(tree: &Path, image: &Path) -> Result<(), String> {
    let pack = "chmod 755 init && find . | cpio -o -H newc --quiet > \"$0\"";
    let status = Command::new("sh").args(["-c", pack]).arg(image).current_dir(tree).status();
    match status.map_err(|e| format!("sh: {e}"))?.success() {
        true => Ok(()),
        false => Err("packing the image failed (Debian: apt-get install cpio)".to_owned()),
    }
}

/// The directories of such a tree, with busybox in it.
fn plant(tree: &Path) -> Result<(), String> {
    for dir in ["bin", "dev", "proc", "sys", "etc", "new"] {
        make(&tree.join(dir))?;
    }
    copy(Path::new("/bin/busybox"), &tree.join("bin/busybox"))
        .map_err(|e| format!("{e} (Debian: apt-get install busybox-static)"))
}

/// A directory for the pieces of a machine, of this process.
fn workshop() -> PathBuf {
    std::env::temp_dir().join(format!("skep-vm-{}", std::process::id()))
}

/// The outcome, when what was made for it is taken away; an error of its own goes first.
fn cleared(work: &Path, outcome: Result<bool, String>) -> Result<bool, String> {
    let gone = std::fs::remove_dir_all(work).map_err(|e| format!("{}: {e}", work.display()));
    let good = outcome?;
    gone.map(|()| good)
}

fn make(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|e| format!("{}: {e}", from.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

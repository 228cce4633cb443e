//! `cargo xtask systemd`: a Debian with systemd in a virtual machine. Installed by `make install`, set up by units and
//! fstab, killed, rebooted, reset (what the kernel had not written is lost), tuned and untuned: what `hosts` does in
//! namespaces stands here on what real machines boot. The machine checks itself ([inside.sh](inside.sh)); nothing of this one is changed.

use super::{boot, cleared, copy, make, pack, plant, workshop, write};
use crate::program::built;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the machine does, boot by boot.
const INSIDE: &str = include_str!("inside.sh");
/// What it prints at the end of the last one.
const GOOD: &str = "SKEP-SYSTEMD: passed";
/// Its disk.
const DISK_MIB: u64 = 3_072;
/// Where modules lie in the package of a Debian kernel.
const MODULES: &str = "lib/modules";
/// What the kernel needs to find its disk, in this order.
const DRIVERS: [&str; 12] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
    "lib/crc16",
    "crypto/crc32c_generic",
    "lib/libcrc32c",
    "fs/mbcache",
    "fs/jbd2/jbd2",
    "fs/ext4/ext4",
];
/// What the system needs later.
const LATER: [&str; 5] = ["fs", "lib", "crypto", "drivers/block", "drivers/virtio"];

/// Begins with the drivers, then the system takes over.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $DRIVERS; do [ -f /$module.ko ] && insmod /$module.ko; done
mount -t ext4 /dev/vda /new || { echo 'no disk'; poweroff -f; }
umount /proc /sys; mount --move /dev /new/dev
exec switch_root /new /lib/systemd/systemd
";
const UNIT: &str = "[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/inside.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
[Install]
WantedBy=default.target
";

/// What to boot. As root, with qemu-system-x86, busybox-static, cpio, e2fsprogs, make and 6 GiB in the directory for
/// temporary files, where an interrupted run leaves `skep-vm-*`.
#[derive(clap::Args)]
pub struct Arguments {
    /// An unpacked kernel: dpkg-deb -x linux-image-6.1*.deb DIR.
    #[arg(long)]
    kernel: PathBuf,
    /// A system to copy: debootstrap --variant=minbase --include=systemd-sysv,udev,kmod,procps bookworm DIR.
    #[arg(long)]
    system: PathBuf,
}

/// Boots it; true when everything in it passed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let work = workshop();
    let outcome = prepare(root, &work, arguments).and_then(|kernel| {
        boot(&kernel, &work.join("image"), "systemd.show_status=0", Some(&work.join("disk")), GOOD)
    });
    cleared(&work, outcome)
}

/// Disk and first file system; says which kernel.
fn prepare(root: &Path, work: &Path, arguments: &Arguments) -> Result<PathBuf, String> {
    let (release, kernel) = kernel(&arguments.kernel)?;
    let modules = arguments.kernel.join(MODULES).join(&release);
    let first = work.join("first");
    plant(&first)?;
    let mut names = Vec::new();
    for driver in DRIVERS {
        let file = modules.join("kernel").join(driver).with_extension("ko");
        let name = driver.rsplit('/').next().unwrap_or(driver);
        // What is not there is built in, or has another name in this kernel.
        if file.exists() {
            copy(&file, &first.join(name).with_extension("ko"))?;
            names.push(name);
        }
    }
    write(&first.join("init"), &INIT.replace("$DRIVERS", &names.join(" ")))?;
    pack(&first, &work.join("image"))?;
    let system = work.join("system");
    shell("cp -ax \"$1\" \"$2\"", &[&arguments.system, &system])?;
    let within = system.join(MODULES).join(&release);
    make(&within.join("kernel"))?;
    shell("cp \"$1\"/modules.* \"$2\"", &[&modules, &within])?;
    for part in LATER {
        let to = within.join("kernel").join(part);
        make(to.parent().unwrap_or(&within))?;
        shell("cp -r \"$1\" \"$2\"", &[&modules.join("kernel").join(part), &to])?;
    }
    shell("chroot \"$1\" depmod \"$2\"", &[&system, Path::new(&release)])?;
    // As an administrator does, with the program of today. Debugging symbols do not help inside.
    let program = built(root, "skep", true)?;
    shell(
        "make -s -C \"$1\" install DESTDIR=\"$2\" && strip -o \"$2/usr/local/bin/skep\" \"$3\"",
        &[root, &system, &program],
    )?;
    for (path, text) in [
        ("inside.sh", INSIDE),
        ("etc/fstab", "/dev/vda / ext4 defaults 0 1\n"),
        ("etc/hostname", "alpha\n"),
        ("etc/hosts", "127.0.0.1 localhost alpha\n"),
        ("etc/systemd/system/inside.service", UNIT),
    ] {
        write(&system.join(path), text)?;
    }
    shell(
        "chmod 755 \"$1/inside.sh\" && systemctl -q --root=\"$1\" enable inside.service && \
         systemctl -q --root=\"$1\" mask serial-getty@ttyS0.service && \
         truncate -s \"$3\"M \"$2\" && mkfs.ext4 -q -d \"$1\" \"$2\"",
        &[&system, &work.join("disk"), Path::new(&DISK_MIB.to_string())],
    )?;
    Ok(kernel)
}

/// Release and image of an unpacked kernel.
fn kernel(unpacked: &Path) -> Result<(String, PathBuf), String> {
    let dir = unpacked.join(MODULES);
    let mut entries = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let first = entries.next().and_then(Result::ok).ok_or_else(|| format!("{}: is empty", dir.display()))?;
    let release = first.file_name().to_string_lossy().into_owned();
    let image = unpacked.join("boot").join(format!("vmlinuz-{release}"));
    match image.exists() {
        true => Ok((release, image)),
        false => Err(format!("{}: is not there", image.display())),
    }
}

fn shell(script: &str, words: &[&Path]) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", script, "sh"]).args(words).output();
    let output = output.map_err(|e| format!("sh: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

//! Which machine is this? Unix sockets are offered to peers on the same one only.

use skep_types::Uuid;

/// Overrides the machine in tests that play several machines on one.
const OVERRIDE: &str = "SKEP_MACHINE";
/// Where the id comes from, best first: of the installation, else of this boot.
const SOURCES: [&str; 2] = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"];

/// An id of this machine. Hashed, because the systemd manual asks not to show the raw one.
/// All zero (equal to no machine) when nothing tells.
///
/// Containers made from one image may share `/etc/machine-id`, so the boot id of the kernel is
/// mixed in: equal ids mean one running kernel.
pub fn machine_id() -> Uuid {
    if let Ok(text) = std::env::var(OVERRIDE) {
        return Uuid::parse(&text).unwrap_or_else(|| hashed(text.as_bytes()));
    }
    let mut seed = Vec::new();
    for source in SOURCES {
        if let Ok(text) = std::fs::read_to_string(source) {
            seed.extend_from_slice(text.trim().as_bytes());
            seed.push(b'\n');
        }
    }
    if seed.is_empty() { Uuid::default() } else { hashed(&seed) }
}

fn hashed(seed: &[u8]) -> Uuid {
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::derive_key("skep 1 machine", seed)[..16]);
    Uuid(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the id is stable within a boot and is not the raw content of /etc/machine-id.
    #[test]
    fn stable_and_hashed() {
        assert_eq!(machine_id(), machine_id());
        assert_ne!(machine_id(), Uuid::default());
        if let Ok(raw) = std::fs::read_to_string(SOURCES[0]) {
            assert_ne!(Some(machine_id()), Uuid::parse(raw.trim()));
        }
    }
}

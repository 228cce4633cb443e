//! Parts of servers that several figures need.

use crate::catalogue::{Catalogue, pcie};
use crate::hardware::{Role, Server, TargetGroup};
use crate::units::Rate;

/// Stands for "as much as you like"; far above any system and far from overflow.
pub const INFINITE: f64 = 1e21;

/// What the PCIe lanes of a group of drives pass.
pub fn lanes(group: &TargetGroup) -> f64 {
    let drives = f64::from(group.count) * f64::from(group.drives);
    group.pcie.map_or(INFINITE, |slot| drives * pcie(slot).0)
}

/// The sum behind it.
pub fn why_lanes(group: &TargetGroup) -> Option<String> {
    let slot = group.pcie?;
    let drives = u64::from(group.count) * u64::from(group.drives);
    Some(format!("{drives} drives x {} lanes of PCIe {} = {}", slot.lanes, slot.generation, pcie(slot)))
}

/// The sum behind the switches of a server.
pub fn why_switches(server: &Server) -> String {
    join(server.pcie_switches.iter().map(|switch| {
        let behind = server.targets.iter().filter(|group| group.pcie_switch.as_ref() == Some(&switch.name));
        let lanes: u64 = behind
            .map(|group| {
                let each = group.pcie.map_or(0, |slot| slot.lanes);
                u64::from(group.count) * u64::from(group.drives) * u64::from(each)
            })
            .sum();
        let up = u64::from(switch.count) * u64::from(switch.uplink.lanes);
        let over = if lanes > up {
            format!(", {:.3}:1 oversubscribed", lanes as f64 / up as f64)
        } else {
            String::new()
        };
        let rate = Rate(f64::from(switch.count) * pcie(switch.uplink).0);
        let over = over.replace(".000:1", ":1");
        format!("{up} lanes of PCIe {} = {rate} for {lanes} lanes of drives{over}", switch.uplink.generation)
    }))
}

/// Sums of parts.
pub fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" + ")
}

/// Groups of storage targets.
pub fn storage(server: &Server) -> impl Iterator<Item = &TargetGroup> {
    server.targets.iter().filter(|group| group.role == Role::Storage)
}

/// Links that carry a role.
pub fn carrying(server: &Server, role: Role) -> impl Iterator<Item = &crate::hardware::Nic> {
    server.nics.iter().filter(move |nic| nic.roles.is_empty() || nic.roles.contains(&role))
}

/// What a server's links move of file contents: each as much as its slot passes.
pub fn links(catalogue: &Catalogue<'_>, server: &Server) -> f64 {
    let link = |nic: &crate::hardware::Nic| {
        let slot = nic.pcie.map_or(INFINITE, |slot| pcie(slot).0);
        let rate = catalogue.nic(&nic.kind).map_or(0.0, |part| part.rate.0);
        f64::from(nic.count) * rate.min(slot)
    };
    carrying(server, Role::Storage).map(link).sum()
}

/// All cores of a server that do not serve metadata only, when they are known.
pub fn cores(server: &Server) -> Option<f64> {
    let all = server.sockets.checked_mul(server.cores?)?;
    Some(f64::from(all.saturating_sub(server.meta_cores.unwrap_or(0)).max(1)))
}

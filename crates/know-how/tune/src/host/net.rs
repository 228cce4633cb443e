//! Network interfaces and RDMA devices.

use super::block::numa;
use crate::Root;

/// Kinds of `/sys/class/net/*/type`.
const ETHERNET: u64 = 1;
const INFINIBAND: u64 = 32;

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// `eth0`.
    pub name: String,
    /// Largest packet.
    pub mtu: u64,
    /// Megabits a second; none when there is no link or it does not say.
    pub speed: Option<u64>,
    /// Is it in use?
    pub up: bool,
    /// InfiniBand, not Ethernet.
    pub infiniband: bool,
    /// `datagram` or `connected`, of InfiniBand.
    pub mode: Option<String>,
    /// NUMA node of its slot.
    pub numa: Option<u32>,
    /// It has hardware below.
    pub physical: bool,
}

/// An RDMA device's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fabric {
    /// `mlx5_0/1`.
    pub name: String,
    /// `4: ACTIVE`.
    pub state: String,
    /// `InfiniBand` or `Ethernet`.
    pub link: String,
    /// `200 Gb/sec (4X HDR)`.
    pub rate: String,
}

/// All interfaces that can carry data to others.
pub fn interfaces(root: &Root) -> Vec<Nic> {
    let one = |name: String| {
        let at = format!("/sys/class/net/{name}");
        let kind = root.number(&format!("{at}/type"))?;
        if kind != ETHERNET && kind != INFINIBAND {
            return None;
        }
        let speed = root.text(&format!("{at}/speed")).and_then(|text| text.parse::<i64>().ok());
        Some(Nic {
            mtu: root.number(&format!("{at}/mtu"))?,
            speed: speed.and_then(|speed| u64::try_from(speed).ok()).filter(|speed| *speed > 0),
            up: root.text(&format!("{at}/operstate")).as_deref() == Some("up"),
            infiniband: kind == INFINIBAND,
            mode: root.text(&format!("{at}/mode")).filter(|_| kind == INFINIBAND),
            numa: numa(root, &at),
            physical: root.exists(&format!("{at}/device")),
            name,
        })
    };
    root.names("/sys/class/net").into_iter().filter_map(one).collect()
}

/// All ports of RDMA devices.
pub fn fabrics(root: &Root) -> Vec<Fabric> {
    let ports = |device: String| {
        let at = format!("/sys/class/infiniband/{device}/ports");
        let names = root.names(&at).into_iter();
        names.map(move |port| (format!("{at}/{port}"), format!("{device}/{port}")))
    };
    let all = root.names("/sys/class/infiniband").into_iter().flat_map(ports);
    let one = |(at, name): (String, String)| {
        let text = |file: &str| root.text(&format!("{at}/{file}")).unwrap_or_default();
        Fabric { state: text("state"), link: text("link_layer"), rate: text("rate"), name }
    };
    all.map(one).collect()
}

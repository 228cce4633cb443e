//! What it costs, per usable TB and per GB/s; only when the description has prices.

use super::capacity::Capacity;
use super::stream::Stream;
use super::{Figure, Unit};
use crate::hardware::{Hardware, Prices};
use crate::units::Size;
use serde::Serialize;
use std::collections::BTreeSet;

/// What it costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// As the description calls it.
    pub currency: String,
    /// Everything.
    pub total: Figure,
    /// For 10^12 usable bytes.
    pub per_tb: Figure,
    /// For 10^9 bytes written per second.
    pub per_gbs_write: Figure,
    /// For 10^9 bytes read per second.
    pub per_gbs_read: Figure,
    /// What had no price and counts as free.
    pub unpriced: Vec<String>,
}

pub fn cost(
    hardware: &Hardware,
    prices: &Prices,
    capacity: &Capacity,
    write: &Stream,
    read: &Stream,
) -> Cost {
    let mut bill = Bill { total: prices.network, parts: Vec::new(), unpriced: BTreeSet::new() };
    if prices.network > 0.0 {
        bill.parts.push(format!("network {:.0}", prices.network));
    }
    for server in &hardware.servers {
        let many = f64::from(server.count);
        bill.add(many, "server", &server.name, prices.servers.get(&server.name));
        for group in &server.targets {
            let drives = many * (f64::from(group.count) * f64::from(group.drives) + f64::from(group.spares));
            let sized = format!("{} {}", group.drive, group.size);
            let of_this_size = prices.drives.iter().find(|(name, _)| {
                let size = name.strip_prefix(group.drive.as_str()).map(str::parse::<Size>);
                matches!(size, Some(Ok(size)) if size == group.size)
            });
            let price = of_this_size.map(|(_, price)| price).or_else(|| prices.drives.get(&group.drive));
            bill.add(drives, "drive", &sized, price);
        }
        for nic in &server.nics {
            bill.add(many * f64::from(nic.count), "link", &nic.kind, prices.nics.get(&nic.kind));
        }
        for controller in &server.controllers {
            let price = prices.controllers.get(&controller.kind);
            bill.add(many * f64::from(controller.count), "controller", &controller.kind, price);
        }
    }
    let total = bill.total;
    let per =
        |amount: f64, what: &str| Figure::new(total / amount, Unit::Money, format!("{total:.0} / {what}"));
    Cost {
        currency: prices.currency.clone(),
        per_tb: per(capacity.usable.value / 1e12, &capacity.usable.show()),
        per_gbs_write: per(write.expected.0 / 1e9, &write.expected.to_string()),
        per_gbs_read: per(read.expected.0 / 1e9, &read.expected.to_string()),
        total: Figure::new(total, Unit::Money, bill.parts.join(" + ")),
        unpriced: bill.unpriced.into_iter().collect(),
    }
}

struct Bill {
    total: f64,
    parts: Vec<String>,
    unpriced: BTreeSet<String>,
}

impl Bill {
    fn add(&mut self, many: f64, what: &str, name: &str, price: Option<&f64>) {
        match price {
            Some(price) => {
                self.total += many * price;
                self.parts.push(format!("{many} {name} x {price}"));
            }
            None => {
                self.unpriced.insert(format!("{what} {name}"));
            }
        }
    }
}

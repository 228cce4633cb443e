//! How many metadata servers a suite's cluster has.

use skep_rig::{Cluster, Plan};
use std::fmt;
use std::path::Path;

/// Shards of a cluster of several servers: some for each group of them.
const SHARDS: u32 = 16;

/// The metadata servers of the cluster.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Servers {
    /// Metadata servers.
    #[arg(long, default_value_t = 1)]
    metas: u32,
    /// Groups of shards on each of them.
    #[arg(long, default_value_t = 1)]
    groups: u32,
}

impl Servers {
    /// One server with one group keeps the shards of `plan`.
    pub fn of(self, plan: Plan) -> Plan {
        let groups = self.metas * self.groups;
        let shards = if groups > 1 { SHARDS.max(groups.next_power_of_two()) } else { plan.shards };
        Plan { metas: self.metas, groups: self.groups, shards, ..plan }
    }

    /// Are directories dealt to shards?
    pub fn are_several(self) -> bool {
        self.metas > 1
    }

    /// Each directory that is made in `directory` gets a shard of its own from now on, where there are several servers.
    pub fn spread(self, cluster: &Cluster, directory: &Path) -> Result<(), String> {
        if !self.are_several() {
            return Ok(());
        }
        let words = [
            "entry".as_ref(),
            "set".as_ref(),
            "--placement".as_ref(),
            "spread".as_ref(),
            directory.as_os_str(),
        ];
        cluster.admin(words).map(drop)
    }
}

/// As words of a command line; nothing for one server of one group.
impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.metas, self.groups) {
            (1, 1) => Ok(()),
            (metas, groups) => write!(f, " --metas {metas} --groups {groups}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no group is without a shard, and one server is as it was.
    #[test]
    fn every_group_has_shards() {
        let plan = |metas, groups| Servers { metas, groups }.of(Plan::new("skep"));
        assert_eq!(plan(1, 1).shards, Plan::new("skep").shards);
        assert_eq!((plan(3, 2).metas, plan(3, 2).groups, plan(3, 2).shards), (3, 2, SHARDS));
        assert_eq!(plan(10, 4).shards, 64);
    }
}

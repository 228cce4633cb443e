//! How much the measurements of a search move.

use crate::survey::load::doublings;
use crate::survey::preset::Searched;
use skep_bench::job::format_size;

const MIB: u64 = 1 << 20;
/// Transfer sizes that are tried.
pub const TRANSFERS: [u64; 7] = [MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB];

/// What every measurement of a search moves, whatever its setting: else settings would be compared by different work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount {
    /// Bytes of all processes together: whole transfers for each.
    pub size: u64,
    /// Transfer sizes of which at least two fit into each process's part.
    pub transfers: Vec<u64>,
}

impl Amount {
    /// As many bytes as wanted, or what the largest transfers need.
    pub fn of(wanted: Option<u64>, processes: u32) -> Self {
        let most = doublings(processes).last().copied().unwrap_or(1);
        let needs = |transfer: &u64| 2 * most * transfer;
        let wanted = wanted.unwrap_or(needs(&TRANSFERS[TRANSFERS.len() - 1])).max(needs(&TRANSFERS[0]));
        let transfers: Vec<u64> =
            TRANSFERS.into_iter().filter(|transfer| needs(transfer) <= wanted).collect();
        let largest = transfers.last().copied().unwrap_or(TRANSFERS[0]);
        Self { size: wanted.next_multiple_of(most * largest), transfers }
    }

    /// As many bytes as wanted, or more where the largest transfers need that.
    fn at_least(wanted: u64, processes: u32) -> Self {
        Self::of(Some(wanted.max(Self::of(None, processes).size)), processes)
    }

    /// What a reader must know of it.
    pub fn describe(&self) -> String {
        let largest = self.transfers.last().copied().unwrap_or(TRANSFERS[0]);
        let why = if self.transfers.len() < TRANSFERS.len() {
            " (two of a larger one do not fit into it)"
        } else {
            ""
        };
        format!(
            "in every setting all processes together moved {}, so that transfers of up to {} were tried{why}",
            format_size(self.size),
            format_size(largest)
        )
    }
}

impl Searched {
    /// What it moves with so many processes at most.
    pub fn amount(&self, processes: u32) -> Amount {
        match self.all_transfers {
            true => Amount::at_least(self.size, processes),
            false => Amount::of(Some(self.size), processes),
        }
    }
}

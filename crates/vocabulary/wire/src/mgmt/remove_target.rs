//! `RemoveTarget`: an administrator takes a target out of the cluster for ever.

use crate::Empty;
use skep_types::TargetId;

crate::message! {
    /// An administrator takes a target out of the cluster for ever; its id is never given again.
    RemoveTarget = 0x0113 -> Empty {
        /// The target.
        pub target: TargetId,
        /// Also while it is in a pool, where it may be given new chunks at any moment.
        pub force: bool,
    }
}

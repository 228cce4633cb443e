//! Sizing: from hardware to what it delivers, and from requirements to hardware.

pub mod hardware;
pub mod raid;
pub mod units;

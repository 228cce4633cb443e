//! Sizing: from hardware to what it delivers, and from requirements to hardware.

pub mod catalogue;
pub mod check;
pub mod forward;
pub mod hardware;
pub mod load;
pub mod measured;
pub mod propose;
pub mod raid;
pub mod reproduction;
pub mod scale;
pub mod systems;
pub mod text;
pub mod units;
mod wrong;

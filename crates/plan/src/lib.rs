//! Sizing: from hardware to what it delivers, and from requirements to hardware.

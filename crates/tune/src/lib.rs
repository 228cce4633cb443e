//! Settings of a machine: what is set, what should be, and why; changes that can be undone.

//! The engine against an oracle: at random, under faults, after power cuts, on damaged files, and
//! with everything at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod behaviour;
mod concurrent;
mod conforms;
mod damage;
mod faults;
mod full;
mod load;
mod random;
mod still;
mod world;

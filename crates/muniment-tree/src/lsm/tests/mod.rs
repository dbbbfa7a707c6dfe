//! Tests of the engine against an oracle: with random work, under faults, after power cuts, with damaged
//! files, and with all operations at the same time.
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

//! The core's access to the machine, through small traits: files, the clock, randomness; and [`Timestamp`],
//! the one version number.
//!
//! The log and the trees reach the machine only through these, so that a test can give them a disk that loses
//! what was not synced, tears a sector, runs full or fails a sync, and a simulator can run many nodes in one
//! thread and virtual time.
//!
//! Must not know the content of the files.

#![warn(unreachable_pub)]

mod clock;
mod disk;
mod files;
mod machine;
mod os;
mod overlay;
pub mod sim;
pub mod spread;
mod timestamp;

pub use clock::{Clock, SystemClock, thread_time};
pub use disk::{Disk, File, Open, Space, replace, whole};
pub use files::{cannot as cannot_free, set_most_open};
pub use machine::Machine;
pub use os::OsDisk;
pub use overlay::Overlay;
pub use sim::SimDisk;
pub use spread::{Spread, SpreadLock};
pub use timestamp::Timestamp;

//! JavaScript functions of queries (`$where`, `$function`, `$accumulator`, mapReduce), run by
//! QuickJS.
//!
//! An [`Engine`] is a thread with a runtime of its own. A script cannot reach anything of the server, its
//! heap and stack are limited, and the owner's interrupt is asked again and again while it runs. The number
//! of engines that run at a time is limited, too.
//!
//! Must not: keep anything from one operation to the next.

#![warn(unreachable_pub)]

mod engine;
mod from_js;
mod to_js;

pub use engine::{Engine, MOST_HEAP, Stop};

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ENABLED: AtomicBool = AtomicBool::new(true);

/// Whether functions may run (`security.javascriptEnabled`, `--noscripting`).
pub fn enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// Switches functions on or off for the whole process.
pub fn set_enabled(on: bool) {
    ENABLED.store(on, Relaxed);
}

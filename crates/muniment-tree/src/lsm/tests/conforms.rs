//! The suite that every engine must pass.

use super::super::LsmTrees;
use super::world::small;
use crate::conformance::{self, Harness};
use crate::trees::Trees;
use muniment_io::SimDisk;
use std::sync::Arc;

struct Lsm {
    disk: SimDisk,
    trees: Arc<LsmTrees>,
    background: bool,
}

impl Lsm {
    fn new(disk: SimDisk, background: bool) -> Lsm {
        let mut options = small(&disk);
        options.background = background;
        Lsm {
            trees: LsmTrees::open(options).unwrap(),
            disk,
            background,
        }
    }
}

impl Harness for Lsm {
    fn trees(&self) -> Arc<dyn Trees> {
        self.trees.clone()
    }

    fn reopen(&mut self) -> bool {
        self.trees.close();
        // Everything that was not synced is lost.
        *self = Lsm::new(self.disk.power_cut(self.disk.used()), self.background);
        true
    }
}

#[test]
fn conforms_without_threads() {
    conformance::run(&|| Box::new(Lsm::new(SimDisk::new(), false)));
}

#[test]
fn conforms_with_threads() {
    conformance::run(&|| Box::new(Lsm::new(SimDisk::new(), true)));
}

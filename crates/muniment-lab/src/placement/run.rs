//! What an experiment does with placements.

use super::{Pin, Placement, Server, UNPINNED, find, place};
use crate::fail::{Failure, Result};
use crate::lab::{Lab, Target};
use crate::workloads::only::CORES;

impl Target {
    /// As what is pinned.
    pub fn server(&self) -> Server {
        Server {
            pid: self.pid,
            address: self.address.clone(),
            same_host: self.same_host,
        }
    }
}

impl Lab {
    /// The placements in which loads over one connection to `server` are measured: one core and
    /// two, less what `--only cores=` leaves out. Where they cannot be pinned it is
    /// [`Placement::Anywhere`], and the reason becomes a warning.
    ///
    /// # Errors
    /// `--only cores=` asks for one that cannot be had.
    pub fn placements(&mut self, server: &Server) -> Result<Vec<Placement>> {
        let asked = self.only.values(CORES.name).is_some();
        self.placements_asked += 1;
        let there = match place(server) {
            Ok(place) => {
                let (key, value) = ("One connection", place.text());
                if !self.environment.iter().any(|(k, _)| k == key) {
                    self.environment.push((key.into(), value));
                }
                place.placements()
            }
            Err(why) if asked => {
                return Err(Failure(format!(
                    "--only cores: client and server could not be pinned: {why}"
                )));
            }
            Err(why) => {
                self.warnings.push(format!(
                    "{UNPINNED}client and server could not be pinned: {why}. Latency depends up to five-fold on which cores the two threads happen to run."
                ));
                return Ok(vec![Placement::Anywhere]);
            }
        };
        if !asked && let [one] = there.as_slice() {
            self.warnings.push(format!(
                "{UNPINNED}it could only be measured on {}: client and server may not have more cores.",
                one.name()
            ));
        }
        self.only.keep(CORES.name, there, |p| short(*p).to_string())
    }

    /// Does `f` while client and server are pinned so; a pin that did not hold becomes a warning,
    /// in which the load is called `name`. With [`Placement::Anywhere`] nothing is pinned.
    ///
    /// # Errors
    /// What `f` fails with; a server that cannot be pinned any more.
    pub fn placed<T>(
        &mut self,
        server: &Server,
        placement: Placement,
        name: &str,
        f: impl FnOnce(&mut Lab) -> Result<T>,
    ) -> Result<T> {
        if placement == Placement::Anywhere {
            return f(self);
        }
        let failed = |why: String| Failure(format!("{name}: pinning client and server: {why}"));
        let (pid, place) = find(server).map_err(failed)?;
        let pin = Pin::new(pid, &place, placement).map_err(|e| failed(e.to_string()))?;
        let result = f(self);
        for why in pin.end() {
            self.warnings.push(format!(
                "{UNPINNED}{name}: the pins did not hold, so it was not on {}: {why}.",
                placement.name()
            ));
        }
        result
    }
}

/// A placement's value for `--only cores=`.
fn short(p: Placement) -> &'static str {
    match p {
        Placement::Anywhere => "any",
        Placement::OneCore => "one",
        Placement::TwoCores => "two",
    }
}

//! Pins client and server to cores, and names the placements that experiments measure.

use crate::lab::{Lab, Target};
use crate::workloads::only::CORES;
use muniment_load::fail::{Failure, Result};
use muniment_load::placement::{Pin, Placement, Server, UNPINNED, find, place};

impl Target {
    /// Describes the target as a server that can be pinned to cores.
    pub fn server(&self) -> Server {
        Server {
            pid: self.pid,
            address: self.peer.to_string(),
            same_host: self.same_host,
        }
    }
}

impl Lab {
    /// The placements in which loads over one connection to `server` are measured: on one core and
    /// on two, less those that `--only cores=` leaves out. If client and server cannot be pinned,
    /// this is [`Placement::Anywhere`] and the reason becomes a warning.
    ///
    /// # Errors
    /// `--only cores=` asks for a placement that this host does not allow.
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

    /// Runs `f` while client and server are pinned by `placement`. A pin that did not hold becomes
    /// a warning, in which the load is called `name`. [`Placement::Anywhere`] pins nothing.
    ///
    /// # Errors
    /// The failure of `f`, or a server that cannot be pinned any more.
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

/// The word for a placement in `--only cores=`.
fn short(p: Placement) -> &'static str {
    match p {
        Placement::Anywhere => "any",
        Placement::OneCore => "one",
        Placement::TwoCores => "two",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::lab::Preset;
    use crate::targets::Endpoint;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command, Stdio};

    fn lab() -> Lab {
        Lab::new(Endpoint::Embedded, Preset::Smoke, std::env::temp_dir())
    }

    /// A process that does nothing and is killed when the value is dropped.
    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Sleeper {
            Sleeper(Command::new("sleep").arg("60").spawn().unwrap())
        }

        /// A sleeper that holds a listening socket, which is all that makes a process look like a
        /// server from outside.
        fn listening(listener: TcpListener) -> Sleeper {
            let mut c = Command::new("sleep");
            let stdin = Stdio::from(OwnedFd::from(listener));
            Sleeper(c.arg("60").stdin(stdin).spawn().unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_cannot_be_pinned_says_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let child = Sleeper::new();
        let server = |pid, same_host| Server {
            pid,
            address: address.clone(),
            same_host,
        };
        for (server, why) in [
            (server(None, false), "the server is on another host"),
            (server(None, true), "does not say which process it is"),
            (server(Some(child.0.id()), true), "does not listen on port"),
            (server(Some(u32::MAX), true), "the process that it says"),
        ] {
            let mut lab = lab();
            assert_eq!(lab.placements(&server).unwrap(), [Placement::Anywhere]);
            assert!(lab.warnings[0].contains(why), "{:?}", lab.warnings);
            lab.only.add("cores=two").unwrap();
            let e = lab.placements(&server).unwrap_err().0;
            assert!(e.contains("--only cores") && e.contains(why), "{e}");
        }
    }

    #[test]
    fn what_can_be_pinned_is_measured_in_the_placements_that_are_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let child = Sleeper::listening(listener);
        let server = Server {
            pid: Some(child.0.id()),
            address,
            same_host: true,
        };
        if crate::environment::cores() < 2 {
            return;
        }
        let mut lab = lab();
        let all = lab.placements(&server).unwrap();
        assert_eq!(all, [Placement::OneCore, Placement::TwoCores]);
        assert!(lab.warnings.is_empty(), "{:?}", lab.warnings);
        assert!(lab.environment[0].1.contains("(two cores)"));
        lab.only.add("cores=two").unwrap();
        assert_eq!(lab.placements(&server).unwrap(), [Placement::TwoCores]);
    }
}

//! A running set: its members' processes, the relays between them, and ways to kill members and to
//! cut them off from each other.
//!
//! Dropping the value ends everything: processes, relays and directories.

use super::ROUTES;
use super::shape::{SET, Shape, routes};
use super::status::{self, Seen};
use crate::process::{self, Process, ServerOptions, TempDir};
use crate::relay::conditions::{Both, Conditions, Direction, What};
use crate::relay::{Link, Relay, Route, measure::ANY};
use crate::uri::Uri;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, string_at};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::hist::Latency;
use muniment_load::stop;
use muniment_value::{DocBuf, doc};
use muniment_wire::Reserved;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time that a set may take to have a primary and all its members.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time that a member may take to answer a question.
const ANSWER: Duration = Duration::from_secs(5);
/// The number of pings whose median is a round trip.
const PINGS: usize = 25;

/// A member of the set.
struct Member {
    process: Process,
    options: ServerOptions,
    address: String,
}

impl Member {
    /// Starts a member with these options in a directory of its own below `parent`, and under the
    /// file layer if there is one.
    fn start(parent: &Path, layer: Option<&Path>, options: ServerOptions) -> Result<Member> {
        let dir = TempDir::new(parent)?;
        let clock = dir.path().join("clock");
        write_clock(&clock, 0)?;
        let data = dir.path().join("data");
        let layer = layer.map(|library| powerloss_image::Settings {
            library: library.to_path_buf(),
            dir: data.clone(),
            shadow: Some(dir.path().join("shadow")),
            clock: Some(clock),
            ..Default::default()
        });
        let options = ServerOptions {
            layer,
            data,
            ..options
        };
        let (process, address) = process::server_with(dir, &options)?;
        Ok(Member {
            process,
            options,
            address,
        })
    }
}

/// The arguments that a member gets in addition to its port: the set's name, and the addresses to
/// dial for members that it does not reach directly.
fn of_a_member(dialled: &[(String, String)]) -> Vec<String> {
    let mut more = vec!["--replSet".to_string(), SET.to_string()];
    if !dialled.is_empty() {
        more.extend([
            "--setParameter".into(),
            format!("{ROUTES}={}", routes(dialled)),
        ]);
    }
    more
}

/// The routes between the members at these addresses, one for each of `pairs`.
fn ways(shape: &Shape, pairs: &[(usize, usize)], addresses: &[SocketAddr]) -> Result<Vec<Route>> {
    let way = |(a, b): &(usize, usize)| {
        let one_way = Conditions::delayed(shape.round_trip(*a, *b) / 2);
        Ok(Route {
            listen: ANY,
            to: *addresses.get(*b).ok_or_else(nobody)?,
            conditions: Both {
                out: one_way,
                back: one_way,
            },
            // In a network, a host that is cut off does not answer; it does not refuse connections
            // either.
            refuse: false,
        })
    };
    pairs.iter().map(way).collect()
}

/// A set that runs.
pub struct Cluster {
    /// The shape of the set.
    pub shape: Shape,
    members: Vec<Member>,
    /// The links, with the member that each leads from and the member that it leads to. Members
    /// without a link reach each other directly.
    links: Vec<(usize, usize, Link)>,
    relay: Relay,
    /// The members' ports, which are reserved so that no other process gets one while its member is
    /// down.
    _ports: Vec<Reserved>,
}

/// The direction in which two sides are cut off from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the first side to the second.
    There,
    /// From the second side to the first.
    Back,
    /// Both ways.
    Both,
}

/// Overwrites the file in place and always with the same width, so that a reader never sees a part
/// of a number.
fn write_clock(file: &Path, ms: i64) -> Result<()> {
    let mut open = OpenOptions::new();
    let open = open.create(true).truncate(false).write(true).open(file);
    let text = format!("{ms:<24}");
    let written = open.and_then(|f| f.write_all_at(text.as_bytes(), 0));
    written.context("setting a member's clock")
}

impl Cluster {
    /// Starts members of `program` below `parent`, each with this cache, and relays between them;
    /// makes a set of them, and waits until all of them serve.
    ///
    /// # Errors
    /// A member cannot be started, or the set does not come up.
    pub fn start(shape: Shape, program: &Path, parent: &Path, cache_gb: f64) -> Result<Cluster> {
        Cluster::start_under(None, shape, program, parent, cache_gb)
    }

    /// Starts a set as [`Cluster::start`] does, under this file layer, which [`Cluster::set_clock`]
    /// and [`Cluster::cut_power`] need.
    ///
    /// # Errors
    /// The errors of [`Cluster::start`].
    pub fn start_under(
        layer: Option<&Path>,
        shape: Shape,
        program: &Path,
        parent: &Path,
        cache_gb: f64,
    ) -> Result<Cluster> {
        let cluster = Cluster::unborn(layer, shape, program, parent, cache_gb)?;
        let first = cluster.address(0)?.to_string();
        let config = cluster.shape.config(&cluster.addresses());
        ask(&first, PATIENCE, &doc! { "replSetInitiate": config })?;
        cluster.wait_until_well(PATIENCE)?;
        Ok(cluster)
    }

    /// Starts the members and relays, which are not a set yet.
    fn unborn(
        layer: Option<&Path>,
        shape: Shape,
        program: &Path,
        parent: &Path,
        cache_gb: f64,
    ) -> Result<Cluster> {
        let ports = (0..shape.centres.len()).map(|_| Reserved::new());
        let ports: Vec<Reserved> = ports
            .collect::<std::io::Result<_>>()
            .context("looking for free ports")?;
        let addresses: Vec<SocketAddr> = ports.iter().map(Reserved::address).collect();
        let pairs = shape.relayed();
        // The conditions have neither jitter nor loss, so no random number is drawn and the seed
        // does not matter.
        let relay = Relay::start(&ways(&shape, &pairs, &addresses)?, 0)?;
        let links: Vec<(usize, usize, Link)> = pairs
            .iter()
            .zip(relay.links())
            .map(|((a, b), link)| (*a, *b, link))
            .collect();
        let mut members = Vec::new();
        for (i, address) in addresses.iter().enumerate() {
            let dialled: Vec<(String, String)> = links
                .iter()
                .filter(|(from, ..)| *from == i)
                .filter_map(|(_, to, link)| {
                    Some((addresses.get(*to)?.to_string(), link.address().to_string()))
                })
                .collect();
            let options = ServerOptions {
                program: program.to_path_buf(),
                port: address.port(),
                cache_gb: Some(cache_gb),
                more: of_a_member(&dialled),
                ..ServerOptions::default()
            };
            let what = format!("starting member {} of {}", i + 1, addresses.len());
            let started = Member::start(parent, layer, options);
            members.push(started.map_err(|e| e.while_doing(&what))?);
        }
        Ok(Cluster {
            shape,
            members,
            links,
            relay,
            _ports: ports,
        })
    }

    /// Puts the wall clock of a member ahead of the machine's by so many milliseconds, from now on
    /// and also after a restart.
    ///
    /// # Errors
    /// There is no such member, it was not started under the layer, or the disk fails.
    pub fn set_clock(&self, member: usize, ms: i64) -> Result<()> {
        let m = self.members.get(member).ok_or_else(nobody)?;
        let layer = m.options.layer.as_ref();
        let clock = layer.and_then(|l| l.clock.as_ref());
        write_clock(clock.ok_or_else(nobody)?, ms)
    }

    /// The `host:port` of each member, as in the configuration.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|m| m.address.clone()).collect()
    }

    /// The connection string by which clients reach the set.
    pub fn uri(&self) -> Uri {
        Uri {
            hosts: self.addresses(),
            replica_set: Some(SET.into()),
            direct: false,
            access: Arc::default(),
        }
    }

    /// The process ids of the members that run now.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|m| m.process.pid()).collect()
    }

    /// The `host:port` of a member.
    ///
    /// # Errors
    /// There is no such member.
    pub fn address(&self, member: usize) -> Result<&str> {
        let m = self.members.get(member).ok_or_else(nobody)?;
        Ok(&m.address)
    }

    /// The directory of a member's data.
    ///
    /// # Errors
    /// There is no such member.
    pub fn data(&self, member: usize) -> Result<&Path> {
        let m = self.members.get(member).ok_or_else(nobody)?;
        Ok(&m.options.data)
    }

    /// Waits up to `patience` for the first of these members that says it takes writes.
    ///
    /// # Errors
    /// None of them takes writes; the error has their answers.
    pub fn primary_of(&self, members: &[usize], patience: Duration) -> Result<usize> {
        let begin = Instant::now();
        loop {
            let mut said = Vec::new();
            for &m in members {
                let address = self.address(m)?;
                match ask(address, ANSWER, &doc! { "hello": 1 }) {
                    Ok(r) if writable(&r) => return Ok(m),
                    Ok(_) => said.push(format!("{address} is no primary")),
                    Err(e) => said.push(format!("{address}: {e}")),
                }
            }
            given_up(begin, patience, || {
                format!("there is no primary: {}", said.join("; "))
            })?;
        }
    }

    /// Waits until all members serve and have what the primary has, and all name the same primary;
    /// returns that primary. The word of a member about itself is not enough: a member that was
    /// stopped while the others elected another one says that it is primary until it hears of them.
    ///
    /// # Errors
    /// The set is not well in time; the error has the members' states.
    pub fn wait_until_well(&self, patience: Duration) -> Result<usize> {
        let all: Vec<usize> = (0..self.members.len()).collect();
        let begin = Instant::now();
        loop {
            let left = patience.saturating_sub(begin.elapsed());
            let primary = self.primary_of(&all, left)?;
            let stand = self.seen_by(primary);
            if let Ok(m) = &stand
                && status::all_caught_up(m, self.members.len())
                && self.all_name(primary)
            {
                return Ok(primary);
            }
            given_up(begin, patience, || match stand {
                Ok(m) => format!("the set is not well: {}", status::not_there(&m)),
                Err(e) => e.0,
            })?;
        }
    }

    /// Whether all members name this one as the primary.
    fn all_name(&self, primary: usize) -> bool {
        let Ok(named) = self.address(primary) else {
            return false;
        };
        self.members.iter().all(|m| {
            let says = ask(&m.address, ANSWER, &doc! { "hello": 1 });
            says.is_ok_and(|r| string_at(r.as_doc(), "primary").as_deref() == Some(named))
        })
    }

    /// The members' states as one of them reports them.
    ///
    /// # Errors
    /// The member does not answer.
    pub fn seen_by(&self, member: usize) -> Result<Vec<Seen>> {
        let r = ask(
            self.address(member)?,
            ANSWER,
            &doc! { "replSetGetStatus": 1 },
        )?;
        Ok(status::members(r.as_doc()))
    }

    /// The median round trip of a ping from one member's place to every other member, ms; 0 to
    /// itself.
    ///
    /// # Errors
    /// A member does not answer.
    pub fn round_trips(&self, from: usize) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        for (to, m) in self.members.iter().enumerate() {
            if to == from {
                all.push(0.0);
                continue;
            }
            let link = self.link(from, to).map(|l| l.address().to_string());
            let mut c = Conn::connect(&Peer::open(link.as_ref().unwrap_or(&m.address)))?;
            c.set_timeout(Some(ANSWER))?;
            let mut times = Latency::new();
            for i in 0..=PINGS {
                let begin = Instant::now();
                c.command("admin", &doc! { "ping": 1 })?;
                // The first ping is not measured, as it includes connecting.
                if i > 0 {
                    times.record(begin.elapsed().as_nanos() as u64);
                }
            }
            all.push(times.quantile_ms(0.5));
        }
        Ok(all)
    }

    fn link(&self, from: usize, to: usize) -> Option<&Link> {
        let mut all = self.links.iter();
        all.find(|(a, b, _)| (*a, *b) == (from, to)).map(|l| &l.2)
    }

    /// Cuts the way between every member of one side and every member of the other.
    ///
    /// # Errors
    /// Two of them reach each other directly, so nothing can cut them off.
    pub fn part(&self, one: &[usize], other: &[usize], way: Way) -> Result<()> {
        for &a in one {
            for &b in other {
                if matches!(way, Way::There | Way::Both) {
                    self.cut(a, b)?;
                }
                if matches!(way, Way::Back | Way::Both) {
                    self.cut(b, a)?;
                }
            }
        }
        Ok(())
    }

    /// Stops all data from one member to another, on the connections that either of them made.
    fn cut(&self, from: usize, to: usize) -> Result<()> {
        let direct = || Failure(format!("members {from} and {to} are not parted by a relay"));
        let there = self.link(from, to).ok_or_else(direct)?;
        let back = self.link(to, from).ok_or_else(direct)?;
        there.change(Some(Direction::Out), What::Cut)?;
        back.change(Some(Direction::Back), What::Cut)
    }

    /// Lets all members reach each other again.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn heal(&self) -> Result<()> {
        self.relay.control().change(None, None, What::Heal)
    }

    /// Kills a member with SIGKILL.
    ///
    /// # Errors
    /// There is no such member.
    pub fn kill(&mut self, member: usize) -> Result<()> {
        let m = self.members.get_mut(member).ok_or_else(nobody)?;
        m.process.kill9();
        Ok(())
    }

    /// Kills a member and cuts its power, so that data that it had not synced are lost.
    ///
    /// # Errors
    /// There is no such member, it was not started under the layer, or the disk fails.
    pub fn cut_power(&mut self, member: usize) -> Result<()> {
        self.kill(member)?;
        let m = self.members.get(member).ok_or_else(nobody)?;
        let layer = m.options.layer.as_ref().ok_or_else(nobody)?;
        layer.cut_power().context("the disk after the power cut")
    }

    /// Kills a member and removes all its data, as if its machine got an empty disk.
    ///
    /// # Errors
    /// There is no such member, or the disk fails.
    pub fn replace_disk(&mut self, member: usize) -> Result<()> {
        self.kill(member)?;
        let options = &self.members.get(member).ok_or_else(nobody)?.options;
        let shadow = options.layer.as_ref().and_then(|l| l.shadow.as_ref());
        for dir in shadow.into_iter().chain([&options.data]) {
            std::fs::remove_dir_all(dir).context("emptying a disk")?;
        }
        std::fs::create_dir(&options.data).context("a new disk")
    }

    /// Stops a member with SIGSTOP; when it continues, it does not know that time has passed.
    ///
    /// # Errors
    /// There is no such member, or it does not run.
    pub fn freeze(&self, member: usize) -> Result<()> {
        self.signal(member, rustix::process::Signal::STOP)
    }

    /// Continues a member that was stopped.
    ///
    /// # Errors
    /// The errors of [`Cluster::freeze`].
    pub fn thaw(&self, member: usize) -> Result<()> {
        self.signal(member, rustix::process::Signal::CONT)
    }

    fn signal(&self, member: usize, signal: rustix::process::Signal) -> Result<()> {
        let m = self.members.get(member).ok_or_else(nobody)?;
        let pid = rustix::process::Pid::from_raw(m.process.pid() as i32);
        let pid = pid.ok_or_else(nobody)?;
        rustix::process::kill_process(pid, signal).context("sending a signal to a member")
    }

    /// Starts a member that was killed.
    ///
    /// # Errors
    /// The member still runs, or it does not come up.
    pub fn restart(&mut self, member: usize) -> Result<()> {
        let m = self.members.get_mut(member).ok_or_else(nobody)?;
        m.process.server_again(&m.options)?;
        Ok(())
    }

    /// Checks that all members run.
    ///
    /// # Errors
    /// A member has ended; the error quotes the end of its output.
    pub fn check_alive(&mut self) -> Result<()> {
        for (i, m) in self.members.iter_mut().enumerate() {
            let what = format!("member {} ({})", i + 1, m.address);
            m.process.check_alive().map_err(|e| e.while_doing(&what))?;
        }
        Ok(())
    }
}

fn nobody() -> Failure {
    Failure::new("the set has no such member")
}

/// Fails if a wait has gone on for too long, and pauses for a moment otherwise.
pub(super) fn given_up(
    begin: Instant,
    patience: Duration,
    why: impl FnOnce() -> String,
) -> Result<()> {
    if stop::asked() {
        return Err(Failure::new("interrupted"));
    }
    if begin.elapsed() > patience {
        return Err(Failure(format!("{} s later {}", patience.as_secs(), why())));
    }
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

/// Runs one command on a connection of its own.
pub(super) fn ask(address: &str, patience: Duration, command: &DocBuf) -> Result<DocBuf> {
    let mut c = Conn::connect(&Peer::open(address))?;
    c.set_timeout(Some(patience))?;
    c.command("admin", command)
}

pub(super) fn writable(hello: &DocBuf) -> bool {
    let says = hello.as_doc().get("isWritablePrimary");
    says.and_then(|v| v.as_bool()) == Some(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lab::Preset;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;

    /// Makes a program that is started as a server is and runs the script `does`. In the script
    /// `$p`, `$f`, `$d` and `$s` are its port, port file, directory and parameter.
    fn program(dir: &TempDir, does: &str) -> std::path::PathBuf {
        let file = dir.path().join("program");
        let script = format!(
            "#!/bin/sh\nwhile [ $# -gt 0 ]; do case \"$1\" in --portFile) f=\"$2\";; --port) p=\"$2\";; --dbpath) d=\"$2\";; --setParameter) s=\"$2\";; esac; shift; done\n{does}\n"
        );
        // Another process writes the file: an executable cannot be run while a child of ours has
        // inherited the descriptor that it was written through.
        let made = Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$0\" && chmod +x \"$0\""])
            .arg(&file)
            .arg(script)
            .status();
        assert!(made.unwrap().success());
        file
    }

    fn set(shape: Shape, does: &str) -> (TempDir, Result<Cluster>) {
        let dir = TempDir::new(&std::env::temp_dir()).unwrap();
        let file = program(&dir, does);
        let cluster = Cluster::unborn(None, shape, &file, dir.path(), 0.1);
        (dir, cluster)
    }

    /// A script that reports that it is ready, and records the addresses that it would dial.
    const READY: &str = "echo \"$s\" > $d/dials; echo $p > $f.new; mv $f.new $f; exec sleep 1000";

    /// Returns both ends of a connection from one member to another.
    fn between(c: &Cluster, from: usize, to: usize) -> (TcpStream, TcpStream) {
        // The program does not listen on its port, so the test can.
        let far = TcpListener::bind(c.address(to).unwrap()).unwrap();
        let near = TcpStream::connect(c.link(from, to).unwrap().address()).unwrap();
        let far = far.accept().unwrap().0;
        for s in [&near, &far] {
            s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        (near, far)
    }

    #[track_caller]
    fn passes(from: &mut TcpStream, to: &mut TcpStream) {
        from.write_all(b"x").unwrap();
        to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(to.read(&mut [0]).unwrap(), 1);
    }

    /// Asserts that bytes that are sent do not arrive for a while.
    #[track_caller]
    fn is_held(from: &mut TcpStream, to: &mut TcpStream) {
        from.write_all(b"x").unwrap();
        to.set_read_timeout(Some(Duration::from_millis(150)))
            .unwrap();
        let kind = to.read(&mut [0]).unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut));
    }

    #[test]
    fn members_dial_relays_for_who_is_far_and_nobody_else() {
        let shape = Shape::two_centres(Preset::Smoke);
        let shape = shape.with_round_trips("0.1,20").unwrap();
        let (_dir, cluster) = set(shape, READY);
        let cluster = cluster.unwrap();
        let addresses = cluster.addresses();
        for (i, from) in addresses.iter().enumerate() {
            let dials = std::fs::read_to_string(cluster.data(i).unwrap().join("dials")).unwrap();
            let (name, pairs) = dials.trim().split_once('=').unwrap();
            assert_eq!(name, ROUTES);
            let mut dialled: Vec<(String, String)> = pairs
                .split(',')
                .map(|p| p.split_once('=').unwrap())
                .map(|(a, b)| (a.to_string(), b.to_string()))
                .collect();
            dialled.sort();
            let mut want: Vec<(String, String)> = [0, 1, 2, 3]
                .into_iter()
                .filter(|to| to / 2 != i / 2)
                .map(|to| {
                    let link = cluster.link(i, to).unwrap().address();
                    (addresses[to].clone(), link.to_string())
                })
                .collect();
            want.sort();
            assert_eq!(dialled, want, "{from}");
        }
        // A connection through the dialled address leads to the member, and takes ten milliseconds
        // longer.
        let (mut near, mut far) = between(&cluster, 1, 2);
        let t = Instant::now();
        passes(&mut near, &mut far);
        assert!(t.elapsed() >= Duration::from_millis(9), "{:?}", t.elapsed());
        // Two members of one centre have no relay between them and cannot be cut off.
        let e = cluster.part(&[0], &[1], Way::Both).unwrap_err().0;
        assert!(e.contains("not parted by a relay"), "{e}");
    }

    #[test]
    fn a_partition_is_by_direction_whoever_connected() {
        let (_dir, cluster) = set(Shape::side_by_side(3), READY);
        let cluster = cluster.unwrap();
        let (mut zero, mut one) = between(&cluster, 0, 1);
        let (mut back_one, mut back_zero) = between(&cluster, 1, 0);
        let (mut other, mut two) = between(&cluster, 1, 2);
        cluster.part(&[0], &[1, 2], Way::There).unwrap();
        // Nothing arrives from member 0, whether on its own connection or on the one that member 1
        // made; everything to it does.
        is_held(&mut zero, &mut one);
        is_held(&mut back_zero, &mut back_one);
        passes(&mut one, &mut zero);
        passes(&mut back_one, &mut back_zero);
        passes(&mut other, &mut two);
        cluster.heal().unwrap();
        // The bytes that were held arrive first.
        passes(&mut zero, &mut one);
        passes(&mut back_zero, &mut back_one);
        cluster.part(&[0], &[1], Way::Back).unwrap();
        is_held(&mut one, &mut zero);
        passes(&mut zero, &mut one);
        cluster.heal().unwrap();
        cluster.part(&[2], &[0, 1], Way::Both).unwrap();
        is_held(&mut other, &mut two);
        is_held(&mut two, &mut other);
        passes(&mut zero, &mut one);
    }

    #[test]
    fn a_server_that_knows_no_routes_says_so() {
        let no = "echo \"parameter '$s' is not known\" >&2; exit 2";
        let (_dir, cluster) = set(Shape::side_by_side(3), no);
        let e = cluster.err().unwrap().0;
        assert!(e.starts_with("starting member 1 of 3: "), "{e}");
        assert!(e.contains(ROUTES) && e.contains("is not known"), "{e}");
    }

    #[test]
    fn a_set_that_cannot_be_made_is_no_silence() {
        // The program reports that it is ready, but does not listen.
        let dir = TempDir::new(&std::env::temp_dir()).unwrap();
        let file = program(&dir, READY);
        let shape = Shape::side_by_side(3);
        let e = Cluster::start(shape, &file, dir.path(), 0.1)
            .err()
            .unwrap()
            .0;
        assert!(e.contains("cannot connect to 127.0.0.1:"), "{e}");
    }
}

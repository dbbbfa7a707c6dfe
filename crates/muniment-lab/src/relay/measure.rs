//! Measures the relay's own cost and precision through a link to a server, both made for this:
//! round trips, one bulk transfer, and the CPU time for it.

use super::conditions::{Both, Conditions};
use super::{Figures, Relay, Route};
use crate::report::table::{bytes, ms};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::hist::Latency;
use muniment_load::stop;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A free port on the loopback interface.
pub(crate) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The first byte of a connection that asks the server to echo everything.
const ECHO: u8 = b'e';
/// The first byte of a connection that asks the server to count everything.
const COUNT: u8 = b'c';
/// The bytes of a round trip's message, about those of a small command.
const MESSAGE: usize = 200;
/// The longest time that each part takes.
const LONGEST: Duration = Duration::from_secs(3);
/// The most round trips.
const ROUND_TRIPS: usize = 2000;

/// The results of the measurement.
pub(crate) struct Measured {
    /// The round trip that the conditions should give.
    pub nominal: Duration,
    /// Round trips without the relay.
    pub direct: Latency,
    /// Round trips through it.
    pub relayed: Latency,
    /// The number of idle connections meanwhile.
    pub idle: usize,
    /// The bytes a second of one connection in one direction.
    pub bandwidth: f64,
    /// The relay's CPU seconds for each gigabyte.
    pub cpu_per_gb: f64,
    /// The relay's own figures.
    pub figures: Figures,
}

/// Starts a server for both kinds of connections; it ends with the process.
///
/// # Errors
/// No port is free.
pub(crate) fn server() -> Result<SocketAddr> {
    let listener = TcpListener::bind(ANY).context("listening")?;
    let address = listener.local_addr().context("listening")?;
    std::thread::spawn(move || {
        for s in listener.incoming().flatten() {
            std::thread::spawn(move || serve(s));
        }
    });
    Ok(address)
}

fn serve(mut s: TcpStream) -> std::io::Result<()> {
    s.set_nodelay(true)?;
    let mut mode = [0];
    s.read_exact(&mut mode)?;
    let mut buffer = vec![0; 256 << 10];
    let (mut total, mut first) = (0u64, None);
    loop {
        let n = s.read(&mut buffer)?;
        let got = buffer.get(..n).unwrap_or_default();
        match mode {
            _ if n == 0 => break,
            [ECHO] => s.write_all(got)?,
            _ => {
                first.get_or_insert_with(Instant::now);
                total += n as u64;
            }
        }
    }
    if mode == [COUNT] {
        let took = first.map_or(0, |f| f.elapsed().as_nanos() as u64);
        s.write_all(&total.to_le_bytes())?;
        s.write_all(&took.to_le_bytes())?;
    }
    Ok(())
}

fn connect(to: SocketAddr, mode: u8) -> Result<TcpStream> {
    let mut s = TcpStream::connect(to).context(&format!("connecting to {to}"))?;
    s.set_nodelay(true).context("connecting")?;
    s.write_all(&[mode]).context("connecting")?;
    Ok(s)
}

/// Sends small messages one after the other, each with a pause before it, and measures the time
/// until it comes back.
///
/// # Errors
/// The connection ended.
pub(crate) fn round_trips(
    to: SocketAddr,
    most: usize,
    longest: Duration,
    pause: Duration,
) -> Result<Latency> {
    let mut s = connect(to, ECHO)?;
    let mut all = Latency::new();
    let mut message = [7; MESSAGE];
    // The first exchange is not measured, as it includes connecting.
    let mut exchange = || -> std::io::Result<u64> {
        let t = Instant::now();
        s.write_all(&message)?;
        s.read_exact(&mut message)?;
        Ok(t.elapsed().as_nanos() as u64)
    };
    exchange().context("a round trip")?;
    let begin = Instant::now();
    for _ in 0..most {
        std::thread::sleep(pause);
        all.record(exchange().context("a round trip")?);
        if stop::asked() || begin.elapsed() > longest {
            break;
        }
    }
    Ok(all)
}

/// Transfers in bulk for a time; returns the bytes a second at the receiver, and the number of
/// bytes.
///
/// # Errors
/// The connection ended.
pub(crate) fn bulk(to: SocketAddr, time: Duration) -> Result<(f64, u64)> {
    let mut s = connect(to, COUNT)?;
    let block = vec![7; 256 << 10];
    let begin = Instant::now();
    while begin.elapsed() < time && !stop::asked() {
        s.write_all(&block).context("sending")?;
    }
    s.shutdown(Shutdown::Write).context("sending")?;
    let mut answer = [0; 16];
    s.read_exact(&mut answer).context("waiting for the count")?;
    let answer = u128::from_le_bytes(answer);
    let (total, took) = (answer as u64, (answer >> 64) as u64);
    Ok((total as f64 / (took as f64 / 1e9), total))
}

/// Measures a relay under these conditions while `idle` other connections are open.
///
/// # Errors
/// The relay cannot be started, or it loses a connection.
pub(crate) fn measure(conditions: Both<Conditions>, idle: usize, seed: u64) -> Result<Measured> {
    let to = server()?;
    let route = Route {
        listen: ANY,
        to,
        conditions,
        refuse: false,
    };
    let relay = Relay::start(&[route], seed)?;
    let link = relay.links().pop();
    let link = link.ok_or_else(|| Failure::new("the relay has no link"))?;
    // These connections send nothing, so the server's threads for them do not run.
    let others = (0..idle).map(|_| TcpStream::connect(link.address()));
    let others: Vec<TcpStream> = others
        .collect::<std::io::Result<_>>()
        .context("opening idle connections")?;
    let nominal = conditions.out.delay + conditions.back.delay;
    std::thread::sleep(nominal * 2);
    // A thread wakes more slowly the longer it has slept. The round trips without the relay
    // therefore pause as long as those through the relay take.
    let direct = round_trips(to, ROUND_TRIPS, LONGEST, nominal)?;
    let relayed = round_trips(link.address(), ROUND_TRIPS, LONGEST, Duration::ZERO)?;
    let before = relay.control().figures()?;
    let (bandwidth, total) = bulk(link.address(), LONGEST)?;
    let after = relay.control().figures()?;
    drop(others);
    Ok(Measured {
        nominal,
        direct,
        relayed,
        idle,
        bandwidth,
        cpu_per_gb: (after.cpu_seconds - before.cpu_seconds) / (total as f64 / 1e9),
        // The figures are those of the small messages: in a bulk transfer, pieces also wait for the
        // receiver to make room, which would count as lateness.
        figures: before,
    })
}

impl Measured {
    /// The results in words.
    pub(crate) fn text(&self) -> String {
        let nominal = self.nominal.as_secs_f64() * 1e3;
        let line = |name: &str, l: &Latency, less: f64| {
            let q = |q| ms(l.quantile_ms(q) - less);
            format!(
                "{name}p50 {}, p90 {}, p99 {}, p99.9 {}, max {} ({} times)\n",
                q(0.5),
                q(0.9),
                q(0.99),
                q(0.999),
                ms(l.max_ms() - less),
                l.count()
            )
        };
        let mut text = line("round trip without the relay, ms:  ", &self.direct, 0.0);
        text += &line("round trip through the relay, ms:  ", &self.relayed, 0.0);
        text += &line(
            &format!("more than the {} ms asked for, ms: ", ms(nominal)),
            &self.relayed,
            nominal,
        );
        let _ = writeln!(
            text,
            "of that the relay's own, p50: {} ms",
            ms(self.relayed.quantile_ms(0.5) - nominal - self.direct.quantile_ms(0.5))
        );
        let l = &self.figures.lateness;
        text += &line("a piece later than due, ms:        ", l, 0.0);
        let _ = writeln!(
            text,
            "one bulk transfer: {}/s, {:.2} s of CPU a gigabyte; {} other connections were open",
            bytes(self.bandwidth),
            self.cpu_per_gb,
            self.idle
        );
        text
    }
}

//! The command line of `muniment bench relay …`.

use super::conditions::{Both, Conditions};
use super::language::{self, Line};
use super::measure::measure;
use super::{Control, Relay, Route};
use crate::commands::{self, Spec};
use crate::stdout::say;
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::stop;
use muniment_options::{Given, Group, HELP, Opt, Page, Takes};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The command `relay`.
pub(crate) const COMMAND: Spec = Spec {
    name: "relay",
    arguments: "--listen HOST:PORT --to HOST:PORT [OPTIONS]",
    about: "a network between processes: delay, bandwidth, loss and partitions",
    page,
    run: |given| Ok(commands::ended(run(&options(given)?))),
};

fn page() -> Page {
    Page {
        head: "\
Relays TCP connections between processes as a network would: with a delay, a bandwidth,
loss and partitions, which can be changed while it runs. No bytes are changed or lost.

Usage: muniment bench relay --listen HOST:PORT --to HOST:PORT [OPTIONS]
       muniment bench relay --measure [OPTIONS]

"
        .into(),
        groups: vec![
            Group::untitled(LINKS),
            Group::new("How the links are at first, as the lines below", CONDITIONS)
                .note("So that --delay '45 out @2' is about the way out of the second link.\n"),
            Group::new("The relay itself", &[MEASURE, CONNECTIONS, SEED, HELP]),
        ],
        foot: format!(
            "
While it runs it takes these lines from its standard input, and answers each:
{}
'out' is the way from who connects to --to. Ctrl-C ends it; it prints what it has done.
",
            language::HELP
        ),
        ..Page::default()
    }
}

const LINKS: &[Opt] = &[
    Opt::text(
        "listen",
        "HOST:PORT",
        "where to connect to; port 0 for a free one",
    ),
    Opt::text(
        "to",
        "HOST:PORT",
        "where that leads. Both several times: the first of one belongs to the first of the other",
    ),
    Opt::text(
        "control",
        "HOST:PORT",
        "take the lines below from connections to here too",
    ),
];

/// The options for the links' initial conditions. An option's name and value form a line of the
/// relay's language.
const CONDITIONS: &[Opt] = &[
    Opt::text("delay", "MS", "milliseconds one way"),
    Opt::text("jitter", "MS", "how much that varies, either way"),
    Opt::text("bandwidth", "MB", "megabytes a second"),
    Opt::text("loss", "PERCENT", "of segments"),
    Opt::text("timeout", "MS", "of a retransmission"),
    Opt::flag(
        "refuse",
        "new connections are refused during a partition (default: they hang)",
    ),
];

const MEASURE: Opt = Opt::flag(
    "measure",
    "measure the relay itself instead, under these conditions",
);
const CONNECTIONS: Opt = Opt::new(
    "connections",
    "N",
    Takes::Whole(0, 100_000),
    "other connections that are open meanwhile (0)",
);
const SEED: Opt = Opt::new(
    "seed",
    "N",
    Takes::Whole(0, u64::MAX),
    "where random numbers come from (1)",
);

/// The parsed command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Options {
    listen: Vec<SocketAddr>,
    to: Vec<SocketAddr>,
    /// The lines that set the initial conditions.
    lines: Vec<String>,
    control: Option<SocketAddr>,
    seed: u64,
    measure: bool,
    idle: usize,
}

/// Understands the arguments.
///
/// # Errors
/// A value makes no sense, or options contradict each other.
fn options(given: &Given) -> Result<Options> {
    let addresses =
        |name| -> Result<Vec<SocketAddr>> { given.texts(name).map(|v| address(name, v)).collect() };
    let mut o = Options {
        listen: addresses("listen")?,
        to: addresses("to")?,
        lines: Vec::new(),
        control: addresses("control")?.pop(),
        seed: given.whole("seed").unwrap_or(1),
        measure: given.has("measure"),
        idle: given.whole("connections").unwrap_or(0) as usize,
    };
    for (name, value) in given.options() {
        if CONDITIONS.iter().any(|c| c.name == name) {
            let line = format!("{name} {value}").trim_end().to_string();
            language::parse(&line).map_err(|e| e.while_doing(&format!("--{name}")))?;
            o.lines.push(line);
        }
    }
    agree(&o, given.has("connections"))?;
    Ok(o)
}

/// Refuses options that contradict each other.
fn agree(o: &Options, connections: bool) -> Result<()> {
    let links = o.listen.len() + o.to.len() + usize::from(o.control.is_some());
    if o.measure && links > 0 {
        return Err(Failure::new(
            "--measure measures a link of its own: --listen, --to and --control do not belong to it",
        ));
    }
    if connections && !o.measure {
        return Err(Failure::new("--connections belongs to --measure"));
    }
    if !o.measure && (o.listen.is_empty() || o.listen.len() != o.to.len()) {
        return Err(Failure::new(
            "--listen and --to are needed, each as often as the other",
        ));
    }
    let known = if o.measure { 1 } else { o.listen.len() };
    for line in &o.lines {
        if let Line::Change(Some(n), ..) = language::parse(line)?
            && n >= known
        {
            return Err(Failure(format!("--{line}: there are {known} links")));
        }
    }
    Ok(())
}

fn address(name: &str, v: &str) -> Result<SocketAddr> {
    let found = v.to_socket_addrs();
    let mut found = found.context(&format!("--{name} {v}: it must be HOST:PORT"))?;
    found
        .next()
        .ok_or_else(|| Failure(format!("--{name} {v}: the name has no address")))
}

/// Runs the relay until it is asked to end.
///
/// # Errors
/// An address cannot be used.
pub(crate) fn run(o: &Options) -> Result<()> {
    stop::install();
    many_files();
    if o.measure {
        say(&measure(conditions(&o.lines)?, o.idle, o.seed)?.text());
        return Ok(());
    }
    let routes: Vec<Route> = o
        .listen
        .iter()
        .zip(&o.to)
        .map(|(listen, to)| Route {
            listen: *listen,
            to: *to,
            conditions: Both::default(),
            refuse: false,
        })
        .collect();
    let relay = Relay::start(&routes, o.seed)?;
    for line in &o.lines {
        language::obey(relay.control(), line)?;
    }
    for ((i, link), to) in relay.links().iter().enumerate().zip(&o.to) {
        say(&format!("@{}: {} leads to {to}\n", i + 1, link.address()));
    }
    let over = Arc::new(AtomicBool::new(false));
    if let Some(at) = o.control {
        let listener = TcpListener::bind(at).context(&format!("listening at {at}"))?;
        let at = listener.local_addr().context("listening")?;
        say(&format!("control: {at}\n"));
        let (control, over) = (relay.control().clone(), over.clone());
        // This thread is never joined: the process ends without waiting for control connections
        // that say nothing.
        std::thread::spawn(move || {
            for s in listener.incoming().flatten() {
                let (control, over) = (control.clone(), over.clone());
                std::thread::spawn(move || told_by(s, &control, &over));
            }
        });
    }
    let (control, told) = (relay.control().clone(), over.clone());
    std::thread::spawn(move || {
        let stdin = std::io::stdin().lock();
        told_in(stdin, &control, &told, &mut |answer| {
            say(answer);
            Ok(())
        })
    });
    while !stop::asked() && !over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
    }
    say(&language::figures(&relay.control().figures()?));
    Ok(())
}

/// The conditions that a link has after these lines.
fn conditions(lines: &[String]) -> Result<Both<Conditions>> {
    let mut all: Both<Conditions> = Both::default();
    for line in lines {
        if let Line::Change(_, direction, what) = language::parse(line)? {
            for d in super::conditions::Direction::ALL {
                if direction.is_none_or(|only| only == d) {
                    all.of_mut(d).change(what);
                }
            }
        }
    }
    Ok(all)
}

fn told_by(s: TcpStream, control: &Control, over: &AtomicBool) -> std::io::Result<()> {
    let mut to = s.try_clone()?;
    told_in(BufReader::new(s), control, over, &mut |answer| {
        to.write_all(answer.as_bytes())
    })
}

/// Obeys lines until they end, and answers each.
fn told_in(
    lines: impl BufRead,
    control: &Control,
    over: &AtomicBool,
    answer: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> std::io::Result<()> {
    for line in lines.lines() {
        let line = line?;
        match language::obey(control, &line) {
            Ok(Some(text)) => answer(&text)?,
            Ok(None) => {
                over.store(true, Ordering::Release);
                return Ok(());
            }
            Err(e) => answer(&format!("error: {e}\n"))?,
        }
    }
    Ok(())
}

/// Raises the limit of open files as far as the system allows, because each connection needs two.
fn many_files() {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the relay still runs and reports when files run out.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(args: &[&str]) -> Result<Options> {
        options(&page().parse(args.iter().map(Into::into))?)
    }

    #[test]
    fn what_is_understood() {
        let two = [
            "--listen",
            "127.0.0.1:0",
            "--to",
            "127.0.0.1:1",
            "--listen",
            "127.0.0.1:2",
            "--to",
            "127.0.0.1:3",
            "--delay",
            "45",
            "--loss",
            "1 out @2",
            "--refuse",
            "--seed",
            "9",
        ];
        let o = parsed(&two).unwrap();
        assert_eq!((o.listen.len(), o.to.len(), o.seed), (2, 2, 9));
        assert_eq!(o.lines, ["delay 45", "loss 1 out @2", "refuse"]);
        let o = parsed(&["--measure", "--delay", "45", "--connections", "1000"]);
        assert_eq!(o.unwrap().idle, 1000);
        let one_way = conditions(&["delay 5".into(), "delay 7 in".into()]).unwrap();
        let ms = Duration::from_millis;
        assert_eq!((one_way.out.delay, one_way.back.delay), (ms(5), ms(7)));
    }

    #[test]
    fn what_is_refused_and_why() {
        let pair = ["--listen", "127.0.0.1:0", "--to", "127.0.0.1:1"];
        for (args, why) in [
            (&[][..], "--listen and --to are needed"),
            (&pair[..2], "each as often"),
            (&["--listen", "here"], "must be HOST:PORT"),
            (&["--delay", "soon"], "--delay: 'delay soon': it must be"),
            (&["--measure", "--to", "127.0.0.1:1"], "a link of its own"),
            (&["--measure", "--delay", "1 @2"], "there are 1 links"),
            (&["--connections", "5"], "belongs to --measure"),
            (
                &["--seed", "x"],
                "--seed x: it must be a whole number from 0",
            ),
            (&["--fast"], "no option '--fast'"),
            (&["x"], "unexpected argument"),
        ] {
            let e = parsed(args).unwrap_err().0;
            assert!(e.contains(why), "{args:?}: {e}");
        }
    }
}

//! `muniment bench relay …`.

use super::conditions::{Both, Conditions};
use super::language::{self, Line};
use super::measure::measure;
use super::{Control, Relay, Route};
use crate::commands::{self, Spec};
use crate::fail::{Context, Failure, Result};
use crate::stdout::say;
use crate::stop;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The command.
pub const COMMAND: Spec = Spec {
    name: "relay",
    arguments: "--listen HOST:PORT --to HOST:PORT [OPTIONS]",
    about: "a network between processes: delay, bandwidth, loss and partitions",
    run: |args| match parse(args) {
        Ok(Some(o)) => commands::ended(run(&o)),
        Ok(None) => {
            say(&help());
            ExitCode::SUCCESS
        }
        Err(e) => commands::misused("relay", &e),
    },
};

fn help() -> String {
    format!(
        "\
Relays TCP connections between processes as a network would: with a delay, a bandwidth,
loss and partitions, which can be changed while it runs. No bytes are changed or lost.

Usage: muniment bench relay --listen HOST:PORT --to HOST:PORT [OPTIONS]
       muniment bench relay --measure [OPTIONS]

  --listen HOST:PORT  where to connect to; port 0 for a free one
  --to HOST:PORT      where that leads. Both several times: the first of one belongs to the
                      first of the other
  --delay MS, --jitter MS, --bandwidth MB, --loss PERCENT, --timeout MS
                      how the links are at first: as the lines below, so that
                      --delay '45 out @2' is about the way out of the second link
  --refuse            new connections are refused during a partition (default: they hang)
  --control HOST:PORT take the lines below from connections to here too
  --seed N            where random numbers come from (1)
  --measure           measure the relay itself instead, under these conditions
  --connections N     other connections that are open meanwhile (0)
  -h, --help          this text

While it runs it takes these lines from its standard input, and answers each:
{}
'out' is the way from who connects to --to. Ctrl-C ends it; it prints what it has done.
",
        language::HELP
    )
}

/// What was asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    listen: Vec<SocketAddr>,
    to: Vec<SocketAddr>,
    /// What it is told at first.
    lines: Vec<String>,
    control: Option<SocketAddr>,
    seed: u64,
    measure: bool,
    idle: usize,
}

/// Understands the arguments behind `relay`; `None` asks for help.
///
/// # Errors
/// An option that there is not, a value that makes no sense.
pub fn parse(args: Vec<OsString>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let said = |e: lexopt::Error| Failure(e.to_string());
    let mut o = Options {
        seed: 1,
        ..Options::default()
    };
    let mut connections = None;
    let mut p = lexopt::Parser::from_args(args);
    while let Some(arg) = p.next().map_err(said)? {
        let name = match &arg {
            Short('h') | Long("help") => return Ok(None),
            Long(name) => (*name).to_string(),
            _ => return Err(said(arg.unexpected())),
        };
        match name.as_str() {
            "measure" => o.measure = true,
            "refuse" => o.lines.push("refuse".into()),
            "listen" | "to" | "control" | "delay" | "jitter" | "bandwidth" | "loss" | "timeout"
            | "seed" | "connections" => {
                let v = p.value().map_err(said)?.into_string().map_err(|v| {
                    Failure(format!("--{name} {} is not UTF-8", v.to_string_lossy()))
                })?;
                let number = |most: u64| {
                    let n = v.parse().ok().filter(|n| *n <= most);
                    n.ok_or_else(|| Failure(format!("--{name} {v}: it must be 0 to {most}")))
                };
                match name.as_str() {
                    "listen" => o.listen.push(address(&name, &v)?),
                    "to" => o.to.push(address(&name, &v)?),
                    "control" => o.control = Some(address(&name, &v)?),
                    "seed" => o.seed = number(u64::MAX)?,
                    "connections" => connections = Some(number(100_000)? as usize),
                    _ => {
                        let line = format!("{name} {v}");
                        language::parse(&line).map_err(|e| e.while_doing(&format!("--{name}")))?;
                        o.lines.push(line);
                    }
                }
            }
            _ => return Err(Failure(format!("there is no option --{name}"))),
        }
    }
    let links = o.listen.len() + o.to.len() + usize::from(o.control.is_some());
    if o.measure && links > 0 {
        return Err(Failure::new(
            "--measure measures a link of its own: --listen, --to and --control do not belong to it",
        ));
    }
    if connections.is_some() && !o.measure {
        return Err(Failure::new("--connections belongs to --measure"));
    }
    o.idle = connections.unwrap_or(0);
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
    Ok(Some(o))
}

fn address(name: &str, v: &str) -> Result<SocketAddr> {
    let found = v.to_socket_addrs();
    let mut found = found.context(&format!("--{name} {v}: it must be HOST:PORT"))?;
    found
        .next()
        .ok_or_else(|| Failure(format!("--{name} {v}: the name has no address")))
}

/// Runs it until it is asked to end.
///
/// # Errors
/// An address that is not to be had.
pub fn run(o: &Options) -> Result<()> {
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
        // The process ends without waiting for those who say nothing.
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

/// How a link is of which these lines are said.
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

/// Does what the lines say, to the end of them.
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

/// As many connections as the system allows: each needs two files.
fn many_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it stays as it is, the relay says when there were too few.
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

    fn parsed(args: &[&str]) -> Result<Option<Options>> {
        parse(args.iter().map(OsString::from).collect())
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
        let o = parsed(&two).unwrap().unwrap();
        assert_eq!((o.listen.len(), o.to.len(), o.seed), (2, 2, 9));
        assert_eq!(o.lines, ["delay 45", "loss 1 out @2", "refuse"]);
        let o = parsed(&["--measure", "--delay", "45", "--connections", "1000"]);
        assert_eq!(o.unwrap().unwrap().idle, 1000);
        assert!(parsed(&["-h"]).unwrap().is_none());
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
            (&["--seed", "x"], "--seed x: it must be 0"),
            (&["--fast"], "no option --fast"),
            (&["x"], "unexpected argument"),
        ] {
            let e = parsed(args).unwrap_err().0;
            assert!(e.contains(why), "{args:?}: {e}");
        }
    }

    #[test]
    fn help_names_every_option() {
        let help = help();
        for o in [
            "listen",
            "to",
            "delay",
            "jitter",
            "bandwidth",
            "loss",
            "timeout",
            "refuse",
            "control",
            "seed",
            "measure",
            "connections",
        ] {
            assert!(help.contains(&format!("--{o} ")), "{o}");
        }
    }
}

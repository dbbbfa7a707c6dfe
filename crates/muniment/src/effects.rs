//! What an option of the table is, and the effects that take more than one line.
//!
//! Invariant: the errors say what is wrong with the value; the code that applies an option adds the option's
//! name.

use crate::gathered::{Arg, Gathered};
use muniment_options::{Offers, Opt as Flag, Takes};
use muniment_server::{ClusterRole, NEGOTIABLE};
use muniment_storage::EngineKind;
use muniment_value::ValueBuf;

pub(crate) type Apply = fn(&mut Gathered, &str) -> Result<(), String>;

/// The effect of an option's value.
pub enum Does {
    /// It sets something.
    Sets(Apply),
    /// It changes nothing here, for this reason. The log reports that in one line, unless the value is one of
    /// these, which ask for what is the case anyway.
    Nothing(&'static str, &'static [&'static str]),
    /// Only these values are accepted, for this reason; any other is an error.
    Only(&'static [&'static str], &'static str),
}

/// One option.
pub struct Opt {
    /// The option's form on the command line, and one line for people. It has no name if the option is only
    /// for the file.
    pub flag: Flag,
    /// Its key in the configuration file; empty if it is only a flag.
    pub path: &'static str,
    /// The kind of its value.
    pub arg: Arg,
    /// The effect of its value.
    pub does: Does,
    /// Its value is a password, which is not shown.
    pub secret: bool,
}

impl Opt {
    pub(crate) const fn new(
        name: &'static str,
        path: &'static str,
        arg: Arg,
        doc: &'static str,
        does: Does,
    ) -> Opt {
        let flag = match arg {
            Arg::Flag => Flag::flag(name, doc),
            Arg::Text => Flag::text(name, "arg", doc),
            Arg::Number => Flag::text(name, "number", doc),
        };
        Opt {
            flag,
            path,
            arg,
            does,
            secret: false,
        }
    }

    /// The same option, whose value is a password.
    pub(crate) const fn secret(self) -> Opt {
        Opt {
            secret: true,
            ..self
        }
    }

    /// The same option with a letter as its short form.
    pub(crate) const fn letter(self, letter: char) -> Opt {
        let flag = self.flag.letter(letter);
        Opt { flag, ..self }
    }

    /// The same option, which may be given several times.
    pub(crate) const fn several(self) -> Opt {
        let flag = self.flag.several();
        Opt { flag, ..self }
    }

    /// The same option, whose value may be left out, and whose letter may be repeated.
    pub(crate) const fn repeats(self, is_value: fn(&str) -> bool) -> Opt {
        let flag = Flag {
            takes: Takes::Repeats(is_value),
            ..self.flag
        };
        Opt { flag, ..self }
    }

    /// The same; its value is a file or a directory.
    pub(crate) const fn files(self) -> Opt {
        self.offers(Offers::Files)
    }

    /// The same; its value is one of these words, or another way to say one of them.
    pub(crate) const fn words(self, words: &'static [&'static str]) -> Opt {
        self.offers(Offers::Words(words))
    }

    pub(crate) const fn offers(self, offers: Offers) -> Opt {
        let flag = self.flag.offers(offers);
        Opt { flag, ..self }
    }

    /// The place at which getCmdLineOpts shows it: its key in the file, or its flag.
    pub fn place(&self) -> &'static str {
        match self.path {
            "" => self.flag.name,
            path => path,
        }
    }
}

/// An option that sets something.
pub(crate) const fn opt(
    flag: &'static str,
    path: &'static str,
    arg: Arg,
    doc: &'static str,
    apply: Apply,
) -> Opt {
    Opt::new(flag, path, arg, doc, Does::Sets(apply))
}

/// An option that changes nothing.
pub(crate) const fn idle(
    flag: &'static str,
    path: &'static str,
    arg: Arg,
    why: &'static str,
    so_anyway: &'static [&'static str],
) -> Opt {
    Opt::new(flag, path, arg, why, Does::Nothing(why, so_anyway))
}

/// An option with only a few accepted values.
pub(crate) const fn only(
    flag: &'static str,
    path: &'static str,
    arg: Arg,
    values: &'static [&'static str],
    why: &'static str,
) -> Opt {
    Opt::new(flag, path, arg, why, Does::Only(values, why)).words(values)
}

/// Parses a number between two others.
///
/// # Errors
/// A message for people.
pub fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    min: T,
    max: T,
) -> Result<T, String> {
    match text.parse::<T>() {
        Ok(n) if n >= min && n <= max => Ok(n),
        _ => Err(format!("'{text}' is not a number between {min} and {max}")),
    }
}

/// Sets the size of the cache, in GB.
pub fn cache(g: &mut Gathered, text: &str) -> Result<(), String> {
    let gb = number(text, 0.000_1, 65_536.0)?;
    g.server.cache_bytes = Some((gb * (1_u64 << 30) as f64) as u64);
    Ok(())
}

/// Whether a flag is on.
pub fn yes(text: &str) -> bool {
    text == "true"
}

/// Sets the name of the replica set.
pub fn replica_set(g: &mut Gathered, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("wants the name of a replica set".to_string());
    }
    // MongoDB also accepts NAME/SEED,….
    if text.contains('/') {
        return Err(format!("'{text}': a list of seeds is not supported"));
    }
    g.server.replica_set = Some(text.to_string());
    Ok(())
}

/// Sets the part in a cluster of shards.
pub fn cluster_role(g: &mut Gathered, text: &str) -> Result<(), String> {
    let (role, port) = match text {
        "" | "none" | "off" | "false" | "disabled" => return Ok(()),
        "shardsvr" => (ClusterRole::Shard, 27018),
        "configsvr" => (ClusterRole::Config, 27019),
        other => return Err(format!("'{other}' is neither shardsvr nor configsvr")),
    };
    if ![ClusterRole::None, role.clone()].contains(&g.server.role) {
        return Err("a server is a shard, or of the configuration, or a router".to_string());
    }
    if !g.port_asked {
        g.server.port = port;
    }
    g.server.role = role;
    Ok(())
}

/// Sets the size of the oplog, in MB.
pub fn oplog_size(g: &mut Gathered, text: &str) -> Result<(), String> {
    g.server.oplog_bytes = Some(number::<u64>(text, 1, 1 << 30)? << 20);
    Ok(())
}

/// Sets the addresses to listen on.
pub fn addresses(g: &mut Gathered, text: &str) -> Result<(), String> {
    g.server.bind_ip = text
        .split(',')
        .map(|s| s.trim().to_string())
        .filter(|s| !s.is_empty())
        .collect();
    match g.server.bind_ip.is_empty() {
        true => Err("names no address".to_string()),
        false => Ok(()),
    }
}

/// Listens on all addresses.
pub fn all_addresses(g: &mut Gathered, text: &str) -> Result<(), String> {
    g.all_addresses = yes(text);
    if g.all_addresses {
        g.note("net.bindIp", ValueBuf::new("*"));
    }
    Ok(())
}

/// Sets the storage engine, by MongoDB's names or Muniment's own.
pub fn engine(g: &mut Gathered, text: &str) -> Result<(), String> {
    let kind = match text {
        "wiredTiger" | "lsm" => EngineKind::Lsm,
        "inMemory" | "ephemeralForTest" | "memory" => EngineKind::Memory,
        _ => {
            return Err(format!(
                "'{text}' is not supported; the storage engines are wiredTiger (also lsm: files) and \
                 inMemory (also memory, ephemeralForTest)"
            ));
        }
    };
    g.server.engine = kind;
    g.note("storage.engine", ValueBuf::new(kind.mongodb_name()));
    if text == "wiredTiger" {
        g.tell(
            "storage.engine",
            text,
            "Muniment's own durable engine does its work; the files are not WiredTiger's",
        );
    }
    Ok(())
}

/// Sets the compressors that clients may choose from.
pub fn compressors(g: &mut Gathered, text: &str) -> Result<(), String> {
    if text == "disabled" {
        g.server.compressors.clear();
        return Ok(());
    }
    let mut names = Vec::new();
    for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        let known = NEGOTIABLE.iter().find(|c| c.name() == name);
        let known = known.ok_or_else(|| {
            format!("'{name}' is not supported; there are snappy, zstd, zlib, or disabled alone")
        })?;
        names.push(*known);
    }
    if names.is_empty() {
        return Err("names no compressor".to_string());
    }
    g.server.compressors = names;
    Ok(())
}

/// Sets the profiling level of all databases, by its number or its name.
pub fn profile(g: &mut Gathered, text: &str) -> Result<(), String> {
    const MODES: [&str; 3] = ["off", "slowOp", "all"];
    let level = match MODES.iter().position(|m| *m == text) {
        Some(level) => level as i32,
        None => number(text, 0, 2).map_err(|_| {
            format!("'{text}' is not supported; there are 0 (off), 1 (slowOp) and 2 (all)")
        })?,
    };
    g.server.profile_level = level;
    let mode = MODES.get(level as usize).copied().unwrap_or_default();
    g.note("operationProfiling.mode", ValueBuf::new(mode));
    Ok(())
}

/// Sets the destination of the log.
pub fn destination(g: &mut Gathered, text: &str) -> Result<(), String> {
    match text {
        "file" => g.to_syslog = false,
        "syslog" => g.to_syslog = true,
        _ => {
            return Err(format!(
                "'{text}' is not supported; there are file and syslog"
            ));
        }
    }
    g.destination_asked = true;
    Ok(())
}

/// Checks the setting for the journal, which always exists.
pub fn journal(g: &mut Gathered, text: &str) -> Result<(), String> {
    match yes(text) {
        true => {
            g.note("storage.journal.enabled", ValueBuf::new(true));
            Ok(())
        }
        false => Err("the journal cannot be switched off: the log is the database".to_string()),
    }
}

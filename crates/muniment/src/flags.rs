//! The server's options: one table for flags, configuration file and getCmdLineOpts.
//!
//! Invariant: an option that is not in the table is an error, and so is one that the table
//! knows but the server does not support.

use muniment_server::{LogTarget, ServerOptions};
use muniment_storage::EngineKind;
use muniment_value::{DocBuf, ValueBuf};
use std::path::PathBuf;
use std::time::Duration;

/// Options as they are gathered from file and flags.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// For the server.
    pub server: ServerOptions,
    /// `--fork`.
    pub fork: bool,
    /// `--logpath`.
    pub log_path: Option<PathBuf>,
    /// `--logappend`.
    pub log_append: bool,
    /// `--unixSocketPrefix` was given.
    pub socket_asked: bool,
    /// Configuration path and value, in the order given.
    settings: Vec<(String, ValueBuf)>,
}

/// What an option's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// None on the command line; a boolean in the file.
    Flag,
    /// Text.
    Text,
    /// A number.
    Number,
}

/// One option.
pub struct Opt {
    /// The flag without its dashes; empty for options of the file only.
    pub flag: &'static str,
    /// Its place in the configuration file; empty for flags only.
    pub path: &'static str,
    /// What its value is.
    pub arg: Arg,
    /// One line for people.
    pub doc: &'static str,
    apply: fn(&mut Gathered, &str) -> Result<(), String>,
}

const fn opt(
    flag: &'static str,
    path: &'static str,
    arg: Arg,
    doc: &'static str,
    apply: fn(&mut Gathered, &str) -> Result<(), String>,
) -> Opt {
    Opt {
        flag,
        path,
        arg,
        doc,
        apply,
    }
}

fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    min: T,
    max: T,
) -> Result<T, String> {
    match text.parse::<T>() {
        Ok(n) if n >= min && n <= max => Ok(n),
        _ => Err(format!("'{text}' is not a number between {min} and {max}")),
    }
}

fn cache(g: &mut Gathered, text: &str) -> Result<(), String> {
    let gb = number(text, 0.000_1, 65_536.0)?;
    g.server.cache_bytes = Some((gb * (1_u64 << 30) as f64) as u64);
    Ok(())
}

fn yes(text: &str) -> bool {
    text == "true"
}

/// Refuses an option that needs what is not there yet.
fn not_yet(_: &mut Gathered, text: &str) -> Result<(), String> {
    if text == "false" || text == "disabled" || text == "none" {
        return Ok(());
    }
    Err("is not supported yet".to_string())
}

fn replica_set(g: &mut Gathered, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("wants the name of a replica set".to_string());
    }
    // MongoDB takes NAME/SEED,…, too.
    if text.contains('/') {
        return Err(format!("'{text}': a list of seeds is not supported"));
    }
    g.server.replica_set = Some(text.to_string());
    Ok(())
}

fn oplog_size(g: &mut Gathered, text: &str) -> Result<(), String> {
    g.server.oplog_bytes = Some(number::<u64>(text, 1, 1 << 30)? << 20);
    Ok(())
}

/// All options, in the order of `--help`.
pub const ALL: &[Opt] = &[
    opt(
        "dbpath",
        "storage.dbPath",
        Arg::Text,
        "directory for the data (muniment serve: ./muniment-data; mongod: /data/db)",
        |g, v| {
            g.server.dbpath = PathBuf::from(v);
            Ok(())
        },
    ),
    opt(
        "port",
        "net.port",
        Arg::Number,
        "TCP port (27017); 0 takes a free one",
        |g, v| {
            g.server.port = number(v, 0, u16::MAX)?;
            Ok(())
        },
    ),
    opt(
        "bind_ip",
        "net.bindIp",
        Arg::Text,
        "comma-separated addresses or socket paths to listen on (127.0.0.1)",
        |g, v| {
            g.server.bind_ip = v
                .split(',')
                .map(|s| s.trim().to_string())
                .filter(|s| !s.is_empty())
                .collect();
            if g.server.bind_ip.is_empty() {
                Err("names no address".to_string())
            } else {
                Ok(())
            }
        },
    ),
    opt(
        "bind_ip_all",
        "net.bindIpAll",
        Arg::Flag,
        "listen on all addresses",
        |g, v| {
            if yes(v) {
                g.server.bind_ip = vec!["0.0.0.0".to_string()];
            }
            Ok(())
        },
    ),
    opt(
        "ipv6",
        "net.ipv6",
        Arg::Flag,
        "also listen on IPv6 addresses",
        |g, v| {
            g.server.ipv6 = yes(v);
            Ok(())
        },
    ),
    opt(
        "maxConns",
        "net.maxIncomingConnections",
        Arg::Number,
        "most connections at a time (65536, bounded by the limit of open files)",
        |g, v| {
            g.server.max_conns = number(v, 5, 1_000_000)?;
            Ok(())
        },
    ),
    opt(
        "unixSocketPrefix",
        "net.unixDomainSocket.pathPrefix",
        Arg::Text,
        "directory of the Unix socket mongodb-PORT.sock (/tmp)",
        |g, v| {
            g.server.unix_socket_prefix = Some(PathBuf::from(v));
            g.socket_asked = true;
            Ok(())
        },
    ),
    opt("nounixsocket", "", Arg::Flag, "no Unix socket", |g, _| {
        g.server.unix_socket_prefix = None;
        Ok(())
    }),
    opt(
        "",
        "net.unixDomainSocket.enabled",
        Arg::Flag,
        "whether there is a Unix socket",
        |g, v| {
            if !yes(v) {
                g.server.unix_socket_prefix = None;
            }
            Ok(())
        },
    ),
    opt(
        "config",
        "",
        Arg::Text,
        "configuration file (YAML, mongod's names)",
        |_, _| Ok(()),
    ),
    opt(
        "logpath",
        "systemLog.path",
        Arg::Text,
        "log to this file instead of standard output",
        |g, v| {
            g.log_path = Some(PathBuf::from(v));
            Ok(())
        },
    ),
    opt(
        "logappend",
        "systemLog.logAppend",
        Arg::Flag,
        "keep what is in the log file",
        |g, v| {
            g.log_append = yes(v);
            Ok(())
        },
    ),
    opt("", "systemLog.destination", Arg::Text, "file", |_, v| {
        if v == "file" {
            Ok(())
        } else {
            Err(format!("'{v}' is not supported; only file is"))
        }
    }),
    opt(
        "verbose",
        "systemLog.verbosity",
        Arg::Number,
        "verbosity of the log, 0-5 (also -v … -vvvvv)",
        |g, v| {
            g.server.verbosity = number(v, 0, 5)?;
            Ok(())
        },
    ),
    opt(
        "quiet",
        "systemLog.quiet",
        Arg::Flag,
        "leave connections out of the log",
        |g, v| {
            g.server.quiet = yes(v);
            Ok(())
        },
    ),
    opt(
        "noscripting",
        "",
        Arg::Flag,
        "no functions in JavaScript ($where, $function, $accumulator, mapReduce)",
        |g, v| {
            g.server.javascript = !yes(v);
            Ok(())
        },
    ),
    opt(
        "",
        "security.javascriptEnabled",
        Arg::Flag,
        "whether functions in JavaScript may run",
        |g, v| {
            g.server.javascript = yes(v);
            Ok(())
        },
    ),
    opt(
        "slowms",
        "operationProfiling.slowOpThresholdMs",
        Arg::Number,
        "log operations slower than this (100)",
        |g, v| {
            g.server.slow_ms = number(v, -1, i64::MAX / 2000)?;
            Ok(())
        },
    ),
    opt(
        "fork",
        "processManagement.fork",
        Arg::Flag,
        "run in the background once the server answers; needs --logpath",
        |g, v| {
            g.fork = yes(v);
            Ok(())
        },
    ),
    opt(
        "pidfilepath",
        "processManagement.pidFilePath",
        Arg::Text,
        "write the process id into this file",
        |g, v| {
            g.server.pid_file = Some(PathBuf::from(v));
            Ok(())
        },
    ),
    opt(
        "portFile",
        "",
        Arg::Text,
        "write the port into this file once the server answers",
        |g, v| {
            g.server.port_file = Some(PathBuf::from(v));
            Ok(())
        },
    ),
    opt(
        "cacheSizeGB",
        "",
        Arg::Number,
        "cache of the storage (a quarter of the memory there is)",
        cache,
    ),
    opt(
        "wiredTigerCacheSizeGB",
        "storage.wiredTiger.engineConfig.cacheSizeGB",
        Arg::Number,
        "the same as --cacheSizeGB",
        cache,
    ),
    opt(
        "journalCommitInterval",
        "storage.journal.commitIntervalMs",
        Arg::Number,
        "milliseconds between flushes of the journal, 1-500 (100)",
        |g, v| {
            g.server.journal_commit_interval = Duration::from_millis(number(v, 1, 500)?);
            Ok(())
        },
    ),
    opt(
        "acceptDataLoss",
        "",
        Arg::Flag,
        "start although the journal is damaged in its middle: cut it there",
        |g, v| {
            g.server.accept_data_loss = yes(v);
            Ok(())
        },
    ),
    opt(
        "storageEngine",
        "storage.engine",
        Arg::Text,
        "lsm (files), or memory: nothing survives the process (lsm)",
        |g, v| {
            let known = EngineKind::ALL.iter().find(|(name, _)| *name == v);
            let (_, kind) = known.ok_or_else(|| {
                format!("'{v}' is not supported; the storage engines are lsm and memory")
            })?;
            g.server.engine = *kind;
            Ok(())
        },
    ),
    opt(
        "setParameter",
        "",
        Arg::Text,
        "NAME=VALUE: sets a server parameter",
        |g, v| {
            let (name, value) = v.split_once('=').ok_or("wants NAME=VALUE")?;
            g.server
                .parameters
                .push((name.to_string(), value.to_string()));
            Ok(())
        },
    ),
    opt(
        "noauth",
        "",
        Arg::Flag,
        "clients need not authenticate (the only way so far)",
        |_, _| Ok(()),
    ),
    opt("auth", "", Arg::Flag, "not supported yet", not_yet),
    opt(
        "",
        "security.authorization",
        Arg::Text,
        "only disabled",
        not_yet,
    ),
    opt(
        "keyFile",
        "security.keyFile",
        Arg::Text,
        "keys by which the set's members know each other; clients are asked for none (yet)",
        |g, v| {
            g.server.key_file = Some(PathBuf::from(v));
            Ok(())
        },
    ),
    opt(
        "replSet",
        "replication.replSet",
        Arg::Text,
        "name of the replica set that the server is a member of",
        replica_set,
    ),
    opt(
        "",
        "replication.replSetName",
        Arg::Text,
        "the same as --replSet",
        replica_set,
    ),
    opt(
        "",
        "replSet.name",
        Arg::Text,
        "the same as --replSet",
        replica_set,
    ),
    opt(
        "autoInitiate",
        "replSet.autoInitiate",
        Arg::Flag,
        "initiate the replica set with this server as its only member; needs --replSet",
        |g, v| {
            g.server.auto_initiate = yes(v);
            Ok(())
        },
    ),
    opt(
        "oplogSize",
        "replication.oplogSizeMB",
        Arg::Number,
        "MB of the oplog that are kept (of a set: 5 % of the free disk, 990 to 51200; else 256)",
        oplog_size,
    ),
    opt(
        "oplogSizeMB",
        "",
        Arg::Number,
        "the same as --oplogSize",
        oplog_size,
    ),
    opt(
        "oplogMinRetentionHours",
        "storage.oplogMinRetentionHours",
        Arg::Number,
        "hours for which the oplog is kept, whatever its size (0)",
        |g, v| {
            let hours = number(v, 0.0, 1e9)?;
            g.server.oplog_min_retention = Some(Duration::from_secs_f64(hours * 3600.0));
            Ok(())
        },
    ),
    opt("shardsvr", "", Arg::Flag, "not supported yet", not_yet),
    opt("configsvr", "", Arg::Flag, "not supported yet", not_yet),
    opt(
        "",
        "sharding.clusterRole",
        Arg::Text,
        "not supported yet",
        not_yet,
    ),
    opt(
        "tlsMode",
        "net.tls.mode",
        Arg::Text,
        "not supported yet",
        not_yet,
    ),
];

impl Gathered {
    /// Applies a flag.
    ///
    /// # Errors
    /// A message for people that names the flag.
    pub fn apply_flag(&mut self, o: &Opt, value: &str) -> Result<(), String> {
        (o.apply)(self, value).map_err(|e| format!("--{} {e}", o.flag))?;
        if o.flag == "setParameter" {
            if let Some((name, value)) = value.split_once('=') {
                self.note(&format!("setParameter.{name}"), ValueBuf::new(value));
            }
        } else {
            let path = if o.path.is_empty() { o.flag } else { o.path };
            self.note(path, typed(o.arg, value));
        }
        Ok(())
    }

    /// Applies a line of the configuration file.
    ///
    /// # Errors
    /// A message for people that names the key.
    pub fn apply_key(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(name) = key.strip_prefix("setParameter.") {
            self.server
                .parameters
                .push((name.to_string(), value.to_string()));
            self.note(key, ValueBuf::new(value));
            return Ok(());
        }
        let o = ALL
            .iter()
            .find(|o| o.path == key && !key.is_empty())
            .ok_or_else(|| format!("Unrecognized option: {key}"))?;
        (o.apply)(self, value).map_err(|e| format!("{key}: {e}"))?;
        self.note(key, typed(o.arg, value));
        Ok(())
    }

    fn note(&mut self, path: &str, value: ValueBuf) {
        self.settings.retain(|(p, _)| p != path);
        self.settings.push((path.to_string(), value));
    }

    /// Notes the configuration file itself.
    pub fn note_config(&mut self, path: &str) {
        self.note("config", ValueBuf::new(path));
    }

    /// The server's options.
    ///
    /// # Errors
    /// Flags that contradict each other.
    pub fn finish(mut self, argv: Vec<String>) -> Result<(ServerOptions, bool), String> {
        if self.fork && self.log_path.is_none() {
            return Err("--fork has to be used with --logpath".to_string());
        }
        if let Some(path) = self.log_path.take() {
            self.server.log = LogTarget::File {
                path,
                append: self.log_append,
            };
        } else if self.log_append {
            return Err("--logappend has to be used with --logpath".to_string());
        }
        if self.server.auto_initiate && self.server.replica_set.is_none() {
            return Err("--autoInitiate has to be used with --replSet".to_string());
        }
        if self.server.key_file.is_some() && self.server.replica_set.is_none() {
            return Err(
                "--keyFile has to be used with --replSet: it is what members know each other \
                        by, and clients are not asked for credentials"
                    .to_string(),
            );
        }
        // Listening on :: takes IPv4 as well.
        if self.server.ipv6 && self.server.bind_ip == ["0.0.0.0"] {
            self.server.bind_ip = vec!["::".to_string()];
        }
        // A free port is for tests: no file with its number is left in /tmp.
        if self.server.port == 0 && !self.socket_asked {
            self.server.unix_socket_prefix = None;
        }
        self.server.parsed = nested(&self.settings);
        self.server.argv = argv;
        Ok((self.server, self.fork))
    }
}

fn typed(arg: Arg, value: &str) -> ValueBuf {
    match arg {
        Arg::Flag => ValueBuf::new(value == "true"),
        Arg::Number => match (value.parse::<i32>(), value.parse::<f64>()) {
            (Ok(n), _) => ValueBuf::new(n),
            (_, Ok(n)) => ValueBuf::new(n),
            _ => ValueBuf::new(value),
        },
        Arg::Text => ValueBuf::new(value),
    }
}

/// `{a: {b: 1}}` from `a.b: 1`.
fn nested(settings: &[(String, ValueBuf)]) -> DocBuf {
    let mut d = DocBuf::new();
    let mut done: Vec<&str> = Vec::new();
    for (path, value) in settings {
        match path.split_once('.') {
            None => {
                d.append_ref(path, value);
            }
            Some((head, _)) if done.contains(&head) => {}
            Some((head, _)) => {
                done.push(head);
                let below: Vec<_> = settings
                    .iter()
                    .filter_map(|(p, v)| {
                        let rest = p.strip_prefix(head)?.strip_prefix('.')?;
                        Some((rest.to_string(), v.clone()))
                    })
                    .collect();
                d.append(head, nested(&below));
            }
        }
    }
    d
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::doc;

    fn flag(name: &str) -> &'static Opt {
        ALL.iter().find(|o| o.flag == name).unwrap()
    }

    #[test]
    fn flags_and_keys_end_up_in_the_same_place() {
        let mut g = Gathered::default();
        g.apply_flag(flag("port"), "7").unwrap();
        g.apply_flag(flag("setParameter"), "a=1").unwrap();
        g.apply_key("net.bindIp", "a, b").unwrap();
        g.apply_key("storage.wiredTiger.engineConfig.cacheSizeGB", "0.5")
            .unwrap();
        assert_eq!(g.server.bind_ip, ["a", "b"]);
        assert_eq!(g.server.cache_bytes, Some(1 << 29));
        let (o, fork) = g.finish(vec![]).unwrap();
        assert!(!fork);
        assert_eq!(
            o.parsed,
            doc! {
                "net": doc! { "port": 7, "bindIp": "a, b" },
                "setParameter": doc! { "a": "1" },
                "storage": doc! { "wiredTiger": doc! { "engineConfig": doc! { "cacheSizeGB": 0.5 } } },
            }
        );
    }

    #[test]
    fn a_replica_set_has_three_places_in_the_file() {
        for key in ["replication.replSetName", "replSet.name"] {
            let mut g = Gathered::default();
            g.apply_key(key, "rs").unwrap();
            g.apply_key("replSet.autoInitiate", "true").unwrap();
            let (o, _) = g.finish(vec![]).unwrap();
            assert_eq!(o.replica_set.as_deref(), Some("rs"));
            assert!(o.auto_initiate);
        }
        let mut g = Gathered::default();
        g.apply_flag(flag("replSet"), "rs").unwrap();
        let (o, _) = g.finish(vec![]).unwrap();
        assert!(!o.auto_initiate);
        assert_eq!(o.parsed, doc! { "replication": doc! { "replSet": "rs" } });
        let mut g = Gathered::default();
        g.apply_flag(flag("autoInitiate"), "true").unwrap();
        assert!(g.finish(vec![]).is_err());
    }

    #[test]
    fn the_oplog_has_a_size_and_a_time() {
        let mut g = Gathered::default();
        g.apply_key("replication.oplogSizeMB", "2048").unwrap();
        g.apply_key("storage.oplogMinRetentionHours", "1.5")
            .unwrap();
        assert_eq!(g.server.oplog_bytes, Some(2 << 30));
        assert_eq!(
            g.server.oplog_min_retention,
            Some(Duration::from_secs(5400))
        );
        g.apply_flag(flag("oplogSize"), "1").unwrap();
        assert_eq!(g.server.oplog_bytes, Some(1 << 20));
        assert!(g.apply_flag(flag("oplogSizeMB"), "0").is_err());
        assert!(g.apply_flag(flag("oplogMinRetentionHours"), "-1").is_err());
    }

    #[test]
    fn what_is_not_supported_is_an_error() {
        let mut g = Gathered::default();
        for (name, value) in [
            ("auth", "true"),
            ("replSet", ""),
            ("replSet", "rs/h:1"),
            ("storageEngine", "wiredTiger"),
            ("port", "70000"),
        ] {
            let e = g.apply_flag(flag(name), value).unwrap_err();
            assert!(e.starts_with(&format!("--{name} ")), "{e}");
        }
        assert!(
            g.apply_key("net.nope", "1")
                .unwrap_err()
                .contains("net.nope")
        );
        g.apply_key("security.authorization", "disabled").unwrap();
        g.apply_flag(flag("fork"), "true").unwrap();
        assert!(g.finish(vec![]).is_err());
    }
}

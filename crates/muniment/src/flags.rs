//! The server's options, which the only table ([`ALL`]) collects from flags and the configuration file.
//!
//! Invariant: an option that is not in the table is an error, and so is an invalid value; an option that is
//! accepted but changes nothing is reported in the log.

use crate::config::{File, Setting, document};
use crate::effects::number;
use crate::effects::{Does, Opt};
use crate::gathered::{Arg, AuditTo, Gathered};
use crate::table::ALL;
use muniment_options::{Group, HELP, Opt as Flag, Page, Takes};
use muniment_server::{
    AuditOptions, AuditTarget, ClusterAuth, ClusterRole, LogTarget, Rotation, ServerOptions,
    TlsMode, TlsSettings,
};
use muniment_storage::EngineKind;
use muniment_value::{DocBuf, JsonMode, ValueBuf, doc};

/// The option with this flag.
pub fn named(flag: &str) -> Option<&'static Opt> {
    all().find(|o| !flag.is_empty() && o.flag.name == flag)
}

/// All options.
pub fn all() -> impl Iterator<Item = &'static Opt> {
    ALL.iter().copied().flatten()
}

const COUNT: usize = {
    let (mut count, mut part) = (0, 0);
    while part < ALL.len() {
        count += ALL[part].len();
        part += 1;
    }
    count
};

/// The command line's part of [`ALL`].
const FLAGS: [Flag; COUNT] = {
    let mut flags = [HELP; COUNT];
    let (mut n, mut part) = (0, 0);
    while part < ALL.len() {
        let mut i = 0;
        while i < ALL[part].len() {
            flags[n] = ALL[part][i].flag;
            (n, i) = (n + 1, i + 1);
        }
        part += 1;
    }
    flags
};

/// What is shown in the place of a password.
const PASSWORD: &str = "<password>";

/// The arguments of the process without the passwords among them.
fn censored(argv: Vec<String>) -> Vec<String> {
    let is_secret = |arg: &str| named(arg.trim_start_matches('-')).is_some_and(|o| o.secret);
    let mut hides = false;
    let shown = argv.into_iter().map(|arg| {
        if std::mem::replace(&mut hides, is_secret(&arg)) {
            return PASSWORD.to_string();
        }
        match arg.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={PASSWORD}"),
            _ => arg,
        }
    });
    shown.collect()
}

/// The options of a server's command line.
pub fn page() -> Page {
    const OWN: &[Flag] = &[
        Flag::new("help", "", Takes::Page, "show this").letter('h'),
        Flag::new("version", "", Takes::Page, "show the version"),
    ];
    Page {
        groups: vec![Group::untitled(OWN), Group::untitled(&FLAGS)],
        once: true,
        ..Page::default()
    }
}

/// A boolean as YAML's readers accept it.
fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Some(true),
        "false" | "no" | "off" | "n" => Some(false),
        _ => None,
    }
}

impl Gathered {
    /// Applies a flag.
    ///
    /// # Errors
    /// A message for people that names the flag.
    pub fn apply_flag(&mut self, o: &Opt, value: &str) -> Result<(), String> {
        self.apply(o, o.place(), value)
            .map_err(|e| format!("--{} {e}", o.flag.name))
    }

    /// Applies the content of a configuration file.
    ///
    /// # Errors
    /// A message for people that names the key and its position.
    pub fn apply_file(&mut self, file: File) -> Result<(), String> {
        match file {
            File::Keys(settings) => {
                for s in settings {
                    self.apply_key(&s)
                        .map_err(|e| format!("{}: {e}", s.place))?;
                }
            }
            File::Flags(settings) => {
                for s in settings {
                    self.apply_line(&s)
                        .map_err(|e| format!("{}: {e}", s.place))?;
                }
            }
        }
        Ok(())
    }

    /// Applies a key of a YAML file.
    fn apply_key(&mut self, s: &Setting) -> Result<(), String> {
        let key = s.key.as_str();
        if let Some(name) = key.strip_prefix("setParameter.") {
            let value = s.value.as_deref();
            let value = value.ok_or_else(|| format!("{key} has no value"))?;
            return self
                .set_parameter(name, value)
                .map_err(|e| format!("{key}: {e}"));
        }
        if let Some(component) = key
            .strip_prefix("systemLog.component.")
            .and_then(|rest| rest.strip_suffix(".verbosity"))
        {
            return self
                .component(component, s.value.as_deref().unwrap_or_default())
                .map_err(|e| format!("{key}: {e}"));
        }
        let Some(o) = all().find(|o| o.path == key) else {
            let section = format!("{key}.");
            let known = key == "setParameter"
                || key.starts_with("systemLog.component.")
                || key == "systemLog.component"
                || all().any(|o| o.path.starts_with(&section));
            return match (known, &s.value) {
                // Everything in the section is commented out.
                (true, None) => Ok(()),
                (true, Some(_)) => Err(format!("{key} is a section: its options stand below it")),
                (false, _) => Err(format!("Unrecognized option: {key}")),
            };
        };
        let value = match &s.value {
            Some(value) => value,
            // The configuration files of some distributions have this.
            None if o.path == "processManagement.pidFilePath" => "",
            None => return Err(format!("{key} has no value")),
        };
        let truth =
            || boolean(value).ok_or_else(|| format!("{key}: '{value}' is neither true nor false"));
        let value = match o.arg {
            Arg::Flag => truth()?.to_string(),
            _ => value.to_string(),
        };
        self.apply(o, key, &value)
            .map_err(|e| format!("{key}: {e}"))
    }

    /// Sets the verbosity of a component of the log.
    fn component(&mut self, component: &str, level: &str) -> Result<(), String> {
        let level = number(level, -1, 5)?;
        let levels = component
            .rsplit('.')
            .fold(doc! { "verbosity": level }, |below, name| {
                let mut above = DocBuf::new();
                above.append(name, below);
                above
            });
        let json = levels.as_doc().to_json(JsonMode::Relaxed);
        let pair = ("logComponentVerbosity".to_string(), json);
        self.server.parameters.push(pair);
        let path = format!("systemLog.component.{component}.verbosity");
        self.note(&path, ValueBuf::new(level));
        Ok(())
    }

    /// Applies a line of a file in the format of MongoDB 2.4.
    fn apply_line(&mut self, s: &Setting) -> Result<(), String> {
        let o = named(&s.key).ok_or_else(|| format!("Unrecognized option: {}", s.key))?;
        let value = s.value.clone().unwrap_or_default();
        let value = match o.arg {
            Arg::Flag => boolean(&value)
                .ok_or_else(|| format!("{}: '{value}' is neither true nor false", s.key))?
                .to_string(),
            _ => value,
        };
        self.apply(o, o.place(), &value)
            .map_err(|e| format!("{}: {e}", s.key))
    }

    fn apply(&mut self, o: &Opt, path: &str, value: &str) -> Result<(), String> {
        self.noted = false;
        match &o.does {
            Does::Sets(apply) => apply(self, value)?,
            Does::Nothing(why, so_anyway) => {
                if !so_anyway.contains(&value) {
                    self.tell(path, value, why.trim_start_matches("no effect: "));
                }
            }
            Does::Only(values, why) if !values.contains(&value) => {
                let given = match o.arg {
                    Arg::Flag => String::new(),
                    _ => format!("'{value}': "),
                };
                return Err(format!("{given}{why}"));
            }
            Does::Only(..) => {}
        }
        if !self.noted {
            let shown = if o.secret { PASSWORD } else { value };
            self.note(path, typed(o.arg, shown));
        }
        Ok(())
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// A message for people if a document is invalid.
    pub fn set_parameter(&mut self, name: &str, value: &str) -> Result<(), String> {
        let text = match value.trim_start().starts_with('{') {
            true => document(value)?,
            false => value.to_string(),
        };
        self.server.parameters.push((name.to_string(), text));
        // A name may not have dots, so this is its place.
        self.note(&format!("setParameter.{name}"), ValueBuf::new(value));
        Ok(())
    }

    /// Records the configuration file itself.
    pub fn note_config(&mut self, path: &str) {
        self.note("config", ValueBuf::new(path));
    }

    /// Checks that the options of TLS fit together.
    fn check_tls(&self) -> Result<(), String> {
        let (mode, tls) = (self.server.tls_mode, &self.server.tls);
        let of = |prefix: &str| {
            self.settings
                .iter()
                .any(|(path, _)| path.starts_with(prefix))
        };
        // The same option under both of its names could have two values.
        if of("net.tls.") && of("net.ssl.") {
            return Err(
                "give options of TLS by their names with tls or by those with ssl, not both".into(),
            );
        }
        if mode == TlsMode::Disabled {
            if *tls != TlsSettings::default() {
                return Err(
                    "need to enable TLS via the tlsMode flag, since options of TLS are given"
                        .into(),
                );
            }
        } else if tls.certificate_key_file.is_none() {
            return Err("need tlsCertificateKeyFile when TLS is enabled".into());
        }
        let cluster = self.server.cluster_auth;
        if cluster.takes_certificate() && (mode == TlsMode::Disabled || tls.ca_file.is_none()) {
            return Err(
                "--clusterAuthMode with certificates needs --tlsMode and --tlsCAFile".into(),
            );
        }
        if cluster.takes_certificate() && tls.allow_invalid_certificates {
            return Err("--clusterAuthMode with certificates cannot be used with \
                 --tlsAllowInvalidCertificates, which lets anybody make one"
                .into());
        }
        if cluster.sends_certificate() && mode < TlsMode::Prefer {
            return Err(
                "--clusterAuthMode x509 and sendX509 need --tlsMode preferTLS or requireTLS, so that \
                 members speak TLS with each other"
                    .into(),
            );
        }
        let key = self.server.key_file.is_some();
        match cluster {
            ClusterAuth::SendKeyFile if !key => {
                Err("--clusterAuthMode sendKeyFile needs --keyFile".into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the server's options.
    ///
    /// # Errors
    /// If flags contradict each other.
    pub fn finish(mut self, argv: Vec<String>) -> Result<(ServerOptions, bool), String> {
        if std::mem::take(&mut self.stays) && std::mem::take(&mut self.fork) {
            let why = "MONGODB_CONFIG_OVERRIDE_NOFORK is 1 in the environment";
            self.tell("processManagement.fork", "true", why);
        }
        if self.all_addresses {
            self.server.bind_ip = vec!["0.0.0.0".to_string()];
        }
        if self.no_socket {
            self.server.unix_socket_prefix = None;
        }
        if self.fork && self.log_path.is_none() && !self.to_syslog {
            return Err("--fork has to be used with --logpath or --syslog".to_string());
        }
        self.choose_audit_log()?;
        self.choose_log()?;
        self.check_tls()?;
        // A key file says that not everybody may come.
        let by_certificate = self.server.cluster_auth.takes_certificate();
        let known = self.server.key_file.is_some() || by_certificate;
        self.server.auth = self.auth.unwrap_or(known);
        if self.server.auth
            && !known
            && self.server.replica_set.is_some()
                != matches!(self.server.role, ClusterRole::Router(_))
            && !self.server.auto_initiate
        {
            return Err(
                "--keyFile (or --clusterAuthMode x509) is required when --auth is used with --replSet or \
                 --configdb: the servers of a set and of a cluster prove themselves by it"
                    .to_string(),
            );
        }
        self.check_role()?;
        if self.server.auto_initiate && self.server.replica_set.is_none() {
            return Err("--autoInitiate has to be used with --replSet".to_string());
        }
        // A socket that listens on :: accepts IPv4 as well.
        if self.server.ipv6 && self.server.bind_ip == ["0.0.0.0"] {
            self.server.bind_ip = vec!["::".to_string()];
        }
        // A free port is for tests, which leave no file with its number in /tmp.
        if self.server.port == 0 && !self.socket_asked {
            self.server.unix_socket_prefix = None;
        }
        self.server.parsed = nested(&self.settings);
        self.server.argv = censored(argv);
        Ok((self.server, self.fork))
    }

    /// Checks what belongs to the part in a cluster of shards.
    fn check_role(&mut self) -> Result<(), String> {
        let (set, server) = (self.server.replica_set.is_some(), &mut self.server);
        match &server.role {
            ClusterRole::None => Ok(()),
            ClusterRole::Shard | ClusterRole::Config if set => Ok(()),
            ClusterRole::Shard | ClusterRole::Config => {
                Err("--shardsvr and --configsvr have to be used with --replSet".to_string())
            }
            ClusterRole::Router(_) if set || self.dbpath_asked => Err(
                "--dbpath and --replSet are no options of a router, which keeps no data"
                    .to_string(),
            ),
            ClusterRole::Router(_) => {
                server.engine = EngineKind::Memory;
                Ok(())
            }
        }
    }

    /// Decides where the audit log goes.
    fn choose_audit_log(&mut self) -> Result<(), String> {
        let asked = std::mem::take(&mut self.audit);
        let Some(destination) = asked.destination else {
            return match asked.path.is_some() || asked.filter.is_some() {
                true => Err("--auditPath and --auditFilter need --auditDestination".to_string()),
                false => Ok(()),
            };
        };
        if asked.path.is_some() && destination != AuditTo::File {
            return Err("--auditPath is for --auditDestination file only".to_string());
        }
        let target = match destination {
            AuditTo::File => AuditTarget::File {
                path: asked
                    .path
                    .ok_or("--auditDestination file has to be used with --auditPath")?,
                rotation: self.rotation,
            },
            AuditTo::Syslog => AuditTarget::Syslog {
                facility: self.syslog_facility,
            },
            AuditTo::Console if self.fork => {
                return Err("--auditDestination console and --fork exclude each other".to_string());
            }
            AuditTo::Console => AuditTarget::Console,
        };
        self.server.audit = Some(AuditOptions {
            target,
            filter: asked.filter,
        });
        Ok(())
    }

    /// Decides where the log goes.
    fn choose_log(&mut self) -> Result<(), String> {
        if self.to_syslog {
            if self.log_path.is_some() {
                return Err("--syslog and --logpath exclude each other".to_string());
            }
            self.server.log = LogTarget::Syslog {
                facility: self.syslog_facility,
            };
            return Ok(());
        }
        let Some(path) = self.log_path.take() else {
            if self.log_append {
                self.tell(
                    "systemLog.logAppend",
                    "true",
                    "there is no file to append to",
                );
            }
            if self.destination_asked {
                return Err(
                    "systemLog.destination: file has to be used with systemLog.path".to_string(),
                );
            }
            return Ok(());
        };
        if self.rotation == Rotation::Reopen && !self.log_append {
            return Err("--logRotate reopen has to be used with --logappend".to_string());
        }
        self.note("systemLog.destination", ValueBuf::new("file"));
        self.server.log = LogTarget::File {
            path,
            append: self.log_append,
            rotation: self.rotation,
        };
        Ok(())
    }
}

/// The form in which a value is shown.
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
    use crate::config;
    use muniment_storage::EngineKind;
    use muniment_value::Doc;
    use std::path::PathBuf;
    use std::time::Duration;

    fn flag(name: &str) -> &'static Opt {
        named(name).unwrap()
    }

    fn file(text: &str) -> Result<Gathered, String> {
        let mut g = Gathered::default();
        g.apply_file(config::parse(text)?)?;
        Ok(g)
    }

    fn flags(given: &[(&str, &str)]) -> Result<Gathered, String> {
        let mut g = Gathered::default();
        for (name, value) in given {
            g.apply_flag(flag(name), value)?;
        }
        Ok(g)
    }

    fn options(g: Result<Gathered, String>) -> ServerOptions {
        g.and_then(|g| g.finish(vec![])).unwrap().0
    }

    #[test]
    fn every_option_has_one_name_and_one_place() {
        let mut seen = std::collections::HashSet::new();
        for o in all() {
            let (flag, doc) = (o.flag.name, o.flag.about);
            assert!(!doc.is_empty() && !doc.ends_with('.'), "{flag}");
            assert!(!flag.is_empty() || !o.path.is_empty());
            for name in [format!("--{flag}"), o.path.to_string()] {
                assert!(name.len() <= 2 || seen.insert(name.clone()), "{name} twice");
            }
            if let Does::Nothing(why, _) = o.does {
                assert!(why.starts_with("no effect: "), "{flag}");
            }
        }
    }

    #[test]
    fn flags_and_keys_end_up_in_the_same_place() {
        let mut g = flags(&[("port", "7"), ("setParameter", "a=1")]).unwrap();
        let text = "net: {bindIp: 'a, b'}\nstorage.wiredTiger.engineConfig.cacheSizeGB: 0.5";
        g.apply_file(config::parse(text).unwrap()).unwrap();
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

    /// getCmdLineOpts shows flags as MongoDB does.
    #[test]
    fn flags_are_shown_as_the_keys_that_they_stand_for() {
        for (name, value, path, wanted) in [
            ("bind_ip_all", "true", "net.bindIp", doc! { "v": "*" }),
            (
                "nounixsocket",
                "true",
                "net.unixDomainSocket.enabled",
                doc! { "v": false },
            ),
            (
                "noauth",
                "true",
                "security.authorization",
                doc! { "v": "disabled" },
            ),
            (
                "noscripting",
                "true",
                "security.javascriptEnabled",
                doc! { "v": false },
            ),
            (
                "profile",
                "1",
                "operationProfiling.mode",
                doc! { "v": "slowOp" },
            ),
            (
                "storageEngine",
                "lsm",
                "storage.engine",
                doc! { "v": "wiredTiger" },
            ),
            (
                "storageEngine",
                "ephemeralForTest",
                "storage.engine",
                doc! { "v": "inMemory" },
            ),
            ("verbose", "vv", "systemLog.verbosity", doc! { "v": 2 }),
            (
                "syslog",
                "true",
                "systemLog.destination",
                doc! { "v": "syslog" },
            ),
            (
                "logpath",
                "/l",
                "systemLog.destination",
                doc! { "v": "file" },
            ),
            (
                "journal",
                "true",
                "storage.journal.enabled",
                doc! { "v": true },
            ),
            ("quiet", "true", "systemLog.quiet", doc! { "v": true }),
            (
                "timeZoneInfo",
                "/z",
                "processManagement.timeZoneInfo",
                doc! { "v": "/z" },
            ),
            ("replSet", "r", "replication.replSet", doc! { "v": "r" }),
        ] {
            let o = options(flags(&[(name, value)]));
            let mut at: Doc<'_> = o.parsed.as_doc();
            let (sections, last) = path.rsplit_once('.').unwrap();
            for section in sections.split('.') {
                at = at
                    .get_doc(section)
                    .unwrap_or_else(|| panic!("{path}: {at:?}"));
            }
            let (got, wanted) = (at.get(last), wanted.as_doc().get("v"));
            assert_eq!(format!("{got:?}"), format!("{wanted:?}"), "--{name}");
        }
    }

    #[test]
    fn a_replica_set_has_three_places_in_the_file() {
        for key in ["replication.replSetName", "replSet.name"] {
            let o = options(file(&format!("{key}: rs\nreplSet.autoInitiate: true\n")));
            assert_eq!(o.replica_set.as_deref(), Some("rs"));
            assert!(o.auto_initiate);
        }
        let o = options(flags(&[("replSet", "rs")]));
        assert!(!o.auto_initiate);
        assert_eq!(o.parsed, doc! { "replication": doc! { "replSet": "rs" } });
        let alone = flags(&[("autoInitiate", "true")]).unwrap();
        assert!(alone.finish(vec![]).is_err());
    }

    #[test]
    fn the_oplog_has_a_size_and_a_time() {
        let text = "replication.oplogSizeMB: 2048\nstorage.oplogMinRetentionHours: 1.5";
        let mut g = file(text).unwrap();
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

    /// The configuration files that MongoDB's packages install, and changes that users make in them.
    #[test]
    fn files_of_distributions_are_taken() {
        let debian = "\
# mongod.conf
# Where and how to store data.
storage:
  dbPath: /var/lib/mongodb
#  engine:
#  wiredTiger:

# where to write logging data.
systemLog:
  destination: file
  logAppend: true
  path: /var/log/mongodb/mongod.log

# network interfaces
net:
  port: 27017
  bindIp: 127.0.0.1


# how the process runs
processManagement:
  timeZoneInfo: /usr/share/zoneinfo

#security:

#operationProfiling:

#replication:

#sharding:

## Enterprise-Only Options:

#auditLog:
";
        let o = options(file(debian));
        assert_eq!(o.dbpath, PathBuf::from("/var/lib/mongodb"));
        assert_eq!(
            o.log,
            LogTarget::File {
                path: "/var/log/mongodb/mongod.log".into(),
                append: true,
                rotation: Rotation::Rename,
            }
        );
        let told: Vec<_> = o.notes.iter().map(|n| n.option.as_str()).collect();
        assert_eq!(told, ["processManagement.timeZoneInfo"]);
        let rpm = "\
storage:
  dbPath: /var/lib/mongo
  journal:
    enabled: true
systemLog:
  destination: file
  logAppend: true
  path: /var/log/mongodb/mongod.log
processManagement:
  fork: true  # fork and run in background
  pidFilePath: /var/run/mongodb/mongod.pid  # location of pidfile
  timeZoneInfo: /usr/share/zoneinfo
net:
  port: 27017
  bindIp: 127.0.0.1  # Enter 0.0.0.0,:: to bind to all IPv4 and IPv6 addresses
security:
operationProfiling:
replication:
sharding:
";
        let (o, fork) = file(rpm).and_then(|g| g.finish(vec![])).unwrap();
        assert!(fork);
        assert_eq!(o.pid_file, Some("/var/run/mongodb/mongod.pid".into()));
        // Only one harmless option is reported.
        assert_eq!(o.notes.len(), 1, "{:?}", o.notes);
        let full = "\
storage:
  engine: wiredTiger
  directoryPerDB: true
  wiredTiger:
    engineConfig: {journalCompressor: snappy, cacheSizeGB: 1}
    collectionConfig: {blockCompressor: zstd}
    indexConfig: {prefixCompression: true}
net: {bindIp: [127.0.0.1, /tmp/x.sock], compression: {compressors: 'zstd, snappy'}, tls: {mode: disabled}}
operationProfiling: {mode: slowOp, slowOpThresholdMs: 50, slowOpSampleRate: 0.5}
systemLog:
  logRotate: rename
  timeStampFormat: iso8601-local
  component: {network: {verbosity: 2}, storage: {verbosity: -1, journal: {verbosity: 1}}}
security: {authorization: disabled}
";
        let o = options(file(full));
        assert_eq!(o.bind_ip, ["127.0.0.1", "/tmp/x.sock"]);
        let names: Vec<_> = o.compressors.iter().map(|c| c.name()).collect();
        assert_eq!(names, ["zstd", "snappy"]);
        assert_eq!((o.profile_level, o.slow_ms), (1, 50));
        assert!(o.slow_sample_rate == 0.5 && o.log_local_time);
        let levels: Vec<_> = o.parameters.iter().map(|(_, v)| v.as_str()).collect();
        assert_eq!(
            levels,
            [
                r#"{"network":{"verbosity":2}}"#,
                r#"{"storage":{"verbosity":-1}}"#,
                r#"{"storage":{"journal":{"verbosity":1}}}"#,
            ]
        );
        let told: Vec<_> = o.notes.iter().map(|n| n.option.as_str()).collect();
        assert_eq!(
            told,
            [
                "storage.engine",
                "storage.directoryPerDB",
                "storage.wiredTiger.engineConfig.journalCompressor",
                "storage.wiredTiger.collectionConfig.blockCompressor",
            ]
        );
        let old = file("dbpath=/d\nlogpath=/l\nlogappend=true\nfork = true\njournal=true\n");
        let (o, fork) = old.and_then(|g| g.finish(vec![])).unwrap();
        assert!(fork && o.dbpath == *"/d");
    }

    #[test]
    fn engines_have_mongodbs_names() {
        for (name, kind) in [
            ("wiredTiger", EngineKind::Lsm),
            ("lsm", EngineKind::Lsm),
            ("inMemory", EngineKind::Memory),
            ("ephemeralForTest", EngineKind::Memory),
            ("memory", EngineKind::Memory),
        ] {
            let o = options(flags(&[("storageEngine", name)]));
            assert_eq!(o.engine, kind, "{name}");
            let build = muniment_server::build_info();
            let shown = o.parsed.as_doc().get_doc("storage").unwrap();
            let shown = shown.get_str("engine").unwrap();
            let engines = build.as_doc().get_array("storageEngines").unwrap();
            let mut engines = engines.values().filter_map(|v| v.as_str());
            assert!(engines.any(|e| e == shown), "{name}");
        }
    }

    #[test]
    fn an_invalid_value_is_an_error_that_names_it() {
        for (name, value) in [
            ("replSet", ""),
            ("replSet", "rs/h:1"),
            ("storageEngine", "mmapv1"),
            ("port", "70000"),
            ("tlsMode", "mandatory"),
            ("tlsFIPSMode", "true"),
            ("tlsCertificateSelector", "subject=x"),
            ("tlsDisabledProtocols", "TLS1_4"),
            ("clusterAuthMode", "password"),
            ("configdb", "h:1"),
            ("nojournal", "true"),
            ("networkMessageCompressors", "lzo"),
            ("networkMessageCompressors", ""),
            ("profile", "3"),
            ("slowOpSampleRate", "2"),
            ("logRotate", "copy"),
            ("syslogFacility", "nope"),
            ("timeStampFormat", "ctime"),
            ("filePermissions", "9"),
            ("configExpand", "rest"),
            ("verbose", "many"),
            ("dbpath", ""),
        ] {
            let e = flags(&[(name, value)]).unwrap_err();
            assert!(e.starts_with(&format!("--{name} ")), "{e}");
        }
        for (text, named) in [
            ("net.nope: 1", "net.nope"),
            ("net:\n  port: x", "net.port"),
            ("net: 1", "net is a section"),
            ("nope:", "nope"),
            ("storage: {dbPath: }", "storage.dbPath has no value"),
            ("net: {ipv6: maybe}", "net.ipv6"),
            ("security: {authorization: maybe}", "security.authorization"),
            (
                "storage: {journal: {enabled: false}}",
                "storage.journal.enabled",
            ),
            ("net: {tls: {mode: mandatory}}", "net.tls.mode"),
            (
                "operationProfiling: {filter: '{a: '}",
                "operationProfiling.filter",
            ),
            ("net: {port: {__exec: x}}", "net.port.__exec"),
        ] {
            let e = file(text).expect_err(text);
            assert!(e.contains(named) && e.starts_with("line "), "{text}: {e}");
        }
        for given in [
            &[("fork", "true")][..],
            &[("logpath", "/l"), ("syslog", "true")],
            &[("logpath", "/l"), ("logRotate", "reopen")],
            &[("replSet", "rs0"), ("auth", "true")],
            &[("tlsMode", "requireTLS")],
            &[("tlsCAFile", "/ca.pem")],
            &[("tlsCRLFile", "/crl.pem")],
            &[("tlsAllowConnectionsWithoutCertificates", "true")],
            &[
                ("tlsMode", "requireTLS"),
                ("tlsCertificateKeyFile", "/k.pem"),
                ("sslMode", "allowSSL"),
            ],
            &[("clusterAuthMode", "x509"), ("replSet", "rs0")],
            &[
                ("clusterAuthMode", "x509"),
                ("tlsMode", "allowTLS"),
                ("tlsCertificateKeyFile", "/k.pem"),
                ("tlsCAFile", "/ca.pem"),
            ],
        ] {
            let g = flags(given).unwrap();
            assert!(g.finish(vec![]).is_err(), "{given:?}");
        }
    }

    #[test]
    fn passwords_are_shown_nowhere() {
        let g = flags(&[
            ("tlsMode", "requireTLS"),
            ("tlsCertificateKeyFile", "/k.pem"),
            ("tlsCertificateKeyFilePassword", "hush"),
        ])
        .unwrap();
        let argv = [
            "muniment",
            "--tlsCertificateKeyFilePassword",
            "hush",
            "--sslPEMKeyPassword=hush",
            "-port",
            "1",
        ];
        let (options, _) = g.finish(argv.map(str::to_string).to_vec()).unwrap();
        let password = options.tls.certificate_key_password.clone().unwrap();
        assert_eq!(password.as_str(), "hush");
        assert_eq!(
            options.argv[1..],
            [
                "--tlsCertificateKeyFilePassword",
                "<password>",
                "--sslPEMKeyPassword=<password>",
                "-port",
                "1"
            ]
        );
        assert!(!format!("{options:?}").contains("hush"));
    }
}

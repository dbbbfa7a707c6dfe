//! The table of all options: the effect of each, or why it changes nothing here, or which of its values are
//! accepted. Flags, configuration file, `--help`, getCmdLineOpts and the lines of the log all come from it.
//!
//! Source of the names: the MongoDB manual, "mongod" and "Configuration File Options".

use crate::config::document;
use crate::effects::{
    Opt, addresses, all_addresses, cache, cluster_role, compressors, destination, engine, idle,
    journal, number, only, oplog_size, opt, profile, replica_set, yes,
};
use crate::gathered::{Arg, AuditTo, Mode};
use crate::table_tls;
use muniment_server::{ClusterRole, Rotation, SetAddress, check_profile_filter};
use muniment_value::ValueBuf;
use std::path::PathBuf;
use std::time::Duration;

const NO_TRANSITION: &str = "is not there yet: start all members of the set with --auth";
const ENTERPRISE: &str = "is of MongoDB Enterprise, and Muniment has nothing like it";
const OFF: &[&str] = &["false", "disabled", "none", "off"];

/// All options, in the order of `--help`.
pub const ALL: &[&[Opt]] = &[OPTIONS, table_tls::ALL];

/// Those of everything but TLS.
const OPTIONS: &[Opt] = &[
    opt(
        "dbpath",
        "storage.dbPath",
        Arg::Text,
        "directory for the data (muniment serve: ./muniment-data; mongod: /data/db)",
        |g, v| {
            if v.is_empty() {
                return Err("names no directory".to_string());
            }
            g.server.dbpath = PathBuf::from(v);
            g.dbpath_asked = true;
            Ok(())
        },
    )
    .files(),
    opt(
        "port",
        "net.port",
        Arg::Number,
        "TCP port (27017); 0 takes a free one",
        |g, v| {
            g.server.port = number(v, 0, u16::MAX)?;
            g.port_asked = true;
            Ok(())
        },
    ),
    opt(
        "bind_ip",
        "net.bindIp",
        Arg::Text,
        "comma-separated addresses or socket paths to listen on (127.0.0.1)",
        addresses,
    ),
    opt(
        "bind_ip_all",
        "net.bindIpAll",
        Arg::Flag,
        "listen on all addresses",
        all_addresses,
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
        "workers",
        "net.workers",
        Arg::Number,
        "threads that compute at a time for all connections (one a core); 0 gives each connection its own",
        |g, v| {
            g.server.workers = number(v, 0, 1024)?;
            Ok(())
        },
    ),
    opt(
        "listenBacklog",
        "net.listenBacklog",
        Arg::Number,
        "connections that may wait until they are accepted (4096)",
        |g, v| {
            g.server.listen_backlog = number(v, 1, i32::MAX)?;
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
    )
    .files(),
    opt("nounixsocket", "", Arg::Flag, "no Unix socket", |g, v| {
        if yes(v) {
            g.no_socket = true;
            g.note("net.unixDomainSocket.enabled", ValueBuf::new(false));
        }
        Ok(())
    }),
    opt(
        "",
        "net.unixDomainSocket.enabled",
        Arg::Flag,
        "whether there is a Unix socket",
        |g, v| {
            g.no_socket = !yes(v);
            Ok(())
        },
    ),
    opt(
        "filePermissions",
        "net.unixDomainSocket.filePermissions",
        Arg::Text,
        "permissions of the Unix socket's file, octal (0700)",
        |g, v| {
            let mode = u32::from_str_radix(v, 8).ok().filter(|m| *m <= 0o777);
            let mode = mode.ok_or_else(|| format!("'{v}' is not an octal number up to 0777"))?;
            g.server.socket_permissions = mode;
            Ok(())
        },
    ),
    opt(
        "networkMessageCompressors",
        "net.compression.compressors",
        Arg::Text,
        "compressors that clients may choose from (snappy,zstd,zlib), or disabled",
        compressors,
    )
    .words(&["snappy", "zstd", "zlib", "disabled"]),
    idle(
        "objcheck",
        "",
        Arg::Flag,
        "no effect: what clients send is always checked",
        &["true"],
    ),
    idle(
        "noobjcheck",
        "",
        Arg::Flag,
        "no effect: what clients send is always checked",
        &[],
    ),
    idle(
        "",
        "net.wireObjectCheck",
        Arg::Flag,
        "no effect: what clients send is always checked",
        &["true"],
    ),
    opt(
        "config",
        "",
        Arg::Text,
        "configuration file (YAML, mongod's names); also -f",
        |_, _| Ok(()),
    )
    .files()
    .letter('f'),
    only(
        "configExpand",
        "",
        Arg::Text,
        &["none"],
        "only none: configuration files are not expanded",
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
    )
    .files(),
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
    opt(
        "logRotate",
        "systemLog.logRotate",
        Arg::Text,
        "what logRotate and SIGUSR1 do: rename the log file, or reopen it (rename)",
        |g, v| {
            g.rotation = match v {
                "rename" => Rotation::Rename,
                "reopen" => Rotation::Reopen,
                _ => {
                    return Err(format!(
                        "'{v}' is not supported; there are rename and reopen"
                    ));
                }
            };
            Ok(())
        },
    )
    .words(&["rename", "reopen"]),
    opt(
        "",
        "systemLog.destination",
        Arg::Text,
        "file or syslog",
        destination,
    ),
    opt(
        "syslog",
        "",
        Arg::Flag,
        "log to the system's log",
        |g, v| {
            g.to_syslog = yes(v);
            if yes(v) {
                g.note("systemLog.destination", ValueBuf::new("syslog"));
            }
            Ok(())
        },
    ),
    opt(
        "syslogFacility",
        "systemLog.syslogFacility",
        Arg::Text,
        "facility of the lines in the system's log (user)",
        |g, v| {
            g.syslog_facility = muniment_logger::facility(v)
                .ok_or_else(|| format!("'{v}' is not a facility of the system's log"))?;
            Ok(())
        },
    ),
    opt(
        "timeStampFormat",
        "systemLog.timeStampFormat",
        Arg::Text,
        "times in the log: iso8601-utc or iso8601-local (iso8601-utc)",
        |g, v| {
            g.server.log_local_time = match v {
                "iso8601-utc" => false,
                "iso8601-local" => true,
                _ => {
                    return Err(format!(
                        "'{v}' is not supported; there are iso8601-utc and iso8601-local"
                    ));
                }
            };
            Ok(())
        },
    )
    .words(&["iso8601-utc", "iso8601-local"]),
    opt(
        "verbose",
        "systemLog.verbosity",
        Arg::Number,
        "verbosity of the log, 0-5 (also -v … -vvvvv)",
        |g, v| {
            // MongoDB accepts v, vv, ….
            let all_vs = !v.is_empty() && v.bytes().all(|b| b == b'v');
            g.server.verbosity = match all_vs {
                true => v.len().min(5) as i32,
                false => number(v, 0, 5)?,
            };
            g.note("systemLog.verbosity", ValueBuf::new(g.server.verbosity));
            Ok(())
        },
    )
    .letter('v')
    .repeats(|t| !t.is_empty() && t.bytes().all(|b| b == b'v' || b.is_ascii_digit()))
    .several(),
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
    idle(
        "traceExceptions",
        "systemLog.traceAllExceptions",
        Arg::Flag,
        "no effect: errors are told to the client, and bugs have their backtrace in the log",
        &["false"],
    ),
    opt(
        "noscripting",
        "",
        Arg::Flag,
        "no functions in JavaScript ($where, $function, $accumulator, mapReduce)",
        |g, v| {
            g.server.javascript = !yes(v);
            g.note("security.javascriptEnabled", ValueBuf::new(!yes(v)));
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
        "profile",
        "operationProfiling.mode",
        Arg::Text,
        "what all databases record in system.profile: 0 nothing, 1 slow operations, 2 all (0)",
        profile,
    )
    .words(&["0", "1", "2"]),
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
        "slowOpSampleRate",
        "operationProfiling.slowOpSampleRate",
        Arg::Number,
        "share of the slow operations that are logged and recorded, 0-1 (1)",
        |g, v| {
            g.server.slow_sample_rate = number(v, 0.0, 1.0)?;
            Ok(())
        },
    ),
    opt(
        "",
        "operationProfiling.filter",
        Arg::Text,
        "a query for what is logged and recorded instead of what is slow",
        |g, v| {
            g.server.profile_filter = Some(check_profile_filter(&document(v)?)?);
            Ok(())
        },
    ),
    opt(
        "fork",
        "processManagement.fork",
        Arg::Flag,
        "run in the background once the server answers; needs --logpath or --syslog",
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
            g.server.pid_file = Some(PathBuf::from(v)).filter(|_| !v.is_empty());
            Ok(())
        },
    )
    .files(),
    opt(
        "portFile",
        "",
        Arg::Text,
        "write the port into this file once the server answers",
        |g, v| {
            g.server.port_file = Some(PathBuf::from(v));
            Ok(())
        },
    )
    .files(),
    idle(
        "timeZoneInfo",
        "processManagement.timeZoneInfo",
        Arg::Text,
        "no effect: the time zones are built in",
        &[],
    )
    .files(),
    opt(
        "shutdown",
        "",
        Arg::Flag,
        "end the server that runs on --dbpath, and wait until it has ended",
        |g, v| {
            if yes(v) {
                g.mode = Mode::Shutdown;
            }
            Ok(())
        },
    ),
    opt(
        "repair",
        "",
        Arg::Flag,
        "put right what is damaged in --dbpath, as muniment doctor DIR --repair-catalog, and end",
        |g, v| {
            if yes(v) {
                g.mode = Mode::Repair;
            }
            Ok(())
        },
    ),
    idle(
        "upgrade",
        "",
        Arg::Flag,
        "no effect: no data has to be upgraded",
        &[],
    ),
    opt(
        "storageEngine",
        "storage.engine",
        Arg::Text,
        "wiredTiger (lsm: files), or inMemory (memory: nothing survives the process) (wiredTiger)",
        engine,
    )
    .words(&["wiredTiger", "lsm", "inMemory", "memory"]),
    idle(
        "directoryperdb",
        "storage.directoryPerDB",
        Arg::Flag,
        "no effect: the files of all databases lie in one directory",
        &["false"],
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
        "inMemorySizeGB",
        "storage.inMemory.engineConfig.inMemorySizeGB",
        Arg::Number,
        "the same as --cacheSizeGB",
        cache,
    ),
    idle(
        "wiredTigerJournalCompressor",
        "storage.wiredTiger.engineConfig.journalCompressor",
        Arg::Text,
        "no effect: the log is stored as it is",
        &["none"],
    ),
    idle(
        "wiredTigerDirectoryForIndexes",
        "storage.wiredTiger.engineConfig.directoryForIndexes",
        Arg::Flag,
        "no effect: indexes lie beside the collections",
        &["false"],
    ),
    idle(
        "wiredTigerMaxCacheOverflowFileSizeGB",
        "storage.wiredTiger.engineConfig.maxCacheOverflowFileSizeGB",
        Arg::Number,
        "no effect: the cache has no overflow file",
        &["0"],
    ),
    idle(
        "wiredTigerStatisticsLogDelaySecs",
        "storage.wiredTiger.engineConfig.statisticsLogDelaySecs",
        Arg::Number,
        "no effect: there is no such log of statistics",
        &["0"],
    ),
    idle(
        "wiredTigerEngineConfigString",
        "storage.wiredTiger.engineConfig.configString",
        Arg::Text,
        "no effect: these are settings of WiredTiger's own",
        &[],
    ),
    idle(
        "zstdDefaultCompressionLevel",
        "storage.wiredTiger.engineConfig.zstdCompressionLevel",
        Arg::Number,
        "no effect: blocks are compressed as the engine chooses",
        &[],
    ),
    idle(
        "wiredTigerCollectionBlockCompressor",
        "storage.wiredTiger.collectionConfig.blockCompressor",
        Arg::Text,
        "no effect: blocks are compressed as the engine chooses",
        &[],
    ),
    idle(
        "wiredTigerCollectionConfigString",
        "storage.wiredTiger.collectionConfig.configString",
        Arg::Text,
        "no effect: these are settings of WiredTiger's own",
        &[],
    ),
    idle(
        "wiredTigerIndexPrefixCompression",
        "storage.wiredTiger.indexConfig.prefixCompression",
        Arg::Flag,
        "no effect: keys of indexes always have their prefixes compressed",
        &["true"],
    ),
    idle(
        "wiredTigerIndexConfigString",
        "storage.wiredTiger.indexConfig.configString",
        Arg::Text,
        "no effect: these are settings of WiredTiger's own",
        &[],
    ),
    opt(
        "journal",
        "storage.journal.enabled",
        Arg::Flag,
        "only true: there is always a journal",
        journal,
    ),
    opt(
        "nojournal",
        "",
        Arg::Flag,
        "only false: there is always a journal",
        |g, v| journal(g, if yes(v) { "false" } else { "true" }),
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
    idle(
        "syncdelay",
        "storage.syncPeriodSecs",
        Arg::Number,
        "no effect: a checkpoint is made when enough has been written",
        &["60"],
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
        "setParameter",
        "",
        Arg::Text,
        "NAME=VALUE: sets a server parameter",
        |g, v| {
            let (name, value) = v.split_once('=').ok_or("wants NAME=VALUE")?;
            g.set_parameter(name, value)
        },
    )
    .several(),
    opt(
        "noauth",
        "",
        Arg::Flag,
        "clients need not log in, even with --keyFile",
        |g, v| {
            if yes(v) {
                g.auth = Some(false);
                g.note("security.authorization", ValueBuf::new("disabled"));
            }
            Ok(())
        },
    ),
    opt(
        "auth",
        "",
        Arg::Flag,
        "clients have to log in (without it they may do everything)",
        |g, v| {
            g.auth = Some(yes(v));
            if yes(v) {
                g.note("security.authorization", ValueBuf::new("enabled"));
            }
            Ok(())
        },
    ),
    opt(
        "",
        "security.authorization",
        Arg::Text,
        "enabled: clients have to log in; disabled: they need not",
        |g, v| {
            g.auth = Some(match v {
                "enabled" => true,
                "disabled" => false,
                _ => return Err("wants enabled or disabled".into()),
            });
            Ok(())
        },
    ),
    only(
        "transitionToAuth",
        "security.transitionToAuth",
        Arg::Flag,
        OFF,
        NO_TRANSITION,
    ),
    opt(
        "keyFile",
        "security.keyFile",
        Arg::Text,
        "keys by which the set's members know each other; clients have to log in",
        |g, v| {
            g.server.key_file = Some(PathBuf::from(v));
            Ok(())
        },
    )
    .files(),
    idle(
        "clusterIpSourceAllowlist",
        "security.clusterIpSourceAllowlist",
        Arg::Text,
        "no effect: members know each other by --keyFile, wherever they connect from",
        &[],
    ),
    only(
        "enableEncryption",
        "security.enableEncryption",
        Arg::Flag,
        OFF,
        ENTERPRISE,
    ),
    opt(
        "redactClientLogData",
        "security.redactClientLogData",
        Arg::Flag,
        "the log shows no values of what clients send and store",
        |g, v| {
            g.server.redacts_log = yes(v);
            Ok(())
        },
    ),
    opt(
        "auditDestination",
        "auditLog.destination",
        Arg::Text,
        "keep an audit log: file (needs --auditPath), syslog or console",
        |g, v| {
            g.audit.destination = Some(match v {
                "file" => AuditTo::File,
                "syslog" => AuditTo::Syslog,
                "console" => AuditTo::Console,
                _ => {
                    return Err(format!(
                        "'{v}' is not supported; there are file, syslog and console"
                    ));
                }
            });
            Ok(())
        },
    )
    .words(&["file", "syslog", "console"]),
    only(
        "auditFormat",
        "auditLog.format",
        Arg::Text,
        &["JSON"],
        "only JSON: the audit log has one JSON document a line, and BSON is not supported",
    ),
    only(
        "auditSchema",
        "auditLog.schema",
        Arg::Text,
        &["mongo"],
        "only mongo: events have MongoDB's own form, and OCSF is not supported",
    ),
    opt(
        "auditPath",
        "auditLog.path",
        Arg::Text,
        "file of the audit log",
        |g, v| {
            g.audit.path = Some(PathBuf::from(v)).filter(|_| !v.is_empty());
            Ok(())
        },
    )
    .files(),
    opt(
        "auditFilter",
        "auditLog.filter",
        Arg::Text,
        "a query for the events of the audit log; without it all are written",
        |g, v| {
            g.audit.filter = Some(check_profile_filter(&document(v)?)?);
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
    idle(
        "enableMajorityReadConcern",
        "replication.enableMajorityReadConcern",
        Arg::Flag,
        "no effect: there is always the read concern majority",
        &["true"],
    ),
    opt(
        "shardsvr",
        "",
        Arg::Flag,
        "a shard of a cluster, on port 27018; needs --replSet",
        |g, v| cluster_role(g, if yes(v) { "shardsvr" } else { "" }),
    ),
    opt(
        "configsvr",
        "",
        Arg::Flag,
        "of the set that holds a cluster's configuration, on port 27019; needs --replSet",
        |g, v| cluster_role(g, if yes(v) { "configsvr" } else { "" }),
    ),
    opt(
        "",
        "sharding.clusterRole",
        Arg::Text,
        "shardsvr or configsvr",
        cluster_role,
    ),
    opt(
        "configdb",
        "sharding.configDB",
        Arg::Text,
        "of a router: the set that holds the cluster's configuration, as setName/host:port,…",
        |g, v| {
            let address = SetAddress::parse(v, 27019).map_err(|e| e.message().to_string())?;
            g.server.role = ClusterRole::Router(address);
            Ok(())
        },
    ),
    idle(
        "moveParanoia",
        "sharding.archiveMovedChunks",
        Arg::Flag,
        "no effect: there are no shards",
        &["false"],
    ),
    idle(
        "enableFreeMonitoring",
        "cloud.monitoring.free.state",
        Arg::Text,
        "no effect: nothing is told to anybody else",
        &["off"],
    ),
];

//! The options that were given, before they are checked together.

use muniment_server::{OptionNote, Rotation, ServerOptions};
use muniment_value::{DocBuf, ValueBuf};
use std::path::PathBuf;

/// The task of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Run a server.
    #[default]
    Serve,
    /// End the server that runs on the data directory.
    Shutdown,
    /// Repair the data directory.
    Repair,
}

/// The options collected from file and flags.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// The options of the server.
    pub server: ServerOptions,
    /// The task.
    pub mode: Mode,
    /// `--fork`.
    pub fork: bool,
    /// Whether the environment asks for a process that stays in the foreground, as stock units of systemd do.
    pub stays: bool,
    /// `--logpath`.
    pub log_path: Option<PathBuf>,
    /// `--logappend`.
    pub log_append: bool,
    /// `--logRotate`.
    pub rotation: Rotation,
    /// `--auditDestination` and what belongs to it.
    pub audit: AuditAsked,
    /// `--syslog`.
    pub to_syslog: bool,
    /// Whether `systemLog.destination` was given.
    pub destination_asked: bool,
    /// `--syslogFacility`.
    pub syslog_facility: i32,
    /// Whether `--port` was given.
    pub port_asked: bool,
    /// Whether `--dbpath` was given.
    pub dbpath_asked: bool,
    /// Whether `--unixSocketPrefix` was given.
    pub socket_asked: bool,
    /// Whether there must be no Unix socket, wherever it would be.
    pub no_socket: bool,
    /// Whether clients have to log in, if that was said.
    pub auth: Option<bool>,
    /// `--bind_ip_all`, which takes precedence over other addresses.
    pub all_addresses: bool,
    /// The configuration path and value of each setting, in the order given.
    pub(crate) settings: Vec<(String, ValueBuf)>,
    /// Whether the option that is being applied has recorded itself.
    pub(crate) noted: bool,
}

/// What was asked of the audit log.
#[derive(Clone, Debug, Default)]
pub struct AuditAsked {
    /// `--auditDestination`.
    pub destination: Option<AuditTo>,
    /// `--auditPath`.
    pub path: Option<PathBuf>,
    /// `--auditFilter`.
    pub filter: Option<DocBuf>,
}

/// Where the audit log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditTo {
    /// To a file.
    File,
    /// To the system's log.
    Syslog,
    /// To standard output.
    Console,
}

/// The kind of an option's value, in the file and where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// No value on the command line; a boolean in the file.
    Flag,
    /// Text.
    Text,
    /// A number.
    Number,
}

impl Gathered {
    /// Makes getCmdLineOpts show this setting, instead of the option's own name and value.
    pub fn note(&mut self, path: &str, value: ValueBuf) {
        self.noted = true;
        self.settings.retain(|(p, _)| p != path);
        self.settings.push((path.to_string(), value));
    }

    /// Makes the log explain why an option is accepted but does not do the same as in MongoDB.
    pub fn tell(&mut self, option: &str, value: &str, why: &'static str) {
        self.server.notes.retain(|n| n.option != option);
        self.server.notes.push(OptionNote {
            option: option.to_string(),
            value: value.to_string(),
            why,
        });
    }
}

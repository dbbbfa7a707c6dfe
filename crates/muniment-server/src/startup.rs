//! What a start checks besides the data: the user that runs the server, the clients that can reach it, and
//! the limit of open files. A setting that is not as it should be is a startup warning, in the log and in
//! `getLog: "startupWarnings"` (which the shell shows when it connects).

use crate::options::ServerOptions;
use muniment_logger::{Logger, Severity};
use muniment_member::Keys;
use muniment_tls::Endpoint;
use muniment_value::{DocBuf, Value, doc};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// The descriptors that are kept for the storage and the rest of the process, if there are enough.
const RESERVED_FDS: usize = 512;
/// The part of those descriptors that is not for tables.
const OWN_FDS: usize = 36;

/// Below this limit of open files the server warns, as MongoDB does.
const RECOMMENDED_FDS: usize = 64_000;

/// Warns of a key file whose keys are short.
pub fn warn_of_keys(log: &Logger, keys: Option<&Keys>) {
    if keys.is_some_and(Keys::are_short) {
        log.startup_warning(
            7_340_009,
            "A key of the key file is so short that it can be guessed by what members and users see of it: make \
             one with 'openssl rand -base64 756'",
        );
    }
}

/// Warns of settings that are not as they should be.
pub fn warn(log: &Logger, options: &ServerOptions) {
    log.forget_startup_warnings();
    if !options.auth {
        warn_of_no_access_control(log, options);
    }
    // SAFETY: `geteuid` takes no pointer.
    if unsafe { libc::geteuid() } == 0 {
        log.startup_warning(
            22138,
            "You are running this process as the root user, which is not recommended",
        );
    }
    let open = open_addresses(options);
    if open.is_empty() {
        log.startup_warning(
            22140,
            "This server is bound to localhost. Remote systems will be unable to connect to this \
             server. Start the server with --bind_ip <address> to specify which IP addresses it \
             should serve responses from",
        );
    }
}

/// The addresses at which others than this host can reach the server.
fn open_addresses(options: &ServerOptions) -> Vec<&String> {
    options.bind_ip.iter().filter(|h| !is_local(h)).collect()
}

fn warn_of_no_access_control(log: &Logger, options: &ServerOptions) {
    log.startup_warning(
        22120,
        "Access control is not enabled for the database. Read and write access to data and \
         configuration is unrestricted",
    );
    if options.key_file.is_some() {
        log.startup_warning(
            22_121,
            "With --noauth, the key file authenticates the members of the replica set to each other \
             only: clients are not asked for credentials",
        );
    }
    let open = open_addresses(options);
    if !open.is_empty() {
        let addresses: muniment_value::ArrayBuf = open.iter().map(|h| h.as_str()).collect();
        log.startup_warning_of(
            7_340_006,
            "This server can be reached from other hosts, and asks nobody for credentials: whoever \
             reaches it can read, change and delete everything. Start it with --auth, bind it to \
             127.0.0.1 with --bind_ip, or keep others away with a firewall",
            &doc! { "addresses": addresses },
        );
    }
}

/// Certificates that expire within this time are warned of.
const SOON: Duration = Duration::from_secs(30 * 86_400);

/// What is to be said of certificates that expire soon, and when.
fn expiry(tls: &Endpoint) -> Option<(&'static str, DocBuf)> {
    let at = tls.expires_ms().filter(|_| tls.expires_within(SOON))?;
    let text = match tls.expires_within(Duration::ZERO) {
        true => "A certificate of this server has expired",
        false => "Server certificate will expire soon",
    };
    Some((text, doc! { "certificateExpiry": Value::DateTime(at) }))
}

/// The log's number of the lines about certificates that expire.
const EXPIRY: u32 = 23_221;

/// Warns again of certificates that expire soon, in the log of a server that has run for long.
pub fn repeat_expiry(log: &Logger, tls: Option<&Endpoint>) {
    if let Some((text, attr)) = tls.and_then(expiry) {
        log.log(
            Severity::Warning,
            "NETWORK",
            EXPIRY,
            "certificates",
            text,
            Some(&attr),
        );
    }
}

/// Warns of what makes TLS worth less than it seems.
pub fn warn_of_certificates(log: &Logger, tls: Option<&Endpoint>) {
    let Some(tls) = tls else { return };
    if let Some((text, attr)) = expiry(tls) {
        log.startup_warning_of(EXPIRY, text, &attr);
    }
    let settings = tls.settings();
    for path in [&settings.certificate_key_file, &settings.cluster_file] {
        let others = path.as_ref().filter(|path| is_open_to_others(path));
        if let Some(path) = others {
            log.startup_warning_of(
                7_340_008,
                "A file with a private key can be read by other users of this machine",
                &doc! { "path": path.to_string_lossy().as_ref() },
            );
        }
    }
    if settings.allow_invalid_certificates {
        log.startup_warning(
            22_116,
            "While invalid X509 certificates may be used to connect to this server, they will not be \
             considered permissible for authentication",
        );
    } else if settings.ca_file.is_none() && settings.cluster_ca_file.is_none() {
        log.startup_warning(
            22_118,
            "No file of certificate authorities is configured with --tlsCAFile: certificates of clients \
             are not asked for",
        );
    }
}

fn is_open_to_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

/// Whether an address to listen on can only be reached from this host.
fn is_local(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        // Anything with a slash is the path of a Unix socket.
        Err(_) => host == "localhost" || host.contains('/'),
    }
}

/// Raises the soft limit of open files to the hard one, and divides it. Returns how many connections fit.
pub fn raise_file_limit(wanted: usize, log: &Logger) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct is owned by this function.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return wanted;
        }
        if limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        }
    }
    let files = usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX);
    let (connections, tables) = share_out(files, wanted);
    muniment_io::set_most_open(tables);
    if files < RECOMMENDED_FDS {
        log.startup_warning_of(
            22184,
            "Soft rlimits for open file descriptors too low",
            &doc! {
                "currentValue": files as i64,
                "recommendedMinimum": RECOMMENDED_FDS as i64,
                "connections": connections as i64,
            },
        );
    }
    connections
}

/// Divides `files` open files: how many are for connections, of which `wanted` are wanted, and how many for
/// tables. The rest is for the log, spilled data and short-lived files.
fn share_out(files: usize, wanted: usize) -> (usize, usize) {
    let reserved = (files / 2).clamp(OWN_FDS, RESERVED_FDS);
    let connections = files.saturating_sub(reserved).max(4).min(wanted);
    let tables = files.saturating_sub(connections + OWN_FDS);
    let tables = tables.clamp(4, 1 << 16);
    (connections, tables)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::{is_local, share_out, warn};
    use crate::options::ServerOptions;
    use muniment_logger::Logger;

    /// The ids of the warnings of a server that listens on these addresses.
    fn warned(bind_ip: &[&str]) -> Vec<String> {
        let options = ServerOptions {
            bind_ip: bind_ip.iter().map(|h| (*h).to_string()).collect(),
            ..ServerOptions::default()
        };
        let log = Logger::silent();
        // The warnings of the second start replace those of the first.
        warn(&log, &options);
        warn(&log, &options);
        log.kept("startupWarnings").unwrap().0
    }

    #[test]
    fn a_server_that_others_can_reach_is_warned_of() {
        for (addresses, open) in [
            (&["127.0.0.1", "/tmp/x.sock"][..], None),
            (&["127.0.0.1", "10.1.2.3"], Some("[\"10.1.2.3\"]")),
            (&["*"], Some("[\"*\"]")),
        ] {
            let told = warned(addresses);
            let with = |id: u32| {
                let id = format!("\"id\":{id},");
                told.iter().filter(|l| l.contains(&id)).collect::<Vec<_>>()
            };
            assert_eq!(with(22120).len(), 1, "{told:?}");
            assert_eq!(with(22140).len(), usize::from(open.is_none()), "{told:?}");
            let warned = with(7_340_006);
            assert_eq!(warned.len(), usize::from(open.is_some()), "{told:?}");
            assert!(open.is_none_or(|o| warned[0].contains(o)), "{told:?}");
        }
    }

    #[test]
    fn addresses_of_this_host() {
        for (host, local) in [
            ("127.0.0.1", true),
            ("127.0.1.1", true),
            ("::1", true),
            ("localhost", true),
            ("/tmp/x.sock", true),
            ("0.0.0.0", false),
            ("::", false),
            ("*", false),
            ("10.0.0.1", false),
            ("db.example.org", false),
        ] {
            assert_eq!(is_local(host), local, "{host}");
        }
    }

    #[test]
    fn connections_and_tables_share_the_open_files() {
        assert_eq!(share_out(1_000_000, 65_536), (65_536, 65_536));
        assert_eq!(share_out(4096, 65_536), (3584, 476));
        assert_eq!(share_out(1024, 65_536), (512, 476));
        assert_eq!(share_out(64, 65_536), (28, 4));
        assert_eq!(share_out(20, 10), (4, 4));
    }
}

//! `muniment cert`: certificates with which TLS can be tried on one's own machine.

use crate::BAD_OPTIONS;
use crate::command::{Spec, word};
use muniment_lab::stdout::say;
use muniment_options::{Given, Group, HELP, Opt, Page};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// `muniment cert`.
pub const COMMAND: Spec = Spec {
    name: "cert",
    arguments: "--dev DIR",
    about: "certificates for development (muniment cert --help)",
    page,
    below: Vec::new,
    run: main,
};

const OPTIONS: &[Opt] = &[
    Opt::path(
        "dev",
        "DIR",
        "write a CA, a server's certificate and a client's into this directory",
    ),
    Opt::text(
        "host",
        "NAME",
        "a further name or address of the server; several may follow",
    )
    .several()
    .more(|text| !text.starts_with('-')),
    Opt::flag(
        "force",
        "replace the files of an earlier call; copies of those are of another CA then",
    ),
    HELP,
];

fn page() -> Page {
    Page {
        head: "\
Usage: muniment cert --dev DIR [--host NAME …] [--force]

Makes certificates with which TLS and logins by certificate can be tried, for development only: their
keys lie unencrypted in one directory, with the key of the CA beside them, and nothing can be revoked.
The server's certificate is for localhost, 127.0.0.1, ::1, this machine's name, and each NAME. It is a
member's as well.

"
        .into(),
        groups: vec![Group::untitled(OPTIONS)],
        foot: "
The keys are ECDSA keys on the curve P-256. The CA is valid for ten years, the others for 824 days. Only
the owner may read the keys and enter the directory, if it is made now. The exit code is 0, 1 if the files
exist or cannot be written, and 2 for bad arguments.
"
        .into(),
        once: true,
        ..Page::default()
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The days that the CA is valid.
const CA_DAYS: u32 = 3650;
/// The days that the other certificates are valid. With the hour before now this is less than the 825
/// days that are the most some clients accept.
const LEAF_DAYS: u32 = 824;
/// How much earlier than now certificates begin to be valid, for machines whose clocks differ.
const EARLIER: Duration = Duration::from_secs(60 * 60);

/// The files, in the order in which they are listed.
const FILES: [&str; 4] = [CA, CA_KEY, SERVER, CLIENT];
const CA: &str = "ca.pem";
const CA_KEY: &str = "ca-key.pem";
const SERVER: &str = "server.pem";
const CLIENT: &str = "client.pem";

/// A subject: organisation, unit and name. Members have the same organisation and unit, and no client
/// has both, or it would count as a member.
type Subject = [&'static str; 3];
const OF_CA: Subject = ["Muniment", "development CA", "Muniment development CA"];
const OF_SERVER: Subject = ["Muniment", "members", "server"];
const OF_CLIENT: Subject = ["Muniment", "development", "client"];

/// A file that is to be written.
struct Made {
    name: &'static str,
    text: String,
}

fn main(args: Vec<OsString>) -> ExitCode {
    let page = page();
    let given = match page.parse(args) {
        Ok(given) if given.has("help") => {
            say(&page.text());
            return ExitCode::SUCCESS;
        }
        Ok(given) => given,
        Err(e) => return misused(&e.to_string()),
    };
    let (dir, hosts) = match asked(&given) {
        Ok(asked) => asked,
        Err(why) => return misused(&why),
    };
    match write(&dir, &hosts, given.has("force")) {
        Ok(dir) => {
            say(&told(&dir, &hosts));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("muniment cert: {why}");
            ExitCode::FAILURE
        }
    }
}

fn misused(why: &str) -> ExitCode {
    eprintln!("muniment cert: {why}\nTry 'muniment cert --help'.");
    ExitCode::from(BAD_OPTIONS)
}

/// The directory, and all names of the server.
fn asked(given: &Given) -> Result<(PathBuf, Vec<String>), String> {
    let dir = given.path("dev").filter(|d| !d.as_os_str().is_empty());
    let dir = dir.ok_or("--dev DIR is missing: there are only certificates for development")?;
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
    let own = muniment_logger::hostname();
    let more = is_host(&own).then_some(own.as_str());
    for host in more.into_iter().chain(given.texts("host")) {
        if !is_host(host) {
            return Err(format!(
                "--host {host}: a name or an address is wanted, without a port"
            ));
        }
        let host = host.to_ascii_lowercase();
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    Ok((dir.to_path_buf(), hosts))
}

/// Whether a certificate can be for this: an address, or a name of the DNS, perhaps with `*` as its first
/// part.
fn is_host(text: &str) -> bool {
    let part = |p: &str| {
        let letters = p
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        !p.is_empty() && p.len() < 64 && letters && !p.starts_with('-')
    };
    let name = text.strip_prefix("*.").unwrap_or(text);
    text.parse::<IpAddr>().is_ok() || (text.len() < 254 && name.split('.').all(part))
}

/// Makes the certificates and writes them. Returns the whole path of the directory.
fn write(dir: &Path, hosts: &[String], force: bool) -> Result<PathBuf, String> {
    let failed = |at: &Path, e: std::io::Error| format!("{}: {e}", at.display());
    let there = FILES
        .iter()
        .filter(|f| dir.join(f).symlink_metadata().is_ok());
    let there: Vec<&str> = there.copied().collect();
    if !there.is_empty() && !force {
        return Err(format!(
            "{} in {} would be overwritten; --force does it",
            there.join(", "),
            dir.display()
        ));
    }
    let made = make(hosts).map_err(|e| format!("making the certificates: {e}"))?;
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(dir).map_err(|e| failed(dir, e))?;
    for file in made {
        let path = dir.join(file.name);
        if force {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(&path, e)),
                _ => {}
            }
        }
        // Only the CA's certificate has no key in it, and may be given to everybody.
        let mode = if file.name == CA { 0o644 } else { 0o600 };
        let mut options = OpenOptions::new();
        // A file that exists by now, or a link, is not written into.
        options.write(true).create_new(true).mode(mode);
        let written = options
            .open(&path)
            .and_then(|mut f| f.write_all(file.text.as_bytes()));
        written.map_err(|e| failed(&path, e))?;
    }
    std::fs::canonicalize(dir).map_err(|e| failed(dir, e))
}

fn make(hosts: &[String]) -> Result<Vec<Made>, rcgen::Error> {
    let ca_key = KeyPair::generate()?;
    let mut ca = valid_for(CA_DAYS, OF_CA);
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let ca_key_pem = ca_key.serialize_pem();
    let issuer = Issuer::new(ca, ca_key);

    let mut server = valid_for(LEAF_DAYS, OF_SERVER);
    for host in hosts {
        server.subject_alt_names.push(match host.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.as_str().try_into()?),
        });
    }
    // A member is a client of the others.
    server.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let mut client = valid_for(LEAF_DAYS, OF_CLIENT);
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let signed = |mut leaf: CertificateParams| -> Result<String, rcgen::Error> {
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &issuer)?;
        // As certificateKeyFile wants it: the key, then the certificate.
        Ok(key.serialize_pem() + &certificate.pem())
    };
    let made = |name, text| Made { name, text };
    Ok(vec![
        made(CA, ca_pem),
        made(CA_KEY, ca_key_pem),
        made(SERVER, signed(server)?),
        made(CLIENT, signed(client)?),
    ])
}

/// A certificate of this subject that is valid from now on for so many days.
fn valid_for(days: u32, subject: Subject) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + DAY * days).into();
    params.distinguished_name = DistinguishedName::new();
    let kinds = [
        DnType::OrganizationName,
        DnType::OrganizationalUnitName,
        DnType::CommonName,
    ];
    for (kind, value) in kinds.into_iter().zip(subject) {
        params.distinguished_name.push(kind, value);
    }
    params
}

/// A subject as RFC 2253 writes it, the last part first, which is the name of its user.
fn name_of([organisation, unit, name]: Subject) -> String {
    format!("CN={name},OU={unit},O={organisation}")
}

/// What to do with the files.
fn told(dir: &Path, hosts: &[String]) -> String {
    let path = |file: &str| dir.join(file).to_string_lossy().into_owned();
    let (ca, server, client) = (path(CA), path(SERVER), path(CLIENT));
    let typed = |file: &str| word(file);
    let uri = format!(
        "mongodb://localhost:27017/?tls=true&tlsCAFile={}&tlsCertificateKeyFile={}",
        encoded(&ca),
        encoded(&client)
    );
    let user = name_of(OF_CLIENT);
    let mut out = String::from(
        "These certificates are for development. The keys lie unencrypted in one directory, and with the\n\
         CA's key anybody can make certificates that your server and clients trust. Production wants\n\
         certificates of a CA of your own.\n\n",
    );
    let mut line = |file: &str, what: &str| {
        let _ = writeln!(out, "  {file}\n      {what}");
    };
    line(&ca, "the CA's certificate, for servers and clients");
    line(&path(CA_KEY), "the CA's key, to sign further certificates");
    let names = format!("the server's key and certificate, for {}", hosts.join(", "));
    line(&server, &names);
    line(&client, "a client's key and certificate");
    let _ = write!(
        out,
        "\nThe server, to which only clients with a certificate of this CA get through (with\n\
         --tlsAllowConnectionsWithoutCertificates also those without any):\n\n  \
         muniment serve --tlsMode requireTLS --tlsCertificateKeyFile {server} --tlsCAFile {ca}\n\n\
         A connection string for clients, and mongosh:\n\n  \
         {uri}\n\n  \
         mongosh --host localhost --tls --tlsCAFile {ca} --tlsCertificateKeyFile {client}\n\n\
         The client's subject is the name of a user that logs in by the certificate:\n\n  \
         {user}\n\n  \
         db.getSiblingDB(\"$external\").runCommand({{createUser: \"{user}\", roles: [{{role: \"readWrite\", db: \"test\"}}]}})\n\n\
         It logs in with this at the end of the connection string:\n\n  \
         &authSource=%24external&authMechanism=MONGODB-X509\n",
        server = typed(&server),
        ca = typed(&ca),
        client = typed(&client),
    );
    out
}

/// A path as the value of an option in a connection string.
fn encoded(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_and_addresses_are_hosts() {
        for host in [
            "db",
            "db-1.example.org",
            "*.example.org",
            "10.0.0.7",
            "fe80::1",
            "my_box",
        ] {
            assert!(is_host(host), "{host}");
        }
        for other in [
            "",
            "a b",
            "db:27017",
            "[::1]",
            "-x",
            "a..b",
            "b.*",
            "ü.org",
            "10.0.0.7/8",
        ] {
            assert!(!is_host(other), "{other}");
        }
    }

    #[test]
    fn paths_are_written_so_that_shells_and_drivers_read_them() {
        let text = told(Path::new("/a b/c&d"), &["localhost".into()]);
        for part in [
            "tlsCAFile=/a%20b/c%26d/ca.pem&tls",
            "--tlsCertificateKeyFile '/a b/c&d/server.pem' --tlsCAFile '/a b/c&d/ca.pem'\n",
            "CN=client,OU=development,O=Muniment",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

//! Connection strings: accepts the options that the raw client can honour, and plainly refuses
//! those that it cannot. Nothing here prints a password.

use muniment_auth::scram::Mechanism;
use muniment_load::access::{Access, Login, Password, Peer, X509};
use muniment_load::fail::{Failure, Result};
use muniment_tls::{Endpoint, Mode, Settings};
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A deployment, parsed from a connection string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// `host:port`, at least one.
    pub hosts: Vec<String>,
    /// The replica set's name, if one was asked for.
    pub replica_set: Option<String>,
    /// Use the one host given without asking whether it takes writes.
    pub direct: bool,
    /// What all connections to the deployment need besides an address.
    pub access: Arc<Access>,
}

impl Uri {
    /// The servers that the connection string names.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        let access = &self.access;
        self.hosts.iter().map(|h| Peer::new(h, access.clone()))
    }
}

/// The characters that have a meaning of their own in a connection string.
const RESERVED: &str = "one of : / ? # [ ] @ % in a user name or a password is written as % and two \
                        hexadecimal digits, for example %40 for @";

/// Parses `mongodb://[user:password@]host[:port][,host…][/[db]][?options]`.
pub(crate) fn parse(text: &str) -> Result<Uri> {
    understood(text).map_err(|why| Failure(format!("--uri {}: {why}", redacted(text))))
}

/// A command line's argument, or a message about one, with `***` for passwords.
pub(crate) fn redacted(text: &str) -> String {
    let mut shown = text.to_string();
    for secret in secrets(text).into_iter().rev() {
        shown.replace_range(secret, "***");
    }
    shown
}

/// Where the passwords are in a connection string that stands somewhere in the text, in order. If the
/// connection string is malformed, this is too much rather than too little.
pub(crate) fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let Some(begin) = ["mongodb://", "mongodb+srv://"]
        .iter()
        .filter_map(|scheme| Some(text.find(scheme)? + scheme.len()))
        .min()
    else {
        // A scheme that is mistyped, or none at all.
        if let Some((before, _)) = text.rsplit_once('@')
            && let Some(colon) = before.find(':')
        {
            found.push(colon + 1..before.len());
        }
        return found;
    };
    let rest = text.get(begin..).unwrap_or_default();
    let mut at = begin;
    if let Some((userinfo, _)) = rest.rsplit_once('@') {
        let end = begin + userinfo.len();
        if let Some(colon) = userinfo.find(':') {
            found.push(begin + colon + 1..end);
        }
        at = end + 1;
    } else {
        // The host may have been forgotten. A port has digits only.
        let front = rest.split(['/', '?']).next().unwrap_or_default();
        let port = front.rsplit_once(':').map_or("", |(_, port)| port);
        let colon = front.find(':').filter(|_| !front.starts_with('['));
        if let Some(colon) = colon.filter(|_| !port.bytes().all(|b| b.is_ascii_digit())) {
            found.push(begin + colon + 1..begin + front.len());
        }
    }
    for part in text.get(at..).unwrap_or_default().split(['?', '&']) {
        if let Some((name, value)) = part.split_once('=') {
            let name = name.to_ascii_lowercase();
            if name.ends_with("password") || name == "authmechanismproperties" {
                let from = at + name.len() + 1;
                found.push(from..from + value.len());
            }
        }
        at += part.len() + 1;
    }
    found
}

type Understood<T> = std::result::Result<T, String>;

fn understood(text: &str) -> Understood<Uri> {
    if text.starts_with("mongodb+srv://") {
        return Err(String::from(
            "mongodb+srv needs DNS look-ups, which the lab's client does not make; give \
             mongodb://host:port/?tls=true",
        ));
    }
    let Some(rest) = text.strip_prefix("mongodb://") else {
        return Err("it must begin with mongodb://, for example mongodb://127.0.0.1:27017".into());
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (front, database) = rest.split_once('/').unwrap_or((rest, ""));
    if database.contains('@') || query.contains('@') && !front.contains('@') {
        return Err(format!("there is an @ after a / or a ?: {RESERVED}"));
    }
    let (user, hosts) = match front.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, front),
    };
    if hosts.contains('%') {
        return Err("Unix socket paths are not supported; give host:port".into());
    }
    let mut uri = Uri {
        hosts: hosts.split(',').map(host).collect::<Understood<_>>()?,
        replica_set: None,
        direct: false,
        access: Arc::default(),
    };
    let mut asked = Asked::default();
    for option in query.split('&').filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        uri.option(name, value, name.len() != option.len(), &mut asked)?;
    }
    let tls = asked.tls.take().endpoint()?;
    let login = match user {
        _ if asked.by_certificate => Some(asked.certificate(user, tls.as_ref())?),
        Some(user) => Some(login(user, database, asked)?),
        None => asked.without_a_user()?,
    };
    uri.access = Arc::new(Access {
        tls: tls.map(Arc::new),
        login,
    });
    Ok(uri)
}

/// The options about TLS.
#[derive(Default)]
struct Tls {
    /// Whether it is to be used, if that was said.
    used: Option<bool>,
    /// The name of one of the other options that was given.
    given: Option<&'static str>,
    settings: Settings,
}

/// The options about TLS, apart from tls itself.
const OF_TLS: [&str; 6] = [
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsCAFile",
    "tlsCertificateKeyFile",
    "tlsCertificateKeyFilePassword",
    "tlsInsecure",
];

impl Tls {
    fn take(&mut self) -> Tls {
        std::mem::take(self)
    }

    /// Takes an option; false if it is none about TLS.
    fn option(&mut self, name: &str, value: &str) -> Understood<bool> {
        if name.eq_ignore_ascii_case("tls") || name.eq_ignore_ascii_case("ssl") {
            self.used = Some(truth(name, value)?);
            return Ok(true);
        }
        let mut known = OF_TLS.into_iter();
        let Some(known) = known.find(|known| known.eq_ignore_ascii_case(name)) else {
            return Ok(false);
        };
        self.given = Some(known);
        let to = &mut self.settings;
        match known {
            "tlsCAFile" => to.ca_file = Some(decoded(value)?.into()),
            "tlsCertificateKeyFile" => to.certificate_key_file = Some(decoded(value)?.into()),
            "tlsCertificateKeyFilePassword" => {
                to.certificate_key_password = Some(decoded(value)?.into());
            }
            "tlsAllowInvalidCertificates" => to.allow_invalid_certificates = truth(known, value)?,
            "tlsAllowInvalidHostnames" => to.allow_invalid_hostnames = truth(known, value)?,
            _ => {
                to.allow_invalid_certificates = truth(known, value)?;
                to.allow_invalid_hostnames = to.allow_invalid_certificates;
            }
        }
        Ok(true)
    }

    /// What the connections use, if they use TLS.
    fn endpoint(self) -> Understood<Option<Endpoint>> {
        match (self.used, self.given) {
            (Some(true), _) => {
                let endpoint = Endpoint::new(Mode::Require, self.settings);
                endpoint.map(Some).map_err(|e| e.message().to_string())
            }
            (_, Some(name)) => Err(format!("option {name} needs tls=true")),
            _ => Ok(None),
        }
    }
}

fn truth(name: &str, value: &str) -> Understood<bool> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("option {name} is true or false, not {value:?}")),
    }
}

/// The options about logging in.
#[derive(Default)]
struct Asked {
    tls: Tls,
    source: Option<String>,
    mechanism: Option<Mechanism>,
    /// The mechanism is that of certificates.
    by_certificate: bool,
}

impl Asked {
    /// The login of the owner of a certificate.
    fn certificate(self, user: Option<&str>, tls: Option<&Endpoint>) -> Understood<Login> {
        if tls.is_none_or(|tls| tls.settings().certificate_key_file.is_none()) {
            return Err(format!(
                "authMechanism={X509} needs tls=true and tlsCertificateKeyFile"
            ));
        }
        if self.source.is_some_and(|source| source != "$external") {
            return Err(format!("authMechanism={X509} has authSource=$external"));
        }
        match user {
            Some(user) if user.contains(':') => {
                Err(format!("authMechanism={X509} needs no password"))
            }
            user => Ok(Login::Certificate(user.map(decoded).transpose()?)),
        }
    }

    /// Refuses options about logging in where there is nobody to log in.
    fn without_a_user(self) -> Understood<Option<Login>> {
        let name = match (self.source, self.mechanism) {
            (None, None) => return Ok(None),
            (Some(_), _) => "authSource",
            (None, Some(_)) => "authMechanism",
        };
        Err(format!(
            "option {name} needs a user: mongodb://user:password@host"
        ))
    }
}

impl Uri {
    fn option(
        &mut self,
        name: &str,
        value: &str,
        given: bool,
        asked: &mut Asked,
    ) -> Understood<()> {
        match name.to_ascii_lowercase().as_str() {
            "directconnection" => self.direct = value == "true",
            "replicaset" => self.replica_set = Some(value.to_string()),
            "authsource" | "authmechanism" | "appname" | "retrywrites" | "retryreads"
                if !given || value.is_empty() =>
            {
                return Err(format!("option {name} has no value"));
            }
            "authsource" => asked.source = Some(decoded(value)?),
            "authmechanism" if value == X509 => asked.by_certificate = true,
            "authmechanism" => {
                let known = Mechanism::from_name(value);
                asked.mechanism = Some(known.ok_or_else(|| {
                    format!(
                        "authMechanism={value} is not supported; SCRAM-SHA-256, SCRAM-SHA-1 and {X509} are"
                    )
                })?);
            }
            // These have no meaning for a worker that has one connection and never retries, so they
            // are accepted and ignored.
            "appname" | "retrywrites" | "retryreads" => {}
            "w" | "j" | "journal" | "wtimeoutms" => {
                return Err(format!(
                    "option {name} is not supported: each experiment sets its own write concern"
                ));
            }
            _ if asked.tls.option(name, value)? => {}
            _ => {
                return Err(format!(
                    "option {name} is not supported (authSource, authMechanism, directConnection, replicaSet, tls, {}, appName, retryWrites and retryReads are)",
                    OF_TLS.join(", ")
                ));
            }
        }
        Ok(())
    }
}

/// The login of `user:password`. The user belongs to the database that `authSource` names, or else
/// to the one in the path, or else to `admin`.
fn login(userinfo: &str, database: &str, asked: Asked) -> Understood<Login> {
    let Some((user, password)) = userinfo.split_once(':') else {
        return Err("the user has no password: mongodb://user:password@host".into());
    };
    if userinfo.contains(['/', '?', '#', '[', ']', '@']) || password.contains(':') {
        return Err(RESERVED.into());
    }
    if user.is_empty() {
        return Err("the user name is empty".into());
    }
    Ok(Login::Password(Password {
        user: decoded(user)?,
        password: Zeroizing::new(decoded(password)?),
        source: match (asked.source, database) {
            (Some(source), _) => source,
            (None, "") => "admin".into(),
            (None, database) => decoded(database)?,
        },
        mechanism: asked.mechanism,
    }))
}

/// A text in which characters are written as `%` and two hexadecimal digits. The error does not
/// quote the text, which may be a password.
fn decoded(text: &str) -> Understood<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        if b != b'%' {
            bytes.push(b);
            continue;
        }
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(format!("a % is not followed by two digits: {RESERVED}"));
        };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| "the text after decoding its %XX is not UTF-8".into())
}

fn host(h: &str) -> std::result::Result<String, String> {
    let (name, port) = if let Some(six) = h.strip_prefix('[') {
        let Some((name, after)) = six.split_once(']') else {
            return Err(format!("the address {h} has no closing bracket"));
        };
        (format!("[{name}]"), after.strip_prefix(':'))
    } else {
        match h.split_once(':') {
            Some((name, port)) => (name.to_string(), Some(port)),
            None => (h.to_string(), None),
        }
    };
    if name.is_empty() || name == "[]" {
        return Err("a host name is missing".into());
    }
    let port = port.unwrap_or("27017");
    match port.parse::<u16>() {
        Ok(p) if p > 0 => Ok(format!("{name}:{p}")),
        _ => Err(format!("{port} is no port (1 to 65535)")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn what_is_understood() {
        for (text, hosts) in [
            ("mongodb://localhost", vec!["localhost:27017"]),
            ("mongodb://a:1,b/", vec!["a:1", "b:27017"]),
            (
                "mongodb://[::1]:5/db?directConnection=true",
                vec!["[::1]:5"],
            ),
            (
                "mongodb://h/?tls=false&appName=x&retryWrites=false",
                vec!["h:27017"],
            ),
            ("mongodb://u:p@a:1,b/?replicaSet=r", vec!["a:1", "b:27017"]),
            ("mongodb://u:@[::1]", vec!["[::1]:27017"]),
        ] {
            assert_eq!(parse(text).unwrap().hosts, hosts, "{text}");
        }
        assert_eq!(
            parse("mongodb://h/?replicaSet=rs0")
                .unwrap()
                .replica_set
                .as_deref(),
            Some("rs0")
        );
        assert!(parse("mongodb://h/?directConnection=true").unwrap().direct);
        assert_eq!(parse("mongodb://h/db").unwrap().access.login, None);
    }

    #[test]
    fn who_logs_in_and_how() {
        for (text, user, password, source, mechanism) in [
            ("u:p@h", "u", "p", "admin", None),
            ("u:p@h/", "u", "p", "admin", None),
            ("u:p@h/shop", "u", "p", "shop", None),
            ("u:p@h/shop?authSource=users", "u", "p", "users", None),
            ("u:p@h?authSource=a%20b", "u", "p", "a b", None),
            (
                "u%40x:p%3A%2f%C3%A9@h/?authMechanism=SCRAM-SHA-1",
                "u@x",
                "p:/é",
                "admin",
                Some(Mechanism::Sha1),
            ),
            (
                "u:p@h/?authmechanism=SCRAM-SHA-256&AUTHSOURCE=b",
                "u",
                "p",
                "b",
                Some(Mechanism::Sha256),
            ),
        ] {
            let uri = parse(&format!("mongodb://{text}")).unwrap();
            let Some(Login::Password(login)) = &uri.access.login else {
                panic!("{text}");
            };
            assert_eq!(
                (
                    login.user.as_str(),
                    login.password.as_str(),
                    login.source.as_str(),
                    login.mechanism
                ),
                (user, password, source, mechanism),
                "{text}"
            );
            assert!(!format!("{uri:?}").contains(&format!("\"{password}\"")));
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("localhost:27017", "must begin with mongodb://"),
            ("mongodb+srv://h", "mongodb+srv"),
            ("mongodb://u@h", "has no password"),
            ("mongodb://h?tls=yes", "option tls is true or false"),
            (
                "mongodb://h/?tlsInsecure=true",
                "option tlsInsecure needs tls=true",
            ),
            (
                "mongodb://h/?tls=true&tlsCAFile=/none",
                "Can not read /none",
            ),
            ("mongodb://h/?w=1", "option w is not supported"),
            (
                "mongodb://h/?compressors=zstd",
                "option compressors is not supported",
            ),
            ("mongodb://h/?authSource=admin", "authSource needs a user"),
            (
                "mongodb://h/?authMechanism=SCRAM-SHA-1",
                "authMechanism needs a user",
            ),
            (
                "mongodb://h/?authMechanism=MONGODB-X509",
                "authMechanism=MONGODB-X509 needs tls=true",
            ),
            (
                "mongodb://h/?authMechanism=GSSAPI",
                "authMechanism=GSSAPI is not supported",
            ),
            ("mongodb://h/?authSource=", "authSource has no value"),
            ("mongodb://:27017", "host name is missing"),
            ("mongodb://h:0", "0 is no port"),
            ("mongodb://h:70000", "70000 is no port"),
            ("mongodb://[::1", "closing bracket"),
            ("mongodb://%2Ftmp%2Fs.sock", "Unix socket"),
            ("mongodb://h/?appName", "has no value"),
        ] {
            let e = parse(text).unwrap_err().0;
            assert!(
                e.contains(why) && e.starts_with(&format!("--uri {text}")),
                "{text}: {e}"
            );
        }
    }

    #[test]
    fn no_message_has_the_password() {
        for (text, why) in [
            ("mongodb://u:secret@h:0", "0 is no port"),
            ("mongodb://u:se%cret@h", "followed by two digits"),
            ("mongodb://u:%ffsecret@h", "not UTF-8"),
            ("mongodb://u:secret@x@h", "%40 for @"),
            ("mongodb://u:secret:x@h", "%40 for @"),
            ("mongodb://u:secret/x@h", "after a / or a ?"),
            ("mongodb://u:x?secret@h", "after a / or a ?"),
            ("mongodb://:secret@h", "name is empty"),
            ("mongodb://u:secret@h/?w=1", "option w"),
            (
                "mongodb://h/?tls=false&tlsCertificateKeyFilePassword=secret",
                "tlsCertificateKeyFilePassword needs tls=true",
            ),
            ("mongodb+srv://u:secret@h", "mongodb+srv"),
        ] {
            let e = parse(text).unwrap_err().0;
            assert!(e.contains(why) && !e.contains("secret"), "{text}: {e}");
        }
    }

    #[test]
    fn what_is_redacted() {
        for (text, shown) in [
            ("--seconds=1", "--seconds=1"),
            ("a=mongodb://h/?w=1", "a=mongodb://h/?w=1"),
            ("a=mongodb://u:p@h/?w=1", "a=mongodb://u:***@h/?w=1"),
            ("mongodb+srv://u:p:q@r@h", "mongodb+srv://u:***@h"),
            ("mongodb://u:secret", "mongodb://u:***"),
            ("u:secret@h", "u:***@h"),
            ("MONGODB://u:secret@h", "MONGODB:***@h"),
            ("mongodb//u:secret@h/x", "mongodb//u:***@h/x"),
            ("mongodb://h:1,[::1]:2/x", "mongodb://h:1,[::1]:2/x"),
            ("mongodb://u@h", "mongodb://u@h"),
            (
                "mongodb://h?tlsCertificateKeyFilePassword=p&w=1",
                "mongodb://h?tlsCertificateKeyFilePassword=***&w=1",
            ),
            (
                "mongodb://h/?w=1&authMechanismProperties=A:b",
                "mongodb://h/?w=1&authMechanismProperties=***",
            ),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }
}

//! Connection strings: accepts the options that the raw client can honour, and plainly refuses
//! those that it cannot.

use muniment_load::fail::{Failure, Result};

/// The address of a server, parsed from a connection string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// `host:port`, at least one.
    pub hosts: Vec<String>,
    /// The replica set's name, if one was asked for.
    pub replica_set: Option<String>,
    /// Use the one host given without asking whether it takes writes.
    pub direct: bool,
}

const RAW: &str = "the lab's raw client speaks plain TCP without authentication";

/// Parses `mongodb://host[:port][,host…][/[db]][?options]`.
pub(crate) fn parse(text: &str) -> Result<Uri> {
    let fail = |why: String| Err(Failure(format!("--uri {text}: {why}")));
    if text.starts_with("mongodb+srv://") {
        return fail(format!(
            "mongodb+srv needs DNS look-ups and TLS, but {RAW}; give mongodb://host:port"
        ));
    }
    let Some(rest) = text.strip_prefix("mongodb://") else {
        return fail("it must begin with mongodb://, for example mongodb://127.0.0.1:27017".into());
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, _database) = rest.split_once('/').unwrap_or((rest, ""));
    if hosts.contains('@') {
        return fail(format!("user names are not supported: {RAW}"));
    }
    if hosts.contains('%') {
        return fail("Unix socket paths are not supported; give host:port".into());
    }
    let mut uri = Uri {
        hosts: Vec::new(),
        replica_set: None,
        direct: false,
    };
    for h in hosts.split(',') {
        match host(h) {
            Ok(h) => uri.hosts.push(h),
            Err(why) => return fail(why),
        }
    }
    for option in query.split('&').filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name.to_ascii_lowercase().as_str() {
            "directconnection" => uri.direct = value == "true",
            "replicaset" => uri.replica_set = Some(value.to_string()),
            "tls" | "ssl" if value == "false" => {}
            "tls" | "ssl" => return fail(format!("option {option} is not supported: {RAW}")),
            "appname" | "retrywrites" | "retryreads" if name.len() == option.len() => {
                return fail(format!("option {name} has no value"));
            }
            // These have no meaning for a worker that has one connection and never retries, so they
            // are accepted and ignored.
            "appname" | "retrywrites" | "retryreads" => {}
            "w" | "j" | "journal" | "wtimeoutms" => {
                return fail(format!(
                    "option {name} is not supported: each experiment sets its own write concern"
                ));
            }
            "authsource" | "authmechanism" | "authmechanismproperties" => {
                return fail(format!("option {name} is not supported: {RAW}"));
            }
            _ => {
                return fail(format!(
                    "option {name} is not supported (directConnection, replicaSet, tls=false, appName, retryWrites and retryReads are)"
                ));
            }
        }
    }
    Ok(uri)
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
    #![allow(clippy::unwrap_used)]
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
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("localhost:27017", "must begin with mongodb://"),
            ("mongodb+srv://h", "mongodb+srv"),
            ("mongodb://u:p@h", "user names"),
            ("mongodb://h?tls=true", "option tls=true"),
            ("mongodb://h/?w=1", "option w is not supported"),
            (
                "mongodb://h/?compressors=zstd",
                "option compressors is not supported",
            ),
            ("mongodb://h/?authSource=admin", "option authSource"),
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
}

//! The options of TLS, under their names and under the older ones with `ssl`.
//!
//! Source of the names: the MongoDB manual, "mongod" and "Configuration File Options".

use crate::effects::{Apply, Opt, idle, only, opt, yes};
use crate::gathered::{Arg, Gathered};
use muniment_server::{ClusterAuth, Protocol, TlsMode};
use std::path::PathBuf;

const FIPS: &str = "cannot be had: the cryptography of this build is not certified by FIPS 140";
const SELECTOR: &str = "is for the certificate stores of Windows and macOS: name a file \
                        (tlsCertificateKeyFile, tlsClusterFile)";
const PORTS: &str = "was replaced by --tlsMode";
const OFF: &[&str] = &["false"];

const fn file(flag: &'static str, path: &'static str, doc: &'static str, apply: Apply) -> Opt {
    opt(flag, path, Arg::Text, doc, apply).files()
}

const fn yes_or_no(flag: &'static str, path: &'static str, doc: &'static str, apply: Apply) -> Opt {
    opt(flag, path, Arg::Flag, doc, apply)
}

const MODES: &[&str] = &["disabled", "allowTLS", "preferTLS", "requireTLS"];

fn mode(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls_mode = TlsMode::from_name(v)
        .ok_or_else(|| format!("wants one of {}, not '{v}'", MODES.join(", ")))?;
    Ok(())
}

fn certificate(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.certificate_key_file = Some(PathBuf::from(v));
    Ok(())
}

fn password(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.certificate_key_password = Some(v.to_string().into());
    Ok(())
}

fn cluster(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.cluster_file = Some(PathBuf::from(v));
    Ok(())
}

fn cluster_password(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.cluster_password = Some(v.to_string().into());
    Ok(())
}

fn authorities(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.ca_file = Some(PathBuf::from(v));
    Ok(())
}

fn cluster_authorities(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.cluster_ca_file = Some(PathBuf::from(v));
    Ok(())
}

fn revoked(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.crl_file = Some(PathBuf::from(v));
    Ok(())
}

fn protocols(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.disabled.clear();
    for name in v.split(',').map(str::trim).filter(|n| *n != "none") {
        let known = Protocol::from_name(name.trim_start_matches("no"));
        g.server.tls.disabled.push(known.ok_or_else(|| {
            format!("wants some of TLS1_0, TLS1_1, TLS1_2, TLS1_3, or none; not '{name}'")
        })?);
    }
    Ok(())
}

fn without_certificates(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.allow_connections_without_certificates = yes(v);
    Ok(())
}

fn invalid_hosts(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.allow_invalid_hostnames = yes(v);
    Ok(())
}

fn invalid_certificates(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.tls.allow_invalid_certificates = yes(v);
    Ok(())
}

fn cluster_auth(g: &mut Gathered, v: &str) -> Result<(), String> {
    g.server.cluster_auth = ClusterAuth::from_name(v)
        .ok_or_else(|| format!("wants keyFile, sendKeyFile, sendX509 or x509, not '{v}'"))?;
    Ok(())
}

/// The options of TLS, in the order of `--help`.
pub const ALL: &[Opt] = &[
    opt(
        "tlsMode",
        "net.tls.mode",
        Arg::Text,
        "which connections use TLS: disabled, allowTLS, preferTLS, requireTLS (disabled)",
        mode,
    )
    .words(MODES),
    file(
        "tlsCertificateKeyFile",
        "net.tls.certificateKeyFile",
        "the server's certificate and private key, PEM",
        certificate,
    ),
    opt(
        "tlsCertificateKeyFilePassword",
        "net.tls.certificateKeyFilePassword",
        Arg::Text,
        "password of that key",
        password,
    )
    .secret(),
    file(
        "tlsClusterFile",
        "net.tls.clusterFile",
        "the certificate and key that other members are shown (those of the server)",
        cluster,
    ),
    opt(
        "tlsClusterPassword",
        "net.tls.clusterPassword",
        Arg::Text,
        "password of that key",
        cluster_password,
    )
    .secret(),
    file(
        "tlsCAFile",
        "net.tls.CAFile",
        "certificates of the authorities that are trusted, PEM",
        authorities,
    ),
    file(
        "tlsClusterCAFile",
        "net.tls.clusterCAFile",
        "the same for certificates of clients (those of --tlsCAFile)",
        cluster_authorities,
    ),
    file(
        "tlsCRLFile",
        "net.tls.CRLFile",
        "list of revoked certificates, PEM",
        revoked,
    ),
    opt(
        "tlsDisabledProtocols",
        "net.tls.disabledProtocols",
        Arg::Text,
        "versions that are not spoken, of TLS1_2 and TLS1_3; older ones never are",
        protocols,
    ),
    yes_or_no(
        "tlsAllowConnectionsWithoutCertificates",
        "net.tls.allowConnectionsWithoutCertificates",
        "clients need no certificate although there is --tlsCAFile",
        without_certificates,
    ),
    yes_or_no(
        "tlsAllowInvalidHostnames",
        "net.tls.allowInvalidHostnames",
        "certificates of other members may be for other hosts",
        invalid_hosts,
    ),
    yes_or_no(
        "tlsAllowInvalidCertificates",
        "net.tls.allowInvalidCertificates",
        "any certificate is accepted, and none counts for logging in",
        invalid_certificates,
    ),
    opt(
        "clusterAuthMode",
        "security.clusterAuthMode",
        Arg::Text,
        "what members show each other: keyFile, sendKeyFile, sendX509, x509 (keyFile)",
        cluster_auth,
    )
    .words(&["keyFile", "sendKeyFile", "sendX509", "x509"]),
    only("tlsFIPSMode", "net.tls.FIPSMode", Arg::Flag, OFF, FIPS),
    only(
        "tlsCertificateSelector",
        "net.tls.certificateSelector",
        Arg::Text,
        &[],
        SELECTOR,
    ),
    only(
        "tlsClusterCertificateSelector",
        "net.tls.clusterCertificateSelector",
        Arg::Text,
        &[],
        SELECTOR,
    ),
    only("tlsOnNormalPorts", "", Arg::Flag, OFF, PORTS),
    idle(
        "tlsLogVersions",
        "net.tls.logVersions",
        Arg::Text,
        "no effect: transportSecurity of serverStatus counts the connections of each version",
        &["none"],
    ),
    opt(
        "sslMode",
        "net.ssl.mode",
        Arg::Text,
        "the older name of --tlsMode: disabled, allowSSL, preferSSL, requireSSL",
        mode,
    ),
    file(
        "sslPEMKeyFile",
        "net.ssl.PEMKeyFile",
        "the older name of --tlsCertificateKeyFile",
        certificate,
    ),
    opt(
        "sslPEMKeyPassword",
        "net.ssl.PEMKeyPassword",
        Arg::Text,
        "the older name of --tlsCertificateKeyFilePassword",
        password,
    )
    .secret(),
    file(
        "sslClusterFile",
        "net.ssl.clusterFile",
        "the older name of --tlsClusterFile",
        cluster,
    ),
    opt(
        "sslClusterPassword",
        "net.ssl.clusterPassword",
        Arg::Text,
        "the older name of --tlsClusterPassword",
        cluster_password,
    )
    .secret(),
    file(
        "sslCAFile",
        "net.ssl.CAFile",
        "the older name of --tlsCAFile",
        authorities,
    ),
    file(
        "sslClusterCAFile",
        "net.ssl.clusterCAFile",
        "the older name of --tlsClusterCAFile",
        cluster_authorities,
    ),
    file(
        "sslCRLFile",
        "net.ssl.CRLFile",
        "the older name of --tlsCRLFile",
        revoked,
    ),
    opt(
        "sslDisabledProtocols",
        "net.ssl.disabledProtocols",
        Arg::Text,
        "the older name of --tlsDisabledProtocols",
        protocols,
    ),
    yes_or_no(
        "sslAllowConnectionsWithoutCertificates",
        "net.ssl.allowConnectionsWithoutCertificates",
        "the older name of --tlsAllowConnectionsWithoutCertificates",
        without_certificates,
    ),
    yes_or_no(
        "sslWeakCertificateValidation",
        "net.ssl.weakCertificateValidation",
        "an older name of --tlsAllowConnectionsWithoutCertificates",
        without_certificates,
    ),
    yes_or_no(
        "sslAllowInvalidHostnames",
        "net.ssl.allowInvalidHostnames",
        "the older name of --tlsAllowInvalidHostnames",
        invalid_hosts,
    ),
    yes_or_no(
        "sslAllowInvalidCertificates",
        "net.ssl.allowInvalidCertificates",
        "the older name of --tlsAllowInvalidCertificates",
        invalid_certificates,
    ),
    only("sslFIPSMode", "net.ssl.FIPSMode", Arg::Flag, OFF, FIPS),
];

//! The first bytes of a connection, as a server and as a client receives them.
#![no_main]
use muniment_tls::{Endpoint, Mode, Settings};
use std::sync::{Arc, LazyLock};

/// A server with a certificate of its own, which it also trusts. Its files are gone once they were read.
static ENDPOINT: LazyLock<Arc<Endpoint>> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("muniment-fuzz-{}.pem", std::process::id()));
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
    let pem = made.signing_key.serialize_pem() + &made.cert.pem();
    std::fs::write(&path, pem).unwrap();
    let settings = Settings {
        certificate_key_file: Some(path.clone()),
        ca_file: Some(path.clone()),
        allow_connections_without_certificates: true,
        ..Settings::default()
    };
    let endpoint = Endpoint::new(Mode::Prefer, settings).unwrap();
    std::fs::remove_file(path).unwrap();
    Arc::new(endpoint)
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| muniment_tls::fuzzing::greeting(data, &ENDPOINT));

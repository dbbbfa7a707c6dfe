//! The body of the fuzz target `sasl`: see [`crate::fuzzing`].

use super::client::ServerFirst;
use super::{ClientFirst, Credentials, Exchange, MOST_PAYLOAD, Mechanism, NONCE_CHARS};
use base64::{Engine, prelude::BASE64_STANDARD};
use muniment_value::Code;
use zeroize::Zeroizing;

/// The server's nonce. In a server it is random.
const NONCE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
/// What stands between a client's first message and its final one. It is in no text.
const BETWEEN: u8 = 0xFF;
/// The key of the client that knows the password.
const CLIENT_KEY: [u8; 32] = [7; 32];

/// Reads `data` as the mechanism, and the first and the final message of a client, with [`BETWEEN`] between
/// them. The final message is also taken as what follows the header and the nonce, so that mutations get past
/// these, once with a wrong proof and once with the right one.
///
/// Only the client with the key may log in, only as a user that exists, and only once.
pub(crate) fn sasl(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let mechanism = match choice & 1 {
        0 => Mechanism::Sha1,
        _ => Mechanism::Sha256,
    };
    let _ = ServerFirst::parse(data, "fyko+d2lbbFgONRv9qkxdawL");
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = crate::prep::sasl_prep(text);
    }
    let mut parts = data.splitn(2, |b| *b == BETWEEN);
    let payload = parts.next().unwrap_or_default();
    let rest = parts.next().unwrap_or_default();
    let Ok(first) = ClientFirst::parse(payload) else {
        return;
    };
    assert!(payload.len() <= MOST_PAYLOAD && NONCE_CHARS.contains(&first.nonce().len()));
    assert!(!first.user().is_empty() && !first.user().contains('\0'));
    let begin = |known| Exchange::begin(first.clone(), credentials(mechanism), NONCE, known);
    refused(&mut begin(true).0, rest);

    let own = String::from_utf8_lossy(payload);
    let bare = own.splitn(3, ',').last().unwrap_or_default();
    let header = BASE64_STANDARD.encode(own.strip_suffix(bare).unwrap_or_default());
    let more = String::from_utf8_lossy(rest);
    let unproven = format!("c={header},r={}{NONCE}{more}", first.nonce());
    let with = |proof: &[u8]| format!("{unproven},p={}", BASE64_STANDARD.encode(proof));
    let wrong = client_key(mechanism).iter().map(|b| !b);
    let wrong = with(&wrong.collect::<Vec<u8>>());
    let (mut exchange, server_first) = begin(true);
    let is_well_formed = refused(&mut exchange, wrong.as_bytes()) == Code::AuthenticationFailed;

    let spoken = format!("{bare},{server_first},{unproven}");
    let stored = mechanism.hash(client_key(mechanism));
    let signature = mechanism.hmac(&stored, &[spoken.as_bytes()]);
    let pairs = signature.iter().zip(client_key(mechanism));
    let right = with(&pairs.map(|(a, b)| a ^ b).collect::<Vec<u8>>());
    let (mut exchange, _) = begin(true);
    let came = exchange.finish(right.as_bytes());
    assert_eq!(came.is_ok(), is_well_formed, "{right:?}: {came:?}");
    refused(&mut exchange, right.as_bytes());
    refused(&mut begin(false).0, right.as_bytes());
}

/// Checks that a message does not log in, and returns the error's code.
fn refused(exchange: &mut Exchange, message: &[u8]) -> Code {
    let code = exchange.finish(message).err().map(|e| e.code());
    let expected = [Code::BadValue, Code::AuthenticationFailed];
    let code = code.filter(|code| expected.contains(code));
    assert!(code.is_some(), "{message:?}");
    code.unwrap_or(Code::BadValue)
}

fn client_key(mechanism: Mechanism) -> &'static [u8] {
    CLIENT_KEY.get(..mechanism.hash_len()).unwrap_or_default()
}

/// The credentials that belong to [`CLIENT_KEY`].
fn credentials(mechanism: Mechanism) -> Credentials {
    Credentials {
        mechanism,
        iterations: mechanism.default_iterations(),
        salt: Zeroizing::new(vec![1; mechanism.salt_len()]),
        stored_key: mechanism.hash(client_key(mechanism)),
        server_key: Zeroizing::new(vec![2; mechanism.hash_len()]),
    }
}

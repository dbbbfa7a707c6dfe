//! The bodies of the fuzz targets `greeting` and `certificate`, which are shared with the test that replays
//! their corpora. They panic if an invariant of the crate does not hold, so production code must never call
//! them.

use crate::names::{membership, rfc2253};
use crate::{Certificate, Endpoint, Mode, Refused, Socket, greets};
use rustix::net::{SendFlags, send};
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use x509_cert::der::Decode;
use x509_cert::name::Name;

/// The most bytes of an input, which the buffer of a socket takes at once.
const MOST: usize = 64 << 10;
/// The object identifiers of attributes that names are made of, as they are encoded: O, OU, CN, DC, one that
/// has no short name, and emailAddress.
const KINDS: [&[u8]; 6] = [
    &[0x55, 4, 10],
    &[0x55, 4, 11],
    &[0x55, 4, 3],
    &[9, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25],
    &[0x2A, 3],
    &[0x2A, 0x86, 0x48, 0x86, 0xF7, 13, 1, 9, 1],
];
/// The tags of their values: the kinds of strings, a number, and bytes.
const TAGS: [u8; 8] = [12, 19, 22, 20, 30, 28, 2, 4];

/// Has a server read `data` from a client, in two pieces; then a client read it from a server. The first byte
/// has the server's mode, and the second where the pieces are cut.
///
/// Bytes without TLS arrive as they were sent, unless the mode refuses them. Nothing else arrives, nothing is
/// waited for, and the connection ends.
pub fn greeting(data: &[u8], endpoint: &Arc<Endpoint>) {
    let (Some((mode, data)), true) = (data.split_first(), data.len() < MOST) else {
        return;
    };
    let Some((cut, data)) = data.split_first() else {
        return;
    };
    decides_once(data);
    endpoint.set_mode(match mode % 3 {
        0 => Mode::Allow,
        1 => Mode::Prefer,
        _ => Mode::Require,
    });
    let parts = data.split_at(usize::from(*cut).min(data.len()));
    let served = serve(parts, endpoint, mode & 4 == 0);
    assert!(served.is_ok(), "the test's own sockets: {served:?}");
    if mode & 8 != 0 {
        let called = call(data, endpoint);
        assert!(called.is_ok(), "the test's own sockets: {called:?}");
    }
}

/// What a few bytes show does not change with more bytes.
fn decides_once(data: &[u8]) {
    let mut before = None;
    for n in 0..=data.len().min(64) {
        let now = greets(data.get(..n).unwrap_or_default());
        assert!(before.is_none() || now == before);
        assert!(now.is_some() || n < 11);
        before = now;
    }
}

/// A connection's two ends.
fn ends() -> io::Result<(TcpStream, TcpStream)> {
    let (near, far) = UnixStream::pair()?;
    Ok((
        TcpStream::from(OwnedFd::from(near)),
        TcpStream::from(OwnedFd::from(far)),
    ))
}

fn put(to: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let sent = send(to, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    // The other side may have ended the connection.
    match sent {
        Ok(n) => assert_eq!(n, bytes.len()),
        Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(())
}

fn serve(parts: (&[u8], &[u8]), endpoint: &Arc<Endpoint>, ends_first: bool) -> io::Result<()> {
    let (near, far) = ends()?;
    let socket = Socket::accepted(near, Arc::clone(endpoint));
    let mut arrived = Vec::new();
    put(&far, parts.0)?;
    let mut ended = read(&socket, &mut arrived);
    put(&far, parts.1)?;
    let _ = socket.has_ended();
    if ends_first {
        far.shutdown(Shutdown::Write)?;
        ended = read(&socket, &mut arrived) || ended;
        assert!(ended && socket.has_ended());
    } else {
        ended = read(&socket, &mut arrived) || ended;
    }
    let sent = [parts.0, parts.1].concat();
    let is_plain = greets(&sent) == Some(false) && endpoint.mode() != Mode::Require;
    match is_plain {
        true => assert_eq!(arrived, sent),
        false => assert!(arrived.is_empty()),
    }
    // A stranger cannot get through the handshake.
    assert!(socket.version().is_none() && socket.certificate().is_none());
    if !is_plain {
        assert!(socket.write_at_once(b"x").is_err());
    }
    socket.shrink_idle();
    assert!(ended || !socket.has_ended());
    let _ = socket.shutdown();
    Ok(())
}

/// Reads all that there is. True at the end of the connection.
fn read(socket: &Socket, into: &mut Vec<u8>) -> bool {
    let mut buf = [0; 1000];
    let mut reads = 0;
    loop {
        reads += 1;
        assert!(reads < 2 * MOST, "reading does not end");
        match socket.read_at_once(&mut buf) {
            Ok(0) => return true,
            Ok(n) => into.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
            Err(e) => {
                assert!(Refused::of(&e).is_some(), "{e}");
                assert!(socket.has_ended());
                return true;
            }
        }
    }
}

/// A client whose server sends these bytes, and ends the connection.
fn call(data: &[u8], endpoint: &Arc<Endpoint>) -> io::Result<()> {
    let (near, far) = ends()?;
    put(&far, data)?;
    far.shutdown(Shutdown::Write)?;
    let limit = Duration::from_secs(20);
    let came = Socket::connect(near, endpoint, "localhost", limit);
    let kind = came.err().map(|e| e.kind());
    assert!(kind.is_some_and(|kind| kind != ErrorKind::TimedOut));
    Ok(())
}

/// Reads `data` as a certificate, then as the encoding of a name, and makes a name of it.
///
/// A name that is printed has exactly the parts that it was made of: a value can neither begin another part
/// nor another line.
pub fn certificate(data: &[u8]) {
    if let Ok(c) = Certificate::parse(data) {
        assert!(!c.subject.contains(char::is_control));
        assert_eq!(c.membership.is_of(&c.membership), !c.membership.is_empty());
        assert_eq!(Certificate::parse(data).ok().as_ref(), Some(&c));
        let _ = c.expires_within(Duration::from_secs(1));
    }
    name(data);
    let made = made_of(data);
    name(&made);
}

fn name(der: &[u8]) {
    let Ok(name) = Name::from_der(der) else {
        return;
    };
    let Ok(printed) = rfc2253(&name) else { return };
    assert!(!printed.contains(char::is_control), "{printed:?}");
    let sets: Vec<usize> = name
        .as_ref()
        .iter()
        .map(|set| set.as_ref().iter().count())
        .collect();
    let (mut commas, mut plus, mut quoted) = (0, 0, false);
    for c in printed.chars() {
        match c {
            _ if quoted => quoted = false,
            '\\' => quoted = true,
            ',' => commas += 1,
            '+' => plus += 1,
            _ => assert!(!matches!(c, '"' | '<' | '>' | ';'), "{printed:?}"),
        }
    }
    assert!(!quoted, "{printed:?}");
    assert_eq!(commas, sets.len().saturating_sub(1), "{printed:?}");
    let inner: usize = sets.iter().map(|n| n.saturating_sub(1)).sum();
    assert_eq!(plus, inner, "{printed:?}");
    let _ = membership(&name);
}

/// The encoding of a name whose attributes follow from `data`: a byte with the kind and the tag, the length,
/// and the value.
fn made_of(mut data: &[u8]) -> Vec<u8> {
    let mut name = Vec::new();
    while let [kind, len, rest @ ..] = data {
        let (value, rest) = rest.split_at(usize::from(*len % 24).min(rest.len()));
        data = rest;
        let oid = KINDS.get(usize::from(kind >> 4) % KINDS.len());
        let tag = TAGS.get(usize::from(kind & 7));
        let (Some(oid), Some(tag)) = (oid, tag) else {
            continue;
        };
        let attribute = [tlv(6, oid), tlv(*tag, value)].concat();
        name.extend(tlv(0x31, &tlv(0x30, &attribute)));
        if name.len() > 60_000 {
            break;
        }
    }
    tlv(0x30, &name)
}

/// A tag, the length, and the value.
fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let len = value.len();
    let mut out = vec![tag];
    match len {
        0..128 => out.push(len as u8),
        128..256 => out.extend([0x81, len as u8]),
        _ => out.extend([0x82, (len >> 8) as u8, len as u8]),
    }
    out.extend_from_slice(value);
    out
}

//! Where a server can be reached.

/// See the module's head.
pub struct Address {
    /// The bound TCP port.
    pub port: u16,
    /// The machine's name and the port, as serverStatus shows them.
    pub host: String,
}

impl Address {
    /// The address of a server that listens on this port.
    pub fn new(port: u16) -> Address {
        Address {
            port,
            host: format!("{}:{port}", hostname()),
        }
    }
}

/// The machine's name.
pub fn hostname() -> String {
    let mut buf = [0_u8; 256];
    // SAFETY: the buffer is ours and its length is given.
    let rc = unsafe { libc::gethostname(buf.as_mut_ptr().cast(), buf.len()) };
    if rc != 0 {
        return "localhost".to_string();
    }
    let end = buf.iter().position(|b| *b == 0).unwrap_or(buf.len());
    String::from_utf8_lossy(buf.get(..end).unwrap_or_default()).into_owned()
}

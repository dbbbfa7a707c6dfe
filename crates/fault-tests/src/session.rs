//! A client with a session, which goes on where the server comes back, and the address where it
//! does.

use muniment_value::{Code, DocBuf, Value, doc, number};
use muniment_wire::Connection;
use std::sync::Mutex;
use std::time::Duration;

/// Where the server is, for threads that go on when it comes back elsewhere.
#[derive(Debug)]
pub struct Address(Mutex<Option<String>>);

impl Address {
    /// The server's address now.
    pub fn new(address: String) -> Address {
        Address(Mutex::new(Some(address)))
    }

    /// The server came back at this address.
    ///
    /// # Panics
    /// If a thread did that holds it.
    pub fn set(&self, address: String) {
        *self.0.lock().unwrap() = Some(address);
    }

    /// Where it is; `None` when the test failed elsewhere, and nobody is to go on.
    ///
    /// # Panics
    /// As [`Address::set`].
    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap().clone()
    }

    /// To be held by the thread that runs the others: they end when it panics.
    pub fn guard(&self) -> Guard<'_> {
        Guard(self)
    }
}

/// See [`Address::guard`].
#[derive(Debug)]
pub struct Guard<'a>(&'a Address);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut address) = self.0.0.lock()
        {
            *address = None;
        }
    }
}

/// A session of a client that loses its server and finds it again at another address.
pub struct Session<'a> {
    address: &'a Address,
    connection: Option<Connection>,
    lsid: [u8; 16],
    number: i64,
}

impl<'a> Session<'a> {
    /// Session number `of`, with the server that is at `address` at the time.
    pub fn new(address: &'a Address, of: u8) -> Session<'a> {
        let mut lsid = [0; 16];
        lsid[0] = of;
        Session {
            address,
            connection: None,
            lsid,
            number: 0,
        }
    }

    /// The next commands are of another transaction, or another retryable write.
    pub fn begin(&mut self) {
        self.number += 1;
    }

    /// The command as a retryable write.
    pub fn retryable(&self, command: &DocBuf) -> DocBuf {
        let mut d = command.clone();
        let id = Value::Binary {
            subtype: 4,
            bytes: &self.lsid,
        };
        d.append("lsid", doc! { "id": id });
        d.append("txnNumber", self.number);
        d
    }

    /// The command as one of a transaction, its first if it `starts` it.
    pub fn in_transaction(&self, command: &DocBuf, starts: bool) -> DocBuf {
        let mut d = self.retryable(command);
        d.append("autocommit", false);
        if starts {
            d.append("startTransaction", true);
        }
        d
    }

    /// Sends once; `None` when the connection ended before the answer, or there is no server.
    ///
    /// # Panics
    /// If the test failed elsewhere.
    pub fn send(&mut self, db: &str, command: &DocBuf) -> Option<DocBuf> {
        let address = self.address.get().expect("another thread failed");
        if self.connection.is_none() {
            self.connection = Connection::connect(&address).ok();
            if self.connection.is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let reply = self.connection.as_mut()?.command_raw(db, command).ok();
        if reply.is_none() {
            self.connection = None;
        }
        reply
    }
}

/// The code of a reply that is an error.
pub fn code_of(reply: &DocBuf) -> Option<Code> {
    let code = reply.as_doc().get("code").and_then(number::to_i64_exact)?;
    i32::try_from(code).ok().map(Code)
}

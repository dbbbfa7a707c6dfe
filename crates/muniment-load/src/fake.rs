//! Test only: a server that replies by a script and records the commands that it receives.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use muniment_value::{Doc, DocBuf};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The commands that a server has received on all connections, in the order of their arrival.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<DocBuf>>>);

impl Heard {
    /// All commands so far.
    pub fn all(&self) -> Vec<DocBuf> {
        self.0.lock().unwrap().clone()
    }
}

/// Starts a server. `answer` gets the number of the command (from 0) and its body. Returns the address and
/// the record of commands. The server ends with the test's process.
pub fn server(answer: impl FnMut(usize, Doc<'_>) -> DocBuf + Send + 'static) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heard = Heard::default();
    let answer = Arc::new(Mutex::new(answer));
    let kept = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, heard) = (answer.clone(), kept.clone());
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                while let Some((id, body)) = request(&mut stream) {
                    let n = {
                        let mut all = heard.0.lock().unwrap();
                        all.push(body.clone());
                        all.len() - 1
                    };
                    let reply = (answer.lock().unwrap())(n, body.as_doc());
                    let mut m = Vec::new();
                    for word in [21 + reply.as_bytes().len() as i32, 0, id, 2013, 0] {
                        m.extend_from_slice(&word.to_le_bytes());
                    }
                    m.push(0);
                    m.extend_from_slice(reply.as_bytes());
                    if stream.write_all(&m).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, heard)
}

/// Reads a request's number and body; `None` if the client has disconnected.
fn request(stream: &mut TcpStream) -> Option<(i32, DocBuf)> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).ok()?;
    let word = |at: usize| i32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let mut rest = vec![0; word(0) as usize - 16];
    stream.read_exact(&mut rest).ok()?;
    let size = i32::from_le_bytes(rest[5..9].try_into().unwrap()) as usize;
    Some((word(4), Doc::new(&rest[5..5 + size]).to_buf()))
}

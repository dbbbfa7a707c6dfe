//! A connection between two servers, as the one that has opened it sees it.

use super::fibres::{Here, here};
use super::world::{Line, MS, What};
use muniment_value::{Code, DocBuf, Error, Result, doc};
use muniment_wire::begin_request;
use muniment_wire::client::check_ok;
use std::sync::Arc;
use std::time::Duration;

/// See the module's head.
pub struct Wire {
    here: Arc<Here>,
    line: u64,
}

fn broken() -> Error {
    Error::new(Code::SocketException, "the connection has ended")
}

fn unreachable(host: &str) -> Error {
    Error::new(Code::HostUnreachable, format!("{host}: unreachable"))
}

impl Wire {
    /// Connects to a server; `None` outside of simulations.
    pub fn open(host: &str) -> Option<Result<Wire>> {
        Some(Wire::open_from(here()?, host))
    }

    fn open_from(here: Arc<Here>, host: &str) -> Result<Wire> {
        let delay = here.world.lock().delay();
        here.sleep(delay);
        let mut inner = here.world.lock();
        if inner.is_dead(here.fibre) {
            return Err(unreachable(host));
        }
        let from = inner.fibres[&here.fibre].place.unwrap();
        let to = inner.processes.iter().position(|p| p.host == host);
        let to = to.ok_or_else(|| unreachable(host))?;
        if inner.is_cut(from.0, to) {
            let time = inner.random.below(2000) * MS;
            drop(inner);
            here.sleep(time);
            return Err(unreachable(host));
        }
        let process = &inner.processes[to];
        if process.state.is_none() {
            return Err(unreachable(host));
        }
        let line = Line {
            from,
            to: (to, process.run),
            user: here.fibre,
            reply: None,
            ended: false,
        };
        let number = inner.next_number();
        inner.lines.insert(number, line);
        drop(inner);
        Ok(Wire { here, line: number })
    }

    /// The fibre that uses it now. A connection that was kept is taken by others.
    fn user(&self) -> Arc<Here> {
        here().unwrap_or_else(|| Arc::clone(&self.here))
    }

    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        let here = self.user();
        let mut inner = here.world.lock();
        if inner.is_dead(here.fibre) {
            return Err(broken());
        }
        let loss = !inner.calm && inner.random.below(1000) < inner.rough.loss;
        let delay = inner.delay();
        let line = inner.lines.get_mut(&self.line).ok_or_else(broken)?;
        if line.ended {
            return Err(broken());
        }
        line.user = here.fibre;
        let what = match loss {
            true => What::Break(self.line),
            false => What::Deliver(self.line, message.to_vec()),
        };
        inner.at(delay, what);
        Ok(())
    }

    pub fn wait_for_reply(&self, limit: Duration) -> bool {
        let here = self.user();
        let until = here.world.lock().now() + limit.as_micros() as u64;
        loop {
            {
                let inner = here.world.lock();
                let line = inner.lines.get(&self.line);
                if line.is_none_or(|l| l.ended || l.reply.is_some()) || inner.is_dead(here.fibre) {
                    return true;
                }
                if inner.now() >= until {
                    return false;
                }
            }
            here.rest(Some(until));
        }
    }

    pub fn receive(&mut self) -> Result<DocBuf> {
        let here = self.user();
        let mut inner = here.world.lock();
        if inner.is_dead(here.fibre) {
            return Err(broken());
        }
        let line = inner.lines.get_mut(&self.line);
        line.and_then(|l| l.reply.take()).ok_or_else(broken)
    }

    pub fn has_ended(&self) -> bool {
        let here = self.user();
        let inner = here.world.lock();
        inner.lines.get(&self.line).is_none_or(|l| l.ended)
    }

    pub fn hello(&mut self) -> Result<DocBuf> {
        let hello = doc! { "hello": 1, "$db": "admin" };
        let mut message = Vec::new();
        begin_request(&mut message, 1, 0)
            .body(hello.as_doc())
            .finish()?;
        self.send(&message)?;
        if !self.wait_for_reply(Duration::from_secs(5)) {
            return Err(Error::new(Code::NetworkTimeout, "no answer in time"));
        }
        let reply = self.receive()?;
        check_ok(reply.as_doc())?;
        Ok(reply)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // What is under way on it still arrives.
        if let Some(mut inner) = self.here.world.try_lock()
            && let Some(line) = inner.lines.get_mut(&self.line)
        {
            line.ended = true;
        }
    }
}

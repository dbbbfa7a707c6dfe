//! What clients send, and what they make of the replies.

use super::oracle::{Change, Row};
use super::random::Random;
use muniment_member::node;
use muniment_value::{ArrayBuf, Doc, DocBuf, Value, array, doc, number};

pub const DB: &str = "t";
/// Rows into which tokens are pushed.
pub const ROWS: &str = "rows";
/// The same for transactions, and rows that come and go.
pub const OTHER: &str = "other";

/// A token, and what it does.
pub type Token = (i64, Vec<Change>);

/// What a statement writes, and how its records are known.
#[derive(Clone)]
pub struct Writes {
    /// The id of its session.
    session: [u8; 16],
    /// Its number there.
    number: i64,
    /// What each token does.
    pub tokens: Vec<Token>,
}

impl Writes {
    /// The tokens that a record of a log has written.
    pub fn of_record<'a>(&'a self, payload: &'a [u8]) -> impl Iterator<Item = &'a Token> {
        let has = |wanted: &[u8]| payload.windows(wanted.len()).any(|w| w == wanted);
        // Other statements' records have the rows that they return, with all tokens. The number stands
        // after a session's id and user, a length of one to three bytes, and two more.
        let number = self.number.to_le_bytes();
        let behind = payload.windows(self.session.len() + 32 + 3 + 2 + number.len());
        let ours = behind.filter(|b| b.starts_with(&self.session)).any(|b| {
            let rest = b.get(self.session.len() + 32 + 1 + 2..);
            rest.is_some_and(|r| r.windows(number.len()).any(|w| w == number))
        });
        self.tokens.iter().filter(move |(token, changes)| {
            // The token of a deletion stands nowhere.
            let deletes = matches!(changes.as_slice(), [Change::Delete(_)]);
            ours && (deletes || has(&token.to_le_bytes()))
        })
    }
}

/// One statement for the set, with all that is needed to send it again.
pub struct Op {
    pub kind: &'static str,
    /// Commands that are sent one after the other; of a transaction all but the last are sent anew only
    /// together.
    pub commands: Vec<DocBuf>,
    pub writes: Writes,
    pub majority: bool,
    pub attempts: u32,
    /// It may have been done already.
    pub unsure: bool,
    /// The command that is next, of a transaction that is open in this process of a member.
    pub open: Option<(usize, usize, u64)>,
}

/// A write whose acknowledgement is waited for.
pub struct Wait {
    pub member: usize,
    pub run: u64,
    pub waiting: node::Wait,
    pub index: u64,
    pub term: u64,
    pub until: u64,
}

pub struct Client {
    pub number: usize,
    session: u64,
    txn: i64,
    pub op: Option<Op>,
    pub wait: Option<Wait>,
    /// Rows of its own that are there for certain: it may take them away.
    pub own: Vec<i64>,
    /// The member that the client believes to be primary.
    pub primary: Option<usize>,
}

impl Client {
    pub fn new(number: usize) -> Client {
        Client {
            number,
            session: 0,
            txn: 0,
            op: None,
            wait: None,
            own: Vec::new(),
            primary: None,
        }
    }

    fn session_id(&self) -> [u8; 16] {
        let mut id = [0x40; 16];
        id[0] = self.number as u8;
        id[1..9].copy_from_slice(&self.session.to_le_bytes());
        id
    }

    fn lsid(&self) -> DocBuf {
        doc! { "id": Value::Binary { subtype: 4, bytes: &self.session_id() } }
    }

    fn retryable(&self, mut body: DocBuf) -> DocBuf {
        body.append("$db", DB);
        body.append("lsid", self.lsid());
        body.append("txnNumber", self.txn);
        body.append("writeConcern", doc! { "w": 1 });
        body
    }

    fn in_transaction(&self, mut body: DocBuf, first: bool) -> DocBuf {
        body.append("$db", DB);
        body.append("lsid", self.lsid());
        body.append("txnNumber", self.txn);
        body.append("autocommit", false);
        if first {
            body.append("startTransaction", true);
        }
        body
    }

    /// Draws the next operation. `token`: the last one that was given out.
    pub fn draw(&mut self, random: &mut Random, token: &mut i64) {
        self.txn += 1;
        if random.one_in(40) {
            // Another session.
            (self.session, self.txn) = (self.session + 1, 1);
        }
        let mut next = || {
            *token += 1;
            *token
        };
        let row = |random: &mut Random| (ROWS, random.below(12) as i64);
        let (kind, commands, tokens) = match random.below(10) {
            0 | 1 => {
                let tokens: Vec<i64> = (0..1 + random.below(3)).map(|_| next()).collect();
                let docs: ArrayBuf = tokens.iter().map(|t| fresh(*t)).collect();
                let body = doc! { "insert": OTHER, "documents": docs };
                let of = |t: &i64| (*t, vec![Change::Insert((OTHER, 1000 + *t))]);
                let tokens = tokens.iter().map(of).collect();
                ("insert", vec![self.retryable(body)], tokens)
            }
            2 if !self.own.is_empty() => {
                let id = self
                    .own
                    .swap_remove(random.below(self.own.len() as u64) as usize);
                let t = next();
                let q = doc! { "q": doc! { "_id": id }, "limit": 1 };
                let body = doc! { "delete": OTHER, "deletes": array![q] };
                let change = vec![Change::Delete((OTHER, id))];
                ("delete", vec![self.retryable(body)], vec![(t, change)])
            }
            3 => {
                let (row, t) = (row(random), next());
                let body = doc! {
                    "findAndModify": ROWS, "query": doc! { "_id": row.1 },
                    "update": push(t), "upsert": true, "new": random.one_in(2),
                };
                let tokens = vec![(t, vec![Change::Push(row)])];
                ("findAndModify", vec![self.retryable(body)], tokens)
            }
            4 => {
                let (a, b) = (row(random), row(random));
                let (s, t) = (next(), next());
                let updates = array![update(a, s), update(b, t)];
                let body = doc! { "update": ROWS, "updates": updates };
                let tokens = vec![(s, vec![Change::Push(a)]), (t, vec![Change::Push(b)])];
                ("two updates", vec![self.retryable(body)], tokens)
            }
            5 | 6 => {
                let t = next();
                let rows: [Row; 2] = [
                    (ROWS, 100 + self.number as i64),
                    (OTHER, random.below(5) as i64),
                ];
                let mut commands: Vec<DocBuf> = rows
                    .iter()
                    .enumerate()
                    .map(|(i, row)| {
                        let body = doc! { "update": row.0, "updates": array![update(*row, t)] };
                        self.in_transaction(body, i == 0)
                    })
                    .collect();
                let mut commit = self.in_transaction(doc! { "commitTransaction": 1 }, false);
                commit.append("writeConcern", doc! { "w": 1 });
                replace_db(&mut commit);
                commands.push(commit);
                let changes = rows.iter().map(|r| Change::Push(*r)).collect();
                ("transaction", commands, vec![(t, changes)])
            }
            _ => {
                let (row, t) = (row(random), next());
                let body = doc! { "update": ROWS, "updates": array![update(row, t)] };
                let tokens = vec![(t, vec![Change::Push(row)])];
                ("update", vec![self.retryable(body)], tokens)
            }
        };
        self.op = Some(Op {
            kind,
            commands,
            writes: Writes {
                session: self.session_id(),
                number: self.txn,
                tokens,
            },
            majority: random.one_in(2),
            attempts: 0,
            unsure: false,
            open: None,
        });
    }
}

/// `commitTransaction` goes to `admin`.
fn replace_db(body: &mut DocBuf) {
    let mut out = DocBuf::new();
    for e in body.as_doc() {
        match e.name() {
            "$db" => drop(out.append("$db", "admin")),
            name => drop(out.append(name, e.value())),
        }
    }
    *body = out;
}

fn fresh(token: i64) -> DocBuf {
    doc! {
        "_id": 1000 + token, "h": array![token], "u": token, "a": token % 7,
        "m": array![token % 3, token % 5], "pad": "p".repeat((token % 90) as usize),
    }
}

fn push(token: i64) -> DocBuf {
    doc! {
        "$push": doc! { "h": token, "m": token % 11 },
        "$set": doc! { "a": token % 7, "u": token },
        "$inc": doc! { "n": 1_i64 },
    }
}

fn update(row: Row, token: i64) -> DocBuf {
    doc! { "q": doc! { "_id": row.1 }, "u": push(token), "upsert": true }
}

/// What a reply says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Done,
    /// It was not done, or perhaps it was.
    Failed(i32, String),
}

pub fn said(reply: Doc<'_>) -> Said {
    let code = |d: Doc<'_>| d.get("code").and_then(number::to_i64_clamped).unwrap_or(0) as i32;
    let text = |d: Doc<'_>| d.get_str("errmsg").unwrap_or_default().to_string();
    if reply.get("ok").and_then(number::to_f64) != Some(1.0) {
        return Said::Failed(code(reply), text(reply));
    }
    let first = reply
        .get_array("writeErrors")
        .and_then(|a| a.values().next());
    match first.and_then(|v| v.as_doc()) {
        Some(e) => Said::Failed(code(e), text(e)),
        None => Said::Done,
    }
}

/// The tokens in a row.
pub fn tokens_of(d: Doc<'_>) -> Vec<i64> {
    let h = d.get_array("h").unwrap_or(Doc::EMPTY);
    h.values().filter_map(number::to_i64_exact).collect()
}

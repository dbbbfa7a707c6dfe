//! Scripts: commands and their replies, in a text that reads like a session in the shell.
//!
//! ```text
//! # A title: the following steps have a database of their own, which is empty
//! > {insert: 'c', documents: [{_id: 1}]}
//! > {find: 'c'}
//! = [{_id: 1}]
//! > {count: 'c'}
//! < {n: 1}
//! > {insert: 'c', documents: [{_id: 1}]}
//! ! 11000 E11000 duplicate key
//! ```
//!
//! `>` is a command (`>admin ` runs it in that database; following lines that begin with white space belong
//! to it), `//` a comment. The reply must be:
//!
//! | | |
//! |---|---|
//! | nothing | `ok: 1` and no write error (write errors also fail every other form except `!`, unless `ok: 0` is asked for) |
//! | `= [ … ]` | exactly these documents in the cursor's batch, including types and order of fields |
//! | `~ [ … ]` | the same in any order |
//! | `: [ … ]` | these documents as a shell prints them: the fields in this order, but a plain number may have another type with the same value (`2` may be a double), and `ANY` is any value |
//! | `% [ … ]` | the same in any order |
//! | `< { … }` | these fields, at every depth, equal by the rules of the query language; `ANY` is any value, `NONE` means that there is no such field |
//! | `! CODE text` | an error, or a first write error, with this code, and with this text in its message (a line end is written `\n`) |
//!
//! In a command, `$CURSOR` stands for the id of the last cursor, `$UUID` for that of the collection that was
//! listed last, and `$DB` for the name of the database.

use crate::shell::{shell, shell_text, shell_value};
use muniment_value::{ArrayBuf, Doc, DocBuf, Value, ValueBuf, keyenc, values_equal};
use muniment_wire::Connection;

/// How a script's commands come to a deployment.
pub trait Deployment {
    /// Called before a command runs in a database.
    fn before(&mut self, _db: &str, _command: Doc<'_>) {}

    /// Called after a command has succeeded.
    fn after(&mut self, _db: &str, _command: Doc<'_>) {}

    /// Whether documents come in the order of one server, unless a sort says another one.
    fn one_order(&self) -> bool {
        true
    }
}

/// A single server.
impl Deployment for () {}

/// A step whose reply differs from what its script says.
#[derive(Debug)]
pub struct Difference {
    /// The script's name, and the step's line in it.
    pub at: (String, usize),
    /// The title of its section.
    pub title: String,
    /// The command, and what differs.
    pub text: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, line) = &self.at;
        write!(f, "{name}:{line} ({})\n  {}", self.title, self.text)
    }
}

/// Runs a script on a server. Returns the differences, one per line.
///
/// # Panics
/// If the script is malformed or the connection ends.
pub fn run_script(name: &str, text: &str, connection: &mut Connection) -> Vec<String> {
    let all = run_script_on(name, text, connection, &mut ());
    all.iter().map(Difference::to_string).collect()
}

/// Runs a script on a deployment.
///
/// # Panics
/// If the script is malformed or the connection ends.
pub fn run_script_on(
    name: &str,
    text: &str,
    connection: &mut Connection,
    deployment: &mut dyn Deployment,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut db = "script".to_owned();
    let (mut title, mut sections) = (String::new(), 0);
    let mut cursor = 0;
    let mut uuid = String::new();
    for step in steps(text) {
        if step.mark == '#' {
            drop_database(connection, &db);
            sections += 1;
            title = step.text.clone();
            db = format!("script{sections}");
            drop_database(connection, &db);
            continue;
        }
        let (on, command) = match step.text.strip_prefix('{') {
            Some(_) => (db.as_str(), step.text.as_str()),
            None => step.text.split_once(' ').unwrap_or((&db, "")),
        };
        let command = command.replace("$CURSOR", &format!("Long('{cursor}')"));
        let command = command.replace("$UUID", &uuid);
        let command = shell(&command.replace("$DB", &db));
        deployment.before(on, command.as_doc());
        let reply = connection.command_raw(on, &command);
        let reply = reply.unwrap_or_else(|e| panic!("{name}:{}: {e}", step.line));
        if reply.as_doc().get("ok").is_some_and(|v| v.truthy()) {
            deployment.after(on, command.as_doc());
        }
        let got = reply.as_doc().get_doc("cursor");
        if let Some(id) = got.and_then(|c| c.get("id")).and_then(|v| v.as_i64_exact())
            && id != 0
        {
            cursor = id;
        }
        if let Some(Value::Binary { subtype: 4, bytes }) = documents(reply.as_doc())
            .first()
            .and_then(|d| d.get_doc("info"))
            .and_then(|d| d.get("uuid"))
        {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            uuid = format!("UUID('{hex}')");
        }
        let any_order = !deployment.one_order() && !sorts(command.as_doc());
        for why in step.check(reply.as_doc(), &db, any_order) {
            differences.push(Difference {
                at: (name.to_owned(), step.line),
                title: title.clone(),
                text: format!("{}\n  {why}", step.text),
            });
        }
    }
    drop_database(connection, &db);
    differences
}

/// Whether a command says in which order its documents come.
fn sorts(command: Doc<'_>) -> bool {
    let stages = command.get_array("pipeline").into_iter();
    let mut stages = stages.flat_map(|p| p.values().filter_map(|s| s.as_doc()));
    command.get("sort").is_some() || stages.any(|s| s.get("$sort").is_some())
}

fn drop_database(connection: &mut Connection, db: &str) {
    let mut command = DocBuf::new();
    command.append("dropDatabase", 1);
    let reply = connection.command_raw(db, &command);
    assert!(reply.is_ok(), "{reply:?}");
}

struct Step {
    line: usize,
    mark: char,
    text: String,
    wants: Vec<(char, String)>,
}

fn steps(text: &str) -> Vec<Step> {
    let mut all: Vec<Step> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let Some(mark) = line.chars().next() else {
            continue;
        };
        let rest = line[mark.len_utf8()..].trim_end();
        match mark {
            '/' if rest.starts_with('/') => {}
            '#' | '>' => all.push(Step {
                line: n + 1,
                mark,
                text: match rest.strip_prefix(' ') {
                    Some(own) => own.to_owned(),
                    None => rest.to_owned(),
                },
                wants: Vec::new(),
            }),
            '=' | '~' | ':' | '%' | '<' | '!' => {
                let step = all.last_mut().unwrap_or_else(|| panic!("line {}", n + 1));
                step.wants.push((mark, rest.trim_start().to_owned()));
            }
            c if c.is_whitespace() => {
                let step = all.last_mut().unwrap_or_else(|| panic!("line {}", n + 1));
                let to = match step.wants.last_mut() {
                    Some((_, want)) => want,
                    None => &mut step.text,
                };
                to.push('\n');
                to.push_str(line);
            }
            _ => panic!("line {}: {line}", n + 1),
        }
    }
    all
}

impl Step {
    fn check(&self, reply: Doc<'_>, db: &str, any_order: bool) -> Vec<String> {
        let error = error_of(reply);
        let fails = |(mark, want): &(char, String)| match mark {
            '!' => true,
            _ => *mark == '<' && want.contains("ok: 0"),
        };
        if !self.wants.iter().any(fails)
            && let Some((code, message)) = &error
        {
            return vec![format!("replied {code}: {message}")];
        }
        let mut out = Vec::new();
        for (mark, want) in &self.wants {
            let shown = || reply.to_display();
            let want = &want.replace("$DB", db);
            match mark {
                '!' => {
                    let (code, text) = want.split_once(' ').unwrap_or((want, ""));
                    let as_said = error.as_ref().is_some_and(|(got, message)| {
                        let message = message.replace('\n', "\\n");
                        got.to_string() == code && message.contains(text.trim())
                    });
                    if !as_said {
                        out.push(format!("replied {}, not {want}", shown()));
                    }
                }
                '<' => {
                    // A field that must be missing is marked with a word that no value has.
                    let want = shell(
                        &want
                            .replace("ANY", "'\u{1}any'")
                            .replace("NONE", "'\u{1}none'"),
                    );
                    let mut path = String::new();
                    if let Err(why) = within(
                        Value::Document(want.as_doc()),
                        Some(Value::Document(reply)),
                        &mut path,
                    ) {
                        out.push(format!("{why}; replied {}", shown()));
                    }
                }
                _ => out.extend(documents_differ(*mark, want, reply, any_order)),
            }
        }
        out
    }
}

/// How the reply's documents differ from those that a mark wants.
fn documents_differ(mark: char, want: &str, reply: Doc<'_>, any_order: bool) -> Option<String> {
    let want = shell_value(&want.replace("ANY", "'\u{1}any'"));
    let got = documents(reply);
    let want: Vec<Doc<'_>> = want
        .as_value()
        .as_array()
        .into_iter()
        .flat_map(|a| a.iter().filter_map(|e| e.value().as_doc()))
        .collect();
    let as_it_says = |want: &[Doc<'_>], got: &[Doc<'_>]| match mark {
        ':' | '%' => printed_alike(want, got, any_order || mark == '%'),
        _ => same(want, got, any_order || mark == '~'),
    };
    // Arrays may have their elements from documents that came in another order.
    let unordered = || {
        let [want, got] =
            [&want, &got].map(|all| all.iter().map(|d| in_order(*d)).collect::<Vec<_>>());
        let [want, got] =
            [&want, &got].map(|all| all.iter().map(DocBuf::as_doc).collect::<Vec<_>>());
        as_it_says(&want, &got)
    };
    if as_it_says(&want, &got) || any_order && unordered() {
        return None;
    }
    let got: Vec<String> = got
        .iter()
        .map(|d| shell_text(Value::Document(*d)))
        .collect();
    Some(format!("got [{}]", got.join(",\n    ")))
}

/// The error of a reply, or its first write error.
fn error_of(reply: Doc<'_>) -> Option<(i64, String)> {
    let ok = reply.get("ok").is_some_and(|v| v.truthy());
    let first = |name| {
        let list: Doc<'_> = reply.get_array(name)?;
        list.values().next()?.as_doc()
    };
    let of = match ok {
        false => Some(reply),
        true => first("writeErrors").or_else(|| reply.get_doc("writeConcernError")),
    }?;
    let code = of.get("code").and_then(|v| v.as_i64_exact()).unwrap_or(0);
    Some((code, of.get_str("errmsg").unwrap_or_default().to_owned()))
}

/// The documents in a reply.
fn documents(reply: Doc<'_>) -> Vec<Doc<'_>> {
    let from = match reply.get_doc("cursor") {
        Some(c) => c
            .get_array("firstBatch")
            .or_else(|| c.get_array("nextBatch")),
        None => reply
            .get_array("results")
            .or_else(|| reply.get_array("values")),
    };
    let list = from.into_iter().flat_map(|a| a.iter());
    list.filter_map(|e| e.value().as_doc()).collect()
}

fn same(want: &[Doc<'_>], got: &[Doc<'_>], any_order: bool) -> bool {
    let bytes = |all: &[Doc<'_>]| {
        let mut all: Vec<Vec<u8>> = all.iter().map(|d| d.as_bytes().to_vec()).collect();
        if any_order {
            all.sort();
        }
        all
    };
    bytes(want) == bytes(got)
}

/// A document with the elements of all its arrays in the order of their encoded keys.
fn in_order(d: Doc<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    for e in d {
        match e.value() {
            Value::Document(inner) => out.append(e.name(), in_order(inner)),
            Value::Array(items) => {
                let mut all: Vec<ValueBuf> = items.values().map(value_in_order).collect();
                all.sort_by_cached_key(|v| keyenc::encoded(v.as_value()));
                let all: ArrayBuf = all.iter().map(|v| v.as_value()).collect();
                out.append(e.name(), all)
            }
            v => out.append(e.name(), v),
        };
    }
    out
}

fn value_in_order(v: Value<'_>) -> ValueBuf {
    let mut one = DocBuf::new();
    one.append("v", v);
    let one = in_order(one.as_doc());
    ValueBuf::new(one.as_doc().get("v").unwrap_or(Value::Null))
}

/// Whether a shell prints these documents like the wanted ones.
fn printed_alike(want: &[Doc<'_>], got: &[Doc<'_>], any_order: bool) -> bool {
    let mut left: Vec<Doc<'_>> = got.to_vec();
    let alike = |w: &Doc<'_>, g: &Doc<'_>| prints_as(Value::Document(*w), Value::Document(*g));
    want.len() == got.len()
        && want.iter().all(|w| {
            let at = match any_order {
                true => left.iter().position(|g| alike(w, g)),
                false => left.first().is_some_and(|g| alike(w, g)).then_some(0),
            };
            at.map(|at| left.remove(at)).is_some()
        })
}

/// Whether a value that a shell printed as `want` may have been `got`. A shell prints an int32 and a whole
/// double in the same way, while constructors distinguish the other types, except that the parser makes an
/// int64 of a large plain number.
fn prints_as(want: Value<'_>, got: Value<'_>) -> bool {
    let parts = |w: Doc<'_>, g: Doc<'_>| {
        w.count() == g.count()
            && (w.iter().zip(g.iter()))
                .all(|(w, g)| w.name() == g.name() && prints_as(w.value(), g.value()))
    };
    match (want, got) {
        (Value::String("\u{1}any"), _) => true,
        (Value::Document(w), Value::Document(g)) | (Value::Array(w), Value::Array(g)) => {
            parts(w, g)
        }
        (Value::Double(w), Value::Double(g)) if w.is_nan() => g.is_nan(),
        (
            Value::Int32(_) | Value::Int64(_) | Value::Double(_),
            Value::Int32(_) | Value::Int64(_) | Value::Double(_),
        ) => values_equal(want, got),
        _ => {
            let mut of = [DocBuf::new(), DocBuf::new()];
            of[0].append("v", want);
            of[1].append("v", got);
            of[0].as_bytes() == of[1].as_bytes()
        }
    }
}

/// Whether `got` has everything in `want`.
fn within(want: Value<'_>, got: Option<Value<'_>>, path: &mut String) -> Result<(), String> {
    let wrong = |path: &str| {
        let got = got.map_or("nothing".to_owned(), |v| v.to_display());
        Err(format!("{path} is {got}"))
    };
    match (want, got) {
        (Value::String("\u{1}any"), Some(_)) | (Value::String("\u{1}none"), None) => Ok(()),
        (Value::Document(w), Some(Value::Document(g))) => {
            for e in w {
                let len = path.len();
                path.push('.');
                path.push_str(e.name());
                within(e.value(), g.get(e.name()), path)?;
                path.truncate(len);
            }
            Ok(())
        }
        (Value::Array(w), Some(Value::Array(g))) => {
            if w.count() != g.count() {
                return wrong(path);
            }
            for (i, (w, g)) in w.values().zip(g.values()).enumerate() {
                let len = path.len();
                path.push_str(&format!("[{i}]"));
                within(w, Some(g), path)?;
                path.truncate(len);
            }
            Ok(())
        }
        (w, Some(g)) if values_equal(w, g) => Ok(()),
        _ => wrong(path),
    }
}

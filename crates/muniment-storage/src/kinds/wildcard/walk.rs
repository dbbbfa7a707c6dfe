//! The keys of one document in a wildcard index.

use super::Wildcard;
use super::scope::Part;
use muniment_value::{Doc, IndexKeys, Result, Value};

/// The walk over one document.
pub(super) struct Walk<'a, 'o> {
    index: &'a Wildcard,
    others: &'a [Value<'a>],
    path: String,
    /// The number of documents that were entered.
    depth: usize,
    out: &'o mut IndexKeys,
}

impl<'a, 'o> Walk<'a, 'o> {
    /// A walk for `index`; `others` are the values of its other fields.
    pub fn new(
        index: &'a Wildcard,
        others: &'a [Value<'a>],
        out: &'o mut IndexKeys,
    ) -> Walk<'a, 'o> {
        Walk {
            index,
            others,
            path: String::new(),
            depth: 0,
            out,
        }
    }

    /// Appends the keys of `doc`.
    ///
    /// # Errors
    /// 201 when there are too many.
    pub fn run(mut self, doc: Doc<'a>) -> Result<()> {
        self.document(doc, self.index.scope.root())?;
        if !self.others.is_empty() && self.out.is_empty() {
            self.key(Value::MinKey, Value::MinKey)?;
        }
        Ok(())
    }

    fn key(&mut self, path: Value<'_>, value: Value<'_>) -> Result<()> {
        let (before, behind) = self
            .others
            .split_at(self.index.position.min(self.others.len()));
        let mut directions = self.index.others.iter().map(|(_, d)| *d);
        for v in before {
            self.out.push(*v, directions.next().unwrap_or(false));
        }
        self.out.push_plain(path, false);
        self.out.push(value, self.index.descending);
        for v in behind {
            self.out.push(*v, directions.next().unwrap_or(false));
        }
        self.out.end_key()
    }

    fn leaf(&mut self, value: Value<'_>) -> Result<()> {
        let path = std::mem::take(&mut self.path);
        let result = self.key(Value::String(&path), value);
        self.path = path;
        result
    }

    /// Walks the fields of a document. It recurses as deep as the document nests, which is limited.
    fn document(&mut self, doc: Doc<'a>, part: Part<'a>) -> Result<()> {
        for e in doc {
            // No query could have a path to a name with a dot.
            if e.name().contains('.') {
                continue;
            }
            let Some(part) = self.index.scope.enter(part, e.name()) else {
                continue;
            };
            let before = self.path.len();
            if self.depth > 0 {
                self.path.push('.');
            }
            self.path.push_str(e.name());
            self.depth += 1;
            match e.value() {
                Value::Array(a) => self.array(a, part)?,
                v => self.value(v, part)?,
            }
            self.depth -= 1;
            self.path.truncate(before);
        }
        Ok(())
    }

    fn value(&mut self, value: Value<'a>, part: Part<'a>) -> Result<()> {
        if let Value::Document(d) = value {
            let before = self.out.len();
            self.document(d, part)?;
            if self.out.len() > before {
                return Ok(());
            }
        }
        // Named paths only lead through this value, so it is not indexed itself.
        if self.index.scope.includes && matches!(part, Part::Some(_)) {
            return Ok(());
        }
        match value {
            Value::Document(_) => self.leaf(Value::Document(Doc::EMPTY)),
            v => self.leaf(v),
        }
    }

    fn array(&mut self, array: Doc<'a>, part: Part<'a>) -> Result<()> {
        self.out.mark_array(&self.path);
        if array.first().is_none() {
            return self.value(Value::Undefined, part);
        }
        for v in array.values() {
            self.value(v, part)?;
        }
        Ok(())
    }
}

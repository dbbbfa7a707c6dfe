//! `$unwind`: returns one document per element of an array.

use super::idl::need;
use super::lookup::{Unwound, overlap};
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, Ticker, check_size};
use crate::bytes::{close, open, put, set_path};
use crate::context::{QueryContext, Runtime};
use crate::meta::carry;
use crate::needs::Needs;
use crate::sort::check_field_path;
use bytes::Bytes;
use muniment_value::path::Path;
use muniment_value::{Doc, Elem, Error, Result, Value};
use std::ops::Range;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$unwind",
    doc: "One document per element of an array.",
    place: Place::ANYWHERE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse,
};

#[derive(Debug)]
struct Unwind {
    path: Path,
    index: Option<Path>,
    preserve: bool,
}

/// The options of the stage that are given.
#[derive(Default)]
struct Options<'a> {
    path: Option<&'a str>,
    index: Option<Path>,
    preserve: bool,
}

impl<'a> Options<'a> {
    fn read(&mut self, o: Elem<'a>) -> Result<()> {
        let v = o.value();
        match o.name() {
            "path" => {
                let text = "expected a string as the path for $unwind stage, got {}";
                self.path = Some(need(v.as_str(), v, 28808, text)?);
            }
            "preserveNullAndEmptyArrays" => {
                let text = "expected a boolean for the preserveNullAndEmptyArrays option to \
                            $unwind stage, got {}";
                self.preserve = need(v.as_bool(), v, 28809, text)?;
            }
            "includeArrayIndex" => self.index = Some(index_path(v)?),
            other => {
                return Err(Error::location(
                    28811,
                    format!("unrecognized option to $unwind stage: {other}"),
                ));
            }
        }
        Ok(())
    }
}

/// The field that takes the element's index.
fn index_path(v: Value<'_>) -> Result<Path> {
    let text =
        "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got {}";
    let name = need(v.as_str().filter(|s| !s.is_empty()), v, 28810, text)?;
    if name.starts_with('$') {
        return Err(Error::location(
            28822,
            format!(
                "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {name}"
            ),
        ));
    }
    check_field_path(name)?;
    Ok(Path::new(name))
}

/// The field that is unwound, whose path begins with a `$`.
fn field_of(path: Option<&str>) -> Result<Path> {
    let path = path.filter(|p| !p.is_empty());
    let path = path.ok_or_else(|| Error::location(28812, "no path specified to $unwind stage"))?;
    let Some(field) = path.strip_prefix('$') else {
        return Err(Error::location(
            28818,
            format!("path option to $unwind stage should be prefixed with a '$': {path}"),
        ));
    };
    if field.contains('\0') {
        return Err(Error::location(
            16419,
            "field path must not contain embedded null characters",
        ));
    }
    check_field_path(field)?;
    Ok(Path::new(field))
}

fn parse(e: Elem<'_>, _: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let mut given = Options::default();
    match e.value() {
        Value::String(s) => given.path = Some(s),
        v => {
            let text = "expected either a string or an object as specification for $unwind stage, \
                        got {}";
            for o in need(v.as_doc(), v, 15981, text)? {
                given.read(o)?;
            }
        }
    }
    stages.push(Stage::Other(Arc::new(Unwind {
        path: field_of(given.path)?,
        index: given.index,
        preserve: given.preserve,
    })));
    Ok(())
}

impl StageOp for Unwind {
    fn needs(&self, needs: &mut Needs) -> bool {
        needs.path(self.path.as_str());
        false
    }

    fn changes(&self, path: &str) -> bool {
        let index = self.index.as_ref();
        overlap(self.path.as_str(), path) || index.is_some_and(|i| overlap(i.as_str(), path))
    }

    fn as_unwind(&self) -> Option<(&Path, Unwound)> {
        let unwound = Unwound {
            index: self.index.clone(),
            preserve: self.preserve,
        };
        Some((&self.path, unwound))
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        self.open_for(source, rt, None)
    }

    fn open_for(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
        needs: Option<Vec<String>>,
    ) -> Result<Box<dyn DocStream>> {
        let head = |path: &str| path.split('.').next().unwrap_or_default().to_string();
        Ok(Box::new(UnwindStream {
            source,
            keep: needs.map(|n| n.iter().map(|p| head(p)).collect()),
            spec: self,
            current: None,
            ticker: Ticker::new(rt),
        }))
    }
}

struct UnwindStream {
    source: Box<dyn DocStream>,
    spec: Arc<Unwind>,
    /// The top-level fields that the later stages read; `None` means all fields.
    keep: Option<Vec<String>>,
    current: Option<Current>,
    ticker: Ticker,
}

/// A document whose array is being unwound.
struct Current {
    doc: Bytes,
    /// The place of the field with the array in the document, if it is a top-level field.
    field: Option<Range<usize>>,
    /// The offset of the next element in the array's bytes.
    at: usize,
    index: i64,
}

/// The value at `path`; the path only leads through documents.
fn lookup<'a>(doc: Doc<'a>, path: &Path) -> Option<Value<'a>> {
    let mut at = Value::Document(doc);
    for part in path.parts() {
        let Value::Document(d) = at else { return None };
        at = d.get(part)?;
    }
    Some(at)
}

impl Current {
    /// Begins with a document that has an array at `path`. Every element gets a copy of the document, so it
    /// is worth leaving out fields that no later stage reads.
    fn new(doc: Bytes, path: &Path, keep: Option<&[String]>) -> Current {
        let mut current = Current {
            doc,
            field: None,
            at: 4,
            index: 0,
        };
        if let Some(keep) = keep {
            let all = Doc::new(&current.doc);
            let mut out = Vec::with_capacity(current.doc.len());
            let start = open(&mut out);
            all.iter()
                .filter(|e| keep.iter().any(|k| k.as_bytes() == e.name_bytes()))
                .for_each(|e| out.extend_from_slice(e.as_bytes()));
            close(&mut out, start);
            carry(all, &mut out);
            current.doc = out.into();
        }
        if let [name] = path.parts() {
            let mut fields = Doc::new(&current.doc).iter();
            let mut before = fields.offset();
            while let Some(e) = fields.next() {
                if e.name_bytes() == name.as_bytes() {
                    current.field = Some(before..fields.offset());
                    break;
                }
                before = fields.offset();
            }
        }
        current
    }

    /// The array.
    fn array(&self, path: &Path) -> Option<Doc<'_>> {
        let value = match &self.field {
            // The array's bytes come after the type and the name of the field.
            Some(field) => {
                let name = path.as_str().len();
                let bytes = self.doc.get(field.start + name + 2..field.end)?;
                return Some(Doc::new(bytes));
            }
            None => lookup(Doc::new(&self.doc), path)?,
        };
        value.as_array()
    }

    /// The document with `item` in place of the array.
    fn with(&self, item: Elem<'_>, path: &Path, out: &mut Vec<u8>) {
        let doc = Doc::new(&self.doc);
        let Some(field) = &self.field else {
            return set_path(doc, path.parts(), Some(&item), out);
        };
        let end = doc.byte_len().saturating_sub(1);
        let start = open(out);
        out.extend_from_slice(self.doc.get(4..field.start).unwrap_or_default());
        put(out, path.as_str().as_bytes(), &item);
        out.extend_from_slice(self.doc.get(field.end..end).unwrap_or_default());
        close(out, start);
    }
}

impl UnwindStream {
    /// The finished document: with the index, and with the metadata of `doc`, from which it was made.
    fn output(&self, doc: Doc<'_>, mut out: Vec<u8>, index: Option<i64>) -> Result<Bytes> {
        if let Some(path) = &self.spec.index {
            let mut indexed = Vec::with_capacity(out.len() + 32);
            set_path(Doc::new(&out), path.parts(), Some(&index), &mut indexed);
            out = indexed;
        }
        check_size(out.len())?;
        carry(doc, &mut out);
        Ok(out.into())
    }

    /// The document of the next element.
    fn item(&mut self) -> Result<Option<Bytes>> {
        let Some(current) = &self.current else {
            return Ok(None);
        };
        let path = &self.spec.path;
        let Some(mut items) = current.array(path).map(|a| a.iter_from(current.at)) else {
            return Ok(None);
        };
        let Some(item) = items.next() else {
            return Ok(None);
        };
        let at = items.offset();
        let mut out = Vec::with_capacity(current.doc.len() + 32);
        current.with(item, path, &mut out);
        let out = self.output(Doc::new(&current.doc), out, Some(current.index))?;
        if let Some(current) = &mut self.current {
            current.at = at;
            current.index += 1;
        }
        Ok(Some(out))
    }
}

impl DocStream for UnwindStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.ticker.tick()?;
            if let Some(out) = self.item()? {
                return Ok(Some(out));
            }
            self.current = None;
            let Some(bytes) = self.source.next()? else {
                return Ok(None);
            };
            let doc = Doc::new(&bytes);
            let mut out = Vec::new();
            match lookup(doc, &self.spec.path) {
                Some(Value::Array(a)) if !a.is_empty() => {
                    let keep = self.keep.as_deref();
                    self.current = Some(Current::new(bytes, &self.spec.path, keep));
                    continue;
                }
                Some(Value::Array(_)) if self.spec.preserve => {
                    set_path(doc, self.spec.path.parts(), None, &mut out);
                }
                None if self.spec.preserve => out.extend_from_slice(doc.as_bytes()),
                Some(v)
                    if !matches!(v, Value::Array(_)) && (self.spec.preserve || !v.is_nullish()) =>
                {
                    out.extend_from_slice(doc.as_bytes());
                }
                _ => continue,
            }
            return self.output(doc, out, None).map(Some);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_unwind() {
        table(&[
            (
                "[{_id:1,a:[1,2],b:3}]",
                "[{$unwind:'$a'}]",
                "[{_id:1,a:1,b:3},{_id:1,a:2,b:3}]",
            ),
            (
                "[{a:{b:[1,2],c:1}}]",
                "[{$unwind:'$a.b'}]",
                "[{a:{b:1,c:1}},{a:{b:2,c:1}}]",
            ),
            // Only fields that the later stages read are copied for each element.
            (
                "[{x:9,a:[{k:1,n:2},{k:1,n:3}],b:3,c:4,y:[1]}]",
                "[{$unwind:'$a'},{$group:{_id:'$a.k',n:{$sum:{$add:['$a.n','$c']}}}}]",
                "[{_id:1,n:13}]",
            ),
            (
                "[{x:9,a:{l:[{k:1},{k:2}],z:7},c:4}]",
                "[{$unwind:{path:'$a.l',includeArrayIndex:'i'}},\
                 {$project:{_id:0,s:{$add:['$a.l.k','$c','$i','$a.z']}}}]",
                "[{s:{$numberLong:'12'}},{s:{$numberLong:'14'}}]",
            ),
            ("[{a:5},{a:null},{a:[]},{}]", "[{$unwind:'$a'}]", "[{a:5}]"),
            (
                "[{a:5},{a:null},{a:[],b:1},{}]",
                "[{$unwind:{path:'$a',preserveNullAndEmptyArrays:true}}]",
                "[{a:5},{a:null},{b:1},{}]",
            ),
            (
                "[{a:[7,8]},{a:5}]",
                "[{$unwind:{path:'$a',includeArrayIndex:'i'}}]",
                "[{a:7,i:{$numberLong:'0'}},{a:8,i:{$numberLong:'1'}},{a:5,i:null}]",
            ),
            (
                "[{a:[[1],[2]]}]",
                "[{$unwind:'$a'},{$unwind:'$a'}]",
                "[{a:1},{a:2}]",
            ),
            ("[{a:[{b:[1]}]}]", "[{$unwind:'$a.b'}]", "[]"),
            (
                "[]",
                "[{$unwind:5}]",
                "15981: expected either a string or an object as specification for $unwind stage, got int",
            ),
            (
                "[]",
                "[{$unwind:'a'}]",
                "28818: path option to $unwind stage should be prefixed with a '$': a",
            ),
            (
                "[]",
                "[{$unwind:{}}]",
                "28812: no path specified to $unwind stage",
            ),
            (
                "[]",
                "[{$unwind:{path:'$a',x:1}}]",
                "28811: unrecognized option to $unwind stage: x",
            ),
        ]);
    }
}

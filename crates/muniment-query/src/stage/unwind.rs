//! `$unwind`: one document per element of an array.

use super::lookup::{Unwound, overlap};
use super::registry::{Place, Spec};
use super::{DocStream, Stage, StageOp, Ticker, check_size};
use crate::bytes::set_path;
use crate::context::{QueryContext, Runtime};
use crate::meta::carry;
use crate::needs::Needs;
use crate::sort::check_field_path;
use bytes::Bytes;
use muniment_value::path::Path;
use muniment_value::{Doc, Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$unwind",
    doc: "One document per element of an array.",
    place: Place::ANYWHERE,
    parse,
};

#[derive(Debug)]
struct Unwind {
    path: Path,
    index: Option<Path>,
    preserve: bool,
}

fn parse(e: Elem<'_>, _: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let mut path = None;
    let mut index = None;
    let mut preserve = false;
    match e.value() {
        Value::String(s) => path = Some(s),
        Value::Document(d) => {
            for o in d {
                let ty = o.value().type_name();
                match o.name() {
                    "path" => {
                        path = Some(o.value().as_str().ok_or_else(|| {
                            Error::location(
                                28808,
                                format!(
                                    "expected a string as the path for $unwind stage, got {ty}"
                                ),
                            )
                        })?);
                    }
                    "preserveNullAndEmptyArrays" => {
                        preserve = o.value().as_bool().ok_or_else(|| {
                            Error::location(
                                28809,
                                format!(
                                    "expected a boolean for the preserveNullAndEmptyArrays option \
                                     to $unwind stage, got {ty}"
                                ),
                            )
                        })?;
                    }
                    "includeArrayIndex" => {
                        let name = o.value().as_str().filter(|s| !s.is_empty());
                        let name = name.ok_or_else(|| {
                            Error::location(
                                28810,
                                format!(
                                    "expected a non-empty string for the includeArrayIndex  option \
                                     to $unwind stage, got {ty}"
                                ),
                            )
                        })?;
                        if name.starts_with('$') {
                            return Err(Error::location(
                                28822,
                                format!(
                                    "includeArrayIndex option to $unwind stage should not be \
                                     prefixed with a '$': {name}"
                                ),
                            ));
                        }
                        check_field_path(name)?;
                        index = Some(Path::new(name));
                    }
                    other => {
                        return Err(Error::location(
                            28811,
                            format!("unrecognized option to $unwind stage: {other}"),
                        ));
                    }
                }
            }
        }
        other => {
            return Err(Error::location(
                15981,
                format!(
                    "expected either a string or an object as specification for $unwind stage, \
                     got {}",
                    other.type_name()
                ),
            ));
        }
    }
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
    stages.push(Stage::Other(Arc::new(Unwind {
        path: Path::new(field),
        index,
        preserve,
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
        Ok(Box::new(UnwindStream {
            source,
            spec: self,
            current: None,
            ticker: Ticker::new(rt),
        }))
    }
}

struct UnwindStream {
    source: Box<dyn DocStream>,
    spec: Arc<Unwind>,
    current: Option<Current>,
    ticker: Ticker,
}

/// A document whose array is being unwound.
struct Current {
    doc: Bytes,
    /// Where the next element lies in the array's bytes.
    at: usize,
    index: i64,
}

/// The value at `path`, through documents only.
fn lookup<'a>(doc: Doc<'a>, path: &Path) -> Option<Value<'a>> {
    let mut at = Value::Document(doc);
    for part in path.parts() {
        let Value::Document(d) = at else { return None };
        at = d.get(part)?;
    }
    Some(at)
}

impl UnwindStream {
    /// The document with its array replaced by `item` (kept as it is for `None`) and the index.
    fn output(&self, doc: Doc<'_>, item: Option<Elem<'_>>, index: Option<i64>) -> Result<Bytes> {
        let mut out = Vec::with_capacity(doc.byte_len() + 32);
        match item {
            Some(item) => set_path(doc, self.spec.path.parts(), Some(&item), &mut out),
            None => out.extend_from_slice(doc.as_bytes()),
        }
        if let Some(path) = &self.spec.index {
            let mut indexed = Vec::with_capacity(out.len() + 32);
            let index: Option<i64> = index;
            set_path(Doc::new(&out), path.parts(), Some(&index), &mut indexed);
            out = indexed;
        }
        check_size(out.len())?;
        carry(doc, &mut out);
        Ok(out.into())
    }
}

impl DocStream for UnwindStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.ticker.tick()?;
            if let Some(mut current) = self.current.take() {
                let doc = Doc::new(&current.doc);
                if let Some(Value::Array(array)) = lookup(doc, &self.spec.path) {
                    let mut items = array.iter_from(current.at);
                    if let Some(item) = items.next() {
                        let out = self.output(doc, Some(item), Some(current.index))?;
                        current.at = items.offset();
                        current.index += 1;
                        self.current = Some(current);
                        return Ok(Some(out));
                    }
                }
            }
            let Some(bytes) = self.source.next()? else {
                return Ok(None);
            };
            let doc = Doc::new(&bytes);
            match lookup(doc, &self.spec.path) {
                Some(Value::Array(a)) if !a.is_empty() => {
                    self.current = Some(Current {
                        doc: bytes,
                        at: 4,
                        index: 0,
                    });
                }
                Some(Value::Array(_)) if self.spec.preserve => {
                    let mut out = Vec::with_capacity(bytes.len());
                    set_path(doc, self.spec.path.parts(), None, &mut out);
                    carry(doc, &mut out);
                    return self.output(Doc::new(&out), None, None).map(Some);
                }
                None if self.spec.preserve => return self.output(doc, None, None).map(Some),
                Some(v)
                    if !matches!(v, Value::Array(_)) && (self.spec.preserve || !v.is_nullish()) =>
                {
                    return self.output(doc, None, None).map(Some);
                }
                _ => {}
            }
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

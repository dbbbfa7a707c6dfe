//! The common helpers of the stages' table tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::{DocStream, Pipeline};
use crate::context::{QueryContext, Runtime};
use crate::update::testing::json_array;
use bytes::Bytes;
use muniment_value::{Doc, DocBuf, Result, Value};

/// A stream of documents from memory.
pub(crate) struct Docs(pub std::vec::IntoIter<DocBuf>);

impl DocStream for Docs {
    fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.next().map(|d| d.into_bytes().into()))
    }
}

pub(crate) fn docs(text: &str) -> Vec<DocBuf> {
    json_array(text)
        .as_doc()
        .values()
        .map(|v| v.as_doc().unwrap().to_buf())
        .collect()
}

pub(crate) fn drain(mut s: Box<dyn DocStream>) -> Result<Vec<DocBuf>> {
    let mut all = Vec::new();
    while let Some(d) = s.next()? {
        muniment_value::validate(&d)?;
        all.push(DocBuf::from_doc(Doc::new(&d)));
    }
    assert!(s.next()?.is_none(), "a stream stays at its end");
    Ok(all)
}

pub(crate) fn run(input: Vec<DocBuf>, pipeline: &str, rt: &Runtime) -> Result<Vec<DocBuf>> {
    let p = Pipeline::parse(json_array(pipeline).as_doc(), &QueryContext::new())?;
    drain(p.open(Box::new(Docs(input.into_iter())), rt)?)
}

pub(crate) fn show(docs: &[DocBuf]) -> String {
    let all: Vec<String> = docs
        .iter()
        .map(|d| Value::Document(d.as_doc()).to_display())
        .collect();
    format!("[{}]", all.join(", "))
}

/// Runs rows of input documents, pipeline, and expected result: documents, or `code: message`.
pub(crate) fn table(rows: &[(&str, &str, &str)]) {
    for (input, pipeline, want) in rows {
        let got = match run(docs(input), pipeline, &Runtime::for_tests()) {
            Ok(all) => show(&all),
            Err(e) => format!("{}: {}", e.code().0, e.message()),
        };
        let want = if want.starts_with('[') {
            show(&docs(want))
        } else {
            want.to_string()
        };
        assert_eq!(got, want, "{input} {pipeline}");
    }
}

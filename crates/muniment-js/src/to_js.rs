//! Conversion of BSON to JavaScript.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muniment_value::decimal::Decimal;
use muniment_value::{Doc, Value};
use rquickjs::object::Property;
use rquickjs::{Array, Ctx, Function, Object, Result, Value as Js};

/// The functions of the prelude that conversions need.
pub(crate) struct Helpers<'js> {
    pub make: Function<'js>,
    pub kind: Function<'js>,
    pub ints: Function<'js>,
    pub was_int: Function<'js>,
    pub order: Function<'js>,
    pub dbref: Function<'js>,
}

impl<'js> Helpers<'js> {
    pub(crate) fn of(prelude: &Object<'js>) -> Result<Helpers<'js>> {
        Ok(Helpers {
            make: prelude.get("make")?,
            kind: prelude.get("kind")?,
            ints: prelude.get("ints")?,
            was_int: prelude.get("wasInt")?,
            order: prelude.get("order")?,
            dbref: prelude.get("dbref")?,
        })
    }
}

/// Converts a document to an object.
pub(crate) fn document<'js>(ctx: &Ctx<'js>, h: &Helpers<'js>, d: Doc<'_>) -> Result<Object<'js>> {
    let o = Object::new(ctx.clone())?;
    let mut ints = Vec::new();
    for e in d {
        if let Value::Int32(_) = e.value() {
            ints.push(e.name());
        }
        let v = value(ctx, h, e.value())?;
        match e.name() {
            // Setting this property would set the object's prototype, so it is defined instead.
            "__proto__" => o.prop(
                "__proto__",
                Property::from(v).writable().enumerable().configurable(),
            )?,
            name => o.set(name, v)?,
        }
    }
    let is_number = |name: &str| name.starts_with(|c: char| c.is_ascii_digit());
    if d.iter().any(|e| is_number(e.name())) {
        let names: Vec<&str> = d.iter().map(|e| e.name()).collect();
        h.order.call::<_, ()>((o.clone(), names))?;
    }
    let mut names = d.iter().map(|e| e.name());
    if names.next() == Some("$ref") && names.next() == Some("$id") {
        h.dbref.call::<_, ()>((o.clone(),))?;
    }
    if !ints.is_empty() {
        let names = Array::new(ctx.clone())?;
        for (i, n) in ints.into_iter().enumerate() {
            names.set(i, n)?;
        }
        h.ints.call::<_, ()>((o.clone(), names))?;
    }
    Ok(o)
}

/// Converts an array.
pub(crate) fn array<'js>(ctx: &Ctx<'js>, h: &Helpers<'js>, d: Doc<'_>) -> Result<Array<'js>> {
    let a = Array::new(ctx.clone())?;
    for (i, v) in d.values().enumerate() {
        a.set(i, value(ctx, h, v)?)?;
    }
    Ok(a)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Converts a value.
pub(crate) fn value<'js>(ctx: &Ctx<'js>, h: &Helpers<'js>, v: Value<'_>) -> Result<Js<'js>> {
    let ctx = ctx.clone();
    let make = |tag: &str, a: &str, b: &str| h.make.call::<_, Js<'js>>((tag, a, b));
    Ok(match v {
        Value::Double(n) => Js::new_number(ctx, n),
        Value::Int32(n) => Js::new_int(ctx, n),
        Value::String(s) | Value::Symbol(s) => rquickjs::String::from_str(ctx, s)?.into_value(),
        Value::Document(d) => document(&ctx, h, d)?.into_value(),
        Value::Array(d) => array(&ctx, h, d)?.into_value(),
        Value::Undefined => Js::new_undefined(ctx),
        Value::Null => Js::new_null(ctx),
        Value::Bool(b) => Js::new_bool(ctx, b),
        Value::Int64(n) => make("long", &n.to_string(), "")?,
        Value::Decimal128(b) => make("dec", &Decimal::from_bid(b).to_string(), "")?,
        Value::ObjectId(id) => make("oid", &hex(&id), "")?,
        Value::DateTime(ms) => make("date", &ms.to_string(), "")?,
        Value::Timestamp { t, i } => make("ts", &t.to_string(), &i.to_string())?,
        Value::Binary { subtype, bytes } => {
            make("bin", &subtype.to_string(), &STANDARD.encode(bytes))?
        }
        Value::Regex { pattern, options } => make("re", pattern, options)?,
        Value::DbPointer { namespace, id } => make("ptr", namespace, &hex(&id))?,
        Value::Code(s) => make("code", s, "")?,
        Value::CodeWithScope { code, .. } => make("code", code, "")?,
        Value::MinKey => make("MinKey", "", "")?,
        Value::MaxKey => make("MaxKey", "", "")?,
    })
}

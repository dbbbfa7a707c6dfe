//! Takes the measurements out of a bucket in any of MongoDB's versions: version 1 has a document
//! for each column, 2 and 3 have compressed columns, and those of 3 are not in the order of time.

use super::TimeSeries;
use super::render::is_known;
use muniment_query::running::Work;
use muniment_storage::fingerprint;
use muniment_value::column::{COLUMN_SUBTYPE, Cell, ColumnReader};
use muniment_value::number::to_i64_exact;
use muniment_value::{Code, Doc, DocIter, Elem, Error, Result, Type, Value};
use std::collections::HashSet;

/// The most measurements in a bucket. MongoDB's own buckets have a thousand, or more with other
/// settings.
const MOST_ROWS: usize = 1 << 20;

/// The most bytes that the measurements of a bucket may take. MongoDB's buckets have at most 12 MB
/// before compression, but without the series' label, which each measurement has here.
const MOST_BYTES: usize = 128 << 20;

/// The most columns in a bucket: each takes some hundred bytes while it is read.
const MOST_COLUMNS: usize = 1 << 16;

/// The most values in a bucket, present or missing, since each is looked at.
const MOST_CELLS: usize = 1 << 26;

/// The operation is asked whether it may go on after so many values.
const LOOK: usize = 1 << 14;

/// A bucket that has been taken apart.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub id: [u8; 12],
    /// The complete measurements, with `_id` first.
    pub measurements: Vec<Vec<u8>>,
}

fn invalid(what: impl std::fmt::Display) -> Error {
    Error::new(
        Code::DocumentValidationFailure,
        format!("Document failed validation: {what}"),
    )
}

/// The values of a field, read one after another.
enum Column<'b> {
    Plain(DocIter<'b>, Option<Elem<'b>>),
    Packed(Box<ColumnReader<'b>>),
}

impl<'b> Column<'b> {
    fn of(e: Elem<'b>, version: i64) -> Result<Column<'b>> {
        match e.value() {
            Value::Document(d) if version == 1 => {
                let mut all = d.iter();
                let next = all.next();
                Ok(Column::Plain(all, next))
            }
            Value::Binary {
                subtype: COLUMN_SUBTYPE,
                bytes,
            } if version != 1 => Ok(Column::Packed(Box::new(ColumnReader::new(bytes)))),
            _ => Err(invalid(format_args!(
                "data.{} is no column of a bucket of version {version}",
                e.name()
            ))),
        }
    }

    /// The column's value in a row. Rows have to be asked for in order.
    fn next(&mut self, row: usize) -> Result<Cell<'_>> {
        let (all, next) = match self {
            Column::Packed(reader) => return reader.next(),
            Column::Plain(all, next) => (all, next),
        };
        let Some(e) = *next else {
            return Ok(Cell::End);
        };
        match e.name().parse::<usize>() {
            Ok(n) if n == row && e.name() == row.to_string() => {
                *next = all.next();
                Ok(Cell::Value(e.ty(), e.raw_value()))
            }
            Ok(n) if n > row => Ok(Cell::Missing),
            _ => Err(invalid(format_args!(
                "'{}' is not the number of the measurement that comes next in a column",
                e.name()
            ))),
        }
    }
}

fn put(out: &mut Vec<u8>, ty: Type, name: &[u8], raw: &[u8]) {
    out.push(ty as u8);
    out.extend_from_slice(name);
    out.push(0);
    out.extend_from_slice(raw);
}

/// The columns of a bucket.
struct Columns<'b> {
    /// All except that of `_id`, with their names.
    named: Vec<(Elem<'b>, Column<'b>)>,
    /// The place of the time among them.
    time: usize,
    ids: Option<Column<'b>>,
}

impl<'b> Columns<'b> {
    fn of(bucket: Doc<'b>, version: i64, series: &TimeSeries) -> Result<Columns<'b>> {
        let mut named = Vec::new();
        let (mut time, mut ids) = (None, None);
        let mut names = HashSet::new();
        for e in bucket.get_doc("data").unwrap_or(Doc::EMPTY) {
            if !names.insert(e.name_bytes()) || series.meta_field.as_deref() == Some(e.name()) {
                return Err(invalid(format_args!("data.{} is no column", e.name())));
            }
            if names.len() > MOST_COLUMNS {
                return Err(too_large());
            }
            let column = Column::of(e, version)?;
            match e.name() {
                name if name == series.time_field => {
                    time = Some(named.len());
                    named.push((e, column));
                }
                "_id" => ids = Some(column),
                _ => named.push((e, column)),
            }
        }
        match time {
            Some(time) => Ok(Columns { named, time, ids }),
            None => Err(invalid(format_args!(
                "data.{} is missing",
                series.time_field
            ))),
        }
    }

    /// The time of a row; `None` after the last row.
    fn time(&mut self, row: usize) -> Result<Option<Vec<u8>>> {
        let Some((e, column)) = self.named.get_mut(self.time) else {
            return Ok(None);
        };
        match column.next(row)? {
            Cell::End => Ok(None),
            Cell::Value(Type::DateTime, raw) => Ok(Some(raw.to_vec())),
            _ => Err(invalid(format_args!(
                "measurement {row} has no date in data.{}",
                e.name()
            ))),
        }
    }

    /// The measurement of a row, whose time has been read. `label` is the name and the value of the
    /// meta field.
    fn measurement(
        &mut self,
        row: usize,
        time: &[u8],
        bucket: [u8; 12],
        label: Option<(&str, Elem<'_>)>,
    ) -> Result<Vec<u8>> {
        let mut out = vec![0; 4];
        match self.ids.as_mut().map(|c| c.next(row)).transpose()? {
            Some(Cell::Value(ty, raw)) => put(&mut out, ty, b"_id", raw),
            _ => put(
                &mut out,
                Type::ObjectId,
                b"_id",
                &made_id(bucket, row, time),
            ),
        }
        for (i, (e, column)) in self.named.iter_mut().enumerate() {
            if i == self.time {
                put(&mut out, Type::DateTime, e.name_bytes(), time);
                if let Some((field, meta)) = label {
                    put(&mut out, meta.ty(), field.as_bytes(), meta.raw_value());
                }
            } else if let Cell::Value(ty, raw) = column.next(row)? {
                put(&mut out, ty, e.name_bytes(), raw);
            }
            if out.len() > MOST_BYTES {
                return Err(too_large());
            }
        }
        out.push(0);
        let len = (out.len() as u32).to_le_bytes();
        if let Some(head) = out.get_mut(..4) {
            head.copy_from_slice(&len);
        }
        Ok(out)
    }

    /// Checks that no column has values after the last row.
    fn check_end(&mut self, rows: usize) -> Result<()> {
        let time = self.time;
        let others = self
            .named
            .iter_mut()
            .enumerate()
            .filter(|(i, _)| *i != time);
        for column in others.map(|(_, (_, c))| c).chain(self.ids.as_mut()) {
            if !matches!(column.next(rows)?, Cell::End) {
                return Err(invalid("a column is longer than that of the time"));
            }
        }
        Ok(())
    }
}

/// The `_id` and the version of a bucket, whose other fields are checked, too.
fn check(bucket: Doc<'_>, series: &TimeSeries) -> Result<([u8; 12], i64)> {
    if let Some(e) = bucket.iter().find(|e| !is_known(e)) {
        return Err(invalid(format_args!(
            "'{}' of type {} is no part of a bucket",
            e.name(),
            e.ty().name()
        )));
    }
    let Some(Value::ObjectId(id)) = bucket.get("_id") else {
        return Err(invalid("a bucket has an ObjectId as its _id"));
    };
    let control = bucket.get_doc("control").unwrap_or(Doc::EMPTY);
    let Some(version @ 1..=3) = control.get("version").and_then(to_i64_exact) else {
        return Err(invalid("control.version must be 1, 2 or 3"));
    };
    for bound in ["min", "max"] {
        let bounds = control.get_doc(bound).unwrap_or(Doc::EMPTY);
        if series.time(bounds).is_none() {
            return Err(invalid(format_args!(
                "control.{bound}.{} must be a date",
                series.time_field
            )));
        }
    }
    if bucket.get_elem("meta").is_some() && series.meta_field.is_none() {
        return Err(invalid(
            "a bucket has 'meta' in a time-series collection without a metaField",
        ));
    }
    Ok((id, version))
}

/// Takes a bucket apart.
///
/// # Errors
/// 121 DocumentValidationFailure for a document that is no bucket of this collection; 22
/// InvalidBSON for a column that cannot be read; 10334 BSONObjectTooLarge.
pub(super) fn unpack(bucket: Doc<'_>, series: &TimeSeries, work: Work<'_>) -> Result<Unpacked> {
    let (id, version) = check(bucket, series)?;
    let label = series.meta_field.as_deref().zip(bucket.get_elem("meta"));
    let mut columns = Columns::of(bucket, version, series)?;
    let (mut measurements, mut bytes) = (Vec::new(), 0);
    let (mut cells, mut looked) = (0, 0);
    loop {
        let row = measurements.len();
        cells += columns.named.len() + 1;
        if cells - looked >= LOOK {
            looked = cells;
            work.check()?;
        }
        if cells > MOST_CELLS {
            return Err(too_large());
        }
        // The time comes first, because it tells whether there is another row.
        let Some(time) = columns.time(row)? else {
            break;
        };
        let measurement = columns.measurement(row, &time, id, label)?;
        bytes += measurement.len();
        measurements.push(measurement);
        if bytes > MOST_BYTES || measurements.len() > MOST_ROWS {
            return Err(too_large());
        }
    }
    let rows = measurements.len();
    if rows == 0 {
        return Err(invalid("a bucket without measurements"));
    }
    columns.check_end(rows)?;
    let control = bucket.get_doc("control").unwrap_or(Doc::EMPTY);
    let count = control.get("count").and_then(to_i64_exact);
    if count.is_some_and(|n| n != rows as i64) {
        return Err(invalid(format_args!(
            "control.count is not the number of measurements, {rows}"
        )));
    }
    Ok(Unpacked { id, measurements })
}

fn too_large() -> Error {
    Error::new(
        Code::BSONObjectTooLarge,
        format!(
            "a bucket has more than {MOST_ROWS} measurements, {MOST_COLUMNS} columns, {MOST_CELLS} \
             values or {MOST_BYTES} bytes of measurements"
        ),
    )
}

/// The `_id` of a measurement without one. It is the same whenever its bucket is stored.
fn made_id(bucket: [u8; 12], row: usize, time: &[u8]) -> [u8; 12] {
    let ms = time.first_chunk().map_or(0, |b| i64::from_le_bytes(*b));
    let print = fingerprint(&[b"_id", &bucket, &(row as u64).to_le_bytes()]) as u64;
    let seconds = (ms.div_euclid(1000) as u32).to_be_bytes();
    let mut id = [0; 12];
    for (to, b) in id
        .iter_mut()
        .zip(seconds.into_iter().chain(print.to_be_bytes()))
    {
        *to = b;
    }
    id
}

//! A workload's file, read and checked as a whole.

use super::builtin;
use super::draw::Shape;
use super::operation::{self, Around, Concerns, Operation, constant, none_of};
use super::source::{self, Fields, Item, Parsed};
use super::template::{Node, Seen};
use crate::lab::{DB, Preset};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::placement::Placement;
use muniment_options::meant;
use muniment_value::DocBuf;
use std::collections::BTreeMap;

/// The treatment of a collection that exists before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The collection is dropped.
    Drop,
    /// The run fails, unless the collection is empty.
    Fail,
    /// The collection is used as it is.
    Keep,
}

/// A collection of the workload.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    pub name: String,
    /// The treatment of a collection of this name that exists already.
    pub existing: Existing,
    /// The options of `create`.
    pub options: DocBuf,
    /// The indexes, each with a name.
    pub indexes: Vec<DocBuf>,
}

impl Collection {
    /// Whether documents stay until they are deleted; in capped collections and those with a TTL
    /// index they do not.
    pub(crate) fn keeps_documents(&self) -> bool {
        let o = self.options.as_doc();
        let capped = o.get("capped").is_some_and(|v| v.truthy());
        let gone = |i: &DocBuf| i.as_doc().get("expireAfterSeconds").is_some();
        !capped && o.get("expireAfterSeconds").is_none() && !self.indexes.iter().any(gone)
    }
}

/// A phase of a workload.
#[derive(Debug, Clone)]
pub(crate) struct Phase {
    /// The name that tables show.
    pub name: String,
    /// In a load phase, the number of documents.
    pub records: Option<u64>,
    /// The number of connections.
    pub threads: u64,
    /// The number of operations of all threads; `None` if only the time limits them.
    pub operations: Option<u64>,
    /// The longest time, in seconds.
    pub seconds: Option<f64>,
    /// The operations a second of all threads; `None` for as fast as possible.
    pub rate: Option<f64>,
    /// Whether the distances between operations are random; they are even otherwise.
    pub poisson: bool,
    /// The seconds of warm-up before it, which are not measured.
    pub warmup: f64,
    /// Whether collections and sequences are reset before it.
    pub fresh: bool,
    /// The operations; in a load phase, the insert.
    pub work: Vec<Operation>,
}

/// A workload.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub name: String,
    /// A line that tells its purpose.
    pub about: String,
    /// The database in which it works.
    pub database: String,
    pub collections: Vec<Collection>,
    /// The sequences, each with its first number; lower numbers count as existing.
    pub sequences: BTreeMap<String, u64>,
    /// The templates, for samples.
    pub templates: BTreeMap<String, Node>,
    /// The phases, in order.
    pub phases: Vec<Phase>,
}

impl Plan {
    /// The phase that a load of this name belongs to, whatever placement the name contains.
    pub(crate) fn phase_of(&self, load: &str) -> Option<&Phase> {
        let phase = Placement::without(load);
        let mut all = self.phases.iter();
        all.find(|p| p.name == load || p.name == phase)
    }

    /// Reads a file, or the built-in workload of this name.
    ///
    /// # Errors
    /// There is no such file, or it is no workload; the error has the file's name, the line and
    /// what is wrong there.
    pub(crate) fn read(name: &str, preset: Preset) -> Result<Plan> {
        if let Some(b) = builtin::named(name) {
            return Plan::parse(b.text, &format!("built-in {name}"), preset);
        }
        let what = || {
            let all: Vec<&str> = builtin::ALL.iter().map(|b| b.name).collect();
            format!(
                "{name} is neither a file that can be read nor a built-in workload ({}{})",
                meant(name, &all),
                all.join(", ")
            )
        };
        let text = std::fs::read_to_string(name).context(&what())?;
        Plan::parse(&text, name, preset)
    }

    /// Parses the text of the file `file`.
    ///
    /// # Errors
    /// The errors of [`Plan::read`].
    pub(crate) fn parse(text: &str, file: &str, preset: Preset) -> Result<Plan> {
        let plan = source::read(text, preset).and_then(|root| plan(&root));
        plan.map_err(|e| e.in_file(file))
    }

    /// The load phases before the first run phase.
    pub(crate) fn loads(&self) -> &[Phase] {
        let first = self.phases.iter().position(|p| p.records.is_none());
        self.phases
            .get(..first.unwrap_or(self.phases.len()))
            .unwrap_or_default()
    }

    /// All phases from the first run phase on.
    pub(crate) fn runs(&self) -> &[Phase] {
        self.phases.get(self.loads().len()..).unwrap_or_default()
    }

    /// The most connections of any phase.
    pub(crate) fn threads(&self) -> u64 {
        self.phases.iter().map(|p| p.threads).max().unwrap_or(1)
    }

    pub(crate) fn collection(&self, name: &str) -> Option<&Collection> {
        self.collections.iter().find(|c| c.name == name)
    }
}

fn plan(root: &Item) -> Parsed<Plan> {
    let mut f = root.fields("the file")?;
    let mut seen = Seen::default();
    let name = f.need("name")?.text("name")?.to_string();
    let about = f.get("about").map_or(Ok(""), |i| i.text("about"))?;
    let database = f.get("database").map_or(Ok(DB), |i| i.text("database"))?;
    let collections = collections(f.need("collection")?, database == DB)?;
    let templates = templates(&mut f, &mut seen)?;
    let mut sequences = sequences(&mut f)?;
    let list = f.need("phase")?;
    let phases = phases(list, &templates, &collections, &mut seen)?;
    if phases.is_empty() || collections.is_empty() {
        return Err(list.bad("there must be one [[collection]] and one [[phase]] at least"));
    }
    f.end()?;
    for name in &seen.taken {
        sequences.entry(name.clone()).or_insert(0);
    }
    keys_have_sequences(&seen, &sequences)?;
    Ok(Plan {
        name,
        about: about.to_string(),
        database: database.to_string(),
        collections,
        sequences,
        templates,
        phases,
    })
}

fn collections(list: &Item, own_database: bool) -> Parsed<Vec<Collection>> {
    let mut collections: Vec<Collection> = Vec::new();
    for item in list.list("[[collection]]")? {
        let c = collection(item, own_database)?;
        if collections.iter().any(|o| o.name == c.name) {
            return Err(item.bad(format!("there are two [[collection]] named {}", c.name)));
        }
        collections.push(c);
    }
    Ok(collections)
}

fn templates(f: &mut Fields<'_>, seen: &mut Seen) -> Parsed<BTreeMap<String, Node>> {
    let mut templates = BTreeMap::new();
    let Some(all) = f.get("template") else {
        return Ok(templates);
    };
    for (key, item) in all.table("[template.NAME]")? {
        let what = format!("[template.{}]", key.name);
        let before = seen.draws;
        templates.insert(key.name.clone(), Node::document(item, &what, seen)?);
        if seen.draws > before {
            seen.drawing.insert(key.name.clone());
        }
    }
    Ok(templates)
}

fn sequences(f: &mut Fields<'_>) -> Parsed<BTreeMap<String, u64>> {
    let mut sequences = BTreeMap::new();
    let Some(all) = f.get("sequence") else {
        return Ok(sequences);
    };
    for (key, item) in all.table("[sequence.NAME]")? {
        let mut f = item.fields(format!("[sequence.{}]", key.name))?;
        sequences.insert(key.name.clone(), f.need("start")?.count("start")?);
        f.end()?;
    }
    Ok(sequences)
}

fn phases(
    list: &Item,
    templates: &BTreeMap<String, Node>,
    collections: &[Collection],
    seen: &mut Seen,
) -> Parsed<Vec<Phase>> {
    let names: Vec<String> = collections.iter().map(|c| c.name.clone()).collect();
    let kept = collections.iter().find(|c| c.existing == Existing::Keep);
    let mut phases: Vec<Phase> = Vec::new();
    for item in list.list("[[phase]]")? {
        let p = phase(item, templates, &names, seen)?;
        if let Some(c) = kept.filter(|_| p.fresh) {
            return Err(item.bad(format!(
                "fresh = true would drop the collection {}, which existing = \"keep\" says to use as it is",
                c.name
            )));
        }
        if phases.iter().any(|o| o.name == p.name) {
            return Err(item.bad(format!("there are two [[phase]] named {}", p.name)));
        }
        phases.push(p);
    }
    Ok(phases)
}

/// Refuses keys drawn from a sequence that no template takes numbers from, as no key would ever
/// exist.
fn keys_have_sequences(seen: &Seen, sequences: &BTreeMap<String, u64>) -> Parsed<()> {
    let known: Vec<&str> = sequences.keys().map(String::as_str).collect();
    match seen.keys.iter().find(|(n, _)| !sequences.contains_key(*n)) {
        None => Ok(()),
        Some((name, line)) => Err(none_of(
            *line,
            "key",
            &format!(
                "nothing takes numbers of the sequence '{name}', and there is no [sequence.{name}]: {}there are {}",
                meant(name, &known),
                known.join(", ")
            ),
        )),
    }
}

fn collection(item: &Item, own_database: bool) -> Parsed<Collection> {
    let mut f = item.fields("[[collection]]")?;
    let name = f.need("name")?.text("name")?.to_string();
    let words = [
        ("drop", Existing::Drop),
        ("fail", Existing::Fail),
        ("keep", Existing::Keep),
    ];
    let existing = f.get("existing").map(|i| i.one_of("existing", &words));
    let usual = if own_database {
        Existing::Drop
    } else {
        Existing::Fail
    };
    let options = f.get("options").map(|i| constant(i, "options"));
    let mut indexes = Vec::new();
    if let Some(list) = f.get("indexes") {
        for item in list.list("indexes")? {
            indexes.push(index(item)?);
        }
    }
    f.end()?;
    Ok(Collection {
        name,
        existing: existing.unwrap_or(Ok(usual))?,
        options: options.unwrap_or_else(|| Ok(DocBuf::new()))?,
        indexes,
    })
}

/// Reads an index as createIndexes takes it, and gives it a name.
fn index(item: &Item) -> Parsed<DocBuf> {
    let spec = constant(item, "an index")?;
    let key = spec.as_doc().get_doc("key").filter(|k| !k.is_empty());
    let Some(key) = key else {
        return Err(item.bad("an index needs key = { FIELD = 1, … }"));
    };
    let mut out = spec.clone();
    if spec.as_doc().get("name").is_none() {
        let parts = key.iter().map(|e| {
            let value = e.value().to_display();
            format!("{}_{}", e.name(), value.trim_matches('"'))
        });
        out.append("name", parts.collect::<Vec<_>>().join("_").as_str());
    }
    Ok(out)
}

fn phase(
    item: &Item,
    templates: &BTreeMap<String, Node>,
    collections: &[String],
    seen: &mut Seen,
) -> Parsed<Phase> {
    let mut f = item.fields("[[phase]]")?;
    let loads = f
        .need("kind")?
        .one_of("kind", &[("load", true), ("run", false)])?;
    let kind = if loads { "load" } else { "run" };
    f.what = format!("[[phase]] of kind {kind}");
    let name = f
        .get("name")
        .map_or(Ok(kind), |i| i.text("name"))?
        .to_string();
    let concerns = Concerns::read(&mut f)?;
    let shape = Shape::read(&mut f)?;
    let around = Around {
        templates,
        collections,
        concerns: &concerns,
        shape: shape.as_ref(),
    };
    let (rate, poisson) = pace(&mut f)?;
    let mut p = Phase {
        name,
        records: None,
        threads: f.get("threads").map_or(Ok(1), |i| i.positive("threads"))?,
        operations: None,
        seconds: f
            .get("seconds")
            .map(|i| i.above_zero("seconds"))
            .transpose()?,
        rate,
        poisson,
        warmup: 0.0,
        fresh: f.get("fresh").map_or(Ok(false), |i| i.flag("fresh"))?,
        work: Vec::new(),
    };
    if p.threads > 10_000 {
        return Err(f.bad(format!("threads = {} is more than 10,000", p.threads)));
    }
    match loads {
        true => p.load(&mut f, &around, seen)?,
        false => p.run(&mut f, &around, seen)?,
    }
    if shape.is_some() && !p.work.iter().any(|o| o.draws) {
        return Err(f.bad("distribution: no key in this phase is drawn by it"));
    }
    applies(&f, &concerns, &p)?;
    f.end()?;
    Ok(p)
}

impl Phase {
    /// Reads the keys that only a load phase has.
    fn load(&mut self, f: &mut Fields<'_>, around: &Around<'_>, seen: &mut Seen) -> Parsed<()> {
        self.records = Some(f.need("records")?.positive("records")?);
        self.work.push(Operation::load(f, around, seen)?);
        Ok(())
    }

    /// Reads the keys that only a run phase has.
    fn run(&mut self, f: &mut Fields<'_>, around: &Around<'_>, seen: &mut Seen) -> Parsed<()> {
        self.operations = f
            .get("operations")
            .map(|i| i.positive("operations"))
            .transpose()?;
        self.warmup = f.get("warmup").map_or(Ok(0.0), |i| i.number("warmup"))?;
        if !(0.0..=86_400.0).contains(&self.warmup) {
            return Err(f.bad("warmup must be 0 to 86400 seconds"));
        }
        if self.operations.is_none() && self.seconds.is_none() {
            return Err(f.bad("it needs operations or seconds, or both"));
        }
        let list = f.need("operation")?;
        for o in list.list("[[phase.operation]]")? {
            let o = Operation::read(o, around, seen)?;
            if self.work.iter().any(|other| other.name == o.name) {
                return Err(list.bad(format!(
                    "there are two operations named '{}': give each a name",
                    o.name
                )));
            }
            self.work.push(o);
        }
        match self.work.is_empty() {
            true => Err(list.bad("there must be one [[phase.operation]] at least")),
            false => Ok(()),
        }
    }
}

/// Reads `rate` and `pace`.
fn pace(f: &mut Fields<'_>) -> Parsed<(Option<f64>, bool)> {
    let rate = f.get("rate").map(|i| i.above_zero("rate")).transpose()?;
    let words = [("poisson", true), ("steady", false)];
    let pace = f.get("pace").map(|i| (i, i.one_of("pace", &words)));
    match (pace, rate) {
        (Some((i, _)), None) => Err(i.bad("pace belongs to rate")),
        (pace, rate) => Ok((rate, pace.map_or(Ok(false), |(_, p)| p)?)),
    }
}

/// Refuses keys of a phase that none of its operations would use.
fn applies(f: &Fields<'_>, c: &Concerns, p: &Phase) -> Parsed<()> {
    let any = |is: fn(operation::Kind) -> bool| p.work.iter().any(|o| is(o.kind));
    if c.write.is_some() && !any(operation::Kind::writes) {
        return Err(f.bad("write_concern: no operation of this phase writes"));
    }
    if (c.read.is_some() || c.preference.is_some()) && !any(operation::Kind::reads) {
        return Err(f.bad("read_concern, read_preference: no operation of this phase reads"));
    }
    Ok(())
}

/// Parses a number that a person typed for `key`.
///
/// # Errors
/// The text is no number, or the number is out of range.
pub(crate) fn typed<T: std::str::FromStr>(
    key: &str,
    value: &str,
    right: &str,
    is: impl Fn(&T) -> bool,
) -> Result<T> {
    let n = value.parse().ok().filter(|n| is(n));
    n.ok_or_else(|| Failure(format!("{key}={value}: {key} must be {right}")))
}

#[cfg(test)]
mod tests;

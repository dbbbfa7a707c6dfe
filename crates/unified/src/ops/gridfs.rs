//! GridFS with plain commands: files in two collections. Filters have ids and names under `$eq`, since these
//! may look like operators.

use super::{Args, Got, Place};
use crate::client::Kind;
use crate::cursor::{Cursor, Opening};
use crate::failure::{Done, Failure, broken, whole};
use crate::matching::from_hex;
use crate::session::SessionRef;
use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};

/// The bytes of a chunk, unless the bucket or the upload sets another number.
const CHUNK: i64 = 255 * 1024;

/// A bucket.
pub(crate) struct Bucket {
    /// Its database and concerns; the collection is the bucket's name.
    pub place: Place,
    /// The bytes of a chunk.
    pub chunk: i64,
}

impl Bucket {
    /// The bucket of an entity in a database.
    ///
    /// # Errors
    /// A malformed test.
    pub(crate) fn new(database: &Place, mut options: Document) -> Done<Bucket> {
        let name = match options.remove("bucketName") {
            Some(Bson::String(s)) => s,
            None => "fs".to_owned(),
            Some(other) => return broken(format!("bucketName is {other}")),
        };
        let chunk = options.remove("chunkSizeBytes").as_ref().and_then(whole);
        let settings = database.settings.with(&mut options);
        options.remove("disableMD5");
        if let Some(name) = options.keys().next() {
            return broken(format!("a bucket's option {name}"));
        }
        Ok(Bucket {
            place: Place {
                collection: name,
                settings,
                ..database.clone()
            },
            chunk: chunk.unwrap_or(CHUNK),
        })
    }

    fn part(&self, part: &str) -> Place {
        Place {
            collection: format!("{}.{part}", self.place.collection),
            ..self.place.clone()
        }
    }

    fn find(&self, part: &str, body: Document, session: &SessionRef) -> Done<Vec<Document>> {
        let place = self.part(part);
        let mut all = doc! { "find": &place.collection };
        all.extend(body);
        let mut cursor = Cursor::open(Opening {
            client: place.client,
            db: place.db,
            body: all,
            session: session.clone(),
            kind: Kind::RetryableRead,
            settings: place.settings,
            more: Document::new(),
            limit: None,
        })?;
        Ok(cursor.all()?)
    }

    fn write(
        &self,
        name: &str,
        part: &str,
        args: Document,
        session: &SessionRef,
    ) -> Done<Document> {
        let got = super::write::single(&self.part(part), name, Args::new(name, args), session)?;
        match got {
            Got::Value(Some(Bson::Document(d))) => Ok(d),
            _ => broken("a write without a result"),
        }
    }

    /// Runs an operation.
    ///
    /// # Errors
    /// The server's errors, and the client's errors for a file that is missing or damaged.
    pub(crate) fn operate(&self, name: &str, mut args: Args, session: &SessionRef) -> Done<Got> {
        match name {
            "upload" | "uploadWithId" => self.upload(args, session),
            "download" => {
                let id = args.need("id")?;
                args.finish()?;
                let found = self.find(
                    "files",
                    doc! { "filter": { "_id": { "$eq": id } }, "limit": 1, "singleBatch": true },
                    session,
                )?;
                self.download(found.first(), session)
            }
            "downloadByName" => self.download_by_name(args, session),
            "delete" => {
                let id = args.need("id")?;
                args.finish()?;
                self.delete(&id, session)
            }
            "deleteByName" => self.delete_by_name(args, session),
            "rename" | "renameByName" => self.rename(name, args, session),
            "drop" => {
                args.finish()?;
                for part in ["files", "chunks"] {
                    let nothing = Args::new("drop", Document::new());
                    super::manage::drop_collection(&self.part(part), nothing, session)?;
                }
                Ok(Got::NOTHING)
            }
            other => broken(format!("a bucket has no operation {other}")),
        }
    }

    fn download_by_name(&self, mut args: Args, session: &SessionRef) -> Done<Got> {
        let filename = args.need("filename")?;
        let revision = args.take("revision").as_ref().and_then(whole).unwrap_or(-1);
        args.finish()?;
        // The revisions count from the oldest one or, if negative, from the newest one.
        let (sort, skip) = match revision {
            n if n >= 0 => (1, n),
            n => (-1, -n - 1),
        };
        let body = doc! {
            "filter": { "filename": { "$eq": filename } },
            "sort": { "uploadDate": sort },
            "skip": skip,
            "limit": 1,
            "singleBatch": true,
        };
        let found = self.find("files", body, session)?;
        self.download(found.first(), session)
    }

    fn delete_by_name(&self, mut args: Args, session: &SessionRef) -> Done<Got> {
        let filter = doc! { "filename": { "$eq": args.need("filename")? } };
        args.finish()?;
        let found = self.find(
            "files",
            doc! { "filter": filter.clone(), "projection": { "_id": 1 } },
            session,
        )?;
        if found.is_empty() {
            return missing();
        }
        let ids: Vec<Bson> = found.iter().filter_map(|d| d.get("_id").cloned()).collect();
        self.write(
            "deleteMany",
            "files",
            doc! { "filter": { "_id": { "$in": ids.clone() } } },
            session,
        )?;
        self.write(
            "deleteMany",
            "chunks",
            doc! { "filter": { "files_id": { "$in": ids } } },
            session,
        )?;
        Ok(Got::NOTHING)
    }

    /// Renames the file with an id, or all files with a name.
    fn rename(&self, name: &str, mut args: Args, session: &SessionRef) -> Done<Got> {
        let new = args.need("newFilename")?;
        let (filter, verb) = match name {
            "rename" => (doc! { "_id": { "$eq": args.need("id")? } }, "updateOne"),
            _ => (
                doc! { "filename": { "$eq": args.need("filename")? } },
                "updateMany",
            ),
        };
        args.finish()?;
        let update = doc! { "filter": filter, "update": { "$set": { "filename": new } } };
        let result = self.write(verb, "files", update, session)?;
        if result.get("matchedCount").and_then(whole) == Some(0) {
            return missing();
        }
        Ok(Got::NOTHING)
    }

    fn upload(&self, mut args: Args, session: &SessionRef) -> Done<Got> {
        let source = args.need_doc("source")?;
        let Some(bytes) = source.get_str("$$hexBytes").ok().and_then(from_hex) else {
            return broken(format!("an upload's source is {source}"));
        };
        let id = args
            .take("id")
            .unwrap_or_else(|| bson::oid::ObjectId::new().into());
        let given = args.take("chunkSizeBytes").as_ref().and_then(whole);
        let size = given.unwrap_or(self.chunk).max(1);
        args.take("disableMD5");
        let mut file = doc! {
            "_id": id.clone(),
            "length": bytes.len() as i64,
            "chunkSize": size as i32,
            "uploadDate": bson::DateTime::now(),
            "filename": args.need("filename")?,
        };
        args.pass(&mut file, &["metadata", "contentType", "aliases"]);
        args.finish()?;
        self.make_indexes(session)?;
        let chunks = bytes.chunks(usize::try_from(size).unwrap_or(1)).enumerate();
        let chunks = chunks.map(|(n, data)| {
            let data = Binary {
                subtype: BinarySubtype::Generic,
                bytes: data.to_vec(),
            };
            Bson::Document(doc! { "files_id": id.clone(), "n": n as i32, "data": data })
        });
        let chunks: Vec<Bson> = chunks.collect();
        if !chunks.is_empty() {
            let many = Args::new("insertMany", doc! { "documents": chunks });
            super::write::insert_many(&self.part("chunks"), many, session)?;
        }
        self.write("insertOne", "files", doc! { "document": file }, session)?;
        Ok(Got::Value(Some(id)))
    }

    /// Makes the indexes. Drivers do so with the first file.
    fn make_indexes(&self, session: &SessionRef) -> Done<()> {
        let first =
            doc! { "filter": {}, "projection": { "_id": 1 }, "limit": 1, "singleBatch": true };
        if !self.find("files", first, session)?.is_empty() {
            return Ok(());
        }
        for (part, keys) in [
            ("files", doc! { "filename": 1, "uploadDate": 1 }),
            ("chunks", doc! { "files_id": 1, "n": 1 }),
        ] {
            let mut spec = doc! { "keys": keys };
            if part == "chunks" {
                spec.insert("unique", true);
            }
            let args = Args::new("createIndex", spec);
            super::manage::create_index(&self.part(part), args, session)?;
        }
        Ok(())
    }

    fn download(&self, file: Option<&Document>, session: &SessionRef) -> Done<Got> {
        let Some(file) = file else {
            return missing();
        };
        let number = |name: &str| file.get(name).and_then(whole).unwrap_or(0);
        let (length, size) = (number("length"), number("chunkSize").max(1));
        let mut bytes = Vec::new();
        if length > 0 {
            let id = file.get("_id").cloned().unwrap_or(Bson::Null);
            let filter = doc! { "files_id": { "$eq": id } };
            let chunks = self.find(
                "chunks",
                doc! { "filter": filter, "sort": { "n": 1 } },
                session,
            )?;
            for (i, chunk) in chunks.iter().enumerate() {
                let at = i as i64 * size;
                let want = size.min(length - at);
                let data = match chunk.get("data") {
                    Some(Bson::Binary(b)) => b.bytes.as_slice(),
                    _ => &[],
                };
                let n = chunk.get("n").and_then(whole);
                if n != Some(i as i64) || data.len() as i64 != want {
                    return Err(
                        Failure::of_client(format!("chunk {i} is damaged or missing")).into(),
                    );
                }
                bytes.extend_from_slice(data);
            }
        }
        if bytes.len() as i64 != length {
            return Err(Failure::of_client("the file has too few chunks").into());
        }
        let content = Binary {
            subtype: BinarySubtype::Generic,
            bytes,
        };
        Ok(Got::Value(Some(Bson::Binary(content))))
    }

    fn delete(&self, id: &Bson, session: &SessionRef) -> Done<Got> {
        let file = self.write(
            "deleteOne",
            "files",
            doc! { "filter": { "_id": { "$eq": id.clone() } } },
            session,
        )?;
        self.write(
            "deleteMany",
            "chunks",
            doc! { "filter": { "files_id": { "$eq": id.clone() } } },
            session,
        )?;
        match file.get("deletedCount").and_then(whole) {
            Some(0) => missing(),
            _ => Ok(Got::NOTHING),
        }
    }
}

fn missing() -> Done<Got> {
    Err(Failure::of_client("there is no such file").into())
}

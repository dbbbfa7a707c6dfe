// An observer of the oplog as applications have them who follow collections by it: a tailable cursor
// on local.oplog.rs from the newest entry on, entries applied to a copy in memory, and the copy compared
// with the collection after many clients have written.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { BSON, MongoClient } from 'mongodb';

const ROUNDS = 10;
const SECONDS = Number(process.env.MUNIMENT_OPLOG_SECONDS ?? 3);
const SEED = Number(process.env.MUNIMENT_OPLOG_SEED ?? Date.now() % 1e9);

let client;
let db;

before(async () => {
  client = await MongoClient.connect(process.env.MUNIMENT_URI);
  db = client.db('oplog_tests');
  await db.dropDatabase();
});

after(async () => {
  await db.dropDatabase();
  await client.close();
});

/** A number in [0, 1) of a generator that a seed determines (mulberry32). */
function generator(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = a;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Applies a difference of version 2 to a document or an array, in place. */
function applyDiff(target, diff) {
  if (diff.a) {
    assert.ok(Array.isArray(target), 'a difference of arrays is one of an array');
    for (const [name, value] of Object.entries(diff)) {
      if (name === 'a') continue;
      if (name === 'l') {
        target.length = value;
        continue;
      }
      const index = Number(name.slice(1));
      if (name[0] === 'u') target[index] = value;
      else if (name[0] === 's') applyDiff(target[index], value);
      else assert.fail(`unknown part ${name} of a difference of arrays`);
    }
    return;
  }
  for (const [name, value] of Object.entries(diff)) {
    if (name === 'd') for (const field of Object.keys(value)) delete target[field];
    else if (name === 'u') Object.assign(target, value);
    else if (name === 'i') {
      for (const [field, inserted] of Object.entries(value)) {
        // What is inserted stands at the end, also where a field of that name stood before.
        delete target[field];
        target[field] = inserted;
      }
    } else if (name[0] === 's') applyDiff(target[name.slice(1)], value);
    else assert.fail(`unknown part ${name} of a difference`);
  }
}

/** Copies of a database's collections, kept by its oplog. */
class Observer {
  constructor(database) {
    this.database = database;
    this.collections = new Map();
    this.kinds = new Map();
    this.applied = null;
    this.oplog = client.db('local').collection('oplog.rs');
    this.base = {
      ns: new RegExp(`^(?:${database}\\.|admin\\.\\$cmd)`),
      $or: [
        { op: { $in: ['i', 'u', 'd'] } },
        { op: 'c', 'o.drop': { $exists: true } },
        { op: 'c', 'o.dropDatabase': 1 },
        { op: 'c', 'o.applyOps': { $exists: true } },
      ],
    };
  }

  newest(filter) {
    return this.oplog.findOne(filter, { sort: { $natural: -1 }, projection: { ts: 1 } });
  }

  async start() {
    const last = await this.newest({});
    this.cursor = this.oplog.find(
      { ...this.base, ts: { $gt: last.ts } },
      { tailable: true, awaitData: true, maxAwaitTimeMS: 200 },
    );
    this.done = (async () => {
      for await (const entry of this.cursor) {
        if (this.applied) assert.ok(entry.ts.gt(this.applied), 'entries come in order and once');
        this.apply(entry);
        this.applied = entry.ts;
      }
    })();
    this.done.catch((e) => {
      // The request that waits when its cursor is closed is told that the cursor was killed (237).
      if (!(this.stopping && e.code === 237)) this.failure = e;
    });
  }

  /** Waits until everything has come that is in the oplog now. */
  async catchUp() {
    const last = await this.newest(this.base);
    const end = Date.now() + 20000;
    while (!this.applied || this.applied.lt(last.ts)) {
      if (this.failure) throw this.failure;
      assert.ok(Date.now() < end, `at ${this.applied}, not at ${last.ts}`);
      await new Promise((done) => setTimeout(done, 10));
    }
  }

  async stop() {
    this.stopping = true;
    await this.cursor.close();
    await this.done.catch(() => {});
    if (this.failure) throw this.failure;
  }

  collection(ns) {
    const name = ns.slice(this.database.length + 1);
    if (!this.collections.has(name)) this.collections.set(name, new Map());
    return this.collections.get(name);
  }

  apply(entry) {
    this.kinds.set(entry.op, (this.kinds.get(entry.op) ?? 0) + 1);
    const key = (id) => BSON.EJSON.stringify(id);
    switch (entry.op) {
      case 'i':
        this.collection(entry.ns).set(key(entry.o._id), entry.o);
        break;
      case 'd':
        assert.ok(this.collection(entry.ns).delete(key(entry.o._id)), 'what is deleted was there');
        break;
      case 'u': {
        const copy = this.collection(entry.ns);
        const id = key(entry.o2._id);
        assert.ok(copy.has(id), 'what is updated is there');
        if (entry.o.$v === undefined) {
          copy.set(id, entry.o);
        } else {
          assert.equal(entry.o.$v, 2);
          this.kinds.set('diff', (this.kinds.get('diff') ?? 0) + 1);
          applyDiff(copy.get(id), entry.o.diff);
        }
        break;
      }
      case 'c':
        if (entry.o.applyOps) {
          const of = (ns) => ns.startsWith(`${this.database}.`);
          entry.o.applyOps.filter((o) => of(o.ns)).forEach((o) => this.apply(o));
        } else if (entry.o.drop) {
          this.kinds.set('drop', (this.kinds.get('drop') ?? 0) + 1);
          this.collections.delete(entry.o.drop);
        } else if (entry.o.dropDatabase) {
          this.collections.clear();
        }
        break;
      default:
        assert.fail(`the filter lets nothing else through: ${entry.op}`);
    }
  }

  /** The copy of a collection in the order of its _ids, byte by byte. */
  shown(name) {
    const copy = [...(this.collections.get(name)?.values() ?? [])];
    return copy.sort((a, b) => a._id - b._id).map((d) => BSON.serialize(d).toString('hex'));
  }
}

/** An update that changes some parts of a document. */
function someUpdate(random) {
  const pick = (...all) => all[Math.floor(random() * all.length)];
  const n = Math.floor(random() * 100);
  return pick(
    { $set: { a: n } },
    { $inc: { 'b.c': n }, $set: { 'b.d.e': 'x'.repeat(n) } },
    { $unset: { a: '', 'b.d': '' } },
    { $push: { list: { $each: [n, { k: n, t: 'y'.repeat(60) }], $slice: 8 } } },
    { $pull: { list: { $lt: 50 } } },
    { $pop: { list: 1 } },
    { $set: { 'list.1': { k: n, l: [1, 2, 3] } } },
    { $rename: { a: 'z' } },
    [{ $set: { sum: { $add: [{ $ifNull: ['$a', 0] }, n] }, b: { deep: { er: n } } } }],
    { $set: { 'list.1.k': n } },
    [{ $set: { list: { $slice: ['$list', 3] } } }],
    [{ $set: { list: { $concatArrays: [{ $slice: ['$list', 2] }, [n, [n, { m: n }]]] } } }],
  );
}

/** One write of a random kind; in a transaction with `session`. */
async function write(random, names, session) {
  const c = db.collection(names[Math.floor(random() * names.length)]);
  const id = () => Math.floor(random() * 200);
  const filter = { _id: id() };
  const listed = { list: { $type: 'array' } };
  // Long enough that a difference is shorter than what it changes.
  const text = 'x'.repeat(100);
  const document = { a: id(), b: { c: 1, d: { e: 'e' }, text }, list: [1, { k: 2, text }, [3, text], 99] };
  const options = { session };
  const kind = random();
  if (kind < 0.3) await c.updateOne(filter, { $setOnInsert: document }, { ...options, upsert: true });
  else if (kind < 0.6) await c.updateOne({ ...filter, ...listed }, someUpdate(random), options);
  else if (kind < 0.7) await c.updateMany({ _id: { $gt: id() }, ...listed }, someUpdate(random), options);
  else if (kind < 0.8) await c.replaceOne(filter, { ...document, r: id() }, { ...options, upsert: true });
  else if (kind < 0.9) await c.deleteOne(filter, options);
  else if (kind < 0.93) await c.deleteMany({ _id: { $lt: Math.floor(random() * 20) } }, options);
  else await c.findOneAndUpdate(filter, { $set: { f: id() } }, { ...options, upsert: true });
}

/** What two clients may do to each other without an error in either. */
function isConflict(e) {
  const wrongForItsDocument = [2, 14, 28, 59, 16836, 16837].includes(e.code) || /\$|path|array/i.test(e.message);
  return e.code === 112 || e.code === 11000 || e.hasErrorLabel?.('TransientTransactionError') || wrongForItsDocument;
}

async function writer(seed, until, names) {
  const random = generator(seed);
  let written = 0;
  while (Date.now() < until) {
    try {
      if (random() < 0.25) {
        await client.withSession(async (session) => {
          session.startTransaction();
          const statements = 1 + Math.floor(random() * 6);
          for (let n = 0; n < statements; n++) await write(random, names, session);
          if (random() < 0.2) await session.abortTransaction();
          else await session.commitTransaction();
        });
      } else {
        await write(random, names);
      }
      written += 1;
    } catch (e) {
      if (!isConflict(e)) throw e;
    }
  }
  return written;
}

/** The copies are what the collections are. */
async function compare(observer, names) {
  await observer.catchUp();
  for (const name of names) {
    const found = await db.collection(name).find().sort({ _id: 1 }).toArray();
    assert.deepEqual(observer.shown(name), found.map((d) => BSON.serialize(d).toString('hex')), name);
  }
}

test('an observer of the oplog has what the collections have', async (t) => {
  t.diagnostic(`seed ${SEED}`);
  const names = ['one', 'two'];
  for (const name of names) await db.createCollection(name);
  const observer = new Observer(db.databaseName);
  await observer.start();
  try {
    const written = [0, 0, 0];
    // Often, since what goes wrong with a document may be hidden by what comes later.
    for (let round = 0; round < ROUNDS; round++) {
      const until = Date.now() + (SECONDS * 1000) / ROUNDS;
      const writers = [1, 2, 3].map((n) => writer(SEED + round * 10 + n, until, names));
      (await Promise.all(writers)).forEach((n, i) => (written[i] += n));
      await compare(observer, names);
    }
    // One of them goes, and comes back with less.
    await db.collection('two').drop();
    await db.collection('two').insertMany([{ _id: 1 }, { _id: 2, a: 1 }]);
    await db.collection('two').updateOne({ _id: 2 }, { $unset: { a: 1 } });
    await compare(observer, names);
    t.diagnostic(`writes ${written}, entries ${JSON.stringify([...observer.kinds])}`);
    assert.equal(observer.shown('two').length, 2);
    for (const kind of ['i', 'u', 'd', 'c', 'diff', 'drop']) assert.ok(observer.kinds.get(kind) > 0, kind);
  } finally {
    await observer.stop();
  }
});

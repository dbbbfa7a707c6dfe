// The Node driver, run by `node --test`, against the server that MUNIMENT_URI names.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Long, MongoClient, MongoServerError, ObjectId } from 'mongodb';

let client;
let db;

before(async () => {
  client = await MongoClient.connect(process.env.MUNIMENT_URI);
  db = client.db('node_tests');
  await db.dropDatabase();
});

after(async () => {
  await db.dropDatabase();
  await client.close();
});

test('insert, find, update, delete', async () => {
  const c = db.collection('crud');
  const { insertedIds } = await c.insertMany([{ n: 1 }, { n: 2, l: Long.fromString('9007199254740993') }]);
  assert.ok(insertedIds[0] instanceof ObjectId);
  assert.equal((await c.findOne({ n: 2 }, { promoteLongs: false })).l.toString(), '9007199254740993');
  const r = await c.updateOne({ n: 1 }, { $set: { x: [1, 2, 3] }, $inc: { n: 10 } });
  assert.equal(r.modifiedCount, 1);
  assert.deepEqual((await c.findOne({ n: 11 })).x, [1, 2, 3]);
  const up = await c.findOneAndUpdate({ n: 5 }, { $set: { up: true } }, { upsert: true, returnDocument: 'after' });
  assert.equal(up.up, true);
  assert.equal((await c.deleteMany({})).deletedCount, 3);
});

test('cursors stream in batches', async () => {
  const c = db.collection('cursor');
  await c.insertMany(Array.from({ length: 1000 }, (_, i) => ({ _id: i })));
  let sum = 0;
  for await (const d of c.find({}, { batchSize: 13 }).sort({ _id: 1 })) sum += d._id;
  assert.equal(sum, 499500);
  assert.equal(await c.countDocuments({ _id: { $lt: 10 } }), 10);
  assert.equal(await c.estimatedDocumentCount(), 1000);
});

test('aggregate', async () => {
  const c = db.collection('agg');
  await c.insertMany(Array.from({ length: 10 }, (_, i) => ({ k: i % 2, v: i })));
  const got = await c.aggregate([{ $group: { _id: '$k', t: { $sum: '$v' } } }, { $sort: { _id: 1 } }]).toArray();
  assert.deepEqual(got, [{ _id: 0, t: 20 }, { _id: 1, t: 25 }]);
});

test('duplicate key errors carry the key', async () => {
  const c = db.collection('dup');
  await c.createIndex({ email: 1 }, { unique: true });
  await c.insertOne({ email: 'a@b' });
  await assert.rejects(c.insertOne({ email: 'a@b' }), (e) => {
    assert.ok(e instanceof MongoServerError);
    assert.equal(e.code, 11000);
    assert.deepEqual(e.keyPattern, { email: 1 });
    assert.deepEqual(e.keyValue, { email: 'a@b' });
    return true;
  });
});

test('client bulkWrite', async () => {
  const r = await client.bulkWrite([
    { namespace: 'node_tests.b1', name: 'insertOne', document: { _id: 1 } },
    { namespace: 'node_tests.b2', name: 'insertOne', document: { _id: 1 } },
    { namespace: 'node_tests.b1', name: 'updateOne', filter: { _id: 1 }, update: { $set: { x: 1 } } },
    { namespace: 'node_tests.b2', name: 'deleteMany', filter: {} },
  ]);
  assert.equal(r.insertedCount, 2);
  assert.equal(r.modifiedCount, 1);
  assert.equal(r.deletedCount, 1);
});

test('write concerns and w:0', async () => {
  const c = db.collection('wc');
  await c.insertOne({ _id: 1 }, { writeConcern: { w: 1, journal: true } });
  await c.insertOne({ _id: 2 }, { writeConcern: { w: 'majority' } });
  await c.insertOne({ _id: 3 }, { writeConcern: { w: 0 } });
  await assert.rejects(c.insertOne({ _id: 4 }, { writeConcern: { w: 2 } }), { code: 2 });
  for (let i = 0; i < 100 && (await c.countDocuments({})) < 3; i++) await new Promise((r) => setTimeout(r, 10));
  assert.ok((await c.countDocuments({})) >= 3);
});

test('list collections and indexes', async () => {
  await db.createCollection('listed', { capped: true, size: 4096 });
  const names = (await db.listCollections().toArray()).map((x) => x.name);
  assert.ok(names.includes('listed'));
  assert.equal((await db.collection('listed').indexes())[0].name, '_id_');
  assert.equal(await db.collection('listed').isCapped(), true);
});

test('transactions and change streams', async () => {
  const c = db.collection('changes');
  const stream = c.watch([], { fullDocument: 'updateLookup' });
  const events = stream[Symbol.asyncIterator]();
  const first = events.next();
  // The stream is opened by the first look.
  await new Promise((r) => setTimeout(r, 200));
  await client.withSession((session) =>
    session.withTransaction(async () => {
      await c.insertOne({ _id: 1 }, { session });
      await c.updateOne({ _id: 1 }, { $set: { x: 1 } }, { session });
    }),
  );
  await assert.rejects(
    client.withSession((session) =>
      session.withTransaction(async () => {
        await c.insertOne({ _id: 2 }, { session });
        throw new Error('given up');
      }),
    ),
    /given up/,
  );
  assert.equal((await first).value.operationType, 'insert');
  const update = (await events.next()).value;
  assert.deepEqual(update.updateDescription.updatedFields, { x: 1 });
  assert.equal(update.fullDocument.x, 1);
  await stream.close();
  const resumed = c.watch([], { resumeAfter: update._id });
  await c.deleteOne({ _id: 1 });
  assert.equal((await resumed.next()).operationType, 'delete');
  await resumed.close();
});

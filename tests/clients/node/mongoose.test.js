// Mongoose, run by `node --test`, against the server that MUNIMENT_URI names.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import mongoose, { Schema } from 'mongoose';

let connection;
let User;
let Post;

before(async () => {
  connection = mongoose.createConnection(process.env.MUNIMENT_URI, {
    dbName: 'mongoose_tests',
  });
  await connection.asPromise();
  await connection.dropDatabase();
  User = connection.model('User', new Schema({ name: { type: String, unique: true }, n: { type: Number, default: 0 } }));
  Post = connection.model('Post', new Schema({ title: String, author: { type: Schema.Types.ObjectId, ref: 'User' } }));
  await Promise.all([User.init(), Post.init()]);
});

after(async () => {
  await connection.dropDatabase();
  await connection.close();
});

test('connection.transaction commits, and resets the documents of one that fails', async () => {
  const kept = new User({ name: 'kept' });
  await connection.transaction(async (session) => {
    await kept.save({ session });
    await Post.create([{ title: 't', author: kept._id }], { session });
    const [post] = await Post.find().session(session).populate('author');
    assert.equal(post.author.name, 'kept');
    assert.equal(await User.countDocuments(), 0);
  });
  assert.equal(kept.isNew, false);
  const lost = new User({ name: 'lost' });
  const failing = connection.transaction(async (session) => {
    await lost.save({ session });
    await User.create([{ name: 'kept' }], { session });
  });
  await assert.rejects(failing, { code: 11000 });
  assert.equal(lost.isNew, true);
  assert.deepEqual((await User.find()).map((u) => u.name), ['kept']);
});

test('a transaction that meets another is run again', async () => {
  await User.create({ name: 'met', n: 0 });
  let runs = 0;
  await connection.transaction(async (session) => {
    runs += 1;
    const user = await User.findOne({ name: 'met' }).session(session);
    if (runs === 1) await User.updateOne({ name: 'met' }, { $inc: { n: 10 } });
    user.n += 1;
    await user.save();
  });
  assert.equal(runs, 2);
  assert.equal((await User.findOne({ name: 'met' })).n, 11);
});

test('sessions: bulkWrite, abort, snapshot', async () => {
  const session = await connection.startSession();
  await session.withTransaction(() =>
    User.bulkWrite(
      [
        { insertOne: { document: { name: 'bulk' } } },
        { updateOne: { filter: { name: 'bulk' }, update: { n: 5 } } },
      ],
      { session },
    ),
  );
  assert.equal((await User.findOne({ name: 'bulk' })).n, 5);
  const all = await User.countDocuments();
  session.startTransaction({ readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' } });
  await User.deleteMany({}, { session });
  assert.equal(await User.countDocuments().session(session), 0);
  await session.abortTransaction();
  await session.endSession();
  assert.equal(await User.countDocuments(), all);

  const snapshot = await connection.startSession({ snapshot: true });
  assert.equal(await User.countDocuments().session(snapshot), all);
  await User.create({ name: 'late' });
  assert.equal((await User.find().session(snapshot)).length, all);
  await snapshot.endSession();
});

test('Model.watch, resumed with hydrated documents', { timeout: 20_000 }, async () => {
  const stream = User.watch([{ $match: { operationType: { $ne: 'invalidate' } } }], { fullDocument: 'updateLookup' });
  const opened = stream.next();
  const marks = [];
  const mark = () => marks.push(User.updateOne({ name: 'marker' }, { $inc: { n: 1 } }, { upsert: true }).exec());
  const marker = setInterval(mark, 20);
  await opened;
  clearInterval(marker);
  // What is still under way must not come between the events below.
  await Promise.all(marks);
  const user = await User.create({ name: 'watched' });
  user.n = 3;
  await user.save();
  await User.replaceOne({ name: 'watched' }, { name: 'watched', n: 4 });
  await connection.transaction((session) => User.deleteOne({ name: 'watched' }, { session }));
  const events = [];
  while (events.length < 4) {
    const event = await stream.next();
    if (event.documentKey._id.equals(user._id)) events.push(event);
  }
  assert.deepEqual(events.map((e) => e.operationType), ['insert', 'update', 'replace', 'delete']);
  assert.ok(events[3].lsid && events[3].txnNumber !== undefined);
  await stream.close();

  const resumed = User.watch([], { resumeAfter: events[1]._id, hydrate: true });
  const replaced = await resumed.next();
  assert.ok(replaced.fullDocument instanceof User);
  assert.equal(replaced.fullDocument.n, 4);
  assert.equal((await resumed.next()).operationType, 'delete');
  await resumed.close();
});

test('a tailable cursor of a capped model', { timeout: 20_000 }, async () => {
  const Log = connection.model('Log', new Schema({ i: Number }, { capped: { size: 100_000 } }));
  await Log.createCollection();
  await Log.create({ i: 0 });
  const cursor = Log.find().tailable({ awaitData: true }).cursor();
  assert.equal((await cursor.next()).i, 0);
  const next = cursor.next();
  await Log.create({ i: 1 });
  assert.equal((await next).i, 1);
  await cursor.close();
});

// What a person types into mongosh; every line that fails throws.
const t = db.getSiblingDB('mongosh_tests');
t.dropDatabase();
function eq(got, want, what) {
  const a = EJSON.stringify(got), b = EJSON.stringify(want);
  if (a !== b) throw new Error(`${what}: got ${a}, want ${b}`);
}
eq(t.people.insertOne({ _id: 1, name: 'Ada', born: ISODate('1815-12-10') }).acknowledged, true, 'insertOne');
eq(t.people.insertMany([{ _id: 2, name: 'Grace' }, { _id: 3, name: 'Barbara' }]).insertedIds, { 0: 2, 1: 3 }, 'insertMany');
eq(t.people.find({ name: /^[AG]/ }).sort({ _id: -1 }).toArray().map((d) => d._id), [2, 1], 'find');
eq(t.people.updateOne({ _id: 2 }, { $set: { rank: 'RADM' } }).modifiedCount, 1, 'updateOne');
eq(t.people.countDocuments(), 3, 'countDocuments');
eq(t.people.createIndex({ name: 1 }, { unique: true }), 'name_1', 'createIndex');
eq(t.people.getIndexes().map((i) => i.name), ['_id_', 'name_1'], 'getIndexes');
eq(t.people.find({ name: 'Ada' }).explain().queryPlanner.winningPlan.indexName, 'name_1', 'explain');
eq(t.people.explain('executionStats').find({ name: 'Ada' }).finish().executionStats.nReturned, 1, 'executionStats');
eq(t.people.aggregate([{ $match: { _id: { $gt: 1 } } }, { $count: 'n' }]).toArray(), [{ n: 2 }], 'aggregate');
eq(t.people.distinct('name'), ['Ada', 'Barbara', 'Grace'], 'distinct');
eq(t.people.findOneAndDelete({ _id: 3 }).name, 'Barbara', 'findOneAndDelete');
eq(t.getCollectionNames(), ['people'], 'getCollectionNames');
eq(t.people.stats().count, 2, 'stats');
eq(t.people.validate({ full: true }).valid, true, 'validate');
if (!db.adminCommand('listDatabases').databases.some((d) => d.name === 'mongosh_tests')) throw new Error('listDatabases');
if (db.serverStatus().ok !== 1 || db.hello().isWritablePrimary !== true) throw new Error('status');
let code;
try { t.people.insertOne({ name: 'Ada' }); } catch (e) { code = e.code; }
eq(code, 11000, 'duplicate key');
eq(t.people.drop(), true, 'drop');
eq(t.dropDatabase().ok, 1, 'dropDatabase');
print('mongosh smoke passed');

// What a person types to make a replica set and to change it; every line that fails throws.
// HOSTS: four servers that were started with --replSet shell.
const hosts = process.env.HOSTS.split(',');
function check(what, is) {
  if (!is) throw new Error(what);
}
function until(what, is) {
  for (let i = 0; i < 300; i++) {
    try {
      if (is()) return;
    } catch (e) {
      // Between two primaries there is none.
    }
    sleep(100);
  }
  throw new Error(`it never came: ${what}`);
}
function at(host) {
  db = connect(`mongodb://${host}/admin?directConnection=true`);
}
function settled(members) {
  until(`${members} members that are primary or secondary`, () => {
    const states = rs.status().members.map((m) => m.stateStr).sort();
    return states.length === members && states[0] === 'PRIMARY' && states.slice(1).every((s) => s === 'SECONDARY');
  });
}
function primary() {
  let found;
  until('a primary', () => (found = rs.status().members.find((m) => m.state === 1)?.name));
  return found;
}

at(hosts[0]);
let code;
try { rs.status(); } catch (e) { code = e.code; }
check('rs.status() before rs.initiate() is 94', code === 94);
const settings = { electionTimeoutMillis: 1000, heartbeatIntervalMillis: 200 };
const members = hosts.slice(0, 3).map((host, _id) => ({ _id, host }));
check('rs.initiate', rs.initiate({ _id: 'shell', members, settings }).ok === 1);
settled(3);
at(primary());
check('rs.conf', rs.conf().members.length === 3 && rs.config().settings.electionTimeoutMillis === 1000);
check('rs.hello', rs.hello().setName === 'shell' && rs.isMaster().ismaster === true);
const t = db.getSiblingDB('shell_tests');
check('insert', t.c.insertOne({ _id: 1 }, { writeConcern: { w: 3, wtimeout: 30000 } }).acknowledged);

// Of three voters with data beside an arbiter none may be missing, so writes would no longer wait for the
// majority unless they say so.
try { rs.addArb('localhost:1'); code = 0; } catch (e) { code = e.code; check('it says why', /setDefaultRWConcern/.test(e.message)); }
check('rs.addArb is refused without a default write concern', code === 103);

check('rs.add', rs.add({ host: hosts[3], priority: 0, hidden: true, tags: { use: 'reports' } }).ok === 1);
settled(4);
check('the new member', rs.conf().members[3].hidden === true && rs.conf().members[3].tags.use === 'reports');
check('rs.printReplicationInfo', db.getReplicationInfo().logSizeMB > 0 && rs.printReplicationInfo() !== null);
const lags = rs.printSecondaryReplicationInfo().value;
check('rs.printSecondaryReplicationInfo', Object.keys(lags).length === 3 && JSON.stringify(lags).includes('behind'));

const changed = rs.conf();
changed.settings.getLastErrorModes = { reporting: { use: 1 } };
check('rs.reconfig', rs.reconfig(changed).ok === 1);
check('a mode', t.c.insertOne({ _id: 2 }, { writeConcern: { w: 'reporting', wtimeout: 30000 } }).acknowledged);

const first = primary();
at(hosts[3]);
check('rs.freeze', rs.freeze(1).ok === 1);
check('rs.syncFrom', rs.syncFrom(first).ok === 1);
at(first);
check('rs.stepDown', rs.stepDown(5, 3).ok === 1);
until('another primary', () => primary() !== first);
at(primary());
try { rs.remove(hosts[3]); code = 0; } catch (e) { code = e.code; }
check('nobody else has the tag that a mode wants', code === 93);
const without = rs.conf();
without.settings.getLastErrorModes = {};
rs.reconfig(without);
check('rs.remove', rs.remove(hosts[3]).ok === 1);
settled(3);

// A connection string as applications have it.
const uri = `mongodb://${hosts.slice(0, 3)}/shell_tests?replicaSet=shell&readPreference=secondary&maxStalenessSeconds=90&w=majority&wtimeoutMS=30000`;
db = connect(uri);
check('majority', db.c.insertOne({ _id: 3 }).acknowledged);
until('a secondary has it', () => db.c.countDocuments() === 3);
check('by read preference', db.c.find().explain().serverInfo.port !== Number(primaryPort()));
function primaryPort() {
  return db.hello().primary.split(':')[1];
}
print('mongosh set passed');

// Types of BSON that JavaScript has not, and the helpers that MongoDB's functions may expect.
// The value of this script is what the server needs to convert values.
(function (global) {
  "use strict";
  const tag = Symbol("bson");
  const ints = Symbol("ints");
  const order = Symbol("order");
  const mark = (o, value) => Object.defineProperty(o, tag, { value });
  const is = (o, name) => o !== null && typeof o === "object" && o[tag] !== undefined && o[tag][0] === name;
  const hidden = (o, name, value) => Object.defineProperty(o, name, { value, enumerable: false, writable: true, configurable: true });
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

  function toBytes(b64) {
    const out = [];
    let n = 0, bits = 0;
    for (const c of b64.replace(/=+$/, "")) {
      const v = letters.indexOf(c);
      if (v < 0) throw new TypeError("BinData expects a base 64 string");
      n = (n << 6 | v) & 0xffffff;
      bits += 6;
      if (bits >= 8) { bits -= 8; out.push(n >> bits & 255); }
    }
    return out;
  }
  function fromBytes(bytes) {
    let out = "";
    for (let i = 0; i < bytes.length; i += 3) {
      const n = bytes[i] << 16 | (bytes[i + 1] || 0) << 8 | (bytes[i + 2] || 0);
      out += letters[n >> 18] + letters[n >> 12 & 63];
      out += i + 1 < bytes.length ? letters[n >> 6 & 63] : "=";
      out += i + 2 < bytes.length ? letters[n & 63] : "=";
    }
    return out;
  }
  const hexOf = (bytes) => bytes.map((b) => b.toString(16).padStart(2, "0")).join("");
  function bytesOfHex(hex) {
    if (typeof hex !== "string" || hex.length % 2 || /[^0-9a-fA-F]/.test(hex)) throw new TypeError("expected hexadecimal digits");
    return (hex.match(/../g) || []).map((h) => parseInt(h, 16));
  }

  function define(name, make, methods) {
    const F = { [name]: function (...args) {
      const o = new.target ? this : Object.create(F.prototype);
      make(o, args);
      return o;
    } }[name];
    for (const [k, d] of Object.entries(Object.getOwnPropertyDescriptors(methods))) Object.defineProperty(F.prototype, k, { ...d, enumerable: false });
    hidden(global, name, F);
    return F;
  }

  const NumberLong = define("NumberLong", (o, args) => {
    let v = args.length === 0 ? 0 : args[0];
    if (is(v, "long")) v = v[tag][1];
    if (typeof v === "string" && !/^\s*[-+]?\d+\s*$/.test(v)) throw new TypeError("could not convert \"" + v + "\" to NumberLong");
    let n = typeof v === "bigint" ? v : typeof v === "string" ? BigInt(v.trim().replace(/^\+/, "")) : BigInt(Math.trunc(Number(v)));
    if (BigInt.asIntN(64, n) !== n) throw new RangeError("value is out of range for NumberLong");
    mark(o, ["long", String(n)]);
  }, {
    toNumber() { return Number(this[tag][1]); },
    valueOf() { return Number(this[tag][1]); },
    toString() { return "NumberLong(" + (Math.abs(this.toNumber()) < 2147483648 ? this[tag][1] : "\"" + this[tag][1] + "\"") + ")"; },
    tojson() { return this.toString(); },
    toJSON() { return { $numberLong: this[tag][1] }; },
    get exactValueString() { return this[tag][1]; },
    get floatApprox() { return this.toNumber(); },
    get top() { return Number(BigInt(this[tag][1]) >> 32n); },
    get bottom() { return Number(BigInt.asUintN(32, BigInt(this[tag][1]))); },
    compare(other) { const a = BigInt(this[tag][1]), b = BigInt(NumberLong(other)[tag][1]); return a < b ? -1 : a > b ? 1 : 0; },
  });
  const NumberInt = define("NumberInt", (o, args) => mark(o, ["int", Number(args.length ? args[0] : 0) | 0]), {
    toNumber() { return this[tag][1]; },
    valueOf() { return this[tag][1]; },
    toString() { return "NumberInt(" + this[tag][1] + ")"; },
    tojson() { return this.toString(); },
    toJSON() { return this[tag][1]; },
  });
  const NumberDecimal = define("NumberDecimal", (o, args) => {
    let v = args.length ? args[0] : "0";
    v = is(v, "dec") || is(v, "long") ? v[tag][1] : String(v);
    if (!/^[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf(inity)?|nan)$/i.test(v)) throw new Error("Input is not a valid Decimal128 value.");
    mark(o, ["dec", v]);
  }, {
    toString() { return "NumberDecimal(\"" + this[tag][1] + "\")"; },
    tojson() { return this.toString(); },
    toJSON() { return { $numberDecimal: this[tag][1] }; },
  });
  const ObjectId = define("ObjectId", (o, args) => {
    let hex;
    if (args.length === 0) {
      hex = Math.floor(Date.now() / 1000).toString(16).padStart(8, "0");
      while (hex.length < 24) hex += Math.floor(Math.random() * 16).toString(16);
    } else {
      hex = is(args[0], "oid") ? args[0][tag][1] : args[0];
      if (typeof hex !== "string" || !/^[0-9a-fA-F]{24}$/.test(hex)) throw new Error("invalid object id: length");
    }
    mark(o, ["oid", hex.toLowerCase()]);
    o.str = hex.toLowerCase();
  }, {
    toString() { return "ObjectId(\"" + this[tag][1] + "\")"; },
    tojson() { return this.toString(); },
    toJSON() { return { $oid: this[tag][1] }; },
    valueOf() { return this[tag][1]; },
    equals(other) { return is(other, "oid") && other[tag][1] === this[tag][1]; },
    getTimestamp() { return new Date(parseInt(this[tag][1].slice(0, 8), 16) * 1000); },
  });
  hidden(global, "ObjectID", ObjectId);
  const Timestamp = define("Timestamp", (o, args) => {
    const t = Number(args.length ? args[0] : 0) >>> 0, i = Number(args.length > 1 ? args[1] : 0) >>> 0;
    mark(o, ["ts", t, i]);
    o.t = t;
    o.i = i;
  }, {
    getTime() { return this.t; },
    getInc() { return this.i; },
    toString() { return "Timestamp(" + this.t + ", " + this.i + ")"; },
    tojson() { return this.toString(); },
    toJSON() { return { $timestamp: { t: this.t, i: this.i } }; },
  });
  const BinData = define("BinData", (o, args) => {
    const type = Number(args[0]);
    if (args.length !== 2 || !(type >= 0 && type <= 255)) throw new TypeError("BinData takes a subtype and a base 64 string");
    mark(o, ["bin", type, fromBytes(toBytes(String(args[1])))]);
    o.type = type;
    o.len = toBytes(o[tag][2]).length;
  }, {
    subtype() { return this.type; },
    length() { return this.len; },
    base64() { return this[tag][2]; },
    hex() { return hexOf(toBytes(this[tag][2])); },
    toString() {
      if (this.type === 4 && this.len === 16) return "UUID(\"" + this.hex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-") + "\")";
      return "BinData(" + this.type + ",\"" + this[tag][2] + "\")";
    },
    tojson() { return this.toString(); },
    toJSON() { return { $binary: { base64: this[tag][2], subType: this.type.toString(16).padStart(2, "0") } }; },
  });
  hidden(global, "HexData", function HexData(type, hex) { return new BinData(type, fromBytes(bytesOfHex(hex))); });
  // A random one (version 4) without an argument.
  hidden(global, "UUID", function UUID(hex) {
    const random = () => Array.from({ length: 16 }, (_, i) => {
      const b = Math.floor(Math.random() * 256);
      return i === 6 ? b & 15 | 64 : i === 8 ? b & 63 | 128 : b;
    });
    const bytes = hex === undefined ? random() : bytesOfHex(String(hex).replace(/-/g, ""));
    if (bytes.length !== 16) throw new Error("Invalid UUID string: " + hex);
    return new BinData(4, fromBytes(bytes));
  });
  hidden(global, "MD5", function MD5(hex) { return new BinData(5, fromBytes(bytesOfHex(hex))); });
  const simple = (name) => define(name, (o) => mark(o, [name]), { toString() { return name; }, tojson() { return "{ \"$" + name[0].toLowerCase() + name.slice(1) + "\" : 1 }"; } });
  const MinKey = simple("MinKey"), MaxKey = simple("MaxKey");
  // The names alone are the values, too.
  for (const F of [MinKey, MaxKey]) {
    mark(F, [F.name]);
    hidden(F, "tojson", F.prototype.tojson);
  }
  const Code = define("Code", (o, args) => { mark(o, ["code", String(args[0])]); o.code = args[0]; if (args[1] !== undefined) o.scope = args[1]; }, {
    toString() { return "Code(" + JSON.stringify(this.code) + ")"; },
  });
  const DBPointer = define("DBPointer", (o, args) => { mark(o, ["ptr", String(args[0]), ObjectId(args[1])[tag][1]]); o.ns = args[0]; o.id = args[1]; }, {
    toString() { return "DBPointer(\"" + this[tag][1] + "\", ObjectId(\"" + this[tag][2] + "\"))"; },
  });
  function DBRef(ns, id, db) {
    const o = new.target ? this : Object.create(DBRef.prototype);
    o.$ref = ns;
    o.$id = id;
    if (db !== undefined) o.$db = db;
    return o;
  }
  hidden(global, "DBRef", DBRef);
  hidden(DBRef.prototype, "getRef", function () { return this.$ref; });
  hidden(DBRef.prototype, "getCollection", function () { return this.$ref; });
  hidden(DBRef.prototype, "getId", function () { return this.$id; });
  hidden(DBRef.prototype, "getDb", function () { return this.$db; });
  hidden(DBRef.prototype, "tojson", function () {
    const parts = [this.$ref, this.$id].concat(this.$db === undefined ? [] : [this.$db]);
    return "DBRef(" + parts.map(tojson).join(", ") + ")";
  });
  hidden(DBRef.prototype, "toString", function () { return this.tojson(); });
  hidden(global, "ISODate", function ISODate(text) {
    const d = text === undefined ? new Date() : new Date(text);
    if (isNaN(d.getTime())) throw new Error("invalid ISO date: " + text);
    return d;
  });

  // Bytes of a text in UTF-8.
  function textSize(s) {
    let n = 0;
    for (const c of String(s)) {
      const p = c.codePointAt(0);
      n += p < 0x80 ? 1 : p < 0x800 ? 2 : p < 0x10000 ? 3 : 4;
    }
    return n;
  }
  // Bytes of a document as BSON, as the server would store it.
  function documentSize(o) {
    if (o === null || typeof o !== "object") throw new TypeError("Object.bsonsize takes an object");
    return Object.keys(o).reduce((n, k) => n + textSize(k) + 2 + valueSize(o[k], o[ints] !== undefined && o[ints].has(k)), 5);
  }
  function valueSize(v, wasInt) {
    if (v === undefined || v === null) return 0;
    if (typeof v === "boolean") return 1;
    if (typeof v === "number") return wasInt && Number.isInteger(v) ? 4 : 8;
    if (typeof v === "string" || typeof v === "function") return 5 + textSize(v);
    if (v instanceof Date) return 8;
    if (v instanceof RegExp) return textSize(v.source) + options(v).length + 2;
    const [kind, first, second] = v[tag] || [];
    switch (kind) {
      case undefined: return documentSize(v);
      case "long": case "ts": return 8;
      case "int": return 4;
      case "dec": return 16;
      case "oid": return 12;
      case "bin": return 5 + toBytes(second).length;
      case "code": return v.scope === undefined ? 5 + textSize(first) : 9 + textSize(first) + documentSize(v.scope);
      case "ptr": return 17 + textSize(first);
      default: return 0;
    }
  }

  function tojson(v) {
    if (v === undefined) return "undefined";
    if (v === null || typeof v === "boolean" || typeof v === "number") return String(v);
    if (typeof v === "string") return JSON.stringify(v);
    if (typeof v.tojson === "function") return v.tojson();
    if (typeof v === "function") return v.toString();
    if (v instanceof Date) return "ISODate(\"" + v.toISOString() + "\")";
    if (v instanceof RegExp) return v.toString();
    if (v[tag] !== undefined) return String(v);
    if (Array.isArray(v)) return v.length ? "[ " + v.map(tojson).join(", ") + " ]" : "[ ]";
    const fields = Object.keys(v).map((k) => JSON.stringify(k) + " : " + tojson(v[k]));
    return fields.length ? "{ " + fields.join(", ") + " }" : "{ }";
  }
  hidden(global, "tojson", (v) => tojson(v));
  hidden(global, "tojsononeline", (v) => tojson(v));
  hidden(global, "tojsonObject", (v) => tojson(v));
  hidden(global, "print", () => undefined);
  hidden(global, "printjson", () => undefined);
  hidden(global, "printjsononeline", () => undefined);
  hidden(global, "isNumber", (x) => typeof x === "number" || is(x, "long") || is(x, "int"));
  hidden(global, "isString", (x) => typeof x === "string");
  hidden(global, "isObject", (x) => x instanceof Object);
  hidden(global, "assert", (ok, message) => { if (!ok) throw new Error(message === undefined ? "assert failed" : "assert failed : " + message); });
  hidden(global, "doassert", (message) => { throw message instanceof Error ? message : new Error(typeof message === "string" ? message : tojson(message)); });
  hidden(global, "gc", () => undefined);
  hidden(Object, "keySet", (o) => Object.keys(o));
  hidden(Object, "bsonsize", (o) => documentSize(o));
  hidden(Array, "contains", (a, x) => a.some((y) => y === x));
  hidden(Array, "sum", (a) => { if (a.length === 0) return null; let s = a[0]; for (let i = 1; i < a.length; i++) s += a[i]; return s; });
  hidden(Array, "avg", (a) => a.length === 0 ? null : Array.sum(a) / a.length);
  hidden(Array, "stdDev", (a) => { const m = Array.avg(a); return Math.sqrt(a.reduce((s, x) => s + (x - m) * (x - m), 0) / a.length); });
  hidden(Array, "unique", (a) => a.filter((x, i) => a.findIndex((y) => tojson(x) === tojson(y)) === i));
  hidden(Array, "tojson", (a) => tojson(a));
  hidden(Object, "extend", (a, b) => Object.assign(a, b));
  hidden(Date, "timeFunc", (f) => { const t = Date.now(); f(); return Date.now() - t; });

  let emitted = [];
  hidden(global, "emit", (...args) => {
    if (args.length !== 2) throw Object.assign(new Error("emit takes 2 args"), { code: 31220 });
    emitted.push(args);
  });

  function compile(source) {
    if (/^\s*function[\s(*]/.test(source)) return (0, eval)("(" + source + "\n)");
    try { return (0, eval)("(function() { return (" + source + "\n) })"); } catch (e) { return (0, eval)("(function() { " + source + "\n})"); }
  }
  const makers = {
    long: (a) => new NumberLong(a),
    dec: (a) => new NumberDecimal(a),
    oid: (a) => new ObjectId(a),
    ts: (a, b) => new Timestamp(Number(a), Number(b)),
    bin: (a, b) => new BinData(Number(a), b),
    date: (a) => {
      const d = new Date(Number(a));
      // Beyond what JavaScript counts.
      return isNaN(d.getTime()) ? mark(d, ["date", a]) : d;
    },
    // Goes back as it came: JavaScript may write it otherwise, or not know it.
    re: (a, b) => {
      let re;
      try { re = new RegExp(a, b.replace(/[^imsu]/g, "")); } catch (e) { re = new RegExp(a.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")); }
      return mark(re, ["re", a, b]);
    },
    MinKey: () => new MinKey(),
    MaxKey: () => new MaxKey(),
    // A function, which is compiled when it is called.
    code: (a) => {
      let f;
      const called = function (...args) { f = f || compile(a); return f.apply(this, args); };
      hidden(called, "toString", () => a);
      return mark(called, ["code", a]);
    },
    ptr: (a, b) => new DBPointer(a, b),
  };
  const options = (re) => [...re.flags].filter((c) => "imsu".includes(c)).join("");
  return {
    // A value of a type that JavaScript has not, from its tag and its parts as texts.
    make: (name, a, b) => makers[name](a, b),
    // The tag and the parts of such a value; undefined for plain objects.
    kind: (o) => {
      if (o[tag] !== undefined) return o[tag].map(String);
      if (o instanceof Date) return ["date", String(o.getTime())];
      if (o instanceof RegExp) return ["re", o.source, options(o)];
      if (o instanceof Number) return ["num", String(o.valueOf())];
      if (o instanceof String) return ["str", o.valueOf()];
      if (o instanceof Boolean) return ["bool", String(o.valueOf())];
      if (o[order] !== undefined) return ["order", ...o[order]];
      return undefined;
    },
    // Remembers in which order an object's fields came: JavaScript puts those first that are numbers.
    order: (o, names) => { Object.defineProperty(o, order, { value: names }); },
    dbref: (o) => { Object.setPrototypeOf(o, DBRef.prototype); },
    // Remembers which fields of an object were int32, so that they are again if they stay whole.
    ints: (o, names) => { Object.defineProperty(o, ints, { value: new Set(names) }); },
    wasInt: (o, name) => o[ints] !== undefined && o[ints].has(name),
    // What emit() gathered since the last call.
    emitted: () => { const all = emitted; emitted = []; return all; },
    // A call with the arguments as an array; the global obj is what `this` is.
    call: (f, self, args, asObj) => { hidden(global, "args", args); if (asObj) hidden(global, "obj", self); return f.apply(self, args); },
  };
})(globalThis)

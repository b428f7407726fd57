// Serves Perfetto's trace processor over HTTP for its Python client, from the WebAssembly of Perfetto's UI.
//
//     node trace_processor.js FOLDER
//
// Prints the port, which the system chooses.
//
// The UI runs the engine in a web worker and talks to it in length-delimited protobuf (TraceProcessorRpc). Here the
// worker is a sandbox with the parts of a browser that the engine uses.
'use strict';
const fs = require('fs'), path = require('path'), vm = require('vm'), http = require('http');
const folder = process.argv[2];

const asset = (url) => {
  const bytes = fs.readFileSync(path.join(folder, path.basename(String(url))));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
};
const worker = {
  console, TextDecoder, TextEncoder, performance, setTimeout, clearTimeout, URL,
  crypto: globalThis.crypto, Response: globalThis.Response,
  location: { href: 'http://localhost/engine_bundle.js' },
  importScripts() {},
  WorkerGlobalScope: function () {},
  fetch: async (url) => ({
    ok: true, status: 200, url, headers: new Map([['content-type', 'application/wasm']]),
    arrayBuffer: async () => asset(url),
  }),
  XMLHttpRequest: class {
    open(_method, url) { this.url = url; }
    send() { this.status = 200; this.response = asset(this.url); }
  },
};
worker.self = worker.globalThis = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), worker);
const engine = { onmessage: null, postMessage: (bytes) => receive(bytes) };
worker.onmessage({ data: engine });
const WorkerBytes = vm.runInContext('Uint8Array', worker);

// The parts of protobuf that are needed.
const varint = (number) => {
  const bytes = [];
  for (number = BigInt(number); number > 127n; number >>= 7n) bytes.push(Number(number & 127n) | 128);
  return Buffer.from([...bytes, Number(number)]);
};
const message = (field, bytes) => Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const readVarint = (bytes, at) => {
  let value = 0n;
  for (let shift = 0n; at < bytes.length; shift += 7n) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [Number(value), at];
  }
  return null;
};
const fields = (bytes) => {
  const found = {};
  for (let at = 0, tag, value; at < bytes.length; ) {
    [tag, at] = readVarint(bytes, at);
    // Fixed64 and fixed32, which nothing here is about.
    if ((tag & 7) === 1 || (tag & 7) === 5) {
      at += (tag & 7) === 1 ? 8 : 4;
      continue;
    }
    [value, at] = readVarint(bytes, at);
    if ((tag & 7) === 0) found[tag >>> 3] = value;
    else {
      (found[tag >>> 3] ||= []).push(bytes.subarray(at, at + value));
      at += value;
    }
  }
  return found;
};

// TraceProcessorRpc: method, the field of its argument, the field of its result.
const METHODS = {
  '/parse': { method: 1, argument: 101, result: 201 },
  '/notify_eof': { method: 2, result: 212 },
  '/query': { method: 3, argument: 103, result: 203 },
  '/status': { method: 10, result: 210 },
};
const isLastBatch = (result) => {
  const { 2: error, 3: batches = [] } = fields(result);
  return Boolean(error) || batches.some((batch) => fields(batch)[6]);
};

const calls = [];
let sequence = 0, unread = Buffer.alloc(0);
function call(rpc, body) {
  return new Promise((resolve) => {
    calls.push({ rpc, parts: [], resolve });
    const argument = rpc.argument ? message(rpc.argument, body) : Buffer.alloc(0);
    const request = Buffer.concat([number(1, ++sequence), number(2, rpc.method), argument]);
    engine.onmessage({ data: new WorkerBytes(message(1, request)) });
  });
}
function receive(bytes) {
  unread = Buffer.concat([unread, Buffer.from(bytes)]);
  for (;;) {
    const tag = readVarint(unread, 0);
    const length = tag && readVarint(unread, tag[1]);
    if (!length || unread.length < length[0] + length[1]) return;
    const reply = fields(unread.subarray(length[1], length[0] + length[1]));
    unread = unread.subarray(length[0] + length[1]);
    const { rpc, parts, resolve } = calls[0];
    const [part = Buffer.alloc(0)] = reply[rpc.result] || [];
    parts.push(Buffer.from(part));
    if (rpc.method !== 3 || isLastBatch(part)) {
      calls.shift();
      resolve(Buffer.concat(parts));
    }
  }
}

const server = http.createServer((request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', async () => {
    const rpc = METHODS[request.url];
    const reply = rpc ? await call(rpc, Buffer.concat(chunks)) : Buffer.alloc(0);
    response.writeHead(200, { 'Content-Length': reply.length });
    response.end(reply);
  });
}).listen(0, '127.0.0.1', () => console.log(server.address().port));

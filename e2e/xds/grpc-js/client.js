// A client that connects through xDS with grpc-js: it makes a number of calls to a target, and prints the servers that
// replied, as JSON. Calls count once a number of servers have replied: until all are connected, the connected ones get
// every call. It finds the control plane in GRPC_XDS_BOOTSTRAP_CONFIG.
'use strict';

const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const [target, calls, servers] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const bytes = {requestSerialize: (b) => b, requestDeserialize: (b) => b, responseSerialize: (b) => b, responseDeserialize: (b) => b};
const Health = grpc.makeGenericClientConstructor(
  {check: {path: '/grpc.health.v1.Health/Check', requestStream: false, responseStream: false, ...bytes}}, 'Health');
const client = new Health(target, grpc.credentials.createInsecure());
const counts = {answers: {}, errors: {}};
let isConnected = false;

function call(left) {
  if (left === 0) {
    client.close();
    console.log(JSON.stringify(counts));
    process.exit(0);
  }
  const made = client.check(Buffer.alloc(0), {deadline: Date.now() + 10000}, (err) => {
    const [of, key] = err ? [counts.errors, err.message] : [counts.answers, made.getPeer()];
    of[key] = (of[key] || 0) + 1;
    if (isConnected) {
      call(left - 1);
      return;
    }
    isConnected = err || Object.keys(counts.answers).length >= servers;
    if (isConnected && !err) {
      counts.answers = {};
    }
    call(left);
  });
}
call(calls);

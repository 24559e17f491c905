// Package bench measures the speed of the product, compared with a minimal server and with a peer.
//
// `make bench PART=…` runs one part and writes its results to the part's section of RESULTS.md. The measurements are no
// part of `make test`.
//
//   - speed: every kind of request at 1, 8 and 32 connections, compared with a floor server, which runs one Redis
//     script and signs one access token; for lists, with the product built without its gate; and with
//     node-oidc-provider (peer/), if Node is installed.
//   - floor: a refresh compared with the floor server, and with one that also reads and writes a row in Postgres.
//   - growth: the same requests with little and with much data in the stores, and the storage that a grant takes.
//   - soak: the memory of both services during ten minutes of load.
//   - startup: the time until a service is ready.
//   - cluster: two processes of each service with a Redis Cluster, compared with one of each.
//   - citus: a coordinator and two workers of Citus, compared with one Postgres.
//   - landed: the previous release, compared with the current code.
//
// The stack is the one that `make run` starts, with durable stores. One generator sends all kinds of requests in turn,
// in rounds, in a closed loop, so that other load on the machine affects all kinds alike: compare only figures of one
// section. PROFILE=1 writes profiles of the services under load; SHORT=1 runs a part at a small scale and writes no
// results.
package bench

// Package bench answers: how fast is the product, beside the least that any server must do for the same answer, and
// beside a peer?
//
// `make bench PART=…` runs one part and puts what came of it into the part's section of RESULTS.md. It decides nothing
// in `make test`.
//
//   - speed: every kind of request at 1, 8 and 32 connections, beside a floor server, which runs one Redis script and signs one access
//     token; beside the product built without its gate, for lists; and beside node-oidc-provider (peer/), where Node is installed.
//   - floor: a refresh beside the floor server, and beside one that also reads and writes a row of Postgres.
//   - growth: the same with much in the stores as with little, and what a grant takes.
//   - soak: the memory of both services through ten minutes of load.
//   - startup: how long a service takes until it is ready.
//   - cluster: two of each service with a Redis Cluster, beside one of each.
//
// The stack is the one that `make run` starts, with durable stores. One generator asks everything in turn, in rounds,
// in a closed loop, so that whatever else the machine does meets all alike: compare within one section alone. PROFILE=1
// leaves profiles of the services under load; SHORT=1 tries all of a part at a small scale and writes nothing.
package bench

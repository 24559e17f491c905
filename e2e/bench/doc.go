// Package bench answers: how fast is the product, beside the least that any server must do for the same answer?
//
// `make bench` runs it: the stack as `make run` starts it, with durable stores; a floor server, which runs one Redis script and signs
// one access token; and the product built without its gate, for lists. One generator asks them in turn, in rounds, so that whatever
// else the machine does meets all of them alike: compare within one run alone. What came of it is in RESULTS.md. It decides nothing
// in `make test`.
package bench

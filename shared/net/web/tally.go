package web

import "context"

// A Tally is what a request did, for a Watcher that counts requests (contract, section 5b).
type Tally struct {
	Caller    *Caller // nil if unknown
	Presented any     // the credential that the request presents, or nil
	Calls     []*Call // the operations of the request if it has several, or one that is not its route
	Records   int     // that the request gave or changed, if Counted
	Counted   bool    // AddRecords was called
}

// A Call is one operation of a request, such as a call of a tool.
type Call struct {
	Operation string
	Refused   bool // answered as other operations answer with status 401, 403 or 429
	Records   int  // given or changed
}

// TallyOf returns what the request of ctx has done so far. Observe must have prepared ctx.
func TallyOf(ctx context.Context) Tally {
	r := requestOf(ctx)
	if r == nil {
		return Tally{}
	}
	tally := r.tally
	tally.Caller = r.caller.Load()
	return tally
}

// RecordPresented records the credential that the request of ctx presents; RecordCaller says whose it is. nil means
// that no such credential exists. Call it in the goroutine of the request, as AddRecords and BeginCall.
func RecordPresented(ctx context.Context, credential any) {
	if r := requestOf(ctx); r != nil {
		r.tally.Presented = credential
	}
}

// AddRecords adds to the number of records that the request of ctx gives or changes. Without a call, a request with a
// status below 300 counts one record. With 0, such a request counts none.
func AddRecords(ctx context.Context, n int) {
	if r := requestOf(ctx); r != nil {
		r.tally.Records += n
		r.tally.Counted = true
	}
}

// BeginCall records that the request of ctx has this operation, besides those of other calls, and not that of its
// route. The caller sets the result until the request ends.
func BeginCall(ctx context.Context, operation string) *Call {
	call := &Call{Operation: operation}
	if r := requestOf(ctx); r != nil {
		r.tally.Calls = append(r.tally.Calls, call)
	}
	return call
}

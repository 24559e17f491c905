package usage

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

const (
	// maxRows bounds the rows in memory. Further rows are dropped, and a line of the log says so once a minute.
	maxRows = 100_000
	// maxPresented bounds those of access tokens that were not looked up yet, and maxUnproven those of texts that have
	// the form of a personal access token, which anyone can make up.
	maxPresented = 10_000
	maxUnproven  = 10_000
	// maxTokens bounds the personal access tokens that are remembered, those that were used last.
	maxTokens   = 10_000
	dropsLogged = time.Minute
)

// A Counter counts the requests of a process. It implements web.Watcher, and is safe for concurrent use.
type Counter struct {
	db         Database
	operations map[route]string
	now        func() time.Time
	log        *slog.Logger
	writer     uuid.UUID // of the batches

	mu        sync.Mutex
	rows      map[rowKey]*counted
	presented map[presentedKey]*presentedCounts
	unproven  int                                             // how many of presented are personal access tokens
	tokens    *simplelru.LRU[inflight.Credential, web.Caller] // personal access tokens that were looked up
	writing   int                                             // rows of waiting
	dropped   time.Time                                       // when the log last said that rows are dropped

	// Only the goroutine that flushes uses these.
	waiting []Row // in the order of their keys; the first batchRows may have been written
	batch   int64 // the number of the batch that they are
	failing bool

	stop    chan struct{}
	working context.Context // of the statements
	end     func()          // ends working
	running sync.WaitGroup
}

// A route is an operation's place in the API description.
type route struct{ method, pattern string }

// A rowKey has the members of the primary key of account.usage.
type rowKey struct {
	workspace, credential, service uuid.UUID
	operation                      string
	day                            int64 // since 1970
}

type counted struct {
	Counts
	user     uuid.UUID
	personal bool
}

type presentedKey struct {
	credential inflight.Credential
	operation  string
	day        int64 // since 1970
}

type presentedCounts struct {
	Counts
	Presented
}

// NewCounter starts the counter of one of the services that package openapi names. It writes every 15 seconds until
// Close.
func NewCounter(db Database, service string, now func() time.Time, log *slog.Logger) (*Counter, error) {
	c, err := newCounter(db, service, now, log)
	if err == nil {
		c.running.Go(c.run)
	}
	return c, err
}

// newCounter is NewCounter without the goroutine that writes.
func newCounter(db Database, service string, now func() time.Time, log *slog.Logger) (*Counter, error) {
	document, err := openapi.New("https://api.example.org") // paths and names are the same for all deployments
	if err != nil {
		return nil, fmt.Errorf("read the operations of the API description: %w", err)
	}
	tokens, err := simplelru.NewLRU[inflight.Credential, web.Caller](maxTokens, nil)
	if err != nil {
		return nil, err
	}
	c := &Counter{
		db:         db,
		operations: map[route]string{},
		now:        now,
		log:        log,
		writer:     uuid.New(),
		rows:       map[rowKey]*counted{},
		presented:  map[presentedKey]*presentedCounts{},
		tokens:     tokens,
		batch:      1,
		stop:       make(chan struct{}),
	}
	c.working, c.end = context.WithCancel(context.Background())
	for _, o := range document.Operations() {
		if o.Service == service {
			c.operations[route{o.Method, o.Path}] = o.Text("operationId")
		}
	}
	return c, nil
}

// Begins implements web.Watcher.
func (c *Counter) Begins(*http.Request) {}

// Ends implements web.Watcher. It counts a request, or each of its calls, for the credential that it presents.
func (c *Counter) Ends(r *http.Request, outcome web.Outcome) {
	tally := web.TallyOf(r.Context())
	if tally.Presented == nil && !identified(tally) {
		return
	}
	day := c.now().Unix() / (24 * 60 * 60)
	counts := countsOf(r, outcome, tally)
	if len(tally.Calls) == 0 {
		c.count(tally, c.operationOf(r, outcome), day, counts)
		return
	}
	for _, call := range tally.Calls {
		one := Counts{Requests: 1, Refused: counts.Refused}
		if call.Refused {
			one.Refused = 1
		}
		if outcome.Status < 300 {
			one.Records = int64(call.Records)
		}
		c.count(tally, call.Operation, day, one)
	}
}

// operationOf returns the operationId of the request's route, or "" if the API description has none.
func (c *Counter) operationOf(r *http.Request, outcome web.Outcome) string {
	at := route{r.Method, outcome.Route}
	if at.method == http.MethodHead {
		at.method = http.MethodGet
	}
	if at.pattern == "/mcp/" { // answered like the path without the slash (contract, section 7a)
		at.pattern = "/mcp"
	}
	return c.operations[at]
}

func countsOf(r *http.Request, outcome web.Outcome, tally web.Tally) Counts {
	counts := Counts{Requests: 1}
	switch {
	case outcome.Status == http.StatusUnauthorized, outcome.Status == http.StatusForbidden,
		outcome.Status == http.StatusTooManyRequests:
		counts.Refused = 1
	case outcome.Status >= 300, r.Method == http.MethodHead:
	case tally.Counted:
		counts.Records = int64(tally.Records)
	default:
		counts.Records = 1
	}
	return counts
}

// identified reports whether it is known whose credential the request presents.
func identified(tally web.Tally) bool {
	return tally.Caller != nil && tally.Caller.Credential != uuid.Nil
}

// count adds the counts of one operation.
func (c *Counter) count(tally web.Tally, operation string, day int64, counts Counts) {
	if operation == "" {
		return
	}
	presented, _ := tally.Presented.(*Presented)
	c.mu.Lock()
	defer c.mu.Unlock()
	if identified(tally) {
		c.addCaller(*tally.Caller, operation, day, counts)
		if presented != nil && presented.Claims == nil { // its further requests count without being looked up
			c.tokens.Add(inflight.CredentialOf(presented.Query), *tally.Caller)
		}
		return
	}
	c.addPresented(presentedKey{inflight.CredentialOf(presented.Query), operation, day}, *presented, counts)
}

// addCaller adds counts of a known credential. The caller holds c.mu.
func (c *Counter) addCaller(caller web.Caller, operation string, day int64, counts Counts) {
	key := rowKey{caller.Workspace, caller.Credential, caller.Service, operation, day}
	row, found := c.rows[key]
	if !found {
		if len(c.rows)+c.writing >= maxRows {
			c.logDrop()
			return
		}
		row = &counted{user: caller.User, personal: caller.Personal}
		c.rows[key] = row
	}
	row.add(counts)
}

// addPresented adds counts of a credential that was not looked up (C4). The caller holds c.mu.
func (c *Counter) addPresented(key presentedKey, presented Presented, counts Counts) {
	unproven := presented.Claims == nil
	if caller, known := c.tokens.Get(key.credential); unproven && known {
		c.addCaller(caller, key.operation, key.day, counts)
		return
	}
	row, found := c.presented[key]
	if !found {
		if unproven && c.unproven >= maxUnproven || !unproven && len(c.presented)-c.unproven >= maxPresented {
			c.logDrop()
			return
		}
		if unproven {
			c.unproven++
		}
		row = &presentedCounts{Presented: presented}
		c.presented[key] = row
	}
	row.add(counts)
}

func (c *Counter) logDrop() {
	if now := c.now(); now.Sub(c.dropped) >= dropsLogged {
		c.dropped = now
		c.log.WarnContext(context.Background(), "usage is not counted: too many counts wait for Postgres")
	}
}

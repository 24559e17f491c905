package usage

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Two processes, one of each service, count and write at the same time (C1).
func TestCounter_TwoProcessesCountExactly(t *testing.T) {
	s := newSite(t)
	const senders, requests = 4, 200
	processes := []*Counter{s.counter(s.Resourceapi), s.counter(s.Authserver)}
	var sending sync.WaitGroup
	for _, c := range processes {
		for range senders {
			sending.Go(func() {
				for n := range requests {
					caller := s.asToken()
					if n%2 == 0 {
						caller = s.asGrant()
					}
					send(t, c, "GET", listed, func(ctx context.Context) int {
						web.RecordCaller(ctx, caller)
						web.AddRecords(ctx, 3)
						return 200
					})
				}
			})
		}
	}
	done := make(chan struct{})
	var writing sync.WaitGroup
	for _, c := range processes {
		writing.Go(func() {
			for {
				if err := c.flush(t.Context()); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	sending.Wait()
	close(done)
	writing.Wait()
	for _, c := range processes {
		must(t, c.flush(t.Context()))
	}
	want := Counts{senders * requests, 0, 3 * senders * requests}
	if got := s.rows(); got["listProgrammes"] != want || got["listProgrammes token"] != want {
		t.Errorf("%v, want %v twice", got, want)
	}
}

// cutting is a database whose connection is cut: before the first commit arrives, or after it was made.
type cutting struct {
	Database
	made bool // the commit
	left int  // commits until the connection is good
}

type cutTransaction struct {
	pgx.Tx
	from *cutting
}

func (c *cutting) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := c.Database.Begin(ctx)
	return cutTransaction{tx, c}, err
}

func (c cutTransaction) Commit(ctx context.Context) error {
	if c.from.left--; c.from.left < 0 {
		return c.Tx.Commit(ctx)
	}
	if c.from.made {
		_ = c.Tx.Commit(ctx)
	} else {
		_ = c.Tx.Rollback(ctx)
	}
	return errors.New("the connection is cut")
}

// A batch counts once, whether or not the commit whose outcome is unknown was made (C2). What is counted meanwhile
// follows in the next one.
func TestCounter_RepeatedBatchCountsOnce(t *testing.T) {
	for _, made := range []bool{true, false} {
		s := newSite(t)
		c := s.counter(s.Resourceapi)
		c.db = &cutting{c.db, made, 2}
		list := func() {
			send(t, c, "GET", listed, func(ctx context.Context) int {
				web.RecordCaller(ctx, s.asGrant())
				return 200
			})
		}
		list()
		for range 2 {
			if err := c.flush(t.Context()); err == nil {
				t.Error("a cut connection is no error")
			}
			list()
		}
		must(t, c.flush(t.Context()))
		must(t, c.flush(t.Context()))
		if got := s.rows()["listProgrammes"]; got != (Counts{3, 0, 3}) {
			t.Errorf("made %t: %v, want 3 requests", made, got)
		}
	}
}

// While Postgres does not answer, requests go on, and their counts stay (C3). Close writes them.
func TestCounter_OutageLosesNothing(t *testing.T) {
	s := newSite(t)
	c := s.counter(s.Resourceapi)
	list := func(as func(context.Context)) {
		send(t, c, "GET", listed, func(ctx context.Context) int {
			as(ctx)
			return 503
		})
	}
	asGrant := func(ctx context.Context) { web.RecordCaller(ctx, s.asGrant()) }
	asToken := OfHash(credential.Hash("secret")).Record
	list(asGrant)
	restore := s.Cut(t)
	for range 2 {
		if err := c.flush(t.Context()); err == nil {
			t.Error("an outage is no error")
		}
		list(asGrant)
		list(asToken)
	}
	restore()
	c.running.Go(c.run)
	c.Close()
	got := s.rows()
	if got["listProgrammes"] != (Counts{Requests: 3}) || got["listProgrammes token"] != (Counts{Requests: 2}) {
		t.Errorf("%v, want 3 requests and 2 of the token", got)
	}
}

// stuck is a database that does not answer.
type stuck struct {
	Database
	called chan struct{} // receives a value at each batch
}

func (s stuck) Begin(ctx context.Context) (pgx.Tx, error) {
	select {
	case s.called <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A database that does not answer does not hold up the end of the process. The log says what is lost.
func TestCounter_ClosesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		db := stuck{called: make(chan struct{})}
		c, err := NewCounter(db, openapi.Resourceapi, time.Now, slog.New(slog.NewTextHandler(&log, nil)))
		must(t, err)
		count := func() {
			c.count(web.Tally{Caller: &web.Caller{Credential: uuid.New()}}, "readMe", 1, Counts{Requests: 2})
		}
		count()
		<-db.called
		count()
		began := time.Now()
		c.Close()
		if took := time.Since(began); took > closeTimeout || !strings.Contains(log.String(), "requests=4") {
			t.Errorf("it took %s: %s", took, log.String())
		}
	})
}

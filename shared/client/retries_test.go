package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/shared/client"
)

func TestRetries_RepeatOnlySafeRequests(t *testing.T) {
	write := func(c *client.Client) error {
		_, err := c.Programmes.Create(context.Background(), client.NewProgramme{Name: "x"})
		return err
	}
	read := func(c *client.Client) error {
		_, err := c.Programmes.Get(context.Background(), "x")
		return err
	}
	register := func(c *client.Client) error {
		_, err := c.OAuthClients.Register(context.Background(), client.Registration{Name: "x"})
		return err
	}
	three := client.Retries{Most: 3, LongestWait: 2 * time.Second}
	for name, c := range map[string]struct {
		call    func(*client.Client) error
		retries client.Retries
		status  int
		after   string
		body    string
		want    int
	}{
		"read":                  {read, three, 503, "", unavailable, 4},
		"write":                 {write, three, 429, "", unavailable, 4},
		"as it comes":           {read, client.Retries{}, 503, "", unavailable, 1},
		"no key, no repetition": {register, three, 503, "", unavailable, 1},
		"not provisioned":       {read, three, 503, "", notProvisioned, 1},
		"a mistake":             {write, three, 400, "", `{"error":{"code":"VALIDATION_ERROR","message":"No."}}`, 1},
		"too long to wait":      {read, three, 503, "3", unavailable, 1},
		"a foreign 503":         {read, three, 503, "", `<html>`, 4},
		"no answer":             {write, three, 0, "", "", 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			var keys []string
			api := inMemory(t, func(w http.ResponseWriter, r *http.Request) {
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				if c.status == 0 {
					panic(http.ErrAbortHandler)
				}
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				answer(w, c.status, c.body)
			}, client.WithRetries(c.retries))
			err := c.call(api)
			if err == nil || len(keys) != c.want || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: sent %d times, want %d: %v", name, len(keys), c.want, err)
			}
			if len(slices.Compact(keys)) != 1 {
				t.Errorf("retried with another Idempotency-Key: %q", keys)
			}
		})
	}
}

func TestRetries_WaitAsLongAsAnswerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		api := inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			if time.Now().Equal(began) {
				w.Header().Set("Retry-After", "1")
				answer(w, 503, unavailable)
				return
			}
			answer(w, 201, `{"id":"made"}`)
		}, client.WithRetries(client.Retries{Most: 3}))
		made, err := api.Programmes.Create(t.Context(), client.NewProgramme{Name: "x"})
		if took := time.Since(began); err != nil || made.ID != "made" || took != time.Second {
			t.Errorf("%+v %v after %s", made, err, took)
		}
	})
}

// inMemory makes a client of a handler without a connection between them, which testing/synctest supports.
func inMemory(t *testing.T, serve http.HandlerFunc, options ...client.Option) *client.Client {
	t.Helper()
	direct := &http.Client{Transport: roundTrip(func(r *http.Request) (answer *http.Response, err error) {
		defer func() {
			switch cause := recover(); cause {
			case nil:
			case http.ErrAbortHandler:
				err = http.ErrServerClosed
			default:
				panic(cause)
			}
		}()
		if r.Body != nil {
			if sent, err := io.ReadAll(r.Body); err != nil || int64(len(sent)) != r.ContentLength {
				t.Errorf("%d bytes of a body of %d: %v", len(sent), r.ContentLength, err)
			}
		}
		recorder := httptest.NewRecorder()
		serve(recorder, r)
		return recorder.Result(), nil
	})}
	c, err := client.New("http://memory", "tenant", tokens, append(options, client.WithHTTPClient(direct))...)
	must(t, err)
	return c
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// A server, or a proxy before it, may close an idle connection at the moment when a request is sent on it.
func TestIntrospect_RepeatsRequestOnClosedConnection(t *testing.T) {
	var mu sync.Mutex
	requests, closed := map[string]int{}, 0 // requests by connection
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("X-Idempotency-Key") != "" {
			t.Error("the header was sent")
		}
		if requests[r.RemoteAddr]++; requests[r.RemoteAddr] == 2 {
			closed++
			panic(http.ErrAbortHandler)
		}
		answer(w, 200, `{"active":true}`)
	}))
	defer server.Close()
	service := client.Service{BaseURL: server.URL, ClientID: "c", Secret: "s"}
	for range 3 {
		if answer, err := service.Introspect(t.Context(), "token"); err != nil || !answer.Active {
			t.Errorf("%+v, %v", answer, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if closed == 0 {
		t.Error("no connection was closed")
	}
}

func TestRetries_WaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			answer(w, 503, unavailable)
		}, client.WithRetries(client.Retries{Most: 5, LongestWait: 2 * time.Hour}))
		began := time.Now()
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		_, err := c.Programmes.Get(cancelled, "p")
		if _, is := errors.AsType[*client.Error](err); !is || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		short, done := context.WithTimeout(t.Context(), 30*time.Minute)
		defer done()
		_, err = c.Programmes.Get(short, "p") // the wait would exceed the deadline, so it does not start
		if took := time.Since(began); err == nil || took != time.Minute {
			t.Errorf("%v after %s", err, took)
		}
	})
}

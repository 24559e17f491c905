package clientmetadata

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

func TestResolver_DoesNotFetchUnservedAddress(t *testing.T) {
	s := newResolverTest(t)
	for _, address := range []string{
		"",
		"garbage",
		s.host.URL,
		s.host.URL + "/a/../b",
		s.at + "?x=1",
		s.at + "#x",
		"https://evil.example/oauth",
		"http" + s.at[5:],
	} {
		if _, err := s.Client(t.Context(), address); !errors.Is(err, client.ErrNotServed) || s.Serves(address) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if !s.Serves(s.at) || s.host.Fetches.Load() != 0 {
		t.Error("a document that is not served was fetched")
	}
}

// A heldHost responds when it receives from gate.
type heldHost struct {
	gate    chan struct{}
	fetches atomic.Int32
}

func (h *heldHost) RoundTrip(r *http.Request) (*http.Response, error) {
	h.fetches.Add(1)
	select {
	case <-h.gate:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	_, err := answer.WriteString(claudeAt(r.URL.String()))
	return answer.Result(), err
}

// A memoryCache is a Cache without a store.
type memoryCache struct {
	mu     sync.Mutex
	copies map[uuid.UUID]client.CachedClient
}

func (c *memoryCache) ClientCopy(_ context.Context, id uuid.UUID) (client.CachedClient, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	copied, found := c.copies[id]
	return copied, found, nil
}

func (c *memoryCache) StoreClientCopy(_ context.Context, copied client.CachedClient) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies[copied.ID] = copied
	return nil
}

func (c *memoryCache) SetClientPlatform(context.Context, uuid.UUID, string) error { return nil }

// Without a network and a store, the test knows when each caller waits: one that comes after a fetch began another one.
func TestResolver_LimitsConcurrentFetches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		host := &heldHost{gate: make(chan struct{})}
		r := New(Deps{
			Domains: client.Domains{"claude.ai": "claude"},
			Cache:   &memoryCache{copies: map[uuid.UUID]client.CachedClient{}},
			Now:     time.Now,
			Log:     slog.New(slog.DiscardHandler),
		})
		r.fetch.client.Transport = host
		const address, others = "https://claude.ai/oauth/client", 20
		var done sync.WaitGroup
		ask := func(address string) {
			done.Go(func() {
				if c, err := r.Client(t.Context(), address); err != nil || c.PublicID() != address {
					t.Errorf("%s: got %q, %v", address, c.PublicID(), err)
				}
			})
		}
		for range 50 {
			ask(address)
		}
		for i := range others {
			ask(fmt.Sprintf("%s/%d", address, i))
		}
		// One response at a time lets one more fetch begin.
		for released := range int32(1 + others) {
			synctest.Wait()
			if got, want := host.fetches.Load(), min(released+atOnce, 1+others); got != want {
				t.Fatalf("after %d responses, %d fetches have begun, want %d", released, got, want)
			}
			host.gate <- struct{}{}
		}
		done.Wait()
		if got := host.fetches.Load(); got != 1+others {
			t.Errorf("%d fetches for %d documents", got, 1+others)
		}
	})
}

// URLs that an anonymous caller invents, at a slow host, must not delay a client in use, and wait in a bounded queue.
func TestResolver_InventedAddressesDoNotDelayClientsInUse(t *testing.T) {
	s := newResolverTest(t)
	s.fetch.within = await.Long
	s.wants(s.Resolver, "Claude", 1)
	s.wait(time.Hour)
	gate := make(chan struct{})
	s.set(func() { s.gate, s.open = gate, true })
	var anonymous sync.WaitGroup
	for i := range 200 {
		anonymous.Go(func() { _, _ = s.Client(t.Context(), fmt.Sprintf("%s/%d", s.at, i)) })
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	await.True(t, "the queue is full", func() bool {
		turn, err := s.fetches.Enter(over, queue{host: s.host.Host})
		if err == nil {
			turn.Leave(false)
		}
		return s.host.Fetches.Load() >= 1+atOnce && turn.Others >= atOnce+maxQueued
	})
	started := time.Now()
	s.wants(s.Resolver, "Claude", 2+atOnce)
	if _, err := s.Client(t.Context(), s.at+"/late"); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a request beyond the queue: %v", err)
	}
	if took := time.Since(started); took >= s.fetch.within { // it has waited for the slow host
		t.Errorf("a client in use waited %s", took)
	}
	close(gate)
	anonymous.Wait()
	if _, err := s.Client(t.Context(), s.at+"/late"); err != nil {
		t.Errorf("a full queue is remembered as a failure: %v", err)
	}
	if strings.Contains(s.log.String(), "/late") {
		t.Error("each invented URL is logged")
	}
}

func TestRefreshed_FetchesAtMostEvery30Seconds(t *testing.T) {
	s := newResolverTest(t)
	s.wants(s.Resolver, "Claude", 1)
	for _, step := range []struct {
		wait    time.Duration
		fetches int32
	}{{0, 1}, {29 * time.Second, 1}, {2 * time.Second, 2}, {0, 2}} {
		s.wait(step.wait)
		if _, err := s.Refreshed(t.Context(), s.at); err != nil || s.host.Fetches.Load() != step.fetches {
			t.Errorf("%v: %d fetches, want %d", err, s.host.Fetches.Load(), step.fetches)
		}
	}
}

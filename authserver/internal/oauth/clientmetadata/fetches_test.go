package clientmetadata

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func TestResolver_LimitsConcurrentFetches(t *testing.T) {
	s := newResolverTest(t)
	s.fetch.within = await.Long
	gate := make(chan struct{})
	s.set(func() { s.gate = gate })
	var done sync.WaitGroup
	var good atomic.Int32
	ask := func(address string) {
		done.Go(func() {
			if _, err := s.Client(t.Context(), address); err == nil {
				good.Add(1)
			}
		})
	}
	for range 50 {
		ask(s.at)
	}
	for i := range 20 {
		ask(fmt.Sprintf("%s/%d", s.at, i))
	}
	// One response at a time lets one more fetch begin.
	for released := range int32(21) {
		begun := min(released+atOnce, 21)
		await.True(t, "the next fetch begins", func() bool { return s.host.Fetches.Load() >= begun })
		if fetches := s.host.Fetches.Load(); fetches > begun {
			t.Errorf("%d concurrent fetches", fetches-released)
		}
		gate <- struct{}{}
	}
	done.Wait()
	if fetches := s.host.Fetches.Load(); fetches != 21 || good.Load() != 70 {
		t.Errorf("%d fetches, %d clients returned", fetches, good.Load())
	}
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

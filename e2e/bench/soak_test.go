package bench

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A footprint is the memory of one service at one moment.
type footprint struct {
	after    time.Duration // since the load began
	resident float64       // MiB
	// live and in are the MiB of live objects, and of the spans in use, after a collection; NaN without a collection.
	live, in   float64
	goroutines int
}

const (
	mebibyte = 1 << 20
	// soakConnections is the number of connections of each load. Four loads are at authserver.
	soakConnections = 8
	// residentAtMost is the goal for the resident memory of a service (F95), in MiB.
	residentAtMost = 120
)

// TestSoak runs all loads for ten minutes with the memory limit of the manifests, and compares the memory at the end
// with the memory after a minute. authserver gets 32 connections.
func TestSoak(t *testing.T) {
	r := begin(t, "soak")
	during, first, every := 10*time.Minute, time.Minute, time.Minute
	if testing.Short() {
		during, first, every = 40*time.Second, 12*time.Second, 12*time.Second
	}
	dir := t.TempDir()
	b := enter(t, harness.Private(t,
		harness.Options{Durable: true, Settings: map[string]string{profilesSetting: dir, "GOMEMLIMIT": "72MiB"}}))
	loads := b.soakers(t)
	var group sync.WaitGroup
	asked, failed := make([]sample, len(loads)), make([]error, len(loads))
	began := time.Now()
	for i, l := range loads {
		group.Go(func() { asked[i], failed[i] = l.try(t, soakConnections, during) })
	}
	prints := map[string][]footprint{}
	for at := first; at < during; at += every {
		time.Sleep(time.Until(began.Add(at)))
		last := at+every >= during
		for service, pid := range b.services() {
			prints[service] = append(prints[service], measureMemory(t, dir, service, pid, at, at == first || last))
		}
	}
	group.Wait()
	must(t, errors.Join(failed...))
	r.soak(loads, asked, prints, during)
	r.write(t)
}

func (b *bench) services() map[string]int {
	return map[string]int{"authserver": b.account.pids[0], "resourceapi": b.lists.pids[0]}
}

// collections is the number of garbage collections that a service is made to run. The minimum counts, because memory of
// requests in progress is no growth.
const collections = 8

// measureMemory reads the resident memory before it triggers collections, which release memory.
func measureMemory(t *testing.T, dir, service string, pid int, at time.Duration, collect bool) footprint {
	t.Helper()
	f := footprint{
		after:    at,
		resident: float64(harness.ProcessStatus(t, pid, "VmRSS:")) / 1024,
		live:     math.NaN(),
		in:       math.NaN(),
	}
	if !collect {
		return f
	}
	f.live, f.in = math.Inf(1), math.Inf(1)
	for range collections {
		memory := requestProfile(t, dir, service, pid)
		f.live, f.in = min(f.live, float64(memory.HeapAlloc)/mebibyte), min(f.in, float64(memory.HeapInuse)/mebibyte)
		f.goroutines = memory.Goroutines
	}
	return f
}

// soakers returns typical loads of both services, and one with wrong credentials.
func (b *bench) soakers(t *testing.T) []load {
	t.Helper()
	statuses := []int{http.StatusSeeOther, http.StatusTooManyRequests}
	signIn := load{what: "sign-in", at: b.account, worker: b.signsIn(), statuses: statuses}
	return append(b.usual(t), b.wrong(t)[0], signIn)
}

// signsIn sends the form of the login page. Each accepted request hashes a password.
func (b *bench) signsIn() newWorker {
	owner := b.product.Demo.Users.Owner
	return constant(func() *http.Request {
		form := url.Values{"email": {owner.Email}, "password": {owner.Password}}
		return post(b.product.AppURL+"/login", form, http.Header{})
	})
}

func (r *report) soak(loads []load, asked []sample, prints map[string][]footprint, during time.Duration) {
	r.line("%s, %d connections for each kind of request, all at once; generator and stores included.\n", during,
		soakConnections)
	r.line("| what | requests | requests/s |\n|---|---|---|")
	for i, l := range loads {
		r.line("| %s | %d | %.0f |", l.what, len(asked[i].latencies), asked[i].perSecond())
	}
	r.line("\nMemory in MiB: resident (VmRSS), and after %d collections that were asked for, the least of live "+
		"objects and of the spans that they are in.\n", collections)
	r.line("| service | after | resident | live | in use | goroutines |\n|---|---|---|---|---|---|")
	for _, service := range []string{"authserver", "resourceapi"} {
		all := prints[service]
		for _, f := range all {
			r.line("| %s | %s | %.1f | %s | %s | %s |", service, f.after, f.resident, orNone(f.live, 1),
				orNone(f.in, 1), orNone(float64(f.goroutines), 0))
		}
		start, end := all[0], all[len(all)-1]
		grown := func(what string, before, after float64) {
			r.wants(service+", "+what+", at the end divided by after the first minute", "at most 1.10", after/before,
				"", after <= before*1.1)
		}
		grown("memory resident", start.resident, end.resident)
		most := 0.0
		for _, f := range all {
			most = max(most, f.resident)
		}
		asked := fmt.Sprintf("at most %d MiB", residentAtMost)
		r.wants(service+", memory resident", asked, most, " MiB", most <= residentAtMost)
		grown("heap in use after a collection", start.in, end.in)
	}
}

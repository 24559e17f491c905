package bench

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// A target is a server with its processes and its stores.
type target struct {
	name, url             string
	pids, postgres, redis []int // processes
}

// A load is one kind of request to one target.
type load struct {
	what string
	at   target
	// worker returns functions that make a connection's requests, one after the other, and check its responses.
	worker   func(connection int) (makeRequest, takeBody)
	statuses []int    // the accepted statuses; nil for 200
	from     net.Addr // local address of the connections; nil for any
	before   func(t testing.TB, connections int)
	after    func(t testing.TB)
}

// makeRequest returns the next request, or nil if there is none. takeBody gets the body of its response and returns
// what is wrong with it.
type (
	makeRequest func() *http.Request
	takeBody    func(body []byte) error
)

func ignoreBody([]byte) error { return nil }

// A sample is the result of one load in one round.
type sample struct {
	took      time.Duration
	spent     [3]time.Duration // processor time of the server, Postgres and Redis
	latencies []time.Duration  // sorted
}

// run drives a load in a closed loop: each connection waits for its response before it sends again. Preparation is done
// before the time starts.
func (l load) run(t testing.TB, connections int, during time.Duration) sample {
	t.Helper()
	all, err := l.try(t, connections, during)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// try is like run, for goroutines other than the test's own.
func (l load) try(t testing.TB, connections int, during time.Duration) (sample, error) {
	t.Helper()
	if l.before != nil {
		l.before(t, connections)
	}
	type worker struct {
		next  makeRequest
		heard takeBody
	}
	var workers []worker
	for i := range connections {
		next, heard := l.worker(i)
		workers = append(workers, worker{next, heard})
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	var all sample
	var failed error
	before, began := l.at.spent(), time.Now()
	for _, w := range workers {
		group.Go(func() {
			mine, err := l.repeat(w.next, w.heard, began.Add(during))
			mu.Lock()
			defer mu.Unlock()
			all.latencies = append(all.latencies, mine...)
			if err != nil {
				failed = err
			}
		})
	}
	group.Wait()
	all.took = time.Since(began)
	for i, now := range l.at.spent() {
		all.spent[i] = now - before[i]
	}
	if failed == nil && len(all.latencies) == 0 {
		failed = fmt.Errorf("%s of %s: no request was sent", l.what, l.at.name)
	}
	if l.after != nil {
		l.after(t)
	}
	slices.Sort(all.latencies)
	return all, failed
}

// repeat sends requests over its own connection and in this goroutine only: an http.Transport has two more goroutines
// for each connection, whose scheduling would be measured as part of the server's time.
func (l load) repeat(next makeRequest, heard takeBody, end time.Time) ([]time.Duration, error) {
	at, err := url.Parse(l.at.url)
	if err != nil {
		return nil, err
	}
	connection, err := (&net.Dialer{LocalAddr: l.from}).Dial("tcp", at.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	answers := bufio.NewReader(connection)
	var latencies []time.Duration
	for time.Now().Before(end) {
		request := next()
		if request == nil {
			break
		}
		sent := time.Now()
		body, err := l.ask(connection, answers, request)
		if err != nil {
			return latencies, err
		}
		latencies = append(latencies, time.Since(sent))
		if err := heard(body); err != nil {
			return latencies, err
		}
	}
	return latencies, nil
}

const answeredWithin = time.Minute

func (l load) ask(connection net.Conn, answers *bufio.Reader, request *http.Request) ([]byte, error) {
	if err := connection.SetDeadline(time.Now().Add(answeredWithin)); err != nil {
		return nil, err
	}
	if err := request.Write(connection); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(answers, request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
	case !slices.Contains(l.statuses,
		response.StatusCode) && (l.statuses != nil || response.StatusCode != http.StatusOK):
		err = fmt.Errorf("%s of %s: status %d", l.what, l.at.name, response.StatusCode)
	case response.Close:
		err = fmt.Errorf("%s of %s: the server closes the connection", l.what, l.at.name)
	}
	return body, err
}

func (s sample) perSecond() float64 { return float64(len(s.latencies)) / s.took.Seconds() }

func (s sample) percentile(p float64) time.Duration {
	return s.latencies[min(len(s.latencies)-1, int(p*float64(len(s.latencies))))]
}

// cost returns the processor time of a request in microseconds; i is an index of spent.
func (s sample) cost(i int) float64 {
	return s.spent[i].Seconds() * 1e6 / float64(len(s.latencies))
}

// A key identifies a measurement.
type key struct {
	what, of    string
	connections int
}

// results holds the samples of each key, one for each round.
type results map[key][]sample

// measureAll runs the loads in turn, so that other load on the machine affects them alike: round by round, and in each
// round with every number of connections. It returns the results, and the keys in the order of the loads.
func measureAll(t testing.TB, loads []load, at []int) (results, []key) {
	t.Helper()
	for _, l := range loads { // warm up JIT compilers and connection pools
		l.run(t, slices.Max(at), min(time.Second, *each))
	}
	all := results{}
	var order []key
	for range *rounds {
		for _, connections := range at {
			for _, l := range loads {
				k := key{l.what, l.at.name, connections}
				all[k] = append(all[k], l.run(t, connections, *each))
				if len(all[k]) == 1 {
					order = append(order, k)
				}
			}
		}
	}
	return all, order
}

// median returns the median of a figure over the rounds.
func (r results) median(k key, figure func(sample) float64) float64 {
	var figures []float64
	for _, s := range r[k] {
		figures = append(figures, figure(s))
	}
	return middle(figures)
}

// ratio returns the median, over the rounds, of the ratio of requests a second, or NaN if one of the two was not
// measured.
func (r results) ratio(k, to key) float64 {
	var ratios []float64
	for i := range min(len(r[k]), len(r[to])) {
		ratios = append(ratios, r[k][i].perSecond()/r[to][i].perSecond())
	}
	return middle(ratios)
}

// has reports whether anything was measured for a target.
func (r results) has(of string) bool {
	for k := range maps.Keys(r) {
		if k.of == of {
			return true
		}
	}
	return false
}

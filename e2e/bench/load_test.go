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

// A target is a server in processes of its own, and the stores that it works with.
type target struct {
	name, url             string
	pids, postgres, redis []int // processes
}

// A load is one kind of request to one target.
type load struct {
	what string
	at   target
	// worker makes what one connection sends, one request after the other, and hears.
	worker   func(connection int) (asking, hearing)
	statuses []int    // any of these is as it should be
	from     net.Addr // of the connections; nil: any
	before   func(t testing.TB, connections int)
	after    func(t testing.TB)
}

// asking makes the next request; nil when there is no more. hearing is told the body of its answer, and says what is
// wrong with it.
type (
	asking  func() *http.Request
	hearing func(body []byte) error
)

func silent([]byte) error { return nil }

// A sample is what one load did in one round.
type sample struct {
	took      time.Duration
	spent     [3]time.Duration // the processor time of the server's processes, of Postgres and of Redis
	latencies []time.Duration  // sorted
}

// run drives a load in a closed loop: each connection waits for its answer before it sends again. What has to be there
// before is made before the time begins.
func (l load) run(t testing.TB, connections int, during time.Duration) sample {
	t.Helper()
	all, err := l.try(t, connections, during)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// try is run where it is not the test's own goroutine.
func (l load) try(t testing.TB, connections int, during time.Duration) (sample, error) {
	t.Helper()
	if l.before != nil {
		l.before(t, connections)
	}
	type worker struct {
		next  asking
		heard hearing
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
		failed = fmt.Errorf("%s of %s: nothing was asked", l.what, l.at.name)
	}
	if l.after != nil {
		l.after(t)
	}
	slices.Sort(all.latencies)
	return all, failed
}

// repeat asks over a connection of its own, and in this goroutine alone: an http.Transport has two more for each
// connection, and what they wait for each other would be measured as if it were the server's.
func (l load) repeat(next asking, heard hearing, end time.Time) ([]time.Duration, error) {
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
	case !slices.Contains(l.statuses, response.StatusCode):
		err = fmt.Errorf("%s of %s: status %d", l.what, l.at.name, response.StatusCode)
	case response.Close:
		err = fmt.Errorf("%s of %s: it closes the connection", l.what, l.at.name)
	}
	return body, err
}

func (s sample) perSecond() float64 { return float64(len(s.latencies)) / s.took.Seconds() }

func (s sample) percentile(p float64) time.Duration {
	return s.latencies[min(len(s.latencies)-1, int(p*float64(len(s.latencies))))]
}

// cost is what a request cost the i-th of them, in microseconds.
func (s sample) cost(i int) float64 {
	return s.spent[i].Seconds() * 1e6 / float64(len(s.latencies))
}

// A key names what was measured.
type key struct {
	what, of    string
	connections int
}

// results are the samples of each key, one a round.
type results map[key][]sample

// measureAll lets the loads take turns, so that whatever else the machine does meets them alike: round by round, and in
// each round at every number of connections. It returns what came of it, and the keys in the order of the loads.
func measureAll(t testing.TB, loads []load, at []int) (results, []key) {
	t.Helper()
	for _, l := range loads { // those that compile while they run have done so, and every pool is filled
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

// median is that of a figure over the rounds.
func (r results) median(k key, figure func(sample) float64) float64 {
	var figures []float64
	for _, s := range r[k] {
		figures = append(figures, figure(s))
	}
	return middle(figures)
}

// ratio is the median of how many times as many requests a second the one answered as the other, round by round: NaN
// where one of them was not measured.
func (r results) ratio(k, to key) float64 {
	var ratios []float64
	for i := range min(len(r[k]), len(r[to])) {
		ratios = append(ratios, r[k][i].perSecond()/r[to][i].perSecond())
	}
	return middle(ratios)
}

// has says whether anything was measured of a target.
func (r results) has(of string) bool {
	for k := range maps.Keys(r) {
		if k.of == of {
			return true
		}
	}
	return false
}

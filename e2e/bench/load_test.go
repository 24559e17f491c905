package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/server"
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
	worker   newWorker
	statuses []int    // the accepted statuses; nil for 200
	from     net.Addr // local address of the connections; nil for any
	before   func(t testing.TB, connections int)
	after    func(t testing.TB) // waits for the work that the requests cause, which belongs to the load
}

// makeRequest returns the next request, or nil if there is none. takeBody gets the body of its response and returns
// what is wrong with it.
type (
	newWorker   func(connection int) (makeRequest, takeBody)
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
	must(t, err)
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
	if l.after != nil {
		l.after(t)
	}
	all.took = time.Since(began)
	for i, now := range l.at.spent() {
		all.spent[i] = now - before[i]
	}
	if failed == nil && len(all.latencies) == 0 {
		failed = fmt.Errorf("%s of %s: no request was sent", l.what, l.at.name)
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
	case l.statuses == nil && response.StatusCode != http.StatusOK,
		l.statuses != nil && !slices.Contains(l.statuses, response.StatusCode):
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
// round with every number of connections. Every second round is in reverse order: the place of a load in its round
// affects it. It returns the results, and the keys in the order of the loads.
func measureAll(t testing.TB, loads []load, at []int) (results, []key) {
	t.Helper()
	for _, l := range loads { // warm up JIT compilers and connection pools
		l.run(t, slices.Max(at), min(time.Second, *each))
	}
	all := results{}
	var order []key
	for round := range *rounds {
		for _, connections := range at {
			ordered := slices.Clone(loads)
			if round%2 == 1 {
				slices.Reverse(ordered)
			}
			for _, l := range ordered {
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
	for k := range r {
		if k.of == of {
			return true
		}
	}
	return false
}

// spent returns the processor time that the target's processes have used so far.
func (t target) spent() [3]time.Duration {
	var out [3]time.Duration
	for i, pids := range [][]int{t.pids, t.postgres, t.redis} {
		for _, pid := range pids {
			out[i] += processorTime(pid)
		}
	}
	return out
}

// processorTime returns the user and system time that a process and its children, ended ones included, have used so
// far. The kernel counts hundredths of a second (proc(5), stat).
func processorTime(pid int) time.Duration {
	ticks := ticksOf(strconv.Itoa(pid))
	// The file is missing if the kernel does not provide it.
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range strings.Fields(string(children)) {
		ticks += ticksOf(child)
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func ticksOf(pid string) int {
	content, err := os.ReadFile("/proc/" + pid + "/stat")
	_, fields, found := strings.Cut(string(content), ") ")
	parts := strings.Fields(fields)
	if err != nil || !found || len(parts) < 15 {
		return 0 // the process has ended
	}
	sum := 0
	for _, part := range parts[11:15] { // utime, stime, cutime and cstime
		ticks, _ := strconv.Atoi(part)
		sum += ticks
	}
	return sum
}

// middle returns the median, or NaN without figures.
func middle(figures []float64) float64 {
	if len(figures) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(figures))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// profiles is the directory for profiles of the services, which make bench PROFILE=1 sets; "" for none.
var profiles = flag.String("profiles", "", "leave profiles of the services in this directory")

const profilesSetting = "ALMONER_PROFILES"

// requestProfile makes a service (by the name of its files) write its memory figures and then its profiles. It returns
// the memory figures.
func requestProfile(t testing.TB, dir, service string, pid int) server.MemoryProfile {
	t.Helper()
	file := filepath.Join(dir, service+".memory.json")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	must(t, syscall.Kill(pid, syscall.SIGUSR1))
	var memory server.MemoryProfile
	must(t, json.Unmarshal(waitForFile(t, file), &memory))
	return memory
}

func waitForFile(t testing.TB, file string) (content []byte) {
	t.Helper()
	await.NoError(t, func() (err error) {
		content, err = os.ReadFile(file)
		return err
	})
	return content
}

// profileEach runs each load that can run for long at 32 connections, and stores its service's profiles.
func (r *report) profileEach(t *testing.T, loads []load, dir string) {
	t.Helper()
	if *profiles == "" {
		return
	}
	must(t, os.MkdirAll(*profiles, 0o700))
	r.line("\nProfiles of the services are in .almoner/profiles: `go tool pprof -top FILE`.")
	for _, l := range loads {
		service := map[bool]string{true: "resourceapi", false: "authserver"}[strings.HasPrefix(l.what, "list")]
		if l.at.name != ourselves || l.before != nil {
			continue
		}
		name := service + "-" + strings.NewReplacer(",", "", "'", "", " ", "-").Replace(l.what)
		requestProfile(t, dir, service, l.at.pids[0])
		l.run(t, 32, server.ProfileTime)
		for _, kind := range []string{".cpu.pprof", ".heap.pprof"} {
			from := filepath.Join(dir, service+kind)
			content := waitForFile(t, from)
			err := errors.Join(os.WriteFile(filepath.Join(*profiles, name+kind), content, 0o600), os.Remove(from))
			must(t, err)
		}
	}
}

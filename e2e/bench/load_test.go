package bench

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A target is a server in a process of its own.
type target struct {
	name string
	url  string
	pid  int
}

// A load is one kind of request to one target.
type load struct {
	what string
	at   target
	// worker makes what one connection sends, one request after the other, and hears the answers. next is nil when there is no more.
	worker func() (next func() *http.Request, heard func(body []byte))
	status int
}

// A sample is what one load did in one round.
type sample struct {
	requests  int
	took      time.Duration
	cpu       time.Duration // of the target's process
	latencies []time.Duration
}

// run drives a load in a closed loop: each connection waits for its answer before it sends again.
func (l load) run(connections int, during time.Duration) (sample, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var mu sync.Mutex
	var group sync.WaitGroup
	var all sample
	var failed error
	before, began := processorTime(l.at.pid), time.Now()
	for range connections {
		next, heard := l.worker()
		group.Go(func() {
			var mine []time.Duration
			var err error
			for err == nil && time.Since(began) < during {
				request := next()
				if request == nil {
					break
				}
				sent := time.Now()
				var body []byte
				if body, err = l.send(transport, request); err == nil {
					mine = append(mine, time.Since(sent))
					heard(body)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.latencies = append(all.latencies, mine...)
			if err != nil {
				failed = err
			}
		})
	}
	group.Wait()
	all.took, all.cpu, all.requests = time.Since(began), processorTime(l.at.pid)-before, len(all.latencies)
	return all, failed
}

func (l load) send(transport *http.Transport, request *http.Request) ([]byte, error) {
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && !l.expects(response.StatusCode) {
		err = fmt.Errorf("%s of %s: status %d", l.what, l.at.name, response.StatusCode)
	}
	return body, err
}

// expects says whether an answer is as it should be. 0 stands for a refusal: that, or one for having been refused too often.
func (l load) expects(status int) bool {
	return status == l.status || (l.status == 0 && (status == http.StatusBadRequest || status == http.StatusTooManyRequests))
}

// add puts another round to this one.
func (s *sample) add(other sample) {
	s.requests += other.requests
	s.took += other.took
	s.cpu += other.cpu
	s.latencies = append(s.latencies, other.latencies...)
}

func (s sample) perSecond() float64 { return float64(s.requests) / s.took.Seconds() }

func (s sample) percentile(p float64) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.latencies))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// processorTime is what a process has used so far, in the kernel and outside of it (proc(5), stat: hundredths of a second).
func processorTime(pid int) time.Duration {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, found := strings.Cut(string(content), ") ")
	parts := strings.Fields(fields)
	if err != nil || !found || len(parts) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(parts[11])
	system, _ := strconv.Atoi(parts[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

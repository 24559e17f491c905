package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

// A Scrape is the metrics of all services of a stack at one moment, as Prometheus would read them.
type Scrape string

// Metrics reads the metrics of every service of a stack.
func Metrics(t testing.TB, s *stack.Stack) Scrape {
	t.Helper()
	text, err := scrape(t.Context(), metered(s))
	if err != nil {
		t.Fatal(err)
	}
	return Scrape(text)
}

func metered(s *stack.Stack) []*stack.Service {
	return append(slices.Clone(s.Authservers), s.Resourceapi)
}

func scrape(ctx context.Context, services []*stack.Service) (string, error) {
	var all strings.Builder
	for _, service := range services {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, service.Metrics, nil)
		if err != nil {
			return "", err
		}
		response, err := (&http.Client{Timeout: timeout}).Do(request)
		if err != nil {
			return all.String(), fmt.Errorf("the metrics of %s: %w", service.Name, err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		all.Write(text)
		if err != nil || response.StatusCode != http.StatusOK {
			return all.String(), fmt.Errorf("the metrics of %s: %d %w", service.Name, response.StatusCode, err)
		}
	}
	return all.String(), nil
}

// Names returns the names of the metrics in the TYPE lines, including the series of histograms.
func (s Scrape) Names() map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(string(s)) {
		name, kind, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " ")
		if !strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		names[name] = true
		if strings.TrimSpace(kind) == "histogram" {
			names[name+"_bucket"], names[name+"_sum"], names[name+"_count"] = true, true, true
		}
	}
	return names
}

// Sum adds the values of the series with that name and all these labels, each in the form route="/token". There must
// be at least one.
func (s Scrape) Sum(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	values := s.series(name, labels)
	if len(values) == 0 {
		t.Errorf("there is no series %s with %v", name, labels)
	}
	sum := 0.0
	for _, value := range values {
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sum += number
	}
	return sum
}

// Has reports whether there is such a series.
func (s Scrape) Has(name string, labels ...string) bool { return len(s.series(name, labels)) > 0 }

func (s Scrape) series(name string, labels []string) (values []string) {
	for line := range strings.Lines(string(s)) {
		end := strings.LastIndex(line, " ")
		is, in, _ := strings.Cut(line[:max(end, 0)], "{")
		if is == name && !slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(in, label) }) {
			values = append(values, strings.TrimSpace(line[end+1:]))
		}
	}
	return values
}

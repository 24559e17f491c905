package app

import (
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An answer is a response.
type answer struct {
	Status int
	Header http.Header
	Body   string

	sent string       // method, path and body of the request
	log  *testkit.Log // of the service
}

// wants checks the status, and that the body has the pieces.
func (a answer) wants(t testing.TB, status int, pieces ...string) answer {
	t.Helper()
	if a.Status != status {
		a.fail(t, strconv.Itoa(status))
	}
	return a.has(t, pieces...)
}

// has checks that the body has the pieces.
func (a answer) has(t testing.TB, pieces ...string) answer {
	t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(a.Body, piece) {
			a.fail(t, "a body with "+piece)
		}
	}
	return a
}

// lacks checks that the body has none of the pieces.
func (a answer) lacks(t testing.TB, pieces ...string) answer {
	t.Helper()
	for _, piece := range pieces {
		if strings.Contains(a.Body, piece) {
			a.fail(t, "a body without "+piece)
		}
	}
	return a
}

// is checks the whole body, but for a line break at its end.
func (a answer) is(t testing.TB, body string) answer {
	t.Helper()
	if strings.TrimSuffix(a.Body, "\n") != strings.TrimSuffix(body, "\n") {
		a.fail(t, "the body "+body)
	}
	return a
}

// header checks the value of a header; * stands for any.
func (a answer) header(t testing.TB, name, value string) answer {
	t.Helper()
	if got := a.Header.Get(name); got != value && (value != "*" || got == "") {
		a.fail(t, name+": "+value)
	}
	return a
}

// fail says what was sent, what came, what the service logged about it, and how to repeat the test.
func (a answer) fail(t testing.TB, want string) {
	t.Helper()
	var logged strings.Builder
	if id := a.Header.Get(web.RequestIDHeader); id != "" && a.log != nil {
		for line := range strings.Lines(a.log.String()) {
			if strings.Contains(line, id) {
				logged.WriteString(line)
			}
		}
	}
	t.Errorf("%.500s\ngot  %d %v %s\nwant %s\nlog  %s\ngo test -run '^%s$' ./resourceapi/internal/app",
		a.sent, a.Status, a.Header, a.Body, want, &logged, strings.ReplaceAll(t.Name(), "/", "$/^"))
}

// must fails the test if its arrangement failed.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// orFail returns the value, or a function that fails the test: connection := orFail(pgx.Connect(ctx, url))(t).
func orFail[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return value
	}
}

// refuses checks the status and the code of an error.
func (a answer) refuses(t testing.TB, status int, code string) answer {
	t.Helper()
	if a.Status != status || a.code(t) != code {
		a.fail(t, strconv.Itoa(status)+" "+code)
	}
	return a
}

// code returns error.code of the nested shape.
func (a answer) code(t testing.TB) string {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil || body.Error.Message == "" {
		t.Fatalf("%d does not have the nested shape: %s", a.Status, a.Body)
	}
	return body.Error.Code
}

func (a answer) decode(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), into); err != nil {
		a.fail(t, err.Error())
		t.FailNow()
	}
}

// atOnce sends n requests at the same time.
func atOnce(n int, send func(i int) answer) []answer {
	answers := make([]answer, n)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() { answers[i] = send(i) })
	}
	group.Wait()
	return answers
}

// byStatus counts answers.
func byStatus(answers []answer) map[int]int {
	counts := map[int]int{}
	for _, a := range answers {
		counts[a.Status]++
	}
	return counts
}

// repeats checks that the answer is the first one, given again for its Idempotency-Key.
func (a answer) repeats(t testing.TB, first answer) answer {
	t.Helper()
	return a.wants(t, first.Status).is(t, first.Body).header(t, "Idempotency-Replayed", "true")
}

// names checks that a 400 blames the member or parameter, and perhaps others.
func (a answer) names(t testing.TB, field string) answer {
	t.Helper()
	if a.fields(t)[field] == "" {
		a.fail(t, "an error of the field "+field)
	}
	return a
}

// namesOnly checks that a 400 blames these members or parameters alone.
func (a answer) namesOnly(t testing.TB, fields ...string) answer {
	t.Helper()
	if got := slices.Sorted(maps.Keys(a.fields(t))); !slices.Equal(got, slices.Sorted(slices.Values(fields))) {
		a.fail(t, "errors of only the fields "+strings.Join(fields, ", "))
	}
	for _, field := range fields {
		a.names(t, field)
	}
	return a
}

// decoded returns the body of an answer.
func decoded[T any](t testing.TB, a answer) (body T) {
	t.Helper()
	a.decode(t, &body)
	return body
}

// A paged is a page of a list.
type paged[T any] struct {
	Data []T
	Meta struct {
		Count      int
		NextCursor string
	}
}

// pageOf reads a page.
func pageOf[T any](s *service, path string, h header) paged[T] {
	s.t.Helper()
	a := s.get(path, h)
	if a.Status != 200 {
		a.fail(s.t, "200")
		s.t.FailNow()
	}
	p := decoded[paged[T]](s.t, a)
	if p.Meta.Count != len(p.Data) {
		a.fail(s.t, "the count of the records")
	}
	return p
}

// pagesOf follows the cursors of a list, whose path has a query.
func pagesOf[T any](s *service, path string, h header) iter.Seq[paged[T]] {
	return func(yield func(paged[T]) bool) {
		s.t.Helper()
		cursor := ""
		for range 10_000 {
			p := pageOf[T](s, path+cursor, h)
			if !yield(p) || p.Meta.NextCursor == "" {
				return
			}
			cursor = "&cursor=" + p.Meta.NextCursor
		}
		s.t.Fatalf("the list %s does not end", path)
	}
}

// recordsOf returns the records of all pages of a list, whose path has a query.
func recordsOf[T any](s *service, path string, h header) (all []T) {
	s.t.Helper()
	for p := range pagesOf[T](s, path, h) {
		all = append(all, p.Data...)
	}
	return all
}

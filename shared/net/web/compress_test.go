package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// compressed requests method with Accept-Encoding from a handler that Compress wraps.
func compressed(method, accepted string, handler http.HandlerFunc) *http.Response {
	r := httptest.NewRequest(method, "/", nil)
	if accepted != "" {
		r.Header.Set("Accept-Encoding", accepted)
	}
	w := httptest.NewRecorder()
	Compress(handler).ServeHTTP(w, r)
	return w.Result()
}

func respondJSON(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.Header().Set("ETag", `"3"`)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, text)
	}
}

func TestCompress_LongJSONThatClientAccepts(t *testing.T) {
	t.Parallel()
	long := `{"text":"` + strings.Repeat("a", 2000) + `"}`
	for name, c := range map[string]struct {
		accepted string
		handler  http.HandlerFunc
		want     bool
	}{
		"long":                 {"gzip", respondJSON(long), true},
		"one of several":       {"br;q=1.0, gzip;q=0.8, *;q=0.1", respondJSON(long), true},
		"zstd preferred":       {"zstd, gzip", respondJSON(long), true},
		"not accepted":         {"", respondJSON(long), false},
		"refused":              {"gzip;q=0", respondJSON(long), false},
		"another encoding":     {"br", respondJSON(long), false},
		"short":                {"gzip", respondJSON(`{"a":1}`), false},
		"marked uncompressed":  {"gzip", secretly(respondJSON(long)), false},
		"page":                 {"gzip", typed("text/html; charset=utf-8", long), false},
		"stream of events":     {"gzip", typed("text/event-stream", long), false},
		"already compressed":   {"gzip", encoded(long), false},
		"chunks without count": {"gzip", typed("application/json", long), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := compressed("GET", c.accepted, c.handler)
			if answer.Header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("Vary: %q", answer.Header.Get("Vary"))
			}
			if len(answer.Header.Values("No-Gzip-Compression")) > 0 {
				t.Error("the internal mark was sent")
			}
			if got := answer.Header.Get("Content-Encoding") == "gzip"; got != c.want {
				t.Fatalf("compressed: %v, want %v", got, c.want)
			}
			if !c.want {
				return
			}
			plain, err := gzip.NewReader(answer.Body)
			must(t, err)
			content, err := io.ReadAll(plain)
			if err != nil || string(content) != long {
				t.Errorf("%v, %d bytes", err, len(content))
			}
			if answer.Header.Get("Content-Length") != "" {
				t.Error("the length of the plain content was sent")
			}
		})
	}
}

func TestCompress_KeepsStatusAndETag(t *testing.T) {
	t.Parallel()
	answer := compressed("GET", "gzip", respondJSON(strings.Repeat("1", 2000)))
	if answer.StatusCode != http.StatusCreated || answer.Header.Get("ETag") != `"3"` {
		t.Errorf("%d, ETag %s", answer.StatusCode, answer.Header.Get("ETag"))
	}
	none := compressed("GET", "gzip", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"3"`)
		w.WriteHeader(http.StatusNotModified)
	})
	content, _ := io.ReadAll(none.Body)
	if none.StatusCode != http.StatusNotModified || none.Header.Get("Content-Encoding") != "" || len(content) > 0 {
		t.Errorf("%d, %v, %q", none.StatusCode, none.Header, content)
	}
}

// A response to HEAD has the fields of the one to GET, and its length is the length of what GET sends.
func TestCompress_HeadHasFieldsOfGet(t *testing.T) {
	t.Parallel()
	long := `{"text":"` + strings.Repeat("abcdefgh", 20_000) + `"}`
	for name, c := range map[string]struct {
		accepted string
		handler  http.HandlerFunc
	}{
		"sent in chunks":   {"gzip", respondJSON(long)},
		"sent with length": {"gzip", respondJSON(long[:2000])},
		"not accepted":     {"identity", respondJSON(long)},
		"short":            {"gzip", respondJSON(`{"a":1}`)},
		"secret":           {"gzip", secretly(respondJSON(long))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var methods []string
			server := httptest.NewServer(Compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				methods = append(methods, r.Method)
				c.handler(w, r)
			})))
			defer server.Close()
			fields := map[string][]string{}
			for _, method := range []string{"GET", "HEAD"} {
				r, err := http.NewRequest(method, server.URL, nil)
				must(t, err)
				r.Header.Set("Accept-Encoding", c.accepted)
				response, err := http.DefaultTransport.RoundTrip(r)
				must(t, err)
				_ = response.Body.Close()
				for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type", "Vary", "ETag"} {
					fields[method] = append(fields[method], name+": "+response.Header.Get(name))
				}
			}
			if !slices.Equal(fields["HEAD"], fields["GET"]) {
				t.Errorf("HEAD: %q\nGET:  %q", fields["HEAD"], fields["GET"])
			}
			if !slices.Equal(methods, []string{"GET", "HEAD"}) {
				t.Errorf("the handler saw %v", methods)
			}
		})
	}
}

func secretly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		Uncompressed(w.Header())
		next(w, r)
	}
}

func typed(contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for part := range strings.SplitAfterSeq(text, "aaaaaaaaaa") {
			_, _ = io.WriteString(w, part)
		}
	}
}

func encoded(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		typed("application/json", text)(w, r)
	}
}

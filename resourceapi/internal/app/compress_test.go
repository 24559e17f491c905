package app

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// accepting requests a path with Accept-Encoding: gzip. Unlike do, it does not decompress the answer.
func (s *service) accepting(method, path string, h header, body string) answer {
	s.t.Helper()
	return s.do(method, path, h.with("Accept-Encoding", "gzip"), body)
}

func (a answer) compressed() bool { return a.Header.Get("Content-Encoding") == "gzip" }

// plain returns the content of a compressed answer.
func (a answer) plain(t *testing.T) string {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader([]byte(a.Body)))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestCompress_ListsAndRecords(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	long := s.create(h, `{"name":"Warm Homes","summary":"`+strings.Repeat("advice ", 300)+`"}`)
	path := listPath + "/" + long.ID.String()
	for _, at := range []string{listPath, path, "/v1/openapi.json"} {
		packed, plain := s.accepting("GET", at, h, ""), s.do("GET", at, h.with("Accept-Encoding", "identity"), "")
		if !packed.compressed() || plain.compressed() || packed.plain(t) != plain.Body {
			t.Errorf("%s: %v, then %v", at, packed.Header, plain.Header)
		}
		for _, a := range []answer{packed, plain} {
			if !slices.Contains(a.Header.Values("Vary"), "Accept-Encoding") {
				t.Errorf("%s: Vary %v", at, a.Header.Values("Vary"))
			}
		}
		head := s.accepting("HEAD", at, h, "")
		if head.Status != 200 || head.Body != "" || !head.compressed() {
			t.Errorf("HEAD %s: %d, %d bytes, %v", at, head.Status, len(head.Body), head.Header)
		}
		if length := head.Header.Get("Content-Length"); length != packed.Header.Get("Content-Length") {
			t.Errorf("HEAD %s: Content-Length %q, %q of GET", at, length, packed.Header.Get("Content-Length"))
		}
	}
	tag := s.accepting("GET", path, h, "").Header.Get("ETag")
	if a := s.accepting("GET", path, h.with("If-None-Match", tag), ""); a.Status != 304 || a.Body != "" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
	s.accepting("PATCH", path, h.with("If-Match", tag), `{"name":"Warmer Homes"}`).wants(t, 200)
	if a := s.accepting("POST", listPath, h, `{"name":"Short"}`); a.Status != 201 || a.compressed() {
		t.Errorf("a short answer: %d %v", a.Status, a.Header)
	}
}

func TestCompress_ToolResults(t *testing.T) {
	s := newService(t)
	workspaceID, _, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 20)
	a := s.accepting("POST", mcpPath, assistant(token), calling("list_programmes", map[string]any{}))
	if a.Status != 200 || !a.compressed() || !strings.Contains(a.plain(t), "structuredContent") {
		t.Errorf("%d %v", a.Status, a.Header)
	}
}

package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/net/web"
)

// FuzzParseObject checks that encoding/json reads every accepted object the same way.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, `{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"a":{"b":1,"b":2}}`, `[]`, `null`, `{"a":"\ud800"}`,
		`{"a":"\u0000"}`, `{"a":1}x`, `{"a":1} `, "{\"a\":\"\xff\"}", `{"a`, `{"a":1,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		object, err := ParseObject(content)
		var plain map[string]json.RawMessage
		plainErr := json.Unmarshal(content, &plain)
		if err != nil {
			return
		}
		if plainErr != nil || len(plain) != len(object) || !utf8.Valid(content) {
			t.Fatalf("%q: %d keys, plainly %d, %v", content, len(object), len(plain), plainErr)
		}
		for key, value := range object {
			if string(plain[key]) != string(value) {
				t.Errorf("%q: %q is %s, plainly %s", content, key, value, plain[key])
			}
			if text, isText := object.Text(key); isText {
				var same string
				if json.Unmarshal(value, &same) != nil || same != text {
					t.Errorf("%q: %q", content, text)
				}
			}
		}
	})
}

func TestParseObject_KeysAreCaseSensitive(t *testing.T) {
	object, err := ParseObject([]byte(` {"Name":"x","name":null,"n":7} `))
	must(t, err)
	_, nullIsText := object.Text("name")
	_, numberIsText := object.Text("n")
	if nullIsText || numberIsText || !object.Null("name") || !object.Has("n") || object.Has("N") {
		t.Errorf("%v", object)
	}
}

func TestParseObject_RefusesAmbiguousDocuments(t *testing.T) {
	for name, content := range map[string]string{
		"key twice":                  `{"a":1,"a":2}`,
		"key twice, spelt otherwise": `{"a":1,"\u0061":2}`,
		"deep key twice":             `{"a":[{"b":1,"b":2}]}`,
		"half a character":           `{"a":"\ud800"}`,
		"the other half":             `{"a":"\udc00x"}`,
		"halves the wrong way round": `{"a":"\udc00\ud800"}`,
		"half a character in a key":  `{"\ud800":1}`,
		"half a character below":     `{"a":{"b":["\ud83d"]}}`,
		"not UTF-8":                  "{\"a\":\"\xff\"}",
		"not UTF-8 below":            "{\"a\":[\"\xc0\x80\"]}",
		"trailing data":              `{"a":1}{}`,
		"trailing comma":             `{"a":1,}`,
		"no end":                     `{"a":1`,
		"a list":                     `[]`,
		"null":                       `null`,
		"nothing":                    ``,
		"bare control character":     "{\"a\":\"\n\"}",
		"very deep":                  `{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
	} {
		if object, err := ParseObject([]byte(content)); err == nil {
			t.Errorf("%s: read as %d keys", name, len(object))
		}
	}
	object, err := ParseObject([]byte(`{"a":"\ud83d\ude00","b":{"x":[1,"\u00e9"]}}`))
	must(t, err)
	if text, isText := object.Text("a"); !isText || text != "\U0001F600" ||
		string(object["b"]) != `{"x":[1,"\u00e9"]}` {
		t.Errorf("%q %s", text, object["b"])
	}
}

func TestReadBody_RefusesContentEncoding(t *testing.T) {
	plain := []string{"", "identity", " Identity "}
	for _, encoding := range append(plain, "gzip", "br", "identity, gzip") {
		r := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
		r.Header.Set("Content-Encoding", encoding)
		content, err := ReadBody(httptest.NewRecorder(), r, 10)
		if slices.Contains(plain, encoding) {
			if err != nil || string(content) != "{}" {
				t.Errorf("%q: %q %v", encoding, content, err)
			}
		} else if problem := apierr.Of(err); problem.Kind != apierr.Invalid || problem.Message != web.EncodedWords {
			t.Errorf("%q: %v", encoding, err)
		}
	}
}

// The client declares the length of its body, sends a part and stops.
func TestReadBodyWithin_TimesOutOnSlowBody(t *testing.T) {
	within := 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := ReadBodyWithin(w, r, 100, within)
		if err != nil {
			apierr.Write(w, apierr.Nested, apierr.Of(err))
			return
		}
		_, _ = w.Write(content)
	}))
	defer server.Close()
	send := func(sent string) string {
		connection, err := net.Dial("tcp", server.Listener.Addr().String())
		must(t, err)
		defer func() { _ = connection.Close() }()
		_ = connection.SetDeadline(time.Now().Add(await.Long))
		_, _ = io.WriteString(connection,
			"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"+sent)
		answer, err := io.ReadAll(connection)
		if err != nil {
			t.Fatalf("still waiting for the body: %v", err)
		}
		return string(answer)
	}
	if a := send("na"); !strings.HasPrefix(a, "HTTP/1.1 400") || !strings.Contains(a, "in time") {
		t.Error(a)
	}
	within = await.Long
	if a := send("name"); !strings.HasPrefix(a, "HTTP/1.1 200") {
		t.Error(a)
	}
}

func TestUnknownParameters_NamesUnknownParameters(t *testing.T) {
	for query, want := range map[string][]string{
		"":                         nil,
		"&":                        nil,
		"limit=5&cursor=x&limit=6": nil,
		"li%6dit=5":                nil,
		"Limit=5":                  {"Limit"},
		"limit=5&sort=name&sort=x": {"sort"},
		"b&a=1":                    {"a", "b"},
		"=1":                       {`""`},
		"limit%=1":                 {"limit%"},
		"limit;x=1":                {"limit;x"},
		"%00=1":                    {`"\x00"`},
		"%ff=1":                    {`"\xff"`},
		strings.Repeat("x", 70):    {strings.Repeat("x", 64) + "…"},
	} {
		err := UnknownParameters(query, "limit", "cursor")
		refusal, refused := errors.AsType[*apierr.Error](err)
		if refused != (want != nil) {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if refused &&
			(refusal.Kind != apierr.Invalid || !slices.Equal(slices.Sorted(maps.Keys(refusal.Fields)), want)) {
			t.Errorf("%s: %v", query, refusal.Fields)
		}
	}
}

func TestUnknownMembers_LimitsNumberOfNames(t *testing.T) {
	object := Object{"name": nil, "Name": nil}
	if found := UnknownMembers(object, "name"); len(found) != 1 || found["Name"] == "" {
		t.Errorf("%v", found)
	}
	for i := range 5000 {
		object[fmt.Sprintf("member%04d", i)] = nil
	}
	if found := UnknownMembers(object, "name"); len(found) != 10 {
		t.Errorf("%d names", len(found))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

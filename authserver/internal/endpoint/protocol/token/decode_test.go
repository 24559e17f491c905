package token_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
)

func decodeBody(contentType, body string) (token.Decoded, error) {
	r := httptest.NewRequest(http.MethodPost, "/?client_id=from-the-query", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return token.Decode(httptest.NewRecorder(), r, "client_id", "code")
}

func TestDecode_AcceptsGoodBodies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contentType, body string }{
		{asJSON, `{"client_id":"a","code":"b"}`},
		{asJSON + "; charset=utf-8", ` {"code":"b","extra":{"client_id":1},"client_id":"a"} `},
		{"APPLICATION/JSON", `{"client_id":"a","code":"b"}`},
		{asForm, "client_id=a&code=b"},
		{asForm + ";charset=UTF-8", "code=%62&client_id=a&surplus=1"},
	} {
		p, err := decodeBody(c.contentType, c.body)
		if err != nil || p.Values["client_id"] != "a" || p.Values["code"] != "b" {
			t.Errorf("%s %s: %v %v", c.contentType, c.body, p.Values, err)
		}
	}
}

func TestDecode_RefusesBadBodies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contentType, body string }{
		{"", "client_id=a"}, {"text/plain", "client_id=a"}, {"multipart/form-data; boundary=x", "--x--"},
		{"text/json", `{"client_id":"a"}`}, {"application/jsonp", `{"client_id":"a"}`},
		{asJSON + ", text/plain", `{"client_id":"a"}`}, {asForm + "-not", "client_id=a"},
		{";", `{"client_id":"a"}`}, {"/", `{"client_id":"a"}`}, {"application/", `{"client_id":"a"}`},
		{asJSON + ";;;=", `{"client_id":"a"}`}, {asJSON, `{"a":` + strings.Repeat("[", 20_000)},
		{asJSON, `{"client_id":"a","x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}"},
		{asJSON, ""}, {asJSON, "[]"}, {asJSON, `"a"`}, {asJSON, "null"}, {asJSON, "client_id=a"},
		{asJSON, `{"client_id":"a"`}, {asJSON, `{"client_id":"a"}{}`}, {asJSON, `{"client_id":"a"} x`},
		{asJSON, `{"client_id":"a","client_id":"a"}`}, {asJSON, `{"x":1,"x":2}`},
		{asJSON, `{"Client_ID":"a"}`}, {asJSON, `{"client_id":"a","CODE":"b"}`},
		{asJSON, `{"client_id":1}`}, {asJSON, `{"client_id":null}`}, {asJSON, `{"client_id":["a"]}`},
		{asJSON, "{\"client_id\":\"\xff\"}"}, {asJSON, "\xef\xbb\xbf{}"},
		{asForm, "client_id=a&client_id=a"}, {asForm, "client_id=%zz"}, {asForm, "a=1;b=2"}, {asForm, "client_id=%ff"},
	} {
		if p, err := decodeBody(c.contentType, c.body); err == nil {
			t.Errorf("%s %.200q: accepted as %v", c.contentType, c.body, p.Values)
		}
	}
}

func TestDecode_RefusesEncodedBody(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{asJSON, asForm} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("\x1f\x8b\x08"))
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Content-Encoding", "gzip")
		_, err := token.Decode(httptest.NewRecorder(), r, "client_id")
		if problem := apierr.Of(err); problem.Kind != apierr.Invalid || problem.Message != web.EncodedWords {
			t.Errorf("%s: %v", contentType, err)
		}
	}
}

// numbersAsText returns a decoder that does not parse numbers: a number too large for any Go type is still valid JSON.
func numbersAsText(body string) *json.Decoder {
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	return d
}

// Decode reads the same values as the more lenient parsers of the standard library, and accepts no duplicates. Every
// error is the caller's fault.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"client_id":"a","code":"b"}`,
		`{"client_id":"a","client_id":"b"}`,
		`{"code":"\u0041\ud83d\ude00","x":[1,{}]}`,
		`{"Code":"x"}`,
		`{"code":null}`,
		"{} {}",
		"[]",
		`{"x":{"y":3E3223}}`,
	} {
		f.Add(true, body)
	}
	for _, body := range []string{
		"client_id=a&code=b",
		"code=%41+%20&x=",
		"code=a&code=b",
		"code=%zz",
		"code=%ff",
		"a;b",
		"=&&=",
	} {
		f.Add(false, body)
	}
	f.Fuzz(func(t *testing.T, isJSON bool, body string) {
		contentType := asForm
		if isJSON {
			contentType = asJSON
		}
		p, err := decodeBody(contentType, body)
		if err != nil {
			if status := apierr.Of(err).Status(); status >= http.StatusInternalServerError {
				t.Errorf("%q: status %d", body, status)
			}
			return
		}
		plain := map[string]any{}
		if form, err := url.ParseQuery(body); !isJSON {
			for name, values := range form {
				if plain[name] = values[0]; len(values) > 1 || err != nil {
					t.Errorf("%q was read", body)
				}
			}
		} else if err := numbersAsText(body).Decode(&plain); err != nil || !json.Valid([]byte(body)) {
			t.Errorf("%q was read: %v", body, err)
		}
		for name, value := range p.Values {
			if plain[name] != value.Reveal() || !utf8.ValidString(value.Reveal()) {
				t.Errorf("%q: %s is read as %q", body, name, value.Reveal())
			}
		}
		for _, name := range []string{"client_id", "code"} {
			if _, read := p.Values[name]; plain[name] != nil && !read {
				t.Errorf("%q: %s was not read", body, name)
			}
		}
		if (p.Dialect == engine.JSON) != isJSON {
			t.Errorf("%q: dialect %d", body, p.Dialect)
		}
	})
}

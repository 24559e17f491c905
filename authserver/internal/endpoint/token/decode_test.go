package token

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func decode(contentType, body string) (Parameters, error) {
	r := httptest.NewRequest(http.MethodPost, "/?client_id=from-the-query", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return Decode(httptest.NewRecorder(), r, "client_id", "code")
}

const (
	asJSON = "application/json"
	asForm = "application/x-www-form-urlencoded"
)

func TestGoodBodiesAreRead(t *testing.T) {
	for _, c := range []struct{ contentType, body string }{
		{asJSON, `{"client_id":"a","code":"b"}`},
		{asJSON + "; charset=utf-8", ` {"code":"b","extra":{"client_id":1},"client_id":"a"} `},
		{asForm, "client_id=a&code=b"},
		{asForm + ";charset=UTF-8", "code=%62&client_id=a&surplus=1"},
	} {
		p, err := decode(c.contentType, c.body)
		if err != nil || p.Values["client_id"] != "a" || p.Values["code"] != "b" {
			t.Errorf("%s %s: %v %v", c.contentType, c.body, p.Values, err)
		}
	}
}

func TestBadBodiesAreRefused(t *testing.T) {
	for _, c := range []struct{ contentType, body string }{
		{"", "client_id=a"}, {"text/plain", "client_id=a"}, {"multipart/form-data; boundary=x", "--x--"},
		{asJSON, ""}, {asJSON, "[]"}, {asJSON, `"a"`}, {asJSON, "null"}, {asJSON, "client_id=a"},
		{asJSON, `{"client_id":"a"`}, {asJSON, `{"client_id":"a"}{}`}, {asJSON, `{"client_id":"a"} x`},
		{asJSON, `{"client_id":"a","client_id":"a"}`}, {asJSON, `{"x":1,"x":2}`},
		{asJSON, `{"Client_ID":"a"}`}, {asJSON, `{"client_id":"a","CODE":"b"}`},
		{asJSON, `{"client_id":1}`}, {asJSON, `{"client_id":null}`}, {asJSON, `{"client_id":["a"]}`},
		{asJSON, "{\"client_id\":\"\xff\"}"}, {asJSON, "\xef\xbb\xbf{}"},
		{asForm, "client_id=a&client_id=a"}, {asForm, "client_id=%zz"}, {asForm, "a=1;b=2"}, {asForm, "client_id=%ff"},
	} {
		if p, err := decode(c.contentType, c.body); err == nil {
			t.Errorf("%s %q: accepted as %v", c.contentType, c.body, p.Values)
		}
	}
}

func TestTheQueryIsNeverRead(t *testing.T) {
	p, err := decode(asForm, "code=b")
	if err != nil || p.Values["client_id"] != "" {
		t.Errorf("%v %v", p.Values, err)
	}
}

func TestALongBodyIs413(t *testing.T) {
	if _, err := decode(asForm, "a="+strings.Repeat("x", MaxBody)); err == nil || !strings.Contains(err.Error(), "64 KiB") {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(asJSON, `{"client_id":"a","code":"b"}`)
	f.Add(asForm, "client_id=a&code=b")
	f.Fuzz(func(t *testing.T, contentType, body string) {
		if p, err := decode(contentType, body); err == nil && len(p.Values) > 0 && body == "" {
			t.Error("parameters out of nothing")
		}
	})
}

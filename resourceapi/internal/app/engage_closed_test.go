package app

import (
	"crypto/rand"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A closed form cannot be distinguished from one that never existed: the responses are byte-identical for every
// request, headers included. The exception is an Idempotency-Key that was used while the form was open.
func TestPublicForms_ClosedFormIsIndistinguishableFromUnknown(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	closed := s.makeForm(h, allTypes)
	good := submissionOf(s.submissionToken(closed), goodAnswers())
	keyed := header{"Origin": goodOrigin, "Idempotency-Key": "first"}
	first := s.submit(closed, keyed, good)
	s.acceptedAs(first)
	unknown, err := credential.EmbedKey.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long := `{"submissionToken":"` + strings.Repeat("x", 70_000) + `"}`
	longer := strings.Repeat("x", 400_000)
	const form = "application/x-www-form-urlencoded"
	sent := func(values ...string) http.Header { // with a header that has the values behind its name
		h := http.Header{"Content-Type": {"application/json"}}
		if len(values) > 0 {
			h[values[0]] = values[1:]
		}
		return h
	}
	requests := map[string]struct {
		method, below string
		header        http.Header
		body          string
	}{
		"read":                  {"GET", "", http.Header{}, ""},
		"head":                  {"HEAD", "", http.Header{}, ""},
		"read from the website": {"GET", "", http.Header{"Origin": {goodOrigin}}, ""},
		"read from elsewhere":   {"GET", "", http.Header{"Origin": {otherOrigin}}, ""},
		"preflight": {
			"OPTIONS", "/submissions", http.Header{"Origin": {goodOrigin}, "Access-Control-Request-Method": {"POST"}},
			"",
		},
		"send":                  {"POST", "/submissions", sent(), good},
		"send from the website": {"POST", "/submissions", sent("Origin", goodOrigin), good},
		"send from elsewhere":   {"POST", "/submissions", sent("Origin", otherOrigin), good},
		"two origins":           {"POST", "/submissions", sent("Origin", goodOrigin, otherOrigin), good},
		"send nothing":          {"POST", "/submissions", http.Header{}, ""},
		"too long":              {"POST", "/submissions", sent("Origin", goodOrigin), long},
		"much too long":         {"POST", "/submissions", sent(), longer},
		"no such key":           {"POST", "/submissions", sent("Idempotency-Key", "a b"), good},
		"two keys":              {"POST", "/submissions", sent("Idempotency-Key", "a", "b"), good},
		"another key":           {"POST", "/submissions", sent("Idempotency-Key", "second"), good},
		"wrong method":          {"DELETE", "/submissions", http.Header{}, ""},
		"page":                  {"GET", "/embed", http.Header{}, ""},
		"page in a frame":       {"GET", "/embed?frame=1", http.Header{"Origin": {goodOrigin}}, ""},
		"page of a submission":  {"GET", "/embed?submission=x&token=y", http.Header{}, ""},
		"page sent": {
			"POST", "/embed", http.Header{"Content-Type": {form}, "Origin": {base}}, "submissionToken=x",
		},
		"page sent by a website": {
			"POST", "/embed", http.Header{"Content-Type": {form}, "Origin": {goodOrigin}}, "submissionToken=x",
		},
		"page sent, too long": {"POST", "/embed", http.Header{"Content-Type": {form}}, long},
	}
	look := func(name, embedKey string) answer {
		r := requests[name]
		a := s.send(r.method, publicPath+"/forms/"+embedKey+r.below, r.header.Clone(), r.body)
		a.Header.Del("X-Request-Id")
		a.Header.Del("Date")
		return a
	}
	compare := func(why string) {
		t.Helper()
		for name := range requests {
			got, want := look(name, closed.EmbedKey), look(name, unknown.Reveal())
			if got.Status != want.Status || got.Body != want.Body || !reflect.DeepEqual(got.Header, want.Header) {
				t.Errorf(
					"%s, %s:\n%d %v %s\nunlike an unknown form:\n%d %v %s",
					why,
					name,
					got.Status,
					got.Header,
					got.Body,
					want.Status,
					want.Header,
					want.Body,
				)
			}
			if misspelt := look(name, "alm_embed_x"); misspelt.Status != want.Status || misspelt.Body != want.Body {
				t.Errorf("%s, %s: misspelt: %d %s", why, name, misspelt.Status, misspelt.Body)
			}
		}
	}
	s.Exec("update resource.forms set disabled_at = now() where {mine}")
	compare("disabled")
	s.Exec(
		"update account.tenant_modules set provisioned = false where module = 'engage' and tenant_id = $1",
		workspaceID,
	)
	compare("disabled and not provisioned")
	s.Exec("update resource.forms set disabled_at = null where {mine}")
	s.Exec("update account.tenant_modules set enabled = false where module = 'engage' and tenant_id = $1", workspaceID)
	compare("Engage off")
	if again := s.submit(closed, keyed, good); again.Body != first.Body || again.Status != 202 ||
		again.Header.Get("Access-Control-Allow-Origin") != goodOrigin {
		t.Errorf("the repeated key does not return the first answer: %d %v %s", again.Status, again.Header, again.Body)
	}
}

// The answer to a submission has the token of its status. It is stored sealed, and an answer that the former release
// stored is repeated.
func TestSubmit_AnswerIsStoredSealed(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	body, keyed := submissionOf(s.submissionToken(f), goodAnswers()), header{"Idempotency-Key": "sealed"}
	first := s.submit(f, keyed, body)
	s.acceptedAs(first)
	const stored = `select count(*) from resource.idempotency_keys where {mine} and route like 'submit to %'`
	const readable = stored + ` and position('token='::bytea in body) > 0`
	if all, clear := s.Count(stored), s.Count(readable); all != 1 || clear != 0 {
		t.Errorf("%d answers, %d in the clear", all, clear)
	}
	for range 2 {
		if a := s.submit(f, keyed, body); a.Status != first.Status || a.Body != first.Body {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		s.Exec(`update resource.idempotency_keys set body = $1
			where {mine} and route like 'submit to %'`, []byte(first.Body))
	}
}

package apidoc

import (
	gofmt "go/format"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// described returns the description.
func described(t *testing.T) reader {
	t.Helper()
	d, err := openapi.New(base)
	testkit.Must(t, err)
	return reader{d, base}
}

// operationOf returns the operation of a method and a path.
func operationOf(t *testing.T, sent string) operation {
	t.Helper()
	method, path, _ := strings.Cut(sent, " ")
	r := described(t)
	o, found := r.document.Find(method, path)
	if !found {
		t.Fatalf("%s is not described", sent)
	}
	return r.operation(o)
}

// Every example in Go can be parsed, and is formatted as gofmt does.
func TestSamples_GoCanBeParsed(t *testing.T) {
	r := described(t)
	for _, o := range r.document.Operations() {
		text := r.operation(o).Samples[1].Text
		formatted, err := gofmt.Source([]byte(text))
		if err != nil || string(formatted) != text {
			t.Errorf("%s %s: %v\n%s\nwant\n%s", o.Method, o.Path, err, text, formatted)
		}
	}
}

func TestSamples_SendSameRequestAsCurl(t *testing.T) {
	const transitions = "/v1/programmes/programmes/0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f80/transitions"
	for i, want := range []string{
		`body := strings.NewReader(` + "`{\n  \"to\": \"active\"\n}`" + `)
request, err := http.NewRequest("POST", "` + base + transitions + `", body)
if err != nil {
	return err
}
request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
request.Header.Set("X-Tenant-Id", os.Getenv("WORKSPACE"))
request.Header.Set("If-Match", "\"3\"")
request.Header.Set("Idempotency-Key", "import-2026-07-31")
request.Header.Set("Content-Type", "application/json")
response, err := http.DefaultClient.Do(request)
if err != nil {
	return err
}
defer response.Body.Close()`,
		`const response = await fetch("` + base + transitions + `", {
  method: "POST",
  headers: {
    "Authorization": "Bearer " + process.env.TOKEN,
    "X-Tenant-Id": process.env.WORKSPACE,
    "If-Match": "\"3\"",
    "Idempotency-Key": "import-2026-07-31",
    "Content-Type": "application/json",
  },
  body: JSON.stringify({
    "to": "active"
  }),
});
console.log(response.status, await response.text());`,
		`import os
import requests

response = requests.post(
    "` + base + transitions + `",
    headers={
        "Authorization": "Bearer " + os.environ["TOKEN"],
        "X-Tenant-Id": os.environ["WORKSPACE"],
        "If-Match": "\"3\"",
        "Idempotency-Key": "import-2026-07-31",
        "Content-Type": "application/json",
    },
    data='''{
  "to": "active"
}'''.encode(),
)
print(response.status_code, response.text)`,
	} {
		sample := operationOf(t, "POST /v1/programmes/programmes/7/transitions").Samples[i+1]
		if sample.Text != want {
			t.Errorf("in %s:\n%s\nwant\n%s", sample.Language, sample.Text, want)
		}
	}
}

// A request of a service has its credentials, and a form is encoded as such.
func TestSamples_SendFormsAndCredentialsOfServices(t *testing.T) {
	const path = base + "/v1/account/oauth/introspect"
	for i, want := range [][]string{
		{
			"form := url.Values{\n\t\"token\": {\"alm_pat_…\"},\n}\n",
			`request.SetBasicAuth(os.Getenv("CLIENT_ID"), os.Getenv("CLIENT_SECRET"))`,
			`http.NewRequest("POST", "` + path + `", strings.NewReader(form.Encode()))`,
			`request.Header.Set("Content-Type", "application/x-www-form-urlencoded")`,
		},
		{
			`await fetch("` + path + `", {` + "\n  method: \"POST\"",
			"body: new URLSearchParams({\n    \"token\": \"alm_pat_…\",",
			`"Authorization": "Basic " + btoa(process.env.CLIENT_ID + ":" + process.env.CLIENT_SECRET),`,
		},
		{
			"requests.post(\n    \"" + path + "\",", "    data={\n        \"token\": \"alm_pat_…\",\n    },",
			`auth=(os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"]),`,
		},
	} {
		got := operationOf(t, "POST /v1/account/oauth/introspect").Samples[i+1].Text
		for _, piece := range want {
			if !strings.Contains(got, piece) {
				t.Errorf("no %s in\n%s", piece, got)
			}
		}
	}
}

// The page can send GET requests with the user's token or without one, but no requests with service credentials.
func TestOperation_PageSendsOnlyReads(t *testing.T) {
	for sent, want := range map[string]string{
		"GET /v1/me":                                "/v1/me",
		"GET /v1/engage/public/forms/{embedKey}":    "/v1/engage/public/forms/alm_embed_3fJ0QkYw7LrT1mZsXc9dVb",
		"POST /v1/programmes/programmes":            "",
		"DELETE /v1/programmes/programmes/{id}":     "",
		"POST /v1/account/oauth/introspect":         "",
		"GET /.well-known/oauth-protected-resource": "",
	} {
		if got := operationOf(t, sent).Try; got != want {
			t.Errorf("%s: %q, want %q", sent, got, want)
		}
	}
}

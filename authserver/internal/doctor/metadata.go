package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

const resourceWellKnown = "/.well-known/oauth-protected-resource"

// An object is a JSON object. Its methods are lenient: servers send any type.
type object map[string]any

func (o object) text(name string) string {
	text, _ := o[name].(string)
	return text
}

func (o object) list(name string) []string {
	values, _ := o[name].([]any)
	var out []string
	for _, value := range values {
		if text, ok := value.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// readObject parses a single JSON object.
func readObject(body []byte) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	var values object
	if err := decoder.Decode(&values); err != nil {
		return nil, err
	}
	if values == nil {
		return nil, errors.New("null is not an object")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the object")
	}
	return values, nil
}

// A document is a JSON object that a client fetches, and its response.
type document struct {
	resp *response
	object
}

// Results of fetch that are not codes of findings.
const (
	missing = "missing" // 404: the client tries the next address
	silent  = "silent"  // no response, which is already recorded
)

// fetch gets a discovery document. It returns "", or why there is none.
func (r *run) fetch(ctx context.Context, address string) (document, string) {
	resp, err := r.send(ctx, request{
		method:  http.MethodGet,
		url:     address,
		timeout: r.DiscoveryTimeout,
		header: map[string]string{
			"Accept":               "application/json",
			"MCP-Protocol-Version": protocolVersion,
			"Origin":               r.profile.Origin,
		},
	})
	d := document{resp: resp}
	switch {
	case err != nil:
		return d, silent
	case resp.redirects():
		return d, "document_redirects"
	case resp.status == http.StatusNotFound:
		return d, missing
	case resp.status != http.StatusOK:
		return d, "document_status"
	}
	if d.object, err = readObject(resp.body); err != nil {
		return d, "document_not_json"
	}
	return d, ""
}

// checkServing checks how a document is served.
func (r *run) checkServing(d document) {
	r.findAll(d.resp, []check{
		{!d.resp.isJSON(), "document_content_type", ""},
		{!r.mayRead(d.resp), "document_no_cors", ""},
	})
	r.checkTime(d.resp)
}

// checkSame expects a document to have the same members as the first one.
func (r *run) checkSame(first, other document, same, different string, names ...string) {
	for _, name := range names {
		if !reflect.DeepEqual(first.object[name], other.object[name]) {
			r.find(different, other.resp, name+" differs from "+first.resp.request.url)
			return
		}
	}
	r.find(same, other.resp)
}

// usable reports whether a client can use an address in a document, and records a finding if not. name is that of the
// member.
func (r *run) usable(address, name string, about *response) bool {
	parsed, err := url.Parse(address)
	code := ""
	switch {
	case err != nil || !isHTTP(parsed) || parsed.User != nil:
		code = "not_an_address"
	case isPrivate(parsed.Hostname()) && !isPrivate(r.typed.Hostname()):
		code = "names_localhost"
	case parsed.Scheme == "http" && !isLoopback(parsed.Hostname()):
		code = "names_http"
	default:
		return true
	}
	r.find(code, about, name+" is "+quote(address))
	return false
}

func quote(text string) string { return `"` + text + `"` }

// readResource reads the metadata of the protected resource at each address that the client uses, in its order
// (RFC 9728, section 3).
func (r *run) readResource(ctx context.Context) error {
	var first document
	for _, address := range r.resourceAddresses() {
		challenged := address == r.offered.metadata
		if challenged && !r.usable(address, "resource_metadata of the challenge", nil) {
			continue
		}
		found := first.resp != nil
		d, fault := r.fetch(ctx, address)
		switch {
		case fault == missing && challenged:
			r.find("challenge_leads_nowhere", d.resp)
		case fault == missing && address == origin(r.typed)+resourceWellKnown && found:
			r.find("no_root_document", d.resp)
		case fault == missing || fault == silent:
		case fault != "":
			r.find(fault, d.resp)
		case !found:
			first = d
			r.checkServing(d)
			r.checkResource(d)
		case r.offered.resource == r.Options.URL:
			same, different := "resource_document_again", "resource_documents_differ"
			r.checkSame(first, d, same, different, "resource", "authorization_servers")
		}
	}
	if first.resp == nil {
		return r.stop("no_resource_document", nil, "looked at "+strings.Join(r.resourceAddresses(), ", "))
	}
	if r.offered.issuer == "" || !r.usable(r.offered.issuer, "authorization_servers[0]", first.resp) {
		return errStop
	}
	return nil
}

// resourceAddresses returns the addresses without duplicates: first the address in the challenge, then the addresses
// that a client would guess.
func (r *run) resourceAddresses() []string {
	root := origin(r.typed) + resourceWellKnown
	guessed := []string{root + strings.TrimSuffix(r.typed.EscapedPath(), "/"), root}
	if r.profile.RootFirst {
		slices.Reverse(guessed)
	}
	var addresses []string
	for _, address := range append([]string{r.offered.metadata}, guessed...) {
		if address != "" && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

func (r *run) checkResource(d document) {
	servers, scopes := d.list("authorization_servers"), d.list("scopes_supported")
	resource := d.text("resource")
	r.offered.resource, r.offered.scopes = resource, scopes
	if len(servers) > 0 {
		r.offered.issuer = servers[0]
	}
	differs := resource != "" && resource != r.Options.URL
	if r.findAll(d.resp, []check{
		{resource == "", "no_resource", ""},
		{differs, "resource_differs", difference(resource, r.Options.URL)},
		{len(servers) == 0, "no_authorization_servers", ""},
		{len(servers) > 1, "several_authorization_servers", fmt.Sprintf("%d are listed", len(servers))},
		{slices.Contains(scopes, "offline_access"), "offline_access_in_resource", ""},
		{len(scopes) == 0 && r.offered.scope == "", "no_scopes_anywhere", ""},
	}) {
		return
	}
	r.find("resource_ok", d.resp, "resource is "+quote(resource)+", authorization server "+quote(r.offered.issuer))
}

// difference describes how an identifier differs from the expected one, byte for byte.
func difference(is, want string) string {
	text := "it is " + quote(is) + " and must be " + quote(want)
	a, errA := url.Parse(is)
	b, errB := url.Parse(want)
	switch {
	case errA != nil || errB != nil:
		return text
	case strings.TrimSuffix(is, "/") == strings.TrimSuffix(want, "/"):
		return text + ": they differ in a trailing slash"
	case strings.EqualFold(is, want):
		return text + ": they differ in upper and lower case"
	case a.Host == b.Host && a.EscapedPath() == b.EscapedPath():
		return text + ": " + a.Scheme + " is not " + b.Scheme + ", so the server may not trust a proxy in front of it"
	case a.EscapedPath() == b.EscapedPath():
		return text + ": the hosts differ"
	case a.Host == b.Host:
		return text + ": the paths differ"
	}
	return text
}

package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	resourceWellKnown = "/.well-known/oauth-protected-resource"
	slow              = 3 * time.Second // worth a warning, long before a client times out
	expiresSoon       = 14 * 24 * time.Hour
	protocolVersion   = "2025-11-25" // of MCP, which every connector speaks
	initializeRPC     = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` +
		protocolVersion + `","capabilities":{},` +
		`"clientInfo":{"name":"almoner-doctor","version":"1"}}}`
)

// reach makes the first call, without a token (RFC 9728, section 5; connectors, Discovery).
func (r *run) reach(ctx context.Context) {
	r.checkURL()
	resp := r.send(ctx, r.initialize("no token", ""))
	r.checkCertificate(resp)
	r.checkFirst(ctx, resp)
	r.checkChallenge(resp)
	r.checkTime(resp)
	r.reachFromPage(ctx)
}

func (r *run) checkURL() {
	host := r.typed.Hostname()
	r.findFirst(nil, []check{
		{r.profile.Hosted && isPrivate(host), "not_on_the_internet", host},
		{r.typed.Scheme == "http" && !isLoopback(host), "no_https", ""},
	})
}

func (r *run) checkCertificate(resp *response) {
	if resp.tls == nil || len(resp.tls.PeerCertificates) == 0 {
		return
	}
	if ends := resp.tls.PeerCertificates[0].NotAfter; time.Until(ends) < expiresSoon {
		r.find("certificate_expires", nil, "it expires at "+ends.UTC().Format(time.RFC3339))
	}
}

func (r *run) checkTime(resp *response) {
	if resp.took > slow {
		r.find("slow", resp)
	}
}

// initialize makes the first message of every MCP client (MCP, Lifecycle). bearer is a token or "".
func (r *run) initialize(note, bearer string) request {
	req := jsonRequest(r.Options.URL, "initialize, "+note, initializeRPC, r.DiscoveryTimeout) // the URL byte for byte
	req.header["Accept"] = "application/json, text/event-stream"
	req.complete = hasResponse(1)
	if bearer != "" {
		req.header["Authorization"] = "Bearer " + bearer
	}
	return req
}

// checkFirst expects 401: no other status makes a client sign in.
func (r *run) checkFirst(ctx context.Context, resp *response) {
	challenged := bearerChallenge(resp.header) != nil
	switch resp.status {
	case http.StatusUnauthorized:
		r.find("refused_401", resp)
		return
	case http.StatusNotFound:
		r.stop("nothing_there", resp, r.elsewhere(ctx))
	}
	r.findFirst(resp, []check{
		{resp.redirects(), "mcp_redirects", ""},
		{resp.succeeded() && challenged, "challenge_on_200", ""},
		{resp.succeeded(), "open_to_all", ""},
		{resp.status == http.StatusForbidden && challenged, "challenge_on_403", ""},
		{resp.status == http.StatusForbidden, "refused_403", ""},
		{resp.status == http.StatusMethodNotAllowed, "no_post", ""},
		{resp.status == http.StatusTooManyRequests, "rate_limited", ""},
		{resp.status >= 500, "server_fails", ""},
		{true, "judged_before_401", ""},
	})
	panic(errStop)
}

// elsewhere returns the resource URL in the server's own metadata, if it differs from the typed one.
func (r *run) elsewhere(ctx context.Context) string {
	url := origin(r.typed) + resourceWellKnown
	resp, err := r.do(ctx, request{method: http.MethodGet, url: url, timeout: r.DiscoveryTimeout})
	if err != nil {
		return ""
	}
	values, _ := readObject(resp.body)
	if resource := values.text("resource"); resource != "" && resource != r.Options.URL {
		return "the server's own metadata contains " + quote(resource)
	}
	return ""
}

// checkChallenge checks WWW-Authenticate. Without it a client can only guess how to continue.
func (r *run) checkChallenge(resp *response) {
	r.challenge = bearerChallenge(resp.header)
	if r.challenge == nil {
		r.find("no_challenge", resp)
		return
	}
	metadata, scope, fault := r.challenge["resource_metadata"], r.challenge["scope"], r.challenge["error"]
	if metadata != "" && scope != "" {
		r.find("challenge_ok", nil, "scope "+strconv.Quote(scope))
	}
	r.findAll(resp, []check{
		{metadata == "", "no_resource_metadata", ""},
		{metadata != "" && scope == "", "no_scope_in_challenge", ""},
		{fault != "", "error_in_first_challenge", "error=" + strconv.Quote(fault)},
		{slices.Contains(strings.Fields(scope), "offline_access"), "offline_access_in_challenge", ""},
	})
}

// reachFromPage calls as a client in a browser does: it sees the challenge only if the server exposes it.
func (r *run) reachFromPage(ctx context.Context) {
	req := r.initialize("from a page of "+r.profile.Origin, "")
	req.header["Origin"] = r.profile.Origin
	resp := r.send(ctx, req)
	r.findFirst(resp, []check{
		{resp.status == http.StatusForbidden, "origin_refused", r.profile.Origin},
		{!r.mayRead(resp), "no_cors", ""},
		{!exposes(resp.header, "WWW-Authenticate"), "challenge_not_exposed", ""},
		{true, "cors_ok", ""},
	})
}

// mayRead reports whether the client's pages may read a response.
func (r *run) mayRead(resp *response) bool {
	allowed := resp.header.Get("Access-Control-Allow-Origin")
	return allowed == "*" || allowed == r.profile.Origin
}

func exposes(header http.Header, name string) bool {
	for _, line := range header.Values("Access-Control-Expose-Headers") {
		for exposed := range strings.SplitSeq(line, ",") {
			if exposed = strings.TrimSpace(exposed); strings.EqualFold(exposed, name) || exposed == "*" {
				return true
			}
		}
	}
	return false
}

// An object is a JSON object. Its methods are lenient: servers send any type.
type object map[string]any

func (o object) text(name string) string {
	text, _ := o[name].(string)
	return text
}

func (o object) has(name string) bool { return o[name] == true }

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
func readObject(body []byte) (values object, ok bool) {
	err := json.Unmarshal(body, &values)
	return values, err == nil && values != nil // nil is what null becomes
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
	resp, ok := r.try(ctx, request{
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
	case !ok:
		return d, silent
	case resp.redirects():
		return d, "document_redirects"
	case resp.status == http.StatusNotFound:
		return d, missing
	case resp.status != http.StatusOK:
		return d, "document_status"
	}
	if d.object, ok = readObject(resp.body); !ok {
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
func (r *run) readResource(ctx context.Context) {
	var first document
	for _, address := range r.resourceAddresses() {
		challenged := address == r.challenge["resource_metadata"]
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
		case r.resource.text("resource") == r.Options.URL:
			same, different := "resource_document_again", "resource_documents_differ"
			r.checkSame(first, d, same, different, "resource", "authorization_servers")
		}
	}
	if first.resp == nil {
		r.stop("no_resource_document", nil, "looked at "+strings.Join(r.resourceAddresses(), ", "))
	}
	if r.issuer == "" || !r.usable(r.issuer, "authorization_servers[0]", first.resp) {
		panic(errStop)
	}
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
	for _, address := range append([]string{r.challenge["resource_metadata"]}, guessed...) {
		if address != "" && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

func (r *run) checkResource(d document) {
	servers, scopes := d.list("authorization_servers"), d.list("scopes_supported")
	resource := d.text("resource")
	r.resource = d.object
	if len(servers) > 0 {
		r.issuer = servers[0]
	}
	differs := resource != "" && resource != r.Options.URL
	if r.findAll(d.resp, []check{
		{resource == "", "no_resource", ""},
		{differs, "resource_differs", difference(resource, r.Options.URL)},
		{len(servers) == 0, "no_authorization_servers", ""},
		{len(servers) > 1, "several_authorization_servers", fmt.Sprintf("%d are listed", len(servers))},
		{slices.Contains(scopes, "offline_access"), "offline_access_in_resource", ""},
		{len(scopes) == 0 && r.challenge["scope"] == "", "no_scopes_anywhere", ""},
	}) {
		return
	}
	r.find("resource_ok", d.resp, "resource is "+quote(resource)+", authorization server "+quote(r.issuer))
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

package doctor

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	slow            = 3 * time.Second // worth a warning, long before a client times out
	expiresSoon     = 14 * 24 * time.Hour
	protocolVersion = "2025-11-25" // of MCP, which every connector speaks
	initializeRPC   = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` +
		protocolVersion + `","capabilities":{},` +
		`"clientInfo":{"name":"almoner-doctor","version":"1"}}}`
)

// offered is what the resource announces about authorization.
type offered struct {
	metadata string // address of the document that the challenge names, "" for none
	scope    string // of the challenge, "" for none
	resource string // of the document
	scopes   []string
	issuer   string // the first authorization server
}

// reach makes the first call, without a token (RFC 9728, section 5; connectors, Discovery).
func (r *run) reach(ctx context.Context) error {
	r.checkURL()
	resp, err := r.send(ctx, r.initialize("no token", ""))
	if err != nil {
		return err
	}
	r.checkCertificate(resp)
	if err := r.checkFirst(ctx, resp); err != nil {
		return err
	}
	r.checkChallenge(resp)
	r.checkTime(resp)
	return r.reachFromPage(ctx)
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
func (r *run) checkFirst(ctx context.Context, resp *response) error {
	challenged := bearerChallenge(resp.header) != nil
	switch resp.status {
	case http.StatusUnauthorized:
		r.find("refused_401", resp)
		return nil
	case http.StatusNotFound:
		return r.stop("nothing_there", resp, r.elsewhere(ctx))
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
	return errStop
}

// elsewhere returns the resource URL in the server's own metadata, if it differs from the typed one.
func (r *run) elsewhere(ctx context.Context) string {
	url := origin(r.typed) + resourceWellKnown
	resp, err := r.sender.send(ctx, request{method: http.MethodGet, url: url, timeout: r.DiscoveryTimeout})
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
	challenge := bearerChallenge(resp.header)
	if challenge == nil {
		r.find("no_challenge", resp)
		return
	}
	r.offered.metadata, r.offered.scope = challenge["resource_metadata"], challenge["scope"]
	if r.offered.metadata != "" && r.offered.scope != "" {
		r.find("challenge_ok", nil, "scope "+strconv.Quote(r.offered.scope))
	}
	r.findAll(resp, []check{
		{r.offered.metadata == "", "no_resource_metadata", ""},
		{r.offered.metadata != "" && r.offered.scope == "", "no_scope_in_challenge", ""},
		{challenge["error"] != "", "error_in_first_challenge", "error=" + strconv.Quote(challenge["error"])},
		{hasWord(r.offered.scope, "offline_access"), "offline_access_in_challenge", ""},
	})
}

func hasWord(text, word string) bool { return slices.Contains(strings.Fields(text), word) }

// reachFromPage calls as a client in a browser does: it sees the challenge only if the server exposes it.
func (r *run) reachFromPage(ctx context.Context) error {
	req := r.initialize("from a page of "+r.profile.Origin, "")
	req.header["Origin"] = r.profile.Origin
	resp, err := r.send(ctx, req)
	if err != nil {
		return err
	}
	r.findFirst(resp, []check{
		{resp.status == http.StatusForbidden, "origin_refused", r.profile.Origin},
		{!r.mayRead(resp), "no_cors", ""},
		{!exposes(resp.header, "WWW-Authenticate"), "challenge_not_exposed", ""},
		{true, "cors_ok", ""},
	})
	return nil
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

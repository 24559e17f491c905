package doctor

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
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
func (w *run) reach(ctx context.Context) error {
	w.judgeTyped()
	answer, err := w.send(ctx, w.initialize("no token", ""))
	if err != nil {
		return err
	}
	w.judgeCertificate(answer)
	if err := w.judgeFirst(ctx, answer); err != nil {
		return err
	}
	w.judgeChallenge(answer)
	w.judgeTime(answer)
	return w.fromAPage(ctx)
}

func (w *run) judgeTyped() {
	host := w.typed.Hostname()
	switch {
	case w.profile.hosted && isPrivate(host):
		w.find("not_on_the_internet", nil, host)
	case w.typed.Scheme == "http" && !isLoopback(host):
		w.find("no_https", nil)
	}
}

func (w *run) judgeCertificate(answer *wire.Answer) {
	if answer.TLS == nil || len(answer.TLS.PeerCertificates) == 0 {
		return
	}
	if ends := answer.TLS.PeerCertificates[0].NotAfter; time.Until(ends) < expiresSoon {
		w.find("certificate_expires", nil, "it expires at "+ends.UTC().Format(time.RFC3339))
	}
}

func (w *run) judgeTime(answer *wire.Answer) {
	if answer.Took > slow {
		w.find("slow", answer)
	}
}

// initialize makes the first message of every MCP client (MCP, Lifecycle). bearer is a token or "".
func (w *run) initialize(note, bearer string) wire.Request {
	r := wire.Request{ // to the URL byte for byte
		Method: http.MethodPost,
		URL:    w.Options.URL,
		Note:   "initialize, " + note,
		Body:   initializeRPC,
		Within: w.DiscoveryTimeout,
		Header: map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"},
		Enough: hasResponse(1),
	}
	if bearer != "" {
		r.Header["Authorization"] = "Bearer " + bearer
	}
	return r
}

// judgeFirst expects 401: no other status makes a client sign in.
func (w *run) judgeFirst(ctx context.Context, answer *wire.Answer) error {
	_, challenged := wire.Bearer(answer.Header)
	status := answer.Status
	switch {
	case status == http.StatusUnauthorized:
		w.find("refused_401", answer)
		return nil
	case status >= 300 && status < 400:
		w.find("mcp_redirects", answer)
	case status >= 200 && status < 300 && challenged:
		w.find("challenge_on_200", answer)
	case status >= 200 && status < 300:
		w.find("open_to_all", answer)
	case status == http.StatusForbidden && challenged:
		w.find("challenge_on_403", answer)
	case status == http.StatusForbidden:
		w.find("refused_403", answer)
	case status == http.StatusNotFound:
		w.find("nothing_there", answer, w.elsewhere(ctx))
	case status == http.StatusMethodNotAllowed:
		w.find("no_post", answer)
	case status == http.StatusTooManyRequests:
		w.find("rate_limited", answer)
	case status >= 500:
		w.find("server_fails", answer)
	default:
		w.find("judged_before_401", answer)
	}
	return errStop
}

// judgeChallenge checks WWW-Authenticate. Without it a client can only guess how to continue.
func (w *run) judgeChallenge(answer *wire.Answer) {
	challenge, ok := wire.Bearer(answer.Header)
	if !ok {
		w.find("no_challenge", answer)
		return
	}
	w.offered.metadata, w.offered.scope = challenge.Parameters["resource_metadata"], challenge.Parameters["scope"]
	switch {
	case w.offered.metadata == "":
		w.find("no_resource_metadata", answer)
	case w.offered.scope == "":
		w.find("no_scope_in_challenge", answer)
	default:
		w.find("challenge_ok", nil, "scope "+strconv.Quote(w.offered.scope))
	}
	if code := challenge.Parameters["error"]; code != "" {
		w.find("error_in_first_challenge", answer, "error="+strconv.Quote(code))
	}
	if has(strings.Fields(w.offered.scope), "offline_access") {
		w.find("offline_access_in_challenge", answer)
	}
}

// fromAPage calls as a client in a browser does: it sees the challenge only if the server exposes it.
func (w *run) fromAPage(ctx context.Context) error {
	r := w.initialize("from a page of "+w.profile.origin, "")
	r.Header["Origin"] = w.profile.origin
	answer, err := w.send(ctx, r)
	if err != nil {
		return err
	}
	allowed := answer.Header.Get("Access-Control-Allow-Origin")
	switch {
	case answer.Status == http.StatusForbidden:
		w.find("origin_refused", answer, w.profile.origin)
	case allowed != "*" && allowed != w.profile.origin:
		w.find("no_cors", answer)
	case !exposes(answer.Header, "WWW-Authenticate"):
		w.find("challenge_not_exposed", answer)
	default:
		w.find("cors_ok", answer)
	}
	return nil
}

func exposes(header http.Header, name string) bool {
	for _, line := range header.Values("Access-Control-Expose-Headers") {
		for one := range strings.SplitSeq(line, ",") {
			if one = strings.TrimSpace(one); strings.EqualFold(one, name) || one == "*" {
				return true
			}
		}
	}
	return false
}

func has(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

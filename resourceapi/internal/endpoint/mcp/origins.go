package mcp

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/apierr"
)

// loopback stands in the list for this machine's own pages: any port of localhost, 127.0.0.0/8 and [::1].
const loopback = "loopback"

// Origins are those whose pages may call the endpoint. A page of another one is refused even if it has a credential, so
// that a site somebody happens to visit cannot speak to a server near them (the MCP specification, on DNS rebinding).
type Origins struct {
	listed   []string
	loopback bool
}

// ParseOrigins reads a list of origins separated by commas, in which the word loopback may stand.
func ParseOrigins(list string) (Origins, error) {
	var out Origins
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		switch {
		case text == "":
		case text == loopback:
			out.loopback = true
		case isOrigin(text):
			out.listed = append(out.listed, text)
		default:
			return Origins{}, errors.New("not a list of origins")
		}
	}
	return out, nil
}

// isOrigin says whether text is an origin as browsers spell it.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		u.Scheme+"://"+u.Host == text && strings.ToLower(text) == text
}

func (o Origins) allow(origin string) bool {
	if slices.Contains(o.listed, origin) {
		return true
	}
	if !o.loopback || !isOrigin(origin) {
		return false
	}
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && address.IsLoopback()
}

// What pages of an allowed origin may send and read (Fetch, CORS protocol). The names are spelled out, as the wildcard
// does not stand for Authorization, and as the headers of tools' parameters are none of ours.
const (
	sendable = "Authorization, Content-Type, Accept, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, " +
		"Last-Event-Id, X-Request-Id"
	readable = "WWW-Authenticate, Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, X-Request-Id"
)

// fromAllowedOrigin lets the pages of an allowed origin read the answer, whatever it will be, and refuses those of any
// other before a credential is looked at. A request without Origin is no page's of another site.
func (e *Endpoint) fromAllowedOrigin(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		if origins := r.Header.Values("Origin"); len(origins) > 0 {
			if len(origins) > 1 || !e.origins.allow(origins[0]) {
				e.gate.Refuse(
					w,
					r,
					apierr.New(
						apierr.Forbidden,
						"Pages of this origin may not use this server. Whoever runs it can add the origin to "+
							"ALMONER_MCP_ORIGINS.",
					),
				)
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origins[0])
			w.Header().Set("Access-Control-Expose-Headers", readable)
		}
		next(w, r)
	})
}

// Preflight answers OPTIONS, for which browsers send no credential.
func (e *Endpoint) Preflight() http.Handler {
	return e.fromAllowedOrigin(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		w.Header().Set("Access-Control-Allow-Headers", sendable)
		w.Header().Set("Access-Control-Max-Age", "600") // seconds
		w.WriteHeader(http.StatusNoContent)
	})
}

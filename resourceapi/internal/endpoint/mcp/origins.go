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

// loopback in the list allows pages of this machine: any port of localhost, 127.0.0.0/8 and [::1].
const loopback = "loopback"

// Origins are the origins whose pages may call the endpoint. A page of another origin is refused even with a
// credential, which prevents DNS rebinding (MCP specification).
type Origins struct {
	listed   []string
	loopback bool
}

// ParseOrigins reads a comma-separated list of origins, which may contain the word loopback.
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

// isOrigin reports whether text is an origin as browsers serialize it.
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

// Headers that pages of an allowed origin may send and read (Fetch, CORS protocol). The names are listed because the
// wildcard does not cover Authorization and because the tools define no parameter headers.
const (
	sendable = "Authorization, Content-Type, Accept, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, " +
		"Last-Event-Id, X-Request-Id"
	readable = "WWW-Authenticate, Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, X-Request-Id"
)

// fromAllowedOrigin lets pages of an allowed origin read any response, and refuses pages of other origins before the
// credential is read. A request without Origin does not come from a page of another site.
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
						"This server does not allow web pages of this origin. The operator of the server can add "+
							"the origin to ALMONER_MCP_ORIGINS.",
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

// Preflight handles OPTIONS, for which browsers send no credential.
func (e *Endpoint) Preflight() http.Handler {
	return e.fromAllowedOrigin(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		w.Header().Set("Access-Control-Allow-Headers", sendable)
		w.Header().Set("Access-Control-Max-Age", "600") // seconds
		w.WriteHeader(http.StatusNoContent)
	})
}

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A Document is a client's metadata, published at the URL that is its client_id (OAuth Client ID Metadata Document).
// Grant types that this server does not offer, and all members not listed below, are ignored.
type Document struct {
	ClientID      string          `json:"client_id"`
	Name          string          `json:"client_name"`
	Redirects     []string        `json:"redirect_uris"`
	GrantTypes    []string        `json:"grant_types"`
	ResponseTypes []string        `json:"response_types"`
	AuthMethod    string          `json:"token_endpoint_auth_method"`
	Keys          json.RawMessage `json:"jwks"`     // JWK set in the document itself, or nil
	KeysURL       string          `json:"jwks_uri"` // URL of the JWK set, or ""
	// A document with one of these contains a client secret, which everybody can read.
	Secret     json.RawMessage `json:"client_secret"`
	SecretEnds json.RawMessage `json:"client_secret_expires_at"`
}

// A CachedClient is a client as its document described it at the last fetch.
type CachedClient struct {
	Client
	FetchedAt  time.Time
	FreshUntil time.Time // the document need not be fetched again before this time
}

// CacheLife is how long after its fetch a copy may replace a document that cannot be fetched.
const CacheLife = 7 * 24 * time.Hour

// Refusals of a client that is known by its document, besides *DocumentError.
var (
	ErrNotServed   = errors.New("no client of this name is served here")
	ErrUnreachable = errors.New("the client's document cannot be read at this moment")
)

// A DocumentError says what is wrong with a document, in words for the client's developers.
type DocumentError struct{ Message string }

func (d *DocumentError) Error() string { return d.Message }

func wrong(message string) (Client, error) { return Client{}, &DocumentError{Message: message} }

// maxAddress bounds the address of a document, in bytes.
const maxAddress = 512

// ParseAddress parses the URL of a document. It reports false unless the URL has https, a host and a path, no query,
// fragment, user name or dot segment, and only one possible spelling. host includes the port if the URL has one.
func ParseAddress(text string) (host string, ok bool) {
	rest, https := strings.CutPrefix(text, "https://")
	if !https || len(text) > maxAddress || strings.ContainsFunc(text, unprintable) ||
		strings.ContainsAny(text, `?#@\`) {
		return "", false
	}
	host, path, _ := strings.Cut(rest, "/")
	for _, segment := range strings.Split(path, "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return "", false
		}
	}
	parsed, err := url.Parse(text)
	if err != nil || path == "" || parsed.Host != host || parsed.Hostname() == "" || strings.ToLower(host) != host {
		return "", false
	}
	return host, true
}

func unprintable(r rune) bool { return r <= ' ' || r >= 0x7f }

// Accept returns the client that the document at address describes, or a *DocumentError. It drops redirect URIs that
// could not be registered.
func (d Document) Accept(address, platform string) (Client, error) {
	host, ok := ParseAddress(address)
	id, err := accesstoken.ClientID(address)
	if !ok || err != nil {
		return wrong("The address is not a valid address for a metadata document.")
	}
	method := AuthMethod(d.AuthMethod)
	if method == "" {
		method = AuthNone
	}
	keysHost, _ := ParseAddress(d.KeysURL)
	unusable := func(uri string) bool { return refuseRedirect(Connector, uri) != "" }
	usable := slices.DeleteFunc(slices.Clone(d.Redirects), unusable)
	switch {
	case d.ClientID != address:
		return wrong("Its client_id does not exactly match the address of the document.")
	case d.Secret != nil || d.SecretEnds != nil:
		return wrong("It contains a client_secret, which anyone can read.")
	case method != AuthNone && method != PrivateKeyJWT:
		return wrong("Its token_endpoint_auth_method must be none or private_key_jwt.")
	case len(d.GrantTypes) > 0 && !slices.Contains(d.GrantTypes, "authorization_code"):
		return wrong("Its grant_types must include authorization_code.")
	case len(d.ResponseTypes) > 0 && !slices.Contains(d.ResponseTypes, "code"):
		return wrong("Its response_types must include code.")
	case len(usable) == 0:
		return wrong("None of its redirect_uris is valid. Use https, http on localhost, 127.0.0.1 or [::1], or a " +
			"scheme that only the application uses.")
	case method == PrivateKeyJWT && (d.Keys == nil) == (d.KeysURL == ""):
		return wrong("For private_key_jwt it must have either jwks or jwks_uri.")
	case method == PrivateKeyJWT && d.KeysURL != "" && keysHost != host:
		return wrong("Its jwks_uri must be on the same host as the document.")
	}
	c := Client{
		ID:         id,
		Kind:       Connector,
		Name:       strings.TrimSpace(d.Name),
		Redirects:  usable,
		Required:   perm.ForConnectors(),
		Platform:   platform,
		AuthMethod: method,
		Address:    address,
	}
	if displayname.CheckApplication(c.Name) != "" {
		c.Name = host // a host name cannot impersonate another application
	}
	if method == PrivateKeyJWT {
		c.Keys, c.KeysURL = d.Keys, d.KeysURL
	}
	return c, nil
}

// An AssertionError says why a signed assertion does not authenticate the client.
type AssertionError struct{ Message string }

func (a *AssertionError) Error() string { return a.Message }

// Domains maps the places from which this deployment accepts client metadata documents to the connectorPlatform of
// their clients, or "" for a platform that has no name here. A place is a host (claude.ai), a path prefix on a host
// that ends with a slash (claude.ai/oauth/), or one document (claude.ai/oauth/client.json).
type Domains map[string]string

// OtherPlatform is the name of a platform without a connectorPlatform in settings, policies and logs.
const OtherPlatform = "other"

// ParseDomains parses place=platform pairs separated by commas; platform is claude, chatgpt or other. "none" means no
// domain.
func ParseDomains(text string) (Domains, error) {
	domains := Domains{}
	if text = strings.TrimSpace(text); text == "" || text == "none" {
		return domains, nil
	}
	for _, entry := range strings.Split(text, ",") {
		place, platform, ok := strings.Cut(strings.TrimSpace(entry), "=")
		switch {
		case !ok || !plainHost(place):
			return nil, errors.New(
				"a domain must look like claude.ai=claude or claude.ai/oauth/=claude, in lower case and without " +
					"https://",
			)
		case platform != OtherPlatform && !slices.Contains(platforms, platform):
			return nil, fmt.Errorf("a domain's platform must be %s or %s", strings.Join(platforms, ", "), OtherPlatform)
		}
		if _, twice := domains[place]; twice {
			return nil, errors.New("a domain appears twice")
		}
		domains[place] = ""
		if platform != OtherPlatform {
			domains[place] = platform
		}
	}
	return domains, nil
}

// plainHost reports whether place is a host, with an optional port and path, as it appears in the URL of a document.
func plainHost(place string) bool {
	name, path, hasPath := strings.Cut(place, "/")
	if strings.HasSuffix(name, ":") || strings.Contains(place, "//") ||
		(hasPath && (path == "" || strings.ContainsAny(path, "%*"))) {
		return false
	}
	_, ok := ParseAddress("https://" + name + "/" + path + "x")
	parsed, err := url.Parse("https://" + name)
	return ok && err == nil && parsed.Host == name && !strings.Contains(name, "*")
}

// Serve reports whether documents at address are accepted, and the platform of their client. A host must match exactly:
// a subdomain is another host. The longest matching place wins. A path prefix does not match an address with a percent
// sign, because servers differ in what an encoded slash means.
func (d Domains) Serve(address string) (platform string, ok bool) {
	host, ok := ParseAddress(address)
	if !ok {
		return "", false
	}
	rest, longest := strings.TrimPrefix(address, "https://"), -1
	for place, known := range d {
		below := strings.HasSuffix(place, "/") && strings.HasPrefix(rest, place) && !strings.Contains(rest, "%")
		if (place == host || place == rest || below) && len(place) > longest {
			platform, longest = known, len(place)
		}
	}
	return platform, longest >= 0
}

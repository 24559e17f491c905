// Package token serves the token, revocation and introspection endpoints, and the documents about them: the metadata
// and the public keys.
//
//	POST /v1/account/oauth/token        Exchange     (spec 4.3, contract section 3; POST /token at the gateway is
//	                                                 the same)
//	POST /v1/account/oauth/revoke       Revoke       (RFC 7009; contract, section 5)
//	POST /v1/account/oauth/introspect   Introspect   (RFC 7662; contract, section 5)
//
//	handler.go      the token endpoint: reads untrusted bodies, strict JSON or a form (RFC 6749, section 4.1.3),
//	                decides (engine), responds; one table maps every error; too many refusals become a 429
//	introspect.go   the introspection and revocation endpoints
//	metadata.go     the authorization server metadata (RFC 8414), and the public keys
package token

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Endpoints are the endpoints. The fields are what they need.
type Endpoints struct {
	Issuer   string
	Resource string // {base_url}/v1, the resource of personal access tokens
	Engine   *engine.Engine
	Grants   *grant.Service
	Store    Store
	Keys     func() *accesstoken.Keys
	Uses     interface{ Record(s standing.Standing) } // records uses of credentials, outside the request path
	Failures *ratelimit.Limiter
	Proxies  web.Proxies
	Now      func() time.Time
	Log      *slog.Logger
}

// handler returns a handler for POST, which writes the answer or the error of serve; the router refuses other methods.
func (e Endpoints) handler(serve func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := serve(w, r)
		if err != nil {
			e.refuse(w, r, err)
			return
		}
		web.JSON(w, http.StatusOK, answer)
	})
}

// Exchange exchanges a code or a refresh token.
func (e Endpoints) Exchange() http.Handler {
	known := append(engine.Parameters(), "grant_type", "client_id", "client_secret")
	return e.handler(func(w http.ResponseWriter, r *http.Request) (any, error) {
		w.Header().Set("Pragma", "no-cache") // RFC 6749, section 5.1
		parameters, err := decode(w, r, known...)
		if err != nil {
			return nil, err
		}
		asked := request(r, parameters)
		asked.Network, asked.UserAgent = network(e.Proxies.ClientAddress(r)), userAgent(r)
		tokens, err := e.Engine.Token(r.Context(), asked)
		if err != nil {
			return nil, e.limited(w, asked, err)
		}
		if tokens.Repeated {
			w.Header().Set(replayedHeader, "true")
		}
		return response(tokens), nil
	})
}

// A client that lost a response can repeat its request with the same keyHeader. replayedHeader marks the response to a
// repeated request (contract, sections 3 and 6a).
const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
)

// request returns a request with the credentials of its client. Engine verifies them.
func request(r *http.Request, p decoded) engine.TokenRequest {
	secret := func(name string) credential.Secret { return credential.Secret(p.Values[name]) }
	request := engine.TokenRequest{
		Dialect:       engine.Form,
		GrantType:     p.Values["grant_type"],
		ClientID:      p.Values["client_id"],
		ClientSecret:  secret("client_secret"),
		Parameters:    map[string]credential.Secret{},
		AssertionType: p.Values["client_assertion_type"],
		Assertion:     secret("client_assertion"),
	}
	for name := range p.Values {
		request.Parameters[name] = secret(name)
	}
	if p.JSON {
		request.Dialect = engine.JSON
	}
	for _, key := range r.Header.Values(keyHeader) {
		request.IdempotencyKeys = append(request.IdempotencyKeys, credential.Secret(key))
	}
	if len(r.Header.Values("Authorization")) > 0 {
		id, password, ok := basicCredentials(r)
		// A request must use one authentication method (RFC 6749, section 2.3). A client_id in the form must match the
		// header.
		if !ok || request.ClientSecret != "" || (request.ClientID != "" && request.ClientID != id) {
			request.OtherAuth = true
			return request
		}
		request.Basic, request.ClientID, request.ClientSecret = true, id, password
	}
	return request
}

// basicCredentials reads one Authorization: Basic header, whose two parts are form-encoded (RFC 6749, section 2.3.1).
func basicCredentials(r *http.Request) (id string, secret credential.Secret, ok bool) {
	user, password, ok := r.BasicAuth()
	if !ok || len(r.Header.Values("Authorization")) != 1 {
		return "", "", false
	}
	id, err1 := url.QueryUnescape(user)
	text, err2 := url.QueryUnescape(password)
	return id, credential.Secret(text), errors.Join(err1, err2) == nil
}

type tokenResponse struct {
	AccessToken            string `json:"access_token"`
	TokenType              string `json:"token_type"`
	ExpiresIn              int64  `json:"expires_in"`
	Scope                  string `json:"scope"`
	WorkspaceID            string `json:"tenant_id"`
	RefreshToken           string `json:"refresh_token,omitempty"`
	AuthorizationExpiresIn int64  `json:"authorization_expires_in,omitempty"`
}

func response(t engine.Tokens) tokenResponse {
	return tokenResponse{
		AccessToken:            t.Access.Reveal(),
		TokenType:              "Bearer",
		ExpiresIn:              int64(t.ExpiresIn.Seconds()),
		Scope:                  t.Scope,
		WorkspaceID:            t.WorkspaceID.String(),
		RefreshToken:           t.Refresh.Reveal(),
		AuthorizationExpiresIn: int64(t.Remaining.Seconds()),
	}
}

// refuse writes the error in the shape of RFC 6749, section 5.2: 400 for errors of the caller, 503 for an unavailable
// store, 401 only for a failed Basic header.
func (e Endpoints) refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer := apierr.Of(err)
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	switch {
	case isRefusal:
		answer = &apierr.Error{Kind: apierr.Invalid, Code: refused.Code, Message: refused.Description}
		if refused.Challenge {
			w.Header().Set("WWW-Authenticate", `Basic realm="almoner", charset="UTF-8"`)
			answer.Kind = apierr.Unauthenticated
		}
	case errors.Is(err, store.ErrUnavailable):
		e.Log.ErrorContext(r.Context(), "store unavailable", "error", err)
		answer = apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again.")
	case answer.Kind == apierr.Internal:
		e.Log.ErrorContext(r.Context(), "token request failed", "error", err)
	}
	apierr.Write(w, apierr.Flat, answer)
}

// network returns the /24 of an IPv4 address or the /48 of an IPv6 address, or "". It shows where a request came from
// without identifying one caller.
func network(address netip.Addr) string {
	bits := 24
	if address = address.Unmap(); address.Is6() {
		bits = 48
	}
	prefix, err := address.WithZone("").Prefix(bits)
	if err != nil || !address.IsValid() {
		return ""
	}
	return prefix.String()
}

const longestUserAgent = 60

// userAgent returns the beginning of the User-Agent, as visible ASCII text without quotation marks: pages quote it.
func userAgent(r *http.Request) string {
	visible := func(c rune) rune {
		if c >= ' ' && c <= '~' && c != '"' {
			return c
		}
		return -1
	}
	agent := strings.Map(visible, r.UserAgent())
	return strings.TrimSpace(agent[:min(len(agent), longestUserAgent)])
}

// limited counts a refusal that may come from guessing or repeating, and replaces it by a 429 if there were too many
// (contract, section 3). A request that cannot be read, or has no secret and no token, is cheap and is not counted.
func (e Endpoints) limited(w http.ResponseWriter, request engine.TokenRequest, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal {
		return err
	}
	switch refused.Code {
	case "invalid_grant", "invalid_target", "invalid_scope":
		if presented, authentic := engine.Presented(e.Grants, request); authentic {
			return limitedBy(w, e.Failures.ForGrant(presented.GrantID), "refusals-per-grant", ratelimit.PerGrant, err)
		}
	}
	return e.limitedClient(w, request.ClientID, err)
}

// limitedClient counts err if it refuses the client's authentication or grant, and replaces it by a 429 if there were
// too many. It returns other errors unchanged.
func (e Endpoints) limitedClient(w http.ResponseWriter, name string, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal ||
		(refused.Code != "invalid_client" && refused.Code != "invalid_grant" && refused.Code != "invalid_target") {
		return err
	}
	return limitedBy(w, e.Failures.ForClient(name), "refusals-per-client", ratelimit.PerClient, err)
}

// limitedBy returns err if there is no time to wait. Otherwise it sets the headers of the limit and returns the 429.
func limitedBy(w http.ResponseWriter, wait time.Duration, name string, perMinute int, err error) error {
	if wait <= 0 {
		return err
	}
	web.SetRateLimits(w.Header(), web.RateLimit{Name: name, Quota: perMinute, Window: time.Minute, Reset: wait})
	tooMany := apierr.New(
		apierr.RateLimited,
		"Too many requests like this one failed. Try again after the time in Retry-After. Valid requests are not "+
			"limited.",
	)
	tooMany.RetryAfter = int(math.Ceil(wait.Seconds()))
	return tooMany
}

// maxBody is the length limit of a body, in bytes.
const maxBody = 64 << 10

// decoded are the parameters of a request to an OAuth endpoint, each given once.
type decoded struct {
	JSON   bool
	Values map[string]string
}

// decode reads the body of a request. known are the parameters of the endpoint: in JSON, each is a string whose name
// matches its case; unknown names are ignored. The query string is not read. Its errors are *apierr.Error.
func decode(w http.ResponseWriter, r *http.Request, known ...string) (decoded, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || len(r.Header.Values("Content-Type")) > 1 {
		mediaType = ""
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return decoded{}, apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return decoded{}, apierr.New(apierr.Invalid, "The body could not be read.")
	}
	if web.Encoded(r.Header) {
		return decoded{}, apierr.New(apierr.Invalid, web.EncodedWords)
	}
	out, problem := decoded{JSON: mediaType == "application/json"}, ""
	switch mediaType {
	case "application/json":
		out.Values, problem = decodeJSON(body, known)
	case "application/x-www-form-urlencoded":
		out.Values, problem = decodeForm(body)
	default:
		problem = "Content-Type must be application/json or application/x-www-form-urlencoded."
	}
	if problem != "" {
		return decoded{}, apierr.New(apierr.Invalid, problem)
	}
	return out, nil
}

func decodeForm(body []byte) (values map[string]string, problem string) {
	parsed, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, "The body is not a valid form."
	}
	values = map[string]string{}
	for name, all := range parsed {
		if len(all) > 1 {
			return nil, "A parameter appears more than once."
		}
		if !utf8.ValidString(name) || !utf8.ValidString(all[0]) {
			return nil, "The body must be UTF-8."
		}
		values[name] = all[0]
	}
	return values, ""
}

// decodeJSON reads by the rules of JSON v2 (duplicate keys, invalid UTF-8 and trailing data are errors). A known key
// must match its case.
func decodeJSON(body []byte, known []string) (values map[string]string, problem string) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, "The body must be one JSON object without duplicate keys."
	}
	values = map[string]string{}
	for key, value := range members {
		if !slices.Contains(known, key) {
			if slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
				return nil, "Keys must be in lower case."
			}
			continue
		}
		if value.Kind() != '"' {
			return nil, key + " must be a string."
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			return nil, key + " must be a string."
		}
		values[key] = text
	}
	return values, ""
}

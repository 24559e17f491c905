package clientassertion

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jws"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

const (
	maxLength = 8 << 10
	maxID     = 256
	maxTries  = 4                // maximum number of keys to try if the assertion names none
	longest   = 10 * time.Minute // maximum time from now to exp
	skew      = 30 * time.Second // tolerance for the client's clock
)

// errUnknownKey reports that none of the keys could have made the signature.
var errUnknownKey = errors.New("the assertion is signed with a key that is not in the client's metadata document")

// verified holds the values of a verified assertion that the replay check needs.
type verified struct {
	id   string
	ends time.Time // the assertion is refused after this time anyway
}

func refuse(message string) error { return &client.AssertionError{Message: message} }

type header struct {
	Algorithm string         `json:"alg"`
	Type      string         `json:"typ"`
	KeyID     string         `json:"kid"`
	Critical  jsontext.Value `json:"crit"`
}

type claims struct {
	Issuer    string         `json:"iss"`
	Subject   string         `json:"sub"`
	Audience  jsontext.Value `json:"aud"`
	Expires   float64        `json:"exp"`
	NotBefore float64        `json:"nbf"`
	IssuedAt  float64        `json:"iat"`
	ID        string         `json:"jti"`
}

// read decodes an assertion without verifying it. It follows JSON version 2, which rejects duplicate members.
func read(text string) (h header, c claims, ok bool) {
	parts := strings.Split(text, ".")
	if len(text) > maxLength || len(parts) != 3 || strings.ContainsAny(text, "\r\n") {
		return header{}, claims{}, false
	}
	for i, into := range []any{&h, &c, nil} {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[i])
		if err != nil || len(raw) == 0 || (into != nil && json.Unmarshal(raw, into) != nil) {
			return header{}, claims{}, false
		}
	}
	return h, c, true
}

// verify returns the contents of a valid assertion, errUnknownKey, or a *client.AssertionError.
func verify(text, clientID string, audiences []string, keys []byte, now time.Time) (verified, error) {
	h, c, ok := read(text)
	if !ok {
		return verified{}, refuse("client_assertion must be a JWT in compact form.")
	}
	if !slices.Contains(Algorithms(), h.Algorithm) || h.Critical != nil ||
		!slices.Contains([]string{"", "jwt", "client-authentication+jwt"}, strings.ToLower(h.Type)) {
		return verified{}, refuse(
			"client_assertion must be signed with ES256, RS256, PS256 or EdDSA, without crit and without a typ " +
				"other than JWT.",
		)
	}
	if err := checkSignature(text, h, keys); err != nil {
		return verified{}, err
	}
	expires := moment(c.Expires)
	switch {
	case c.Issuer != clientID || c.Subject != clientID:
		return verified{}, refuse("iss and sub of client_assertion must be the client_id.")
	case !slices.Contains(audiences, audience(c.Audience)):
		return verified{}, refuse(
			"aud of client_assertion must exactly match the issuer or the URL of the token endpoint, without other " +
				"values.",
		)
	case c.Expires <= 0 || !now.Before(expires.Add(skew)) || expires.After(now.Add(longest+skew)):
		return verified{}, refuse("exp of client_assertion is required and must be within the next ten minutes.")
	case moment(c.NotBefore).After(now.Add(skew)) || moment(c.IssuedAt).After(now.Add(skew)):
		return verified{}, refuse("iat or nbf of client_assertion is in the future.")
	case c.ID == "" || len(c.ID) > maxID:
		return verified{}, refuse("jti of client_assertion is required and must have at most 256 bytes.")
	}
	return verified{c.ID, expires.Add(skew)}, nil
}

func checkSignature(text string, h header, keys []byte) error {
	algorithm := jwa.SignatureAlgorithm(h.Algorithm)
	possible := candidates(keys, h.KeyID, algorithm)
	if len(possible) == 0 {
		return errUnknownKey
	}
	for _, key := range possible[:min(len(possible), maxTries)] {
		if _, err := jws.Verify([]byte(text), jws.WithKey(algorithm, key)); err == nil {
			return nil
		}
	}
	if h.KeyID == "" {
		return errUnknownKey
	}
	return refuse("The signature of client_assertion does not match the client's keys.")
}

// audience returns the only audience, or "" if there are others: an assertion that is also valid elsewhere could have
// been captured there.
func audience(raw jsontext.Value) string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one
	}
	var all []string
	if json.Unmarshal(raw, &all) == nil && len(all) == 1 {
		return all[0]
	}
	return ""
}

const maxSeconds = 1 << 40

// moment converts a NumericDate (RFC 7519, section 2), truncated to whole seconds.
func moment(seconds float64) time.Time {
	return time.Unix(int64(min(max(seconds, 0), maxSeconds)), 0)
}

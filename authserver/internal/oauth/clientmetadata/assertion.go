package clientmetadata

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A ReplayCache remembers accepted assertions. Its errors wrap store.ErrUnavailable.
type ReplayCache interface {
	// First reports whether key is new, and stores it for life.
	First(ctx context.Context, key string, life time.Duration) (bool, error)
}

// A Verifier verifies the signed assertions with which clients authenticate (private_key_jwt). It is safe for
// concurrent use.
//
// A client with a metadata document may publish keys there and authenticate its token requests with a JWT (RFC 7523,
// section 3, and RFC 7521, section 4.2). An assertion must meet these conditions:
//
//  1. it is a JWS in compact form, in its one canonical spelling, with no duplicate member, no critical
//     header, an algorithm of the list and a key made for it;
//  2. iss and sub are the client, and aud is only this server, as the issuer or the URL of the token
//     endpoint, compared exactly;
//  3. exp is present and at most ten minutes ahead; iat and nbf are not in the future;
//  4. jti is present and is accepted once. Redis remembers it until exp. If Redis does not respond, the
//     assertion is refused.
//
// The keys come from the stored copy of the document. An unknown key causes a new fetch of the document, at most twice
// a minute. If the document cannot be fetched, the keys of the copy stay valid.
type Verifier struct {
	Documents *Resolver
	Replays   ReplayCache
	Audiences []string // permitted values of aud: the issuer and the URL of the token endpoint
	Now       func() time.Time
}

// ClaimedClient returns the subject that the assertion claims, or "" if it has none. It verifies nothing.
func (v *Verifier) ClaimedClient(assertion credential.Secret) string {
	var h header
	var c claims
	if !accesstoken.DecodeCompact(assertion.Reveal(), maxLength, &h, &c) {
		return ""
	}
	return c.Subject
}

// Verify returns nil if c signed the assertion and it was not used before. Its errors are *client.AssertionError, or
// wrap store.ErrUnavailable.
func (v *Verifier) Verify(ctx context.Context, c client.Client, assertion credential.Secret) error {
	now := v.Now()
	signed, err := v.verify(ctx, c, assertion.Reveal(), now, v.Documents.Client)
	if errors.Is(err, errUnknownKey) {
		signed, err = v.verify(ctx, c, assertion.Reveal(), now, v.Documents.Refreshed)
	}
	if errors.Is(err, errUnknownKey) {
		return refuse("client_assertion is signed with a key that is not in the client's metadata document.")
	}
	if err != nil {
		return err
	}
	key := sha256.Sum256([]byte(c.Address + "\x00" + signed.ID)) // a name of fixed length
	ends := moment(signed.Expires).Add(skew)                     // the assertion is refused after this time anyway
	first, err := v.Replays.First(ctx, hex.EncodeToString(key[:]), ends.Sub(now))
	if err != nil {
		return err
	}
	if !first {
		return refuse("client_assertion was already used. Use a new assertion for each request.")
	}
	return nil
}

func (v *Verifier) verify(
	ctx context.Context,
	c client.Client,
	text string,
	now time.Time,
	find func(context.Context, string) (client.Client, error),
) (claims, error) {
	known, err := find(ctx, c.Address)
	bad, isBad := errors.AsType[*client.DocumentError](err)
	switch {
	case errors.Is(err, client.ErrNotServed):
		return claims{}, refuse("The client is no longer accepted here.")
	case errors.Is(err, client.ErrUnreachable):
		return claims{}, fmt.Errorf("%w: the client's keys: %w", store.ErrUnavailable, err)
	case isBad:
		return claims{}, refuse("The client's metadata document is not valid. " + bad.Message)
	case err != nil:
		return claims{}, err
	case known.AuthMethod != client.PrivateKeyJWT:
		return claims{}, refuse(
			"The client's metadata document no longer has keys. Send the user to the consent page again.",
		)
	}
	return verify(text, c.Address, v.Audiences, known.Keys, now)
}

const (
	maxLength = 8 << 10
	maxID     = 256
	maxTries  = 4                // maximum number of keys to try if the assertion names none
	longest   = 10 * time.Minute // maximum time from now to exp
	skew      = 30 * time.Second // tolerance for the client's clock
)

// errUnknownKey reports that none of the keys could have made the signature.
var errUnknownKey = errors.New("the assertion is signed with a key that is not in the client's metadata document")

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

// verify returns the claims of a valid assertion, errUnknownKey, or a *client.AssertionError.
func verify(text, clientID string, audiences []string, keys []byte, now time.Time) (c claims, err error) {
	var h header
	if !accesstoken.DecodeCompact(text, maxLength, &h, &c) {
		return claims{}, refuse("client_assertion must be a JWT in compact form.")
	}
	if !slices.Contains(Algorithms(), h.Algorithm) || h.Critical != nil ||
		!slices.Contains([]string{"", "jwt", "client-authentication+jwt"}, strings.ToLower(h.Type)) {
		return claims{}, refuse(
			"client_assertion must be signed with ES256, RS256, PS256 or EdDSA, without crit and without a typ " +
				"other than JWT.",
		)
	}
	if err := checkSignature(text, h, keys); err != nil {
		return claims{}, err
	}
	expires := moment(c.Expires)
	switch {
	case c.Issuer != clientID || c.Subject != clientID:
		return claims{}, refuse("iss and sub of client_assertion must be the client_id.")
	case !slices.Contains(audiences, audience(c.Audience)):
		return claims{}, refuse(
			"aud of client_assertion must exactly match the issuer or the URL of the token endpoint, without other " +
				"values.",
		)
	case c.Expires <= 0 || !now.Before(expires.Add(skew)) || expires.After(now.Add(longest+skew)):
		return claims{}, refuse("exp of client_assertion is required and must be within the next ten minutes.")
	case moment(c.NotBefore).After(now.Add(skew)) || moment(c.IssuedAt).After(now.Add(skew)):
		return claims{}, refuse("iat or nbf of client_assertion is in the future.")
	case c.ID == "" || len(c.ID) > maxID:
		return claims{}, refuse("jti of client_assertion is required and must have at most 256 bytes.")
	}
	return c, nil
}

func checkSignature(text string, h header, keys []byte) error {
	algorithm := jose.SignatureAlgorithm(h.Algorithm)
	_, possible, err := readSet(keys)
	possible = slices.DeleteFunc(possible, func(key jose.JSONWebKey) bool {
		return !fits(key, algorithm) || h.KeyID != "" && key.KeyID != h.KeyID
	})
	if err != nil || len(possible) == 0 {
		return errUnknownKey
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{algorithm})
	for _, key := range possible[:min(len(possible), maxTries)] {
		if err != nil {
			break // a member of the header that is not used here, such as jwk, has a wrong value
		}
		if _, err := signed.Verify(key); err == nil {
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

// Algorithms returns the algorithms with which a client may sign.
func Algorithms() []string { return []string{"ES256", "RS256", "PS256", "EdDSA"} }

const (
	maxSet     = 32
	minRSABits = 2048
	maxRSABits = 8192
)

// checkKeys returns why a JWK set cannot authenticate a client, or nil. The set may contain keys of kinds that are not
// used here, but no private or symmetric key.
func checkKeys(raw []byte) error {
	members, keys, err := readSet(raw)
	if err != nil || len(members) > maxSet {
		return errors.New("they must be a JWK set of at most 32 keys")
	}
	for _, key := range members {
		if key.D != nil || key.K != nil { // which only private and symmetric keys have (RFC 7518, section 6)
			return errors.New("the set contains a private key, which anyone can read")
		}
	}
	usable := slices.ContainsFunc(keys, func(key jose.JSONWebKey) bool {
		return slices.ContainsFunc(Algorithms(), func(algorithm string) bool {
			return fits(key, jose.SignatureAlgorithm(algorithm))
		})
	})
	if !usable {
		return errors.New("the set has no signing key for ES256, RS256, PS256 or EdDSA")
	}
	return nil
}

// keyMembers are members of a key that go-jose does not check.
type keyMembers struct {
	D, K, X any
}

// readSet returns the keys of a JWK set: the members of each, and those keys whose kind is known (RFC 7517, section 5).
// go-jose cuts or pads the public key of Ed25519, so one of another length than 32 bytes is left out: some of the
// results accept forged signatures.
func readSet(raw []byte) (members []keyMembers, known []jose.JSONWebKey, err error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, nil, err
	}
	members = make([]keyMembers, len(set.Keys))
	for i, one := range set.Keys {
		_ = json.Unmarshal(one, &members[i], json.MatchCaseInsensitiveNames(true)) // fails if it is no object
		var key jose.JSONWebKey
		if key.UnmarshalJSON(one) != nil {
			continue
		}
		public, cut := key.Key.(ed25519.PublicKey)
		if !cut || members[i].X == base64.RawURLEncoding.EncodeToString(public) {
			known = append(known, key)
		}
	}
	return members, known, nil
}

// fits reports whether the key is made for the algorithm.
func fits(key jose.JSONWebKey, algorithm jose.SignatureAlgorithm) bool {
	if key.Use != "" && key.Use != "sig" || key.Algorithm != "" && key.Algorithm != string(algorithm) {
		return false
	}
	switch public := key.Key.(type) {
	case *ecdsa.PublicKey:
		return algorithm == jose.ES256 && public.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	case *rsa.PublicKey:
		bits := public.N.BitLen()
		return (algorithm == jose.RS256 || algorithm == jose.PS256) && bits >= minRSABits && bits <= maxRSABits
	}
	return false
}

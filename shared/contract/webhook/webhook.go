// Package webhook defines the endpoints of webhooks (contract, section 6a).
//
// A user adds an endpoint with resourceapi (POST /v1/webhooks) or on authserver's page Settings → Developers. Both
// services check the endpoint and seal its secret with this package. Only resourceapi can open the secrets, because
// only resourceapi sends the events.
package webhook

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/publicnet"
)

// Limits.
const (
	MaxEndpoints = 20 // of a workspace
	MaxURL       = 2048
	MaxWaiting   = 10 // pending tests and resends of one endpoint
	MaxTests     = 60 // of one endpoint in an hour
	// SecretOverlap is how long events are also signed with the previous secret.
	SecretOverlap = 24 * time.Hour
	// LogDays is how long a delivery stays in the log.
	LogDays = 7
)

// TestType is the type of a test event.
const TestType = "webhook.test"

// A Reason is why an endpoint is disabled.
type Reason string

// The reasons.
const (
	ByUser  Reason = "user"
	Failing Reason = "failing" // it did not accept an event for three days
	Gone    Reason = "gone"    // it answered 410
	NoRight Reason = "permission"
)

// Errors of the functions that read and change endpoints.
var (
	ErrNotFound = errors.New("no such webhook endpoint")
	ErrTooMany  = errors.New("the workspace has the maximum number of webhook endpoints")
	ErrDisabled = errors.New("the webhook endpoint is disabled")
	ErrWaiting  = errors.New("too many deliveries of the webhook endpoint are waiting")
	ErrTaken    = errors.New("this webhook endpoint exists already")
	ErrTests    = errors.New("too many test events of the webhook endpoint in an hour")
	ErrReplaced = errors.New("the secret of the webhook endpoint was already replaced by this request")
	// ErrNotReady is returned while resourceapi has published no key to seal secrets with.
	ErrNotReady = errors.New("no key to seal the secrets of webhook endpoints with")
)

// Errors returns the errors of this package.
func Errors() []error {
	return []error{ErrNotFound, ErrTooMany, ErrDisabled, ErrWaiting, ErrTaken, ErrTests, ErrReplaced, ErrNotReady}
}

// CheckURL returns a message for the user if text is not valid as the URL of an endpoint, or "".
func CheckURL(ctx context.Context, network *publicnet.Network, text string) string {
	parsed, err := url.Parse(text)
	switch {
	case text == "" || len(text) > MaxURL:
		return "Must be a URL of up to " + strconv.Itoa(MaxURL) + " bytes."
	case err != nil || parsed.Scheme != "https" || parsed.Opaque != "" || parsed.Hostname() == "" ||
		strings.ContainsAny(text, "\\ "):
		return "Must be a URL that begins with https://."
	case parsed.User != nil:
		return "Must have no user name or password."
	case strings.Contains(text, "#"):
		return "Must have no fragment (the part after #)."
	case !isPort(parsed):
		return "The port must be between 1 and 65535, but not one that browsers refuse, such as 22 or 25."
	}
	switch err := network.CheckHost(ctx, parsed.Hostname()); {
	case errors.Is(err, publicnet.ErrNotPublic):
		return "The host must be public. Addresses of private networks and of this machine are not called."
	case err != nil:
		return "The host must be a name or an IP address in its usual spelling."
	}
	return ""
}

func isPort(parsed *url.URL) bool {
	if parsed.Port() == "" {
		return !strings.HasSuffix(parsed.Host, ":")
	}
	return publicnet.CallablePort(parsed.Port())
}

// CheckTypes returns a message for the user if the types of an endpoint are not valid, or "".
func CheckTypes(types []string) string {
	sorted := slices.Sorted(slices.Values(types))
	for _, one := range types {
		if _, known := Need(one); !known {
			return "Must be types of events: " + strings.Join(EventTypes(), ", ") + "."
		}
	}
	switch {
	case len(types) == 0:
		return "Must have at least one type of event."
	case len(slices.Compact(sorted)) != len(types):
		return "Must not contain a type more than once."
	}
	return ""
}

// SecretPrefix is the prefix of every secret (Standard Webhooks).
const SecretPrefix = "whsec_"

const secretBytes = 32

// NewSecret makes the secret of an endpoint from random, which must be a cryptographic source.
func NewSecret(random io.Reader) (credential.Secret, error) {
	key := make([]byte, secretBytes)
	if _, err := io.ReadFull(random, key); err != nil {
		return "", fmt.Errorf("create the secret of a webhook endpoint: %w", err)
	}
	return credential.Secret(SecretPrefix + base64.StdEncoding.EncodeToString(key)), nil
}

// A Sealed is the stored secret of an endpoint: encrypted to a public key of resourceapi (HPKE, RFC 9180).
type Sealed struct {
	Secret []byte
	Key    []byte // the public key
}

// Seal encrypts the secret of an endpoint to a public key, so that only resourceapi can read it.
func Seal(publicKey []byte, endpoint uuid.UUID, secret credential.Secret) (Sealed, error) {
	sealed := Sealed{Key: publicKey}
	key, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(publicKey)
	if err == nil {
		sealed.Secret, err = hpke.Seal(key, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), info(endpoint),
			[]byte(secret.Reveal()))
	}
	if err != nil {
		return Sealed{}, fmt.Errorf("seal the secret of a webhook endpoint: %w", err)
	}
	return sealed, nil
}

// info binds a sealed secret to its endpoint.
func info(endpoint uuid.UUID) []byte { return []byte("almoner webhook secret " + endpoint.String()) }

// Keys are the private keys of resourceapi, newest first. They change when the master keys are replaced.
type Keys struct {
	private *seal.Derived[[]hpke.PrivateKey]
}

// NewKeys derives the keys from the master keys of resourceapi.
func NewKeys(master seal.Keys) (*Keys, error) {
	seeds := seal.Purposes("webhook secrets")
	private, err := seal.Derive(master, func(masters [][]byte) ([]hpke.PrivateKey, error) {
		derived, err := seeds(masters)
		if err != nil {
			return nil, err
		}
		var keys []hpke.PrivateKey
		for _, seed := range derived[0] {
			private, err := hpke.DHKEM(ecdh.X25519()).NewPrivateKey(seed)
			if err != nil {
				return nil, fmt.Errorf("derive the key of webhook secrets: %w", err)
			}
			keys = append(keys, private)
		}
		return keys, nil
	})
	return &Keys{private}, err
}

// Public returns the public key for sealing secrets.
func (k *Keys) Public() []byte { return k.private.Now()[0].PublicKey().Bytes() }

// Open returns the secret of an endpoint, or seal.ErrForeign if it was sealed with a key that is not configured.
func (k *Keys) Open(endpoint uuid.UUID, sealed Sealed) (credential.Secret, error) {
	for _, private := range k.private.Now() {
		if !bytes.Equal(private.PublicKey().Bytes(), sealed.Key) {
			continue
		}
		secret, err := hpke.Open(private, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), info(endpoint), sealed.Secret)
		if err != nil {
			return "", seal.ErrForeign
		}
		return credential.Secret(secret), nil
	}
	return "", seal.ErrForeign
}

// The types of events and the permission for reading each type (contract, section 6a).

// A Subject is the kind of record that an event is about. Its name is the first part of the type.
type Subject struct {
	Name  string
	Need  perm.Permission // permission for reading the events
	Title string          // shown on pages
	verbs []string
}

// Types returns the types of the events about the subject.
func (s Subject) Types() []string {
	types := make([]string, len(s.verbs))
	for i, verb := range s.verbs {
		types[i] = s.Name + "." + verb
	}
	return types
}

// Subjects returns all subjects.
func Subjects() []Subject {
	return []Subject{
		{
			Name:  "programme",
			Need:  perm.ProgrammesRead,
			Title: "Programmes",
			verbs: []string{"created", "updated", "deleted"},
		},
		{
			Name:  "form",
			Need:  perm.EngageReadForms,
			Title: "Public forms",
			verbs: []string{"created", "updated", "deleted"},
		},
		{
			Name:  "submission",
			Need:  perm.EngageReadSubmissions,
			Title: "Form submissions",
			verbs: []string{"created", "updated", "deleted"},
		},
		{
			Name:  "member",
			Need:  perm.AccountReadMembers,
			Title: "Members",
			verbs: []string{"added", "updated", "removed"},
		},
		{
			Name:  "connection",
			Need:  perm.AccountAPIAccess,
			Title: "Connections",
			verbs: []string{"approved", "ended"},
		},
	}
}

// EventTypes returns all types.
func EventTypes() []string {
	var all []string
	for _, s := range Subjects() {
		all = append(all, s.Types()...)
	}
	return all
}

// Need returns the permission for reading events of the type, and false for an unknown type.
func Need(eventType string) (perm.Permission, bool) {
	name, _, _ := strings.Cut(eventType, ".")
	for _, s := range Subjects() {
		if s.Name == name && slices.Contains(s.Types(), eventType) {
			return s.Need, true
		}
	}
	return "", false
}

// Needs returns the permissions for reading events of the types.
func Needs(types []string) perm.Set {
	var needs []perm.Permission
	for _, one := range types {
		if need, known := Need(one); known {
			needs = append(needs, need)
		}
	}
	return perm.NewSet(needs...)
}

// Readable returns those of the given types that a caller with the permissions held may read.
func Readable(types []string, held perm.Set) []string {
	readable := []string{}
	for _, one := range types {
		if need, known := Need(one); known && held.Has(need) {
			readable = append(readable, one)
		}
	}
	return readable
}

// ReadableSubjects returns the names of the subjects whose events a caller with the permissions held may read.
func ReadableSubjects(held perm.Set) []string {
	names := []string{}
	for _, s := range Subjects() {
		if held.Has(s.Need) {
			names = append(names, s.Name)
		}
	}
	return names
}

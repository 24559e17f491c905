// Package passkey keeps the passkeys of users, and requests and verifies their signatures.
//
// A passkey is a WebAuthn credential that its device finds without a user name and uses only after it has verified its
// user (resident key and user verification required).
//
//	P1 A challenge is valid for one response, for ChallengeLife, at the browser or the sign-in that
//	   requested it (session, C1 to C3).
//	P2 A passkey whose counter did not increase may have been copied: it is refused from then on, and the
//	   audit log records it.
//	P3 A user who could not sign in without it keeps the last passkey.
//	P4 A user has at most MaxPerUser passkeys.
//
// The package is the only importer of go-webauthn. The relying party is exactly the deployment's app URL: no subdomain,
// no other port, no frame of another site. It stores nothing: the caller stores Challenge.State in a login state, which
// also ensures that a challenge is answered once (Web Authentication Level 3, 7.1, 7.2).
//
// Caller: endpoint/signin.
package passkey

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
)

const (
	// ChallengeLife is how long a challenge may be answered.
	ChallengeLife = 5 * time.Minute
	// MaxPerUser is the maximum number of passkeys of a user.
	MaxPerUser = 20
	// MaxName is the maximum length of a passkey's name, in characters.
	MaxName = 60
)

// A Passkey is one WebAuthn credential of a user.
type Passkey struct {
	ID             uuid.UUID
	UserID         uuid.UUID
	Name           string // given by the user
	CredentialID   []byte
	PublicKey      []byte // COSE_Key
	SignCount      uint32 // the highest value seen; always 0 for authenticators that do not count
	AAGUID         []byte // the model of the authenticator, as it reports it
	Transports     []string
	BackupEligible bool
	BackedUp       bool
	Created        time.Time
	LastUsed       *time.Time
	CopiedAt       *time.Time // when a copy was suspected (P2)
}

// A Use is one valid signature.
type Use struct {
	SignCount uint32
	BackedUp  bool
}

// A Removal is the result of removing a passkey.
type Removal int

// The results of a removal.
const (
	Removed Removal = iota
	NoSuchPasskey
	OnlyWayIn // P3
)

// A Store stores passkeys. Its errors wrap store.ErrUnavailable.
type Store interface {
	// Passkeys returns the user's passkeys, oldest first.
	Passkeys(ctx context.Context, user uuid.UUID) ([]Passkey, error)
	// PasskeyByCredential returns a passkey and its user, and false if there is none.
	PasskeyByCredential(ctx context.Context, credentialID []byte) (Passkey, workspace.User, bool, error)
	// AddPasskey inserts a passkey with its audit event. It returns false if the user has MaxPerUser passkeys or the
	// credential is known (P4).
	AddPasskey(ctx context.Context, p Passkey, event audit.Event) (bool, error)
	// UsePasskey records a use. If the counter did not increase, now or before, it returns false and records that the
	// passkey may be a copy, the first time with the audit event (P2).
	UsePasskey(ctx context.Context, id uuid.UUID, use Use, copied audit.Event) (bool, error)
	// RemovePasskey deletes a passkey of the user with its audit event (P3). issuer is the deployment's OpenID Connect
	// provider, or "": an account at another provider does not count as a way to sign in.
	RemovePasskey(ctx context.Context, user, id uuid.UUID, issuer string, event audit.Event) (Removal, error)
}

// ErrRefused reports that a response does not answer our challenge, with a known passkey and a verified user. The text
// says why, for the log.
var ErrRefused = errors.New("passkey response refused")

// ErrChanged is an ErrRefused that no other attempt with this passkey can avoid: its authenticator says that it can be
// copied to other devices, and said the opposite when the passkey was added, or the reverse (Web Authentication Level
// 3, 7.2, step 18).
var ErrChanged = fmt.Errorf("%w: the passkey has changed", ErrRefused)

// A RelyingParty requests and verifies signatures. It is safe for concurrent use.
type RelyingParty struct{ library *webauthn.WebAuthn }

// NewRelyingParty returns the relying party of an app URL. Browsers may show the name. The host of the URL must be a
// name: browsers support no passkeys for IP addresses.
func NewRelyingParty(appURL, name string) (*RelyingParty, error) {
	parsed, err := url.Parse(appURL)
	if err != nil || parsed.Hostname() == "" || net.ParseIP(parsed.Hostname()) != nil {
		return nil, errors.New("passkeys require a host name in the app URL")
	}
	timeout := webauthn.TimeoutConfig{Timeout: ChallengeLife, TimeoutUVD: ChallengeLife}
	library, err := webauthn.New(&webauthn.Config{
		RPID:                  parsed.Hostname(),
		RPDisplayName:         name,
		RPOrigins:             []string{parsed.Scheme + "://" + parsed.Host},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification:   protocol.VerificationRequired,
		},
		Timeouts: webauthn.TimeoutsConfig{Login: timeout, Registration: timeout},
	})
	if err != nil {
		return nil, fmt.Errorf("passkeys: %w", err)
	}
	return &RelyingParty{library}, nil
}

// A State is a challenge as it is stored for the verification of the response.
type State = webauthn.SessionData

// A Challenge is a challenge for a browser.
type Challenge struct {
	Options any // for the browser, in the form of PublicKeyCredential.parse…OptionsFromJSON
	State   *State
}

// BeginRegistration requests a new passkey of user, on a device that holds none of the user's passkeys.
func (rp *RelyingParty) BeginRegistration(user workspace.User, has []Passkey) (Challenge, error) {
	owner := libraryUser{user, has}
	options, state, err := rp.library.BeginRegistration(owner,
		webauthn.WithExclusions(webauthn.Credentials(owner.WebAuthnCredentials()).CredentialDescriptors()))
	if err != nil {
		return Challenge{}, fmt.Errorf("registration options: %w", err)
	}
	return Challenge{options.Response, state}, nil
}

// BeginLogin requests a signature by any of our passkeys that the device holds.
func (rp *RelyingParty) BeginLogin() (Challenge, error) {
	options, state, err := rp.library.BeginDiscoverableLogin()
	if err != nil {
		return Challenge{}, fmt.Errorf("sign-in options: %w", err)
	}
	return Challenge{options.Response, state}, nil
}

// refused hides the library's error from the caller, and includes it for the log.
func refused(err error) error {
	if detail, ok := errors.AsType[*protocol.Error](err); ok {
		return fmt.Errorf("%w: %s (%s)", ErrRefused, detail.Details, detail.Type)
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

// A Creation is an unverified response to BeginRegistration.
type Creation struct {
	parsed *protocol.ParsedCredentialCreationData
}

// ParseCreation parses a response to BeginRegistration. It returns ErrRefused.
func ParseCreation(text string) (Creation, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(text))
	if err != nil {
		return Creation{}, refused(err)
	}
	return Creation{parsed}, nil
}

// Challenge returns the challenge that the response claims to answer.
func (c Creation) Challenge() string { return c.parsed.Response.CollectedClientData.Challenge }

// FinishRegistration returns the passkey that a response creates, without its name. It returns ErrRefused.
func (rp *RelyingParty) FinishRegistration(user workspace.User, state State, response Creation) (Passkey, error) {
	created, err := rp.library.CreateCredential(libraryUser{user: user}, state, response.parsed)
	if err != nil {
		return Passkey{}, refused(err)
	}
	out := Passkey{
		ID:             uuid.Must(uuid.NewV7()),
		UserID:         user.ID,
		CredentialID:   created.ID,
		PublicKey:      created.PublicKey,
		SignCount:      created.Authenticator.SignCount,
		AAGUID:         created.Authenticator.AAGUID,
		Transports:     []string{},
		BackupEligible: created.Flags.BackupEligible,
		BackedUp:       created.Flags.BackupState,
	}
	for _, transport := range created.Transport {
		if slices.Contains(transports[:], transport) && !slices.Contains(out.Transports, string(transport)) {
			out.Transports = append(out.Transports, string(transport))
		}
	}
	return out, nil
}

// transports are those of Web Authentication Level 3, 5.8.4. The browser's list of transports is not signed, and is
// sent back to browsers.
var transports = [...]protocol.AuthenticatorTransport{
	protocol.USB, protocol.NFC, protocol.BLE, protocol.SmartCard, protocol.Hybrid, protocol.Internal,
}

// A Signature is an unverified response to BeginLogin.
type Signature struct {
	parsed *protocol.ParsedCredentialAssertionData
}

// ParseSignature parses a response to BeginLogin. It returns ErrRefused.
func ParseSignature(text string) (Signature, error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes([]byte(text))
	if err != nil {
		return Signature{}, refused(err)
	}
	return Signature{parsed}, nil
}

// Challenge returns the challenge that the response claims to answer.
func (s Signature) Challenge() string { return s.parsed.Response.CollectedClientData.Challenge }

// CredentialID returns the credential that the response claims to be from.
func (s Signature) CredentialID() []byte { return s.parsed.RawID }

// FinishLogin verifies a signature by a passkey of user. The store checks that its counter increased (P2). It returns
// ErrRefused.
func (rp *RelyingParty) FinishLogin(user workspace.User, by Passkey, state State, response Signature) (Use, error) {
	find := func(_, _ []byte) (webauthn.User, error) { return libraryUser{user, []Passkey{by}}, nil }
	_, used, err := rp.library.ValidatePasskeyLogin(find, state, response.parsed)
	if flags := response.parsed.Response.AuthenticatorData.Flags; flags.HasBackupEligible() != by.BackupEligible {
		return Use{}, ErrChanged // the library refuses it too
	}
	if err != nil {
		return Use{}, refused(err)
	}
	// The library does not update the stored counter if the response's is not higher, so it is read from the response.
	return Use{response.parsed.Response.AuthenticatorData.Counter, used.Flags.BackupState}, nil
}

// libraryUser adapts a user with passkeys to the library.
type libraryUser struct {
	user workspace.User
	has  []Passkey
}

var _ webauthn.User = libraryUser{}

// WebAuthnID returns the user handle: the identifier, which reveals nothing about the user.
func (l libraryUser) WebAuthnID() []byte          { return l.user.ID[:] }
func (l libraryUser) WebAuthnName() string        { return l.user.Email }
func (l libraryUser) WebAuthnDisplayName() string { return l.user.Name }

func (l libraryUser) WebAuthnCredentials() []webauthn.Credential {
	out := make([]webauthn.Credential, len(l.has))
	for i, p := range l.has {
		out[i] = webauthn.Credential{
			ID:            p.CredentialID,
			PublicKey:     p.PublicKey,
			Flags:         webauthn.CredentialFlags{BackupEligible: p.BackupEligible, BackupState: p.BackedUp},
			Authenticator: webauthn.Authenticator{AAGUID: p.AAGUID, SignCount: p.SignCount},
		}
		for _, transport := range p.Transports {
			out[i].Transport = append(out[i].Transport, protocol.AuthenticatorTransport(transport))
		}
	}
	return out
}

// Package webauthn requests and verifies passkey signatures.
//
// It is the only importer of go-webauthn, and its API uses the types of package passkey. The relying party is exactly
// the deployment's app URL: no subdomain, no other port, no frame of another site. The package stores nothing: the
// caller stores Challenge.State in a login state, which also ensures that a challenge is answered once (Web
// Authentication Level 3, 7.1, 7.2).
package webauthn

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/go-webauthn/webauthn/protocol"
	library "github.com/go-webauthn/webauthn/webauthn"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/shared/contract/identity"
)

// ErrRefused reports that a response does not answer our challenge, with a known passkey and a verified user. The text
// says why, for the log.
var ErrRefused = errors.New("passkey response refused")

// ErrChanged is an ErrRefused that no other attempt with this passkey can avoid: its authenticator says that it can be
// copied to other devices, and said the opposite when the passkey was added, or the reverse (Web Authentication Level
// 3, 7.2, step 18).
var ErrChanged = fmt.Errorf("%w: the passkey has changed", ErrRefused)

// A RelyingParty requests and verifies signatures. It is safe for concurrent use.
type RelyingParty struct{ library *library.WebAuthn }

// New returns the relying party of an app URL. Browsers may show the name. The host of the URL must be a name: browsers
// support no passkeys for IP addresses.
func New(appURL, name string) (*RelyingParty, error) {
	parsed, err := url.Parse(appURL)
	if err != nil || parsed.Hostname() == "" || net.ParseIP(parsed.Hostname()) != nil {
		return nil, errors.New("passkeys require a host name in the app URL")
	}
	timeout := library.TimeoutConfig{Timeout: passkey.ChallengeLife, TimeoutUVD: passkey.ChallengeLife}
	lib, err := library.New(&library.Config{
		RPID:                  parsed.Hostname(),
		RPDisplayName:         name,
		RPOrigins:             []string{parsed.Scheme + "://" + parsed.Host},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification:   protocol.VerificationRequired,
		},
		Timeouts: library.TimeoutsConfig{Login: timeout, Registration: timeout},
	})
	if err != nil {
		return nil, fmt.Errorf("passkeys: %w", err)
	}
	return &RelyingParty{lib}, nil
}

// A Challenge is a challenge for a browser.
type Challenge struct {
	Challenge string
	Options   json.RawMessage // for the browser, in the form of PublicKeyCredential.parse…OptionsFromJSON
	State     json.RawMessage // to be stored for the verification of the response
}

func newChallenge(options any, session *library.SessionData) (Challenge, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return Challenge{}, fmt.Errorf("encode options: %w", err)
	}
	state, err := json.Marshal(session)
	if err != nil {
		return Challenge{}, fmt.Errorf("encode challenge: %w", err)
	}
	return Challenge{session.Challenge, text, state}, nil
}

// BeginRegistration requests a new passkey of user, on a device that holds none of the user's passkeys.
func (rp *RelyingParty) BeginRegistration(user workspace.User, has []passkey.Passkey) (Challenge, error) {
	owner := libraryUser{user, has}
	options, session, err := rp.library.BeginRegistration(owner,
		library.WithExclusions(library.Credentials(owner.WebAuthnCredentials()).CredentialDescriptors()))
	if err != nil {
		return Challenge{}, fmt.Errorf("registration options: %w", err)
	}
	return newChallenge(options.Response, session)
}

// BeginLogin requests a signature by any of our passkeys that the device holds.
func (rp *RelyingParty) BeginLogin() (Challenge, error) {
	options, session, err := rp.library.BeginDiscoverableLogin()
	if err != nil {
		return Challenge{}, fmt.Errorf("sign-in options: %w", err)
	}
	return newChallenge(options.Response, session)
}

// refused hides the library's error from the caller, and includes it for the log.
func refused(err error) error {
	var detail *protocol.Error
	if errors.As(err, &detail) {
		return fmt.Errorf("%w: %s (%s)", ErrRefused, detail.Details, detail.Type)
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

func read(state json.RawMessage) (library.SessionData, error) {
	var session library.SessionData
	if err := json.Unmarshal(state, &session); err != nil {
		return session, fmt.Errorf("decode challenge: %w", err)
	}
	return session, nil
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
func (rp *RelyingParty) FinishRegistration(
	user workspace.User,
	state json.RawMessage,
	answer Creation,
) (passkey.Passkey, error) {
	session, err := read(state)
	if err != nil {
		return passkey.Passkey{}, err
	}
	created, err := rp.library.CreateCredential(libraryUser{user: user}, session, answer.parsed)
	if err != nil {
		return passkey.Passkey{}, refused(err)
	}
	out := passkey.Passkey{
		ID:             identity.New(),
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
		if known(transport) && !slices.Contains(out.Transports, string(transport)) {
			out.Transports = append(out.Transports, string(transport))
		}
	}
	return out, nil
}

// known reports whether a transport is one of Web Authentication Level 3, 5.8.4. The browser's list of transports is
// not signed, and is sent back to browsers.
func known(transport protocol.AuthenticatorTransport) bool {
	switch transport {
	case protocol.USB, protocol.NFC, protocol.BLE, protocol.SmartCard, protocol.Hybrid, protocol.Internal:
		return true
	}
	return false
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
func (rp *RelyingParty) FinishLogin(
	user workspace.User,
	by passkey.Passkey,
	state json.RawMessage,
	answer Signature,
) (passkey.Use, error) {
	session, err := read(state)
	if err != nil {
		return passkey.Use{}, err
	}
	find := func(_, _ []byte) (library.User, error) { return libraryUser{user, []passkey.Passkey{by}}, nil }
	_, used, err := rp.library.ValidatePasskeyLogin(find, session, answer.parsed)
	if flags := answer.parsed.Response.AuthenticatorData.Flags; flags.HasBackupEligible() != by.BackupEligible {
		return passkey.Use{}, ErrChanged // the library refuses it too
	}
	if err != nil {
		return passkey.Use{}, refused(err)
	}
	// The library does not update the stored counter if the response's is not higher, so it is read from the response.
	return passkey.Use{
		SignCount: answer.parsed.Response.AuthenticatorData.Counter,
		BackedUp:  used.Flags.BackupState,
	}, nil
}

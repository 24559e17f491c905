// Package webauthn answers: is this signature one of a passkey, made for us, just now?
//
// It is the only importer of go-webauthn, and speaks passkey to everyone else. The relying party is the deployment's
// app URL and nothing beside it: no subdomain, no other port, no frame of another site. It keeps nothing: what Begin
// hands out to be kept (Asked.Keep) is for a ceremony, which also sees to it that a challenge is answered once (Web
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
	"github.com/almonerhq/almoner/shared/identity"
)

// ErrRefused says that an answer is not one to our challenge, by a passkey that we know, with its user verified. The
// text says why, for the log.
var ErrRefused = errors.New("the passkey's answer is refused")

// A RelyingParty asks for signatures and checks them. It is safe for concurrent use.
type RelyingParty struct{ library *library.WebAuthn }

// New makes the relying party of an app URL, whose host is a name: browsers know no passkeys of an IP address.
func New(appURL string) (*RelyingParty, error) {
	parsed, err := url.Parse(appURL)
	if err != nil || parsed.Hostname() == "" || net.ParseIP(parsed.Hostname()) != nil {
		return nil, errors.New("passkeys need an app URL whose host is a name")
	}
	patience := library.TimeoutConfig{Timeout: passkey.ChallengeLife, TimeoutUVD: passkey.ChallengeLife}
	made, err := library.New(&library.Config{
		RPID:                  parsed.Hostname(),
		RPDisplayName:         "Almoner",
		RPOrigins:             []string{parsed.Scheme + "://" + parsed.Host},
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification: protocol.VerificationRequired,
		},
		Timeouts: library.TimeoutsConfig{Login: patience, Registration: patience},
	})
	if err != nil {
		return nil, fmt.Errorf("passkeys: %w", err)
	}
	return &RelyingParty{made}, nil
}

// A Challenge is a challenge that was made.
type Challenge struct {
	Challenge string
	Options   json.RawMessage // for the browser, in the form of PublicKeyCredential.parse…OptionsFromJSON
	Keep      json.RawMessage // for the check of the answer
}

func newChallenge(options any, kept *library.SessionData) (Challenge, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return Challenge{}, fmt.Errorf("write options: %w", err)
	}
	keep, err := json.Marshal(kept)
	if err != nil {
		return Challenge{}, fmt.Errorf("write ceremony: %w", err)
	}
	return Challenge{kept.Challenge, text, keep}, nil
}

// BeginRegistration asks for a new passkey of user, on a device that holds none of those that the user has.
func (rp *RelyingParty) BeginRegistration(user workspace.User, has []passkey.Passkey) (Challenge, error) {
	holder := libraryUser{user, has}
	options, kept, err := rp.library.BeginRegistration(holder,
		library.WithExclusions(library.Credentials(holder.WebAuthnCredentials()).CredentialDescriptors()))
	if err != nil {
		return Challenge{}, fmt.Errorf("ask for a new passkey: %w", err)
	}
	return newChallenge(options.Response, kept)
}

// BeginLogin asks for a signature by any passkey of ours that the device holds.
func (rp *RelyingParty) BeginLogin() (Challenge, error) {
	options, kept, err := rp.library.BeginDiscoverableLogin()
	if err != nil {
		return Challenge{}, fmt.Errorf("ask for a passkey: %w", err)
	}
	return newChallenge(options.Response, kept)
}

// refused hides what the library says from the caller and keeps it for the log.
func refused(err error) error {
	var detail *protocol.Error
	if errors.As(err, &detail) {
		return fmt.Errorf("%w: %s (%s)", ErrRefused, detail.Details, detail.Type)
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

func read(keep json.RawMessage) (library.SessionData, error) {
	var kept library.SessionData
	if err := json.Unmarshal(keep, &kept); err != nil {
		return kept, fmt.Errorf("read what was asked: %w", err)
	}
	return kept, nil
}

// A Creation is an answer to AskNew, not checked yet.
type Creation struct {
	parsed *protocol.ParsedCredentialCreationData
}

// ParseCreation reads an answer to AskNew. It returns ErrRefused.
func ParseCreation(text string) (Creation, error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes([]byte(text))
	if err != nil {
		return Creation{}, refused(err)
	}
	return Creation{parsed}, nil
}

// Challenge is what the answer says it answers.
func (c Creation) Challenge() string { return c.parsed.Response.CollectedClientData.Challenge }

// FinishRegistration returns the passkey that an answer makes, without its name. It returns ErrRefused.
func (rp *RelyingParty) FinishRegistration(
	user workspace.User,
	keep json.RawMessage,
	answer Creation,
) (passkey.Passkey, error) {
	kept, err := read(keep)
	if err != nil {
		return passkey.Passkey{}, err
	}
	made, err := rp.library.CreateCredential(libraryUser{user: user}, kept, answer.parsed)
	if err != nil {
		return passkey.Passkey{}, refused(err)
	}
	out := passkey.Passkey{
		ID:             identity.New(),
		UserID:         user.ID,
		CredentialID:   made.ID,
		PublicKey:      made.PublicKey,
		SignCount:      made.Authenticator.SignCount,
		AAGUID:         made.Authenticator.AAGUID,
		Transports:     []string{},
		BackupEligible: made.Flags.BackupEligible,
		BackedUp:       made.Flags.BackupState,
	}
	for _, transport := range made.Transport {
		if known(transport) && !slices.Contains(out.Transports, string(transport)) {
			out.Transports = append(out.Transports, string(transport))
		}
	}
	return out, nil
}

// known says whether a transport is one of Web Authentication Level 3, 5.8.4. What a browser says of it is signed by
// nobody, and is handed back to browsers.
func known(transport protocol.AuthenticatorTransport) bool {
	switch transport {
	case protocol.USB, protocol.NFC, protocol.BLE, protocol.SmartCard, protocol.Hybrid, protocol.Internal:
		return true
	}
	return false
}

// A Signature is an answer to AskAny, not checked yet.
type Signature struct {
	parsed *protocol.ParsedCredentialAssertionData
}

// ParseSignature reads an answer to AskAny. It returns ErrRefused.
func ParseSignature(text string) (Signature, error) {
	parsed, err := protocol.ParseCredentialRequestResponseBytes([]byte(text))
	if err != nil {
		return Signature{}, refused(err)
	}
	return Signature{parsed}, nil
}

// Challenge is what the answer says it answers.
func (s Signature) Challenge() string { return s.parsed.Response.CollectedClientData.Challenge }

// CredentialID is by which credential the answer says it was made.
func (s Signature) CredentialID() []byte { return s.parsed.RawID }

// FinishLogin checks a signature by a passkey of user. Whether its counter went up is for the store to say (P2). It
// returns ErrRefused.
func (rp *RelyingParty) FinishLogin(
	user workspace.User,
	by passkey.Passkey,
	keep json.RawMessage,
	answer Signature,
) (passkey.Use, error) {
	kept, err := read(keep)
	if err != nil {
		return passkey.Use{}, err
	}
	find := func(_, _ []byte) (library.User, error) { return libraryUser{user, []passkey.Passkey{by}}, nil }
	_, used, err := rp.library.ValidatePasskeyLogin(find, kept, answer.parsed)
	if err != nil {
		return passkey.Use{}, refused(err)
	}
	// The library leaves the stored counter as it is where the answer's is not higher, so it is read from the answer
	// itself.
	return passkey.Use{
		SignCount: answer.parsed.Response.AuthenticatorData.Counter,
		BackedUp:  used.Flags.BackupState,
	}, nil
}

// Package password decides which passwords a user may choose, and describes how one is changed or set with a link.
//
// The administrator's commands, the settings, the links to set a new password and the creation of accounts use it.
package password

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ccojocar/zxcvbn-go"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Limits of a password. Length is what helps (NIST SP 800-63B, section 3.1.1).
const (
	Shortest = 12   // characters
	Longest  = 1024 // bytes
)

// minEntropy is the least estimated number of bits. Below it, an attacker with lists of passwords, names and patterns
// finds the password within 2^30 guesses.
const minEntropy = 30

// maxEstimated is the number of characters of a password that are estimated. The time of an estimate grows faster than
// the square of the length, and the first characters are enough.
const maxEstimated = 32

const easy = "This password is easy to guess. Choose one that is less common, for example a few unrelated words."

// Check returns why a user may not choose a password, as a sentence for people, or "". known are the user's name and
// e-mail address, which a password must not consist of. An estimate costs as much as a hash: a page calls CheckForm and
// Choose, which wait for a turn.
func Check(chosen credential.Secret, known ...string) string {
	note := CheckForm(chosen)
	if note == "" && guessable(chosen.Reveal(), known) {
		note = easy
	}
	return note
}

// Choose returns the hash of a password that passed CheckForm, or a note for people if it is easy to guess. It
// estimates and hashes in one turn, and counts a refusal as a wrong password. It returns session.ErrBusy if no turn
// comes in time.
func Choose(
	ctx context.Context, turns *session.Passwords, caller session.Caller, chosen credential.Secret, known ...string,
) (hashed credential.Secret, note string, err error) {
	err = turns.Slot(ctx, caller, func() (err error) {
		if guessable(chosen.Reveal(), known) {
			note = easy
			turns.Wrong(caller)
			return nil
		}
		hashed, err = turns.Hash(chosen.Reveal())
		return err
	})
	return hashed, note, err
}

// CheckForm returns why a text cannot be a password, as a sentence for people, or "". It measures the spelling that is
// hashed.
func CheckForm(chosen credential.Secret) string {
	text := spelling.Password(chosen.Reveal())
	switch {
	case !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n\x00"):
		return "The password must be one line of text."
	case len(chosen) > Longest || len(text) > Longest:
		return fmt.Sprintf("The password must have at most %d bytes.", Longest)
	case utf8.RuneCountInString(text) < Shortest:
		return fmt.Sprintf("The password must have at least %d characters.", Shortest)
	}
	return ""
}

// guessable estimates the password as zxcvbn does: from lists of common passwords, words and names, keyboard patterns,
// repeats, dates, and what is known about the user.
func guessable(text string, known []string) bool {
	text = spelling.Password(text)
	if runes := []rune(text); len(runes) > maxEstimated {
		text = string(runes[:maxEstimated])
	}
	return zxcvbn.PasswordStrength(text, inputs(known)).Entropy < minEntropy
}

// inputs returns the words of what is known about the user, and the names of this product.
func inputs(known []string) []string {
	words := []string{"almoner"}
	separates := func(r rune) bool { return strings.ContainsRune(" @.-_+", r) }
	for _, text := range known {
		text = spelling.Fold(text)
		words = append(words, text)
		words = append(words, strings.FieldsFunc(text, separates)...)
	}
	return words
}

// A Change is a new password of a signed-in user.
type Change struct {
	UserID    uuid.UUID
	SignInID  uuid.UUID     // of the user's browser, which stays signed in
	Current   session.Proof // of the current password; the zero Proof if the user has none
	Hash      credential.Secret
	EndOthers bool // also sign out the user's other browsers
	Device    string
	Address   string
}

// ErrLinkInvalid reports that a link to set a password does not exist, has ended or was used. Nothing was written.
var ErrLinkInvalid = errors.New("the link to set a password is not valid")

// A Removal is the request of a user to remove the password, with the other sign-in methods of the deployment.
type Removal struct {
	UserID   uuid.UUID
	Passkeys bool   // the deployment offers passkeys
	Issuer   string // of the deployment's OpenID Connect provider, or ""
	Device   string
	Address  string
}

// ErrLastSignInMethod reports that the user has no sign-in method besides the password. Nothing was written.
var ErrLastSignInMethod = errors.New("the password is the last sign-in method")

// A Link is a valid link to set a password.
type Link struct {
	UserID       uuid.UUID
	Name         string
	Email        string
	Passkeys     bool // the user has passkeys
	Identities   bool // the user has linked accounts
	PasskeysStay bool // the link removes no passkey: a workspace of the user requires a second factor
	// TakesOver: the address was never proven to be the user's, and the reset proves it (useraccount.Takeover).
	TakesOver bool
	Expires   time.Time
}

// Removable reports whether a reset with this link can remove passkeys or linked accounts.
func (l Link) Removable() bool { return l.Identities || (l.Passkeys && !l.PasskeysStay) }

// A Reset is a new password that is set with a link.
type Reset struct {
	TokenHash    []byte
	Hash         credential.Secret
	RemoveOthers bool // also remove the user's linked accounts and, unless Link.PasskeysStay, passkeys
	// Keep are the personal access tokens and grants that do not end, unless Link.TakesOver.
	Keep    []uuid.UUID
	Device  string
	Address string
}

// NewToken returns the secret of a link.
func NewToken(random io.Reader) (credential.Secret, error) {
	raw := make([]byte, 32)
	if _, err := io.ReadFull(random, raw); err != nil {
		return "", fmt.Errorf("make the secret of a link: %w", err)
	}
	return credential.Secret(base64.RawURLEncoding.EncodeToString(raw)), nil
}

// HashToken returns the hash that is stored for the secret of a link. It accepts any text.
func HashToken(token credential.Secret) []byte {
	sum := sha256.Sum256([]byte("password reset\x00" + token.Reveal()))
	return sum[:]
}

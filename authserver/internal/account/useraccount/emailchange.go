package useraccount

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// EmailChangeLife is how long the two links of a change of address are valid.
const EmailChangeLife = 24 * time.Hour

// Maximum numbers of requests per day. Each request sends a mail to an address that the user chose.
const (
	MaxEmailChanges          = 5 // by one user
	MaxEmailChangesToAddress = 3 // users who request a change to one address
)

// Errors of a change of address. The address was not changed.
var (
	ErrLinkInvalid    = errors.New("the link to change an address is not valid")
	ErrEmailTaken     = errors.New("another user has the address")
	ErrTooManyChanges = errors.New("too many changes of an address were requested")
)

// Errors returns the errors of this package.
func Errors() []error { return []error{ErrLinkInvalid, ErrEmailTaken, ErrTooManyChanges, ErrTakeover} }

// An EmailRequest is a request to change an address.
type EmailRequest struct {
	ID       uuid.UUID
	UserID   uuid.UUID
	Email    string            // the new address, in lower case
	OldToken credential.Secret // of the link to the old address
	NewToken credential.Secret // of the link to the new address
	Device   string
	Network  string
}

// An EmailChange is an open request as shown on its pages.
type EmailChange struct {
	Old, New     string // addresses
	ToNew        bool   // the link was sent to the new address
	OldConfirmed bool
	NewConfirmed bool
	Expires      time.Time
}

// Confirmed reports whether the link was confirmed already.
func (e EmailChange) Confirmed() bool {
	return e.ToNew && e.NewConfirmed || !e.ToNew && e.OldConfirmed
}

// EmailChanges stores changes of addresses. Its errors are Errors and audit.ErrNotAuthorized, or wrap
// store.ErrUnavailable.
type EmailChanges interface {
	// BeginEmailChange stores a request, replaces an open one, and mails both addresses. If another user has the new
	// address, the mail to it has no link; nothing else differs (P4).
	BeginEmailChange(ctx context.Context, r EmailRequest, event audit.Event) error
	// OpenEmailChange returns the open request of a user, or nil.
	OpenEmailChange(ctx context.Context, user uuid.UUID) (*EmailChange, error)
	EmailChangeLink(ctx context.Context, tokenHash []byte) (EmailChange, error)
	// ConfirmEmailChange confirms a link, and returns true if both are confirmed and the address was changed.
	ConfirmEmailChange(ctx context.Context, tokenHash []byte, event audit.Event) (EmailChange, bool, error)
	StopEmailChange(ctx context.Context, tokenHash []byte, event audit.Event) error
}

// RequestEmailChange sends a link to the user's address and one to the new address. It returns ErrTooManyChanges.
func (s *Service) RequestEmailChange(ctx context.Context, r EmailRequest, event audit.Event) error {
	var err error
	if r.OldToken, err = newToken(s.Random); err == nil {
		r.NewToken, err = newToken(s.Random)
	}
	if err != nil {
		return err
	}
	return s.Store.BeginEmailChange(ctx, r, event)
}

func newToken(random io.Reader) (credential.Secret, error) { return credential.EmailChange.New(random) }

// OpenEmailChange returns the open request of a user, or nil.
func (s *Service) OpenEmailChange(ctx context.Context, user uuid.UUID) (*EmailChange, error) {
	return s.Store.OpenEmailChange(ctx, user)
}

// EmailChangeLink returns the request of a link, or ErrLinkInvalid.
func (s *Service) EmailChangeLink(ctx context.Context, token credential.Secret) (EmailChange, error) {
	if !credential.EmailChange.Matches(token.Reveal()) {
		return EmailChange{}, ErrLinkInvalid
	}
	return s.Store.EmailChangeLink(ctx, credential.Hash(token.Reveal()))
}

// ConfirmEmailChange confirms a link. It returns true if the address was changed, ErrLinkInvalid, or ErrEmailTaken.
func (s *Service) ConfirmEmailChange(
	ctx context.Context, token credential.Secret, event audit.Event,
) (EmailChange, bool, error) {
	return s.Store.ConfirmEmailChange(ctx, credential.Hash(token.Reveal()), event)
}

// StopEmailChange ends a request with one of its links, or returns ErrLinkInvalid.
func (s *Service) StopEmailChange(ctx context.Context, token credential.Secret, event audit.Event) error {
	return s.Store.StopEmailChange(ctx, credential.Hash(token.Reveal()), event)
}

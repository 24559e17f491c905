package admin

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/shared/displayname"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/retention"
)

// Actor is the actor in audit events.
const Actor = "admin"

// A Refusal is an error of the caller, in one line that says what to do. Nothing was changed.
type Refusal struct{ Message string }

func (r *Refusal) Error() string { return r.Message }

func refuse(message string) error { return &Refusal{message} }

// Refusals of the store.
var (
	ErrNoOrganisation = refuse("there is no organisation with that id")
	ErrNoWorkspace    = refuse("there is no workspace with that id")
	ErrNoUser         = refuse("there is no user with that id or e-mail address")
	ErrNoMember       = refuse("that user is not a member of that workspace")
	ErrMember         = refuse("that user is already a member: change their permissions with members set-permissions")
	ErrUnproven       = refuse("the e-mail address of that user was never confirmed, so another person may have " +
		"created the account. To have the account's access ended and the address confirmed, run users reset-link " +
		"and give the link to the user: both happen when the user sets a password. If you are sure that the " +
		"account is the user's, run users confirm-email")
	ErrEmailTaken = refuse("another user has that e-mail address")
	ErrNoClient   = refuse("there is no client with that id, or it was deleted")
	ErrNoGrant    = refuse("there is no grant with that id")
)

// Store is the database of the commands. Its errors are the refusals above, or wrap store.ErrUnavailable.
type Store interface {
	Workspaces
	Users
	Accounts
	Members
	Clients
	Grants
	Policies
}

// Deps are the dependencies of a Service.
type Deps struct {
	Store Store
	// Keyring is nil if ALMONER_KEYS is not set.
	Keyring *keyring.Keyring
	Keys    interface {
		SigningKeys(ctx context.Context) ([]keyring.StoredKey, error)
	}
	Retention *retention.Store
	Audit     interface {
		Record(ctx context.Context, e audit.Event) error
	}
	AppURL string // of the pages, or "" if ALMONER_APP_URL is not set
	// Resources are the deployment's resource identifiers, or nil if ALMONER_BASE_URL is not set.
	Resources []string
	// PropagateRevocation propagates ended grants to Redis if it can.
	PropagateRevocation func(ctx context.Context, ended []grant.Grant)
}

// A Service runs the commands.
type Service struct{ Deps }

// New returns a Service.
func New(d Deps) *Service { return &Service{d} }

func event(action audit.Action, kind string, id uuid.UUID) audit.Event {
	return audit.Event{Actor: Actor, Action: action, Subject: kind + ":" + id.String()}
}

func parseID(what, text string) (uuid.UUID, error) {
	id, err := identity.Parse(text)
	if err != nil {
		return uuid.Nil, refuse("the " + what + " id must be a UUID such as 018f3c1e-6b7a-7c3e-9a55-0d2f6f1b2c3d")
	}
	return id, nil
}

// parseOptional is parseID for an optional argument. It returns nil for "".
func parseOptional(what, text string) (*uuid.UUID, error) {
	if text == "" {
		return nil, nil
	}
	id, err := parseID(what, text)
	return &id, err
}

func parseName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if displayname.Check(name, displayname.MaxLength) != "" {
		return "", refuse("the name must have 1 to 100 printable characters")
	}
	return name, nil
}

func stamp(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

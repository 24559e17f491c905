package settings

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Store is the database of the pages. A change with an event records the event, and returns audit.ErrNotAuthorized if
// what authorized it has ended.
type Store struct {
	Users
	Workspaces
	SignIns
	Factors
	PersonalTokens
	Applications
	WebhookEndpoints
	WebhookChanges
	Connections
	Logs
}

// Users stores what belongs to one user.
type Users interface {
	UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error)
	UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error)
	SetName(ctx context.Context, id uuid.UUID, name string, event audit.Event) error
	Memberships(ctx context.Context, user uuid.UUID) ([]workspace.Membership, error)
	// Modules reads which modules the workspaces of a user can use.
	Modules(ctx context.Context, user uuid.UUID) (map[uuid.UUID]map[string]workspace.ModuleState, error)
	UnwantedMails(ctx context.Context, user uuid.UUID) ([]mail.Kind, error)
	SetUnwantedMails(ctx context.Context, user uuid.UUID, unwanted []mail.Kind, event audit.Event) error
}

// Workspaces stores members and invitations, and what a workspace demands and allows.
type Workspaces interface {
	// StillAllowed returns audit.ErrNotAuthorized if the authorization has ended.
	StillAllowed(ctx context.Context, a *audit.Authorization) error
	ListedMembers(ctx context.Context, workspaceID uuid.UUID) ([]membership.ListedMember, error)
	WorkspaceMembers(ctx context.Context, workspaceID uuid.UUID, users []uuid.UUID) ([]membership.Member, error)
	WorkspaceMember(ctx context.Context, workspaceID, user uuid.UUID) (membership.Member, error)
	Invitations(ctx context.Context, workspaceID uuid.UUID) ([]membership.Invitation, error)
	// RequireSecondFactor returns session.ErrSecondFactor if a user without one switches it on.
	RequireSecondFactor(ctx context.Context, workspaceID uuid.UUID, required bool, event audit.Event) error
	// LastAccessRequest reads the last request of a user in the workspace, or returns nil.
	LastAccessRequest(ctx context.Context, workspaceID, user uuid.UUID) (*membership.SentRequest, error)
	SetFeature(ctx context.Context, workspaceID uuid.UUID, feature string, on bool, event audit.Event) error
}

// SignIns stores sign-ins and passwords.
type SignIns interface {
	SignInsOf(ctx context.Context, user uuid.UUID) ([]session.SignIn, error)
	EndSignIn(ctx context.Context, user, id uuid.UUID, event audit.Event) error
	EndOtherSignIns(ctx context.Context, user, but uuid.UUID, event audit.Event) (int64, error)
	ChangePassword(ctx context.Context, c password.Change, event audit.Event) error
	RemovePassword(ctx context.Context, r password.Removal, event audit.Event) error
}

// Factors stores the other ways to sign in.
type Factors interface {
	// HasPasskey reports whether the user has a passkey that is not stopped.
	HasPasskey(ctx context.Context, user uuid.UUID) (bool, error)
	// IdentitySince returns when the user's account of an issuer was linked, and false if none is.
	IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error)
	Authenticator(ctx context.Context, user uuid.UUID) (authenticator.Status, error)
	AddAuthenticator(
		ctx context.Context, user uuid.UUID, secret authenticator.Secret, step int64, recovery [][]byte,
		event audit.Event,
	) error
	ReplaceRecoveryCodes(ctx context.Context, user uuid.UUID, hashes [][]byte, event audit.Event) (bool, error)
	RemoveAuthenticator(ctx context.Context, user uuid.UUID, event audit.Event) (bool, error)
}

// PersonalTokens stores personal access tokens.
type PersonalTokens interface {
	Tokens(ctx context.Context, user, workspaceID uuid.UUID) ([]pat.Token, error)
	ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error)
	SaveToken(ctx context.Context, t pat.Token, hash []byte, event audit.Event) (bool, error)
	RevokeToken(ctx context.Context, user, workspaceID, id uuid.UUID, event audit.Event) (bool, error)
}

// Applications stores OAuth clients. The error for an unknown client is client.ErrUnknown.
type Applications interface {
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	Clients(ctx context.Context, workspaceID uuid.UUID) ([]client.Client, error)
}

// WebhookEndpoints stores webhook endpoints. Its errors are those of package webhook, audit.ErrNotAuthorized, or wrap
// store.ErrUnavailable.
type WebhookEndpoints interface {
	Webhooks(ctx context.Context, workspaceID uuid.UUID) ([]webhook.Endpoint, error)
	Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error)
	WebhookDeliveries(ctx context.Context, workspaceID, endpoint uuid.UUID, limit int) ([]webhook.Delivery, error)
	WebhookKey(ctx context.Context) ([]byte, error)
	AddWebhook(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed, event audit.Event) error
	DeleteWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error
}

// WebhookChanges changes webhook endpoints and their deliveries, with the errors of WebhookEndpoints.
type WebhookChanges interface {
	EnableWebhook(ctx context.Context, workspaceID, id, user uuid.UUID, event audit.Event) error
	DisableWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error
	SetWebhookPersonalData(ctx context.Context, workspaceID, id, user uuid.UUID, include bool, event audit.Event) error
	ReplaceWebhookSecret(
		ctx context.Context, workspaceID, id, replacement uuid.UUID, secret webhook.Sealed, event audit.Event,
	) error
	TestWebhook(ctx context.Context, workspaceID, id, delivery uuid.UUID, allowed *audit.Authorization) error
	ResendWebhook(
		ctx context.Context, workspaceID, id, former, delivery uuid.UUID, allowed *audit.Authorization,
		need func(eventType string) error,
	) error
}

// Connections stores grants, and the connector policies, which are read with the membership (workspace.Workspace).
type Connections interface {
	ConnectorPolicyEffect(
		ctx context.Context, workspaceID uuid.UUID, p workspace.ConnectorPolicy,
	) (policy.Effect, error)
	ReplaceConnectorPolicy(
		ctx context.Context, workspaceID uuid.UUID, seen string, p workspace.ConnectorPolicy, event audit.Event,
	) (policy.Change, error)
	ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error)
	WorkspaceConnections(
		ctx context.Context, workspaceID uuid.UUID, page consent.ConnectionPage,
	) ([]consent.Connection, error)
	LiveConnectors(ctx context.Context, workspaceID uuid.UUID) (int, error)
	EndConnection(
		ctx context.Context, workspaceID, id uuid.UUID, reason grant.Reason, event audit.Event,
	) ([]grant.Grant, error)
}

// Logs stores audit events, and reads what happened in a workspace and to a user.
type Logs interface {
	Record(ctx context.Context, e audit.Event) error
	EventsOfUser(ctx context.Context, user uuid.UUID, limit int) ([]audit.Entry, error)
	EventsOfWorkspace(
		ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
	) ([]audit.Entry, error)
	Connectors(ctx context.Context, workspaceID uuid.UUID, offset, limit int) ([]connectionlog.Connector, error)
	SearchConnections(
		ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
	) ([]connectionlog.Found, error)
}

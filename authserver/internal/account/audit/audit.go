// Package audit defines audit events, who causes them, and the authorization that a write requires.
//
// Events are append-only (the service's role may insert and read, never change) and contain no secret.
package audit

import (
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// An Event is one audited action.
type Event struct {
	At            time.Time // set by the store
	WorkspaceID   *uuid.UUID
	UserID        *uuid.UUID // the user that it concerns
	Actor         string     // user:<id>, client:<id>, admin, system
	Action        Action
	Subject       string // grant:<id>, client:<id>, …
	Detail        map[string]any
	RequestID     string
	Authorization *Authorization // what allowed a request that writes; not stored
}

// Anonymous returns the event of a request without a sign-in, with the network address that it came from.
func Anonymous(action Action, subject, requestID, address string) Event {
	return Event{
		Actor:     "anonymous",
		Action:    action,
		Subject:   subject,
		Detail:    map[string]any{"address": address},
		RequestID: requestID,
	}
}

// A Description says what an action means. The pages, authserver/AUDIT.md and the tests read it.
type Description struct {
	Action Action
	// Text describes the event on a page. The page replaces {name} with a detail of the event (endpoint/settings). If
	// the detail is empty, the space before it is removed.
	Text     string
	Many     string // for several events of one act: what and what happened to it, such as "connection ended"
	Own      string // describes the event to the user whom it concerns, like Text; "" if Text does
	Meaning  string // for readers of the export, where Text is not enough
	Alarming bool   // the event may be an attack
}

//go:embed descriptions.json
var descriptionsJSON []byte

// descriptions returns the table of all descriptions. It is read once.
var descriptions = sync.OnceValue(func() (all []Description) {
	if err := json.Unmarshal(descriptionsJSON, &all); err != nil {
		panic("descriptions.json: " + err.Error())
	}
	return all
})

// Descriptions returns the description of every action.
func Descriptions() []Description { return slices.Clone(descriptions()) }

// Describe returns the description of an action, and false for one that this version does not know.
func Describe(a Action) (Description, bool) {
	i := slices.IndexFunc(descriptions(), func(d Description) bool { return d.Action == a })
	if i < 0 {
		return Description{}, false
	}
	return descriptions()[i], true
}

// A Kind is a kind of events in the log of a workspace. The events of a person's account are in no such log.
type Kind struct {
	Name, Title string
	nouns       string // what its actions begin with
}

// Kinds returns the kinds.
func Kinds() []Kind {
	return []Kind{
		{"access", "Assistants and connected apps", "grant connector_policy feature connections"},
		{"members", "Members and invitations", "member invitation access second_factor"},
		{"developers", "Tokens, OAuth applications and webhooks", "token client webhook"},
		{"records", "Records deleted or exported", "programme form submission supporter audit"},
		{"workspace", "Workspace", "organisation tenant module"},
	}
}

// ActionsOf returns the actions of a kind. Other names have none.
func ActionsOf(kind string) (actions []Action) {
	for _, k := range Kinds() {
		for _, d := range descriptions() {
			noun, _, _ := strings.Cut(d.Action, ".")
			if k.Name == kind && slices.Contains(strings.Fields(k.nouns), noun) {
				actions = append(actions, d.Action)
			}
		}
	}
	return actions
}

// Operator is the Actor of an operator's events.
const Operator = "admin"

// An Actor makes a change: a user with a credential, or an operator. The zero Actor may do nothing.
type Actor struct {
	UserID        uuid.UUID     // of a user
	WorkspaceID   uuid.UUID     // in which the change is made
	Permissions   perm.Set      // that the user and the credential hold in the workspace now
	RequestID     string        // of a request
	Authorization Authorization // of the request; its transaction checks it again
}

// ByOperator returns the actor of an operator's command, who may do everything.
func ByOperator() Actor { return Actor{Authorization: Authorization{Operator: true}} }

// In returns the actor in a workspace.
func (a Actor) In(workspaceID uuid.UUID) Actor {
	a.WorkspaceID = workspaceID
	return a
}

// Event returns the event of a change that needs these permissions besides those of the request. It concerns the user.
func (a Actor) Event(action Action, subject string, detail map[string]any, needs perm.Set) Event {
	event := Event{Actor: Operator, Action: action, Subject: subject, Detail: detail, RequestID: a.RequestID}
	authorization := a.Authorization
	if !authorization.Operator {
		event.UserID, event.Actor = &a.UserID, "user:"+a.UserID.String()
	}
	if a.WorkspaceID != uuid.Nil {
		event.WorkspaceID, authorization.WorkspaceID = &a.WorkspaceID, a.WorkspaceID
	}
	authorization.Permissions = authorization.Permissions.Union(needs)
	event.Authorization = &authorization
	return event
}

// ErrOthers reports that an actor may not see a record of another member, or not change it.
var ErrOthers = errors.New("the record of another member")

// Sees returns whose records a list shows the actor: those of user, or of all members if it is nil. Without
// account:read:members, these are the actor's own, and another user is ErrOthers (contract, section 5b).
func (a Actor) Sees(user *uuid.UUID) (*uuid.UUID, error) {
	switch {
	case a.Authorization.Operator, a.Permissions.Has(perm.AccountReadMembers):
		return user, nil
	case user != nil && *user != a.UserID:
		return nil, ErrOthers
	}
	return &a.UserID, nil
}

// An Authorization is what allowed a request when it was checked. The transaction that writes checks it again, with the
// rows locked, so that a request that waited in between writes nothing if the right has ended
// (e2e/CHECKS_AND_WRITES.md). The user must still be enabled. The other fields count if they are set. No Authorization,
// and the zero one, allow nothing.
type Authorization struct {
	Operator bool // an operator's command, which is always allowed
	Link     bool // no user is signed in: the link was checked, and the statement checks again that it is still valid

	UserID      uuid.UUID
	SignInID    uuid.UUID // of a browser: must still be valid
	TokenID     uuid.UUID // the request's personal access token: must be active and have Permissions
	GrantID     uuid.UUID // the access token's grant: must be active and have Permissions
	WorkspaceID uuid.UUID // the user must be a member of it and hold Permissions there
	Permissions perm.Set
}

// Credential returns the id of the credential of the request: its personal access token or the grant of its access
// token.
func (a Authorization) Credential() uuid.UUID {
	if a.TokenID != uuid.Nil {
		return a.TokenID
	}
	return a.GrantID
}

// ErrNotAuthorized reports that what allowed a request has ended since it was checked. Nothing was written.
var ErrNotAuthorized = errors.New("no longer authorized")

// An Entry is an event as the log stores it.
type Entry struct {
	ID uuid.UUID
	Event
	Person      string // name of the user that it concerns, or ""
	Application string // name of the application that it concerns, or ""
	ActorName   string // name of the user who acted, or ""
}

// A Search selects entries of a log. The zero Search selects all.
type Search struct {
	RequestID    string
	Person       string    // part of the name or address of the user who acted, or whom the event concerns
	Application  string    // part of its name
	Kind         string    // of events (Kinds) or attempts ("approved", "stopped")
	Client       uuid.UUID // application, or the zero id for all
	User         uuid.UUID // whom the event concerns, or the zero id for all
	Action       Action    // or "" for all
	Reason       string    // of the action, or "" for all
	Since, Until time.Time
}

// A Cursor is a position in a log that is read from the latest entry back: entries after it are older. The zero Cursor
// is the beginning.
type Cursor struct {
	At time.Time
	ID uuid.UUID
}

// Cursor returns the position of the entry.
func (e Entry) Cursor() Cursor { return Cursor{e.At, e.ID} }

package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// mark returns the position of a record in a list that has the latest first.
func mark(created time.Time, id uuid.UUID) string { return fmt.Sprint(created.UnixMicro(), " ", id) }

// parseMark returns the position after which a page begins. It comes from a cursor, which is authentic.
func parseMark(after string) audit.Cursor {
	at, id, continues := strings.Cut(after, " ")
	if !continues {
		return audit.Cursor{}
	}
	micros, _ := strconv.ParseInt(at, 10, 64)
	return audit.Cursor{At: time.UnixMicro(micros), ID: uuid.MustParse(id)}
}

// filters are the query parameters that select records of a list.
type filters struct {
	*request
	list string // names the list with its filters, for cursors
	err  error
}

// id returns the UUID of a parameter, or nil if it is not given.
func (f *filters) id(name string) *uuid.UUID {
	query := f.http.URL.Query()
	if !query.Has(name) {
		return nil
	}
	id, err := web.ParseID(query.Get(name))
	if err != nil {
		f.err = apierr.New(apierr.Invalid, name+": Must be a UUID.")
	}
	f.list += " " + name + "=" + id.String()
	return &id
}

// choice returns the value of a parameter, which is one of values, or "" if it is not given.
func (f *filters) choice(name string, values ...string) string {
	query := f.http.URL.Query()
	for _, value := range values {
		if query.Get(name) == value {
			f.list += " " + name + "=" + value
			return value
		}
	}
	if query.Has(name) {
		f.err = apierr.New(apierr.Invalid, name+": Must be "+strings.Join(values, " or ")+".")
	}
	return ""
}

// A personBody is the JSON of a user.
type personBody struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// A connectionBody is the JSON of a connection.
type connectionBody struct {
	ID          string     `json:"id"`
	Client      namedBody  `json:"client"`
	User        personBody `json:"user"`
	Permissions []string   `json:"permissions"`
	Resource    string     `json:"resource"`
	State       string     `json:"state"`
	EndedReason *string    `json:"endedReason"`
	CreatedAt   rest.Time  `json:"createdAt"`
	LastUsedAt  *rest.Time `json:"lastUsedAt"`
	ExpiresAt   rest.Time  `json:"expiresAt"`
	ApprovedBy  string     `json:"approvedBy"`
}

// A namedBody is the JSON of what has a name.
type namedBody struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// expired is the endedReason of a connection that ended with time.
const expired = "expired"

func (d *Deps) showConnection(c consent.Connection) connectionBody {
	g, state := c.Grant, c.State(d.Now())
	shown := connectionBody{
		ID:          g.ID.String(),
		Client:      namedBody{g.ClientID.String(), c.Application},
		User:        personBody{g.UserID.String(), c.Person, c.Email},
		Permissions: g.Permissions.Strings(),
		Resource:    g.Resource,
		State:       string(state),
		CreatedAt:   rest.Time(g.Created),
		LastUsedAt:  rest.TimePointer(g.LastUsed),
		ExpiresAt:   rest.Time(g.Ends),
		ApprovedBy:  "user",
	}
	if state == consent.ConnectionEnded {
		reason := cmp.Or(string(g.Reason), expired)
		shown.EndedReason = &reason
	}
	return shown
}

// listConnections lists the connections that the caller may see, the latest first.
func (r *request) listConnections() error {
	selected := filters{request: r, list: "connections"}
	filter := consent.ConnectionFilter{UserID: selected.id("userId"), ClientID: selected.id("clientId")}
	filter.State = consent.ConnectionState(selected.choice("state", "active", "ended"))
	if selected.err != nil {
		return selected.err
	}
	connections := rest.Collection[consent.Connection, connectionBody]{
		Name: selected.list,
		Key:  func(c consent.Connection) string { return mark(c.Grant.Created, c.Grant.ID) },
		Read: func(after string, limit int) ([]consent.Connection, error) {
			filter.Before, filter.Limit = parseMark(after), limit
			return r.Connections.List(r.http.Context(), r.by, filter)
		},
		Show: rest.Each(r.showConnection),
	}
	return connections.Write(r.w, r.http, r.Cursors, r.by.WorkspaceID, nil)
}

func (r *request) readConnection() error {
	id, err := r.id("connectionId", consent.ErrNoConnection)
	if err != nil {
		return err
	}
	found, err := r.Connections.Find(r.http.Context(), r.by, id)
	if err == nil {
		web.JSON(r.w, http.StatusOK, r.showConnection(found))
	}
	return err
}

func (r *request) narrowConnection() (rest.Answer, error) {
	id, err := r.id("connectionId", consent.ErrNoConnection)
	if err != nil {
		return rest.Answer{}, err
	}
	var body struct {
		Permissions []string `json:"permissions"`
	}
	if err := rest.ReadJSON(r.w, r.http, &body); err != nil {
		return rest.Answer{}, err
	}
	permissions, err := membership.ParsePermissions(body.Permissions)
	if err != nil {
		return rest.Answer{}, err
	}
	narrowed, err := r.Connections.Narrow(r.http.Context(), r.by, id, permissions)
	if err != nil {
		return rest.Answer{}, r.hide(err)
	}
	return rest.JSONLine(http.StatusOK, r.showConnection(narrowed))
}

func (r *request) endConnection() (rest.Answer, error) {
	id, err := r.id("connectionId", consent.ErrNoConnection)
	if err == nil {
		_, err = r.Connections.End(r.http.Context(), r.by, id, perm.NewSet(perm.AccountWriteMembers))
	}
	return rest.Answer{Status: http.StatusNoContent}, r.hide(err)
}

// hide returns the error for a connection of another member: without account:read:members, there is none.
func (r *request) hide(err error) error {
	if errors.Is(err, audit.ErrOthers) && !r.by.Permissions.Has(perm.AccountReadMembers) {
		return consent.ErrNoConnection
	}
	return err
}

// A tokenBody is the JSON of a personal access token. It never has the value.
type tokenBody struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	User        personBody `json:"user"`
	Permissions []string   `json:"permissions"`
	CreatedAt   rest.Time  `json:"createdAt"`
	LastUsedAt  *rest.Time `json:"lastUsedAt"`
	ExpiresAt   rest.Time  `json:"expiresAt"`
}

func showToken(t pat.MemberToken) tokenBody {
	return tokenBody{
		ID:          t.ID.String(),
		Name:        t.Name,
		User:        personBody{t.UserID.String(), t.Person, t.Email},
		Permissions: t.Permissions.Strings(),
		CreatedAt:   rest.Time(t.Created),
		LastUsedAt:  rest.TimePointer(t.LastUsed),
		ExpiresAt:   rest.Time(t.Expires),
	}
}

// listTokens lists the active personal access tokens that the caller may see, the latest first.
func (r *request) listTokens() error {
	selected := filters{request: r, list: "tokens"}
	filter := pat.Filter{UserID: selected.id("userId")}
	if selected.err != nil {
		return selected.err
	}
	tokens := rest.Collection[pat.MemberToken, tokenBody]{
		Name: selected.list,
		Key:  func(t pat.MemberToken) string { return mark(t.Created, t.ID) },
		Read: func(after string, limit int) ([]pat.MemberToken, error) {
			filter.Before, filter.Limit = parseMark(after), limit
			return r.Tokens.List(r.http.Context(), r.by, filter)
		},
		Show: rest.Each(showToken),
	}
	return tokens.Write(r.w, r.http, r.Cursors, r.by.WorkspaceID, nil)
}

func (r *request) readToken() error {
	id, err := r.id("tokenId", pat.ErrNoToken)
	if err != nil {
		return err
	}
	found, err := r.Tokens.Find(r.http.Context(), r.by, id)
	if err == nil {
		web.JSON(r.w, http.StatusOK, showToken(found))
	}
	return err
}

func (r *request) revokeToken() (rest.Answer, error) {
	id, err := r.id("tokenId", pat.ErrNoToken)
	if err == nil {
		err = r.Tokens.Revoke(r.http.Context(), r.by, id)
	}
	return rest.Answer{Status: http.StatusNoContent}, err
}

package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

func (r *request) registerClient() (rest.Answer, error) {
	registration, err := r.readRegistration()
	if err != nil {
		return rest.Answer{}, err
	}
	c, err := registration.Accept(r.Resources)
	if err != nil {
		return rest.Answer{}, err
	}
	if !r.by.Permissions.HasAll(c.Required) {
		return rest.Answer{}, apierr.New(apierr.Forbidden, "You can only require permissions that you and "+
			"your credential have. Missing: "+c.Required.Without(r.by.Permissions).Scope()+".")
	}
	c.ID = uuid.New()
	c, secret, err := r.Clients.Register(r.http.Context(), r.by, c, nil)
	if err != nil {
		return rest.Answer{}, err
	}
	answer, err := rest.JSONLine(http.StatusCreated, showClient(c, secret))
	answer.Needs, answer.Secret = c.Required, secret != ""
	answer.Location = r.http.URL.Path + "/" + c.ID.String()
	return answer, err
}

// applications is the list of a workspace's clients, newest first.
var applications = rest.Collection[client.Client, clientBody]{
	Name:    "applications",
	Omitted: []string{"clientSecret"},
	Key:     func(c client.Client) string { return rest.NewestFirst(c.CreatedAt, c.ID) },
	Show:    rest.Each(func(c client.Client) clientBody { return showClient(c, "") }),
}

func (r *request) listClients() error { return list(r, applications, r.Store.Clients) }

// list writes one page of a list of the workspace. The query selects the page.
func list[T, R any](r *request, as rest.Collection[T, R], read func(context.Context, uuid.UUID) ([]T, error)) error {
	all, err := read(r.http.Context(), r.by.WorkspaceID)
	if err != nil {
		return err
	}
	return as.Write(r.w, r.http, r.Cursors, r.by.WorkspaceID, all)
}

// ownClient reads the client of the path, or returns client.ErrUnknown if it is not of the workspace.
func (r *request) ownClient() (client.Client, error) {
	id, err := r.id("clientId", client.ErrUnknown)
	if err != nil {
		return client.Client{}, err
	}
	return r.Clients.Own(r.http.Context(), r.by, id)
}

func (r *request) readClient() error {
	c, err := r.ownClient()
	if err == nil {
		web.JSON(r.w, http.StatusOK, showClient(c, ""))
	}
	return err
}

func (r *request) deleteClient() (rest.Answer, error) {
	id, err := r.id("clientId", client.ErrUnknown)
	if err == nil {
		_, err = r.Clients.Delete(r.http.Context(), r.by, id, nil)
	}
	return rest.Answer{Status: http.StatusNoContent}, err
}

func (r *request) replaceSecret() (rest.Answer, error) {
	if _, err := r.id("clientId", client.ErrUnknown); err != nil {
		return rest.Answer{}, err
	}
	var body struct {
		ExpireOld bool `json:"expireOld"`
	}
	if err := rest.ReadJSON(r.w, r.http, &body); err != nil && !errors.Is(err, rest.ErrEmpty) {
		return rest.Answer{}, invalidMetadata(err)
	}
	c, err := r.ownClient()
	if err != nil {
		return rest.Answer{}, err
	}
	secret, err := r.Clients.ReplaceSecret(r.http.Context(), r.by, c, body.ExpireOld, nil)
	if err != nil {
		return rest.Answer{}, err
	}
	answer, err := rest.JSONLine(http.StatusOK, showClient(c, secret))
	answer.Secret = true
	return answer, err
}

func (r *request) readRegistration() (client.Registration, error) {
	var body struct {
		Name       string   `json:"name"`
		Redirects  []string `json:"redirectUris"`
		Required   []string `json:"requiredPermissions"`
		Platform   *string  `json:"connectorPlatform"`
		Resource   *string  `json:"resource"`
		AuthMethod *string  `json:"tokenEndpointAuthMethod"`
	}
	if err := rest.ReadJSON(r.w, r.http, &body); err != nil {
		return client.Registration{}, invalidMetadata(err)
	}
	registration := client.Registration{Name: body.Name, Redirects: body.Redirects, Required: body.Required}
	for _, member := range []struct {
		from *string
		to   *string
		name string
	}{
		{body.Platform, &registration.Platform, "connectorPlatform"},
		{body.Resource, &registration.Resource, "resource"},
		{body.AuthMethod, &registration.AuthMethod, "tokenEndpointAuthMethod"},
	} {
		if member.from == nil {
			continue
		}
		if *member.from == "" {
			return client.Registration{}, &client.Refusal{
				Field:   member.name,
				Message: member.name + " must not be empty. Omit it or set a value.",
			}
		}
		*member.to = *member.from
	}
	return registration, nil
}

// invalidMetadata returns the refusal for a body that cannot be read, with the code of RFC 7591, section 3.2.2.
func invalidMetadata(err error) error {
	if refused, ok := errors.AsType[*apierr.Error](err); ok && refused.Kind == apierr.Invalid {
		return &client.Refusal{Message: refused.Message}
	}
	return err
}

// A clientBody is the JSON of a client. It has the secret only in the response to the call that created it.
type clientBody struct {
	ClientID            string    `json:"clientId"`
	ClientSecret        string    `json:"clientSecret,omitempty"`
	Kind                string    `json:"kind"`
	WorkspaceID         string    `json:"tenantId"`
	Name                string    `json:"name"`
	RedirectURIs        []string  `json:"redirectUris"`
	RequiredPermissions []string  `json:"requiredPermissions"`
	ConnectorPlatform   string    `json:"connectorPlatform,omitempty"`
	Resource            string    `json:"resource,omitempty"`
	AuthMethod          string    `json:"tokenEndpointAuthMethod"`
	CreatedAt           rest.Time `json:"createdAt"`
}

func showClient(c client.Client, secret credential.Secret) clientBody {
	return clientBody{
		ClientID:            c.ID.String(),
		ClientSecret:        secret.Reveal(),
		Kind:                string(c.Kind),
		WorkspaceID:         c.WorkspaceID.String(),
		Name:                c.Name,
		RedirectURIs:        c.Redirects,
		RequiredPermissions: c.Required.Strings(),
		ConnectorPlatform:   c.Platform,
		Resource:            c.Resource,
		AuthMethod:          string(c.AuthMethod),
		CreatedAt:           rest.Time(c.CreatedAt),
	}
}

// listMembers lists the members, the latest first.
func (r *request) listMembers() error {
	members := rest.Collection[membership.ListedMember, memberBody]{
		Name: "members by joining",
		Key:  func(m membership.ListedMember) string { return mark(m.Since, m.UserID) },
		Read: func(after string, limit int) ([]membership.ListedMember, error) {
			from := parseMark(after)
			page := membership.MemberPage{Before: from.At, UserID: from.ID, Limit: limit}
			return r.Store.ListedMembers(r.http.Context(), r.by.WorkspaceID, page)
		},
		Show: func(page []membership.ListedMember) ([]memberBody, error) {
			members, err := r.Store.WorkspaceMembers(r.http.Context(), r.by.WorkspaceID, membership.UserIDs(page))
			if err != nil {
				return nil, err
			}
			return rest.Each(showMember)(members)
		},
	}
	return members.Write(r.w, r.http, r.Cursors, r.by.WorkspaceID, nil)
}

func (r *request) changeMember() (rest.Answer, error) {
	user, err := r.id("userId", membership.ErrNoMember)
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
	member, err := r.Members.ChangePermissions(r.http.Context(), r.by, user, permissions, nil)
	if err != nil {
		return rest.Answer{}, err
	}
	return rest.JSONLine(http.StatusOK, showMember(member))
}

func (r *request) removeMember() (rest.Answer, error) {
	user, err := r.id("userId", membership.ErrNoMember)
	if err == nil {
		_, err = r.Members.Remove(r.http.Context(), r.by, user)
	}
	return rest.Answer{Status: http.StatusNoContent}, err
}

// openInvitations is the list of a workspace's open invitations, newest first.
var openInvitations = rest.Collection[membership.Invitation, invitationBody]{
	Name:    "invitations",
	Omitted: []string{"url"},
	Key:     func(i membership.Invitation) string { return rest.NewestFirst(i.Created, i.ID) },
	Show:    rest.Each(showInvitation),
}

func (r *request) listInvitations() error { return list(r, openInvitations, r.Store.Invitations) }

func (r *request) invite() (rest.Answer, error) {
	var body struct {
		Email       string   `json:"email"`
		Permissions []string `json:"permissions"`
	}
	if err := rest.ReadJSON(r.w, r.http, &body); err != nil {
		return rest.Answer{}, err
	}
	sent, err := r.Members.Invite(r.http.Context(), r.by, body.Email, body.Permissions)
	if err != nil {
		return rest.Answer{}, err
	}
	shown := showInvitation(sent.Invitation)
	if !r.Members.Mailed() {
		shown.URL = sent.Link.Reveal()
	}
	answer, err := rest.JSONLine(http.StatusCreated, shown)
	answer.Needs, answer.Secret = sent.Invitation.Permissions, shown.URL != ""
	answer.Location = r.http.URL.Path + "/" + shown.ID
	return answer, err
}

func (r *request) withdraw() (rest.Answer, error) {
	id, err := r.id("invitationId", membership.ErrNoInvitation)
	if err == nil {
		err = r.Members.Withdraw(r.http.Context(), r.by, id)
	}
	return rest.Answer{Status: http.StatusNoContent}, err
}

// A memberBody is the JSON of a member.
type memberBody struct {
	UserID      string     `json:"userId"`
	Name        string     `json:"name"`
	Email       string     `json:"email"`
	Permissions []string   `json:"permissions"`
	Disabled    bool       `json:"disabled"`
	Connections int        `json:"connections"`
	Tokens      int        `json:"tokens"`
	CreatedAt   rest.Time  `json:"createdAt"`
	LastSeenAt  *rest.Time `json:"lastSeenAt"`
}

func showMember(m membership.Member) memberBody {
	return memberBody{
		UserID:      m.UserID.String(),
		Name:        m.Name,
		Email:       m.Email,
		Permissions: m.Permissions.Strings(),
		Disabled:    m.Disabled,
		Connections: m.Connections,
		Tokens:      m.Tokens,
		CreatedAt:   rest.Time(m.Since),
		LastSeenAt:  (*rest.Time)(m.LastSeen),
	}
}

// An invitationBody is the JSON of an invitation. It has the link only in the response to the call that created it.
type invitationBody struct {
	ID          string    `json:"id"`
	Email       string    `json:"email"`
	Permissions []string  `json:"permissions"`
	InvitedBy   string    `json:"invitedBy"`
	CreatedAt   rest.Time `json:"createdAt"`
	ExpiresAt   rest.Time `json:"expiresAt"`
	URL         string    `json:"url,omitempty"`
}

func showInvitation(i membership.Invitation) invitationBody {
	return invitationBody{
		ID:          i.ID.String(),
		Email:       i.Email,
		Permissions: i.Permissions.Strings(),
		InvitedBy:   i.InviterID.String(),
		CreatedAt:   rest.Time(i.Created),
		ExpiresAt:   rest.Time(i.Expires),
	}
}

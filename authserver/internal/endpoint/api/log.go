package api

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// An eventBody is the JSON of an audit event, with the members of the page's export.
type eventBody struct {
	ID      uuid.UUID      `json:"id"`
	At      rest.Time      `json:"at"`
	Action  string         `json:"action"`
	Actor   string         `json:"actor"`
	UserID  *uuid.UUID     `json:"userId"`
	Subject string         `json:"subject"`
	Detail  map[string]any `json:"detail"`
}

func showEvent(e audit.Entry) eventBody {
	return eventBody{
		ID:      e.ID,
		At:      rest.Time(e.At),
		Action:  string(e.Action),
		Actor:   e.Actor,
		UserID:  e.UserID,
		Subject: e.Subject,
		Detail:  e.Detail,
	}
}

// listEvents lists the audit events of the workspace, the latest first. Without account:read:members, these are the
// events that concern the caller.
func (r *request) listEvents() error {
	selected := filters{request: r, list: "audit events"}
	user := selected.id("userId")
	search := audit.Search{Action: audit.Action(selected.action("action")), Since: selected.time("after")}
	if selected.err != nil {
		return selected.err
	}
	user, err := r.by.Sees(user)
	if err != nil {
		return err
	}
	if user != nil {
		search.User = *user
	}
	events := rest.Collection[audit.Entry, eventBody]{
		Name: selected.list,
		Key:  func(e audit.Entry) string { return mark(e.At, e.ID) },
		Read: func(after string, limit int) (found []audit.Entry, err error) {
			err = r.LogReads.Do(r.http.Context(), func() (err error) {
				from := parseMark(after)
				found, err = r.Store.EventsOfWorkspace(r.http.Context(), r.by.WorkspaceID, search, from, limit)
				return err
			})
			return found, err
		},
		Show: rest.Each(showEvent),
	}
	return events.Write(r.w, r.http, r.Cursors, r.by.WorkspaceID, nil)
}

// action returns the audit action of a parameter, or "" if it is not given.
func (f *filters) action(name string) string {
	var known []string
	for _, d := range audit.Descriptions() {
		known = append(known, string(d.Action))
	}
	text := f.http.URL.Query().Get(name)
	if f.http.URL.Query().Has(name) && !slices.Contains(known, text) {
		f.err = apierr.New(apierr.Invalid, name+": Must be an action of the audit log, such as "+audit.GrantRevoked+".")
		return ""
	}
	f.list += " " + name + "=" + text
	return text
}

// time returns the RFC 3339 time of a parameter, or the zero time if it is not given.
func (f *filters) time(name string) time.Time {
	query := f.http.URL.Query()
	if !query.Has(name) {
		return time.Time{}
	}
	at, err := rest.ParseTime(query.Get(name))
	if err != nil {
		f.err = apierr.New(apierr.Invalid, name+": "+rest.TimeMessage)
	}
	f.list += " " + name + "=" + rest.FormatTime(at)
	return at
}

// A policyBody is the JSON of a connector policy.
type policyBody struct {
	Permissions []string             `json:"permissions"`
	Platforms   []workspace.Platform `json:"platforms"`
	Days        int                  `json:"days"`
}

func showPolicy(p workspace.ConnectorPolicy) policyBody {
	return policyBody{
		Permissions: p.Permissions.Strings(),
		Platforms:   append([]workspace.Platform{}, p.Platforms...),
		Days:        p.Days,
	}
}

// policyTag is the entity tag of a policy.
func policyTag(p workspace.ConnectorPolicy) string { return `"` + p.Digest() + `"` }

func (r *request) readPolicy() error {
	conditions, err := rest.ReadConditions(r.http.Header)
	if err != nil {
		return err
	}
	policy, err := r.Connections.Store.ConnectorPolicy(r.http.Context(), r.by.WorkspaceID)
	if err != nil {
		return err
	}
	return conditions.ServeTag(r.w, policyTag(policy), func() { web.JSON(r.w, http.StatusOK, showPolicy(policy)) })
}

// replacePolicy replaces the policy that If-Match names (contract, section 5b).
func (r *request) replacePolicy() (rest.Answer, error) {
	conditions, err := rest.ReadConditions(r.http.Header)
	if err != nil {
		return rest.Answer{}, err
	}
	if !conditions.HasMatch() {
		return rest.Answer{}, apierr.New(apierr.PreconditionRequired,
			"Send the ETag of the policy that you read in If-Match.")
	}
	var body policyBody
	if err := rest.ReadJSON(r.w, r.http, &body); err != nil {
		return rest.Answer{}, err
	}
	wanted, err := body.accept()
	if err != nil {
		return rest.Answer{}, err
	}
	now, err := r.Connections.Store.ConnectorPolicy(r.http.Context(), r.by.WorkspaceID)
	if err == nil {
		err = conditions.CheckTag(policyTag(now))
	}
	if err != nil {
		return rest.Answer{}, err
	}
	needs := perm.NewSet(perm.AccountWriteMembers)
	change, err := r.Connections.SetPolicy(r.http.Context(), r.by, now.Digest(), wanted, needs)
	if errors.Is(err, consent.ErrPolicyChanged) {
		err = rest.ErrStale
	}
	if err != nil {
		return rest.Answer{}, err
	}
	answer, err := rest.JSONLine(http.StatusOK, showPolicy(change.After))
	answer.ETag = policyTag(change.After)
	return answer, err
}

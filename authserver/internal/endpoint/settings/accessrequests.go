package settings

import (
	"errors"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An askedView is a request for access whose values a form contains.
type askedView struct {
	membership.SentRequest
	NotHeld perm.Set // requested permissions that the user of the page cannot give
}

func (r *request) askedView(q membership.SentRequest) askedView {
	return askedView{q, q.Permissions.Without(r.here.Permissions)}
}

// Seen is what the form of an answer sends back, so that it answers this request and no later one.
func (q askedView) Seen() string { return q.At.UTC().Format(time.RFC3339Nano) }

// askedBy reads the open access request of the user id in the workspace. It returns nil if there is none, or if the
// user of the page cannot change members. The link in the administrators' mail contains the id.
func (s *Settings) askedBy(r *request, id string) (*askedView, error) {
	user, err := web.ParseID(id)
	if err != nil || !r.here.Permissions.Has(perm.AccountWriteMembers) {
		return nil, nil
	}
	asked, err := s.Store.AccessRequest(r.ctx(), r.here.Workspace.ID, user)
	if errors.Is(err, membership.ErrAnswered) {
		return nil, nil
	}
	view := r.askedView(asked)
	return &view, err
}

// answerRequest takes id, seen and decision: approve or decline.
func (s *Settings) answerRequest(r *request) error {
	seen, _ := time.Parse(time.RFC3339Nano, r.form.Get("seen")) // the zero time, which no request has
	switch r.form.Get("decision") {
	case "decline":
		return r.done(s.Members.DeclineRequest(r.ctx(), r.actor(), r.id(), seen), "The request was declined.")
	case "approve":
	default:
		return s.listMembers(r.refuse(http.StatusBadRequest, "Choose Approve or Decline. Nothing was changed."))
	}
	sent, err := s.Members.Approve(r.ctx(), r.actor(), r.id(), seen)
	refusal, status := r.refusedField(err)
	switch {
	case refusal.Message != "":
		return s.listMembers(r.refuse(status, "The request was not approved. "+refusal.Message))
	case errors.Is(err, membership.ErrUnproven):
		return s.listMembers(r.refuse(http.StatusConflict,
			"The request was not approved, because the person's e-mail address is not confirmed."))
	case errors.Is(err, membership.ErrChanged):
		return r.done(nil, "The permissions of this person were changed meanwhile. Look at the request again.")
	case sent != nil:
		return s.showSent(r, []membership.Sent{*sent})
	}
	return r.done(err, "The request was approved. The person has the access now.")
}

package authorize

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/web"
)

const maxForm = 64 << 10

// Answer serves POST /oauth/authorize, from this origin alone.
func (h *Handler) Answer() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.answer)) }

func (h *Handler) answer(w http.ResponseWriter, r *http.Request) {
	form, refused := h.readForm(w, r)
	if refused {
		return
	}
	ticket, err := h.Tickets.Open(form.ticket, h.Now())
	// What allowed an approval may end before it is stored. Then everything is asked anew, and the answer tells what
	// has ended.
	for range answerTries {
		if h.answered(w, r, form, ticket, err) {
			return
		}
	}
	h.Pages.Unavailable(w, r)
}

const answerTries = 3

// answered decides once. It says false, and has not answered, where something ended between its checks and the
// approval's write.
func (h *Handler) answered(
	w http.ResponseWriter,
	r *http.Request,
	form decision,
	ticket consent.Ticket,
	opened error,
) bool {
	visitor, refused := h.holder(w, r, shown{ticket.SignInID, ticket.UserID, string(ticket.Request)}, opened)
	if refused {
		return true
	}
	facts, err := h.Grants.Snapshot(r.Context(), ticket.ClientID, ticket.GrantID)
	if err != nil {
		h.fail(w, r, err)
		return true
	}
	switch {
	case facts.Client == nil || !h.Requests.Serves(*facts.Client) || !facts.Client.MayRedirectTo(ticket.RedirectURI):
		h.Pages.Fault(w, r, clientGone())
	case facts.Grant != nil && facts.Grant.State != grant.Pending:
		h.Pages.Fault(w, r, usedAlready())
	case form.readOnly && consent.ReadOnly(facts.Client.Kind, ticket.Permissions) == nil:
		h.Pages.Fault(w, r, badForm())
	case form.approved:
		if form.readOnly {
			ticket.Permissions = consent.ReadOnly(facts.Client.Kind, ticket.Permissions)
		}
		return h.approve(w, r, visitor, ticket, *facts.Client)
	default:
		h.deny(w, r, visitor, ticket, facts)
	}
	return true
}

// shown is to whom a page was shown, and for which request. It is empty where the ticket is none of ours.
type shown struct {
	signIn, user uuid.UUID
	request      string
}

// holder returns who is at the browser, if the page that came back was shown to them, or answers itself. err is what
// opening its ticket gave.
func (h *Handler) holder(w http.ResponseWriter, r *http.Request, to shown, err error) (session.CurrentUser, bool) {
	visitor, signedIn, failure := h.Visitors.CurrentUser(r.Context())
	switch {
	case failure != nil:
		h.fail(w, r, failure)
	case !signedIn:
		h.Pages.Fault(w, r, signedOut(to.request))
	case (err != nil && !errors.Is(err, consent.ErrStale)) || to.signIn != visitor.SignInID || to.user != visitor.User.ID:
		h.Pages.Fault(w, r, notYourPage(visitor, to.request))
	case err != nil:
		h.Pages.Fault(w, r, tooLate(to.request))
	default:
		return visitor, false
	}
	return session.CurrentUser{}, true
}

type decision struct {
	ticket   string
	approved bool
	readOnly bool // of the two presets that the page may offer
}

// readForm reads the fields, each once, or answers itself.
func (h *Handler) readForm(w http.ResponseWriter, r *http.Request) (decision, bool) {
	if h.unreadable(w, r) {
		return decision{}, true
	}
	once := len(r.PostForm["ticket"]) <= 1 && len(r.PostForm["decision"]) == 1 && len(r.PostForm["access"]) <= 1
	answer, access := r.PostForm.Get("decision"), r.PostForm.Get("access")
	if !once || (answer != "approve" && answer != "deny") || (access != "" && access != "all" && access != "read") {
		h.Pages.Fault(w, r, badForm())
		return decision{}, true
	}
	return decision{r.PostForm.Get("ticket"), answer == "approve", access == "read"}, false
}

// unreadable says whether the form could not be read, and has answered then.
func (h *Handler) unreadable(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if err == nil {
		return false
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		h.Pages.TooLarge(w, r)
	} else {
		h.Pages.Fault(w, r, badForm())
	}
	return true
}

// approve makes the grant of what was on the page and is still the user's to give. It says false, and has not answered,
// where that changed before the grant was stored.
func (h *Handler) approve(
	w http.ResponseWriter,
	r *http.Request,
	visitor session.CurrentUser,
	ticket consent.Ticket,
	c client.Client,
) bool {
	place, member, err := h.Members.Membership(r.Context(), visitor.User.ID, ticket.WorkspaceID)
	if err != nil {
		h.fail(w, r, err)
		return true
	}
	if !member {
		h.Pages.Fault(w, r, notMember(visitor, c, ""))
		return true
	}
	c = c.At(ticket.Resource)
	granted, _, err := consent.Evaluate(c, ticket.Permissions.Intersect(c.Required), place)
	if err != nil {
		h.recordStopped(r, c, ticket.WorkspaceID, &visitor.User.ID, connectionlog.Refused, stoppedWords(err))
		h.Pages.Fault(w, r, cannotGive(err, visitor, c, place.Workspace, ""))
		return true
	}
	granted, _, err = consent.ApplyPolicy(c, granted, place.Workspace)
	if err != nil {
		h.recordStopped(r, c, ticket.WorkspaceID, &visitor.User.ID, connectionlog.Refused, stoppedWords(err))
		h.Pages.Fault(w, r, notAllowed(err, visitor, c, place, ""))
		return true
	}
	web.NoteGrant(r.Context(), ticket.GrantID)
	code, err := h.Grants.Open(r.Context(), grant.Grant{
		ID:          ticket.GrantID,
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      visitor.User.ID,
		WorkspaceID: ticket.WorkspaceID,
		Permissions: granted,
		Resource:    ticket.Resource,
		Life:        consent.Life(c, place.Workspace),
		SignInID:    visitor.SignInID,
	}, grant.CodeTerms{
		ClientID:    c.ID,
		RedirectURI: ticket.RedirectURI,
		Resource:    ticket.Resource,
		Challenge:   ticket.Challenge,
	})
	if errors.Is(err, audit.ErrNotAuthorized) {
		return false
	}
	if errors.Is(err, grant.ErrPolicy) { // it became narrower a moment ago
		h.recordStopped(r, c, ticket.WorkspaceID, &visitor.User.ID, connectionlog.Refused, stoppedWords(err))
		h.Pages.Fault(w, r, notAllowed(err, visitor, c, place, ""))
		return true
	}
	if errors.Is(err, grant.ErrAlreadyUsed) {
		h.Pages.Fault(w, r, usedAlready())
		return true
	}
	if err != nil {
		h.fail(w, r, err)
		return true
	}
	sendBack(
		w,
		consent.Callback{
			URI: ticket.RedirectURI,
		}.With(
			"code",
			code.Reveal(),
			"state",
			string(ticket.State),
			"iss",
			h.Issuer,
		),
	)
	return true
}

// deny sends the refusal back. Where the same page was approved before and its code is still unused, the last word
// counts. A code that is redeemed meanwhile was redeemed before.
func (h *Handler) deny(
	w http.ResponseWriter,
	r *http.Request,
	visitor session.CurrentUser,
	ticket consent.Ticket,
	facts grant.Snapshot,
) {
	if approved := facts.Grant; approved != nil {
		err := h.Grants.Deny(r.Context(), *approved, visitor.Actor())
		if errors.Is(err, grant.ErrAlreadyUsed) {
			h.Pages.Fault(w, r, usedAlready())
			return
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
	}
	h.recordStopped(r, *facts.Client, ticket.WorkspaceID, &visitor.User.ID, connectionlog.Denied, userSaid)
	h.sendDenial(w, ticket.RedirectURI, string(ticket.State))
}

func (h *Handler) sendDenial(w http.ResponseWriter, redirectURI, state string) {
	sendBack(w, consent.Callback{URI: redirectURI}.With("error", "access_denied",
		"error_description", "The user did not approve the request.", "state", state, "iss", h.Issuer))
}

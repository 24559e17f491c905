package forgotten

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/spelling"
	"github.com/almonerhq/almoner/shared/web"
)

// Store is the database of the pages. Its errors are password.ErrLinkInvalid, or wrap store.ErrUnavailable.
type Store interface {
	QueueMail(ctx context.Context, m mail.Message) error
	ResetLink(ctx context.Context, tokenHash []byte) (password.Link, error)
	// ResetPassword returns the grants that it ended.
	ResetPassword(ctx context.Context, r password.Reset, event audit.Event) ([]useraccount.EndedGrant, error)
	ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error)
	ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error)
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Store     Store
	Mails     bool // the deployment sends mail
	Passwords *session.Passwords
	Cost      session.Cost
	Attempts  *session.Attempts
	Pages     *ui.Pages
	Proxies   web.Proxies
	// PropagateRevocation propagates the end of a grant to Redis.
	PropagateRevocation func(ctx context.Context, id uuid.UUID, ends time.Time)

	Now    func() time.Time
	Random io.Reader
	Log    *slog.Logger
}

// A Handler serves the pages. It is safe for concurrent use.
type Handler struct{ Deps }

// New returns a Handler.
func New(deps Deps) *Handler { return &Handler{deps} }

// Path is the path of the first page.
const Path = "/login/forgotten"

const requested = "requested"

// Page serves GET /login/forgotten.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	page := h.page("")
	page.Requested = r.URL.Query().Has(requested)
	h.Pages.Show(w, r, http.StatusOK, page)
}

func (h *Handler) page(email string) *ui.Forgotten {
	return &ui.Forgotten{Frame: ui.Frame{Title: "Forgot your password?"}, Mails: h.Mails, Email: email}
}

// Ask serves POST /login/forgotten. It accepts requests from the server's own origin only.
func (h *Handler) Ask() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.ask)) }

func (h *Handler) ask(w http.ResponseWriter, r *http.Request) {
	form, ok := h.Pages.ReadForm(w, r)
	if !ok {
		return
	}
	page := h.page(form.Get("email"))
	if !h.Mails {
		h.Pages.Show(w, r, http.StatusOK, page)
		return
	}
	email := spelling.Pasted(form.Get("email"))
	if !workspace.PlausibleEmail(email) {
		page.EmailNote = "Enter the e-mail address of your account."
		h.Pages.Show(w, r, http.StatusBadRequest, page)
		return
	}
	from := h.Proxies.ClientAddress(r)
	if wait := h.Attempts.Asked(r.Context(), from); wait > 0 {
		web.SetRateLimited(w.Header(), wait, session.AskedLimit(wait))
		page.Problem = "Too many links were requested from your network. Please try again later."
		h.Pages.Show(w, r, http.StatusTooManyRequests, page)
		return
	}
	token, err := password.NewToken(h.Random)
	if err == nil {
		err = h.Store.QueueMail(r.Context(), mail.Message{
			Kind:    mail.Reset,
			Address: email,
			Token:   token,
			Data:    mail.Data{Network: from.String()},
			Expires: h.Now().Add(mail.ResetLife),
		})
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	goOn(w, Path+"?"+requested+"=1")
}

// Open serves GET /login/reset. It changes nothing (F2).
func (h *Handler) Open(w http.ResponseWriter, r *http.Request) {
	token := credential.Secret(r.URL.Query().Get("token"))
	link, err := h.Store.ResetLink(r.Context(), password.HashToken(token))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	page, err := h.newPage(r.Context(), link, token)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.Pages.Show(w, r, http.StatusOK, page)
}

// newPage returns the page of a link, with the user's personal access tokens and connections.
func (h *Handler) newPage(
	ctx context.Context, link password.Link, token credential.Secret,
) (*ui.NewPassword, error) {
	page := &ui.NewPassword{
		Frame:     ui.Frame{Title: "Set a new password"},
		Email:     link.Email,
		Token:     token.Reveal(),
		Others:    link.Removable() && !link.TakesOver,
		Stay:      link.PasskeysStay && !link.TakesOver,
		TakesOver: link.TakesOver,
	}
	tokens, err := h.Store.ActiveTokens(ctx, link.UserID)
	if err != nil {
		return nil, err
	}
	for _, t := range tokens {
		page.Credentials = append(page.Credentials, ui.EndingCredential{
			ID:        t.ID.String(),
			Name:      t.Name,
			Workspace: t.Workspace,
			Kind:      "Personal access token",
			LastUsed:  t.LastUsed,
		})
	}
	connections, err := h.Store.ConnectedApps(ctx, link.UserID)
	if err != nil {
		return nil, err
	}
	for _, c := range connections {
		if !c.Live(h.Now()) {
			continue
		}
		page.Credentials = append(page.Credentials, ui.EndingCredential{
			ID:        c.Grant.ID.String(),
			Name:      c.Application,
			Workspace: c.Workspace,
			Kind:      "Connected app",
			LastUsed:  c.Grant.LastUsed,
		})
	}
	if n := len(page.Credentials) - maxListed; n > 0 { // the form has at most 64 KiB
		page.Credentials, page.More = page.Credentials[:maxListed], n
	}
	return page, nil
}

// maxListed is the maximum number of tokens and connections that the page lists. Others end.
const maxListed = 300

// kept returns the tokens and grants that the page listed and the user does not want to end (F6).
func kept(form url.Values) (keep []uuid.UUID) {
	for listed := range strings.FieldsSeq(form.Get("listed")) {
		if id, err := identity.Parse(listed); err == nil && form.Get("end-"+listed) == "" {
			keep = append(keep, id)
		}
	}
	return keep
}

// Set serves POST /login/reset. It accepts requests from the server's own origin only.
func (h *Handler) Set() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.set)) }

func (h *Handler) set(w http.ResponseWriter, r *http.Request) {
	form, ok := h.Pages.ReadForm(w, r)
	if !ok {
		return
	}
	token, chosen := credential.Secret(form.Get("token")), credential.Secret(form.Get("new-password"))
	tokenHash := password.HashToken(token)
	link, err := h.Store.ResetLink(r.Context(), tokenHash) // before the password is hashed, which is costly
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	page, err := h.newPage(r.Context(), link, token)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	page.RemoveOthers = form.Get("remove") != ""
	keep := kept(form)
	for i, c := range page.Credentials {
		page.Credentials[i].Keep = slices.ContainsFunc(keep, func(id uuid.UUID) bool { return id.String() == c.ID })
	}
	from := h.Proxies.ClientAddress(r)
	var hash credential.Secret
	if page.PasswordNote = password.CheckForm(chosen); page.PasswordNote == "" {
		caller := session.Caller{Email: link.Email, Address: from, Known: true}
		hash, page.PasswordNote, err = password.Choose(
			r.Context(), h.Passwords, caller, chosen, h.Cost.Hash, link.Name, link.Email,
		)
	}
	if page.PasswordNote != "" {
		h.Pages.Show(w, r, http.StatusBadRequest, page)
		return
	}
	if errors.Is(err, session.ErrBusy) {
		web.SetRetryAfter(w.Header(), session.BusyFor)
		page.Problem = "Too many people are signing in right now. Please try again in a few seconds."
		h.Pages.Show(w, r, http.StatusTooManyRequests, page)
		return
	}
	var ended []useraccount.EndedGrant
	if err == nil {
		ended, err = h.Store.ResetPassword(r.Context(), password.Reset{
			TokenHash:    tokenHash,
			Hash:         hash,
			RemoveOthers: page.RemoveOthers,
			Keep:         keep,
			Device:       session.DeviceName(r.UserAgent()),
			Address:      from.String(),
		}, audit.Event{
			Action:    audit.UserPasswordReset,
			RequestID: web.RequestID(r.Context()),
			Detail: map[string]any{
				"address":        from.String(),
				"others_removed": page.RemoveOthers && link.Removable(),
			},
		})
	}
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	for _, g := range ended {
		h.PropagateRevocation(r.Context(), g.ID, g.Ends)
	}
	goOn(w, "/login?"+ui.PasswordSet+"=1")
}

// refuse writes the page of a link that is not valid, or of a fault.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, password.ErrLinkInvalid) {
		h.fail(w, r, err)
		return
	}
	h.Pages.ShowError(w, r, &ui.Message{
		Status:  http.StatusNotFound,
		Heading: "This link does not work",
		Text:    "It was already used, has ended, or is incomplete. Your password was not changed.",
		Links:   []ui.Link{{Href: Path, Text: "Request another link"}, {Href: "/login", Text: "Sign in"}},
	})
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "password reset failed", "error", err)
	if errors.Is(err, store.ErrUnavailable) {
		h.Pages.Unavailable(w, r)
		return
	}
	h.Pages.Internal(w, r)
}

func goOn(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}

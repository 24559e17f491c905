// Package session identifies the user at a browser.
//
// A session (alexedwards/scs, a random cookie whose SHA-256 is the key of a row) holds only the identifier of a
// sign-in. The sign-in names its user and whether it is still valid. It is read from the store at every request, so
// that a sign-in that was ended elsewhere is over at once.
//
//	S1 A sign-in is valid until it is ended, for at most 12 hours, and for 2 hours after it was last seen.
//	S2 A disabled user is not signed in.
//	S3 The session's identifier is new after each sign-in and each reauthentication (no fixation).
//	S4 A store that does not respond is an error, never "not signed in".
//
// Callers: endpoint/signin (begin, end), endpoint/protocol/authorize and endpoint/settings (current user), app
// (Load).
package session

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Lifetimes of a sign-in (S1).
const (
	Lifetime    = 12 * time.Hour
	IdleTimeout = 2 * time.Hour
)

// Keys of the session row.
const (
	signInKey        = "sign_in"
	authenticatedKey = "proved_at"
	flashKey         = "notice"
	offerKey         = "passkey_offer"
	workspaceKey     = "workspace"
)

// Rows stores the session rows; token is the hash of the cookie. Its errors wrap store.ErrUnavailable.
type Rows interface {
	scs.CtxStore
}

// SignIns stores the sign-ins. Its errors are ErrProofInvalid and audit.ErrNotAuthorized, or wrap store.ErrUnavailable.
type SignIns interface {
	// BeginSignIn stores a sign-in whose proof still holds.
	BeginSignIn(ctx context.Context, s SignIn, event audit.Event) error
	// ReauthenticateSignIn stores the event of a new proof that still holds, by the user of a sign-in that is still
	// valid.
	ReauthenticateSignIn(ctx context.Context, user uuid.UUID, proof Proof, event audit.Event) error
	// SignIn returns a valid sign-in (S1, S2) with its user, and records that it was seen.
	SignIn(ctx context.Context, id uuid.UUID) (CurrentUser, bool, error)
	// EndSignIn ends one sign-in of the user. A sign-in that has ended stays unchanged.
	EndSignIn(ctx context.Context, user, id uuid.UUID, event audit.Event) error
}

// Deps are the dependencies of Sessions.
type Deps struct {
	Rows    Rows
	SignIns SignIns
	Devices *Devices
	Offers  *Devices // remembers offered passkeys; nil if the deployment offers none
	Secure  bool     // the pages are served over https
	Log     *slog.Logger
	// Unavailable responds to a request whose session cannot be read.
	Unavailable http.HandlerFunc
}

// Sessions connects browsers to sign-ins. It is safe for concurrent use.
type Sessions struct {
	deps    Deps
	manager *scs.SessionManager
}

// New returns Sessions. Over https the cookie is __Host-almoner, which a browser accepts only from this host over
// https.
func New(deps Deps) *Sessions {
	manager := scs.New()
	manager.Store = deps.Rows
	manager.HashTokenInStore = true
	manager.Lifetime = Lifetime
	manager.Cookie.Name = "almoner"
	if deps.Secure {
		manager.Cookie.Name, manager.Cookie.Secure = "__Host-almoner", true
	}
	manager.Cookie.HttpOnly = true
	manager.Cookie.SameSite = http.SameSiteLaxMode
	manager.Cookie.Path = "/"
	return &Sessions{deps: deps, manager: manager}
}

// Load reads the session of each request to next. Changes are committed where they are made, before a response is
// written, so that a store failure can still become a 503.
func (s *Sessions) Load(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Cookie")
		token := ""
		if cookie, err := r.Cookie(s.manager.Cookie.Name); err == nil {
			token = cookie.Value
		}
		ctx, err := s.manager.Load(r.Context(), token)
		if err != nil {
			s.deps.Log.ErrorContext(r.Context(), "session not read", "error", err)
			s.deps.Unavailable(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Sent reports whether the request has the cookie of a session. It reads no store: the session may have ended.
func (s *Sessions) Sent(r *http.Request) bool {
	cookie, err := r.Cookie(s.manager.Cookie.Name)
	return err == nil && cookie.Value != ""
}

// CurrentUser returns the user at the browser, and false if no user is signed in.
func (s *Sessions) CurrentUser(ctx context.Context) (CurrentUser, bool, error) {
	id, err := identity.Parse(s.manager.GetString(ctx, signInKey))
	if err != nil {
		return CurrentUser{}, false, nil
	}
	current, found, err := s.deps.SignIns.SignIn(ctx, id)
	if err != nil || !found {
		return CurrentUser{}, false, err
	}
	web.RecordCaller(ctx, web.Caller{User: current.User.ID})
	current.AuthenticatedAt = time.Unix(s.manager.GetInt64(ctx, authenticatedKey), 0)
	return current, true, nil
}

// Begin signs a user in at this browser, or returns ErrProofInvalid. It first ends the browser's current sign-in, and
// remembers the browser as one of the user's.
func (s *Sessions) Begin(w http.ResponseWriter, r *http.Request, by SignIn, event audit.Event) error {
	if err := s.endCurrent(r.Context()); err != nil {
		return err
	}
	by.ID, by.Expires = identity.New(), time.Now().Add(Lifetime)
	by.NewBrowser = !s.deps.Devices.Knows(r, by.Email)
	event.Subject = "sign_in:" + by.ID.String()
	if err := s.deps.SignIns.BeginSignIn(r.Context(), by, event); err != nil {
		return err
	}
	if err := s.manager.Clear(r.Context()); err != nil {
		return fmt.Errorf("clear session: %w", err)
	}
	s.manager.Put(r.Context(), signInKey, by.ID.String())
	if err := s.authenticatedAt(w, r, by.AuthenticatedAt); err != nil {
		return err
	}
	s.deps.Devices.Remember(w, r, by.Email)
	return nil
}

// Reauthenticated records that the user just authenticated again (S3), with the event. It returns ErrProofInvalid, or
// audit.ErrNotAuthorized if the user was signed out meanwhile.
func (s *Sessions) Reauthenticated(
	w http.ResponseWriter,
	r *http.Request,
	current CurrentUser,
	proof Proof,
	event audit.Event,
) error {
	if err := s.deps.SignIns.ReauthenticateSignIn(r.Context(), current.User.ID, proof, event); err != nil {
		return err
	}
	return s.authenticatedAt(w, r, time.Now())
}

func (s *Sessions) authenticatedAt(w http.ResponseWriter, r *http.Request, at time.Time) error {
	s.manager.Put(r.Context(), authenticatedKey, at.Unix())
	if err := s.manager.RenewToken(r.Context()); err != nil {
		return fmt.Errorf("renew session: %w", err)
	}
	return s.commit(w, r)
}

// End signs the browser out.
func (s *Sessions) End(w http.ResponseWriter, r *http.Request) error {
	if err := s.endCurrent(r.Context()); err != nil {
		return err
	}
	if err := s.manager.Destroy(r.Context()); err != nil {
		return fmt.Errorf("destroy session: %w", err)
	}
	s.manager.WriteSessionCookie(r.Context(), w, "", time.Time{})
	return nil
}

func (s *Sessions) endCurrent(ctx context.Context) error {
	current, found, err := s.CurrentUser(ctx)
	if err != nil || !found {
		return err
	}
	event := current.Event(ctx, audit.SignInEnded, "sign_in:"+current.SignInID.String())
	event.Detail = map[string]any{"own": true}
	return s.deps.SignIns.EndSignIn(ctx, current.User.ID, current.SignInID, event)
}

// Flash stores a notice for the next page of this browser.
func (s *Sessions) Flash(w http.ResponseWriter, r *http.Request, notice string) error {
	s.manager.Put(r.Context(), flashKey, notice)
	return s.commit(w, r)
}

// TakeFlash removes and returns the stored notice, or "".
func (s *Sessions) TakeFlash(w http.ResponseWriter, r *http.Request) (string, error) {
	if !s.manager.Exists(r.Context(), flashKey) {
		return "", nil
	}
	notice := s.manager.PopString(r.Context(), flashKey)
	return notice, s.commit(w, r)
}

// ChooseWorkspace stores the workspace that pages show if their URL names none.
func (s *Sessions) ChooseWorkspace(w http.ResponseWriter, r *http.Request, id uuid.UUID) error {
	s.manager.Put(r.Context(), workspaceKey, id.String())
	return s.commit(w, r)
}

// Workspace returns the stored workspace, or the zero UUID.
func (s *Sessions) Workspace(ctx context.Context) uuid.UUID {
	id, err := identity.Parse(s.manager.GetString(ctx, workspaceKey))
	if err != nil {
		return uuid.Nil
	}
	return id
}

func (s *Sessions) commit(w http.ResponseWriter, r *http.Request) error {
	token, expiry, err := s.manager.Commit(r.Context())
	if err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	s.manager.WriteSessionCookie(r.Context(), w, token, expiry)
	return nil
}

// OffersPasskey reports whether the pages offer a passkey at this sign-in: it was made with a password, the user has no
// passkey, and this browser has not offered one to this user at an earlier sign-in. If so, it records the offer in a
// cookie.
func (s *Sessions) OffersPasskey(w http.ResponseWriter, r *http.Request, current CurrentUser) (bool, error) {
	if current.HasPasskey || current.Method != Password || s.deps.Offers == nil {
		return false, nil
	}
	switch s.manager.GetString(r.Context(), offerKey) {
	case "yes":
		return true, nil
	case "no":
		return false, nil
	}
	answer := "yes"
	if s.deps.Offers.Knows(r, current.User.Email) {
		answer = "no"
	}
	s.manager.Put(r.Context(), offerKey, answer)
	if err := s.commit(w, r); err != nil {
		return false, err
	}
	s.deps.Offers.Remember(w, r, current.User.Email)
	return answer == "yes", nil
}

// DeclinePasskey ends the offer of a passkey at this sign-in.
func (s *Sessions) DeclinePasskey(w http.ResponseWriter, r *http.Request) error {
	s.manager.Put(r.Context(), offerKey, "no")
	return s.commit(w, r)
}

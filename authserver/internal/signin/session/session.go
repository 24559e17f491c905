// Package session answers: who is at this browser?
//
// A session (alexedwards/scs, a random cookie whose SHA-256 is the key of a row) holds the identifier of a sign-in, and
// nothing that is believed by itself. The sign-in says whose it is and whether it still counts; it is read from the
// store at every request, so that one which was ended elsewhere is over at once.
//
//	S1 A sign-in counts until it is ended, for 12 hours at most, and for 2 hours after it was last seen.
//	S2 A disabled user is nobody.
//	S3 The session's identifier is new after each sign-in and each proof of who is there (no fixation).
//	S4 A store that does not answer is an error, never "nobody".
//
// Callers: endpoint/login (begin, end), endpoint/authorize and endpoint/settings (who is it), app (Load, Sweep).
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"
)

// Lifetimes of a sign-in (S1).
const (
	Lifetime    = 12 * time.Hour
	IdleTimeout = 2 * time.Hour
)

// What the session row holds.
const (
	signInKey        = "sign_in"
	authenticatedKey = "proved_at"
	flashKey         = "notice"
)

// Rows keep the session rows; token is the hash of the cookie. Its errors wrap store.ErrUnavailable.
type Rows interface {
	scs.CtxStore
	// Sweep deletes expired rows, a bounded number of them, and says how many.
	Sweep(ctx context.Context) (int64, error)
}

// SignIns keep the sign-ins. Their errors are ErrProofGone and audit.ErrNotAllowed, or wrap store.ErrUnavailable.
type SignIns interface {
	// BeginSignIn stores a sign-in whose proof still holds.
	BeginSignIn(ctx context.Context, s SignIn, event audit.Event) error
	// ReauthenticateSignIn stores the event of a new proof that still holds, by the user of a sign-in that still
	// counts.
	ReauthenticateSignIn(ctx context.Context, user uuid.UUID, proof Proof, event audit.Event) error
	// SignIn reads a sign-in that still counts (S1, S2) with its user, and notes that it was seen.
	SignIn(ctx context.Context, id uuid.UUID) (CurrentUser, bool, error)
	// EndSignIn ends one sign-in of the user. One that has ended stays as it is.
	EndSignIn(ctx context.Context, user, id uuid.UUID, event audit.Event) error
	// SweepSignIns deletes sign-ins that were over long ago, a bounded number of them, and says how many.
	SweepSignIns(ctx context.Context) (int64, error)
}

// Deps are what Sessions need.
type Deps struct {
	Rows    Rows
	SignIns SignIns
	Secure  bool // the pages are served over https
	Log     *slog.Logger
	// Unavailable answers a request whose session cannot be read.
	Unavailable http.HandlerFunc
}

// Sessions tie browsers to sign-ins. They are safe for concurrent use.
type Sessions struct {
	deps    Deps
	manager *scs.SessionManager
}

// New makes Sessions. The cookie is __Host-almoner over https, which a browser takes from this very host over https
// alone.
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

// Load reads the session of each request, for everything under next. Changes are committed where they are made, before
// anything is answered, so that a store that fails then is still an honest 503.
func (s *Sessions) Load(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Cookie")
		token := ""
		if cookie, err := r.Cookie(s.manager.Cookie.Name); err == nil {
			token = cookie.Value
		}
		ctx, err := s.manager.Load(r.Context(), token)
		if err != nil {
			s.deps.Log.ErrorContext(r.Context(), "read session", "error", err)
			s.deps.Unavailable(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// CurrentUser returns who is at the browser; false: nobody is signed in.
func (s *Sessions) CurrentUser(ctx context.Context) (CurrentUser, bool, error) {
	id, err := identity.Parse(s.manager.GetString(ctx, signInKey))
	if err != nil {
		return CurrentUser{}, false, nil
	}
	visitor, found, err := s.deps.SignIns.SignIn(ctx, id)
	if err != nil || !found {
		return CurrentUser{}, false, err
	}
	web.NoteCaller(ctx, web.Caller{User: visitor.User.ID})
	visitor.AuthenticatedAt = time.Unix(s.manager.GetInt64(ctx, authenticatedKey), 0)
	return visitor, true, nil
}

// Begin signs a user in at this browser, or returns ErrProofGone. A sign-in that this browser had is ended first.
func (s *Sessions) Begin(w http.ResponseWriter, r *http.Request, by SignIn, event audit.Event) error {
	if err := s.endCurrent(r.Context()); err != nil {
		return err
	}
	by.ID, by.Expires = identity.New(), time.Now().Add(Lifetime)
	event.Subject = "sign_in:" + by.ID.String()
	if err := s.deps.SignIns.BeginSignIn(r.Context(), by, event); err != nil {
		return err
	}
	if err := s.manager.Clear(r.Context()); err != nil {
		return fmt.Errorf("clear session: %w", err)
	}
	s.manager.Put(r.Context(), signInKey, by.ID.String())
	return s.authenticatedAt(w, r, by.AuthenticatedAt)
}

// Reauthenticated notes that the visitor proved just now who they are (S3), with the event. It returns ErrProofGone, or
// audit.ErrNotAllowed where the visitor was signed out meanwhile.
func (s *Sessions) Reauthenticated(
	w http.ResponseWriter,
	r *http.Request,
	visitor CurrentUser,
	proof Proof,
	event audit.Event,
) error {
	if err := s.deps.SignIns.ReauthenticateSignIn(r.Context(), visitor.User.ID, proof, event); err != nil {
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
	visitor, found, err := s.CurrentUser(ctx)
	if err != nil || !found {
		return err
	}
	return s.deps.SignIns.EndSignIn(
		ctx,
		visitor.User.ID,
		visitor.SignInID,
		visitor.Event(ctx, "sign_in.ended", "sign_in:"+visitor.SignInID.String()),
	)
}

// Flash leaves a notice for the next page of this browser.
func (s *Sessions) Flash(w http.ResponseWriter, r *http.Request, notice string) error {
	s.manager.Put(r.Context(), flashKey, notice)
	return s.commit(w, r)
}

// TakeFlash takes the notice that was left, or "".
func (s *Sessions) TakeFlash(w http.ResponseWriter, r *http.Request) (string, error) {
	if !s.manager.Exists(r.Context(), flashKey) {
		return "", nil
	}
	notice := s.manager.PopString(r.Context(), flashKey)
	return notice, s.commit(w, r)
}

func (s *Sessions) commit(w http.ResponseWriter, r *http.Request) error {
	token, expiry, err := s.manager.Commit(r.Context())
	if err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	s.manager.WriteSessionCookie(r.Context(), w, token, expiry)
	return nil
}

const sweepInterval = 10 * time.Minute

// Sweep deletes what is over from time to time, until ctx ends.
func (s *Sessions) Sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		_, rowsErr := s.deps.Rows.Sweep(ctx)
		_, signInsErr := s.deps.SignIns.SweepSignIns(ctx)
		if err := errors.Join(rowsErr, signInsErr); err != nil && ctx.Err() == nil {
			s.deps.Log.Warn("expired sessions were not swept", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

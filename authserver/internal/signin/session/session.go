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
// Signing in with a passkey or at another provider takes two requests, with a step in between that the server does not
// see. The first request hands out a secret (a challenge or a state), by which the second finds its login state.
//
//	C1 A login state is finished at the browser or the sign-in that began it, and nowhere else.
//	C2 It is finished once, whether the response then proves valid or not.
//	C3 It is forgotten after its life, which the store's clock measures.
//	C4 A secret presented elsewhere reveals nothing and does not affect the login that it belongs to.
//
// The package also checks passwords and limits attempts.
//
// Callers: endpoint/signin (begin, end), endpoint/protocol/authorize and endpoint/settings (current user), app (Load).
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/shared/crypt/seal"
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

const maxUserAgent = 300

// Store stores the sign-ins and login states. Its errors are ErrProofInvalid and audit.ErrNotAuthorized, or wrap
// store.ErrUnavailable.
type Store interface {
	// BeginSignIn stores a sign-in whose proof still holds.
	BeginSignIn(ctx context.Context, s SignIn, event audit.Event) error
	// ReauthenticateSignIn stores the event of a new proof that still holds, by the user of a sign-in that is still
	// valid.
	ReauthenticateSignIn(ctx context.Context, user uuid.UUID, proof Proof, event audit.Event) error
	// SignIn returns a valid sign-in (S1, S2) with its user, and records that it was seen.
	SignIn(ctx context.Context, id uuid.UUID) (CurrentUser, bool, error)
	// EndSignIn ends one sign-in of the user. A sign-in that has ended stays unchanged.
	EndSignIn(ctx context.Context, user, id uuid.UUID, event audit.Event) error

	SaveLoginState(ctx context.Context, state LoginState) error
	// TakeLoginState removes a login state and returns its data, and false if there is no live one (C1 to C4).
	TakeLoginState(ctx context.Context, secretHash, bindingHash []byte, purpose Purpose) ([]byte, bool, error)
}

// Deps are the dependencies of Sessions.
type Deps struct {
	Store          Store
	Rows           scs.CtxStore // of sessions, by the hash of the cookie; its errors wrap store.ErrUnavailable
	OffersPasskeys bool         // to users who sign in with a password
	Secure         bool         // the pages are served over https
	Keys           seal.Keys
	Now            func() time.Time
	Log            *slog.Logger
	// Unavailable responds to a request whose session cannot be read.
	Unavailable http.HandlerFunc
}

// Sessions connects browsers to sign-ins. It is safe for concurrent use.
type Sessions struct {
	deps    Deps
	manager *scs.SessionManager
	devices devices   // where an account was signed in to
	offers  devices   // where an account was offered a passkey
	logins  *seal.Box // of the data of login states
}

// New returns Sessions. Over https the cookie is __Host-almoner, which a browser accepts only from this host over
// https. The keys of the other cookies and of the login states derive from the master keys.
func New(deps Deps) (*Sessions, error) {
	manager := scs.New()
	manager.Store = deps.Rows
	manager.HashTokenInStore = true
	manager.Lifetime = Lifetime
	manager.Cookie.Name = cookieName("almoner", deps.Secure)
	manager.Cookie.Secure = deps.Secure
	manager.Cookie.HttpOnly = true
	manager.Cookie.SameSite = http.SameSiteLaxMode
	manager.Cookie.Path = "/"
	s := &Sessions{deps: deps, manager: manager}
	var errs [3]error
	s.devices, errs[0] = newDevices("almoner-device", "device cookie", deps)
	s.offers, errs[1] = newDevices("almoner-passkey-offer", "passkey offer cookie", deps)
	s.logins, errs[2] = seal.NewBox(deps.Keys, "login states")
	return s, errors.Join(errs[:]...)
}

// cookieName returns the name of a cookie, with the prefix that binds it to this host over https.
func cookieName(name string, secure bool) string {
	if secure {
		return "__Host-" + name
	}
	return name
}

// setCookie sets a cookie that scripts cannot read. It is Lax and not Strict, because a provider's redirect back must
// carry it.
func setCookie(w http.ResponseWriter, name, value string, life time.Duration, secure bool) {
	http.SetCookie(w, &http.Cookie{
		Name:     cookieName(name, secure),
		Value:    value,
		Path:     "/",
		MaxAge:   int(life.Seconds()),
		HttpOnly: true,
		Secure:   secure,
		SameSite: http.SameSiteLaxMode,
	})
}

// Load reads the session of each request to next. Changes are committed where they are made, before a response is
// written, so that a store failure can still become a 503.
func (s *Sessions) Load(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Cookie")
		ctx, err := s.manager.Load(r.Context(), s.token(r))
		if err != nil {
			s.deps.Log.ErrorContext(r.Context(), "session not read", "error", err)
			s.deps.Unavailable(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Sent reports whether the request has the cookie of a session. It reads no store: the session may have ended.
func (s *Sessions) Sent(r *http.Request) bool { return s.token(r) != "" }

// token returns the value of the session's cookie, or "".
func (s *Sessions) token(r *http.Request) string {
	cookie, err := r.Cookie(s.manager.Cookie.Name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// CurrentUser returns the user at the browser, and false if no user is signed in.
func (s *Sessions) CurrentUser(ctx context.Context) (CurrentUser, bool, error) {
	id, err := web.ParseID(s.manager.GetString(ctx, signInKey))
	if err != nil {
		return CurrentUser{}, false, nil
	}
	current, found, err := s.deps.Store.SignIn(ctx, id)
	if err != nil || !found {
		return CurrentUser{}, false, err
	}
	web.RecordCaller(ctx, web.Caller{User: current.User.ID})
	current.AuthenticatedAt = time.Unix(s.manager.GetInt64(ctx, authenticatedKey), 0)
	return current, true, nil
}

// Begin signs user in at this browser by a proof that was just checked, or returns ErrProofInvalid. It first ends the
// browser's current sign-in, and remembers the browser as one of the user's. from is the address of the browser.
func (s *Sessions) Begin(
	w http.ResponseWriter, r *http.Request, user workspace.User, proof Proof, from netip.Addr,
) error {
	if err := s.endCurrent(r.Context()); err != nil {
		return err
	}
	now := time.Now()
	by := SignIn{
		ID:         uuid.Must(uuid.NewV7()),
		UserID:     user.ID,
		Email:      user.Email,
		Method:     proof.Method,
		Proof:      proof,
		Address:    from.String(),
		UserAgent:  userAgent(r),
		Zone:       zone(r),
		Expires:    now.Add(Lifetime),
		NewBrowser: !s.Knows(r, user.Email),
	}
	event := audit.Event{
		UserID:    &user.ID,
		Actor:     "user:" + user.ID.String(),
		Action:    audit.SignInSucceeded,
		Subject:   "sign_in:" + by.ID.String(),
		RequestID: web.RequestID(r.Context()),
		Detail:    map[string]any{"address": by.Address, "user_agent": by.UserAgent, "method": proof.Method},
	}
	if proof.Issuer != "" {
		event.Detail["issuer"] = proof.Issuer
	}
	if err := s.deps.Store.BeginSignIn(r.Context(), by, event); err != nil {
		return err
	}
	if err := s.manager.Clear(r.Context()); err != nil {
		return fmt.Errorf("clear session: %w", err)
	}
	s.manager.Put(r.Context(), signInKey, by.ID.String())
	if proof.Method == OIDC {
		now = proof.ProvedAt
	}
	if err := s.authenticatedAt(w, r, now); err != nil {
		return err
	}
	s.devices.remember(w, r, user.Email)
	return nil
}

func userAgent(r *http.Request) string {
	agent := []rune(strings.ToValidUTF8(r.UserAgent(), "?"))
	return string(agent[:min(len(agent), maxUserAgent)])
}

// zone returns the time zone that the script zone.js reported, or "".
func zone(r *http.Request) string {
	cookie, err := r.Cookie("zone")
	if err != nil || mail.Zone(cookie.Value) == nil {
		return ""
	}
	return cookie.Value
}

// Reauthenticated records that the current user just authenticated again (S3). It returns ErrProofInvalid, or
// audit.ErrNotAuthorized if the user was signed out meanwhile. from is the address of the browser.
func (s *Sessions) Reauthenticated(
	w http.ResponseWriter, r *http.Request, current CurrentUser, proof Proof, from netip.Addr,
) error {
	event := current.Event(r.Context(), audit.SignInProved, "sign_in:"+current.SignInID.String())
	event.Detail = map[string]any{"method": proof.Method, "address": from.String()}
	if proof.Issuer != "" {
		event.Detail["issuer"] = proof.Issuer
	}
	if err := s.deps.Store.ReauthenticateSignIn(r.Context(), current.User.ID, proof, event); err != nil {
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
	return s.deps.Store.EndSignIn(ctx, current.User.ID, current.SignInID, event)
}

// Flash stores a notice for the next page of this browser.
func (s *Sessions) Flash(w http.ResponseWriter, r *http.Request, notice string) error {
	return s.put(w, r, flashKey, notice)
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
	return s.put(w, r, workspaceKey, id.String())
}

// Workspace returns the stored workspace, or the zero UUID.
func (s *Sessions) Workspace(ctx context.Context) uuid.UUID {
	id, err := web.ParseID(s.manager.GetString(ctx, workspaceKey))
	if err != nil {
		return uuid.Nil
	}
	return id
}

// put stores a value in the session row.
func (s *Sessions) put(w http.ResponseWriter, r *http.Request, key, value string) error {
	s.manager.Put(r.Context(), key, value)
	return s.commit(w, r)
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
	if current.HasPasskey || current.Method != Password || !s.deps.OffersPasskeys {
		return false, nil
	}
	switch s.manager.GetString(r.Context(), offerKey) {
	case "yes":
		return true, nil
	case "no":
		return false, nil
	}
	answer := "yes"
	if s.offers.know(r, current.User.Email) {
		answer = "no"
	}
	if err := s.put(w, r, offerKey, answer); err != nil {
		return false, err
	}
	s.offers.remember(w, r, current.User.Email)
	return answer == "yes", nil
}

// DeclinePasskey ends the offer of a passkey at this sign-in.
func (s *Sessions) DeclinePasskey(w http.ResponseWriter, r *http.Request) error {
	return s.put(w, r, offerKey, "no")
}

package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Methods of a sign-in.
const (
	Password = "password" // by e-mail address and password
	Passkey  = "passkey"
	OIDC     = "upstream" // an account at the deployment's OpenID Connect provider
)

// A SignIn is one sign-in of a user at one browser.
type SignIn struct {
	ID         uuid.UUID
	UserID     uuid.UUID
	Method     string
	Proof      Proof  // for BeginSignIn
	Address    string // of the browser, as reported by the deployment's proxies
	UserAgent  string
	Zone       string    // for BeginSignIn: the browser's time zone, or "" if it reported none
	Created    time.Time // set by the store
	LastSeen   time.Time // set by the store, to the minute
	Expires    time.Time
	Email      string // for BeginSignIn: of the user
	NewBrowser bool   // for BeginSignIn: the browser has not signed in to this account before
}

// A Proof is how a user authenticated, and with what. Checking it takes time, so its result is stored only if it still
// holds at that moment: the password, passkey or account is still the user's, and the user is not disabled.
type Proof struct {
	Method       string            // Password, Passkey or OIDC
	PasswordHash credential.Secret // for Password: the hash that was verified
	Code         credential.Secret // for Password: of an authenticator app, or a recovery code; not yet verified
	PasskeyID    uuid.UUID         // for Passkey
	Issuer       string            // for OIDC
	Subject      string            // for OIDC
	ProvedAt     time.Time         // for OIDC: when the user authenticated there; the zero time if unknown
}

// Errors about a proof. Nothing was written.
var (
	// ErrCodeNeeded reports that the user has an authenticator app, and the proof has a password and no code.
	ErrCodeNeeded = errors.New("a code of the authenticator app is needed")
	// ErrCodeInvalid reports that the code of a proof is wrong or was used.
	ErrCodeInvalid = errors.New("the code is not valid")
	// ErrSecondFactor reports that the sign-in lacks a required second factor.
	ErrSecondFactor = errors.New("a second factor is needed")
	// ErrProofInvalid reports that a proof no longer holds, because what it was made with was replaced or removed.
	ErrProofInvalid = errors.New("the authentication method was replaced or removed")
)

// A CurrentUser is the user at a browser.
type CurrentUser struct {
	SignInID        uuid.UUID
	User            workspace.User
	AuthenticatedAt time.Time // when the user last authenticated at this browser
	SecondFactor    SecondFactor
	Method          string // of the sign-in: Password, Passkey or OIDC
	HasPasskey      bool   // also one that is stopped
}

// A SecondFactor says whether a user has and used a second factor: an authenticator app, or a passkey, because the
// authenticator verifies the user.
type SecondFactor struct {
	Has  bool // the user has one
	Used bool // at this sign-in: it was not made with the password alone
}

// Satisfies reports whether the sign-in may use a workspace that requires a second factor.
func (s SecondFactor) Satisfies() bool { return s.Has && s.Used }

// MustConfirm reports whether the user must use the second factor before changing any factor, whether or not a
// workspace requires one: else a stolen password would be enough to replace it.
func (s SecondFactor) MustConfirm() bool { return s.Has && !s.Used }

// Freshness is how long after an authentication a browser may create new credentials.
const Freshness = 10 * time.Minute

// Fresh reports whether the last authentication is recent enough to create new credentials.
func (c CurrentUser) Fresh(now time.Time) bool { return now.Sub(c.AuthenticatedAt) < Freshness }

// MayChangeFactors reports whether the user may now change how they sign in: password, passkeys, authenticator app,
// recovery codes, linked account and e-mail address. The store checks the second factor again.
func (c CurrentUser) MayChangeFactors(now time.Time) bool {
	return c.Fresh(now) && !c.SecondFactor.MustConfirm()
}

// Actor returns the user as the audit log names users.
func (c CurrentUser) Actor() string { return "user:" + c.User.ID.String() }

// Event returns an audit event of something that the user did and that concerns the user.
func (c CurrentUser) Event(ctx context.Context, action audit.Action, subject string) audit.Event {
	return audit.Event{
		UserID:        &c.User.ID,
		Actor:         c.Actor(),
		Action:        action,
		Subject:       subject,
		RequestID:     web.RequestID(ctx),
		Authorization: &audit.Authorization{UserID: c.User.ID, SignInID: c.SignInID},
	}
}

// DeviceName returns the display name of a browser and its system. The User-Agent header is not proof of either.
func DeviceName(agent string) string {
	return named(agent, "A browser", [][2]string{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
		{"curl/", "curl"},
	}) + named(agent, "", [][2]string{
		{"Android", " on Android"}, {"iPhone", " on an iPhone"}, {"iPad", " on an iPad"}, {"Windows", " on Windows"},
		{"Mac OS X", " on a Mac"}, {"Linux", " on Linux"},
	})
}

func named(agent, otherwise string, names [][2]string) string {
	for _, name := range names {
		if strings.Contains(agent, name[0]) {
			return name[1]
		}
	}
	return otherwise
}

const (
	deviceLife     = 180 * 24 * time.Hour
	maxOnDevice    = 4  // accounts per browser
	deviceHashSize = 16 // bytes of the e-mail address's hash
	deviceEntry    = deviceHashSize + 8
)

// devices remembers accounts in a sealed cookie of a browser. The cookie does not authenticate and gives no access.
type devices struct {
	box    *seal.Box
	cookie string // its name, without prefix
	secure bool
	now    func() time.Time
}

func newDevices(cookie, purpose string, deps Deps) (devices, error) {
	box, err := seal.NewBox(deps.Keys, purpose)
	return devices{box, cookie, deps.Secure, deps.Now}, err
}

// Knows reports whether the browser has signed in to the account of this e-mail address within 180 days. Passwords from
// such a browser are checked before those from browsers that have never signed in (see turnQueue).
func (s *Sessions) Knows(r *http.Request, email string) bool { return s.devices.know(r, email) }

// know reports whether the cookie has the account of this e-mail address, for less than deviceLife.
func (d *devices) know(r *http.Request, email string) bool {
	wanted := deviceHash(email)
	return slices.ContainsFunc(d.entries(r), func(entry []byte) bool {
		return string(entry[:deviceHashSize]) == string(wanted)
	})
}

// remember adds the account of this e-mail address to the cookie, which holds only the newest few accounts.
func (d *devices) remember(w http.ResponseWriter, r *http.Request, email string) {
	hash := deviceHash(email)
	content := binary.BigEndian.AppendUint64(slices.Clone(hash), uint64(d.now().Unix()))
	for _, entry := range d.entries(r) {
		if len(content) < maxOnDevice*deviceEntry && string(entry[:deviceHashSize]) != string(hash) {
			content = append(content, entry...)
		}
	}
	setCookie(w, d.cookie, d.box.Seal(content), deviceLife, d.secure)
}

// entries returns the unexpired entries of the browser's cookie: the hash of an e-mail address and the time of the
// sign-in.
func (d *devices) entries(r *http.Request) (entries [][]byte) {
	cookie, err := r.Cookie(cookieName(d.cookie, d.secure))
	if err != nil {
		return nil
	}
	content, err := d.box.Open(cookie.Value)
	if err != nil || len(content)%deviceEntry != 0 {
		return nil
	}
	for entry := range slices.Chunk(content, deviceEntry) {
		signedIn := time.Unix(int64(binary.BigEndian.Uint64(entry[deviceHashSize:])), 0)
		if d.now().Sub(signedIn) < deviceLife {
			entries = append(entries, entry)
		}
	}
	return entries
}

func deviceHash(email string) []byte {
	return hashOf("device\x00" + spelling.Key(email))[:deviceHashSize]
}

// A browser at which no user is signed in yet is identified by its own cookie; a session would store a row for every
// anonymous request. The cookie proves only that two requests came from one browser.
const (
	begunCookie = "almoner-begun"
	begunLife   = 24 * time.Hour                    // longer than a sign-in page usually stays open; not renewed
	tokenSize   = len("ABCDEFGHIJKLMNOPQRSTUVWXYZ") // length of rand.Text: 26 letters and digits, 130 bits
)

// A Binding identifies the browser or sign-in that may finish a login state.
type Binding struct{ of string }

// BindToSignIn returns the binding to one sign-in of a user.
func BindToSignIn(id uuid.UUID) Binding { return Binding{"sign_in:" + id.String()} }

// BindToBrowser returns the binding to the browser, and sets the cookie if the browser has none.
//
// If two concurrent requests have no cookie, each response sets a different one and the browser keeps the last; the
// other login cannot be completed. So a page that can start logins calls BindToBrowser when it is shown.
func (s *Sessions) BindToBrowser(w http.ResponseWriter, r *http.Request) Binding {
	if by, known := s.BoundToBrowser(r); known {
		return by
	}
	token := rand.Text()
	setCookie(w, begunCookie, token, begunLife, s.deps.Secure)
	return Binding{"browser:" + token}
}

// BoundToBrowser returns the binding to a browser that has the cookie, and false if it has none.
func (s *Sessions) BoundToBrowser(r *http.Request) (Binding, bool) {
	cookie, err := r.Cookie(cookieName(begunCookie, s.deps.Secure))
	if err != nil || len(cookie.Value) != tokenSize {
		return Binding{}, false
	}
	return Binding{"browser:" + cookie.Value}, true
}

// A Purpose is what a login state is for. A secret of one purpose is unknown to every other.
type Purpose string

// The purposes.
const (
	AddPasskey    Purpose = "add_passkey"
	NewAccount    Purpose = "new_account" // a passkey of a user who is created with it
	PasskeySignIn Purpose = "passkey_sign_in"
	PasskeyReauth Purpose = "passkey_again"
	OIDCSignIn    Purpose = "upstream_sign_in"
	OIDCTakeover  Purpose = "upstream_takeover"
)

// A LoginState is the state of a login or registration between its two requests, as it is stored: with no secret in the
// clear, and sealed data.
type LoginState struct {
	SecretHash  []byte
	BindingHash []byte
	Purpose     Purpose
	Data        []byte
	Life        time.Duration
}

// BeginLogin stores data of a login or registration for life, to be found by secret.
func (s *Sessions) BeginLogin(
	ctx context.Context, purpose Purpose, by Binding, secret string, life time.Duration, data any,
) error {
	content, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("store login state: %w", err)
	}
	return s.deps.Store.SaveLoginState(ctx, LoginState{
		SecretHash:  hashOf(secret),
		BindingHash: hashOf(by.of),
		Purpose:     purpose,
		Data:        s.logins.SealBytes(content),
		Life:        life,
	})
}

// TakeLogin finishes a login state and decodes its data into data, a pointer. It returns false if there is none.
func (s *Sessions) TakeLogin(ctx context.Context, purpose Purpose, by Binding, secret string, data any) (bool, error) {
	content, found, err := s.deps.Store.TakeLoginState(ctx, hashOf(secret), hashOf(by.of), purpose)
	if err != nil || !found {
		return false, err
	}
	if opened, err := s.logins.OpenBytes(content); err == nil {
		content = opened // otherwise the previous release stored it, as JSON
	}
	if err := json.Unmarshal(content, data); err != nil {
		return false, fmt.Errorf("read login state: %w", err)
	}
	return true, nil
}

func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

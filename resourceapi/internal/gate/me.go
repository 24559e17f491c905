package gate

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

type me struct {
	User       meUser        `json:"user"`
	Credential meCredential  `json:"credential"`
	Workspaces []meWorkspace `json:"workspaces"`
	Limits     meLimits      `json:"limits"`
}

type meUser struct {
	ID    uuid.UUID `json:"id"`
	Name  string    `json:"name"`
	Email string    `json:"email"`
}

type meCredential struct {
	Type      string    `json:"type"`
	Name      string    `json:"name"`
	ExpiresAt rest.Time `json:"expiresAt"`
}

type meWorkspace struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	Permissions []string  `json:"permissions"`
}

// meLimits are those of every credential (contract, section 6).
type meLimits struct {
	RequestsInFlight int `json:"requestsInFlight"`
	SearchesInFlight int `json:"searchesInFlight"`
	PageSize         int `json:"pageSize"`
	PageBytes        int `json:"pageBytes"`
}

// Me returns the handler of GET /v1/me by path and method: who a credential belongs to, where it works and what it may
// do there (contract, section 6a). It acts in no workspace, so it needs a valid credential and nothing else.
func (g *Gate) Me() map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{"/v1/me": {"GET": g.refusing(g.serveMe)}}
}

func (g *Gate) serveMe(w http.ResponseWriter, r *http.Request) (err error) {
	held, err := g.identify(r)
	if err != nil {
		return err
	}
	turn, err := g.Bounds.requests.Enter(r.Context(), w.Header(), held.key())
	if err != nil {
		return err
	}
	defer func() { endTurn(turn, err) }()
	var profile standing.Profile
	read := func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
		s, profile, err = g.Standings.StandingAndProfile(ctx, q)
		return s, err
	}
	s, err := g.use(r.Context(), held, uuid.Nil, "", Plan{ReadStanding: read})
	if err != nil {
		return err
	}
	if err := rest.UnknownParameters(r.URL.RawQuery); err != nil {
		return err
	}
	web.JSON(w, http.StatusOK, held.describe(s, profile))
	return nil
}

// describe returns what the credential may do now.
func (p presented) describe(s standing.Standing, profile standing.Profile) me {
	d := me{
		User:       meUser{s.UserID, profile.User, profile.Email},
		Credential: meCredential{Type: "access_token", Name: profile.Credential, ExpiresAt: rest.Time(s.EndsAt)},
		Workspaces: []meWorkspace{},
		Limits: meLimits{
			RequestsInFlight: MaxInFlight,
			SearchesInFlight: MaxSearches,
			PageSize:         rest.MaxLimit,
			PageBytes:        rest.MaxPageBytes,
		},
	}
	if s.Kind == standing.PersonalAccessToken {
		d.Credential.Type = standing.PersonalAccessToken
	}
	if p.claims != nil && p.claims.Expires.Before(s.EndsAt) { // the access token ends, not its grant
		d.Credential.ExpiresAt = rest.Time(p.claims.Expires)
	}
	if s.Usable() {
		permissions := p.granted(s).Intersect(s.MemberPermissions).Strings()
		d.Workspaces = append(d.Workspaces, meWorkspace{s.CredentialWorkspace, profile.Workspace, permissions})
	}
	return d
}

package consent

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// ErrLLMOff reports that connectors may not act in the workspace (spec 4.4).
var ErrLLMOff = errors.New("LLM integration is off in the workspace")

// A MissingPermissionsError reports that the user does not hold what the client needs.
type MissingPermissionsError struct{ Missing perm.Set }

func (m *MissingPermissionsError) Error() string { return "the user lacks: " + m.Missing.Scope() }

// AddRequiredReads adds to a connector's requested permissions the reads that its writes depend on, if the client may
// have them and the user holds both. Platforms warn their users of a write without its read.
func AddRequiredReads(c client.Client, requested perm.Set, in workspace.Membership) perm.Set {
	if c.Kind.Traits().AllOrNothing {
		return requested
	}
	return requested.Union(requested.Intersect(in.Permissions).Needs().Intersect(c.Required).Intersect(in.Permissions))
}

// Evaluate splits the requested permissions into those that the user can grant in this workspace and those that are
// left out, because the user does not hold them (contract, section 4) or the read that goes with them. A kind that is
// all or nothing leaves nothing out. It returns ErrLLMOff or a *MissingPermissionsError.
func Evaluate(c client.Client, requested perm.Set, in workspace.Membership) (granted, leftOut perm.Set, err error) {
	traits := c.Kind.Traits()
	if !c.Kind.AllowedBy(in.Workspace.LLMIntegration) {
		return nil, nil, ErrLLMOff
	}
	granted, leftOut = requested.Intersect(in.Permissions), requested.Without(in.Permissions)
	if !traits.AllOrNothing {
		for _, p := range granted {
			if reads := perm.NewSet(p).Needs().Intersect(c.Required).Without(in.Permissions); len(reads) > 0 {
				granted, leftOut = granted.Without(perm.NewSet(p)), leftOut.Union(reads).Union(perm.NewSet(p))
			}
		}
	}
	if len(granted) == 0 || (traits.AllOrNothing && len(leftOut) > 0) {
		return nil, nil, &MissingPermissionsError{Missing: leftOut}
	}
	return granted, leftOut, nil
}

// ReadOnly returns the read permissions of a set: the smaller of the two presets on a connector's consent page. It is
// nil if it would equal the set or be empty.
func ReadOnly(kind client.Kind, set perm.Set) perm.Set {
	if kind.Traits().AllOrNothing {
		return nil
	}
	out := slices.DeleteFunc(slices.Clone(set), func(p perm.Permission) bool { return !p.Reads() })
	if len(out) == 0 || len(out) == len(set) {
		return nil
	}
	return out
}

// Refusals by a workspace's connector policy.
var (
	ErrPlatformNotAllowed = errors.New("the workspace's connector policy does not allow this platform")
	ErrNothingAllowed     = errors.New("the workspace's connector policy allows none of the permissions")
)

// ApplyPolicy splits what a user could grant to a client into what the workspace's connector policy allows and what it
// withholds. It returns ErrPlatformNotAllowed or ErrNothingAllowed. The policy applies only to connectors.
func ApplyPolicy(c client.Client, could perm.Set, in workspace.Workspace) (granted, withheld perm.Set, err error) {
	if c.Kind != client.Connector {
		return could, nil, nil
	}
	granted, withheld = could.Intersect(in.Connectors.Permissions), could.Without(in.Connectors.Permissions)
	switch {
	case !in.Connectors.Allows(workspace.PlatformOf(c.Platform)):
		return nil, nil, ErrPlatformNotAllowed
	case len(granted) == 0:
		return nil, withheld, ErrNothingAllowed
	}
	return granted, withheld, nil
}

// Life returns how long a client's grant lasts in a workspace from consent.
func Life(c client.Client, in workspace.Workspace) time.Duration {
	life := c.Kind.Traits().GrantLife
	if c.Kind == client.Connector {
		life = min(life, in.Connectors.Life())
	}
	return life
}

// A Connection is a grant as its user sees it, with names and the user's current membership in its workspace.
type Connection struct {
	Grant       grant.Grant
	Application string
	Workspace   string
	Member      bool
	Held        perm.Set   // permissions of the user in the workspace
	LLMEnabled  bool       // the workspace's LLM integration is on
	NarrowedAt  *time.Time // when the workspace's connector policy last removed something from it
	Home        string     // website of the application, or ""
	Person      string     // name of the user
	Email       string     // of the user
}

// MaxCounted is the most connections that a ConnectionCount counts.
const MaxCounted = 1000

// A ConnectionCount counts the live connections of a workspace. Approvals whose code was not exchanged are none.
type ConnectionCount struct {
	Assistants int
	All        int // with other applications
}

// Limited reports whether there may be more connections.
func (c ConnectionCount) Limited() bool { return c.All >= MaxCounted }

// HomeOf returns the website of an application: the origin of its metadata document, or of its first redirect URI that
// is on the web. It returns "" for an application on the user's computer.
func HomeOf(document string, redirects []string) string {
	for _, text := range append([]string{document}, redirects...) {
		if address, err := url.Parse(text); err == nil && address.Scheme == "https" && address.Host != "" {
			return "https://" + address.Host
		}
	}
	return ""
}

// platformHomes are the websites of the platforms of connectors, which a redirect URI alone proves.
var platformHomes = []string{"https://claude.ai", "https://claude.com", "https://chatgpt.com"}

// ProvenHome is HomeOf for mails: it returns "" unless the application returns the browser to that website and cannot
// be another one's, because its metadata document is there or because it is a platform's.
func ProvenHome(document string, redirects []string) string {
	proven := append([]string{HomeOf(document, nil)}, platformHomes...)
	for _, redirect := range redirects {
		if home := HomeOf(redirect, nil); home != "" && slices.Contains(proven, home) {
			return home
		}
	}
	return ""
}

// Blocked returns why the connection has no effect at this moment. It does not check the grant's end: see Live.
func (c Connection) Blocked() grant.Block {
	return grant.Snapshot{Grant: &c.Grant, Member: c.Member, Held: c.Held, LLMEnabled: c.LLMEnabled}.Blocked()
}

// Without returns the permissions of the connection that have no effect, because its user does not hold them now.
func (c Connection) Without() perm.Set { return c.Grant.Permissions.Without(c.Held) }

// Live reports whether the application can still act.
func (c Connection) Live(now time.Time) bool {
	return c.Grant.State == grant.Active && now.Before(c.Grant.Ends)
}

// A Callback is the client's redirect URI, which receives the authorization response.
type Callback struct{ URI string }

// With returns the URI with the parameters (names and values in turn) appended. The URI itself stays unchanged byte for
// byte, and parameters with an empty value are left out. A space becomes %20, because not every client decodes a plus
// sign as one.
func (c Callback) With(pairs ...string) string {
	var out strings.Builder
	out.WriteString(c.URI)
	separator := "?"
	if strings.Contains(c.URI, "?") {
		separator = "&"
		if strings.HasSuffix(c.URI, "?") || strings.HasSuffix(c.URI, "&") {
			separator = ""
		}
	}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] == "" {
			continue
		}
		out.WriteString(separator + pair[0] + "=" + strings.ReplaceAll(url.QueryEscape(pair[1]), "+", "%20"))
		separator = "&"
	}
	return out.String()
}

// Host returns the host that the user is sent to, for display. A private-use scheme precedes it, because the scheme
// selects the application.
func (c Callback) Host() string {
	parsed, err := url.Parse(c.URI)
	switch {
	case err != nil:
		return c.URI
	case !private(parsed):
		return parsed.Host
	case parsed.Host == "":
		return parsed.Scheme + ":"
	}
	return parsed.Scheme + "://" + parsed.Host
}

// private reports whether the scheme is private-use (RFC 8252, section 7.1): any other than http and https.
func private(u *url.URL) bool { return u.Scheme != "https" && u.Scheme != "http" }

// OwnDevice returns a word for the user's device if the callback leads to an application on it: "computer" for a
// loopback address, where any program may be listening, "device" for a private-use scheme, which any application may
// claim, or "" for another host.
func (c Callback) OwnDevice() string {
	parsed, err := url.Parse(c.URI)
	if err != nil {
		return ""
	}
	if private(parsed) {
		return "device"
	}
	host := strings.ToLower(strings.TrimSuffix(parsed.Hostname(), "."))
	address, err := netip.ParseAddr(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || (err == nil && address.Unmap().IsLoopback()) {
		return "computer"
	}
	return ""
}

// Lookalike reports whether the host has a label in punycode (RFC 3492), whose letters may imitate others.
func (c Callback) Lookalike() bool {
	return strings.Contains("."+strings.ToLower(c.Host()), ".xn--")
}

// A policy limits what connectors may be given in a workspace:
//
//	P1 A policy limits and never grants: a grant is what its user consented to, held, and the policy allowed.
//	P2 Lowering a policy narrows existing grants in the same transaction; the next request is narrowed.
//	P3 Raising a policy widens no grant. The user must consent again.
//	P4 It applies only to connectors. A workspace without a policy has the default.
//
// Besides this package, these apply the policy: store/postgres (P2, and what an approval may write), endpoint/settings
// and admin (changes).

// ErrPolicyChanged reports that the policy changed since it was read.
var ErrPolicyChanged = errors.New("the connector policy has changed since it was read")

// Narrow returns a connector's grant as the policy limits it. consented is when the user consented. It returns false if
// nothing of the grant is left.
func Narrow(
	p workspace.ConnectorPolicy, g grant.Grant, platform workspace.Platform, consented time.Time,
) (grant.Grant, bool) {
	g.Permissions = g.Permissions.Intersect(p.Permissions)
	if latest := consented.Add(p.Life()); g.Ends.After(latest) {
		g.Ends = latest
	}
	return g, p.Allows(platform) && len(g.Permissions) > 0
}

// A PolicyEffect counts the grants that a policy would change, or has changed.
type PolicyEffect struct {
	End    int // revoked, because their platform, all their permissions or their age is not allowed
	Lose   int // lose some of their permissions but stay active
	Sooner int // end sooner but stay active
	// More reports that the workspace has more active connections than are counted (10,000): the numbers are those of
	// the latest, and others may be changed too.
	More bool
}

// None reports whether no grant is changed.
func (p PolicyEffect) None() bool { return p == PolicyEffect{} }

// A PolicyChange is the result of changing a policy.
type PolicyChange struct {
	Before, After workspace.ConnectorPolicy
	Effect        PolicyEffect
	EndedGrants   []grant.Grant // to be revoked in Redis
}

// A PolicyRequest is a policy as the user entered it.
type PolicyRequest struct {
	Platforms   []string
	Permissions []string
	Days        int
}

// A PolicyRefusal says which field of a request is invalid, and why.
type PolicyRefusal struct{ Field, Message string }

func (p *PolicyRefusal) Error() string { return p.Message }

// The fields that a PolicyRefusal names.
const (
	FieldPlatforms   = "platforms"
	FieldPermissions = "permissions"
	FieldDays        = "days"
)

// Accept returns the policy, or a *PolicyRefusal.
func (p PolicyRequest) Accept() (workspace.ConnectorPolicy, error) {
	refuse := func(field, message string) (workspace.ConnectorPolicy, error) {
		return workspace.ConnectorPolicy{}, &PolicyRefusal{field, message}
	}
	var out workspace.ConnectorPolicy
	for _, platform := range workspace.Platforms() {
		if slices.Contains(p.Platforms, string(platform)) {
			out.Platforms = append(out.Platforms, platform)
		}
	}
	for _, text := range p.Platforms {
		if !slices.Contains(workspace.Platforms(), workspace.Platform(text)) {
			return refuse(FieldPlatforms, "A platform must be claude, chatgpt or other.")
		}
	}
	out.Permissions = perm.FromStrings(p.Permissions)
	if len(out.Permissions) == 0 {
		return refuse(FieldPermissions, "Choose at least one permission. To block all assistants, choose none of them.")
	}
	for _, one := range out.Permissions {
		entry, known := perm.Describe(one)
		switch {
		case !known || !entry.Connector:
			return refuse(FieldPermissions, "Assistants cannot have this permission.")
		case entry.Needs != "" && !out.Permissions.Has(entry.Needs):
			needed, _ := perm.Describe(entry.Needs)
			return refuse(FieldPermissions,
				fmt.Sprintf("“%s” requires “%s”. Choose both or neither.", entry.Title, needed.Title))
		}
	}
	if p.Days < 1 || p.Days > workspace.MaxDays {
		return refuse(FieldDays, fmt.Sprintf("Enter a number of days from 1 to %d.", workspace.MaxDays))
	}
	out.Days = p.Days
	return out, nil
}

package consent_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

var (
	read   = perm.NewSet(perm.ProgrammesRead)
	change = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	write  = perm.NewSet(perm.ProgrammesWrite)
)

func application(kind client.Kind, required perm.Set) client.Client {
	return client.Client{Kind: kind, Required: required, Platform: "claude"}
}

func member(held perm.Set, llm bool) workspace.Membership {
	return workspace.Membership{Workspace: workspace.Workspace{LLMIntegration: llm}, Permissions: held}
}

func TestEvaluate_OffersWhatUserHolds(t *testing.T) {
	connector, confidential := application(client.Connector, change), application(client.Confidential, change)
	for name, c := range map[string]struct {
		client           client.Client
		requested        perm.Set
		in               workspace.Membership
		granted, leftOut perm.Set
		missing          perm.Set // of a *MissingPermissionsError
		err              error
	}{
		"holds all":                   {connector, change, member(change, true), change, nil, nil, nil},
		"holds the read":              {connector, change, member(read, true), read, write, nil, nil},
		"holds the write alone":       {connector, change, member(write, true), nil, nil, change, nil},
		"holds nothing":               {connector, change, member(nil, true), nil, nil, change, nil},
		"connectors off":              {connector, change, member(change, false), nil, nil, nil, consent.ErrLLMOff},
		"application, connectors off": {confidential, change, member(change, false), change, nil, nil, nil},
		"application, lacks one":      {confidential, change, member(read, true), nil, nil, write, nil},
		"application, write alone":    {confidential, write, member(write, true), write, nil, nil, nil},
		"application, nothing":        {confidential, nil, member(change, true), nil, nil, nil, nil},
		"connector that may not read": {
			application(client.Connector, write), write, member(write, true), write, nil, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			granted, leftOut, err := consent.Evaluate(c.client, c.requested, c.in)
			lacks, lacking := errors.AsType[*consent.MissingPermissionsError](err)
			if lacking != (c.granted == nil && c.err == nil) || (lacking && !slices.Equal(lacks.Missing, c.missing)) {
				t.Errorf("%v, want the missing permissions %v", err, c.missing)
			}
			if !slices.Equal(granted, c.granted) || !slices.Equal(leftOut, c.leftOut) ||
				(!lacking && !errors.Is(err, c.err)) {
				t.Errorf("%v, %v, %v, want %v, %v, %v", granted, leftOut, err, c.granted, c.leftOut, c.err)
			}
		})
	}
}

func TestAddRequiredReads_OnlyWhereUserAndClientMay(t *testing.T) {
	for name, c := range map[string]struct {
		client client.Client
		held   perm.Set
		want   perm.Set
	}{
		"connector":                   {application(client.Connector, change), change, change},
		"connector that may not read": {application(client.Connector, write), change, write},
		"user lacks the read":         {application(client.Connector, change), write, write},
		"user lacks the write":        {application(client.Connector, change), read, write},
		"application":                 {application(client.Confidential, change), change, write},
	} {
		if got := consent.AddRequiredReads(c.client, write, member(c.held, true)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestReadOnly_IsSmallerPreset(t *testing.T) {
	for _, c := range []struct {
		kind client.Kind
		set  perm.Set
		want perm.Set
	}{
		{client.Connector, change, read},
		{client.Connector, read, nil},
		{client.Connector, write, nil},
		{client.Confidential, change, nil},
	} {
		if got := consent.ReadOnly(c.kind, c.set); !slices.Equal(got, c.want) {
			t.Errorf("%s %v: %v, want %v", c.kind, c.set, got, c.want)
		}
	}
}

func TestP4_PolicyAppliesToConnectorsAlone(t *testing.T) {
	policy := workspace.ConnectorPolicy{Platforms: []workspace.Platform{"claude"}, Permissions: read, Days: 7}
	other := policy
	other.Platforms = []workspace.Platform{"chatgpt"}
	for name, c := range map[string]struct {
		kind              client.Kind
		could             perm.Set
		policy            workspace.ConnectorPolicy
		granted, withheld perm.Set
		err               error
		life              time.Duration
	}{
		"connector": {client.Connector, change, policy, read, write, nil, 7 * 24 * time.Hour},
		"connector, nothing allowed": {
			client.Connector, write, policy, nil, write, consent.ErrNothingAllowed, 7 * 24 * time.Hour,
		},
		"connector of another platform": {
			client.Connector, change, other, nil, nil, consent.ErrPlatformNotAllowed, 7 * 24 * time.Hour,
		},
		"application": {client.Confidential, change, other, change, nil, nil, client.Confidential.Traits().GrantLife},
	} {
		t.Run(name, func(t *testing.T) {
			in := workspace.Workspace{Connectors: c.policy}
			granted, withheld, err := consent.ApplyPolicy(application(c.kind, change), c.could, in)
			if !errors.Is(err, c.err) || !slices.Equal(granted, c.granted) || !slices.Equal(withheld, c.withheld) {
				t.Errorf("%v, %v, %v, want %v, %v, %v", granted, withheld, err, c.granted, c.withheld, c.err)
			}
			if got := consent.Life(application(c.kind, change), in); got != c.life {
				t.Errorf("lasts %s, want %s", got, c.life)
			}
		})
	}
	in := workspace.Workspace{Connectors: workspace.ConnectorPolicy{Days: 90}}
	if got := consent.Life(application(client.Connector, read), in); got != 30*24*time.Hour {
		t.Errorf("a connection lasts %s, want 30 days at most", got)
	}
}

func TestConnection_ShowsWhatHasEffect(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ends := now.Add(time.Hour)
	active := consent.Connection{
		Grant:      grant.Grant{Kind: client.Connector, State: grant.Active, Permissions: change, Ends: ends},
		Member:     true,
		Held:       read,
		LLMEnabled: true,
	}
	if got := active.Without(); !slices.Equal(got, write) || active.Blocked() != "" || !active.Live(now) {
		t.Errorf("without %v, blocked %q, live %t", got, active.Blocked(), active.Live(now))
	}
	if active.Live(ends) {
		t.Error("a grant is live when it ends")
	}
	left, off := active, active
	left.Member, off.LLMEnabled, active.Grant.State = false, false, grant.Revoked
	if left.Blocked() == "" || off.Blocked() == "" || left.Blocked() == off.Blocked() || active.Live(now) {
		t.Errorf("%q, %q, %t", left.Blocked(), off.Blocked(), active.Live(now))
	}
	for want, addresses := range map[string][]string{
		"https://a.example":      {"https://a.example/client.json", "https://b.example/cb"},
		"https://b.example:8443": {"", "http://c.example/cb", "https://b.example:8443/cb"},
		"":                       {"", "http://127.0.0.1/cb", "cursor://x/cb", "https:cb"},
	} {
		if got := consent.HomeOf(addresses[0], addresses[1:]); got != want {
			t.Errorf("%q: %q, want %q", addresses, got, want)
		}
	}
	for _, c := range []struct {
		document  string
		redirects []string
		want      string
	}{
		{"https://a.example/client.json", []string{"http://127.0.0.1/", "https://a.example/cb"}, "https://a.example"},
		{"https://a.example/client.json", []string{"http://localhost/cb"}, ""},
		{"https://a.example/client.json", []string{"https://b.example/cb", "https://a.example:8443/cb"}, ""},
		{"", []string{"https://chatgpt.com/connector_platform_oauth_redirect"}, "https://chatgpt.com"},
		{"", []string{"https://claude.com/api/mcp/auth_callback"}, "https://claude.com"},
		{"", []string{"https://evil.example/cb", "https://claude.ai.evil.example/cb", "http://claude.ai/cb"}, ""},
		{"", []string{"https://claude.ai@evil.example/cb", "https://claude.ai:8443/cb", "https://CLAUDE.AI./cb"}, ""},
	} {
		if got := consent.ProvenHome(c.document, c.redirects); got != c.want {
			t.Errorf("%q %q: %q, want %q", c.document, c.redirects, got, c.want)
		}
	}
}

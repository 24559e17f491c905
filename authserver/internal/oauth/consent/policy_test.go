package consent_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestDefaultPolicy_AllowsAllConnectorPermissions(t *testing.T) {
	wish := consent.PolicyRequest{
		Platforms:   []string{"other", "claude", "chatgpt"},
		Permissions: perm.ForConnectors().Strings(),
		Days:        workspace.MaxDays,
	}
	accepted, err := wish.Accept()
	if err != nil || !accepted.Equal(workspace.DefaultConnectorPolicy()) {
		t.Errorf("%+v %v", accepted, err)
	}
	if workspace.DefaultConnectorPolicy().Permissions.Has(perm.AccountAPIAccess) {
		t.Error("account:api:access is allowed for connectors")
	}
}

func TestAccept_NamesInvalidField(t *testing.T) {
	read := []string{string(perm.ProgrammesRead)}
	for field, wishes := range map[string][]consent.PolicyRequest{
		consent.FieldPlatforms: {
			{Platforms: []string{"claude", "gemini"}, Permissions: read, Days: 1},
			{Platforms: []string{""}, Permissions: read, Days: 1},
		},
		consent.FieldPermissions: {
			{Days: 1},
			{Permissions: []string{"x"}, Days: 1},
			{Permissions: []string{string(perm.AccountAPIAccess)}, Days: 1},
			{Permissions: []string{string(perm.ProgrammesWrite)}, Days: 1},
		},
		consent.FieldDays: {{Permissions: read, Days: 0}, {Permissions: read, Days: 31}, {Permissions: read, Days: -1}},
	} {
		for _, wish := range wishes {
			_, err := wish.Accept()
			if refused, ok := errors.AsType[*consent.PolicyRefusal](err); !ok || refused.Field != field ||
				refused.Message == "" {
				t.Errorf("%+v: %v, want a refusal of %s", wish, err, field)
			}
		}
	}
	for _, days := range []int{1, 30} {
		got, err := consent.PolicyRequest{Permissions: read, Days: days}.Accept()
		if err != nil || len(got.Platforms) != 0 || got.Days != days {
			t.Errorf("a policy without platforms, %d days: %+v, %v", days, got, err)
		}
	}
}

func TestP1_NarrowNeverGrants(t *testing.T) {
	consented := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	g := grant.Grant{
		Permissions: perm.NewSet(perm.ProgrammesRead, perm.EngageReadForms),
		Ends:        consented.AddDate(0, 0, 10),
	}
	narrow := workspace.ConnectorPolicy{
		Platforms:   []workspace.Platform{workspace.Claude},
		Permissions: perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite),
		Days:        7,
	}
	got, left := consent.Narrow(narrow, g, workspace.Claude, consented)
	if !left || !slices.Equal(got.Permissions, perm.NewSet(perm.ProgrammesRead)) ||
		!got.Ends.Equal(consented.AddDate(0, 0, 7)) {
		t.Errorf("%v %v until %s", left, got.Permissions, got.Ends)
	}
	if got, left := consent.Narrow(workspace.DefaultConnectorPolicy(), g, workspace.Other, consented); !left ||
		!slices.Equal(got.Permissions, g.Permissions) ||
		!got.Ends.Equal(g.Ends) {
		t.Errorf("the default policy changes a grant: %+v", got)
	}
	for _, platform := range []workspace.Platform{
		workspace.ChatGPT,
		workspace.Other,
		workspace.PlatformOf(""),
		workspace.PlatformOf("Claude"),
	} {
		if _, left := consent.Narrow(narrow, g, platform, consented); left {
			t.Errorf("%s is allowed", platform)
		}
	}
	g.Permissions = perm.NewSet(perm.EngageReadForms)
	if _, left := consent.Narrow(narrow, g, workspace.Claude, consented); left {
		t.Error("a grant without permissions is left")
	}
}

func TestDigest_DiffersForDifferentPolicies(t *testing.T) {
	base := workspace.ConnectorPolicy{
		Platforms:   []workspace.Platform{workspace.Claude},
		Permissions: perm.NewSet(perm.ProgrammesRead),
		Days:        7,
	}
	others := []workspace.ConnectorPolicy{workspace.DefaultConnectorPolicy(), base, base, base, base}
	others[1].Days = 17
	others[2].Platforms = nil
	others[3].Permissions = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	others[4].Platforms = []workspace.Platform{workspace.Claude, workspace.ChatGPT}
	for i, other := range others {
		if other.Digest() == base.Digest() {
			t.Errorf("%d: %+v has the digest of %+v", i, other, base)
		}
	}
	none, empty := others[2], others[2]
	empty.Platforms = []workspace.Platform{}
	if none.Digest() != empty.Digest() {
		t.Error("equal policies have two digests")
	}
}

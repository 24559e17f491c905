package consent_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

func TestApproval_NextFollowsDeniedOnes(t *testing.T) {
	workspaceID := uuid.New()
	request := consent.RequestIdentity{SignInID: uuid.New(), ClientID: uuid.New(), State: []byte("s")}
	keys := request.Keys([]uuid.UUID{workspaceID})
	if len(keys) != 8 {
		t.Fatalf("a request may be approved %d times, want 8", len(keys))
	}
	// grants returns a grant for each state, with the keys of the request in turn.
	grants := func(states ...grant.State) (out []grant.Grant) {
		for i, state := range states {
			g := grant.Grant{WorkspaceID: keys[i].WorkspaceID, ID: keys[i].ID, State: state}
			if state == grant.Active {
				g.Generation = 1
			}
			out = append(out, g)
		}
		return out
	}
	denied := slices.Repeat([]grant.State{grant.Revoked}, len(keys))
	for name, c := range map[string]struct {
		states []grant.State
		next   int // index of the key, -1 for none
		ok     bool
		used   bool
	}{
		"first approval":          {nil, 0, true, false},
		"pending":                 {[]grant.State{grant.Pending}, 0, true, false},
		"denied":                  {denied[:1], 1, true, false},
		"denied, pending":         {[]grant.State{grant.Revoked, grant.Pending}, 1, true, false},
		"denied seven times":      {denied[:7], 7, true, false},
		"denied too often":        {denied, -1, false, false},
		"redeemed":                {[]grant.State{grant.Active}, 1, false, true},
		"denied before redeemed":  {[]grant.State{grant.Revoked, grant.Active}, 2, false, true},
		"another after redeeming": {[]grant.State{grant.Active, grant.Pending}, 1, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := consent.Approval{Request: request, Workspaces: []uuid.UUID{workspaceID}, Grants: grants(c.states...)}
			var want uuid.UUID
			if c.next >= 0 {
				want = keys[c.next].ID
			}
			if id, ok := a.Next(workspaceID); id != want || ok != c.ok || a.Used() != c.used {
				t.Errorf("%v %v, used %v; want key %d %v, %v", id, ok, a.Used(), c.next, c.ok, c.used)
			}
			pending := slices.Index(c.states, grant.Pending)
			in := a.In(workspaceID)
			if (in != nil) != (pending >= 0) || (in != nil && in.ID != keys[pending].ID) || a.In(uuid.New()) != nil ||
				(len(a.Pending()) == 1) != (in != nil) {
				t.Errorf("pending: %+v, %d in all", in, len(a.Pending()))
			}
		})
	}
}

// No request has a key of another request, or two workspaces the same key.
func TestApproval_KeysAreOfRequestAndWorkspace(t *testing.T) {
	here, there := uuid.New(), uuid.New()
	request := consent.RequestIdentity{SignInID: uuid.New(), ClientID: uuid.New(), State: []byte("s")}
	a := consent.Approval{Request: request, Workspaces: []uuid.UUID{here, there}}
	id, _ := a.Next(here)
	if elsewhere, open := a.Next(there); elsewhere == id || !open {
		t.Error("two workspaces have the same grant")
	}
	if got := a.Elsewhere(here); !slices.Equal(got, request.Keys([]uuid.UUID{there})) || len(got) == 0 {
		t.Errorf("keys elsewhere: %v", got)
	}
	a.Grants = []grant.Grant{{ID: id, WorkspaceID: here, State: grant.Active, Generation: 1}}
	if _, open := a.Next(there); open {
		t.Error("a request whose code was redeemed can be approved in another workspace")
	}
	for name, changed := range map[string]consent.RequestIdentity{
		"sign-in": {SignInID: uuid.New(), ClientID: request.ClientID, State: request.State},
		"client":  {SignInID: request.SignInID, ClientID: uuid.New(), State: request.State},
		"state":   {SignInID: request.SignInID, ClientID: request.ClientID},
	} {
		if other, _ := (consent.Approval{Request: changed}).Next(here); other == id {
			t.Errorf("a request with another %s has the same grant", name)
		}
	}
}

package accesstoken

import "testing"

func TestClientID_IsStable(t *testing.T) {
	const registered = "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f"
	const address = "https://claude.ai/oauth/mcp-oauth-client-metadata"
	if id, err := ClientID(registered); err != nil || id.String() != registered {
		t.Error(id, err)
	}
	// Stored identifiers must not change: this is the identifier of that address forever.
	id, err := ClientID(address)
	if err != nil || id.String() != "db510698-bee8-88d6-9dc0-60a8f65925f5" {
		t.Error(id, err)
	}
	if other, _ := ClientID(address + "/"); other == id || id.Version() != 8 {
		t.Error("two addresses have the same identifier")
	}
	for _, neither := range []string{
		"", "claude", "http://claude.ai/oauth", "HTTPS://claude.ai/x", registered + " ", " " + address,
	} {
		if _, err := ClientID(neither); err == nil {
			t.Errorf("%q is accepted", neither)
		}
	}
}

func TestRegisteredClientID_AcceptsOnlyLowerCase(t *testing.T) {
	const canonical = "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f"
	if _, err := RegisteredClientID(canonical); err != nil {
		t.Error(err)
	}
	if _, err := RegisteredClientID("0190C5D2-7f3a-7c11-9d0e-1a2b3c4d5e6f"); err == nil {
		t.Error("upper case accepted")
	}
}

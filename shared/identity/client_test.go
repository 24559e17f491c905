package identity

import "testing"

func TestClientsAreKeptUnderOneIdentifier(t *testing.T) {
	const registered, address = "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f", "https://claude.ai/oauth/mcp-oauth-client-metadata"
	if id, err := OfClient(registered); err != nil || id.String() != registered {
		t.Error(id, err)
	}
	// What is stored must not move: this is the identifier of that address for ever.
	id, err := OfClient(address)
	if err != nil || id.String() != "db510698-bee8-88d6-9dc0-60a8f65925f5" {
		t.Error(id, err)
	}
	if other, _ := OfClient(address + "/"); other == id || id.Version() != 8 {
		t.Error("two addresses have one identifier")
	}
	for _, neither := range []string{
		"",
		"claude",
		"http://claude.ai/oauth",
		"HTTPS://claude.ai/x",
		registered + " ",
		" " + address,
	} {
		if _, err := OfClient(neither); err == nil {
			t.Errorf("%q is a client", neither)
		}
	}
}

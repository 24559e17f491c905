package identity

import "testing"

func TestParse_AcceptsOnlyCanonicalForm(t *testing.T) {
	const canonical = "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f"
	if _, err := Parse(canonical); err != nil {
		t.Fatalf("canonical form refused: %v", err)
	}
	for _, other := range []string{
		"", "not-a-uuid", "{" + canonical + "}", "urn:uuid:" + canonical,
		"0190c5d27f3a7c119d0e1a2b3c4d5e6f", canonical + " ", "g190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f",
	} {
		if _, err := Parse(other); err == nil {
			t.Errorf("Parse(%q) accepted", other)
		}
	}
}

func TestParseExact_AcceptsOnlyLowerCase(t *testing.T) {
	const canonical = "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f"
	if _, err := ParseExact(canonical); err != nil {
		t.Error(err)
	}
	if _, err := ParseExact("0190C5D2-7f3a-7c11-9d0e-1a2b3c4d5e6f"); err == nil {
		t.Error("upper case accepted")
	}
}

package spelling

import "golang.org/x/text/unicode/norm"

// Password returns the spelling of a password that is hashed, measured and estimated. It is Unicode form KC: of the two
// that NIST SP 800-63B (section 3.1.1.2) names, the one that composes, as most keyboards do, so that most hashes of
// earlier releases stay as they are. Form C would refuse a user whose input method sends full-width letters, or a
// no-break space, at one device and not at another.
func Password(text string) string { return norm.NFKC.String(text) }

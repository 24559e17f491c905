package credential

// A Source returns the current value of a secret, which may change while the process runs.
type Source func() Secret

// Fixed returns a Source for a secret that does not change.
func Fixed(secret Secret) Source { return func() Secret { return secret } }

package ui

import "time"

// Provider is Settings → Security → Sign-in with the deployment's OpenID Connect provider.
type Provider struct {
	Frame
	Key    string // proves that a form came from this page
	Name   string // display name of the provider
	Linked bool
	Since  time.Time // when the account was linked
	Fresh  bool      // the last authentication is recent enough for a change
}

// Template implements View.
func (*Provider) Template() string { return "provider" }

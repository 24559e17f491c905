package ui

import "time"

// Provider is Settings → Security → Sign-in with the deployment's OpenID Connect provider.
type Provider struct {
	Frame
	Key    string // proves that a form came from this page
	Name   string // of the provider, as people know it
	Linked bool
	Since  time.Time // of the link
	Fresh  bool      // who is there was proved lately enough to change something
}

func (*Provider) page() string { return "provider" }

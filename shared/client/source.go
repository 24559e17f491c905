package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"golang.org/x/oauth2"
)

// A Keep stores a token, in place of the one before, where the program finds it after a restart. It is called before
// the token is used, and again later if it returned an error.
type Keep func(ctx context.Context, t *oauth2.Token) error

// A Source hands out a connector's access token, and refreshes it when it has run out (C4). It is an
// oauth2.TokenSource. One process has one Source for a grant: two that refresh with the same token end it.
type Source struct {
	connector Connector
	ctx       context.Context // for its values: a refresh is not given up halfway
	keep      Keep

	mu     sync.Mutex
	token  *oauth2.Token
	unkept bool
	ended  error
}

// Source makes a source that begins with a token of Finish, or with one that was kept. golang.org/x/oauth2's own does
// not send the resource when it refreshes, which Almoner requires (RFC 8707). keep may be nil where the grant may be
// lost with the process.
func (c Connector) Source(ctx context.Context, t *oauth2.Token, keep Keep) *Source {
	if keep == nil {
		keep = func(context.Context, *oauth2.Token) error { return nil }
	}
	var own oauth2.Token
	if t != nil {
		own = *t
	}
	return &Source{connector: c, ctx: context.WithoutCancel(ctx), keep: keep, token: &own}
}

var errNoRefreshToken = errors.New("almoner: there is no refresh token")

// Token returns a token that is good at least for some seconds. Everybody who asks while it is being refreshed waits
// for that one refresh, half a minute at most.
//
// An error that is ErrConsentAgain (errors.Is) is final: the grant has ended, and it is returned without asking again.
// An *Error that is Temporary may be gone at the next call, as may one of the network. Where it is not known whether
// the refresh token was used up, because no answer came, the next call tries with it again: if it was, the grant cannot
// be saved anyway, for its successor went astray.
func (s *Source) Token() (*oauth2.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, s.ended
	}
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := s.keepIt(ctx); err != nil {
		return nil, err
	}
	if !s.token.Valid() {
		if err := s.refresh(ctx); err != nil {
			return nil, err
		}
		if err := s.keepIt(ctx); err != nil {
			return nil, err
		}
	}
	token := *s.token
	return &token, nil
}

func (s *Source) refresh(ctx context.Context) error {
	if s.token.RefreshToken == "" {
		return errNoRefreshToken
	}
	t, err := s.connector.exchangeForm(ctx, url.Values{
		"grant_type": {"refresh_token"}, "client_id": {s.connector.ClientID}, "resource": {s.connector.Resource},
		"refresh_token": {s.token.RefreshToken},
	})
	if errors.Is(err, ErrConsentAgain) {
		s.ended = err
	}
	if err != nil {
		return err
	}
	if t.RefreshToken == "" {
		return errNoRefreshToken
	}
	s.token, s.unkept = t, true
	return nil
}

// keepIt keeps a new token. One that nobody kept would be lost with this process, and the one before it ends the grant.
func (s *Source) keepIt(ctx context.Context) error {
	if !s.unkept {
		return nil
	}
	token := *s.token
	if err := s.keep(ctx, &token); err != nil {
		return fmt.Errorf("almoner: the new refresh token could not be kept, so it is not used yet: %w", err)
	}
	s.unkept = false
	return nil
}

var _ oauth2.TokenSource = (*Source)(nil)
